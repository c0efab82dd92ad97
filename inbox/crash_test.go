package inbox_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// SIGKILL of the server under load, at random moments: every stored row of the
// window is there with its bytes, no id is used twice, and the window is about 500
// rows (FAULTS C01, C05 a).
func TestKilledServer(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	p := startProcess(t, 0)
	sink := &recorder{}
	j, err := inbox.Open(t.Context(), inbox.Config{
		Dial: p.dial, Sink: sink, Shards: 2, Readers: 2, WriteTimeout: time.Second, ProbeEvery: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { closeInboxes(j) })
	rooms := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	to := participants(3)

	var mu sync.Mutex
	stored := make(map[uuid.UUID]map[wire.StreamID]string) // of the first recipient, by room
	used := make(map[string]bool)
	for round := range 5 {
		after := random.IntN(700)
		killed := make(chan struct{})
		var once sync.Once
		var writers sync.WaitGroup
		for w := range 6 {
			writers.Go(func() {
				for n := range 250 {
					room := rooms[(w+n)%len(rooms)]
					payload := fmt.Sprintf("round %d writer %d number %d %s", round, w, n, bytes.Repeat([]byte("."), n))
					ids, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte(payload)})
					if err != nil {
						return // the server was killed
					}
					mu.Lock()
					for _, id := range ids {
						key := fmt.Sprint(j.ShardOf(room), id)
						if used[key] {
							t.Errorf("id %s used twice", key)
						}
						used[key] = true
					}
					if stored[room] == nil {
						stored[room] = make(map[wire.StreamID]string)
					}
					stored[room][ids[0]] = payload
					reached := len(used) > round*1000+after
					mu.Unlock()
					if reached {
						once.Do(func() { p.kill(); close(killed) })
					}
				}
			})
		}
		writers.Wait()
		once.Do(func() { p.kill(); close(killed) })
		<-killed
		p.start()
		ready(t, j)
		fresh, err := inbox.Open(t.Context(), inbox.Config{Dial: p.dial, Sink: sink, Shards: 2, Readers: 2, RecentBytes: -1})
		require.NoError(t, err)
		for name, from := range map[string]*inbox.JetStream{"running": j, "fresh": fresh} {
			for _, room := range rooms {
				t.Logf("round %d, %s, shard %d, low %d", round, name, j.ShardOf(room), j.Low(room))
				checkWindow(t, readAll(t, from, room, to[0], 0, 500), stored[room])
			}
		}
		closeInboxes(fresh)
	}
}

func checkWindow(t *testing.T, rows []inbox.Row, stored map[wire.StreamID]string) {
	t.Helper()
	require.LessOrEqual(t, len(rows), 510, "about 500 rows")
	found := make(map[wire.StreamID]string)
	last := uint64(0)
	for _, row := range rows {
		require.Greater(t, row.ID.Sequence, last)
		last = row.ID.Sequence
		found[row.ID] = string(row.Payload)
	}
	for id, payload := range stored {
		if len(rows) >= 480 && id.Sequence < rows[0].ID.Sequence {
			continue // older than the window, in which refused rows had a place for a while
		}
		require.Equal(t, payload, found[id], "stored row %v; %d rows, the last one is %d", id, len(rows), last)
	}
}

// The server is killed while an inbox is read: the rest follows in order, or the
// read fails; it never ends early as if that were all (FAULTS C08).
func TestKilledDuringRead(t *testing.T) {
	t.Parallel()
	p := startProcess(t, 0)
	j, err := inbox.Open(t.Context(), inbox.Config{
		Dial: p.dial, Sink: &recorder{}, Shards: 1, Readers: 2, RecentBytes: -1,
		ReadTimeout: 2 * time.Second, ProbeEvery: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { closeInboxes(j) })
	room, to := uuid.New(), participants(1)
	payload := bytes.Repeat([]byte("r"), 20_000)
	var ids []wire.StreamID
	for range 400 {
		got, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
		require.NoError(t, err)
		ids = append(ids, got...)
	}
	for round := range 3 {
		var read []wire.StreamID
		restarted := make(chan struct{})
		failures := 0
		for after, more := uint64(0), true; more; {
			rows, again, err := j.Read(t.Context(), room, to[0], after, ids[399].Sequence, 60)
			if err != nil {
				failures++
				require.Less(t, failures, 2000)
				continue
			}
			more = again
			for _, row := range rows {
				read = append(read, row.ID)
				after = row.ID.Sequence
			}
			if len(read) >= 100*(round+1) && restarted != nil {
				done := restarted
				go func() { p.kill(); p.start(); close(done) }()
				defer func() { <-done }()
				restarted = nil
			}
		}
		require.Equal(t, ids, read, "after %d failed reads", failures)
		ready(t, j)
	}
}

// A full disk: every write that could not be stored fails, readiness is false, no
// call hangs, and after space was made and the server restarted every stored row is
// there (FAULTS C04).
func TestDiskFull(t *testing.T) {
	t.Parallel()
	const disk = 20 << 20
	p := startProcess(t, disk)
	p.do("fill 8000000")
	sink := &recorder{}
	j, err := inbox.Open(t.Context(), inbox.Config{
		Dial: p.dial, Sink: sink, Shards: 2, Readers: 2, WriteTimeout: time.Second, ProbeEvery: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { closeInboxes(j) })
	l := newLedger()
	require.NoError(t, j.Join(t.Context(), l.room))
	filler := bytes.Repeat([]byte("d"), 30_000)
	write := func(n int) error { return l.write(j, fmt.Sprintf("%d %s", n, filler)) }
	n := 0
	for ; write(n) == nil; n++ {
		require.Less(t, n, 500, "the disk never fills")
	}
	require.Greater(t, n, 20)
	require.Error(t, j.Ready())
	for range 100 {
		n++
		require.Error(t, write(n))
		require.Error(t, j.Ready())
	}
	require.Never(t, func() bool { return j.Ready() == nil }, 300*time.Millisecond, time.Millisecond, "ready while nothing can be stored")
	p.do("free")
	p.do("restart")
	ready(t, j)
	require.NoError(t, l.write(j, "after"))
	l.check(t, j)
	fresh, err := inbox.Open(t.Context(), inbox.Config{Dial: p.dial, Sink: sink, Shards: 2, Readers: 2, RecentBytes: -1})
	require.NoError(t, err)
	defer closeInboxes(fresh)
	l.check(t, fresh)
	eventually(t, func() bool {
		all := sink.all()
		return len(all) > 0 && all[len(all)-1].payload == "after"
	}, "live again")
	for _, c := range sink.all() {
		require.NotContains(t, l.refused, c.payload, "refused, but delivered live")
	}
}
