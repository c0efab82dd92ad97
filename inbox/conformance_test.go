package inbox_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// Every way of writing keeps the same promises.
func TestConformance(t *testing.T) {
	ways := []struct {
		name   string
		sync   bool
		change func(*inbox.Config)
	}{
		{"embedded", false, func(*inbox.Config) {}},
		{"embedded without memory", false, noMemory},
		{"embedded sync always", true, syncAlways},
		{"shared", false, shared},
	}
	cases := []struct {
		name string
		run  func(t *testing.T, j *inbox.JetStream, sink *recorder)
	}{
		{"fan-out", testFanOut},
		{"order of concurrent writers", testOrder},
		{"newest rows", testMaxRows},
		{"kinds", testKinds},
		{"fan-outs of every size", testFanOutSizes},
		{"pages", testPages},
		{"empty inbox", testEmpty},
		{"complete", testComplete},
		{"large rows", testLargeRows},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t, func(s *natsServer) { s.sync, s.max = way.sync, 2<<20 })
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					sink := &recorder{}
					j, err := inbox.Open(t.Context(), s.config(sink, way.change, patient))
					require.NoError(t, err)
					defer closeInboxes(j)
					c.run(t, j, sink)
					require.NoError(t, j.Ready())
				})
			}
		})
	}
}

func testFanOut(t *testing.T, j *inbox.JetStream, sink *recorder) {
	room, to := uuid.New(), participants(3)
	require.NoError(t, j.Join(t.Context(), room))
	payload := []byte(`{"id":"1" , "v":1}` + "\n\x00\xff")
	ids, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
	require.NoError(t, err)
	require.Len(t, ids, 3)
	for i, participant := range to {
		rows := readAll(t, j, room, participant, 0, 100)
		require.Equal(t, []inbox.Row{{ID: ids[i], Payload: payload}}, rows)
		bounds, err := j.Bounds(t.Context(), room, participant)
		require.NoError(t, err)
		require.Equal(t, ids[i].Sequence, bounds.Oldest)
		require.Equal(t, ids[i].Sequence, bounds.Newest)
		require.Equal(t, ids[i].Incarnation, bounds.Incarnation)
		require.GreaterOrEqual(t, bounds.StreamLast, bounds.Newest)
	}
	eventually(t, func() bool { return len(sink.all()) == 3 }, "live copies")
	for i, c := range sink.all() {
		require.Equal(t, delivered{room, to[i], ids[i], inbox.RowEnvelope, string(payload)}, c)
	}
	j.Leave(room)
	_, err = j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
	require.NoError(t, err)
	other := uuid.New()
	require.NoError(t, j.Join(t.Context(), other))
	_, err = j.Write(t.Context(), inbox.Message{Room: other, To: to[:1], Payload: []byte("x")})
	require.NoError(t, err)
	eventually(t, func() bool { return len(sink.all()) == 4 }, "live copy of the other room")
	require.Equal(t, other, sink.all()[3].room)
}

