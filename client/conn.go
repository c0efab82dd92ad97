package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/jonboulle/clockwork"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	// receiveQueue is how many frames wait for Receive. When it is full the
	// connection is not read any more, and the relay's own bound decides; but see ErrOverrun.
	receiveQueue = wire.MaxQueueFrames
	pongTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	// silence is how long a relay may say nothing (docs/protocol.md, "Heartbeat").
	silence = time.Minute
)

var (
	// ErrOverrun reports a connection that was not received from while a Send waited for its
	// verdict, until there was no room for what came before it: those frames are dropped.
	// Sends go on; for the rows, connect anew and resume.
	ErrOverrun = errors.New("frames were dropped: nobody received them while an envelope waited for its verdict")
	// ErrSilent reports a relay that said nothing for so long that the connection is taken for
	// dead.
	ErrSilent = errors.New("the relay says nothing any more")
)

// Options of a connection.
type Options struct {
	Token  string // session credential; never logged, never in an error
	Direct bool   // asks for a development connection (DESIGN section 6)
	// Timeout bounds dialling and the hello; 0 means 15 s.
	Timeout time.Duration
	// TLS is used for wss URLs; nil means the system's roots.
	TLS *tls.Config
	// Clock is that of the waits for verdicts and rows; nil means the system's, as are, in any
	// case, the times of the connection itself.
	Clock clockwork.Clock
	// Silence is how long the relay may say nothing before the connection is taken for dead
	// (ErrSilent); 0 means a minute. It sends a ping every 25 s.
	Silence time.Duration
}

// Conn is one authenticated connection. Its methods may be called from several
// goroutines at once. It answers pings by itself as long as frames are received:
// after a Resume somebody must call Receive.
type Conn struct {
	ws          *websocket.Conn
	participant string
	session     string
	clock       clockwork.Clock
	silence     time.Duration

	frames   chan wire.ServerFrame
	resuming atomic.Bool   // a Resume's resume_complete was not received yet
	wake     chan struct{} // tells the reader that a verdict is waited for
	overrun  chan struct{} // closed by the reader when it drops frames from then on
	ended    chan struct{} // closed when the reader has stopped; err is set before
	err      error
	stop     context.CancelFunc

	closing sync.Once
	closed  chan struct{} // closed by Close

	mu       sync.Mutex // guards the following fields
	receipts Receipts
	waiters  map[string]chan Verdict
	settled  settledIDs // of which further receipts are dropped
	batched  settledIDs // which SendAll has sent
}

// Dial connects, says hello and waits for welcome. When the relay refuses the
// hello the error is a *CloseError with code 4403 (wire.CloseAuth); when the server
// answers HTTP instead of upgrading it is an *UpgradeError. ctx ends the dialling,
// not the connection.
func Dial(ctx context.Context, url string, options Options) (*Conn, error) {
	timeout := options.Timeout
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	ws, err := upgrade(ctx, url, options.TLS)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		ws:      ws,
		clock:   cmp.Or(options.Clock, clockwork.NewRealClock()),
		silence: cmp.Or(options.Silence, silence),
		frames:  make(chan wire.ServerFrame, receiveQueue),
		wake:    make(chan struct{}, 1),
		overrun: make(chan struct{}),
		ended:   make(chan struct{}),
		closed:  make(chan struct{}),
		waiters: make(map[string]chan Verdict),
	}
	if err := c.hello(ctx, options); err != nil {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("hello: %w", err)
	}
	reading, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.read(reading)
	return c, nil
}

func upgrade(ctx context.Context, url string, roots *tls.Config) (*websocket.Conn, error) {
	transport := &http.Transport{TLSClientConfig: roots, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	ws, answer, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("connect: %w", upgradeError(answer))
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	ws.SetReadLimit(wire.MaxServerMessage)
	return ws, nil
}

// upgradeError reads an answer that is not an upgrade, with how long it asks to wait.
func upgradeError(answer *http.Response) error {
	refused := &UpgradeError{StatusCode: answer.StatusCode}
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 16)
	if err != nil || seconds == 0 {
		return refused
	}
	return &laterError{UpgradeError: refused, after: time.Duration(seconds) * time.Second}
}

func (c *Conn) hello(ctx context.Context, options Options) error {
	hello, err := json.Marshal(struct {
		Type   string `json:"type"`
		Token  string `json:"token"`
		Direct bool   `json:"direct"`
	}{"hello", options.Token, options.Direct})
	if err != nil {
		return err
	}
	if err := c.ws.Write(ctx, websocket.MessageText, hello); err != nil {
		return err
	}
	frame, err := c.next(ctx)
	if err != nil {
		return err
	}
	if frame.Type != wire.ServerWelcome {
		return fmt.Errorf("the relay sent %s instead of welcome", frame.Type)
	}
	c.participant, c.session = frame.ParticipantID, frame.SessionID
	return nil
}

// ParticipantID is who the relay says this connection is.
func (c *Conn) ParticipantID() string { return c.participant }

// SessionID is the room of this connection, the session_id of its envelopes.
func (c *Conn) SessionID() string { return c.session }

// Resume asks for the rows after cursor, which is "$" (none that is stored), "0"
// (all that is retained) or a stream id. limit bounds the rows, 1 to
// wire.MaxResumeLimit; 0 leaves it to the relay. The rows, and resume_complete at
// their end, come through Receive.
func (c *Conn) Resume(ctx context.Context, cursor string, limit int) error {
	resume, err := json.Marshal(struct {
		Type   string `json:"type"`
		LastID string `json:"last_id"`
		Limit  int    `json:"limit,omitempty"`
	}{"resume", cursor, limit})
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	c.resuming.Store(true)
	return c.SendRaw(ctx, resume)
}

