package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	// receiveQueue is how many frames wait for Receive. When it is full the
	// connection is not read any more, and the relay's own bound decides.
	receiveQueue = wire.MaxQueueFrames
	pongTimeout  = 10 * time.Second
)

// Options of a connection.
type Options struct {
	Token  string // session credential; never logged, never in an error
	Direct bool   // asks for a development connection (DESIGN section 6)
	// Timeout bounds dialling and the hello; 0 means 15 s.
	Timeout time.Duration
	// TLS is used for wss URLs; nil means the system's roots.
	TLS *tls.Config
}

// Conn is one authenticated connection. Its methods may be called from several
// goroutines at once. It answers pings by itself as long as frames are received:
// after a Resume somebody must call Receive.
type Conn struct {
	ws          *websocket.Conn
	participant string
	session     string

	frames chan wire.ServerFrame
	ended  chan struct{} // closed when the reader has stopped; err is set before
	err    error
	stop   context.CancelFunc

	closing sync.Once
	closed  chan struct{} // closed by Close

	mu       sync.Mutex // guards the following fields
	receipts Receipts
	waiters  map[string]chan Verdict
	settled  settledIDs
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
		frames:  make(chan wire.ServerFrame, receiveQueue),
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
			return nil, fmt.Errorf("connect: %w", &UpgradeError{StatusCode: answer.StatusCode})
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	ws.SetReadLimit(wire.MaxServerMessage)
	return ws, nil
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
	return c.SendRaw(ctx, resume)
}

// SendRaw sends one message exactly as given. Receipts of an envelope sent this
// way come through Receive. When ctx ends while the message is being written the
// connection is lost.
func (c *Conn) SendRaw(ctx context.Context, message []byte) error {
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

// Receive returns the next frame that is neither a ping nor a receipt of an
// envelope a Send waits for. Frames that were read before the connection ended
// come first; then the error is a *CloseError, ErrClosed, or what broke the
// connection. The end of ctx does not harm the connection.
func (c *Conn) Receive(ctx context.Context) (wire.ServerFrame, error) {
	select {
	case frame := <-c.frames:
		return frame, nil
	default:
	}
	select {
	case frame := <-c.frames:
		return frame, nil
	case <-ctx.Done():
		return wire.ServerFrame{}, ctx.Err()
	case <-c.ended:
	}
	select {
	case frame := <-c.frames:
		return frame, nil
	default:
		return wire.ServerFrame{}, c.err
	}
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
	kind, message, err := c.ws.Read(ctx)
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
	select {
	case c.frames <- frame:
	case <-c.closed: // nobody will ask for it; read on until the relay's close
	}
	return nil
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
