package relay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	recheckEvery = 30 * time.Second
	recheckBatch = 1000 // credentials asked for at once
)

// Apply puts a change in force on this node: it closes the connections that are no
// longer entitled, drops what was cached, and returns when nothing that was
// admitted before is in flight (DESIGN section 6, "Freshness"). It may be repeated.
func (r *Relay) Apply(_ context.Context, c cluster.Change) error {
	r.changes.Add(1)
	rooms := r.changedRooms(c)
	for _, rm := range rooms {
		rm.changed()
		r.closeSessions(rm.sessions(func(s *session) bool {
			return slices.Contains(c.Removed, s.identity.Participant) ||
				slices.Contains(c.Credentials, s.identity.Credential) ||
				slices.Contains(c.Devices, s.identity.Device)
		}), wire.CloseAuth, wire.ReasonAuth)
		if c.Frozen {
			r.closeSessions(rm.sessions(everySession), wire.CloseFrozen, wire.ReasonFrozen)
		}
	}
	for _, rm := range rooms {
		rm.land()
	}
	r.outside.land(c)
	return nil
}

// changedRooms returns the rooms of this node that a change concerns: one, or all
// of a tenant.
func (r *Relay) changedRooms(c cluster.Change) []*room {
	if c.Room != uuid.Nil {
		if rm := r.hub.room(c.Room); rm != nil && rm.tenant == c.Tenant {
			return []*room{rm}
		}
		return nil
	}
	return slices.DeleteFunc(r.hub.allRooms(), func(rm *room) bool { return rm.tenant != c.Tenant })
}

func (r *Relay) closeSessions(sessions []*session, code wire.CloseCode, reason string) {
	for _, s := range sessions {
		s.close(code, reason)
	}
}

// LeaseLost closes every connection: what this node does not hear of any more, it
// must not decide.
func (r *Relay) LeaseLost() {
	r.changes.Add(1)
	r.closeSessions(r.hub.sessions(everySession), wire.CloseGoingAway, wire.ReasonLink)
}

// PeerLost makes every connection read what a node that died may have stored and not
// announced.
func (r *Relay) PeerLost() { r.Missed(uuid.Nil) }

// Resync forgets what was cached and checks every connection's credential, because
// changes may have been missed.
func (r *Relay) Resync() {
	r.changes.Add(1)
	for _, rm := range r.hub.allRooms() {
		rm.changed()
	}
	r.recheck()
}

// recheck closes the connections whose credential is not valid any more. Changes are
// announced; this finds those whose announcement was lost with the node that made
// them.
func (r *Relay) recheck() {
	byTenant := make(map[uuid.UUID][]*session)
	for _, s := range r.hub.sessions(func(s *session) bool { return !s.isClosed() }) {
		byTenant[s.identity.Tenant] = append(byTenant[s.identity.Tenant], s)
	}
	for tenant, sessions := range byTenant {
		for batch := range slices.Chunk(sessions, recheckBatch) {
			r.recheckBatch(tenant, batch)
		}
	}
}

func (r *Relay) recheckBatch(tenant uuid.UUID, sessions []*session) {
	ids := make([]uuid.UUID, 0, len(sessions))
	for _, s := range sessions {
		ids = append(ids, s.identity.Credential)
	}
	valid, err := r.cfg.Store.ValidCredentials(r.ctx, tenant, ids)
	if err != nil {
		if r.ctx.Err() == nil {
			r.log.warn("credentials could not be checked again", slog.Any("error", err))
		}
		return
	}
	still := make(map[uuid.UUID]bool, len(valid))
	for _, id := range valid {
		still[id] = true
	}
	for _, s := range sessions {
		if !still[s.identity.Credential] {
			s.close(wire.CloseAuth, wire.ReasonAuth)
		}
	}
}

// keepFresh repeats the look-ups now and then.
func (r *Relay) keepFresh() {
	defer r.stopped.Done()
	ticker := time.NewTicker(recheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
			r.Resync()
		}
	}
}

var _ cluster.Applier = (*Relay)(nil)
