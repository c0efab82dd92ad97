package api

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
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
	EnrollPerSecond   int // enrollments, good or not, of one address; default 5
	EnrollBurst       int // default ten times as many
	Requests          int // being answered at once; default 512
	RequestsOfOne     int // of one participant at once; default 32
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
	set(&l.EnrollPerSecond, 5)
	set(&l.EnrollBurst, 10*l.EnrollPerSecond)
	set(&l.Requests, 512)
	set(&l.RequestsOfOne, 32)
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
	limitEnroll   = "enroll"
	limitRequests = "requests"
	limitShare    = "participant"
	limitAnswers  = "answers"
	limitBundles  = "prekey_bundles"
	limitChanges  = "room_changes"
)

// Answers that wait for callers to read them. A caller may take as long as the server's
// WriteTimeout, and an answer of many rows is held for that time.
const (
	smallAnswer     = 64 << 10 // up to this an answer is not counted
	maxAnswers      = 256 << 20
	maxAnswersOfOne = 32 << 20 // of one participant
)

// Prekey bundles that one device may take: it has no use for many, and each that it takes
// of a device is gone for all others.
const (
	bundlesPerSecond = 1
	bundlesBurst     = 60
	trackedTakers    = 1 << 14 // devices that are remembered
)

// Changes that everybody in a room is told of, by one device: each takes a place or two in
// every inbox, of which there are 500, as envelopes do, which are 20 in a second.
const (
	changesPerSecond = 10
	changesBurst     = 100
)

// limiter holds the budgets in force.
type limiter struct {
	tokens    *budgets[store.TokenHash] // of credentials that have authenticated
	addresses *budgets[netip.Addr]
	failures  *budgets[netip.Addr]
	enroll    *budgets[netip.Addr]
	bundles   *budgets[uuid.UUID] // of devices
	changes   *budgets[uuid.UUID] // of devices
	requests  chan struct{}       // one place for each request being answered; nil: no limit
	shares    shares
	refused   func(limit string) // counts
}

func newLimiter(l Limits, now func() time.Time, refused func(string)) *limiter {
	return &limiter{
		tokens:    newBudgets[store.TokenHash](l.TokenPerSecond, l.TokenBurst, l.Tracked, now),
		addresses: newBudgets[netip.Addr](l.AddressPerSecond, l.AddressBurst, l.Tracked, now),
		failures:  newBudgets[netip.Addr](l.FailuresPerSecond, l.FailuresBurst, l.Tracked, now),
		enroll:    newBudgets[netip.Addr](l.EnrollPerSecond, l.EnrollBurst, l.Tracked, now),
		bundles:   newBudgets[uuid.UUID](bundlesPerSecond, bundlesBurst, trackedTakers, now),
		changes:   newBudgets[uuid.UUID](changesPerSecond, changesBurst, trackedTakers, now),
		requests:  places(l.Requests),
		shares:    shares{requests: l.RequestsOfOne, of: make(map[uuid.UUID]share)},
		refused:   refused,
	}
}