func testOrder(t *testing.T, j *inbox.JetStream, sink *recorder) {
	const writers, each = 8, 40
	room, to := uuid.New(), participants(4)
	require.NoError(t, j.Join(t.Context(), room))
	queued := make([]map[string]wire.StreamID, len(to))
	for i := range queued {
		queued[i] = make(map[string]wire.StreamID)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for n := range each {
				payload := fmt.Sprintf("%d/%d", w, n)
				who := to
				if n%3 == 0 {
					who = to[:1]
				}
				ids, err := j.Write(t.Context(), inbox.Message{Room: room, To: who, Payload: []byte(payload)})
				mu.Lock()
				if err != nil {
					t.Error(err)
				}
				for i := range ids {
					queued[i][payload] = ids[i]
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	want := 0
	for i := range queued {
		want += len(queued[i])
	}
	require.Len(t, queued[0], writers*each)
	eventually(t, func() bool { return len(sink.all()) == want }, "all live copies")
	for i, participant := range to {
		rows := readAll(t, j, room, participant, 0, 77)
		require.Len(t, rows, len(queued[i]))
		last, lastOf := uint64(0), make(map[string]int)
		for _, row := range rows {
			require.Greater(t, row.ID.Sequence, last)
			last = row.ID.Sequence
			require.Equal(t, queued[i][string(row.Payload)], row.ID)
			var w, n int
			_, err := fmt.Sscanf(string(row.Payload), "%d/%d", &w, &n)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, lastOf[fmt.Sprint(w)], "order of one writer")
			lastOf[fmt.Sprint(w)] = n + 1
		}
		last = 0
		for _, c := range sink.all() {
			if c.participant == participant {
				require.Greater(t, c.id.Sequence, last, "order of the live feed")
				last = c.id.Sequence
			}
		}
	}
}

func testMaxRows(t *testing.T, j *inbox.JetStream, _ *recorder) {
	room, to := uuid.New(), participants(2)
	var want []string
	var wait sync.WaitGroup
	var ids []wire.StreamID
	for n := range 620 {
		who := to
		if n%2 == 1 {
			who = to[:1]
		}
		got, err := j.Write(t.Context(), inbox.Message{Room: room, To: who, Payload: fmt.Appendf(nil, "row %d", n)})
		require.NoError(t, err)
		want = append(want, fmt.Sprintf("row %d", n))
		ids = append(ids, got[0])
	}
	wait.Wait()
	rows := readAll(t, j, room, to[0], 0, 500)
	require.Equal(t, want[120:], payloads(rows))
	require.Len(t, readAll(t, j, room, to[1], 0, 500), 310)
	bounds, err := j.Bounds(t.Context(), room, to[0])
	require.NoError(t, err)
	require.Equal(t, ids[120].Sequence, bounds.Oldest)
	require.Equal(t, ids[619].Sequence, bounds.Newest)
	described, err := j.Describe(t.Context(), room, to[0])
	require.NoError(t, err)
	require.EqualValues(t, 500, described.Rows)
	require.Equal(t, bounds.Oldest, described.Oldest)
	require.Equal(t, bounds.Newest, described.Newest)
	require.Equal(t, want[617:], payloads(readAll(t, j, room, to[0], ids[616].Sequence, 500)))
}

func testKinds(t *testing.T, j *inbox.JetStream, sink *recorder) {
	room, to := uuid.New(), participants(2)
	require.NoError(t, j.Join(t.Context(), room))
	for _, kind := range []inbox.RowKind{inbox.RowBoardUpdate, inbox.RowEnvelope, inbox.RowRoomEvent} {
		_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Kind: kind, Payload: []byte(kind.String())})
		require.NoError(t, err)
	}
	rows := readAll(t, j, room, to[1], 0, 10)
	require.Len(t, rows, 3)
	for _, row := range rows {
		require.Equal(t, row.Kind.String(), string(row.Payload))
	}
	eventually(t, func() bool { return len(sink.all()) == 6 }, "live copies")
	for _, c := range sink.all() {
		require.Equal(t, c.kind.String(), c.payload)
	}
}

func testFanOutSizes(t *testing.T, j *inbox.JetStream, sink *recorder) {
	payload := bytes.Repeat([]byte("e"), wire.MaxMessage)
	want := 0
	for _, size := range []int{1, 2, 499, 500, inbox.MaxRecipients} {
		room, to := uuid.New(), participants(size)
		require.NoError(t, j.Join(t.Context(), room))
		ids, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
		require.NoError(t, err, size)
		require.Len(t, ids, size)
		for _, i := range []int{0, size / 2, size - 1} {
			require.Equal(t, []inbox.Row{{ID: ids[i], Payload: payload}}, readAll(t, j, room, to[i], 0, 10))
		}
		want += size
		eventually(t, func() bool { return len(sink.all()) == want }, "live copies")
	}
	_, err := j.Write(t.Context(), inbox.Message{Room: uuid.New(), To: participants(inbox.MaxRecipients + 1), Payload: payload})
	require.Error(t, err)
	_, err = j.Write(t.Context(), inbox.Message{Room: uuid.New(), Payload: payload})
	require.Error(t, err)
}

func testPages(t *testing.T, j *inbox.JetStream, _ *recorder) {
	room, to := uuid.New(), participants(1)
	big := bytes.Repeat([]byte("p"), 60_000)
	var ids []wire.StreamID
	for range 12 {
		got, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: big})
		require.NoError(t, err)
		ids = append(ids, got...)
	}
	rows, more, err := j.Read(t.Context(), room, to[0], 0, ids[11].Sequence, 500)
	require.NoError(t, err)
	require.True(t, more)
	require.GreaterOrEqual(t, len(rows), 1)
	require.LessOrEqual(t, len(rows), 6, "about 256 KiB")
	require.Len(t, readAll(t, j, room, to[0], 0, 500), 12)
	rows, more, err = j.Read(t.Context(), room, to[0], ids[2].Sequence, ids[5].Sequence, 2)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, rows, 2)
	require.Equal(t, ids[3], rows[0].ID)
	require.Equal(t, ids[4], rows[1].ID)
	rows, more, err = j.Read(t.Context(), room, to[0], ids[4].Sequence, ids[5].Sequence, 2)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, rows, 1)
}

