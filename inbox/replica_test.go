package inbox_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

// Another copy of a stream may answer direct gets and lag behind without end: here a
// mirror that holds one foreign row only. Every read is complete all the same
// (FAULTS C09).
func TestLaggingCopy(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	one := func(c *inbox.Config) { c.Shards = 1 }
	writer := s.open(&recorder{}, one)
	js := s.jetStream()
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "LAGGING", MirrorDirect: true,
		Mirror: &jetstream.StreamSource{Name: "INBOX_00", FilterSubject: "inbox.00.foreign"},
	})
	require.NoError(t, err)
	l := newLedger()
	for n := range 30 {
		require.NoError(t, l.write(writer, fmt.Sprint(n)))
	}
	_, err = js.Publish(t.Context(), "inbox.00.foreign", []byte("makes the mirror take part"))
	require.NoError(t, err)
	eventually(t, func() bool {
		info, err := mirror.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	}, "the mirror has its row")
	conn := s.connect()
	eventually(t, func() bool { // it answers in the stream's place
		reply, err := conn.Request("$JS.API.DIRECT.GET.INBOX_00", []byte(`{"seq":1}`), time.Second)
		return err == nil && reply.Header.Get("Status") == "404"
	}, "the mirror answers")
	fromStream := s.open(&recorder{}, one, noMemory)
	for range 30 {
		l.check(t, fromStream)
	}
	for range 5 {
		warmed, err := inbox.Open(t.Context(), s.config(&recorder{}, one))
		require.NoError(t, err)
		<-warmed.Warmed()
		require.EqualValues(t, 1, warmed.Low(l.room))
		l.check(t, warmed)
		closeInboxes(warmed)
	}
}

// natsCluster is three NATS servers of one cluster.
type natsCluster struct {
	tb      testing.TB
	servers [3]*server.Server
	options [3]*server.Options
}

func startCluster(tb testing.TB) *natsCluster {
	tb.Helper()
	c := &natsCluster{tb: tb}
	var routes []*url.URL
	for i := range c.servers {
		free := startNATS(tb) // ports that are free
		client := free.port
		free.stop()
		route := startNATS(tb)
		port := route.port
		route.stop()
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		c.options[i] = &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: client, JetStream: true, StoreDir: tb.TempDir(),
			NoSigs: true, NoLog: true, Cluster: server.ClusterOpts{Name: "inboxes", Host: "127.0.0.1", Port: port},
		}
	}
	for i := range c.servers {
		c.options[i].Routes = routes
		c.start(i)
	}
	tb.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	eventually(tb, func() bool {
		for _, s := range c.servers {
			if s.JetStreamIsLeader() {
				return true
			}
		}
		return false
	}, "the cluster has a leader")
	return c
}

func (c *natsCluster) start(i int) {
	c.tb.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	require.NoError(c.tb, err)
	s.Start()
	c.servers[i] = s
	require.True(c.tb, s.ReadyForConnections(20*time.Second))
}

func (c *natsCluster) stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

func (c *natsCluster) dial(name string, options ...nats.Option) (*nats.Conn, error) {
	var urls string
	for i, o := range c.options {
		if i > 0 {
			urls += ","
		}
		urls += fmt.Sprintf("nats://127.0.0.1:%d", o.Port)
	}
	return nats.Connect(urls, append(options, nats.Name(name))...)
}

func (c *natsCluster) open(sink inbox.Sink) *inbox.JetStream {
	c.tb.Helper()
	var j *inbox.JetStream
	eventually(c.tb, func() (opened bool) {
		var err error
		j, err = inbox.Open(c.tb.Context(), inbox.Config{
			Dial: c.dial, Sink: sink, Mode: inbox.Shared, Replicas: 3, Shards: 2, Readers: 3,
			WriteTimeout: 2 * time.Second, ProbeEvery: 50 * time.Millisecond,
		})
		return err == nil
	}, "inboxes open")
	c.tb.Cleanup(func() { closeInboxes(j) })
	return j
}

