package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

// maxSockets is how many connections one process drives at most, under the usual
// limit of 20,000 open files.
const maxSockets = 15_000

// loop drives many WebSocket connections from one goroutine: the generator shares
// its cores with the server, so it does without a goroutine, a timer and buffers
// per connection. Nothing of it is safe for concurrent use.
type loop struct {
	epoll   int
	timer   int // a timerfd: epoll's own time-out counts whole milliseconds
	server  netip.AddrPort
	conns   map[int32]*conn // by file descriptor
	events  []unix.EpollEvent
	buffer  []byte // what is read, of one connection at a time
	frame   []byte // the frame being written
	source  uint32 // host part of the next source address
	dialled int32
	request []byte // the upgrade request
	scanned message
}

// handler is told what happens on a connection.
type handler interface {
	// ready is called once, after welcome (or, on a bare connection, the upgrade).
	ready(c *conn)
	// message is called for every frame but welcome and ping. m is valid until it
	// returns.
	message(c *conn, m *message)
	// closed is called once for a connection that ended without this side's close.
	// code is 0 when there was no close frame.
	closed(c *conn, code int, cause error)
}

type connState uint8

const (
	connecting connState = iota
	upgrading
	greeting // hello is sent
	open
	gone
)

// conn is one connection of a loop.
type conn struct {
	loop    *loop
	fd      int32
	number  int32 // tells it from earlier connections with the same descriptor
	state   connState
	bare    bool // no hello: the server knows no protocol
	writing bool // waits for the socket to take more
	mask    [4]byte
	token   string
	pending []byte // the beginning of a frame that has not arrived whole
	unsent  []byte // what the socket did not take yet
	handler handler
}

func newLoop(server string) (*loop, error) {
	address, err := netip.ParseAddrPort(server)
	if err != nil || !address.Addr().Is4() || !address.Addr().IsLoopback() {
		return nil, fmt.Errorf("the relay must listen on 127.0.0.0/8, not on %q", server)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(timer)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, timer, &event); err != nil {
		_ = unix.Close(epoll)
		_ = unix.Close(timer)
		return nil, fmt.Errorf("watch a timer: %w", err)
	}
	return &loop{
		epoll:  epoll,
		timer:  timer,
		server: address,
		conns:  make(map[int32]*conn),
		events: make([]unix.EpollEvent, 512),
		buffer: make([]byte, 256<<10),
		request: []byte("GET /v1/relay HTTP/1.1\r\nHost: " + server + "\r\nUpgrade: websocket\r\n" +
			"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cmVsYXliZW5jaC1rZXktMQ==\r\n\r\n"),
	}, nil
}

// close ends all connections, without a goodbye and without TIME_WAIT.
func (l *loop) close() {
	for _, c := range l.conns {
		c.abort()
	}
	_ = unix.Close(l.timer)
	_ = unix.Close(l.epoll)
}

// alarm makes a poll return after d, which is at least a microsecond.
func (l *loop) alarm(d time.Duration) {
	setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, time.Microsecond)))}
	_ = unix.TimerfdSettime(l.timer, 0, &setting, nil)
}

