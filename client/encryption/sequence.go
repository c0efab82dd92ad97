package encryption

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// sequenceKey is where the seq of a room's newest envelope is, in the bucket Rooms.
func sequenceKey(room string) string { return room + "/seq" }

// nextSequence takes the next seq of this device in a room, from 1. It rises over all
// generations and connections, so that it rises in each (RELAY, "per-connection increasing seq
// per generation"). An Update that fails takes none.
func nextSequence(tx *keystore.Tx, room string) (uint64, error) {
	last, err := lastSequence(tx, room)
	if err != nil {
		return 0, err
	}
	if last >= wire.MaxInteger {
		return 0, fmt.Errorf("no seq is left: %w", ErrState)
	}
	return last + 1, setSequence(tx, room, last+1)
}

func lastSequence(tx *keystore.Tx, room string) (uint64, error) {
	switch value := tx.Get(keystore.Rooms, sequenceKey(room)); {
	case value == nil:
		return 0, nil
	case len(value) == 8:
		return binary.BigEndian.Uint64(value), nil
	default:
		return 0, fmt.Errorf("seq: %w", ErrState)
	}
}

func setSequence(tx *keystore.Tx, room string, seq uint64) error {
	return tx.Put(keystore.Rooms, sequenceKey(room), binary.BigEndian.AppendUint64(nil, seq))
}

// NoticeOwn takes the seq of an envelope that this device signed in a room. Each seq is saved before
// its envelope leaves, so one that the store never gave out says that it is an old copy: another one
// went further, with the keys of every room. Then old is true, no key of before seals anything any
// more (keystore.Tx.NoticeOldCopy), and what is sealed next has a higher seq. Nobody else can make
// such an envelope: a relay can only keep one back.
func NoticeOwn(tx *keystore.Tx, room string, seq uint64) (old bool, err error) {
	last, err := lastSequence(tx, room)
	if err != nil || seq <= last {
		return false, err
	}
	return true, errors.Join(tx.NoticeOldCopy(), setSequence(tx, room, seq))
}
