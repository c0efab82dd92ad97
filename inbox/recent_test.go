package inbox_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

// Memory and stream give the same rows, whatever was written, dropped or restarted,
// and wherever memory begins.
func TestMemoryEqualsStream(t *testing.T) {
	for _, size := range []int64{4 << 10, 256 << 10, 16 << 20} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(size), 7))
			s := startNATS(t)
			small := func(c *inbox.Config) { c.MaxRows, c.RecentBytes, c.Shards = 30, size, 2 }
			rooms, people := participants(4), participants(6)
			for round := range 6 {
				t.Logf("round %d", round)
				j, err := inbox.Open(t.Context(), s.config(&recorder{}, small))
				require.NoError(t, err)
				stream, err := inbox.Open(t.Context(), s.config(&recorder{}, small, noMemory))
				require.NoError(t, err)
				if round%2 == 0 { // else the first writes race with the reading back
					<-j.Warmed()
				}
				for range 150 {
					writeRandom(t, random, j, rooms, people)
					if random.IntN(10) == 0 {
						compareRandom(t, random, j, stream, rooms, people)
					}
				}
				<-j.Warmed()
				for range 60 {
					compareRandom(t, random, j, stream, rooms, people)
				}
				closeInboxes(stream)
				closeInboxes(j)
				if round == 3 {
					s.stop()
					s.start()
				}
			}
		})
	}
}

func writeRandom(t *testing.T, random *rand.Rand, j *inbox.JetStream, rooms, people []uuid.UUID) {
	random.Shuffle(len(people), func(a, b int) { people[a], people[b] = people[b], people[a] })
	payload := bytes.Repeat([]byte{byte('a' + random.IntN(3))}, random.IntN(300))
	if random.IntN(20) == 0 {
		payload = bytes.Repeat([]byte("big"), 10_000)
	}
	_, err := j.Write(t.Context(), inbox.Message{
		Room: rooms[random.IntN(len(rooms))], To: people[:1+random.IntN(len(people))],
		Kind: inbox.RowKind(random.IntN(3)), Payload: payload,
	})
	require.NoError(t, err)
}

func compareRandom(t *testing.T, random *rand.Rand, memory, stream *inbox.JetStream, rooms, people []uuid.UUID) {
	room, who := rooms[random.IntN(len(rooms))], people[random.IntN(len(people))]
	want, err := stream.Bounds(t.Context(), room, who)
	require.NoError(t, err)
	got, err := memory.Bounds(t.Context(), room, who)
	require.NoError(t, err)
	require.Equal(t, [3]uint64{want.Incarnation, want.Oldest, want.Newest}, [3]uint64{got.Incarnation, got.Oldest, got.Newest})
	require.LessOrEqual(t, got.StreamFirst, want.StreamFirst)
	require.Equal(t, want.StreamLast, got.StreamLast)

	after := uint64(0)
	switch random.IntN(3) {
	case 0:
		after = random.Uint64N(want.StreamLast + 1)
	case 1: // around where memory begins
		low := memory.Low(room)
		after = min(low-min(low, random.Uint64N(4)), want.StreamLast)
	}
	upto := after + random.Uint64N(want.StreamLast-after+2)
	limit := 1 + random.IntN(40)
	wantRows, wantMore, err := stream.Read(t.Context(), room, who, after, upto, limit)
	require.NoError(t, err)
	gotRows, gotMore, err := memory.Read(t.Context(), room, who, after, upto, limit)
	require.NoError(t, err)
	require.Len(t, gotRows, len(wantRows), "after %d upto %d limit %d low %d", after, upto, limit, memory.Low(room))
	for i := range wantRows {
		require.Equal(t, wantRows[i].ID, gotRows[i].ID)
		require.Equal(t, wantRows[i].Kind, gotRows[i].Kind)
		require.True(t, bytes.Equal(wantRows[i].Payload, gotRows[i].Payload))
	}
	if wantMore != gotMore { // the stream may promise rows that turn out to lie beyond upto
		require.True(t, wantMore)
		last := wantRows[len(wantRows)-1].ID.Sequence
		rest, _, err := stream.Read(t.Context(), room, who, last, upto, 1)
		require.NoError(t, err)
		require.Empty(t, rest)
	}
}

// Rows past the maximum age are served by neither, also when the server has not
// dropped them yet, and also after a restart (FAULTS C03).
func TestExpiry(t *testing.T) {
	t.Parallel()
	const age = 2 * time.Second
	s := startNATS(t)
	short := func(c *inbox.Config) { c.MaxAge = age; c.Shards = 1 }
	open := func() (j, stream *inbox.JetStream) {
		return s.open(&recorder{}, short), s.open(&recorder{}, short, noMemory)
	}
	j, stream := open()
	room, to := uuid.New(), participants(1)
	write := func(text string) time.Time {
		_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte(text)})
		require.NoError(t, err)
		return time.Now()
	}
	first := write("first")
	eventually(t, func() bool { return time.Since(first) > age/2 }, "half the age")
	closeInboxes(stream)
	closeInboxes(j)
	s.stop()
	s.start()
	j, stream = open()
	<-j.Warmed()
	second := write("second")
	for _, from := range []*inbox.JetStream{j, stream} {
		if rows := payloads(readAll(t, from, room, to[0], 0, 10)); time.Since(first) < age {
			require.Equal(t, []string{"first", "second"}, rows)
		}
	}
	eventually(t, func() bool { return time.Since(first) > age+5*time.Millisecond }, "the age of the first")
	for _, from := range []*inbox.JetStream{j, stream} {
		rows := payloads(readAll(t, from, room, to[0], 0, 10))
		bounds, err := from.Bounds(t.Context(), room, to[0])
		require.NoError(t, err)
		if time.Since(second) < age {
			require.Equal(t, []string{"second"}, rows)
			require.Equal(t, bounds.Newest, bounds.Oldest)
		}
	}
	eventually(t, func() bool { return time.Since(second) > age+5*time.Millisecond }, "the age of the second")
	for _, from := range []*inbox.JetStream{j, stream} {
		require.Empty(t, readAll(t, from, room, to[0], 0, 10))
		bounds, err := from.Bounds(t.Context(), room, to[0])
		require.NoError(t, err)
		require.Zero(t, bounds.Newest)
		require.EqualValues(t, 2, bounds.StreamLast)
	}
	eventually(t, func() bool {
		bounds, err := j.Bounds(t.Context(), room, to[0])
		require.NoError(t, err)
		return bounds.StreamFirst == 3
	}, "an empty stream begins after its last sequence")
}

// What is kept stays near its limit, and goes from the old end.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	j := s.open(&recorder{}, func(c *inbox.Config) { c.Shards, c.RecentBytes = 1, 1<<20 })
	room, to := uuid.New(), participants(20)
	low := j.Low(room)
	for n := range 3000 {
		_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: bytes.Repeat([]byte{byte(n)}, 1000)})
		require.NoError(t, err)
		require.GreaterOrEqual(t, j.Low(room), low)
		low = j.Low(room)
		require.LessOrEqual(t, j.RecentBytes(), int64(1<<20))
	}
	require.Greater(t, low, uint64(1000))
	require.Greater(t, j.RecentBytes(), int64(700<<10))
}
