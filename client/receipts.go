package client

import (
	"encoding/json"
	"slices"

	"github.com/peerrelay/peerrelay/wire"
)

// Receipt is one queued frame: the envelope is stored for one recipient.
type Receipt struct {
	To       string `json:"to"`        // participant id
	StreamID string `json:"stream_id"` // the row in that recipient's inbox
}

// Verdict is what became of one envelope: receipts or a refusal, never both.
type Verdict struct {
	ID     string
	Queued []Receipt
	Reason wire.Code // of the nack; empty when it was queued
}

// Err returns a *NackError for a refused envelope and nil for a queued one.
func (v Verdict) Err() error {
	if v.Reason == "" {
		return nil
	}
	return &NackError{ID: v.ID, Reason: v.Reason}
}

// Receipts matches queued and nack frames with the envelopes that wait for them
// (RELAY: clients must correlate each receipt with its own envelope). It is not
// safe for concurrent use.
type Receipts struct {
	waiting map[string]*expected
}

type expected struct {
	verdict    Verdict
	recipients int
}

// Expect notes that an envelope is about to be sent. Its verdict is complete with
// a nack, or with as many receipts as it has recipients. recipients 0 says that
// the number is not known: the first receipt then completes it, since the relay
// sends none before the envelope is stored for every recipient.
//
// It returns ErrDuplicateID while an envelope with that id waits.
func (r *Receipts) Expect(id string, recipients int) error {
	if _, ok := r.waiting[id]; ok {
		return ErrDuplicateID
	}
	if r.waiting == nil {
		r.waiting = make(map[string]*expected)
	}
	r.waiting[id] = &expected{verdict: Verdict{ID: id}, recipients: max(recipients, 1)}
	return nil
}

// Forget drops an envelope that is no longer waited for, and reports whether it
// was.
func (r *Receipts) Forget(id string) bool {
	_, waited := r.waiting[id]
	delete(r.waiting, id)
	return waited
}

// Waiting returns how many envelopes have no complete verdict.
func (r *Receipts) Waiting() int { return len(r.waiting) }

// Queued takes a receipt and returns the verdict when this completed it. known is
// false for a receipt of an envelope that is not waited for: it completes nothing.
func (r *Receipts) Queued(id string, receipt Receipt) (done *Verdict, known bool) {
	e, ok := r.waiting[id]
	if !ok {
		return nil, false
	}
	if slices.ContainsFunc(e.verdict.Queued, func(q Receipt) bool { return q.To == receipt.To }) {
		return nil, true // it says nothing of the other recipients
	}
	e.verdict.Queued = append(e.verdict.Queued, receipt)
	if len(e.verdict.Queued) < e.recipients {
		return nil, true
	}
	delete(r.waiting, id)
	return &e.verdict, true
}

// Nacked takes a refusal and returns the verdicts it completes: that of the
// envelope it names or, when it names none, those of all that wait (RELAY: an
// id-less nack rejects the batch).
func (r *Receipts) Nacked(id string, reason wire.Code) []Verdict {
	if id != "" {
		if _, ok := r.waiting[id]; !ok {
			return nil
		}
		delete(r.waiting, id)
		return []Verdict{{ID: id, Reason: reason}}
	}
	refused := make([]Verdict, 0, len(r.waiting))
	for waiting := range r.waiting {
		refused = append(refused, Verdict{ID: waiting, Reason: reason})
	}
	clear(r.waiting)
	return refused
}

// EnvelopeID reads the id of an envelope without judging the rest of it. Names
// are compared exactly, as the relay does.
func EnvelopeID(envelope []byte) (string, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(envelope, &members) != nil {
		return "", false
	}
	var id string
	if json.Unmarshal(members["id"], &id) != nil {
		return "", false
	}
	return id, id != ""
}
