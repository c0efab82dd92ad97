package inbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// Subjects hold nothing but what the server made (FAULTS C10).
func TestSubjects(t *testing.T) {
	room := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	participant := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8058")
	subject := string(appendSubject(nil, shardToken(7), room, participant))
	require.Equal(t, "inbox.07.01890a5d-ac96-774b-bcce-b302099a8057.01890a5d-ac96-774b-bcce-b302099a8058", subject)
	gotRoom, gotParticipant, ok := parseSubject(subject)
	require.True(t, ok)
	require.Equal(t, room, gotRoom)
	require.Equal(t, participant, gotParticipant)
	for _, other := range []string{"", "inbox.07.probe", "inbox.07." + room.String(), strings.ToUpper(subject), strings.Replace(subject, ".0189", "*0189", 2), "x" + subject} {
		_, _, ok := parseSubject(other)
		require.False(t, ok, other)
	}
	got, ok := liveRoom(liveSubject(room))
	require.True(t, ok)
	require.Equal(t, room, got)
}

// The place of a room never changes: other versions must find its rows.
func TestShardOf(t *testing.T) {
	room := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	hash := uint32(2166136261)
	for _, b := range room {
		hash ^= uint32(b)
		hash *= 16777619
	}
	for _, shards := range []int{1, 8, 32, 1024} {
		require.Equal(t, int(hash%uint32(shards)), shardOf(room, shards))
	}
	require.Equal(t, 19, shardOf(room, 32))
	counts := make([]int, 32)
	for range 32_000 {
		counts[shardOf(uuid.New(), 32)]++
	}
	for _, n := range counts {
		require.InDelta(t, 1000, n, 250)
	}
}

func FuzzParseLive(f *testing.F) {
	m := Message{Room: uuid.New(), To: []uuid.UUID{uuid.New(), uuid.New()}, Payload: []byte("payload\n")}
	ids := []wire.StreamID{{Incarnation: 12, Sequence: 3}, {Incarnation: 12, Sequence: 4}}
	f.Add(appendLive(nil, &m, ids, nil))
	f.Add(appendLive(nil, &m, ids, []bool{false, true}))
	f.Add([]byte("envelope 1 @0 \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var live Live
		if !parseLive(&live, data) {
			return
		}
		again := Message{Kind: live.Kind, Payload: live.Payload, Received: live.Received}
		var ids []wire.StreamID
		for _, c := range live.Copies {
			again.To = append(again.To, c.Participant)
			ids = append(ids, c.ID)
		}
		var twice Live
		require.True(t, parseLive(&twice, appendLive(nil, &again, ids, nil)))
		require.Equal(t, live, twice)
	})
}

func TestLiveCodecDoesNotAllocate(t *testing.T) {
	m := Message{Room: uuid.New(), To: []uuid.UUID{uuid.New(), uuid.New()}, Payload: make([]byte, 100)}
	ids := []wire.StreamID{{Incarnation: 1, Sequence: 3}, {Incarnation: 1, Sequence: 4}}
	var buffer []byte
	var live Live
	run := func() {
		buffer = appendLive(buffer[:0], &m, ids, nil)
		if !parseLive(&live, buffer) {
			t.Error("not parsed")
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}
