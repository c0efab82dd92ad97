package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// sized returns a well-formed envelope of exactly n bytes.
func sized(n int) []byte {
	bare := len(with(`"sig":"`+strings.Repeat("s", 86)+`"`, `"ct":""`))
	return []byte(with(`"sig":"`+strings.Repeat("s", 86)+`"`, `"ct":"`+strings.Repeat("A", n-bare)+`"`))
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	data := sized(1024)
	require.Len(t, data, 1024)
	var frame wire.ClientFrame
	id := wire.StreamID{Incarnation: 1790000000000, Sequence: 42}
	to, _ := wire.ParseUUID([]byte(recipient))
	out := make([]byte, 0, 2*len(data))
	row := []byte(`{"event_id":"e","card_id":"c","revision":3}`)
	for name, hot := range map[string]func(){
		"envelope": func() {
			if wire.ParseClient(data, &frame) != nil || frame.Envelope.Check() != nil {
				t.Fail()
			}
		},
		"envelope with a file and unknown members": func() {
			if wire.ParseClient(withExtras, &frame) != nil || frame.Envelope.Check() != nil {
				t.Fail()
			}
		},
		"refused kind": func() {
			if wire.ParseClient(wrongKind, &frame) != nil || frame.Envelope.Check() == nil {
				t.Fail()
			}
		},
		"pong": func() {
			if wire.ParseClient(pong, &frame) != nil {
				t.Fail()
			}
		},
		"deliver":      func() { out = wire.AppendDeliver(out[:0], id, false, data) },
		"queued":       func() { out = wire.AppendQueued(out[:0], frame.Envelope.ID, id, to) },
		"nack":         func() { out = wire.AppendNack(out[:0], frame.Envelope.ID, wire.RateLimited) },
		"ping":         func() { out = wire.AppendPing(out[:0], 17) },
		"error":        func() { out = wire.AppendError(out[:0], wire.UnknownFrame, "deliver", "an envelope has no type") },
		"board.update": func() { out, _ = wire.AppendBoardUpdate(out[:0], id, true, row) },
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(100, hot))
		})
	}
}

var (
	withExtras = []byte(with(`"file":{"name":"é.txt","mimeType":"text/plain","sizeBytes":5}`, `"x1":1`, `"x2":2`, `"x3":{"x1":[]}`))
	wrongKind  = []byte(with(`"kind":"deliver"`))
	pong       = []byte(`{"type":"pong","id":"17"}`)
)

func BenchmarkParseClient(b *testing.B) {
	for name, data := range map[string][]byte{
		"envelope of 1 KiB":  sized(1024),
		"envelope of 64 KiB": sized(wire.MaxMessage),
		"with a file":        withExtras,
		"pong":               pong,
		"64 KiB of [":        []byte(strings.Repeat("[", wire.MaxMessage)),
		"10000 names":        []byte(manyNames(8000)),
	} {
		b.Run(name, func(b *testing.B) {
			var frame wire.ClientFrame
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_ = wire.ParseClient(data, &frame)
			}
		})
	}
}

func BenchmarkParseServer(b *testing.B) {
	id := wire.StreamID{Incarnation: 1790000000000, Sequence: 42}
	to, _ := wire.ParseUUID([]byte(recipient))
	for name, data := range map[string][]byte{
		"deliver of 1 KiB": wire.AppendDeliver(nil, id, false, sized(1024)),
		"queued":           wire.AppendQueued(nil, []byte("m-1"), id, to),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = wire.ParseServer(data)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	data, id := sized(1024), wire.StreamID{Incarnation: 1790000000000, Sequence: 42}
	to, _ := wire.ParseUUID([]byte(recipient))
	out := make([]byte, 0, 2*len(data))
	b.Run("deliver of 1 KiB", func(b *testing.B) {
		for b.Loop() {
			out = wire.AppendDeliver(out[:0], id, false, data)
		}
	})
	b.Run("queued", func(b *testing.B) {
		for b.Loop() {
			out = wire.AppendQueued(out[:0], []byte("m-1"), id, to)
		}
	})
}
