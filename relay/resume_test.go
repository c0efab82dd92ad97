package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// DESIGN section 6, "Resuming"; FAULTS D02: a gap is announced when, and only when,
// rows may be missing.
func TestReplayStart(t *testing.T) {
	t.Parallel()
	full := inbox.Bounds{Incarnation: 7, StreamFirst: 10, StreamLast: 900, Oldest: 100, Newest: 800, Rows: 500}
	empty := inbox.Bounds{Incarnation: 7, StreamFirst: 10, StreamLast: 900}
	fresh := inbox.Bounds{Incarnation: 7, StreamFirst: 1}
	at := func(incarnation, sequence uint64) wire.Cursor {
		return wire.Cursor{Kind: wire.CursorAt, ID: wire.StreamID{Incarnation: incarnation, Sequence: sequence}}
	}
	for _, c := range []struct {
		name   string
		cursor wire.Cursor
		bounds inbox.Bounds
		gap    bool
		after  uint64
	}{
		{"new rows only", wire.Cursor{Kind: wire.CursorNew}, full, false, 800},
		{"all is never a gap", wire.Cursor{Kind: wire.CursorAll}, full, false, 0},
		{"all of an empty inbox", wire.Cursor{Kind: wire.CursorAll}, fresh, false, 0},
		{"new of an empty inbox", wire.Cursor{Kind: wire.CursorNew}, fresh, false, 0},
		{"the oldest row itself", at(7, 100), full, false, 100},
		{"within", at(7, 400), full, false, 400},
		{"the newest row", at(7, 800), full, false, 800},
		{"after the newest, within the stream", at(7, 900), full, false, 900},
		{"just before the oldest", at(7, 99), full, true, 0},
		{"long before the oldest", at(7, 1), full, true, 0},
		{"beyond the stream", at(7, 901), full, true, 0},
		{"another incarnation", at(6, 400), full, true, 0},
		{"a later incarnation", at(8, 400), full, true, 0},
		{"from a Redis-style server", at(1_700_000_000_000, 0), full, true, 0},
		{"empty inbox, nothing can be missing", at(7, 9), empty, false, 0},
		{"empty inbox, rows of the stream have expired", at(7, 8), empty, true, 0},
		{"empty inbox, beyond the stream", at(7, 901), empty, true, 0},
		{"fresh stream", at(7, 0), fresh, false, 0},
		{"fresh stream, cursor from nowhere", at(7, 5), fresh, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			scan := &replay{upto: c.bounds.Newest}
			require.Equal(t, c.gap, scan.start(c.cursor, c.bounds))
			require.Equal(t, c.after, scan.after)
		})
	}
}
