package encryption

import (
	"bytes"
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

// Open reads what is for the room with the sender's key, and the rest with that of the two.
// What the envelope says of itself chooses the way; both of them verify it first.
func (s *senderKeys) Open(tx *keystore.Tx, room *Room, from *Member, raw []byte, now time.Time) (*Opened, error) {
	claims, err := signed.Claimed(raw)
	if err != nil {
		return nil, err
	}
	if claims.To == room.ID {
		return openFromRoom(tx, room, from, raw, now)
	}
	m, err := openPrivate(room, from, raw)
	if err != nil {
		return nil, err
	}
	switch m.Kind {
	case wire.KindSenderKey:
		return takeKey(tx, room, from, m)
	case wire.KindKeyRequest:
		return takeRequest(tx, room, from, m, now)
	default:
		return shown(m), nil
	}
}

// openFromRoom opens a message or notice to the room.
func openFromRoom(tx *keystore.Tx, room *Room, from *Member, raw []byte, now time.Time) (*Opened, error) {
	m, err := signed.Read(raw, &signed.Expected{SessionID: room.ID, From: from.Member, Self: room.Self.Participant})
	if err != nil {
		return nil, err
	}
	message, err := roomMessage(m)
	if err != nil {
		return nil, lost(err)
	}
	var received senderkey.Receivers
	if err := loadBinary(tx, receivedStateKey(room.Self.Participant, m.From), &received); err != nil {
		return nil, err
	}
	payload, err := received.Open(message)
	switch {
	case errors.Is(err, senderkey.ErrStaleSenderKey):
		opened, why := askFor(tx, room, from, err, now)
		if errors.Is(err, senderkey.ErrSpent) && errors.Is(why, ErrPending) {
			received.Spent(message)
			why = errors.Join(why, saveBinary(tx, receivedStateKey(room.Self.Participant, m.From), &received))
		}
		return opened, why
	case err != nil:
		return nil, lost(err)
	}
	return &Opened{
		Kind: m.Kind, Payload: payload, Gen: m.Gen, TS: m.TS, ExpiresAt: m.ExpiresAt, File: m.File,
	}, saveBinary(tx, receivedStateKey(room.Self.Participant, m.From), &received)
}

// roomMessage is what package senderkey needs of an envelope that was read, so verified.
func roomMessage(m *signed.Message) (*senderkey.Message, error) {
	switch {
	case m.Kind != wire.KindMessage && m.Kind != wire.KindNotice:
		return nil, fmt.Errorf("%w: a %s to the whole room", ErrKind, m.Kind)
	case m.Enc != "" || m.Hdr != nil:
		return nil, fmt.Errorf("%w: it has an enc or a hdr", ErrKind)
	case len(m.Nonce) != seal.NonceSize:
		return nil, fmt.Errorf("nonce: %w", senderkey.ErrMessage)
	}
	var kid senderkey.KID
	if m.KID != "" {
		var err error
		if kid, err = senderkey.ParseKID(m.KID); err != nil {
			return nil, err
		}
	}
	return &senderkey.Message{
		From: m.From, KID: kid, Gen: m.Gen, Nonce: [seal.NonceSize]byte(m.Nonce), CT: m.CT, AAD: m.AAD(),
		Written: senderkey.Written{TS: m.TS, Seq: m.Seq}, Verified: true,
	}, nil
}

// askFor asks the sender of a message for its key, if it may be asked now (RELAY,
// stale_sender_key: three attempts, 60 s apart; FAULTS J06). Who has left cannot be asked, and
// who is not known to be in the room yet is not: the relay would close the connection.
func askFor(tx *keystore.Tx, room *Room, from *Member, stale error, now time.Time) (*Opened, error) {
	known, err := loadNotes(tx, room.Self.Participant)
	if err != nil {
		return nil, err
	}
	if _, gone := known.Left[from.ID()]; gone {
		return nil, lost(stale)
	}
	var repair senderkey.Repair
	if err := loadBinary(tx, keyRepairKey(room.Self.Participant), &repair); err != nil {
		return nil, err
	}
	request, refused := repair.Ask(stale, now)
	opened := &Opened{}
	switch {
	case refused == nil:
		sealed, err := sealRequest(tx, room, request, now)
		if err != nil {
			return nil, err
		}
		opened.Send = sealed
	case errors.Is(refused, senderkey.ErrCooldown), repair.Waits(stale, now):
	case errors.Is(refused, senderkey.ErrArgument):
		return nil, refused // not the message's fault
	case room.Role == roleViewer:
		return nil, fmt.Errorf("%w: %w", ErrMayNotAsk, stale)
	default:
		return nil, lost(fmt.Errorf("%w: %w", stale, refused))
	}
	known.retryAt(now)
	if err := errors.Join(saveBinary(tx, keyRepairKey(room.Self.Participant), &repair), known.save(tx, room.Self.Participant)); err != nil {
		return nil, err
	}
	return opened, fmt.Errorf("%w: %w", ErrPending, stale)
}

// sealRequest seals a request for a key: none of a viewer, who may not send, and none to
// somebody who is not in the room.
func sealRequest(tx *keystore.Tx, room *Room, request senderkey.Request, now time.Time) ([]Sealed, error) {
	to, ok := room.member(request.To)
	if !ok || room.Role == roleViewer {
		return nil, nil
	}
	sealed, err := sealExchange(tx, room, to, wire.KindKeyRequest, uint64(now.UnixMilli()), request.Encode())
	if err != nil {
		return nil, err
	}
	return []Sealed{sealed}, nil
}

// takeKey takes the key that a member gave. One that is refused changes nothing and starts no
// repair (FAULTS J05, J06).
func takeKey(tx *keystore.Tx, room *Room, from *Member, m *pairwise.Message) (*Opened, error) {
	d, err := senderkey.ParseDistribution(m.Payload)
	if err != nil {
		return nil, lost(err)
	}
	var repair senderkey.Repair
	if err := loadBinary(tx, keyRepairKey(room.Self.Participant), &repair); err != nil {
		return nil, err
	}
	if err := foreign(tx, room, from, &d, &repair); err != nil {
		return nil, err
	}
	var received senderkey.Receivers
	if err := loadBinary(tx, receivedStateKey(room.Self.Participant, from.ID()), &received); err != nil {
		return nil, err
	}
	accept := received.Accept
	if repair.Asked(senderkey.Key{Sender: from.ID(), KID: d.KID, Gen: d.Gen}) {
		accept = received.AcceptAgain
	}
	key, err := accept(from.ID(), d)
	switch {
	case errors.Is(err, senderkey.ErrRetired):
		return &Opened{Kind: m.Kind, Private: true, Gen: m.Gen, TS: m.TS}, nil // it came late, no more
	case err != nil:
		return nil, lost(err)
	}
	repair.Resolved(key)
	opened := &Opened{Kind: m.Kind, Private: true, Gen: m.Gen, TS: m.TS}
	opened.Retry, err = saveChanged(tx, receivedStateKey(room.Self.Participant, from.ID()), &received)
	return opened, errors.Join(err, saveBinary(tx, keyRepairKey(room.Self.Participant), &repair))
}

// foreign refuses a key under a kid that another member gave one with, unless a message of
// the giver, verified, named the kid too: so nobody gives a key in another's name, and nobody
// is kept out by somebody who was faster with their kid. Viewers, who could not ask for it,
// take both. Whosever key it is, it opens messages of its giver only.
func foreign(tx *keystore.Tx, room *Room, from *Member, d *senderkey.Distribution, repair *senderkey.Repair) error {
	if d.KID == (senderkey.KID{}) || room.Role == roleViewer ||
		repair.Asked(senderkey.Key{Sender: from.ID(), KID: d.KID, Gen: d.Gen}) {
		return nil
	}
	own := receivedStateKey(room.Self.Participant, from.ID())
	for key, data := range tx.All(keystore.SenderKeys, receivedPrefix(room.Self.Participant)) {
		var other senderkey.Receivers
		switch err := other.UnmarshalBinary(data); {
		case key == own:
		case err != nil:
			return fmt.Errorf("%w: %w", ErrState, err)
		case other.Holder(d.KID) != "":
			return lost(senderkey.ErrForeignKID)
		}
	}
	return nil
}

// saveChanged is saveState that says whether there was anything to save.
func saveChanged(tx *keystore.Tx, key string, state binaryState) (changed bool, err error) {
	data, err := state.MarshalBinary()
	if err != nil || bytes.Equal(data, tx.Get(keystore.SenderKeys, key)) {
		return false, err
	}
	return true, tx.Put(keystore.SenderKeys, key, data)
}

// takeRequest answers a member's request for a key, or takes the answer that there is none.
func takeRequest(tx *keystore.Tx, room *Room, from *Member, m *pairwise.Message, now time.Time) (*Opened, error) {
	opened := &Opened{Kind: m.Kind, Private: true, Gen: m.Gen, TS: m.TS}
	var err error
	request, asks := senderkey.ParseKeyRequest(m.Payload)
	gone, answers := senderkey.ParseKeyUnavailable(m.Payload)
	switch {
	case asks == nil:
		opened.Send, err = answer(tx, room, from, request, now)
	case answers == nil:
		opened.Retry, err = takeUnavailable(tx, room, from, gone)
	default:
		return nil, lost(asks)
	}
	return opened, err
}

// answer gives the key to a member that may read with it, or says that there is none. Who
// may not be answered now is not (senderkey.Outgoing.Answer says who).
func answer(tx *keystore.Tx, room *Room, from *Member, request senderkey.KeyRequest, now time.Time) ([]Sealed, error) {
	to, ok := room.member(from.ID())
	if !ok || room.Role == roleViewer {
		return nil, nil
	}
	own, err := loadOwn(tx, room)
	if err != nil {
		return nil, err
	}
	given, err := own.Answer(from.ID(), request, now)
	switch {
	case errors.Is(err, senderkey.ErrNotMember), errors.Is(err, senderkey.ErrAnswered), errors.Is(err, senderkey.ErrTooOften):
		return nil, nil
	case err != nil:
		return nil, err
	}
	switch err := saveBinary(tx, ownStateKey(room.Self.Participant), own); {
	case errors.Is(err, keystore.ErrSize):
		return nil, nil // thousands of members asked in the last hour: this one asks again
	case err != nil:
		return nil, err
	}
	ts := uint64(now.UnixMilli())
	var sealed Sealed
	if given.Key != nil {
		sealed, err = sealExchange(tx, room, to, wire.KindSenderKey, ts, given.Key.Encode())
	} else {
		sealed, err = sealExchange(tx, room, to, wire.KindKeyRequest, ts, given.Unavailable.Encode())
	}
	if err != nil {
		return nil, err
	}
	return []Sealed{sealed}, nil
}

// takeUnavailable ends a repair: the messages that wait for the key are lost.
func takeUnavailable(tx *keystore.Tx, room *Room, from *Member, gone senderkey.KeyUnavailable) (ended bool, err error) {
	var repair senderkey.Repair
	if err := loadBinary(tx, keyRepairKey(room.Self.Participant), &repair); err != nil {
		return false, err
	}
	repair.Unavailable(from.ID(), gone)
	return saveChanged(tx, keyRepairKey(room.Self.Participant), &repair)
}
