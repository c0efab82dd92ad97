// Package cluster keeps the nodes of one relay in step: which nodes are alive
// (leases), which rooms, credentials or tenants changed (announcements that every
// live node acknowledges), and who is connected where (presence). It runs on NATS
// and also serves a single node with the embedded broker.
//
// How an announcement reaches everybody, or outlives whom it does not reach
// (DESIGN section 6, "Freshness"):
//
//	announcing node            bucket "nodes" (leader)        every other node
//	  change is committed
//	  Applier.Apply here
//	  write "barrier"     ->   sequence s
//	  list the leases     ->   state that includes s
//	  publish control.<room>  ------------------------->      Applier.Apply there
//	                      <-------------------------------    ack {node, lease}
//	  ... again every 200 ms, until each lease of the list acknowledged, or ended:
//	  read the lease      ->   gone: ended
//	  unchanged for its TTL -> deleted at that revision: ended, and never renewed
//
// A node holds its lease until the moment it sent its last successful renewal plus
// the TTL, by its own monotonic clock, so nobody's wall clock matters. Whoever gets
// a lease later reads what was committed before.
package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Change is something every node must know before the API answers
// (DESIGN section 6, "Freshness").
type Change struct {
	Tenant      uuid.UUID   `json:"tenant"`
	Room        uuid.UUID   `json:"room,omitzero"`         // zero: the whole tenant
	Version     int64       `json:"version,omitzero"`      // the room's new version
	Removed     []uuid.UUID `json:"removed,omitempty"`     // participants that are gone: close 4403
	Credentials []uuid.UUID `json:"credentials,omitempty"` // credentials that are gone: close 4403
	Devices     []uuid.UUID `json:"devices,omitempty"`     // devices that are suspended or revoked: close 4403
	Frozen      bool        `json:"frozen,omitzero"`       // the tenant's network is frozen: close 1012
	Thawed      bool        `json:"thawed,omitzero"`
}

// Applier is told of changes. Its methods may be called from several goroutines at
// once, Apply only once at a time for the same room (or the same whole tenant).
type Applier interface {
	// Apply returns when the change is in force on this node: caches dropped, sockets
	// closing, and nothing in flight that was admitted before it. It must be idempotent,
	// since a change is repeated until it is acknowledged. After an error the change is
	// not acknowledged and comes again.
	Apply(ctx context.Context, c Change) error
	// Resync says changes may have been missed: everything cached must be looked up
	// again, and every connection's credential checked. It returns when nothing that
	// was cached before will be used any more; it does not wait for the look-ups.
	Resync()
	// LeaseLost says that this node may neither accept nor deliver any more until
	// Held is true again; its connections must close so that clients resume elsewhere.
	// Once for each loss, after which comes Resync.
	LeaseLost()
	// PeerLost says that another process stopped without closing, some time ago: what it
	// stored last it may not have announced. It may come when nothing was lost.
	PeerLost()
}

// Presence of one participant on one node.
type Presence struct {
	Participant uuid.UUID
	Node        string
	Since       time.Time     // to the millisecond
	RTT         time.Duration // to the millisecond
	Seen        time.Time     // when the entry was last written, by NATS' clock; only Lookup knows it
}

var (
	// ErrClosed: the node is closed or closing.
	ErrClosed = errors.New("cluster node is closed")
	// ErrNotHeld: this node has no valid lease; it may neither accept nor deliver.
	ErrNotHeld = errors.New("cluster lease is not held")
	// ErrTooLarge: an announcement would not fit one message.
	ErrTooLarge = errors.New("change is too large")
)
