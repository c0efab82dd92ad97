package keystore

import (
	"encoding/binary"
	"fmt"
)

// restoresKey counts in the internal bucket how often NoticeRestored found something.
const restoresKey = "restores"

// MaxAhead is how far above the highest generation that the store knows of in a room the relay may
// be: a device allocates one when somebody leaves and writes on, so that this is more than any copy
// that is put back lacks.
const MaxAhead = 1 << 16

// Restores is how often it was noticed that the store was an old copy. A state that was saved
// under another number is not to be sent with: the device may have gone further with it.
func (tx *Tx) Restores() uint64 {
	value, ok := tx.get(ref{internal, restoresKey})
	if !ok || len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// NoticeOldCopy says that the store is an old copy, as NoticeRestored finds out by generations:
// Restores rises, and no generation of any room is usable until SetGeneration brings a fresh one.
func (tx *Tx) NoticeOldCopy() error {
	return tx.put(ref{internal, restoresKey}, binary.BigEndian.AppendUint64(nil, tx.Restores()+1))
}

// known are the highest generation of a room that the store knows of, and whether it is one
// to send with.
func (tx *Tx) known(room string) (highest uint64, usable bool) {
	value, ok := tx.get(ref{generations, room})
	if !ok || len(value) != 17 {
		return 0, false
	}
	return binary.BigEndian.Uint64(value), value[16] == 1 && binary.BigEndian.Uint64(value[8:]) == tx.Restores()
}

// setKnown keeps the number of restores with it, so that the next one makes it unusable.
func (tx *Tx) setKnown(room string, highest uint64, usable bool) error {
	value := binary.BigEndian.AppendUint64(nil, highest)
	value = binary.BigEndian.AppendUint64(value, tx.Restores())
	if usable {
		value = append(value, 1)
	} else {
		value = append(value, 0)
	}
	return tx.put(ref{generations, room}, value)
}

// Generation is the device's own generation in a room, if there is one that it may send with.
// If not, it has to ask the relay for a fresh one.
func (tx *Tx) Generation(room string) (gen uint64, ok bool) {
	gen, ok = tx.known(room)
	if !ok {
		return 0, false
	}
	return gen, true
}

// SetGeneration saves a generation that the relay has just allocated to this device, in the
// Update that saves its sender key. It returns ErrGeneration for one that is not higher than
// all that the store knows of in this room: that would be a key used twice. One that is more than
// MaxAhead above it is ErrImplausible.
func (tx *Tx) SetGeneration(room string, gen uint64) error {
	highest, _ := tx.known(room)
	if gen <= highest {
		return fmt.Errorf("generation %d, after %d: %w", gen, highest, ErrGeneration)
	}
	if err := notFarAbove(highest, gen); err != nil {
		return err
	}
	return tx.setKnown(room, gen, true)
}

// ForgetGeneration forgets what is known of a room that the device has left for good.
func (tx *Tx) ForgetGeneration(room string) error {
	if err := tx.mayChange(room); err != nil {
		return err
	}
	tx.changed[ref{generations, room}] = nil
	return nil
}

// NoticeRestored compares the highest generation that the relay has allocated to this device
// in a room (of its own envelopes in history, or the one before a fresh one) with what the
// store knows. If the relay's is higher, this store is an old copy, or the relay's answer was
// lost before it was saved; which of them cannot be told. It then returns true, Restores
// rises, and no generation of any room is usable until SetGeneration brings a fresh one. A
// second call with the same number returns false. A number that is more than MaxAhead above what the
// store knows is ErrImplausible, and changes nothing.
//
// It is to be called before the first message is sent after Open.
func (s *Store) NoticeRestored(room string, relayGen uint64) (restored bool, err error) {
	err = s.Update(func(tx *Tx) error {
		highest, _ := tx.known(room)
		if restored = relayGen > highest; !restored {
			return nil
		}
		if err := notFarAbove(highest, relayGen); err != nil {
			return err
		}
		if err := tx.NoticeOldCopy(); err != nil {
			return err
		}
		return tx.setKnown(room, relayGen, false)
	})
	return restored && err == nil, err
}

func notFarAbove(highest, gen uint64) error {
	if gen > highest+MaxAhead {
		return fmt.Errorf("generation %d, after %d: %w", gen, highest, ErrImplausible)
	}
	return nil
}
