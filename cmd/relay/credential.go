package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/secretfile"
)

// CredentialCmd groups the commands on credentials.
type CredentialCmd struct {
	Mint   CredentialMintCmd   `cmd:"" help:"Mint another credential for a participant."`
	Revoke CredentialRevokeCmd `cmd:"" help:"Revoke one credential, or all of a participant; connections close everywhere before this returns."`
}

// CredentialMintCmd mints a credential.
type CredentialMintCmd struct {
	Participant string `required:"" placeholder:"ID" help:"Whose credential it is."`
	terms       `embed:""`
}

// Help is shown by relay credential mint --help.
func (*CredentialMintCmd) Help() string {
	return `Example:

  relay credential mint --participant PARTICIPANT_ID --ttl 168h --credential-file alice.cred`
}

// Run mints it.
func (c *CredentialMintCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("participant", c.Participant); err != nil {
		return err
	}
	ttl, err := c.seconds()
	if err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	file, err := secretfile.New(c.CredentialFile, "--credential-file")
	if err != nil {
		return err
	}
	defer file.Close()
	var minted api.Credential
	body := api.NewCredential{Kind: c.Kind, TTLSeconds: ttl}
	if err := server.call(ctx, http.MethodPost, "/v1/participants/"+c.Participant+"/credentials", nil, body, &minted); err != nil {
		return fmt.Errorf("mint the credential: %w", err)
	}
	kept := file.Keep(minted.Credential)
	if kept != nil {
		file = new(secretfile.File) // then it has to be shown
	}
	return orError(kept, show(globals, con, minted, func(w io.Writer) {
		fmt.Fprintf(w, "Participant %s has another credential, %s.\n", minted.ParticipantID, minted.CredentialID)
		tellCredential(w, file, minted.Credential, minted.ExpiresAt)
		next(w, globals, con, "credential revoke --credential-id "+minted.CredentialID)
		fmt.Fprintf(w, "  %s\n", listenCommand(con, file, server.relayURL(ctx)))
	}))
}

// CredentialRevokeCmd revokes credentials.
type CredentialRevokeCmd struct {
	CredentialID string `xor:"what" required:"" placeholder:"ID" help:"The credential."`
	Participant  string `xor:"what" required:"" placeholder:"ID" help:"Or a participant: all of its credentials."`
}

// Help is shown by relay credential revoke --help.
func (*CredentialRevokeCmd) Help() string {
	return `Examples:

  relay credential revoke --credential-id CREDENTIAL_ID
  relay credential revoke --participant PARTICIPANT_ID

The participant stays in the room and may get a new credential. Revoking again is no error.`
}

// Run revokes them.
func (c *CredentialRevokeCmd) Run(ctx context.Context, globals *Globals, con console) error {
	flag, id, path := "credential-id", c.CredentialID, "/v1/credentials/"+c.CredentialID
	if c.Participant != "" {
		flag, id, path = "participant", c.Participant, "/v1/participants/"+c.Participant+"/credentials"
	}
	if err := checkID(flag, id); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var revoked api.Revoked
	if err := server.call(ctx, http.MethodDelete, path, nil, nil, &revoked); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return show(globals, con, revoked, func(w io.Writer) {
		switch revoked.Revoked {
		case 0:
			fmt.Fprintln(w, "Nothing was valid any more; what was open is closed.")
		case 1:
			fmt.Fprintln(w, "1 credential is revoked, and what it had open is closed.")
		default:
			fmt.Fprintf(w, "%d credentials are revoked, and what they had open is closed.\n", revoked.Revoked)
		}
		if c.Participant != "" {
			next(w, globals, con, "credential mint --participant "+c.Participant)
		}
	})
}
