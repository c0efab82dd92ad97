package front

import (
	"net/netip"
	"sync"
)

// admission counts upgraded connections: all of them, and per address those that
// have not authenticated.
type admission struct {
	maxConns, maxPreAuth int

	mu      sync.Mutex
	conns   int
	preAuth map[netip.Addr]int // no zero entries
	pre     int                // sum of preAuth
}

type refusal string

// Why an upgrade was refused: the label values of the refused_total metric.
const (
	refusedMethod   refusal = "method"
	refusedRequest  refusal = "bad_request"
	refusedVersion  refusal = "version"
	refusedOrigin   refusal = "origin"
	refusedAddress  refusal = "pre_auth_limit"
	refusedNode     refusal = "node_limit"
	refusedShutdown refusal = "shutting_down"
	refusedHijack   refusal = "upgrade_failed"
)

var refusals = [...]refusal{
	refusedMethod, refusedRequest, refusedVersion, refusedOrigin,
	refusedAddress, refusedNode, refusedShutdown, refusedHijack,
}

// admit counts a new connection of addr, or returns why it may not be.
func (a *admission) admit(addr netip.Addr) refusal {
	key := CountedAddr(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.conns >= a.maxConns:
		return refusedNode
	case a.preAuth[key] >= a.maxPreAuth:
		return refusedAddress
	}
	a.conns++
	a.pre++
	a.preAuth[key]++
	return ""
}

func (a *admission) authenticated(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leavePreAuth(addr)
}

func (a *admission) release(addr netip.Addr, authenticated bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns--
	if !authenticated {
		a.leavePreAuth(addr)
	}
}

func (a *admission) leavePreAuth(addr netip.Addr) {
	key := CountedAddr(addr)
	a.pre--
	if a.preAuth[key]--; a.preAuth[key] <= 0 {
		delete(a.preAuth, key)
	}
}

// Connections reports how many upgraded connections there are.
func (f *Front) Connections() int {
	preAuth, authenticated := f.admission.counts()
	return preAuth + authenticated
}

// counts reports the connections before and after authentication.
func (a *admission) counts() (preAuth, authenticated int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pre, a.conns - a.pre
}

// CountedAddr is what one client can hardly have many of: an IPv4 address, or an
// IPv6 /64 network.
func CountedAddr(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}
