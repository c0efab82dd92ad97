// Package fault breaks the links between the parts of a relay, for tests.
package fault

import (
	"context"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP link that can be cut, or hold back what one side says.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  sync.Cond
	links    map[*link]struct{}
	refusing bool
	closed   bool
	held     [2]bool // by direction
}

// Direction is which side speaks.
type Direction int

// The directions.
const (
	Requests Direction = iota // from who dialled the proxy
	Answers                   // from the target
)

type link struct{ near, far net.Conn }

func (l *link) close() {
	_ = l.near.Close()
	_ = l.far.Close()
}

// NewProxy listens on a loopback port for connections to target until Close.
func NewProxy(target string) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, links: make(map[*link]struct{})}
	p.changed.L = &p.mu
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts everything and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.changed.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
}

// Cut closes every connection and refuses new ones until Restore. What was held is
// lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for l := range p.links {
		l.close()
	}
}

// Hold keeps back what this side says, on connections that stay open, until Restore.
func (p *Proxy) Hold(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[d] = true
}

// Restore makes the link work again; what was held goes out.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	p.held = [2]bool{}
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		dialer := net.Dialer{Timeout: time.Second}
		far, err := dialer.DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.join(&link{near, far})
	}
}

func (p *Proxy) join(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing || p.closed {
		l.close()
		return
	}
	p.links[l] = struct{}{}
	var halves sync.WaitGroup
	halves.Add(2)
	p.running.Go(func() { defer halves.Done(); p.pump(l, l.far, l.near, Requests) })
	p.running.Go(func() { defer halves.Done(); p.pump(l, l.near, l.far, Answers) })
	p.running.Go(func() {
		halves.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// pump copies one direction until either side ends.
func (p *Proxy) pump(l *link, to, from net.Conn, d Direction) {
	defer l.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !p.pass(d) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass waits while the direction is held.
func (p *Proxy) pass(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held[d] && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}