// A relay that is started with its NATS servers asks again until they have chosen a
// leader; it does not give up after one request.
func TestOpenBeforeThereIsALeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for i := range c.servers {
		c.stop(i)
	}
	c.start(0) // one of three elects nobody
	var mu sync.Mutex
	var conns []*nats.Conn
	dial := func(name string, options ...nats.Option) (*nats.Conn, error) {
		conn, err := c.dial(name, options...)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn, err
	}

	type result struct {
		inboxes *inbox.JetStream
		err     error
	}
	opened := make(chan result, 1)
	go func() {
		j, err := inbox.Open(t.Context(), inbox.Config{
			Dial: dial, Sink: &recorder{}, Mode: inbox.Shared, Replicas: 3, Shards: 1, Readers: 1, WriteTimeout: 2 * time.Second,
		})
		opened <- result{j, err}
	}()
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		var requests uint64
		for _, conn := range conns {
			requests += conn.Stats().OutMsgs
		}
		return requests >= 2
	}, "it asks again")
	c.start(1)
	c.start(2)
	r := <-opened
	require.NoError(t, r.err)
	closeInboxes(r.inboxes)
}

// Two nodes write the same replicated streams while one server after the other is
// restarted: each verdict is true, each row is there once, on both nodes.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	sinks := []*recorder{{}, {}}
	nodes := []*inbox.JetStream{c.open(sinks[0]), c.open(sinks[1])}
	l := newLedger()
	for _, j := range nodes {
		require.NoError(t, j.Join(t.Context(), l.room))
	}
	require.NoError(t, l.write(nodes[0], "first"))
	for _, sink := range sinks {
		eventually(t, func() bool { return len(sink.all()) == 3 }, "live on both nodes")
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				_ = l.write(nodes[w%2], fmt.Sprintf("%d/%d", w, n))
				if n >= 100 {
					<-done
					return
				}
			}
		})
	}
	for i := range c.servers {
		c.stop(i)
		c.start(i)
		for _, j := range nodes {
			ready(t, j)
		}
		attempt := 0
		eventually(t, func() bool {
			attempt++
			return l.write(nodes[i%2], fmt.Sprintf("after restart %d, attempt %d", i, attempt)) == nil
		}, "stores again")
	}
	close(done)
	wait.Wait()
	for _, j := range nodes {
		ready(t, j)
		l.check(t, j)
	}
	for _, sink := range sinks {
		for _, live := range sink.all() {
			require.NotContains(t, l.refused, live.payload)
		}
	}
	require.GreaterOrEqual(t, len(l.stored), 4)
}

// An answer with a row missing in its middle, as after a connection that was lost
// and came back, is taken only up to the gap (FAULTS C08).
func TestAnswerWithGap(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	one := func(c *inbox.Config) { c.Shards = 1 }
	writer := s.open(&recorder{}, one)
	l := newLedger()
	for n := range 5 {
		require.NoError(t, l.write(writer, fmt.Sprint(n)))
	}
	conn := s.connect()
	var answers atomic.Int64
	_, err := conn.QueueSubscribe("$JS.API.DIRECT.GET.INBOX_00", "_zz_", func(request *nats.Msg) {
		var asked struct {
			Sequence uint64 `json:"seq"`
		}
		if err := json.Unmarshal(request.Data, &asked); err != nil {
			t.Error(err)
		}
		if asked.Sequence > 1 {
			nothing := nats.NewMsg(request.Reply)
			nothing.Header = nats.Header{"Status": {"404"}}
			_ = conn.PublishMsg(nothing) // an error shows below
			return
		}
		answers.Add(1)
		for n, i := range []int{0, 1, 3, 4} { // the row between is lost
			id, before := l.stored[fmt.Sprint(i)][0].Sequence, uint64(0)
			if n > 0 {
				before = l.stored[fmt.Sprint(i-1)][0].Sequence
			}
			row := nats.NewMsg(request.Reply)
			row.Data = fmt.Append(nil, i)
			row.Header = nats.Header{
				"Nats-Stream": {"INBOX_00"}, "Nats-Subject": {"inbox.00.x"}, "Nats-Sequence": {fmt.Sprint(id)},
				"Nats-Time-Stamp": {time.Now().Format(time.RFC3339Nano)}, "Nats-Num-Pending": {fmt.Sprint(4 - i)},
				"Nats-Last-Sequence": {fmt.Sprint(before)},
			}
			_ = conn.PublishMsg(row) // an error shows below
		}
		end := nats.NewMsg(request.Reply)
		end.Header = nats.Header{"Status": {"204"}, "Description": {"EOB"}}
		_ = conn.PublishMsg(end) // an error shows below
	})
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	reader := s.open(&recorder{}, one, noMemory)
	for range 100 {
		rows, _, err := reader.Read(t.Context(), l.room, l.to[0], 0, l.stored["4"][0].Sequence, 3)
		require.NoError(t, err)
		require.Len(t, rows, 3)
		for i, row := range rows {
			require.Equal(t, l.stored[fmt.Sprint(i)][0], row.ID)
		}
	}
	require.Positive(t, answers.Load())
}