func testEmpty(t *testing.T, j *inbox.JetStream, _ *recorder) {
	room := uuid.New()
	bounds, err := j.Bounds(t.Context(), room, uuid.New())
	require.NoError(t, err)
	require.Zero(t, bounds.Oldest)
	require.Zero(t, bounds.Newest)
	require.NotZero(t, bounds.Incarnation)
	rows, more, err := j.Read(t.Context(), room, uuid.New(), 0, 1<<40, 10)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, rows)
}

func testComplete(t *testing.T, j *inbox.JetStream, sink *recorder) {
	room, to := uuid.New(), participants(4)
	require.NoError(t, j.Join(t.Context(), room))
	payload := []byte("the same bytes")
	first, err := j.Write(t.Context(), inbox.Message{Room: room, To: to[1:3], Payload: payload})
	require.NoError(t, err)
	_, err = j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("other bytes")})
	require.NoError(t, err)
	m := inbox.Message{Room: room, To: to, Payload: payload}
	ids, err := j.Complete(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, first, ids[1:3])
	again, err := j.Complete(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, ids, again)
	for i, participant := range to {
		rows := readAll(t, j, room, participant, 0, 10)
		require.Len(t, rows, 2)
		require.Contains(t, []wire.StreamID{rows[0].ID, rows[1].ID}, ids[i])
	}
	eventually(t, func() bool { return len(sink.all()) == 2+4+2 }, "live copies, of what was missing only")
	require.Equal(t, []uuid.UUID{to[0], to[3]}, []uuid.UUID{sink.all()[6].participant, sink.all()[7].participant})

	var wait sync.WaitGroup // a resend while the first one is under way
	m.Payload = []byte("sent twice at once")
	results := make([][]wire.StreamID, 8)
	for n := range results {
		wait.Go(func() {
			var err error
			if results[n], err = j.Complete(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, ids := range results {
		require.Equal(t, results[0], ids)
	}
	require.Len(t, readAll(t, j, room, to[0], 0, 10), 3)
}

// Rows of plaintext messages have up to 1.1 MiB.
func testLargeRows(t *testing.T, j *inbox.JetStream, sink *recorder) {
	room, to := uuid.New(), participants(3)
	require.NoError(t, j.Join(t.Context(), room))
	large := bytes.Repeat([]byte("large "), 1_150_000/6)
	for n := range 3 {
		payload := append(large, byte('0'+n))
		ids, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
		require.NoError(t, err)
		again, err := j.Complete(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
		require.NoError(t, err)
		require.Equal(t, ids, again)
	}
	for _, participant := range to {
		rows := readAll(t, j, room, participant, 0, 10)
		require.Len(t, rows, 3)
		for n, row := range rows {
			require.True(t, bytes.Equal(append(large, byte('0'+n)), row.Payload))
		}
	}
	eventually(t, func() bool { return len(sink.all()) == 9 }, "live")
}

// What NATS would not take in one piece is refused by name before anything is written,
// and costs nobody the connection.
func TestTooLargeForNATS(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*inbox.Config){"embedded": noMemory, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			j := s.open(&recorder{}, mode)
			room, to := uuid.New(), participants(500)
			write := func(recipients, size int) error {
				_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to[:recipients], Payload: make([]byte, size)})
				return err
			}
			require.ErrorIs(t, write(1, 1<<20), inbox.ErrTooLarge, "with its headers")
			require.ErrorIs(t, write(500, 1<<20-1000), inbox.ErrTooLarge, "with the recipients of its announcement")
			require.ErrorIs(t, write(500, 200_000), inbox.ErrTooLarge, "all copies together")
			_, err := j.Complete(t.Context(), inbox.Message{Room: room, To: to[:1], Payload: make([]byte, 1<<20)})
			require.ErrorIs(t, err, inbox.ErrTooLarge)
			require.NoError(t, j.Ready())
			require.NoError(t, write(1, 1<<20-1000))
			bounds, err := j.Bounds(t.Context(), room, to[0])
			require.NoError(t, err)
			require.Equal(t, bounds.Oldest, bounds.Newest, "one row")
			bounds, err = j.Bounds(t.Context(), room, to[1])
			require.NoError(t, err)
			require.Zero(t, bounds.Newest)
		})
	}
}
