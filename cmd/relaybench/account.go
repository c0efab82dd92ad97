package main

import (
	"bytes"

	"github.com/peerrelay/peerrelay/wire"
)

// account keeps what the relay has promised with "queued", over all lives of the
// server, and compares it with what replays bring.
type account struct {
	owners map[rowName]rowOwner           // every row ever named, by anybody
	queued map[string]map[string]string   // participant -> stream id -> envelope id, not yet out of the window
	bytes  func(envelopeID string) []byte // what was sent; valid until the next call
	counts accountCounts
}

// rowName names a row: the inboxes of one room share a stream, so its ids are
// unique in the room.
type rowName struct{ room, streamID string }

type rowOwner struct{ participant, envelopeID string }

type accountCounts struct {
	queued   int // receipts
	verified int // rows replayed as promised
	missing  int // promised, within the window, and not replayed
	changed  int // replayed with other bytes
	reused   int // stream ids that named two rows
	unasked  int // replayed without a receipt: the server was killed before it was sent
}

func newAccount(sent func(envelopeID string) []byte) *account {
	return &account{
		owners: make(map[rowName]rowOwner),
		queued: make(map[string]map[string]string),
		bytes:  sent,
	}
}

// promise notes a receipt.
func (a *account) promise(room, participant, streamID, envelopeID string) {
	a.counts.queued++
	a.claim(room, participant, streamID, envelopeID)
	if a.queued[participant] == nil {
		a.queued[participant] = make(map[string]string)
	}
	a.queued[participant][streamID] = envelopeID
}

// claim notes which row a stream id names.
func (a *account) claim(room, participant, streamID, envelopeID string) {
	name, owner := rowName{room, streamID}, rowOwner{participant, envelopeID}
	if known, ok := a.owners[name]; ok && known != owner {
		a.counts.reused++
		return
	}
	a.owners[name] = owner
}

// replayedRow is one row of a replay of everything.
type replayedRow struct {
	streamID string
	envelope []byte
}

// check compares a whole replay with the promises. Rows that were older than the
// window are forgotten, as the protocol allows.
func (a *account) check(room, participant string, rows []replayedRow) {
	promised := a.queued[participant]
	found := make(map[string]bool, len(rows))
	for _, row := range rows {
		id := string(envelopeID(row.envelope))
		a.claim(room, participant, row.streamID, id)
		want, ok := promised[row.streamID]
		switch {
		case !bytes.Equal(row.envelope, a.bytes(id)):
			a.counts.changed++
		case !ok:
			a.counts.unasked++
		case want == id:
			a.counts.verified++
		}
		found[row.streamID] = true
	}
	for streamID := range promised {
		switch {
		case found[streamID]:
		case outOfWindow(streamID, rows):
			delete(promised, streamID)
		default:
			a.counts.missing++
			delete(promised, streamID) // counted once
		}
	}
}

// outOfWindow reports whether a row is older than a full window.
func outOfWindow(streamID string, rows []replayedRow) bool {
	if len(rows) < wire.MaxInboxRows {
		return false
	}
	id, ok := wire.ParseStreamID([]byte(streamID))
	oldest, okOldest := wire.ParseStreamID([]byte(rows[0].streamID))
	return ok && okOldest && id.Compare(oldest) < 0
}
