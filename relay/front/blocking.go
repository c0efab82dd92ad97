package front

import (
	"net"
	"time"
)

const (
	blockingReadSize = 4 << 10
	writeSize        = 64 << 10 // bytes a blocking writer takes at a time
)

// blockingTransport serves one connection with a goroutine that reads, and a second
// one while there is something to write. It is for TLS, and for systems without
// epoll.
type blockingTransport struct {
	nc      net.Conn
	writing bool // a write goroutine runs; guarded by the connection's lock
	wrote   chan struct{}
	caught  chan struct{} // capacity 1: the writer got on, or the connection closes
}

// attachBlocking makes c the owner of nc.
func (f *Front) attachBlocking(c *conn, nc net.Conn) *blockingTransport {
	f.poller.tune(rawConn(nc))
	t := &blockingTransport{nc: nc, wrote: make(chan struct{}), caught: make(chan struct{}, 1)}
	c.io = t
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocking[c] = struct{}{}
	return t
}

// start gives the turn in which the connection was opened to its own goroutine. The
// Front waits for it as long as the connection is open.
func (t *blockingTransport) start(c *conn) { go t.turn(c) }

// turn implements transport: it lasts as long as the connection.
func (t *blockingTransport) turn(c *conn) {
	t.read(c)
	c.finishReading()
	t.close(c)
}

func (t *blockingTransport) read(c *conn) {
	space := make([]byte, blockingReadSize)
	c.takeDecoder()
	if early := c.decoder.early; early != nil {
		c.decoder.early = nil
		more := c.consume(early.b)
		c.front.buffers.put(early)
		if !more {
			return
		}
	}
	c.restDecoder(0)
	for {
		c.Flush() // what the messages of this turn queued
		c.setTurn(turnIdle)
		n, err := t.nc.Read(space)
		if c.setTurn(turnRunning) {
			return
		}
		units := c.takeDecoder()
		c.front.metrics.bytesIn.Add(int64(n))
		if n > 0 && !c.consume(space[:n]) {
			return
		}
		c.restDecoder(units)
		if err != nil {
			c.mu.Lock()
			c.vanishLocked()
			c.mu.Unlock()
			return
		}
	}
}

// setTurn says whether a message may be running, and reports whether the
// connection is closing.
func (c *conn) setTurn(state turnState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn = state
	if c.leaving {
		c.goAwayLocked()
	}
	return c.closing
}

// wake implements transport.
func (t *blockingTransport) wake(c *conn) {
	if t.writing || c.gone {
		return
	}
	t.writing = true
	c.front.writers.Go(func() { t.write(c) })
}

// flush implements transport: only the writer writes.
func (t *blockingTransport) flush(*conn) {}

// throttle implements transport: when half a queue waits, the writer goes first.
func (t *blockingTransport) throttle(c *conn) {
	c.Flush()
	for {
		c.mu.Lock()
		room := c.closing || int(c.out.frames) <= c.front.limits.QueueFrames/2
		c.mu.Unlock()
		if room {
			return
		}
		<-t.caught
	}
}

func (t *blockingTransport) signalCaught() {
	select {
	case t.caught <- struct{}{}:
	default:
	}
}

// closing implements transport: it ends a Read that waits.
func (t *blockingTransport) closing(*conn) {
	_ = t.nc.SetReadDeadline(time.Unix(1, 0)) // fails on a closed socket, which ends Read too
	t.signalCaught()
}

// expire implements transport: it ends Read and Write.
func (t *blockingTransport) expire(c *conn) {
	c.expired = true
	nc := rawConn(t.nc) // closing TLS would wait for its alert to be written
	if tcp, ok := nc.(interface{ SetLinger(int) error }); ok && len(c.out.pending()) > 0 {
		_ = tcp.SetLinger(0)
	}
	_ = nc.Close()
}

// rawConn is the connection under TLS, or nc itself.
func rawConn(nc net.Conn) net.Conn {
	if tls, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return tls.NetConn()
	}
	return nc
}

// write writes what waits until nothing does.
func (t *blockingTransport) write(c *conn) {
	scratch := c.front.buffers.get(writeSize)
	defer c.front.buffers.put(scratch)
	for {
		chunk := t.take(c, scratch.b[:0])
		if len(chunk) == 0 {
			return
		}
		n, err := t.nc.Write(chunk)
		c.mu.Lock()
		c.front.metrics.bytesOut.Add(int64(n))
		c.out.advance(&c.front.buffers, n)
		if err != nil {
			c.out.release(&c.front.buffers)
			c.vanishLocked()
		}
		c.checkDrainedLocked()
		t.signalCaught()
		c.mu.Unlock()
	}
}

// take copies the next bytes to write into dst, or notes that none wait. On a
// closing connection that is the end of all writing.
func (t *blockingTransport) take(c *conn, dst []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.out.pending()
	dst = append(dst, pending[:min(len(pending), writeSize)]...)
	c.out.begin(len(dst))
	if len(dst) > 0 {
		return dst
	}
	t.writing = false
	if c.closing && !c.shutWrite {
		c.shutWrite = true
		close(t.wrote)
	}
	return nil
}

// close waits until all is written, shuts the sending side, and reads what still
// comes until the peer closes too or the deadline does it.
func (t *blockingTransport) close(c *conn) {
	<-t.wrote
	c.mu.Lock()
	peerDone := c.peerDone || c.expired
	c.mu.Unlock()
	if half, ok := t.nc.(interface{ CloseWrite() error }); ok && !peerDone {
		peerDone = half.CloseWrite() != nil
	}
	if !peerDone {
		t.discard()
	}
	_ = t.nc.Close() // nothing is left to be lost

	f := c.front
	f.mu.Lock()
	delete(f.blocking, c)
	f.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goneLocked()
}

// discard throws away what the peer still sends. The closing deadline ends it, by
// closing the socket.
func (t *blockingTransport) discard() {
	if t.nc.SetReadDeadline(time.Time{}) != nil {
		return
	}
	space := make([]byte, blockingReadSize)
	for range maxDiscard / blockingReadSize {
		if _, err := t.nc.Read(space); err != nil {
			return
		}
	}
}
