package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// The process that has a device open takes guests over HTTP on a unix socket that only the
// device's owner can reach:
//
//	POST /v1/run         an order; the answer is a stream of reports, the first of them names the guest,
//	                     the last one has the exit code
//	POST /v1/input/GUEST the guest's standard input, when it was asked for
//	POST /v1/stop/GUEST  Ctrl-C
//
// A guest whose connection is lost is stopped too.

// order is a command to run.
type order struct {
	Args    []string      `json:"args"`
	Caller  circumstances `json:"caller"`
	Program string        `json:"program"` // how it was called
	Look    look          `json:"look"`
}

// report is one thing that a guest's caller is told.
type report struct {
	Guest string `json:"guest,omitempty"`
	Out   []byte `json:"out,omitempty"`
	Err   []byte `json:"err,omitempty"`
	Input bool   `json:"input,omitempty"` // standard input is wanted
	Code  *int   `json:"code,omitempty"`
}

// Bounds of what guests may ask for.
const (
	maxGuests = 16      // at once
	maxOrder  = 4 << 20 // bytes of an order; systems take no longer command lines
	maxReport = 32 << 10
	goodbye   = 10 * time.Second // for guests to end, when the host does
	grace     = time.Second      // before, to be done: what ends the host may be a guest's work, as when it leaves the room
)

// errHostEnded says that the process ended in which a command ran.
var errHostEnded = errors.New("the peer command ended that had this device open, and this one ran in")

// errGuests says that no more commands can run.
var errGuests = errors.New("too many peer commands of this device run already")

// host serves the guests of a running device.
type host struct {
	running *running
	ctx     context.Context // ends when no guest may go on
	free    chan struct{}   // holds a value for each guest that may come

	mu     sync.Mutex // guards the following field
	guests map[string]*guest
}

// serve takes guests until stop is called, which waits for them to end. Where that cannot be,
// other commands wait for this one.
func (r *running) serve(ctx context.Context, dir string, con console) (stop func()) {
	path, remove, err := makeSocket(dir)
	if err != nil {
		con.notef("other peer commands of this device have to wait for this one: %v", err)
		return func() {}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600) // the folder is private already
	}
	if err != nil {
		remove()
		con.notef("other peer commands of this device have to wait for this one: %v", err)
		return func() {}
	}
	guests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &host{running: r, ctx: guests, free: make(chan struct{}, maxGuests), guests: make(map[string]*guest)}
	server := &http.Server{Handler: h.routes(), ReadHeaderTimeout: goodbye, MaxHeaderBytes: 16 << 10}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until stop
	}()
	return func() {
		if ctx.Err() == nil {
			h.wait(grace)
		}
		cancel()
		patience, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer done()
		_ = server.Shutdown(patience)
		_ = server.Close()
		<-ended
		remove()
	}
}

// wait waits until there are no guests, for so long.
func (h *host) wait(patience time.Duration) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(firstLook) {
		h.mu.Lock()
		guests := len(h.guests)
		h.mu.Unlock()
		if guests == 0 {
			return
		}
	}
}

func (h *host) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/run", h.run)
	mux.HandleFunc("POST /v1/input/{guest}", h.input)
	mux.HandleFunc("POST /v1/stop/{guest}", h.stop)
	return mux
}

func (h *host) run(w http.ResponseWriter, r *http.Request) {
	select {
	case h.free <- struct{}{}:
		defer func() { <-h.free }()
	default:
		http.Error(w, errGuests.Error(), http.StatusServiceUnavailable)
		return
	}
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder)).Decode(&o); err != nil || o.Caller.Folder == "" {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // from its end on, the server notices that the caller is gone
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	g := newGuest(w, cancel)
	defer context.AfterFunc(ctx, func() { _ = g.given.CloseWithError(context.Canceled) })() // nothing more is read
	defer h.enter(g)()
	if g.report(report{Guest: g.id}) != nil {
		return
	}
	con := console{
		in: g, out: guestOutput{g, false}, err: guestOutput{g, true},
		program: o.Program, guest: &o.Caller, look: o.Look, shared: h.running,
	}
	code := run(ctx, o.Args, con)
	if h.ctx.Err() != nil {
		code = exitCode(errHostEnded, con)
	}
	_ = g.report(report{Code: &code})
}

// enter makes a guest known until leave.
func (h *host) enter(g *guest) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guests[g.id] = g
	return func() {
		g.end()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.guests, g.id)
		_ = g.wanted.CloseWithError(io.ErrClosedPipe)
		_ = g.given.CloseWithError(io.ErrClosedPipe)
	}
}

func (h *host) find(w http.ResponseWriter, r *http.Request) *guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[r.PathValue("guest")]
	if g == nil {
		http.NotFound(w, r)
	}
	return g
}

func (h *host) input(w http.ResponseWriter, r *http.Request) {
	g := h.find(w, r)
	if g == nil {
		return
	}
	w.Header().Set("Connection", "close")
	_, err := io.Copy(g.given, r.Body)
	_ = g.given.CloseWithError(err) // nil: the end of the input
}

func (h *host) stop(w http.ResponseWriter, r *http.Request) {
	if g := h.find(w, r); g != nil {
		g.cancel()
	}
}

// guest is a command of another process.
type guest struct {
	id     string
	cancel context.CancelFunc

	asked  sync.Once
	wanted *io.PipeReader
	given  *io.PipeWriter

	mu     sync.Mutex // guards the following fields
	out    *json.Encoder
	writer *http.ResponseController
	ended  bool // nothing may be written any more
}

func newGuest(w http.ResponseWriter, cancel context.CancelFunc) *guest {
	g := &guest{id: rand.Text(), cancel: cancel, out: json.NewEncoder(w), writer: http.NewResponseController(w)}
	g.wanted, g.given = io.Pipe()
	return g
}

// end comes before the server takes the answer back: a command may have left something that
// reads its input, and would ask for it.
func (g *guest) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// report tells the caller something, at once.
func (g *guest) report(r report) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return io.ErrClosedPipe
	}
	return errors.Join(g.out.Encode(r), g.writer.Flush())
}

// Read reads the caller's standard input, which is asked for only then.
func (g *guest) Read(p []byte) (int, error) {
	var err error
	g.asked.Do(func() { err = g.report(report{Input: true}) })
	if err != nil {
		return 0, err
	}
	return g.wanted.Read(p)
}

// guestOutput is one of a guest's outputs.
type guestOutput struct {
	guest *guest
	err   bool
}

// Write hands it to the caller.
func (o guestOutput) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxReport)]
		r := report{Out: part}
		if o.err {
			r = report{Err: part}
		}
		if err := o.guest.report(r); err != nil {
			return written, err
		}
		written += len(part)
		p = p[len(part):]
	}
	return written, nil
}
