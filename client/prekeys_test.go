package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// line is the network between a device and its relay: it counts uploads of prekeys, and loses
// answers.
type line struct {
	*httptest.Server

	mu     sync.Mutex // guards the following fields
	bodies [][]byte   // of uploads
	cut    bool       // the answers to uploads are lost
	slow   time.Duration
}

func newLine(t *testing.T, s *testkit.Relay) *line {
	t.Helper()
	relay, err := url.Parse(s.URL())
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(relay)
	l := &line{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.URL.Path != "/v1/devices/me/prekeys" {
			proxy.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		l.mu.Lock()
		l.bodies = append(l.bodies, body)
		cut, slow := l.cut, l.slow
		l.mu.Unlock()
		time.Sleep(slow) //nolint:forbidigo // a slow network
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if cut {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *line) set(cut bool, slow time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.slow = cut, slow
}

// uploads takes the bodies so far.
func (l *line) uploads() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	bodies := l.bodies
	l.bodies = nil
	return bodies
}

// two are a human and an agent at a relay, both ACTIVE and in a direct room. The agent is
// behind a line, with a clock of its own.
type two struct {
	owner, agent *client.Device
	dir          string // the agent's
	room         string
	line         *line
	clock        *clockwork.FakeClock
}

func newTwo(t *testing.T) *two {
	t.Helper()
	s, ctx := testkit.Shared(t), t.Context()
	w := &two{line: newLine(t, s), dir: filepath.Join(t.TempDir(), "agent"), clock: clockwork.NewFakeClockAt(time.Now())}
	w.owner = enroll(t, s, client.KindHuman, s.Invite(t, "human", true).Token)
	_, err := w.owner.PublishKeys(ctx)
	require.NoError(t, err)
	w.agent, err = client.EnrollDevice(ctx, w.dir,
		client.Enrollment{RelayURL: w.line.URL, Invite: s.Invite(t, "agent", false).Token, Kind: client.KindAgent, Label: "an agent"}, client.DeviceOptions{Clock: w.clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.agent.Close()) })
	require.ErrorIs(t, w.agent.RefillPrekeys(ctx), client.ErrNotAdmitted)
	_, err = w.owner.ApproveDevice(ctx, w.agent.ID(), w.agent.Fingerprint())
	require.NoError(t, err)
	require.NoError(t, w.agent.AwaitApproval(ctx))
	require.NoError(t, w.agent.RefillPrekeys(ctx), "APPROVED is enough")
	_, err = w.agent.PublishKeys(ctx)
	require.NoError(t, err)
	room, err := w.owner.CreateRoom(ctx, client.NewRoom{Kind: "direct"})
	require.NoError(t, err)
	w.room = room.RoomID
	_, err = w.owner.AddMember(ctx, w.room, w.agent.ID(), client.RoleAgent)
	require.NoError(t, err)
	return w
}

// reopen opens the agent again, after its folder was changed.
func (w *two) reopen(t *testing.T, change func()) {
	t.Helper()
	require.NoError(t, w.agent.Close())
	change()
	var err error
	w.agent, err = client.OpenDevice(w.dir, client.DeviceOptions{Clock: w.clock})
	require.NoError(t, err)
}

func (w *two) stock(t *testing.T) encryption.PrekeyStock {
	t.Helper()
	stock, err := w.agent.PrekeyStock(t.Context())
	require.NoError(t, err)
	return stock
}

// private reports whether the agent has the private keys of a bundle.
func (w *two) private(t *testing.T, b *ratchet.Bundle) (signed, oneTime bool) {
	t.Helper()
	require.NoError(t, w.agent.Store().View(func(tx *keystore.Tx) error {
		signed = tx.Get(keystore.Prekeys, fmt.Sprintf("signed/%010d", b.Signed.ID)) != nil
		oneTime = b.OneTime != nil && tx.Get(keystore.Prekeys, fmt.Sprintf("one-time/%010d", b.OneTime.ID)) != nil
		return nil
	}))
	return signed, oneTime
}

func TestPrekeysAtARealRelay(t *testing.T) {
	w, ctx := newTwo(t), t.Context()
	require.Equal(t, encryption.PrekeyStock{SignedID: 1, LastID: 100, OneTime: 100}, w.stock(t))
	require.Len(t, w.line.uploads(), 1)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.Empty(t, w.line.uploads(), "nothing is missing")

	var last ratchet.Bundle
	for i := range 51 {
		b, err := w.owner.TakeBundle(ctx, w.agent.ID())
		require.NoError(t, err)
		require.NoError(t, b.Check())
		require.Equal(t, w.agent.Keys(), b.Keys)
		require.EqualValues(t, 1, b.Signed.ID)
		require.EqualValues(t, i+1, b.OneTime.ID)
		signed, oneTime := w.private(t, &b)
		require.True(t, signed && oneTime)
		last = b
		if i == 49 {
			require.NoError(t, w.agent.RefillPrekeys(ctx))
			require.Empty(t, w.line.uploads(), "half of them are left")
		}
	}
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.Equal(t, encryption.PrekeyStock{SignedID: 1, LastID: 151, OneTime: 100}, w.stock(t))
	signed, oneTime := w.private(t, &last)
	require.True(t, signed && oneTime, "what was handed out is kept until it is used")

	_, err := w.owner.TakeBundle(ctx, "no id")
	require.ErrorIs(t, err, client.ErrID)
	_, err = w.agent.TakeBundle(ctx, w.owner.ID())
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound}, "the owner has published none")
}