func places(n int) chan struct{} {
	if n < 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// visit is what one request holds of the limits, until its answer was written.
type visit struct {
	limits      *limiter // nil: there are none
	place       bool     // among the requests being answered
	participant uuid.UUID
	counted     bool  // among the participant's
	answer      int64 // counted bytes of the answer
}

// enter takes a place among the requests being answered. What is for everybody waits for
// nothing, and edge nodes have a bound of their own.
func (v *visit) enter(to *route) error {
	if v.limits == nil || v.limits.requests == nil || to.fixed() || to.access == forService {
		return nil
	}
	select {
	case v.limits.requests <- struct{}{}:
		v.place = true
		return nil
	default:
		return v.limits.busy(limitRequests, wire.Unavailable, "too many requests are being answered")
	}
}

// by counts the request among those of its participant, so that one, who may send bodies
// and read answers slowly, cannot take every place. The operator is none.
func (v *visit) by(participant uuid.UUID) error {
	if v.limits == nil || participant == uuid.Nil {
		return nil
	}
	v.participant = participant
	if v.counted = v.limits.shares.enter(participant); !v.counted {
		return v.limits.busy(limitShare, wire.RateLimited, "too many requests of this participant are being answered")
	}
	return nil
}

// holds counts an answer that is about to be written. What is for everybody is one copy.
func (v *visit) holds(size int) error {
	if !v.place || size <= smallAnswer {
		return nil
	}
	switch ofAll, ofOne := v.limits.shares.hold(v.participant, int64(size)); {
	case !ofAll:
		return v.limits.busy(limitAnswers, wire.Unavailable, "too many answers wait to be read")
	case !ofOne:
		return v.limits.busy(limitAnswers, wire.RateLimited, "too many answers to this participant wait to be read")
	}
	v.answer = int64(size)
	return nil
}

// leave gives back everything.
func (v *visit) leave() {
	if v.place {
		<-v.limits.requests
	}
	if v.counted || v.answer > 0 {
		v.limits.shares.leave(v.participant, v.counted, v.answer)
	}
}

func (l *limiter) busy(limit string, code wire.Code, detail string) error {
	l.refused(limit)
	return &laterError{&wire.Error{Code: code, Detail: detail}, time.Second}
}

// shares are what participants have under way.
type shares struct {
	requests int // of one participant at once; negative: no limit

	mu      sync.Mutex
	of      map[uuid.UUID]share // no empty ones; uuid.Nil is the operator
	answers int64               // of all
}

type share struct {
	requests int
	answers  int64
}

func (s *shares) enter(participant uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[participant]
	if s.requests >= 0 && mine.requests >= s.requests {
		return false
	}
	mine.requests++
	s.of[participant] = mine
	return true
}

// hold counts the bytes unless they are too many of all, or of one.
func (s *shares) hold(participant uuid.UUID, size int64) (ofAll, ofOne bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[participant]
	ofAll = s.answers+size <= maxAnswers
	ofOne = participant == uuid.Nil || mine.answers+size <= maxAnswersOfOne
	if ofAll && ofOne {
		mine.answers += size
		s.answers += size
		s.of[participant] = mine
	}
	return ofAll, ofOne
}

func (s *shares) leave(participant uuid.UUID, counted bool, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[participant]
	if counted {
		mine.requests--
	}
	mine.answers -= size
	s.answers -= size
	s.of[participant] = mine
	if mine == (share{}) {
		delete(s.of, participant)
	}
}

// address takes a request out of an address's budget.
func (l *limiter) address(from netip.Addr) error {
	return l.within(limitAddress, l.addresses.take(from))
}

// mayEnroll takes an enrollment out of an address's budget. It is the same whatever
// becomes of it.
func (l *limiter) mayEnroll(from netip.Addr) error {
	return l.within(limitEnroll, l.enroll.take(from))
}

// bundle takes a prekey bundle out of a device's budget, whatever becomes of it.
func (l *limiter) bundle(device uuid.UUID) error {
	return l.within(limitBundles, l.bundles.take(device))
}

// change takes a change of a room out of a device's budget, whatever becomes of it.
func (l *limiter) change(device uuid.UUID) error {
	return l.within(limitChanges, l.changes.take(device))
}

// token takes a request out of a credential's budget.
func (l *limiter) token(token store.TokenHash) error {
	return l.within(limitToken, l.tokens.take(token))
}

// mayTry refuses an address that has nothing left for a failure, so that guessing
// costs no look-up.
func (l *limiter) mayTry(from netip.Addr) error {
	return l.within(limitFailures, l.failures.wait(from))
}

// denied takes a failed authentication out of an address's budget. It returns the
// refusal: the one given, while there is a budget.
func (l *limiter) denied(from netip.Addr, refusal error) error {
	if err := l.within(limitFailures, l.failures.take(from)); err != nil {
		return err
	}
	return refusal
}

// within refuses, and counts, what has to wait for a budget.
func (l *limiter) within(limit string, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
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
