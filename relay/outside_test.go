package relay

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/cluster"
)

type lease bool

func (l *lease) Held() bool { return bool(*l) }

// DESIGN section 6, "Freshness": what came in over HTTP before a change is done before
// the change is acknowledged; without a lease nothing comes in.
func TestChangesWaitForWhatEntered(t *testing.T) {
	t.Parallel()
	held := lease(true)
	r, err := New(Config{Store: nothing{}, Inboxes: nothing{}, Lease: &held, Presence: new(noPresence)})
	require.NoError(t, err)
	defer r.Close()
	room, tenant := uuid.New(), uuid.New()
	for _, change := range []cluster.Change{{Tenant: tenant, Room: room}, {Tenant: tenant, Frozen: true}} {
		leave, err := r.Enter(room)
		require.NoError(t, err)
		applied := make(chan error, 1)
		go func() { applied <- r.Apply(context.WithoutCancel(t.Context()), change) }()
		select {
		case err := <-applied:
			require.Fail(t, "applied while work was under way", "error: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		leave()
		require.NoError(t, <-applied)
	}
	held = false
	_, err = r.Enter(room)
	require.ErrorIs(t, err, cluster.ErrNotHeld)
	require.NoError(t, r.Apply(t.Context(), cluster.Change{Tenant: tenant, Room: room}), "a refused one holds nothing")
}
