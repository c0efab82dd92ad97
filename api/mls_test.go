package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

// lostCommits is a store whose answers to commits may be lost.
type lostCommits struct {
	api.Store

	mu   sync.Mutex
	lose bool
}

func (l *lostCommits) AcceptCommit(ctx context.Context, c store.NewCommit) (uint64, error) {
	epoch, err := l.Store.AcceptCommit(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose && err == nil {
		return 0, errFault
	}
	return epoch, err
}

func (l *lostCommits) set(lose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = lose
}

// In an archived room nothing is stored any more, whatever the endpoint; members read on.
func TestArchivedMLSRoomsSaySo(t *testing.T) {
	t.Parallel()
	s := newStack(t, func(c *api.Config) { c.MLS = true })
	owner, agent := s.device(t, "human", false), s.device(t, "agent", false)
	path := "/v1/rooms/" + s.opened(t, owner, `{"scheme":"mls"}`).ID
	other := s.added(t, owner, strings.TrimPrefix(path, "/v1/rooms/"), agent, "agent")
	commit := func(epoch uint64) response {
		return s.by(t, owner, http.MethodPost, path+"/commits", testkit.EncodeJSON(t, testkit.NewMLSCommit("group", epoch, 0, "x")))
	}
	require.Equal(t, http.StatusCreated, commit(0).status)
	require.Equal(t, http.StatusOK, s.by(t, owner, http.MethodPost, path+"/archive", "").status)
	s.there.take()
	commit(1).refused(t, 409, "room_archived")
	s.by(t, owner, http.MethodPost, path+"/key-packages/claim", `{"participant_ids":["`+other.ParticipantID+`"]}`).refused(t, 409, "room_archived")
	s.by(t, owner, http.MethodPost, path+"/commits/1/report", "").refused(t, 409, "room_archived")
	require.Empty(t, s.there.take(), "a refusal is known to have changed nothing")
	require.Equal(t, http.StatusCreated, commit(0).status, "what was accepted was")
	require.Equal(t, http.StatusOK, s.by(t, agent, http.MethodGet, path+"/commits", "").status)
	require.Equal(t, http.StatusOK, s.by(t, agent, http.MethodGet, path+"/group-info", "").status)
}

// A commit is in force on every node before it is answered, and inboxes are told then. Where
// it is not known whether it was stored, or every node knows, the same request again finds out.
func TestCommitIsInForceBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	var woken atomic.Int32
	var s *stack
	lost := &lostCommits{}
	s = newStack(t, func(c *api.Config) {
		lost.Store, c.Store, c.MLS = c.Store, lost, true
		c.OutboxWake = func() { woken.Add(int32(1 + len(s.here.changesNow()))) }
	})
	owner := s.device(t, "human", false)
	room := s.opened(t, owner, `{"scheme":"mls"}`)
	commit := func(epoch uint64) response {
		woken.Store(0)
		s.here.take()
		s.there.take()
		return s.by(t, owner, http.MethodPost, "/v1/rooms/"+room.ID+"/commits", testkit.EncodeJSON(t, testkit.NewMLSCommit("group", epoch, 0, "x")))
	}
	announced := func() {
		t.Helper()
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, cluster.Change{Tenant: changes[0].Tenant, Room: uuid.MustParse(room.ID)}, changes[0])
		require.EqualValues(t, 2, woken.Load(), "inboxes are told once, when this node had been")
	}
	made := func(answer response, epoch uint64) {
		t.Helper()
		require.Equal(t, http.StatusCreated, answer.status, answer.body)
		var accepted api.AcceptedCommit
		answer.decode(t, &accepted)
		require.Equal(t, epoch, accepted.Epoch)
		announced()
	}
	made(commit(0), 1)

	lost.set(true)
	commit(1).refused(t, 503, "unavailable")
	announced()
	lost.set(false)
	made(commit(1), 2)

	s.fault.set(func(f *faults) { f.announces = 1 })
	answer := commit(2)
	answer.refused(t, 503, "unavailable")
	require.Contains(t, answer.body, "committed")
	require.Empty(t, s.there.take())
	require.EqualValues(t, 1, woken.Load(), "it is committed, so it is told")
	made(commit(2), 3)

	require.Equal(t, http.StatusConflict, commit(7).status)
	require.Empty(t, s.there.take(), "nothing has changed")
	require.Zero(t, woken.Load())
}

// What has large bodies is limited for each device: 20 in a second, good or not.
func TestCommitsAndKeyPackagesAreLimited(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newStack(t, func(c *api.Config) {
		c.MLS, c.Now = true, func() time.Time { return now }
		c.Limits = api.Limits{TokenPerSecond: -1, AddressPerSecond: -1}
	})
	owner, other := s.device(t, "human", false), s.device(t, "human", false)
	room := s.opened(t, owner, `{"scheme":"mls"}`)
	paths := []string{"/v1/devices/me/key-packages", "/v1/rooms/" + room.ID + "/commits"}
	for n := range 20 {
		s.by(t, owner, http.MethodPost, paths[n%2], `{}`).refused(t, 400, "malformed_request")
	}
	for _, path := range paths {
		answer := s.by(t, owner, http.MethodPost, path, `{}`)
		answer.refused(t, 429, "rate_limited")
		require.Equal(t, "1", answer.header.Get("Retry-After"))
		s.by(t, other, http.MethodPost, path, `{}`).refused(t, 400, "malformed_request")
	}
	claim := "/v1/rooms/" + room.ID + "/key-packages/claim"
	for range 60 {
		s.by(t, owner, http.MethodPost, claim, `{"participant_ids":[]}`).refused(t, 400, "malformed_request")
	}
	s.by(t, owner, http.MethodPost, claim, `{"participant_ids":[]}`).refused(t, 429, "rate_limited")
}

// Commits, group infos, welcomes and key packages are in no answer that refuses, and in no log.
func TestMLSMessagesAreNotWritten(t *testing.T) {
	t.Parallel()
	lost := &lostCommits{}
	s := newStack(t, func(c *api.Config) { lost.Store, c.Store, c.MLS = c.Store, lost, true })
	owner := s.device(t, "human", false)
	room := s.opened(t, owner, `{"scheme":"mls"}`)
	const marked = "a marked secret that nobody reads"
	body := testkit.NewMLSCommit("group", 0, 0, marked)
	lost.set(true)
	var answers string
	for range 2 {
		answers += s.by(t, owner, http.MethodPost, "/v1/rooms/"+room.ID+"/commits", testkit.EncodeJSON(t, body)).body
		body = testkit.NewMLSCommit("group", 9, 0, marked)
	}
	broken := testkit.NewMLSKeyPackage(marked)
	broken.KeyPackage = "AAAA" + broken.KeyPackage
	answers += s.by(t, owner, http.MethodPost, "/v1/devices/me/key-packages", testkit.EncodeJSON(t, map[string]any{"key_packages": []any{broken}})).body
	for _, text := range []string{marked, body.Commit, body.GroupInfo, broken.KeyPackage} {
		require.NotContains(t, answers, text)
		require.NotContains(t, s.log.String(), text)
	}
	require.Contains(t, s.log.String(), "injected fault", "what went wrong is logged")
}
