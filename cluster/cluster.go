// Package cluster keeps the nodes of one relay in step: which nodes are alive
// (leases), which rooms, credentials or tenants changed (announcements that every
// live node acknowledges), and who is connected where (presence). It runs on NATS
// and also serves a single node with the embedded broker.
package cluster

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Change is something every node must know before the API answers
// (DESIGN section 6, "Freshness").
type Change struct {
	Tenant      uuid.UUID   `json:"tenant"`
	Room        uuid.UUID   `json:"room,omitzero"`         // zero: the whole tenant
	Version     int64       `json:"version,omitempty"`     // the room's new version
	Removed     []uuid.UUID `json:"removed,omitempty"`     // participants that are gone: close 4403
	Credentials []uuid.UUID `json:"credentials,omitempty"` // credentials that are gone: close 4403
	Frozen      bool        `json:"frozen,omitempty"`      // the tenant's network is frozen: close 1012
	Thawed      bool        `json:"thawed,omitempty"`
}

// Applier is told of changes. Apply returns when the change is in force on this
// node: caches dropped, sockets closing, and nothing in flight that was admitted
// before it. It must be idempotent, since a change is repeated until it is
// acknowledged.
type Applier interface {
	Apply(ctx context.Context, c Change) error
	// Resync says changes may have been missed: everything cached must be looked up
	// again, and every connection's credential checked.
	Resync()
	// LeaseLost says that this node may neither accept nor deliver any more until
	// LeaseHeld; its connections must close so that clients resume elsewhere.
	LeaseLost()
}

// Presence of one participant on one node.
type Presence struct {
	Participant uuid.UUID
	Node        string
	Since       time.Time
	RTT         time.Duration
}
