package relay

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// nothing is a store and inboxes that are never asked: these tests are about the core's
// own goroutines. Whole relays run in internal/e2e.
type nothing struct {
	Store
	Inboxes
}

func (nothing) Held() bool { return true }

func (nothing) ValidCredentials(context.Context, uuid.UUID, []uuid.UUID) ([]uuid.UUID, error) {
	return nil, nil
}

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
}

// The core ends all its goroutines, whatever waits (goleak in TestMain looks).
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	r, err := New(Config{Store: nothing{}, Inboxes: nothing{}, Lease: nothing{}, Presence: new(noPresence)})
	require.NoError(t, err)
	running := make(chan struct{})
	release := make(chan struct{})
	r.replays.run(func() { close(running); <-release })
	for range 100 {
		r.replays.run(func() {})
	}
	<-running
	closed := make(chan struct{})
	go func() {
		r.Close()
		close(closed)
	}()
	require.Eventually(t, func() bool { return r.ctx.Err() != nil }, 5*time.Second, time.Millisecond)
	close(release)
	<-closed
	r.Deliver(&inbox.Live{Room: uuid.New(), Copies: []inbox.Copy{{Participant: uuid.New(), ID: wire.StreamID{Sequence: 1}}}})
	r.Missed(uuid.Nil)
	r.LeaseLost()
}

var _ store.Credentials = nothing{}
