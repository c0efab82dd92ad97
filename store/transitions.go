package store

import (
	"cmp"
	"slices"
)

// Machine names a state machine, as the table state_transition does.
type Machine string

// State machines (STATE).
const (
	InviteMachine Machine = "invite"
	DeviceMachine Machine = "device"
	RoomMachine   Machine = "room"
)

// Transition is one move of a state machine: in state From the event leads to To.
type Transition struct {
	Machine Machine
	From    string
	Event   string
	To      string
}

// Transitions lists every move there is, by machine, state and event.
func Transitions() []Transition {
	all := slices.Concat(
		transitions(InviteMachine, inviteMoves),
		transitions(DeviceMachine, deviceMoves),
		transitions(RoomMachine, roomMoves),
	)
	slices.SortFunc(all, func(a, b Transition) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.From, b.From), cmp.Compare(a.Event, b.Event))
	})
	return all
}

func transitions[S, E ~string](machine Machine, moves map[move[S, E]]S) []Transition {
	listed := make([]Transition, 0, len(moves))
	for m, to := range moves {
		listed = append(listed, Transition{machine, string(m.From), string(m.Event), string(to)})
	}
	return listed
}
