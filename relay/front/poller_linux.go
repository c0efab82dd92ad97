package front

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	readSize     = 8 << 10 // of the buffer a turn reads into
	readsPerTurn = 16      // then others have their turn

	eventsRead  = unix.EPOLLIN | unix.EPOLLRDHUP
	eventsError = unix.EPOLLERR | unix.EPOLLHUP

	// notSentLimit bounds what the kernel keeps unsent for a slow reader; what is
	// under way to a fast one is not limited by it.
	notSentLimit = 128 << 10

	keepAliveIdle     = 60 // seconds; the relay's own pings find dead peers first
	keepAliveInterval = 15
	keepAliveCount    = 4

	userTimeout      = 60_000 // ms for sent data to be acknowledged
	closeUserTimeout = 5_000  // the same once the socket is closed
)

// poller serves sockets by epoll. It owns them: they are no longer known to Go's
// net package, whose own poller would wake for each packet too. An fd and its
// generation together name a connection, so an event of a closed socket whose
// number is in use again reaches nobody.
type poller struct {
	front *Front
	epfd  int
	// events is the epoll descriptor as a file: it is itself pollable, so the
	// goroutine that waits for events blocks no thread.
	events *os.File

	mu         sync.RWMutex
	slots      []*conn // by fd; guarded by mu
	generation atomic.Uint32

	running sync.WaitGroup
}

func startPoller(f *Front) (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll instance: %w", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil { // so that os.NewFile polls it
		return nil, errors.Join(fmt.Errorf("set epoll instance non-blocking: %w", err), unix.Close(epfd))
	}
	p := &poller{front: f, epfd: epfd, events: os.NewFile(uintptr(epfd), "epoll")}
	raw, err := p.events.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("poll epoll instance: %w", err), p.events.Close())
	}
	p.running.Go(func() { p.run(raw) })
	return p, nil
}

func (p *poller) usable() bool { return true }

// stop ends the poller, which has no connections any more.
func (p *poller) stop() {
	_ = p.events.Close() // wakes run; there is nothing to be lost
	p.running.Wait()
}

// run hands out events. It does nothing that could take time.
func (p *poller) run(raw syscall.RawConn) {
	var events [256]unix.EpollEvent
	var n int
	wait := func(fd uintptr) bool {
		var err error
		if n, err = unix.EpollWait(int(fd), events[:], 0); err != nil {
			n = 0
			return !errors.Is(err, unix.EINTR)
		}
		return n > 0
	}
	for raw.Read(wait) == nil {
		for _, event := range events[:n] {
			if c := p.conn(event.Fd); c != nil {
				p.dispatch(c, uint32(event.Pad), event.Events)
			}
		}
	}
}

func (p *poller) conn(fd int32) *conn {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if int(fd) >= len(p.slots) {
		return nil
	}
	return p.slots[fd]
}

func (p *poller) setConn(fd int32, c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for int(fd) >= len(p.slots) {
		p.slots = append(p.slots, nil)
	}
	p.slots[fd] = c
}

func (p *poller) conns() []*conn {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var conns []*conn
	for _, c := range p.slots {
		if c != nil {
			conns = append(conns, c)
		}
	}
	return conns
}

// dispatch obeys an event. One-shot: after it the fd is disarmed.
func (p *poller) dispatch(c *conn, generation, events uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.generation != generation {
		return
	}
	c.armed = 0
	if c.wantWrite && events&(unix.EPOLLOUT|eventsError) != 0 {
		c.wantWrite = false
		p.front.flusher.add(c)
	}
	if c.wantRead && events&(eventsRead|eventsError) != 0 {
		c.wantRead = false
		p.queueTurn(c)
	}
	p.arm(c)
}

func (p *poller) queueTurn(c *conn) {
	c.turn = turnQueued
	p.front.workers.submit(task{conn: c, kind: taskTurn})
}

// arm asks for the events the connection wants now.
func (p *poller) arm(c *conn) {
	var events uint32
	if c.wantRead {
		events |= eventsRead
	}
	if c.wantWrite {
		events |= unix.EPOLLOUT
	}
	if events == 0 || events == c.armed || c.gone {
		return
	}
	c.armed = events
	if err := p.control(unix.EPOLL_CTL_MOD, c, events); err != nil {
		p.front.log.Error("cannot arm connection", "error", err)
		c.vanishLocked()
	}
}

func (p *poller) control(op int, c *conn, events uint32) error {
	event := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: c.fd, Pad: int32(c.generation)}
	return unix.EpollCtl(p.epfd, op, int(c.fd), &event)
}

// attach takes the socket from Go's net package and makes c its owner. On an error
// the socket is closed.
func (p *poller) attach(c *conn, tcp *net.TCPConn) error {
	fd, err := detach(tcp)
	if err != nil {
		return fmt.Errorf("detach socket: %w", err)
	}
	setSocketOptions(fd)
	c.io, c.fd, c.generation = p, int32(fd), p.generation.Add(1)
	p.setConn(c.fd, c)
	if err := p.control(unix.EPOLL_CTL_ADD, c, 0); err != nil {
		p.setConn(c.fd, nil)
		return errors.Join(fmt.Errorf("add to epoll: %w", err), unix.Close(fd))
	}
	return nil
}

// detach closes tcp and returns a descriptor of its own for the same socket.
func detach(tcp *net.TCPConn) (int, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return -1, errors.Join(err, tcp.Close())
	}
	fd := -1
	var dupErr error
	err = raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr, tcp.Close()); err != nil {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
		return -1, err
	}
	return fd, nil
}

