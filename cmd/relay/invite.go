package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

// InviteCmd groups the commands on invites.
type InviteCmd struct {
	Create InviteCreateCmd `cmd:"" help:"Make an invite, with which one device enrolls."`
	Revoke InviteRevokeCmd `cmd:"" help:"Revoke an invite that was not used yet."`
}

// InviteCreateCmd makes an invite.
type InviteCreateCmd struct {
	Kind  string        `enum:"agent,human," default:"" placeholder:"KIND" help:"Whose device it is: agent (default), or human, as an admin's is by default."`
	TTL   time.Duration `name:"ttl" default:"10m" help:"How long it can be used, at most 10m."`
	Admin bool          `help:"The device becomes an admin, and is approved at once."`
}

// Help is shown by relay invite create --help.
func (*InviteCreateCmd) Help() string {
	return `Examples:

  relay invite create
  relay invite create --admin

The token goes to the device by a way that others do not read. Unless it is an admin's, the device then waits for approval:

  relay device list --state PENDING`
}

// Run makes it.
func (c *InviteCreateCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if c.TTL < time.Second || c.TTL > store.MaxInviteTTL || c.TTL%time.Second != 0 {
		return usageError{"--ttl must be whole seconds, at least one and at most 10m"}
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var invite api.Invite
	body := api.NewInvite{Kind: c.Kind, Admin: c.Admin, TTLSeconds: new(int64(c.TTL / time.Second))}
	if err := server.call(ctx, http.MethodPost, "/v1/invites", nil, body, &invite); err != nil {
		return fmt.Errorf("make the invite: %w", err)
	}
	return show(globals, con, invite, func(w io.Writer) {
		who := "one device of kind " + invite.Kind
		if invite.Admin {
			who = "one admin device"
		}
		fmt.Fprintf(w, "Invite %s is for %s.\n", invite.InviteID, who)
		fmt.Fprintf(w, "Its token, shown only now and valid until %s:\n\n  %s\n", moment(invite.ExpiresAt), invite.Token)
		next(w, globals, con, "device list", "invite revoke --invite-id "+invite.InviteID)
	})
}

// InviteRevokeCmd revokes an invite.
type InviteRevokeCmd struct {
	InviteID string `required:"" placeholder:"ID" help:"The invite."`
}

// Help is shown by relay invite revoke --help.
func (*InviteRevokeCmd) Help() string {
	return `Example:

  relay invite revoke --invite-id INVITE_ID

Revoking again is no error. A device that has enrolled with the invite stays: suspend or revoke the device.`
}

// Run revokes it.
func (c *InviteRevokeCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("invite-id", c.InviteID); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var revoked api.RevokedInvite
	if err := server.call(ctx, http.MethodDelete, "/v1/invites/"+c.InviteID, nil, nil, &revoked); err != nil {
		return fmt.Errorf("revoke the invite: %w", err)
	}
	return show(globals, con, revoked, func(w io.Writer) {
		fmt.Fprintf(w, "Invite %s is revoked: no device enrolls with it.\n", revoked.InviteID)
		next(w, globals, con, "invite create")
	})
}