// SendRaw sends one message exactly as given. Receipts of an envelope sent this
// way come through Receive. When ctx ends while the message is being written, or the relay
// does not read it for half a minute, the connection is lost.
func (c *Conn) SendRaw(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, message); err != nil {
		return fmt.Errorf("send: %w", c.cause(err))
	}
	return nil
}

// cause returns why the connection ended, if the reader knows, instead of the
// write error that followed from it.
func (c *Conn) cause(err error) error {
	select {
	case <-c.ended:
		return c.err
	default:
		return closeError(err)
	}
}

// over reports whether the connection has ended.
func (c *Conn) over() bool { return closed(c.ended) }

func closed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// Receive returns the next frame that is neither a ping nor a receipt of an
// envelope a Send waits for. Frames that were read before the connection ended
// come first; then the error is a *CloseError, ErrClosed, ErrOverrun, or what broke the
// connection. The end of ctx does not harm the connection.
func (c *Conn) Receive(ctx context.Context) (wire.ServerFrame, error) {
	return c.await(ctx, nil)
}

// ready is Receive for a frame that is there already.
func (c *Conn) ready() (frame wire.ServerFrame, ok bool) {
	select {
	case frame = <-c.frames:
		return c.received(frame), true
	default:
		return frame, false
	}
}

// await is Receive until due, which may be nil; then the error is errDue.
func (c *Conn) await(ctx context.Context, due <-chan time.Time) (wire.ServerFrame, error) {
	if frame, ok := c.ready(); ok {
		return frame, nil
	}
	var end error
	select {
	case frame := <-c.frames:
		return c.received(frame), nil
	case <-ctx.Done():
		return wire.ServerFrame{}, ctx.Err()
	case <-due:
		return wire.ServerFrame{}, errDue
	case <-c.overrun:
		end = ErrOverrun
	case <-c.ended:
		end = c.err
	}
	if frame, ok := c.ready(); ok { // the queue takes no more
		return frame, nil
	}
	return wire.ServerFrame{}, end
}

func (c *Conn) received(frame wire.ServerFrame) wire.ServerFrame {
	if frame.Type == wire.ServerResumeComplete {
		c.resuming.Store(false)
	}
	return frame
}

// Close says goodbye with 1000 and waits, at most 10 s, for the relay to answer
// and for the reader to stop. Frames that nobody received are lost.
func (c *Conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	_ = c.ws.Close(websocket.StatusNormalClosure, "")
	c.stop()
	<-c.ended
	return nil
}

// read is the one reader of the connection. It ends when the connection does.
func (c *Conn) read(ctx context.Context) {
	defer close(c.ended)
	for {
		frame, err := c.next(ctx)
		if err == nil {
			err = c.handle(ctx, frame)
		}
		if err != nil {
			c.err = c.ending(err)
			_ = c.ws.CloseNow()
			return
		}
	}
}

// ending prefers this side's own Close to the read error that follows from it.
func (c *Conn) ending(err error) error {
	select {
	case <-c.closed:
		return ErrClosed
	default:
		return err
	}
}

// next reads one frame.
func (c *Conn) next(ctx context.Context) (wire.ServerFrame, error) {
	reading, cancel := context.WithTimeoutCause(ctx, c.silence, ErrSilent)
	defer cancel()
	kind, message, err := c.ws.Read(reading)
	if err != nil && errors.Is(context.Cause(reading), ErrSilent) {
		return wire.ServerFrame{}, ErrSilent
	}
	if err != nil {
		return wire.ServerFrame{}, closeError(err)
	}
	if kind != websocket.MessageText {
		return wire.ServerFrame{}, fmt.Errorf("%w: a binary message", wire.ErrServerFrame)
	}
	frame, err := wire.ParseServer(message)
	if err != nil {
		return wire.ServerFrame{}, fmt.Errorf("read a frame: %w", err)
	}
	return frame, nil
}

// handle answers pings, gives receipts to the Sends that wait for them and the
// rest to Receive.
func (c *Conn) handle(ctx context.Context, frame wire.ServerFrame) error {
	switch frame.Type {
	case wire.ServerPing:
		return c.pong(ctx, frame.ID)
	case wire.ServerQueued:
		if c.queued(frame) {
			return nil
		}
	case wire.ServerNack:
		if c.nacked(frame) {
			return nil
		}
	default:
	}
	c.deliver(frame)
	return nil
}

// deliver puts a frame into the queue for Receive. While the queue is full the connection is
// not read, unless somebody waits for a verdict, which stands behind what is not read.
func (c *Conn) deliver(frame wire.ServerFrame) {
	if closed(c.overrun) {
		return
	}
	for {
		select {
		case c.frames <- frame:
			return
		default:
		}
		if c.awaitsVerdicts() {
			close(c.overrun)
			return
		}
		select {
		case c.frames <- frame:
			return
		case <-c.wake:
		case <-c.closed: // nobody will ask for it; read on until the relay's close
			return
		}
	}
}

func (c *Conn) awaitsVerdicts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receipts.Waiting() > 0
}

func (c *Conn) pong(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, pongTimeout)
	defer cancel()
	pong, err := json.Marshal(struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}{"pong", id})
	if err != nil {
		return fmt.Errorf("pong: %w", err)
	}
	if err := c.ws.Write(ctx, websocket.MessageText, pong); err != nil {
		return fmt.Errorf("pong: %w", closeError(err))
	}
	return nil
}