// FAULTS J10: many triggers are one rotation, and former keys stay for a while.
func TestTenTriggersAreOneRotation(t *testing.T) {
	w, ctx := newTwo(t), t.Context()
	first, err := w.owner.TakeBundle(ctx, w.agent.ID())
	require.NoError(t, err)
	w.line.uploads()
	w.clock.Advance(7*24*time.Hour + time.Second)
	w.line.set(false, 50*time.Millisecond)
	refillTenTimes(t, w)
	require.Len(t, w.line.uploads(), 1)
	require.EqualValues(t, 2, w.stock(t).SignedID)
	refillTenTimes(t, w)
	require.Empty(t, w.line.uploads())
	signed, oneTime := w.private(t, &first)
	require.True(t, signed && oneTime, "messages made with the former keys may be under way")

	second, err := w.owner.TakeBundle(ctx, w.agent.ID())
	require.NoError(t, err)
	require.NoError(t, second.Check())
	require.EqualValues(t, 2, second.Signed.ID)
	w.clock.Advance(47 * time.Hour)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	signed, _ = w.private(t, &first)
	require.True(t, signed)
	w.clock.Advance(2 * time.Hour)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	signed, _ = w.private(t, &first)
	require.False(t, signed, "the grace time is over")
	signed, _ = w.private(t, &second)
	require.True(t, signed)
	require.Empty(t, w.line.uploads())
}

func refillTenTimes(t *testing.T, w *two) {
	t.Helper()
	var all errgroup.Group
	for range 10 {
		all.Go(func() error { return w.agent.RefillPrekeys(t.Context()) })
	}
	require.NoError(t, all.Wait())
}

// FAULTS J10: where the answer is lost, both sides agree at the next attempt.
func TestLostAnswerToPrekeys(t *testing.T) {
	w, ctx := newTwo(t), t.Context()
	w.line.uploads()
	w.clock.Advance(8 * 24 * time.Hour)
	w.line.set(true, 0)
	require.Error(t, w.agent.RefillPrekeys(ctx))
	require.EqualValues(t, 2, w.stock(t).SignedID, "the relay has it")
	b, err := w.owner.TakeBundle(ctx, w.agent.ID())
	require.NoError(t, err)
	signed, _ := w.private(t, &b)
	require.True(t, signed, "it was saved before")
	w.reopen(t, func() {})
	require.Error(t, w.agent.RefillPrekeys(ctx))
	w.line.set(false, 0)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	bodies := w.line.uploads()
	require.Len(t, bodies, 3)
	require.Equal(t, string(bodies[0]), string(bodies[1]))
	require.Equal(t, string(bodies[0]), string(bodies[2]))
	require.EqualValues(t, 2, w.stock(t).SignedID)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.Empty(t, w.line.uploads())
}

// A caller that gives up does not take the others with it.
func TestRefillGoesOnWhereItsCallerGaveUp(t *testing.T) {
	w := newTwo(t)
	w.line.uploads()
	w.clock.Advance(8 * 24 * time.Hour)
	w.line.set(false, 100*time.Millisecond)
	short, cancel := context.WithCancel(t.Context())
	var all errgroup.Group
	all.Go(func() error {
		if err := w.agent.RefillPrekeys(short); err == nil {
			return fmt.Errorf("it gave up, and says %w", err)
		}
		return nil
	})
	require.Eventually(t, func() bool { w.line.mu.Lock(); defer w.line.mu.Unlock(); return len(w.line.bodies) > 0 }, sessionPatience, time.Millisecond)
	all.Go(func() error { return w.agent.RefillPrekeys(t.Context()) })
	cancel()
	require.NoError(t, all.Wait())
	require.EqualValues(t, 2, w.stock(t).SignedID)
}

// An old copy of the key store publishes keys under ids that were never used.
func TestPrekeysOfARestoredKeyStore(t *testing.T) {
	w, ctx := newTwo(t), t.Context()
	w.clock.Advance(8 * 24 * time.Hour)
	w.line.set(true, 0)
	require.Error(t, w.agent.RefillPrekeys(ctx))
	path := filepath.Join(w.dir, "keys")
	var old []byte
	w.reopen(t, func() {
		var err error
		old, err = os.ReadFile(path)
		require.NoError(t, err)
	})
	w.line.set(false, 0)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	w.clock.Advance(8 * 24 * time.Hour)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.EqualValues(t, 3, w.stock(t).SignedID)

	w.reopen(t, func() { require.NoError(t, os.WriteFile(path, old, 0o600)) })
	w.line.uploads()
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.Len(t, w.line.uploads(), 2, "what was under way conflicts, then another one")
	require.EqualValues(t, 4, w.stock(t).SignedID)
	b, err := w.owner.TakeBundle(ctx, w.agent.ID())
	require.NoError(t, err)
	signed, _ := w.private(t, &b)
	require.True(t, signed)
	require.NoError(t, w.agent.RefillPrekeys(ctx))
	require.Empty(t, w.line.uploads())
}
