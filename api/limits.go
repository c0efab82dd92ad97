package api

import (
	"net/http"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Limits bound what callers of the public listener may ask for. Zero means the default
// named here, a negative number no limit. The operator's token is bound by the number
// of requests at once alone, the operator's socket by nothing, and edge nodes by bounds of
// their own.
type Limits struct {
	TokenPerSecond    int // requests of one credential; default 50
	TokenBurst        int // of them at once; default twice as many
	AddressPerSecond  int // requests of one address (IPv6: of one /64); default 200
	AddressBurst      int // default twice as many
	FailuresPerSecond int // failed authentications of one address; default 10
	FailuresBurst     int // default five times as many
	Requests          int // being answered at once; default 512
	Tracked           int // tokens, and addresses, that are remembered; default 65,536
}

func (l Limits) withDefaults() Limits {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.TokenPerSecond, 50)
	set(&l.TokenBurst, 2*l.TokenPerSecond)
	set(&l.AddressPerSecond, 200)
	set(&l.AddressBurst, 2*l.AddressPerSecond)
	set(&l.FailuresPerSecond, 10)
	set(&l.FailuresBurst, 5*l.FailuresPerSecond)
	set(&l.Requests, 512)
	if l.Tracked <= 0 {
		l.Tracked = 1 << 16
	}
	return l
}

// Names of the limits, as the label of relay_http_limited_total.
const (
	limitToken    = "token"
	limitAddress  = "address"
	limitFailures = "failures"
	limitRequests = "requests"
)

// limiter holds the budgets in force.
type limiter struct {
	tokens    *budgets[store.TokenHash] // of credentials that have authenticated
	addresses *budgets[netip.Addr]
	failures  *budgets[netip.Addr]
	requests  chan struct{}      // one place for each request being answered; nil: no limit
	refused   func(limit string) // counts
}

func newLimiter(l Limits, now func() time.Time, refused func(string)) *limiter {
	return &limiter{
		tokens:    newBudgets[store.TokenHash](l.TokenPerSecond, l.TokenBurst, l.Tracked, now),
		addresses: newBudgets[netip.Addr](l.AddressPerSecond, l.AddressBurst, l.Tracked, now),
		failures:  newBudgets[netip.Addr](l.FailuresPerSecond, l.FailuresBurst, l.Tracked, now),
		requests:  places(l.Requests),
		refused:   refused,
	}
}

func places(n int) chan struct{} {
	if n < 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// enter takes a place among the requests being answered, until leave is called. What is
// for everybody waits for nothing, and edge nodes have a bound of their own.
func (l *limiter) enter(to *route) (leave func(), err error) {
	if l.requests == nil || to.access == forEverybody || to.access == forService {
		return func() {}, nil
	}
	select {
	case l.requests <- struct{}{}:
		return func() { <-l.requests }, nil
	default:
		l.refused(limitRequests)
		return nil, &laterError{&wire.Error{Code: wire.Unavailable, Detail: "too many requests are being answered"}, time.Second}
	}
}

// address takes a request out of an address's budget.
func (l *limiter) address(from netip.Addr) error {
	if wait := l.addresses.take(from); wait > 0 {
		return l.tooMany(limitAddress, wait)
	}
	return nil
}

// token takes a request out of a credential's budget.
func (l *limiter) token(token store.TokenHash) error {
	if wait := l.tokens.take(token); wait > 0 {
		return l.tooMany(limitToken, wait)
	}
	return nil
}

// mayTry refuses an address that has nothing left for a failure, so that guessing
// costs no look-up.
func (l *limiter) mayTry(from netip.Addr) error {
	if wait := l.failures.wait(from); wait > 0 {
		return l.tooMany(limitFailures, wait)
	}
	return nil
}

// denied takes a failed authentication out of an address's budget. It returns the
// refusal: the one given, while there is a budget.
func (l *limiter) denied(from netip.Addr, refusal error) error {
	if wait := l.failures.take(from); wait > 0 {
		return l.tooMany(limitFailures, wait)
	}
	return refusal
}

func (l *limiter) tooMany(limit string, wait time.Duration) error {
	l.refused(limit)
	return &laterError{&wire.Error{Code: wire.RateLimited, Detail: "too many requests; wait for the time in Retry-After"}, wait}
}

// budgets are the token buckets of keys, the most recently used ones. Whoever is
// forgotten begins with a full one.
type budgets[K comparable] struct {
	rate  rate.Limit
	burst int
	now   func() time.Time
	held  *lru.Cache[K, *rate.Limiter] // nil: no limit
}

func newBudgets[K comparable](perSecond, burst, tracked int, now func() time.Time) *budgets[K] {
	b := &budgets[K]{rate: rate.Limit(perSecond), burst: max(1, burst), now: now}
	if perSecond > 0 {
		b.held, _ = lru.New[K, *rate.Limiter](tracked) // fails for sizes below 1 only, which withDefaults has replaced
	}
	return b
}

// take uses one, or returns the time until there is one to use.
func (b *budgets[K]) take(key K) time.Duration {
	if b.held == nil {
		return 0
	}
	bucket, ok := b.held.Get(key)
	if !ok {
		bucket = rate.NewLimiter(b.rate, b.burst)
		if earlier, ok, _ := b.held.PeekOrAdd(key, bucket); ok {
			bucket = earlier
		}
	}
	now := b.now()
	reservation := bucket.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

// wait is the time until there is one to use.
func (b *budgets[K]) wait(key K) time.Duration {
	if b.held == nil {
		return 0
	}
	bucket, ok := b.held.Get(key)
	if !ok {
		return 0
	}
	missing := 1 - bucket.TokensAt(b.now())
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(b.rate) * float64(time.Second))
}

func (b *budgets[K]) knows(key K) bool { return b.held != nil && b.held.Contains(key) }

func (b *budgets[K]) forget(key K) {
	if b.held != nil {
		b.held.Remove(key)
	}
}

// remoteAddress is whom a request is counted for: the peer's address, of IPv6 its /64.
// What a header says of other addresses is anybody's word.
func remoteAddress(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}
