package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// maxFormer bounds how many former members are kept in memory.
const maxFormer = 1024

// roomKey is where what is known of a room is stored, in the bucket Rooms.
func roomKey(room string) string { return room + "/room" }

// lookUp asks the relay who is in the room, pins keys that are new, and stores the answer.
func (s *Session) lookUp(ctx context.Context) error {
	found, err := s.device.ownRoom(ctx, s.id)
	if notThere(err) {
		return errors.Join(err, s.store.Update(func(tx *keystore.Tx) error { return s.device.noteGone(tx, s.id) }))
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return s.store.Update(func(tx *keystore.Tx) error {
		if wasBefore(tx, found.ParticipantID) {
			return ErrLeft
		}
		if newest, err := s.take(tx, &found); err != nil || !newest {
			return err
		}
		if err := s.joinAgain(tx, found.ParticipantID); err != nil {
			return err
		}
		return errors.Join(tx.Put(keystore.Rooms, roomKey(s.id), text), tx.Delete(keystore.Rooms, goneKey(s.id)))
	})
}

// joinAgain leaves the room as the participant that this device was before: it is another one now, with
// an inbox of its own. Where the room is new, it makes place for it.
func (s *Session) joinAgain(tx *keystore.Tx, participant string) error {
	before, ok, err := storedRoom(tx, s.id)
	switch {
	case err != nil:
		return err
	case !ok:
		return s.device.makePlace(tx)
	case before.ParticipantID == participant:
		return nil
	default:
		return s.device.leave(tx, &before)
	}
}

// recall takes what is stored of the room where the relay could not answer; and where it refuses,
// but something is in hand: that is handed over first, and what follows says why there is no more.
func (s *Session) recall(cause error) bool {
	unanswered := Retryable(cause) && !errors.Is(cause, ErrNotMember)
	err := s.store.Update(func(tx *keystore.Tx) error {
		found, ok, err := storedRoom(tx, s.id)
		if err != nil {
			return err
		}
		if !ok || !unanswered && !inHand(tx, s.id) {
			return cause
		}
		_, err = s.take(tx, &found)
		return err
	})
	if err != nil {
		return false
	}
	s.outdate()
	return true
}

// maxVersionsAhead is how far a room's version may rise from one answer or event to the next. A lie
// of the relay that was believed would be above all news that follow, of members who left and of
// conversations that were begun anew.
const maxVersionsAhead = 1 << 20

// notFarAhead returns keystore.ErrImplausible for a version that is far above the known one.
func notFarAhead(known, version int64) error {
	if version > known+maxVersionsAhead {
		return fmt.Errorf("version %d of the room, after %d: %w", version, known, keystore.ErrImplausible)
	}
	return nil
}

// knownVersion is that of the room as this device last heard of it.
func (s *Session) knownVersion(tx *keystore.Tx) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.RoomID != "" {
		return s.known.Version
	}
	before, _, _ := storedRoom(tx, s.id)
	return before.Version
}

// take makes a room the one that is known, unless a newer one is.
func (s *Session) take(tx *keystore.Tx, found *Room) (newest bool, err error) {
	if err := errors.Join(s.fits(found), notFarAhead(s.knownVersion(tx), found.Version)); err != nil {
		return false, err
	}
	sealable, changed, err := s.members(tx, found)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.RoomID != "" && found.Version < s.known.Version {
		return false, nil
	}
	if s.known.RoomID == "" { // neither changes, so they are read without the lock
		s.self, s.scheme = found.ParticipantID, found.Scheme
	}
	s.remember(sealable.Members)
	s.known, s.sealable, s.changed, s.stale = *found, sealable, changed, false
	s.looked = s.clock.Now()
	return true, nil
}

// errRoom reports a relay that says something else of a room than before.
var errRoom = errors.New("the relay says something else of this room than before")

