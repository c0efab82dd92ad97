package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/relay"
)

// lateCore hands the live feed and the cluster's changes to the core, which is made
// after them. Before that there are no connections, so there is nothing to tell.
type lateCore struct{ core atomic.Pointer[relay.Relay] }

func (l *lateCore) Deliver(live *inbox.Live) {
	if core := l.core.Load(); core != nil {
		core.Deliver(live)
	}
}

func (l *lateCore) Missed(room uuid.UUID) {
	if core := l.core.Load(); core != nil {
		core.Missed(room)
	}
}

func (l *lateCore) Apply(ctx context.Context, c cluster.Change) error {
	if core := l.core.Load(); core != nil {
		return core.Apply(ctx, c)
	}
	return nil
}

func (l *lateCore) Resync() {
	if core := l.core.Load(); core != nil {
		core.Resync()
	}
}

func (l *lateCore) LeaseLost() {
	if core := l.core.Load(); core != nil {
		core.LeaseLost()
	}
}

func (l *lateCore) PeerLost() {
	if core := l.core.Load(); core != nil {
		core.PeerLost()
	}
}

var (
	_ inbox.Sink      = (*lateCore)(nil)
	_ cluster.Applier = (*lateCore)(nil)
)

// presence tells the cluster who is connected here. Losing one entry is no harm:
// entries expire and come again with the next pong.
type presence struct {
	node *cluster.Node
	log  *slog.Logger
}

func (p presence) Seen(participant uuid.UUID, since time.Time, rtt time.Duration) {
	err := p.node.PutPresence(cluster.Presence{Participant: participant, Node: p.node.ID(), Since: since, RTT: rtt})
	if err != nil {
		p.log.Debug("presence not written", "error", err)
	}
}

func (p presence) Gone(participant uuid.UUID) {
	if err := p.node.DeletePresence(participant); err != nil {
		p.log.Debug("presence not deleted", "error", err)
	}
}
