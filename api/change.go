package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// operation is one request on its way through the store and the cluster.
type operation struct {
	api    *API
	tenant uuid.UUID
	// ctx does not end when the caller goes away: what was begun is finished and
	// announced, and only then is it known what happened.
	ctx    context.Context
	cancel context.CancelFunc

	request context.Context //nolint:containedctx // ctx is made of it anew
	stop    context.CancelFunc
}

// begin begins an operation in the caller's tenant: of the operator the one it names, else
// the default one, in which those act too who have no tenant yet.
func (a *API) begin(r *http.Request) (*operation, error) {
	op := &operation{api: a, tenant: callerOf(r.Context()).tenant, request: context.WithoutCancel(r.Context()), stop: func() {}}
	op.cancel = func() { op.stop() }
	op.renew()
	if op.tenant == uuid.Nil {
		var err error
		if op.tenant, err = a.tenantNamed(op.ctx, orDefault(callerOf(r.Context()).tenantName, store.DefaultTenantName)); err != nil {
			op.cancel()
			return nil, err
		}
	}
	return op, nil
}

// changingRoom is the way in to changes that everybody in a room is told of. The operator
// may make as many as it likes.
func (a *API) changingRoom(next handler) handler {
	return func(r *http.Request) (int, any, error) {
		if who := callerOf(r.Context()); !who.operator {
			if err := a.limits.change(who.device.ID); err != nil {
				return 0, nil, err
			}
		}
		return next(r)
	}
}

// renew gives the operation its whole time again: a body has a time of its own to come
// in, which is longer.
func (op *operation) renew() {
	op.stop()
	op.ctx, op.stop = context.WithTimeout(op.request, op.api.cfg.RequestTimeout)
}

// announce puts a committed change in force everywhere. Its error says that the
// change is committed and that asking again is right.
func (op *operation) announce(c cluster.Change) error {
	if err := op.spread(c); err != nil {
		op.api.log.ErrorContext(op.ctx, "committed change is not known to be in force on every node", "room", c.Room, "error", err)
		return &wire.Error{
			Code:   wire.Unavailable,
			Detail: "it is committed, but not known to be in force on every node yet; send the same request again",
		}
	}
	return nil
}

// inDoubt handles an error of the store after which the change may be committed: it
// is announced as if it were, since that takes away only what the caller wants taken
// away. It returns the error.
func (op *operation) inDoubt(c cluster.Change, err error) error {
	if refused(err) {
		return err
	}
	return errors.Join(err, op.spread(c))
}

// spread tells every node, and then inboxes. Whatever became of the announcement, what is
// committed is due there.
func (op *operation) spread(c cluster.Change) error {
	defer op.api.wakeOutbox()
	c.Tenant = op.tenant
	ctx, cancel := context.WithTimeout(context.WithoutCancel(op.ctx), op.api.cfg.AnnounceTimeout)
	defer cancel()
	return op.api.cfg.Announcer.Announce(ctx, c)
}

// wakeOutbox makes what was committed reach inboxes at once.
func (a *API) wakeOutbox() {
	if a.cfg.OutboxWake != nil {
		a.cfg.OutboxWake()
	}
}
