package inbox_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

const benchSenders = 256

// counter is a sink that only counts.
type counter struct{ copies atomic.Int64 }

func (c *counter) Deliver(live *inbox.Live) { c.copies.Add(int64(len(live.Copies))) }
func (c *counter) Missed(uuid.UUID)         {}

// cpu is the processor time this process has used: what counts where the machine is
// shared by sender, relay and server.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func reportCPU(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkWrite stores and announces 1 KiB envelopes of 256 senders, each in a
// room of its own.
func BenchmarkWrite(b *testing.B) {
	for _, fanOut := range []int{1, 10} {
		for _, shards := range []int{8, 16, 32, 64} {
			for _, depth := range []int{1, 2} {
				for _, way := range []string{"tcp", "pipe"} {
					b.Run(fmt.Sprintf("fan-out=%d/shards=%d/depth=%d/%s", fanOut, shards, depth, way), func(b *testing.B) {
						s := startNATS(b)
						sink := &counter{}
						j := s.open(sink, func(c *inbox.Config) {
							c.Shards = shards
							if way == "pipe" {
								c.Dial = s.dialInProcess
							}
						})
						j.SetDepth(depth)
						benchWrite(b, j, sink, fanOut)
					})
				}
			}
		}
	}
}

// BenchmarkWriteBatches is BenchmarkWrite with atomic batches, on a server that
// flushes every second and on one that flushes always.
func BenchmarkWriteBatches(b *testing.B) {
	for _, always := range []bool{false, true} {
		for _, fanOut := range []int{1, 10} {
			for _, shards := range []int{8, 32} {
				b.Run(fmt.Sprintf("sync-always=%v/fan-out=%d/shards=%d", always, fanOut, shards), func(b *testing.B) {
					s := startNATS(b, func(s *natsServer) { s.sync = always })
					sink := &counter{}
					j := s.open(sink, shared, patient, func(c *inbox.Config) { c.Shards, c.SyncAlways = shards, always })
					benchWrite(b, j, sink, fanOut)
				})
			}
		}
	}
}

func benchWrite(b *testing.B, j *inbox.JetStream, sink *counter, fanOut int) {
	payload := make([]byte, 1024)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	rooms := participants(benchSenders)
	to := make([][]uuid.UUID, benchSenders)
	for i, room := range rooms {
		to[i] = participants(fanOut)
		require.NoError(b, j.Join(b.Context(), room))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wait sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	for i := range benchSenders {
		wait.Go(func() {
			own := append([]byte(nil), payload...)
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				own[0] = byte(n)
				if _, err := j.Write(b.Context(), inbox.Message{Room: rooms[i], To: to[i], Payload: own}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	eventually(b, func() bool { return sink.copies.Load() == int64(b.N*fanOut) }, "all live copies")
	reportCPU(b, before)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "envelopes/s")
	b.ReportMetric(float64(b.N*fanOut)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkFloor is what the envelopes are compared with: raw pipelined JetStream
// publishes of 1 KiB, each acknowledged, over one connection and the same streams.
func BenchmarkFloor(b *testing.B) {
	for _, shards := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("streams=%d", shards), func(b *testing.B) {
			s := startNATS(b)
			s.open(&counter{}, func(c *inbox.Config) { c.Shards = shards })
			conn := s.connect()
			payload := make([]byte, 1024)
			subjects := make([]string, benchSenders)
			for i, id := range participants(benchSenders) {
				subjects[i] = fmt.Sprintf("inbox.%02d.%s.%s", i%shards, uuid.New(), id)
			}
			var acks atomic.Int64
			reply := nats.NewInbox()
			window := make(chan struct{}, 4096)
			_, err := conn.Subscribe(reply, func(*nats.Msg) { acks.Add(1); <-window })
			require.NoError(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for n := range b.N {
				window <- struct{}{}
				if err := conn.PublishRequest(subjects[n%benchSenders], reply, payload); err != nil {
					b.Fatal(err)
				}
			}
			eventually(b, func() bool { return acks.Load() == int64(b.N) }, "all acknowledgements")
			reportCPU(b, before)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "publishes/s")
		})
	}
}

// BenchmarkReplay reads whole inboxes of 100 rows, from memory and from streams.
func BenchmarkReplay(b *testing.B) {
	for _, memory := range []bool{true, false} {
		b.Run(fmt.Sprintf("memory=%v", memory), func(b *testing.B) {
			s := startNATS(b)
			j := s.open(&counter{}, func(c *inbox.Config) {
				c.Shards, c.Readers = 32, 8
				if !memory {
					c.RecentBytes = -1
				}
			})
			const inboxes, rows = 2000, 100
			rooms, to := participants(inboxes/10), participants(10)
			payload := make([]byte, 600)
			var wait sync.WaitGroup
			for _, room := range rooms {
				wait.Go(func() {
					for range rows {
						if _, err := j.Write(b.Context(), inbox.Message{Room: room, To: to, Payload: payload}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			var next atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := int(next.Add(1))
					room, who := rooms[n%len(rooms)], to[n/len(rooms)%10]
					if got := len(readAll(b, j, room, who, 0, 500)); got != rows {
						b.Errorf("%d rows", got)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replays/s")
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkJoin reports what a joined room costs, client and server together.
func BenchmarkJoin(b *testing.B) {
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		b.Run(name, func(b *testing.B) {
			s := startNATS(b)
			j := s.open(&counter{}, change)
			rooms := participants(b.N)
			before := heap()
			b.ResetTimer()
			for _, room := range rooms {
				if err := j.Join(b.Context(), room); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(heap()-before)/float64(b.N), "heap-B/room")
			for _, room := range rooms {
				j.Leave(room)
			}
		})
	}
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse)
}

// BenchmarkOpen restarts the server and opens 100,000 inboxes with rows retained.
func BenchmarkOpen(b *testing.B) {
	s := startNATS(b)
	all := func(c *inbox.Config) { c.Shards, c.Readers = 32, 8 }
	j, err := inbox.Open(b.Context(), s.config(&counter{}, all))
	require.NoError(b, err)
	const rooms, perRoom, rows = 10_000, 10, 3
	to, payload := participants(perRoom), make([]byte, 600)
	var wait sync.WaitGroup
	ids := participants(rooms)
	for part := range 100 {
		wait.Go(func() {
			for range rows {
				for _, room := range ids[part*rooms/100 : (part+1)*rooms/100] {
					if _, err := j.Write(b.Context(), inbox.Message{Room: room, To: to, Payload: payload}); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	var server, open, warm time.Duration
	for b.Loop() {
		closeInboxes(j)
		s.stop()
		begin := time.Now()
		s.start()
		started := time.Now()
		j, err = inbox.Open(b.Context(), s.config(&counter{}, all))
		require.NoError(b, err)
		require.NoError(b, j.Ready())
		opened := time.Now()
		<-j.Warmed()
		server, open, warm = server+started.Sub(begin), open+opened.Sub(started), warm+time.Since(opened)
	}
	closeInboxes(j)
	for name, total := range map[string]time.Duration{"server-ms": server, "open-ms": open, "warm-ms": warm} {
		b.ReportMetric(float64(total.Milliseconds())/float64(b.N), name)
	}
}
