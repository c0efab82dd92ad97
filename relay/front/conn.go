package front

import (
	"net/netip"
	"sync"

	"github.com/gobwas/ws"

	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/wire"
)

var _ relay.Conn = (*conn)(nil)

// transport moves the bytes of connections: one poller for all of its
// connections, or one blocking transport for each. All methods but turn and
// throttle are called with the connection's lock held.
type transport interface {
	wake(c *conn)    // frames wait in c.out: see that they are written
	flush(c *conn)   // write now what can be written without waiting
	closing(c *conn) // c.closing was set: see that c.finishReading is called soon
	expire(c *conn)  // the closing deadline is over: free the socket, whatever waits
	turn(c *conn)    // read and handle; on a worker
	// throttle is called by the turn before it handles an event; it may wait until
	// a writer that is a goroutine has caught up.
	throttle(c *conn)
}

// turnState says who owns the reading side of a connection.
type turnState uint8

const (
	turnIdle    turnState = iota
	turnQueued            // waits for a worker
	turnRunning           // on a worker, or with the goroutine of the connection
)

// conn is one upgraded connection. It is kept small: a server has very many that
// are idle.
type conn struct {
	front *Front
	io    transport
	peer  relay.Peer // set before the first turn
	addr  netip.AddrPort

	decoder *decoder // owned by the turn; nil while no message is unfinished

	mu         sync.Mutex // guards all that follows, but for what says otherwise
	out        outQueue
	drained    func() // held by WhenDrained
	drainBelow int32

	fd         int32 // of the poller; -1 once closed, and for blocking transports
	generation uint32

	helloUntil   tick // 0: none
	messageUntil tick // written by the turn only
	closeUntil   tick
	wheelAt      tick // of the entry in the wheel that counts

	controlTick  tick // owned by the turn: the second controlCount is about
	controlCount int32

	code wire.CloseCode // of the close, once closing

	turn          turnState
	authenticated bool
	leaving       bool // to close with 1001 as soon as the running message is done
	closing       bool // a close was decided: nothing more is handed over or sent
	peerDone      bool // nothing more will come from the peer
	dirty         bool // on the flusher's list
	wantRead      bool
	wantWrite     bool
	shutWrite     bool // all was written and the sending side shut
	expired       bool // the socket is to be freed at the end of the turn
	gone          bool // the socket is freed
	drainQueued   bool // a worker is about to call drained
	armed         uint32
}

// RemoteAddr implements relay.Conn.
func (c *conn) RemoteAddr() netip.AddrPort { return c.addr }

// Send implements relay.Conn.
func (c *conn) Send(msg []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendLocked(ws.OpText, msg)
}

// Queue implements relay.Conn.
func (c *conn) Queue(msg []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pushLocked(ws.OpText, msg)
}

// Flush implements relay.Conn.
func (c *conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing && len(c.out.pending()) > 0 {
		c.io.wake(c)
	}
}

func (c *conn) sendLocked(op ws.OpCode, payload []byte) bool {
	if !c.pushLocked(op, payload) {
		return false
	}
	c.io.wake(c)
	return true
}

func (c *conn) pushLocked(op ws.OpCode, payload []byte) bool {
	if c.closing {
		return false
	}
	size := frameSize(len(payload))
	if !c.fitsLocked(size) {
		c.io.flush(c) // perhaps only the flusher is late, not the peer
		if c.closing {
			return false
		}
	}
	if !c.fitsLocked(size) {
		c.front.metrics.overflows.Inc()
		c.out.dropUnbegun(&c.front.buffers)
		c.closeLocked(wire.ClosePolicy, wire.ReasonQueue)
		return false
	}
	c.out.push(&c.front.buffers, op, payload)
	c.front.metrics.framesOut.Add(1)
	return true
}

// fitsLocked reports whether one more frame may wait. One that is larger than any
// envelope of a client, of a room without encryption, could not be sent at all beside
// a few others: it may overshoot while the queue is less than half full.
func (c *conn) fitsLocked(size int) bool {
	limits := &c.front.limits
	waiting := c.out.waiting()
	if int(c.out.frames) >= limits.QueueFrames {
		return false
	}
	return waiting+size <= limits.QueueBytes || size > largestOfClients && waiting <= limits.QueueBytes/2
}

// largestOfClients is a deliver frame around the largest envelope that a client can send.
const largestOfClients = wire.MaxMessage + 4096

// Close implements relay.Conn.
func (c *conn) Close(code wire.CloseCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

func (c *conn) closeLocked(code wire.CloseCode, reason string) {
	if c.closing {
		return
	}
	if code == wire.CloseAuth { // after a revocation was answered, nothing more is delivered
		c.out.dropUnbegun(&c.front.buffers)
	}
	var body [ws.MaxControlFramePayloadSize]byte
	c.out.push(&c.front.buffers, ws.OpClose, appendCloseBody(body[:0], ws.StatusCode(code), reason))
	c.front.metrics.framesOut.Add(1)
	c.endLocked(code)
}

// answerCloseLocked ends the connection on the peer's close frame, with the same
// code (RFC 6455 section 5.5.1).
func (c *conn) answerCloseLocked(code wire.CloseCode) {
	c.peerDone = true
	if c.closing {
		return
	}
	var body []byte
	if code != noStatus {
		var space [2]byte
		body = appendCloseBody(space[:0], ws.StatusCode(code), "")
	}
	c.out.push(&c.front.buffers, ws.OpClose, body)
	c.front.metrics.framesOut.Add(1)
	c.endLocked(code)
}

// vanishLocked ends the connection without a close frame: the peer shut its side
// or the socket failed. What waits is still written where it can be.
func (c *conn) vanishLocked() {
	c.peerDone = true
	if !c.closing {
		c.endLocked(0)
	}
}

// endLocked begins the end of the connection: nothing more is handed over or
// queued, what is queued is written, and the socket is freed by the deadline.
func (c *conn) endLocked(code wire.CloseCode) {
	c.closing = true
	c.code = code
	c.front.metrics.closed(code)
	c.setDeadlineLocked(&c.closeUntil, c.front.limits.CloseTimeout)
	c.checkDrainedLocked()
	c.io.wake(c)
	c.io.closing(c)
}

// leave closes the connection for a shutdown, after the message that is being
// handled, so that its answers still go out.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == turnRunning {
		c.leaving = true
		return
	}
	c.goAwayLocked()
}

