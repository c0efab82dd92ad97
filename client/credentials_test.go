package client_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// One credential serves every request in a room, however many ask at once, until an hour
// before its end.
func TestACredentialIsMintedOnceForARoom(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	clock := clockwork.NewFakeClockAt(time.Now())
	d := m.device(t, client.KindAgent, clock)
	m.add(t, d, client.RoleAgent)
	minted := func() int { return m.count(http.MethodPost, m.id+"/credentials") }
	ask := func() { gather(t, d.History(t.Context(), m.id, client.OldestFirst)) }

	var group sync.WaitGroup
	for range 8 {
		group.Go(ask)
	}
	group.Wait()
	require.Equal(t, 1, minted())
	clock.Advance(23*time.Hour - time.Second)
	ask()
	require.Equal(t, 1, minted())
	clock.Advance(time.Second)
	ask()
	require.Equal(t, 2, minted())
}

// A credential that was revoked is replaced, once: who is refused again has to know.
func TestARefusedCredentialIsReplacedOnce(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	minted := func() int { return m.count(http.MethodPost, m.id+"/credentials") }
	gather(t, m.agent.History(t.Context(), m.id, client.OldestFirst))
	m.RevokeParticipant(t, testkit.Participant{ID: m.agentID})
	gather(t, m.agent.History(t.Context(), m.id, client.OldestFirst))
	require.Equal(t, 2, minted())

	m.set(func(m *meddler) {
		m.refuse = func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/history") {
				return http.StatusUnauthorized
			}
			return 0
		}
	})
	asked := m.count(http.MethodGet, "/history")
	require.ErrorIs(t, failure(t, m.agent.History(t.Context(), m.id, client.OldestFirst)), &wire.Error{Code: wire.Unauthorized})
	require.Equal(t, 3, minted())
	require.Equal(t, asked+2, m.count(http.MethodGet, "/history"))
	m.behave()

	// Who comes back is another participant, with another credential.
	require.NoError(t, m.agent.LeaveRoom(t.Context(), m.id))
	require.ErrorIs(t, failure(t, m.agent.History(t.Context(), m.id, client.OldestFirst)), &wire.Error{Code: wire.NotFound})
	m.add(t, m.agent, client.RoleAgent)
	gather(t, m.agent.History(t.Context(), m.id, client.OldestFirst))
}

func TestACredentialOfAnotherRoomIsNotUsed(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	for name, value := range map[string]any{"room_id": uuid.NewString(), "participant_id": "me", "credential": "short"} {
		m.set(func(m *meddler) {
			m.answer = func(r *http.Request, body map[string]any) {
				if strings.HasSuffix(r.URL.Path, "/credentials") {
					body[name] = value
				}
			}
		})
		require.ErrorIs(t, failure(t, m.agent.History(t.Context(), m.id, client.OldestFirst)), client.ErrAnswer, name)
	}
	require.Zero(t, m.count(http.MethodGet, "/history"))
}

func TestCredentialsAreBounded(t *testing.T) {
	t.Parallel()
	d := newScripted(t).device(filepath.Join(t.TempDir(), "device"))
	rooms := make([]string, client.MaxCredentials+10)
	for i := range rooms {
		rooms[i] = uuid.NewString()
	}
	require.Equal(t, client.MaxCredentials, d.KeptCredentials(rooms...))
}

// Whoever waits for another one's credential may give up.
func TestWaitingForACredentialEnds(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	hold, held := make(chan struct{}), make(chan struct{})
	m.set(func(m *meddler) {
		m.lose = func(r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/credentials") {
				close(held)
				<-hold
			}
			return false
		}
	})
	first := make(chan error, 1)
	go func() {
		_, err := m.agent.Presence(context.WithoutCancel(t.Context()), m.id)
		first <- err
	}()
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := m.agent.Presence(ctx, m.id)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(hold)
	require.NoError(t, <-first)
}
