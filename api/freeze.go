package api

import (
	"net/http"

	"github.com/peerrelay/peerrelay/cluster"
)

func (a *API) showFreeze(r *http.Request) (int, any, error) {
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	frozen, err := a.cfg.Store.Frozen(op.ctx, op.tenant)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Freeze{Frozen: frozen}, nil
}

// setFreeze may be repeated: what is so already is announced again.
func (a *API) setFreeze(r *http.Request) (int, any, error) {
	var body struct {
		Frozen *bool `json:"frozen"`
	}
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Frozen == nil {
		return 0, nil, malformed("frozen must be true or false")
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	change := cluster.Change{Frozen: *body.Frozen, Thawed: !*body.Frozen}
	if err := a.cfg.Store.SetFrozen(op.ctx, op.tenant, *body.Frozen); err != nil {
		return 0, nil, op.inDoubt(change, err)
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Freeze{Frozen: *body.Frozen}, nil
}
