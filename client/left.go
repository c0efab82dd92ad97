package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

var (
	// ErrLeft is an ErrNotMember: the relay names a participant that this device was before it left the
	// room. Ids of what it was sent are forgotten, so nothing of it is read: it could be shown again. Who
	// is added to the room again is another participant.
	ErrLeft = fmt.Errorf("%w: this device left it, and is not this participant any more", ErrNotMember)
	// ErrTooManyRooms says that this device is in as many rooms as its key store has place for
	// (keystore.MaxRooms). It has to leave some; archived ones count.
	ErrTooManyRooms = fmt.Errorf("this device is in %d rooms, and has to leave some: %w", keystore.MaxRooms, keystore.ErrFull)
)

// Of a room that this device is not in any more, nothing is kept but that it was this participant,
// under leftPart and the participant's id, in the bucket Cursors; and until it was taken what was
// saved to be handed over.
const (
	leftPart     = "left/"
	maxOldSelves = 4096 // then the oldest is forgotten
	// goneFor is how long a relay has to say that this device is not in a room before that is believed:
	// it may say so by mistake, as after its backup was restored, and there is no way back.
	goneFor = 24 * time.Hour
)

// oldSelf is a participant that this device was.
type oldSelf struct {
	Number uint64 `json:"number"` // the oldest has the lowest
	Room   string `json:"room"`
}

func wasBefore(tx *keystore.Tx, participant string) bool {
	return tx.Get(keystore.Cursors, leftPart+participant) != nil
}

// allOldSelves are those that are remembered, by participant.
func allOldSelves(tx *keystore.Tx) (map[string]oldSelf, error) {
	all := make(map[string]oldSelf)
	for key, text := range tx.All(keystore.Cursors, leftPart) {
		var f oldSelf
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, fmt.Errorf("%w: a room that was left", encryption.ErrState)
		}
		all[strings.TrimPrefix(key, leftPart)] = f
	}
	return all, nil
}

// oldest is the one of all that was left first, if which says so.
func oldest(all map[string]oldSelf, which func(participant string, f oldSelf) bool) (found string) {
	for participant, f := range all {
		if which(participant, f) && (found == "" || f.Number < all[found].Number) {
			found = participant
		}
	}
	return found
}

