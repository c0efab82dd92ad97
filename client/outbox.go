package client

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// waiting is an envelope in the bucket Outbox: saved with the keys that sealed it, before
// its first byte leaves, until its verdict is known.
type waiting struct {
	ID       string    `json:"id"`
	To       string    `json:"to"`
	Kind     wire.Kind `json:"kind"`
	Gen      uint64    `json:"gen"`
	Seq      uint64    `json:"seq"`
	Envelope []byte    `json:"envelope"`
}

// waitingKey orders a room's envelopes by their seq.
func waitingKey(room string, seq uint64) string { return fmt.Sprintf("%s/%016x", room, seq) }

// enqueue saves envelopes that are to be sent.
func enqueue(tx *keystore.Tx, room string, sealed []encryption.Sealed) error {
	for _, e := range sealed {
		text, err := json.Marshal(waiting{ID: e.ID, To: e.To, Kind: e.Kind, Gen: e.Gen, Seq: e.Seq, Envelope: e.Raw})
		if err != nil {
			return err
		}
		if err := tx.Put(keystore.Outbox, waitingKey(room, e.Seq), text); err != nil {
			return err
		}
	}
	return nil
}

// enqueued are a room's envelopes that wait, in the order of their seq.
func enqueued(tx *keystore.Tx, room string) ([]waiting, error) {
	var all []waiting
	for _, text := range tx.All(keystore.Outbox, room+"/") {
		var w waiting
		if err := json.Unmarshal(text, &w); err != nil {
			return nil, fmt.Errorf("%w: an envelope that waits", encryption.ErrState)
		}
		all = append(all, w)
	}
	return all, nil
}

// dequeue forgets an envelope that waits.
func dequeue(tx *keystore.Tx, room string, w *waiting) error {
	return tx.Delete(keystore.Outbox, waitingKey(room, w.Seq))
}

// outbox are the envelopes of the room that wait.
func (s *Session) outbox() (all []waiting, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		all, err = enqueued(tx, s.id)
		return err
	})
	return all, err
}

func (w *waiting) sealed() encryption.Sealed {
	return encryption.Sealed{ID: w.ID, To: w.To, Kind: w.Kind, Gen: w.Gen, Seq: w.Seq, Raw: w.Envelope}
}

// errBegunAnew is what becomes of messages of a direct conversation that was begun anew before
// they were sent: the other side has no keys of theirs any more.
var errBegunAnew = fmt.Errorf("%w: the conversation was begun anew before it was sent", encryption.ErrLost)

// dropStale fails what waits under the keys of before a direct room was begun anew; gen is the
// room's version since then.
func (s *Session) dropStale(tx *keystore.Tx, gen uint64) error {
	if s.scheme != encryption.DoubleRatchet {
		return nil
	}
	all, err := enqueued(tx, s.id)
	if err != nil {
		return err
	}
	for i := range all {
		w := &all[i]
		if w.Gen >= gen || !w.content() {
			continue
		}
		if err := giveUpUnsent(tx, s.id, s.self, w, errBegunAnew); err != nil {
			return err
		}
	}
	return nil
}

// giveUpUnsent forgets an envelope of this device, the participant self, and reports it where it is
// one of a draft.
func giveUpUnsent(tx *keystore.Tx, room, self string, w *waiting, why error) error {
	err := dequeue(tx, room, w)
	if err != nil || !w.content() {
		return err
	}
	return saveItem(tx, room, &savedItem{Failure: newFailure(w.ID, self, "", why)})
}

// content reports whether it is what somebody wrote, and not an exchange of keys.
func (w *waiting) content() bool {
	return w.Kind == wire.KindMessage || w.Kind == wire.KindNotice || w.Kind == wire.KindControl
}
