package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

// FreezeCmd freezes and thaws the network.
type FreezeCmd struct {
	Off bool `help:"End it."`
}

// Help is shown by relay freeze --help.
func (*FreezeCmd) Help() string {
	return `Examples:

  relay freeze
  relay freeze --off

While the network is frozen every connection of the tenant is closed (1012) and none is accepted. Nothing that is stored is lost.
Other tenants of the relay go on.`
}

// Run does it.
func (c *FreezeCmd) Run(ctx context.Context, globals *Globals, con console) error {
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var state api.Freeze
	if err := server.call(ctx, http.MethodPut, "/v1/freeze", nil, api.Freeze{Frozen: !c.Off}, &state); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return show(globals, con, state, func(w io.Writer) {
		tenant := orText(globals.Tenant, store.DefaultTenantName)
		if state.Frozen {
			fmt.Fprintf(w, "The network of tenant %s is frozen: every connection is closed, and none is accepted.\n", tenant)
			next(w, globals, con, "freeze --off")
			return
		}
		fmt.Fprintf(w, "The network of tenant %s is not frozen: clients may connect.\n", tenant)
		next(w, globals, con, "doctor")
	})
}
