package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	// maxAllocations bounds how many generations one Prepare asks for where the relay, restored
	// from a backup, allocates such as were used before.
	maxAllocations = 8
	// maxKeysPerSeal bounds the keys that go out before one message. Who is left out gets one
	// before the next message, or asks for it.
	maxKeysPerSeal = 512

	roleViewer = "viewer"
)

// senderKeys is the Encryption of rooms of scheme sender_keys (RELAY, "Sender-key identity
// compatibility"): messages and notices to the room under the sender's own key, which every
// other member, viewers too, gets in a pairwise envelope before the first message it is for;
// what is for one participant in pairwise envelopes.
//
// A generation ends when somebody who has its key leaves, when the relay or a room event says
// so, and when the store may be an old copy. The next one begins in Prepare, so before the
// next message and never in between (FAULTS I06).
//
// An old copy of the store that has the newest generation cannot be told from the newest one.
// What is sealed with it has message keys that were used before, under other nonces, and
// receivers take it for a repeat.
//
// Viewers send nothing, not even requests for keys: the relay closes their connection for it.
// They wait for a missing key as long as others ask for it.
type senderKeys struct {
	preparing chan struct{} // holds one value while nobody prepares, so that one rotation is made (FAULTS J10)
}

func newSenderKeys() *senderKeys {
	s := &senderKeys{preparing: make(chan struct{}, 1)}
	s.preparing <- struct{}{}
	return s
}

