package client

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// ErrBoardCursor reports a sequence that the room has not reached, as after the relay's backup was
// restored: ResetBoardCursor, and read from 0.
var ErrBoardCursor = errors.New("the room's Board has not reached that sequence")

func boardCursorError(err error) error {
	if errors.Is(err, &wire.Error{Code: wire.Conflict}) {
		return fmt.Errorf("%w: %w", ErrBoardCursor, err)
	}
	return err
}

// boardKey is where the cursor is stored, and the name under which the ids of events are
// remembered apart from those of messages.
func boardKey(room string) string { return room + "/board" }

// BoardCursor is the sequence of the last event that was handled: what to read BoardEvents
// after. It is not the cursor of the inbox (RELAY, "Durable Board hints"), and 0 at first.
func (d *Device) BoardCursor(room string) (sequence uint64, err error) {
	err = d.store.View(func(tx *keystore.Tx) error {
		sequence, err = boardCursor(tx, room)
		return err
	})
	return sequence, err
}

// errBoardCursor says nothing of what is stored.
var errBoardCursor = errors.New("the stored cursor of a Board is damaged")

func boardCursor(tx *keystore.Tx, room string) (uint64, error) {
	switch value := tx.Get(keystore.Cursors, boardKey(room)); len(value) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	default:
		return 0, errBoardCursor
	}
}

// MoveBoardCursor moves the cursor past events that were handled, in the order in which
// BoardEvents gave them. It never moves back, and saves their ids, so that an event which the
// relay shows again later, under another sequence, is known to be an old one.
func (d *Device) MoveBoardCursor(room string, handled ...BoardEvent) error {
	if err := checkIDs(room); err != nil {
		return fmt.Errorf("room %q: %w", room, err)
	}
	return d.store.Update(func(tx *keystore.Tx) error {
		cursor, err := boardCursor(tx, room)
		if err != nil {
			return err
		}
		before := cursor
		for i := range handled {
			if handled[i].Sequence <= cursor {
				continue
			}
			if _, err := tx.MarkSeen(boardKey(room), handled[i].EventID); err != nil {
				return err
			}
			cursor = handled[i].Sequence
		}
		if cursor == before {
			return nil
		}
		return tx.Put(keystore.Cursors, boardKey(room), binary.BigEndian.AppendUint64(nil, cursor))
	})
}

// ResetBoardCursor moves the cursor before the first event, and forgets which were handled.
func (d *Device) ResetBoardCursor(room string) error {
	return d.store.Update(func(tx *keystore.Tx) error {
		return errors.Join(tx.Delete(keystore.Cursors, boardKey(room)), tx.ForgetSeen(boardKey(room)))
	})
}

// shownBefore reports an event that was handled, and comes again under a later sequence.
func (d *Device) shownBefore(room string, row *eventRow) (before bool, err error) {
	err = d.store.View(func(tx *keystore.Tx) error {
		cursor, err := boardCursor(tx, room)
		before = row.Sequence > cursor && tx.Seen(boardKey(room), row.EventID)
		return err
	})
	return before, err
}