// setSocketOptions asks for what makes the socket better; a kernel that refuses one
// still gives a working socket.
func setSocketOptions(fd int) {
	for _, option := range [...]struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLimit},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
	} {
		_ = unix.SetsockoptInt(fd, option.level, option.name, option.value)
	}
}

// tune sets the same options on a socket that stays with Go's net package.
func (p *poller) tune(nc net.Conn) {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { setSocketOptions(int(fd)) })
	}
}

// start gives up the turn in which the connection was opened, for the first one
// that reads.
func (p *poller) start(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.queueTurn(c)
}

// turn implements transport: read what is there, hand over what is complete, arm
// again.
func (p *poller) turn(c *conn) {
	c.mu.Lock()
	c.turn = turnRunning // also when the socket is freed already: Closed is still to be called
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		p.read(c)
	}
	p.endTurn(c)
}

// read reads and handles until nothing is there, or long enough.
func (p *poller) read(c *conn) {
	units := c.takeDecoder()
	if early := c.decoder.early; early != nil {
		c.decoder.early = nil
		more := c.consume(early.b)
		p.front.buffers.put(early)
		if !more {
			return
		}
	}
	buf := p.front.buffers.get(readSize)
	defer p.front.buffers.put(buf)
	space := buf.b[:readSize]
	for range readsPerTurn {
		n, err := readSocket(c.fd, space)
		if err != nil || n == 0 {
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			c.mu.Lock()
			c.vanishLocked()
			c.mu.Unlock()
			return
		}
		p.front.metrics.bytesIn.Add(int64(n))
		if !c.consume(space[:n]) {
			return
		}
		if n < len(space) {
			break
		}
	}
	c.restDecoder(units)
}

func readSocket(fd int32, space []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), space)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// endTurn writes what the turn's messages brought, and arms for the next event or
// goes on with closing.
func (p *poller) endTurn(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		c.goAwayLocked()
	}
	switch {
	case c.closing:
		p.flush(c)
	case len(c.out.pending()) > 0:
		p.wake(c)
	}
	if c.closing {
		c.mu.Unlock()
		c.finishReading()
		c.mu.Lock()
	}
	c.turn = turnIdle
	switch {
	case c.gone:
	case c.expired:
		p.free(c)
	case c.closing:
		p.close(c)
	default:
		c.wantRead = true
		p.arm(c)
	}
}

// wake implements transport.
func (p *poller) wake(c *conn) {
	if c.closing || p.front.flusher.gathering.Load() {
		p.front.flusher.add(c)
		return
	}
	p.flush(c)
}

// throttle implements transport: flush is called wherever the queue is full.
func (p *poller) throttle(*conn) {}

// flush implements transport: one write for all that waits.
func (p *poller) flush(c *conn) {
	if c.gone || c.wantWrite {
		return
	}
	for len(c.out.pending()) > 0 {
		n, err := unix.Write(int(c.fd), c.out.pending())
		p.front.flusher.sample()
		if err == nil {
			p.front.metrics.bytesOut.Add(int64(n))
			c.out.begin(n)
			c.out.advance(&p.front.buffers, n)
			continue
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			c.wantWrite = true
			p.arm(c)
			break
		}
		c.out.release(&p.front.buffers)
		c.vanishLocked()
	}
	c.checkDrainedLocked()
	if c.closing && c.turn == turnIdle {
		p.close(c)
	}
}

// closing implements transport.
func (p *poller) closing(c *conn) {
	if c.turn == turnIdle {
		c.wantRead = false
		p.queueTurn(c)
	}
}

// close goes on with closing as far as it can be now: once all is written it shuts
// the sending side, then reads what still comes until the peer closes too, so that
// the close frame is not lost to a reset.
func (p *poller) close(c *conn) {
	if len(c.out.pending()) > 0 {
		return // flush comes back here, or the deadline
	}
	if !c.shutWrite {
		c.shutWrite = true
		_ = unix.Shutdown(int(c.fd), unix.SHUT_WR) // fails when the socket is dead; the read below says so
	}
	if p.discard(c) || c.peerDone {
		p.free(c)
		return
	}
	c.wantRead = true
	p.arm(c)
}

// discard throws away what the peer still sent, and reports whether that is all.
func (p *poller) discard(c *conn) bool {
	buf := p.front.buffers.get(readSize)
	defer p.front.buffers.put(buf)
	for range maxDiscard / readSize {
		n, err := readSocket(c.fd, buf.b[:readSize])
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil || n == 0 {
			return true
		}
	}
	return true // it sends and sends: a reset is what it gets
}

// expire implements transport.
func (p *poller) expire(c *conn) {
	if c.turn != turnRunning {
		p.free(c)
		return
	}
	// The turn may be about to use the fd, so it is closed at the turn's end; the peer
	// sees the end now.
	c.expired = true
	_ = unix.Shutdown(int(c.fd), unix.SHUT_RDWR)
}

// free closes the socket. Where the peer was too slow for all that waits, the
// kernel forgets the rest too; else it goes on trying for a while.
func (p *poller) free(c *conn) {
	if len(c.out.pending()) > 0 {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	} else {
		_ = unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, closeUserTimeout)
	}
	p.setConn(c.fd, nil) // before the number can be in use again
	if err := unix.Close(int(c.fd)); err != nil {
		p.front.log.Error("cannot close socket", "error", err)
	}
	c.fd = -1
	c.goneLocked()
}

// OpenFiles shares the open-files limit out: so many may be WebSockets, and the rest is
// for the files and connections of everything else in the process.
func OpenFiles() (webSockets, reserve int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 512, 128
	}
	files := int(min(limit.Cur, 1<<30))
	reserve = min(1024, files/4)
	return max(files-reserve, 1), reserve
}