// Prepare confirms that the store is no old copy, and begins a generation where one is needed.
func (s *senderKeys) Prepare(ctx context.Context, relay Relay, store *keystore.Store, room *Room, _ time.Time) error {
	if room.Role == roleViewer {
		return nil
	}
	select {
	case <-s.preparing:
		defer func() { s.preparing <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := confirm(ctx, relay, store, room); err != nil {
		return err
	}
	for range maxAllocations {
		next, err := drawGeneration(store, room)
		if err != nil || next == nil {
			return err
		}
		gen, err := relay.AllocateGeneration(ctx, next.KID, next.published())
		if err != nil {
			return err // which says at what
		}
		begun, err := beginGeneration(store, room, next, gen)
		if err != nil || begun {
			return err
		}
	}
	return fmt.Errorf("%w: it allocates generations that were used before", ErrPrepare)
}

// confirm asks, once in each opening of the store, for the newest generation that the relay
// knows of. Where the store knows another one, neither its keys nor the one that was being
// allocated are used any more: a newer copy may have gone further with them.
func confirm(ctx context.Context, relay Relay, store *keystore.Store, room *Room) error {
	if confirmed, err := isConfirmed(store, room); err != nil || confirmed {
		return err
	}
	newest, err := relay.NewestGeneration(ctx)
	if err != nil {
		return fmt.Errorf("ask for the newest generation: %w", err)
	}
	// Another Encryption of this store may have confirmed it meanwhile: newest may be what it
	// is allocating.
	if confirmed, err := isConfirmed(store, room); err != nil || confirmed {
		return err
	}
	if _, err := store.NoticeRestored(room.Self.Participant, newest); err != nil {
		return err
	}
	return store.Update(func(tx *keystore.Tx) error {
		known, err := loadNotes(tx, room.Self.Participant)
		if err != nil || known.confirmed(tx) {
			return err
		}
		var own senderkey.Outgoing
		if err := loadBinary(tx, ownStateKey(room.Self.Participant), &own); err != nil {
			return err
		}
		own.Confirm(newest)
		known.Opening, known.Next = tx.Opening(), nil
		return errors.Join(saveBinary(tx, ownStateKey(room.Self.Participant), &own), known.save(tx, room.Self.Participant))
	})
}

func isConfirmed(store *keystore.Store, room *Room) (confirmed bool, err error) {
	err = store.View(func(tx *keystore.Tx) error {
		known, err := loadNotes(tx, room.Self.Participant)
		confirmed = known.confirmed(tx)
		return err
	})
	return confirmed && err == nil, err
}

// drawGeneration returns what the next generation is to have, nil where none is needed. It
// is saved before the relay is asked, so that a lost answer is asked for again with the same
// kid and key (FAULTS J10).
func drawGeneration(store *keystore.Store, room *Room) (next *nextGeneration, err error) {
	err = store.Update(func(tx *keystore.Tx) error {
		next = nil
		own, err := loadOwn(tx, room)
		if err != nil {
			return err
		}
		if err := saveBinary(tx, ownStateKey(room.Self.Participant), own); err != nil || usable(tx, room, own) {
			return err
		}
		known, err := loadNotes(tx, room.Self.Participant)
		if err != nil {
			return err
		}
		if known.Next == nil {
			if known.Next, err = newNextGeneration(); err != nil {
				return err
			}
		}
		next = known.Next
		return known.save(tx, room.Self.Participant)
	})
	return next, err
}

// beginGeneration begins with what drawGeneration drew and the gen that the relay allocated
// for it. It is false where that gen is not above all earlier ones.
func beginGeneration(store *keystore.Store, room *Room, next *nextGeneration, gen uint64) (begun bool, err error) {
	err = store.Update(func(tx *keystore.Tx) error {
		begun = false
		known, err := loadNotes(tx, room.Self.Participant)
		if err != nil {
			return err
		}
		if known.Next == nil || known.Next.KID != next.KID {
			return nil // another Encryption of this store was faster: look again
		}
		known.Next = nil
		own, err := loadOwn(tx, room)
		if err != nil {
			return err
		}
		err = own.Begin(bytes.NewReader(next.CK[:]), gen, next.KID, room.roster())
		if err == nil {
			err = tx.SetGeneration(room.Self.Participant, gen)
		}
		switch {
		case errors.Is(err, senderkey.ErrGeneration), errors.Is(err, keystore.ErrGeneration):
			return known.save(tx, room.Self.Participant)
		case err != nil:
			return err
		}
		begun = true
		known.applyLeft(own)
		return errors.Join(saveBinary(tx, ownStateKey(room.Self.Participant), own), known.save(tx, room.Self.Participant))
	})
	return begun, err
}

// usable reports whether the present generation is one to send with.
func usable(tx *keystore.Tx, room *Room, own *senderkey.Outgoing) bool {
	gen, ok := tx.Generation(room.Self.Participant)
	return ok && !own.NeedsRotation() && own.Present().Gen() == gen
}

// Seal returns the keys that members lack, at most maxKeysPerSeal, and the draft.
func (s *senderKeys) Seal(tx *keystore.Tx, room *Room, draft *Draft) ([]Sealed, error) {
	switch {
	case room.Role == roleViewer:
		return nil, fmt.Errorf("%w: viewers send nothing", ErrKind)
	case draft.To != room.ID:
		sealed, err := sealPrivateDraft(tx, room, draft)
		if err != nil {
			return nil, err
		}
		return []Sealed{sealed}, nil
	case draft.Kind != wire.KindMessage && draft.Kind != wire.KindNotice:
		return nil, fmt.Errorf("%w: not to the whole room", ErrKind)
	case len(draft.Payload) > signed.MaxPlaintext:
		return nil, signed.ErrTooLarge
	}
	own, err := loadOwn(tx, room)
	if err != nil {
		return nil, err
	}
	known, err := loadNotes(tx, room.Self.Participant)
	if err != nil {
		return nil, err
	}
	if !known.confirmed(tx) || !usable(tx, room, own) {
		return nil, ErrPrepare
	}
	own.Confirm(own.Present().Gen()) // as Prepare did when it set notes.Opening
	sealed, err := distribute(tx, room, own, draft.TS)
	if err != nil {
		return nil, err
	}
	message, err := sealToRoom(tx, room, own, draft)
	if err != nil {
		return nil, err
	}
	return append(sealed, message), saveBinary(tx, ownStateKey(room.Self.Participant), own)
}

// distribute seals the present key for those who lack it.
func distribute(tx *keystore.Tx, room *Room, own *senderkey.Outgoing, ts uint64) ([]Sealed, error) {
	var all []Sealed
	for _, id := range own.Missing() {
		to, ok := room.member(id)
		if !ok {
			continue // room is older than what is known of it
		}
		if len(all) == maxKeysPerSeal {
			break
		}
		d, err := own.Distribute(id)
		if err != nil {
			return nil, err
		}
		sealed, err := sealExchange(tx, room, to, wire.KindSenderKey, ts, d.Encode())
		if err != nil {
			return nil, err
		}
		all = append(all, sealed)
	}
	return all, nil
}

// sealExchange seals an envelope of key exchange.
func sealExchange(tx *keystore.Tx, room *Room, to *Member, kind wire.Kind, ts uint64, payload []byte) (Sealed, error) {
	return sealPrivate(tx, room, to, &private{header: pairwise.Header{ID: newID(), Kind: kind, TS: ts}, payload: payload})
}

// sealToRoom seals a message or notice under the present key. The nonce is drawn first, as
// the additional data names it.
func sealToRoom(tx *keystore.Tx, room *Room, own *senderkey.Outgoing, draft *Draft) (Sealed, error) {
	seq, err := nextSequence(tx, room.ID)
	if err != nil {
		return Sealed{}, err
	}
	present := own.Present()
	e := signed.Envelope{
		ID: draft.ID, SessionID: room.ID, From: room.Self.Participant, To: room.ID, Kind: draft.Kind,
		Gen: present.Gen(), Seq: seq, TS: draft.TS, KID: present.KID().String(), File: draft.File, ExpiresAt: draft.ExpiresAt,
	}
	nonce := seal.NewNonce()
	aad, err := e.AAD(nonce[:])
	if err != nil {
		return Sealed{}, err
	}
	_, ct, err := own.Seal(nonce, draft.Payload, aad)
	if err != nil {
		return Sealed{}, err
	}
	raw, err := e.Sign(room.Self.Identity, nonce[:], ct)
	if err != nil {
		return Sealed{}, err
	}
	return Sealed{
		ID: e.ID, To: e.To, Kind: e.Kind, Gen: e.Gen, Seq: e.Seq, Recipients: len(room.Members), Raw: raw,
	}, nil
}
