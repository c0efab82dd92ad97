package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

// TenantCmd groups the commands on tenants.
type TenantCmd struct {
	Create TenantCreateCmd `cmd:"" help:"Make a tenant: others who use this relay, and see nothing of each other."`
	List   TenantListCmd   `cmd:"" help:"List the tenants."`
}

// TenantCreateCmd makes a tenant.
type TenantCreateCmd struct {
	Name string `arg:"" help:"1 to 64 small letters, digits, dots, dashes and underscores; the first is a letter or a digit. It cannot change later."`
}

// Help is shown by relay tenant create --help.
func (*TenantCreateCmd) Help() string {
	return "Example:\n\n  relay tenant create example\n  relay invite create --admin --tenant example"
}

// Run makes it.
func (c *TenantCreateCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if !store.ValidTenantName(c.Name) {
		return usageError{fmt.Sprintf("%q is no name of a tenant: 1 to 64 small letters, digits, dots, dashes and underscores, of which the first is a letter or a digit", c.Name)}
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var made api.Tenant
	if err := server.call(ctx, http.MethodPost, "/v1/tenants", nil, api.NewTenant{Name: c.Name}, &made); err != nil {
		return fmt.Errorf("make the tenant: %w", err)
	}
	return show(globals, con, made, func(w io.Writer) {
		fmt.Fprintf(w, "Tenant %s is made (%s).\n", made.Name, made.TenantID)
		in := *globals
		in.Tenant = made.Name
		next(w, &in, con, "invite create --admin", "room create")
	})
}

// TenantListCmd lists tenants.
type TenantListCmd struct{}

// Help is shown by relay tenant list --help.
func (*TenantListCmd) Help() string { return "Example:\n\n  relay tenant list --json" }

// Run lists them, all pages.
func (*TenantListCmd) Run(ctx context.Context, globals *Globals, con console) error {
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	all := api.Tenants{Tenants: []api.Tenant{}}
	query := url.Values{"limit": {"500"}}
	for {
		var page api.Tenants
		if err := server.call(ctx, http.MethodGet, "/v1/tenants", query, nil, &page); err != nil {
			return fmt.Errorf("list the tenants: %w", err)
		}
		all.Tenants = append(all.Tenants, page.Tenants...)
		if page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	return show(globals, con, all, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tTENANT\tFROZEN\tSINCE")
		for _, t := range all.Tenants {
			fmt.Fprintf(table, "%s\t%s\t%t\t%s\n", t.Name, t.TenantID, t.Frozen, moment(t.CreatedAt))
		}
		_ = table.Flush() // into a buffer
		elsewhere := *globals
		elsewhere.Tenant = os.Getenv("RELAY_TENANT") // the list is of all tenants, whichever was named
		next(w, &elsewhere, con, "tenant create NAME")
	})
}