// fits checks what never changes of a room.
func (s *Session) fits(found *Room) error {
	if found.RoomID != s.id || found.Version < 0 || checkIDs(found.ParticipantID) != nil {
		return errAnswer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.RoomID != "" && (found.ParticipantID != s.self || found.Scheme != s.scheme || found.Kind != s.known.Kind) {
		return errRoom
	}
	return nil
}

// remember keeps the keys of those who were members: what they sent may still come.
func (s *Session) remember(members []encryption.Member) {
	for _, m := range s.sealable.Members {
		if len(s.former) < maxFormer {
			s.former[m.ID()] = m
		}
	}
	for _, m := range members {
		delete(s.former, m.ID())
	}
}

// members is the room as its encryption sees it, and why the keys of others are not accepted.
func (s *Session) members(tx *keystore.Tx, found *Room) (room encryption.Room, changed map[string]error, err error) {
	room = s.device.selfIn(found)
	room.Members, changed, err = accepted(tx, found)
	return room, changed, err
}

// selfIn is a room, and who this device is in it, without the others.
func (d *Device) selfIn(found *Room) encryption.Room {
	room := encryption.Room{
		ID: found.RoomID, Kind: found.Kind, Scheme: found.Scheme, Version: uint64(found.Version),
		Unwritten: found.Activated != nil && !*found.Activated,
		Self: encryption.Self{
			Participant: found.ParticipantID, Identity: d.keys.identity, Agreement: d.keys.agreement, Keys: d.keys.public,
		},
	}
	for i := range found.Participants {
		if found.Participants[i].ParticipantID == found.ParticipantID {
			room.Role = string(found.Participants[i].Role)
		}
	}
	return room
}

// accepted are the others in a room whose keys are accepted, which pins them. Those whose keys changed
// are named; those without keys, which the operator made, can read nothing and are left out.
func accepted(tx *keystore.Tx, found *Room) (members []encryption.Member, changed map[string]error, err error) {
	changed = make(map[string]error)
	for i := range found.Participants {
		p := &found.Participants[i]
		if p.ParticipantID == found.ParticipantID || p.IdentityKey == "" {
			continue
		}
		m, err := member(tx, p)
		switch {
		case notAccepted(err):
			changed[p.ParticipantID] = fmt.Errorf("participant %s: %w", p.ParticipantID, err)
		case err != nil:
			return nil, nil, err
		default:
			members = append(members, m)
		}
	}
	return members, changed, nil
}

// formerMember looks up somebody who is not in the room, or not yet known to be, and pins the keys. why
// says why nothing of it is believed: ErrUnknownSender where the relay does not tell the keys.
func (d *Device) formerMember(ctx context.Context, room, participant string) (m encryption.Member, why, err error) {
	found, err := d.Member(ctx, room, participant)
	if errors.Is(err, &wire.Error{Code: wire.NotFound}) || errors.Is(err, ErrID) {
		return m, ErrUnknownSender, nil
	}
	if err != nil {
		return m, nil, err
	}
	err = d.store.Update(func(tx *keystore.Tx) (err error) {
		m, err = member(tx, &found)
		return err
	})
	if notAccepted(err) {
		return m, err, nil
	}
	return m, nil, err
}

// notAccepted reports an error of member that is the participant's, and no other's.
func notAccepted(err error) bool {
	return errors.Is(err, ErrKeysChanged) || errors.Is(err, identity.ErrKeys)
}

// member checks a participant's keys, and pins them.
func member(tx *keystore.Tx, p *Participant) (encryption.Member, error) {
	keys, err := p.Keys()
	if err != nil {
		return encryption.Member{}, err
	}
	if checkIDs(p.ParticipantID, p.DeviceID) != nil {
		return encryption.Member{}, errAnswer
	}
	if err := pinParticipant(tx, p.ParticipantID, p.DeviceID); err != nil {
		return encryption.Member{}, err
	}
	if _, err := pinDevice(tx, p.DeviceID, keys); err != nil {
		return encryption.Member{}, err
	}
	checked, err := signed.NewMember(p.ParticipantID, &keys)
	return encryption.Member{Member: checked, Device: p.DeviceID, Role: string(p.Role), Keys: keys}, err
}

// outdate says that the room changed.
func (s *Session) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// lookAgain is how old what is known of a direct room may be where its owner sends and nobody reads:
// that it was begun anew comes as an event, which only who reads hears of.
const lookAgain = time.Minute

// current returns the room, which is looked up where it changed.
func (s *Session) current(ctx context.Context) (*encryption.Room, error) {
	s.mu.Lock()
	stale := s.stale
	unheard := s.scheme == encryption.DoubleRatchet && s.sealable.Role != string(RoleAgent) &&
		len(s.reading) > 0 && s.clock.Since(s.looked) >= lookAgain
	s.mu.Unlock()
	if !stale && !unheard {
		return s.snapshot(), nil
	}
	if err := s.lookUp(ctx); err != nil && (stale || !Retryable(err)) {
		return nil, err
	}
	room := s.snapshot()
	if !unheard {
		return room, nil
	}
	return room, s.store.Update(func(tx *keystore.Tx) error { return s.cipher.Missed(tx, room) })
}

// snapshot is the room as it is known.
func (s *Session) snapshot() *encryption.Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.sealable
	return &room
}

// author returns who has sent an envelope. The error is ErrUnknownSender, or that of keys which are
// not accepted.
func (s *Session) author(participant string) (encryption.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sealable.Members {
		if m.ID() == participant {
			return m, nil
		}
	}
	if m, ok := s.former[participant]; ok {
		return m, nil
	}
	if err, ok := s.changed[participant]; ok {
		return encryption.Member{}, err
	}
	return encryption.Member{}, ErrUnknownSender
}

func (s *Session) knows(participant string) bool {
	_, err := s.author(participant)
	return !errors.Is(err, ErrUnknownSender)
}

// meet looks up the keys of somebody who has sent an envelope and is not known: a new member, or
// one that came and left while this device was away. Somebody whom the relay does not know
// either stays unknown.
func (s *Session) meet(ctx context.Context, participant string) error {
	if participant == s.self || s.knows(participant) {
		return nil
	}
	if err := s.lookUp(ctx); err != nil {
		return err
	}
	if s.knows(participant) {
		return nil
	}
	m, why, err := s.device.formerMember(ctx, s.id, participant)
	if err != nil || errors.Is(why, ErrUnknownSender) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case why != nil:
		s.changed[participant] = why
	case len(s.former) < maxFormer:
		s.former[participant] = m
	}
	return nil
}

// sessionRelay is what encryption asks the relay for.
type sessionRelay struct{ session *Session }

func (r sessionRelay) AllocateGeneration(ctx context.Context, kid [16]byte, sessionKey []byte) (uint64, error) {
	made, err := r.session.device.allocateGeneration(ctx, r.session.id, kid, sessionKey)
	return made.Gen, err
}

func (r sessionRelay) NewestGeneration(ctx context.Context) (uint64, error) {
	return r.session.device.NewestGeneration(ctx, r.session.id, r.session.self)
}

func (r sessionRelay) PrekeyBundle(ctx context.Context, device string) (ratchet.Bundle, error) {
	return r.session.device.takeBundle(ctx, device)
}

func (r sessionRelay) ResetRoom(ctx context.Context) (version uint64, err error) {
	room, err := r.session.device.ResetRoom(ctx, r.session.id)
	if err == nil {
		err = notFarAhead(int64(r.session.snapshot().Version), room.Version)
	}
	return uint64(max(0, room.Version)), err
}
