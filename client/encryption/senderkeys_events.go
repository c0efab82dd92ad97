package encryption

import (
	"errors"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/wire"
)

// Event ends the present generation where somebody who has its key left, or the relay says so
// (STATE, "Mandatory Rekey"). A new member needs nothing: it gets the key before the next message.
func (s *senderKeys) Event(tx *keystore.Tx, room *Room, event *wire.RoomEvent) error {
	if event.Version < 0 {
		return nil
	}
	version := uint64(event.Version)
	switch event.Event {
	case wire.MemberRemoved:
		return memberLeft(tx, room, event.ParticipantID, version)
	case wire.RekeyRequired, wire.RoomReset:
		return changeOwn(tx, room, func(own *senderkey.Outgoing) { own.Retire(version) })
	default:
		return nil
	}
}

// Missed has nothing to do: who left is not in the room that was looked up, and the relay refuses a
// generation that is over.
func (s *senderKeys) Missed(*keystore.Tx, *Room) error { return nil }

// changeOwn changes this participant's own keys, whoever is in the room.
func changeOwn(tx *keystore.Tx, room *Room, change func(*senderkey.Outgoing)) error {
	var own senderkey.Outgoing
	if err := loadBinary(tx, ownStateKey(room.Self.Participant), &own); err != nil {
		return err
	}
	change(&own)
	return saveBinary(tx, ownStateKey(room.Self.Participant), &own)
}

// memberLeft: no key is asked of who left, and what they gave is forgotten an hour later, as
// between room events and envelopes no order is promised.
func memberLeft(tx *keystore.Tx, room *Room, participant string, version uint64) error {
	if !validParticipant(participant) {
		return nil
	}
	err := changeOwn(tx, room, func(own *senderkey.Outgoing) { own.Left(version, participant) })
	if err != nil {
		return err
	}
	if _, back := room.member(participant); back && room.Version > version {
		return nil
	}
	var repair senderkey.Repair
	if err := loadBinary(tx, keyRepairKey(room.Self.Participant), &repair); err != nil {
		return err
	}
	repair.Forget(participant)
	known, err := loadNotes(tx, room.Self.Participant)
	if err != nil {
		return err
	}
	if !known.addLeft(participant, version) {
		err = tx.Delete(keystore.SenderKeys, receivedStateKey(room.Self.Participant, participant))
	}
	return errors.Join(err, saveBinary(tx, keyRepairKey(room.Self.Participant), &repair), known.save(tx, room.Self.Participant))
}

// Refused ends the generation that the relay says is over: the draft may be sealed under the next.
// All other refusals are for good, or of the same bytes.
func (s *senderKeys) Refused(tx *keystore.Tx, room *Room, sealed *Sealed, code wire.Code) (again bool, err error) {
	toRoom := sealed.To == room.ID && (sealed.Kind == wire.KindMessage || sealed.Kind == wire.KindNotice)
	switch code {
	case wire.MLSRetired, wire.MLSUnknown, wire.NoticeInvalidGen:
		if !toRoom {
			return false, nil
		}
		return true, changeOwn(tx, room, func(own *senderkey.Outgoing) { own.Refused(sealed.Gen) })
	default:
		return false, nil
	}
}

// Due asks again for keys that did not come, says when messages that wait for one are to be
// tried again, and forgets the keys of those who left.
func (s *senderKeys) Due(tx *keystore.Tx, room *Room, now time.Time) (*Due, error) {
	var repair senderkey.Repair
	if err := loadBinary(tx, keyRepairKey(room.Self.Participant), &repair); err != nil {
		return nil, err
	}
	requests, err := repair.Due(now)
	if err != nil {
		return nil, err
	}
	due := &Due{}
	for _, request := range requests {
		sealed, err := sealRequest(tx, room, request, now)
		if err != nil {
			return nil, err
		}
		due.Send = append(due.Send, sealed...)
	}
	known, err := loadNotes(tx, room.Self.Participant)
	if err != nil {
		return nil, err
	}
	if known.Retry != 0 && known.Retry <= now.UnixMilli() {
		due.Retry, known.Retry = true, 0
		due.until(now.Add(senderkey.RepairCooldown)) // what is still pending then
	} else if known.Retry != 0 {
		known.retryAt(now) // not later, if the clock was set back
		due.until(time.UnixMilli(known.Retry))
	}
	if at, ok := repair.Next(); ok {
		due.until(at)
	}
	if err := known.forgetLeft(tx, room, now, due); err != nil {
		return nil, err
	}
	return due, errors.Join(saveRepair(tx, room, &repair), known.save(tx, room.Self.Participant))
}

// saveRepair does not begin one where none ever was.
func saveRepair(tx *keystore.Tx, room *Room, repair *senderkey.Repair) error {
	if tx.Get(keystore.SenderKeys, keyRepairKey(room.Self.Participant)) == nil {
		return nil
	}
	return saveBinary(tx, keyRepairKey(room.Self.Participant), repair)
}

// until moves Next forward to at.
func (d *Due) until(at time.Time) {
	if d.Next.IsZero() || at.Before(d.Next) {
		d.Next = at
	}
}

// forgetLeft forgets the keys of those who left an hour ago.
func (n *notes) forgetLeft(tx *keystore.Tx, room *Room, now time.Time, due *Due) error {
	latest := now.Add(leftKept).UnixMilli()
	for participant, l := range n.Left {
		_, back := room.member(participant)
		switch {
		case back && room.Version > l.Version:
			delete(n.Left, participant)
			continue
		case l.Forget == 0 || l.Forget > latest:
			l.Forget = latest
			n.Left[participant] = l
		case l.Forget <= now.UnixMilli():
			delete(n.Left, participant)
			if err := tx.Delete(keystore.SenderKeys, receivedStateKey(room.Self.Participant, participant)); err != nil {
				return err
			}
			continue
		}
		due.until(time.UnixMilli(l.Forget))
	}
	return nil
}
