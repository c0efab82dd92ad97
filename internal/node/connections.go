package node

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/peerrelay/peerrelay/relay/front"
)

// connections bounds what clients of the public listener hold open beside WebSockets,
// which relay/front counts. Each is an open file, and a process without files loses its
// inboxes and its lease. One address may have so many, as sockets before hello; all
// together may have what WebSockets leave of the open files, and never all of these.
// Whoever is idle for longest makes room for a new one; where nobody is idle, the new one
// is closed.
type connections struct {
	perAddress int
	most       func() int // now, of all addresses
	closed     prometheus.Counter

	mu        sync.Mutex
	open      map[net.Conn]*connection
	addresses map[netip.Addr]*neighbours // no empty ones
	idle      *list.List                 // of *connection, the one that is idle for longest first
}

type connection struct {
	net.Conn

	of       *neighbours
	idle     *list.Element // in connections.idle; nil: in use
	idleHere *list.Element // in neighbours.idle
}

// neighbours are the connections of one address.
type neighbours struct {
	address netip.Addr
	open    int
	idle    *list.List // of *connection
}

func newConnections(perAddress int, most func() int, registerer prometheus.Registerer) *connections {
	c := &connections{
		perAddress: perAddress, most: most,
		open: make(map[net.Conn]*connection), addresses: make(map[netip.Addr]*neighbours), idle: list.New(),
	}
	factory := promauto.With(registerer)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "relay", Name: "http_connections", Help: "Open connections of the public listener that are no WebSockets.",
	}, func() float64 { return float64(c.count()) })
	c.closed = factory.NewCounter(prometheus.CounterOpts{
		Namespace: "relay", Name: "http_connections_closed_total", Help: "Connections closed because there were too many.",
	})
	return c
}

// filesForHTTP returns how many connections there may be besides so many WebSockets. Half
// of the files that those leave free stay for everything else in the process.
func filesForHTTP(webSockets int) int {
	forWebSockets, reserve := front.OpenFiles()
	return max(forWebSockets-webSockets, 0) + reserve/2
}

// changed is an http.Server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if over := c.admit(conn); over != nil {
			c.closed.Inc()
			abort(over)
		}
	case http.StateActive:
		c.use(conn)
	case http.StateIdle:
		c.rest(conn)
	case http.StateHijacked, http.StateClosed:
		c.forget(conn)
	}
}

// abort closes a connection without the farewell of TLS, which would wait for a peer
// that does not read.
func abort(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	_ = conn.Close() // it is given up whatever this says
}

// admit counts a new connection, and returns the one that must go for it.
func (c *connections) admit(conn net.Conn) (over net.Conn) {
	address := remoteAddr(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.addresses[address]
	if of == nil {
		of = &neighbours{address: address, idle: list.New()}
		c.addresses[address] = of
	}
	of.open++
	c.open[conn] = &connection{Conn: conn, of: of}
	switch {
	case of.open > c.perAddress:
		over = firstIdle(of.idle, conn)
	case len(c.open) > max(c.most(), 1):
		over = firstIdle(c.idle, conn)
	default:
		return nil
	}
	c.forgetLocked(over)
	return over
}

func firstIdle(idle *list.List, instead net.Conn) net.Conn {
	if element := idle.Front(); element != nil {
		if first, ok := element.Value.(*connection); ok {
			return first.Conn
		}
	}
	return instead
}

func (c *connections) use(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil {
		c.useLocked(known)
	}
}

func (c *connections) useLocked(known *connection) {
	if known.idle != nil {
		c.idle.Remove(known.idle)
		known.of.idle.Remove(known.idleHere)
		known.idle, known.idleHere = nil, nil
	}
}

func (c *connections) rest(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil && known.idle == nil {
		known.idle, known.idleHere = c.idle.PushBack(known), known.of.idle.PushBack(known)
	}
}

func (c *connections) forget(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(conn)
}

func (c *connections) forgetLocked(conn net.Conn) {
	known := c.open[conn]
	if known == nil { // it was closed here
		return
	}
	c.useLocked(known)
	delete(c.open, conn)
	if known.of.open--; known.of.open == 0 {
		delete(c.addresses, known.of.address)
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func remoteAddr(conn net.Conn) netip.Addr {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return front.CountedAddr(peer.Addr())
}