// dial begins a connection. token is empty for a bare one.
func (l *loop) dial(token string, h handler) (*conn, error) {
	if len(l.conns) >= maxSockets {
		return nil, fmt.Errorf("more than %d connections in one process", maxSockets)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	l.dialled++
	c := &conn{loop: l, fd: int32(fd), number: l.dialled, token: token, bare: token == "", handler: h}
	binary.NativeEndian.PutUint32(c.mask[:], rand.Uint32()|1)
	if err := l.connect(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: c.fd, Pad: c.number}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	c.writing = true
	l.conns[c.fd] = c
	return c, nil
}

// connect starts connecting from one of the many loopback addresses, so that
// neither ports nor the relay's limit per address run out.
func (l *loop) connect(fd int) error {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	host := l.source%60_000 + 256
	l.source++
	from := unix.SockaddrInet4{Addr: [4]byte{127, 1, byte(host >> 8), byte(host)}}
	if err := unix.Bind(fd, &from); err != nil {
		return fmt.Errorf("bind to a loopback address: %w", err)
	}
	to := unix.SockaddrInet4{Port: int(l.server.Port()), Addr: l.server.Addr().As4()}
	if err := unix.Connect(fd, &to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// run handles events until done says so, ctx ends, or for at most limit. It asks
// done after every batch of events.
func (l *loop) run(ctx context.Context, limit time.Duration, done func() bool) error {
	deadline := time.Now().Add(limit)
	for !done() {
		left := time.Until(deadline)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.poll(min(left, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// poll handles one batch of events and waits for it no longer than wait.
func (l *loop) poll(wait time.Duration) error {
	n, err := unix.EpollWait(l.epoll, l.events, int((wait+time.Millisecond-1)/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for events: %w", err)
	}
	for i := range max(n, 0) {
		event := l.events[i]
		if event.Fd == int32(l.timer) {
			_, _ = unix.Read(l.timer, l.buffer[:8])
			continue
		}
		c := l.conns[event.Fd]
		if c == nil || c.number != event.Pad {
			continue // it ended while this batch was handled
		}
		if event.Events&unix.EPOLLOUT != 0 {
			c.writable()
		}
		if c.state != gone && event.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			c.readable()
		}
	}
	return nil
}

func (c *conn) writable() {
	if c.state == connecting {
		code, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			c.end(0, fmt.Errorf("connect: %w", err))
			return
		}
		c.state = upgrading
		c.unsent = append(c.unsent, c.loop.request...)
	}
	c.flush()
}

// flush writes what is unsent and asks to be told when more can be written.
func (c *conn) flush() {
	for len(c.unsent) > 0 {
		n, err := unix.Write(int(c.fd), c.unsent)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			c.watch(true)
			return
		}
		if err != nil {
			c.end(0, fmt.Errorf("write: %w", err))
			return
		}
		c.unsent = c.unsent[n:]
	}
	c.unsent = nil
	c.watch(false)
}

func (c *conn) watch(writing bool) {
	if c.writing == writing {
		return
	}
	c.writing = writing
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.fd, Pad: c.number}
	if writing {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(c.loop.epoll, unix.EPOLL_CTL_MOD, int(c.fd), &event); err != nil {
		c.end(0, fmt.Errorf("watch a socket: %w", err))
	}
}

// send writes one text message.
func (c *conn) send(payload []byte) { c.write(ws.OpText, payload) }

func (c *conn) write(op ws.OpCode, payload []byte) {
	if c.state == gone {
		return
	}
	l := c.loop
	l.frame = appendClientFrame(l.frame[:0], op, payload, c.mask)
	rest := l.frame
	if len(c.unsent) == 0 {
		n, err := unix.Write(int(c.fd), rest)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			c.end(0, fmt.Errorf("write: %w", err))
			return
		}
		rest = rest[max(n, 0):]
	}
	if len(rest) > 0 {
		c.unsent = append(c.unsent, rest...)
		c.watch(true)
	}
}

func (c *conn) readable() {
	l := c.loop
	held := copy(l.buffer, c.pending)
	n, err := unix.Read(int(c.fd), l.buffer[held:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil:
		c.end(0, fmt.Errorf("read: %w", err))
		return
	case n == 0:
		c.end(0, errors.New("the server ended the connection without a close frame"))
		return
	}
	data := l.buffer[:held+n]
	if c.state == upgrading {
		if data = c.upgraded(data); c.state == gone || c.state == upgrading {
			return
		}
	}
	rest := c.frames(data)
	if c.state == gone {
		return
	}
	if len(rest) == 0 {
		c.pending = nil
		return
	}
	c.pending = append(c.pending[:0:0], rest...)
}

// upgraded reads the answer to the upgrade and returns what follows it.
func (c *conn) upgraded(data []byte) []byte {
	head, rest, found := bytes.Cut(data, []byte("\r\n\r\n"))
	if !found {
		c.pending = append(c.pending[:0:0], data...)
		return nil
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		line, _, _ := bytes.Cut(head, []byte("\r\n"))
		c.end(0, fmt.Errorf("the server answered %q instead of upgrading", line))
		return nil
	}
	c.pending = nil
	if c.bare {
		c.state = open
		c.handler.ready(c)
	} else {
		c.state = greeting
		c.send(fmt.Appendf(nil, `{"type":"hello","token":%q,"direct":false}`, c.token))
	}
	return rest
}

// frames handles the whole frames in data and returns the rest.
func (c *conn) frames(data []byte) []byte {
	for {
		op, payload, size, err := nextFrame(data)
		if err != nil {
			c.end(0, err)
			return nil
		}
		if size == 0 {
			return data
		}
		data = data[size:]
		c.handle(op, payload)
		if c.state == gone {
			return nil
		}
	}
}

func (c *conn) handle(op ws.OpCode, payload []byte) {
	switch op {
	case ws.OpText:
		c.text(payload)
	case ws.OpPing:
		c.write(ws.OpPong, payload)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		c.end(int(code), fmt.Errorf("closed by the relay: %d %s", code, reason))
	default:
	}
}

func (c *conn) text(payload []byte) {
	m := &c.loop.scanned
	if !m.scan(payload) {
		c.end(0, fmt.Errorf("%w: %.60q is no frame of a relay", errServerFrame, payload))
		return
	}
	switch {
	case string(m.kind) == "ping":
		c.send(fmt.Appendf(nil, `{"type":"pong","id":"%s"}`, m.id))
	case c.state == greeting && string(m.kind) == "welcome":
		c.state = open
		c.handler.ready(c)
	default:
		c.handler.message(c, m)
	}
}

// resume asks for all rows after a cursor.
func (c *conn) resume(cursor string) {
	c.send(fmt.Appendf(nil, `{"type":"resume","last_id":%q}`, cursor))
}

// end is called when the other side, or an error, ended the connection.
func (c *conn) end(code int, cause error) {
	if c.state == gone {
		return
	}
	c.release()
	c.handler.closed(c, code, cause)
}

// abort closes with a reset, so that no TIME_WAIT remains.
func (c *conn) abort() {
	if c.state == gone {
		return
	}
	_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	c.release()
}

func (c *conn) release() {
	c.state = gone
	delete(c.loop.conns, c.fd)
	_ = unix.Close(int(c.fd))
	c.pending, c.unsent = nil, nil
}