// noteOldSelf remembers a participant that this device was.
func noteOldSelf(tx *keystore.Tx, room, participant string) error {
	all, err := allOldSelves(tx)
	if err != nil || wasBefore(tx, participant) {
		return err
	}
	next := oldSelf{Room: room}
	for _, f := range all {
		next.Number = max(next.Number, f.Number+1)
	}
	if len(all) >= maxOldSelves {
		if err := forgetOldSelf(tx, all); err != nil {
			return err
		}
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return tx.Put(keystore.Cursors, leftPart+participant, text)
}

// forgetOldSelf forgets the oldest one, and its conversation where nothing else is known of the room.
func forgetOldSelf(tx *keystore.Tx, all map[string]oldSelf) error {
	participant := oldest(all, func(string, oldSelf) bool { return true })
	room := all[participant].Room
	err := tx.Delete(keystore.Cursors, leftPart+participant)
	delete(all, participant)
	again := oldest(all, func(_ string, f oldSelf) bool { return f.Room == room })
	if again != "" || tx.Get(keystore.Rooms, roomKey(room)) != nil {
		return err
	}
	return errors.Join(err, encryption.ForgetConversation(tx, room))
}

// storedRoom is what is known of a room, if it is.
func storedRoom(tx *keystore.Tx, room string) (known Room, ok bool, err error) {
	text := tx.Get(keystore.Rooms, roomKey(room))
	if text == nil {
		return Room{}, false, nil
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return Room{}, false, fmt.Errorf("%w: what is known of the room", encryption.ErrState)
	}
	return known, true, nil
}

// storedRooms are those of which something is known.
func storedRooms(tx *keystore.Tx) (rooms []string) {
	for _, key := range tx.Keys(keystore.Rooms, "") {
		if room, ok := strings.CutSuffix(key, roomKey("")); ok {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// leave forgets who this device was in a room, with the keys. What waited, to be sent or for a key or
// for the rest of a file, has failed, and is handed over before the rest is forgotten.
func (d *Device) leave(tx *keystore.Tx, before *Room) error {
	d.credentials.forget(before.RoomID)
	room := d.selfIn(before)
	return errors.Join(
		noteOldSelf(tx, before.RoomID, before.ParticipantID),
		encryption.Forget(tx, &room),
		tx.Delete(keystore.Cursors, before.ParticipantID),
		failUnsent(tx, before),
		failPending(tx, before.RoomID),
		failFiles(tx, before.RoomID),
	)
}

// errGone is what becomes of what waited.
var errGone = fmt.Errorf("%w: this device left the room before", ErrNotMember)

func failUnsent(tx *keystore.Tx, before *Room) error {
	all, err := enqueued(tx, before.RoomID)
	if err != nil {
		return err
	}
	for i := range all {
		if err := giveUpUnsent(tx, before.RoomID, before.ParticipantID, &all[i], errGone); err != nil {
			return err
		}
	}
	return nil
}

func failPending(tx *keystore.Tx, room string) error {
	for _, key := range tx.Keys(keystore.Messages, pendingPrefix(room)) {
		if err := giveUpPending(tx, room, key, "this device left the room before its key came"); err != nil {
			return err
		}
	}
	return tx.Delete(keystore.Rooms, retryKey(room))
}

// failFiles leaves those that have come whole, which are a message's.
func failFiles(tx *keystore.Tx, room string) error {
	for key, text := range tx.All(keystore.Messages, filesPart+room+"/") {
		var a arriving
		if err := stored(text, &a); err != nil {
			return err
		}
		from, file, ok := strings.Cut(strings.TrimPrefix(key, filesPart+room+"/"), "/")
		if !ok || a.whole() {
			continue
		}
		if err := giveUpFile(tx, room, from, file, &a, "this device left the room before it had come whole"); err != nil {
			return err
		}
	}
	return nil
}

// inHand reports whether something of a room was saved and not taken yet.
func inHand(tx *keystore.Tx, room string) bool {
	return len(tx.Keys(keystore.Messages, room+itemPart)) > 0
}

// forgetLeft forgets what is left of a room that this device left, unless something is in hand.
func (d *Device) forgetLeft(tx *keystore.Tx, room string) error {
	known, ok, err := storedRoom(tx, room)
	if err != nil || ok && !wasBefore(tx, known.ParticipantID) || inHand(tx, room) {
		return err
	}
	return d.forgetRoom(tx, room)
}

// forgetRoom forgets all of a room but who this device was in it.
func (d *Device) forgetRoom(tx *keystore.Tx, room string) error {
	var all []error
	remove := func(bucket keystore.Bucket, prefix string) {
		for _, key := range tx.Keys(bucket, prefix) {
			all = append(all, tx.Delete(bucket, key))
		}
	}
	remove(keystore.Rooms, room+"/")
	remove(keystore.Cursors, boardKey(room))
	remove(keystore.Outbox, room+"/")
	remove(keystore.Messages, room+"/")
	remove(keystore.Messages, pendingPrefix(room))
	remove(keystore.Messages, filesPart+room+"/")
	for _, name := range []string{room, rowsSeen(room), boardKey(room)} {
		all = append(all, tx.ForgetSeen(name))
	}
	return errors.Join(all...)
}

// makePlace makes place for one more room where there are too many: the one that was left first goes,
// with what nobody has taken of it.
func (d *Device) makePlace(tx *keystore.Tx) error {
	if len(storedRooms(tx)) < keystore.MaxRooms {
		return nil
	}
	all, err := allOldSelves(tx)
	if err != nil {
		return err
	}
	participant := oldest(all, func(participant string, f oldSelf) bool {
		known, ok, err := storedRoom(tx, f.Room)
		return err == nil && ok && known.ParticipantID == participant
	})
	if participant == "" {
		return ErrTooManyRooms
	}
	return d.forgetRoom(tx, all[participant].Room)
}

// left forgets a room that this device has just left by itself.
func (d *Device) left(room, participant string) error {
	err := d.store.Update(func(tx *keystore.Tx) error {
		known, ok, err := storedRoom(tx, room)
		if err != nil {
			return err
		}
		if !ok || known.ParticipantID != participant {
			known = Room{RoomID: room, ParticipantID: participant}
		}
		return errors.Join(d.leave(tx, &known), d.forgetLeft(tx, room))
	})
	if s := d.sessions.of(room); s != nil {
		s.outdate()
	}
	return err
}

// notThere reports a relay that says that this device is not in a room.
func notThere(err error) bool {
	return errors.Is(err, ErrNotMember) || errors.Is(err, &wire.Error{Code: wire.NotFound})
}

// goneKey is since when the relay has said so, in the bucket Rooms, in Unix milliseconds.
func goneKey(room string) string { return room + "/gone" }

// noteGone takes the relay's word that this device is not in a room.
func (d *Device) noteGone(tx *keystore.Tx, room string) error {
	known, ok, err := storedRoom(tx, room)
	if err != nil || !ok || wasBefore(tx, known.ParticipantID) {
		return err
	}
	now, since := d.clock.Now(), int64(0)
	if _, err := fmt.Sscan(string(tx.Get(keystore.Rooms, goneKey(room))), &since); err != nil || time.UnixMilli(since).After(now) {
		return tx.Put(keystore.Rooms, goneKey(room), fmt.Append(nil, now.UnixMilli()))
	}
	if now.Sub(time.UnixMilli(since)) < goneFor {
		return nil
	}
	return errors.Join(d.leave(tx, &known), d.forgetLeft(tx, room))
}

// knownRooms are storedRooms; none where the store cannot be read, and then none is forgotten.
func (d *Device) knownRooms() (rooms []string) {
	_ = d.store.View(func(tx *keystore.Tx) error {
		rooms = storedRooms(tx)
		return nil
	})
	return rooms
}

// noteListed takes a list of all rooms that this device is in; known are those that it knew before it
// asked. What cannot be saved of it comes with the next list.
func (d *Device) noteListed(known []string, listed map[string]bool) {
	_ = d.store.Update(func(tx *keystore.Tx) error {
		var all []error
		for _, room := range known {
			if listed[room] {
				all = append(all, tx.Delete(keystore.Rooms, goneKey(room)))
			}
		}
		return errors.Join(all...)
	})
	for _, room := range known {
		if !listed[room] {
			_ = d.store.Update(func(tx *keystore.Tx) error { return d.noteGone(tx, room) })
		}
	}
}
