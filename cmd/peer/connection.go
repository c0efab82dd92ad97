package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// connection is the flags of commands that connect: with a credential to an address, or as
// a device in a room.
type connection struct {
	home
	Room           string `placeholder:"ID" help:"Connect as the device of --home in this room, to the relay it enrolled at; a credential is minted for it."`
	URL            string `default:"ws://127.0.0.1:8787/v1/relay" env:"PEER_URL" help:"The relay's WebSocket address, for a credential."`
	CredentialFile string `type:"path" env:"PEER_CREDENTIAL_FILE" placeholder:"FILE" help:"File that holds the credential; - is standard input."`
	Credential     string `env:"PEER_CREDENTIAL" placeholder:"TOKEN" help:"The credential itself. Others on this machine can see command lines: prefer the file or the environment."`
	Direct         bool   `help:"Ask for a development connection; the credential must be of that kind."`
}

// relayPath is where a relay answers; an address without a path means it.
const relayPath = "/v1/relay"

// dialer opens the connections of one command.
type dialer struct {
	dial      func(ctx context.Context) (*client.Conn, error)
	retryable func(err error) bool // whether dialling again may succeed
	// allocate publishes a sender key for the room that the last connection was to.
	allocate func(ctx context.Context, room string) (client.Generation, error)
	close    func()
	opened   *running // the device of --room; nil for a credential
}

// dialer reads the flags, and the credential where they name one.
func (c connection) dialer(con console) (*dialer, error) {
	if c.Room != "" {
		return c.roomDialer(con)
	}
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	token, err := c.token(con)
	if err != nil {
		return nil, err
	}
	return &dialer{
		dial: func(ctx context.Context) (*client.Conn, error) {
			return client.Dial(ctx, address, client.Options{Token: token, Direct: c.Direct})
		},
		retryable: client.Retryable,
		allocate: func(ctx context.Context, room string) (client.Generation, error) {
			return allocate(ctx, address, token, room)
		},
		close: func() {},
	}, nil
}

func (c connection) roomDialer(con console) (*dialer, error) {
	if c.Credential != "" || c.CredentialFile != "" || c.Direct {
		return nil, usageError{"--room mints a credential: it does not go with another one (PEER_CREDENTIAL, PEER_CREDENTIAL_FILE), nor with --direct"}
	}
	if _, ok := wire.ParseUUID([]byte(c.Room)); !ok {
		return nil, usageError{"--room is the id of a room"}
	}
	opened := con.shared
	if opened == nil {
		device, err := c.open(con)
		if err != nil {
			return nil, err
		}
		opened = newRunning(device)
	}
	device := opened.device
	m := &minting{device: device, room: c.Room}
	return &dialer{
		dial: m.dial, retryable: m.retryable,
		allocate: func(ctx context.Context, room string) (client.Generation, error) {
			found, err := device.Room(ctx, room)
			if err != nil {
				return client.Generation{}, err
			}
			if found.Scheme != "sender_keys" {
				return client.Generation{}, fmt.Errorf("the generation of a room of scheme %s is not allocated: name it with --gen", found.Scheme)
			}
			return allocate(ctx, device.RelayURL(), m.credential.Token, room)
		},
		close: func() {
			if con.shared == nil {
				_ = device.Close()
			}
		},
		opened: opened,
	}, nil
}

// allocate publishes a key that is as random as the content of test envelopes.
func allocate(ctx context.Context, relay, credential, room string) (client.Generation, error) {
	var kid [16]byte
	var key [32]byte
	_, _ = rand.Read(kid[:]) // never fails
	_, _ = rand.Read(key[:])
	return client.AllocateGeneration(ctx, relay, credential, room, kid, key[:])
}

// minting connects as a device in a room. A credential serves until it is about to expire.
type minting struct {
	device     *client.Device
	room       string
	credential client.Credential
}

// renewal is how long before its end a credential is not used for another connection.
const renewal = time.Minute

func (m *minting) ending() bool { return time.Until(m.credential.ExpiresAt) < renewal }

func (m *minting) dial(ctx context.Context) (*client.Conn, error) {
	if m.ending() {
		made, err := m.device.MintCredential(ctx, m.room, 0)
		if err != nil {
			return nil, err
		}
		m.credential = made
	}
	return m.device.Connect(ctx, m.credential)
}

// retryable is also true where the credential ended, and nothing else: the next connection
// has another one.
func (m *minting) retryable(err error) bool {
	if closed, ok := errors.AsType[*client.CloseError](err); ok && closed.Code == wire.CloseAuth {
		return m.credential.Token != "" && m.ending()
	}
	return client.Retryable(err)
}

// address is the whole WebSocket address.
func (c connection) address() (string, error) {
	parsed, err := url.Parse(c.URL)
	if err != nil || parsed.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, parsed.Scheme) {
		return "", usageError{fmt.Sprintf("--url %q is not a WebSocket address such as ws://127.0.0.1:8787%s", c.URL, relayPath)}
	}
	if parsed.Path == "" || parsed.Path == "/" {
		parsed.Path = relayPath
	}
	return parsed.String(), nil
}

// maxCredential bounds a credential file; a token has 43 characters.
const maxCredential = 4096

func (c connection) token(con console) (string, error) {
	if c.CredentialFile == "" {
		if c.Credential == "" {
			return "", usageError{"a credential is needed: --credential-file FILE or PEER_CREDENTIAL; or --room ID, as a device of your own"}
		}
		return strings.TrimSpace(c.Credential), nil
	}
	in := con.in
	if c.CredentialFile != "-" {
		file, err := os.Open(c.CredentialFile)
		if err != nil {
			return "", fmt.Errorf("read the credential: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCredential))
	if err != nil {
		return "", fmt.Errorf("read the credential: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s holds no credential", c.CredentialFile)
	}
	return token, nil
}
