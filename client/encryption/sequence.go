package encryption

import (
	"encoding/binary"
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
	var last uint64
	switch value := tx.Get(keystore.Rooms, sequenceKey(room)); {
	case value == nil:
	case len(value) == 8:
		last = binary.BigEndian.Uint64(value)
	default:
		return 0, fmt.Errorf("seq: %w", ErrState)
	}
	if last >= wire.MaxInteger {
		return 0, fmt.Errorf("no seq is left: %w", ErrState)
	}
	return last + 1, tx.Put(keystore.Rooms, sequenceKey(room), binary.BigEndian.AppendUint64(nil, last+1))
}
