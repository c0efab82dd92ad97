package api

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// FAULTS B06: a budget forgives by time, and refused attempts use none of it.
func TestBudget(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	b := newBudgets[string](10, 3, 100, func() time.Time { return now })
	for range 3 {
		require.Zero(t, b.take("a"))
	}
	require.Equal(t, 100*time.Millisecond, b.wait("a").Round(time.Millisecond))
	for range 50 {
		require.Equal(t, 100*time.Millisecond, b.take("a").Round(time.Millisecond))
	}
	require.Zero(t, b.take("b"), "each has its own")
	require.Zero(t, b.wait("c"), "nobody knows it yet")
	now = now.Add(100 * time.Millisecond)
	require.Zero(t, b.take("a"))
	require.NotZero(t, b.take("a"))
	now = now.Add(time.Hour)
	for range 3 {
		require.Zero(t, b.take("a"))
	}
	require.NotZero(t, b.take("a"), "time does not pile up beyond the burst")
}

func TestBudgetsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBudgets[int](1, 1, 8, time.Now)
	for i := range 1000 {
		b.take(i)
	}
	require.Equal(t, 8, b.held.Len())
	require.True(t, b.knows(999))
	require.False(t, b.knows(0))
	none := newBudgets[int](-1, -1, 8, time.Now)
	for range 1000 {
		require.Zero(t, none.take(1))
	}
}

func TestRemoteAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.7:1":              "192.0.2.7",
		"[::ffff:192.0.2.7]:1":     "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::]:1":  "2001:db8:1:2::",
		"[fe80::1:2:3:4%eth0]:1":   "fe80::",
	} {
		r := &http.Request{RemoteAddr: text, Header: http.Header{"X-Forwarded-For": {"203.0.113.1"}}}
		require.Equal(t, netip.MustParseAddr(want), remoteAddress(r), text)
	}
	require.Equal(t, netip.Addr{}, remoteAddress(&http.Request{RemoteAddr: "@"}))
}

func TestRetryAfterIsWholeSecondsAndAtLeastOne(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{
		0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		require.Equal(t, want, retryAfter(&laterError{errForbidden, wait}), wait)
	}
	require.Equal(t, 1, retryAfter(errForbidden))
}

// One participant, who may send bodies and read answers slowly, cannot have everything.
func TestShares(t *testing.T) {
	t.Parallel()
	refused := make(map[string]int)
	limits := newLimiter(Limits{RequestsOfOne: 2}.withDefaults(), time.Now, func(limit string) { refused[limit]++ })
	to := &route{access: forSession}
	one, other := uuid.New(), uuid.New()
	enter := func(participant uuid.UUID) (*visit, error) {
		v := &visit{limits: limits}
		require.NoError(t, v.enter(to))
		return v, v.by(participant)
	}
	first, err := enter(one)
	require.NoError(t, err)
	second, err := enter(one)
	require.NoError(t, err)
	third, err := enter(one)
	require.ErrorContains(t, err, string(wire.RateLimited))
	third.leave()
	for range 5 {
		_, err := enter(uuid.Nil)
		require.NoError(t, err, "the operator has no share")
	}
	stranger, err := enter(other)
	require.NoError(t, err)

	require.NoError(t, first.holds(smallAnswer), "is not counted")
	require.NoError(t, first.holds(maxAnswersOfOne))
	require.ErrorContains(t, second.holds(smallAnswer+1), string(wire.RateLimited))
	require.NoError(t, stranger.holds(maxAnswersOfOne))
	require.ErrorContains(t, stranger.holds(maxAnswers), string(wire.Unavailable))
	require.NoError(t, (&visit{limits: limits}).holds(maxAnswers), "one copy, for everybody")
	first.leave()
	require.NoError(t, second.holds(maxAnswersOfOne))
	again, err := enter(one)
	require.NoError(t, err)
	for _, v := range []*visit{second, again, stranger} {
		v.leave()
	}
	require.Empty(t, limits.shares.of)
	require.Zero(t, limits.shares.answers)
	require.Len(t, limits.requests, 5)
	require.Equal(t, map[string]int{limitShare: 1, limitAnswers: 2}, refused)
}
