package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// proxy stands between clients and a real relay, and does to their frames what a test wants: a
// relay that lies cannot be had otherwise.
type proxy struct {
	*httptest.Server

	relay    string
	requests atomic.Int64 // over HTTP, upgrades among them
	frames   atomic.Int64 // that clients sent

	mu   sync.Mutex                                         // guards the following fields
	up   func(message []byte) (forward bool, answer []byte) // of what clients send
	down func(message []byte) (deliver [][]byte)            // of what the relay sends
	then func()                                             // of afterAnswer
	cuts []context.CancelFunc
}

func newProxy(t *testing.T, s *testkit.Relay) *proxy {
	t.Helper()
	target, err := url.Parse(s.URL())
	require.NoError(t, err)
	p := &proxy{relay: s.RelayURL()}
	pass := httputil.NewSingleHostReverseProxy(target)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		if r.URL.Path == "/v1/relay" {
			p.serve(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// cut ends all connections without a close frame.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cut := range p.cuts {
		cut()
	}
	p.cuts = nil
}

func (p *proxy) onUp(f func(message []byte) (forward bool, answer []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = f
}

func (p *proxy) onDown(f func(message []byte) (deliver [][]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = f
}

// afterAnswer has a function called when the client has read the answer that the function of onUp,
// which calls this, returns.
func (p *proxy) afterAnswer(then func()) { p.then = then }

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	near, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = near.CloseNow() }()
	far, _, err := websocket.Dial(r.Context(), p.relay, nil)
	if err != nil {
		return
	}
	defer func() { _ = far.CloseNow() }()
	near.SetReadLimit(wire.MaxServerMessage)
	far.SetReadLimit(wire.MaxServerMessage)
	ctx, cancel := context.WithCancel(r.Context())
	p.mu.Lock()
	p.cuts = append(p.cuts, cancel)
	p.mu.Unlock()
	var wait sync.WaitGroup
	wait.Go(func() {
		defer cancel()
		pump(ctx, far, near, func(message []byte) ([][]byte, []byte) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.down == nil {
				return [][]byte{message}, nil
			}
			return p.down(message), nil
		})
	})
	wait.Go(func() {
		defer cancel()
		pump(ctx, near, far, func(message []byte) ([][]byte, []byte) {
			p.frames.Add(1)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.up == nil {
				return [][]byte{message}, nil
			}
			forward, answer := p.up(message)
			if then := p.then; then != nil {
				p.then = nil
				_ = near.Write(ctx, websocket.MessageText, answer)
				wait.Go(func() {
					if near.Ping(ctx) == nil { // the client reads it behind the answer
						then()
					}
				})
				answer = nil
			}
			if !forward {
				return nil, answer
			}
			return [][]byte{message}, answer
		})
	})
	wait.Wait()
}

// pump moves messages until one side ends, and passes the end on.
func pump(ctx context.Context, from, to *websocket.Conn, change func([]byte) (forward [][]byte, answer []byte)) {
	for {
		kind, message, err := from.Read(ctx)
		if err != nil {
			if code := websocket.CloseStatus(err); code > 0 {
				_ = to.Close(code, "")
			}
			return
		}
		forward, answer := change(message)
		for _, m := range forward {
			if to.Write(ctx, kind, m) != nil {
				return
			}
		}
		if answer != nil && from.Write(ctx, kind, answer) != nil {
			return
		}
	}
}

// envelopeOf is an envelope's id and kind, where a message of a client is one.
func envelopeOf(message []byte) (id, kind string) {
	var e struct {
		Type *string `json:"type"`
		ID   string  `json:"id"`
		Kind string  `json:"kind"`
	}
	if json.Unmarshal(message, &e) != nil || e.Type != nil {
		return "", ""
	}
	return e.ID, e.Kind
}

func nackOf(id string, reason wire.Code) []byte {
	text, _ := json.Marshal(map[string]string{"type": "nack", "id": id, "reason": string(reason)})
	return text
}
