package remote_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/remote"
	"github.com/peerrelay/peerrelay/wire"
)

// gate is a server whose first answer waits for release, so that what is sent meanwhile
// comes together in the second request.
type gate struct {
	*httptest.Server

	requests chan int // items of each request, as they come
	release  chan struct{}
	answer   atomic.Pointer[string] // raw, of every request with several items
	most     atomic.Int64           // requests at the same time
	now      atomic.Int64
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{requests: make(chan int, 100), release: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Close)
	return g
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	for now := g.now.Add(1); ; {
		most := g.most.Load()
		if now <= most || g.most.CompareAndSwap(most, now) {
			break
		}
	}
	defer g.now.Add(-1)
	var body struct {
		Message  *struct{}  `json:"message"`
		Messages []struct{} `json:"messages"`
	}
	if err := json.UnmarshalRead(r.Body, &body); err != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if body.Message != nil {
		g.requests <- 1
		<-g.release
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"duplicate":false}`)
		return
	}
	g.requests <- len(body.Messages)
	if answer := g.answer.Load(); answer != nil {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, *answer)
			_ = conn.Close()
		}
		return
	}
	_, _ = io.WriteString(w, answers(len(body.Messages), `{"status":201}`))
}

// answers are n times the same answer.
func answers(n int, each string) string {
	return `{"answers":[` + strings.TrimSuffix(strings.Repeat(each+",", n), ",") + `]}`
}

func (g *gate) open(t *testing.T, options ...func(*remote.Config)) *remote.Store {
	t.Helper()
	token, _ := store.NewToken()
	return open(t, service{g.Server, token}, append([]func(*remote.Config){func(cfg *remote.Config) { cfg.InFlight, cfg.Timeout = 1, time.Hour }}, options...)...)
}

// together sends n items while one is on its way, and returns their errors in order.
func (g *gate) together(t *testing.T, s *remote.Store, n int, do func(ctx context.Context, i int) error) []error {
	t.Helper()
	errs := make([]error, n)
	var running sync.WaitGroup
	running.Go(func() { _ = do(t.Context(), -1) })
	require.Equal(t, 1, <-g.requests, "a lone call is a request of its own, at once")
	for i := range n {
		running.Go(func() { errs[i] = do(t.Context(), i) })
		require.Eventually(t, func() bool { return s.Waiting() == i+1 }, patience, time.Millisecond) // in order
	}
	g.release <- struct{}{}
	running.Wait()
	require.Equal(t, n, <-g.requests, "what came meanwhile shares a request")
	return errs
}

func sendMessage(s *remote.Store) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		_, err := s.AppendMessage(ctx, envelopeOf(member, fmt.Sprintf("m-%d", i), "x"))
		return err
	}
}

func sendTrace(s *remote.Store) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		_, err := s.AppendTrace(ctx, store.Trace{MessageID: fmt.Sprintf("m-%d", i), Declared: true})
		return err
	}
}

// RELAY's rule holds for each item of a request: one's answer is nobody else's.
func TestAnswersOfABatch(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := g.open(t)
	var items []string
	var want []func(err error)
	item := func(text string, check func(err error)) {
		items, want = append(items, text), append(want, check)
	}
	for _, text := range []string{`{"status":201}`, `{"status":200}`, ` { "status" : 201 } `} {
		item(text, func(err error) { require.NoError(t, err) })
	}
	for code, status := range appends[0].refusals {
		item(fmt.Sprintf(`{"status":%d,"error":"%s"}`, status, code), func(err error) { refusedAs(t, err, code) })
		item(fmt.Sprintf(`{"status":503,"error":"%s"}`, code), func(err error) { opaque(t, err) })
		item(fmt.Sprintf(`{"status":201,"error":"%s"}`, code), func(err error) { opaque(t, err) })
		item(fmt.Sprintf(`{"status":"%d","error":"%s"}`, status, code), func(err error) { opaque(t, err) })
	}
	long := `{"status":409,"error":"history_conflict","detail":""}`
	pad := func(size int) string {
		return strings.Replace(long, `""`, `"`+strings.Repeat("x", size-len(long))+`"`, 1)
	}
	item(pad(4096), func(err error) { refusedAs(t, err, "history_conflict") })
	for _, text := range []string{
		pad(4097), `null`, `{}`, `201`, `[]`, `{"status":503,"error":"unavailable"}`, `{"status":500,"error":"internal"}`,
		`{"status":409}`, `{"status":409,"error":null}`, `{"status":409,"error":"private_refused"}`, `{"status":202}`, `{"status":0}`,
		`{"status":409,"error":["history_conflict"]}`, `{"error":"history_conflict"}`, `{"Status":201}`,
	} {
		item(text, func(err error) { opaque(t, err, text) })
	}
	answer := raw(200, `{"answers":[`+strings.Join(items, ",")+`]}`)
	g.answer.Store(&answer)
	for i, err := range g.together(t, s, len(items), sendMessage(s)) {
		want[i](err)
	}
}

// An answer that is not one for each item, in order, is none for any; so is a refusal of
// the whole request, whatever its code.
func TestAnswersOfABatchThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	good := answers(2, `{"status":201}`)
	for name, answer := range map[string]string{
		"too few":            raw(200, answers(1, `{"status":201}`)),
		"too many":           raw(200, answers(3, `{"status":201}`)),
		"none":               raw(200, `{"answers":[]}`),
		"null":               raw(200, `{"answers":null}`),
		"nothing":            raw(200, ""),
		"twice":              raw(200, `{"answers":[{"status":201},{"status":201}],"answers":[{"status":201},{"status":201}]}`),
		"followed by junk":   raw(200, good+"x"),
		"followed by itself": raw(200, good+good),
		"a list":             raw(200, `[{"status":201},{"status":201}]`),
		"one for both":       raw(201, `{"duplicate":false}`),
		"under 201":          raw(201, good),
		"a refusal":          raw(409, `{"error":"history_conflict"}`),
		"another refusal":    raw(400, `{"error":"malformed_request"}`),
		"no such room":       raw(404, `{"error":"not_found"}`),
		"busy":               raw(503, `{"error":"unavailable"}`, "Retry-After: 1"),
		"cut":                raw(200, good)[:len(raw(200, good))-1],
		"not UTF-8":          raw(200, strings.Replace(good, "}]", `,"x":"`+"\xff"+`"}]`, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, send := range []func(*remote.Store) func(context.Context, int) error{sendMessage, sendTrace} {
				g := newGate(t)
				g.answer.Store(&answer)
				s := g.open(t)
				for _, err := range g.together(t, s, 2, send(s)) {
					opaque(t, err)
				}
			}
		})
	}
}

// A request takes at most 512 items and 4 MiB of envelopes.
func TestBoundsOfABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items, size int
		want        []int
	}{
		"items": {600, 0, []int{512, 88}},
		"bytes": {130, wire.MaxMessage - 1024, []int{64, 64, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			s := g.open(t)
			var running sync.WaitGroup
			m := envelopeOf(member, "m", strings.Repeat("x", c.size))
			appendOne := func() {
				running.Go(func() {
					_, err := s.AppendMessage(t.Context(), m)
					if err != nil {
						t.Error(err)
					}
				})
			}
			appendOne()
			require.Equal(t, 1, <-g.requests)
			for range c.items {
				appendOne()
			}
			require.Eventually(t, func() bool { return s.Waiting() == c.items }, patience, time.Millisecond)
			g.release <- struct{}{}
			for _, want := range c.want {
				require.Equal(t, want, <-g.requests)
			}
			running.Wait()
			require.EqualValues(t, 1, g.most.Load(), "one after the other, as configured")
		})
	}
}

// A call that ends before its message is sent takes the message back; one whose message
// was sent waits for its outcome.
func TestEndedCalls(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := g.open(t)
	sent, cancelSent := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- sendMessage(s)(sent, 0) }()
	require.Equal(t, 1, <-g.requests)
	cancelSent()

	waiting, cancelWaiting := context.WithCancel(t.Context())
	second := make(chan error, 1)
	m := envelopeOf(member, "withdrawn", "x")
	go func() { _, err := s.AppendMessage(waiting, m); second <- err }()
	require.Eventually(t, func() bool { return s.Waiting() == 1 }, patience, time.Millisecond)
	cancelWaiting()
	require.ErrorIs(t, <-second, context.Canceled)
	clear(m.Bytes) // not read any more

	select {
	case err := <-first:
		t.Fatal("it did not wait for its outcome: ", err)
	default:
	}
	g.release <- struct{}{}
	require.NoError(t, <-first)
	go func() { first <- sendMessage(s)(t.Context(), 1) }()
	require.Equal(t, 1, <-g.requests, "the next request is the next message's")
	g.release <- struct{}{}
	require.NoError(t, <-first)
}

// A full queue takes nothing more: callers wait for room, as long as they want to.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := g.open(t, func(cfg *remote.Config) { cfg.Queue = 2 })
	errs := make(chan error, 4)
	start := func(i int) { go func() { errs <- sendMessage(s)(t.Context(), i) }() }
	start(0)
	require.Equal(t, 1, <-g.requests)
	start(1)
	start(2)
	require.Eventually(t, func() bool { return s.Waiting() == 2 }, patience, time.Millisecond)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, sendMessage(s)(ended, 3), context.Canceled)
	start(3)
	require.Equal(t, 2, s.Waiting())
	close(g.release)
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

// Close sends what waits, and nothing is sent after it.
func TestClose(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	token, _ := store.NewToken()
	s, err := remote.Open(remote.Config{URL: g.URL, Token: token, InFlight: 1, Timeout: time.Hour})
	require.NoError(t, err)
	errs := make(chan error, 3)
	go func() { errs <- sendMessage(s)(t.Context(), 0) }()
	require.Equal(t, 1, <-g.requests)
	for i := range 2 {
		go func() { errs <- sendMessage(s)(t.Context(), i+1) }()
	}
	require.Eventually(t, func() bool { return s.Waiting() == 2 }, patience, time.Millisecond)
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	g.release <- struct{}{}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	<-closed
	require.ErrorIs(t, sendMessage(s)(t.Context(), 4), remote.ErrClosed)
	require.ErrorIs(t, sendTrace(s)(t.Context(), 4), remote.ErrClosed)
	s.Close() // twice is once
}