func (c *conn) goAwayLocked() { c.closeLocked(wire.CloseGoingAway, wire.ReasonShutdown) }

// abort frees the socket now, or as soon as the running message is done.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	c.goAwayLocked()
	c.io.expire(c)
}

// Authenticated implements relay.Conn.
func (c *conn) Authenticated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authenticated || c.gone {
		return
	}
	c.authenticated = true
	c.helloUntil = 0
	c.front.admission.authenticated(c.addr.Addr())
}

// WhenDrained implements relay.Conn. A second f replaces one that still waits.
func (c *conn) WhenDrained(bytes int, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drained, c.drainBelow = f, int32(min(bytes, 1<<30))
	c.checkDrainedLocked()
}

// checkDrainedLocked gives the held f to a worker if its time has come.
func (c *conn) checkDrainedLocked() {
	if c.drained == nil || c.drainQueued {
		return
	}
	if c.closing || c.out.waiting() < int(c.drainBelow) {
		c.drainQueued = true
		c.front.workers.submit(task{conn: c, kind: taskDrained})
	}
}

func (c *conn) callDrained() {
	c.mu.Lock()
	f := c.drained
	c.drained, c.drainQueued = nil, false
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

// consume decodes in and hands over what is complete. It reports whether reading
// goes on. Only the turn calls it.
func (c *conn) consume(in []byte) bool {
	for {
		var ev event
		ev, in = c.decoder.next(in)
		if ev.kind == eventNone {
			return true
		}
		c.front.metrics.framesIn.Add(1)
		c.io.throttle(c)
		if !c.handle(ev) {
			return false
		}
	}
}

func (c *conn) handle(ev event) bool {
	if ev.kind == eventMessage {
		return c.handOver(ev.data)
	}
	flood := (ev.kind == eventPing || ev.kind == eventPong) && c.countControl()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case flood:
		c.closeLocked(wire.ClosePolicy, wire.ReasonFlood)
	case ev.kind == eventPing:
		c.sendLocked(ws.OpPong, ev.data)
	case ev.kind == eventClose:
		c.answerCloseLocked(ev.code)
	case ev.kind == eventError:
		c.closeLocked(ev.code, ev.reason)
	}
	return !c.closing
}

// handOver gives one message to the peer side. The message is whole, so its
// deadline ends here however long it takes to handle.
func (c *conn) handOver(msg []byte) bool {
	c.mu.Lock()
	c.messageUntil = 0
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return false
	}
	c.peer.Message(msg)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		c.goAwayLocked()
	}
	return !c.closing
}

// countControl counts a ping or pong and reports whether there were too many in
// this second.
func (c *conn) countControl() bool {
	second := c.front.wheel.now() / ticksPerSecond
	if second != c.controlTick {
		c.controlTick, c.controlCount = second, 0
	}
	c.controlCount++
	return int(c.controlCount) > c.front.limits.ControlFrames
}

// takeDecoder makes sure the turn has a decoder, and returns its count of units.
func (c *conn) takeDecoder() int {
	if c.decoder == nil {
		c.decoder = c.front.decoders.get()
	}
	return c.decoder.units
}

// restDecoder gives the decoder back, unless a message is unfinished: then that
// message has its deadline from when its first bytes came, whatever else comes.
func (c *conn) restDecoder(unitsBefore int) {
	if c.decoder.idle() {
		c.front.decoders.put(c.decoder)
		c.decoder = nil
		if c.messageUntil != 0 {
			c.mu.Lock()
			c.messageUntil = 0
			c.mu.Unlock()
		}
		return
	}
	if c.messageUntil == 0 || c.decoder.units != unitsBefore {
		c.mu.Lock()
		c.setDeadlineLocked(&c.messageUntil, c.front.limits.MessageTimeout)
		c.mu.Unlock()
	}
}

// finishReading says goodbye to the peer side once the connection closes. Only the
// turn calls it; it does nothing the second time.
func (c *conn) finishReading() {
	if c.decoder != nil {
		c.front.decoders.put(c.decoder)
		c.decoder = nil
	}
	if peer := c.peer; peer != nil {
		c.peer = nil
		peer.Closed(c.code) // code does not change once closing
	}
}

// goneLocked does the accounts of a connection whose socket is freed.
func (c *conn) goneLocked() {
	c.gone = true
	c.out.release(&c.front.buffers)
	c.checkDrainedLocked()
	c.front.admission.release(c.addr.Addr(), c.authenticated)
	c.front.open.Done()
}
