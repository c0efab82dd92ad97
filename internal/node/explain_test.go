package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/schema"
)

type sqlError string

func (e sqlError) Error() string    { return "permission denied" }
func (e sqlError) SQLState() string { return string(e) }

func TestExplainDatabase(t *testing.T) {
	refused := fmt.Errorf("look for roles: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")})
	require.ErrorContains(t, ExplainDatabase(refused), "the database could not be reached: look for roles: ")
	require.ErrorIs(t, ExplainDatabase(refused), refused)
	require.ErrorContains(t, ExplainDatabase(fmt.Errorf("create a table: %w", sqlError("42501"))), "must own the database")

	for _, known := range []error{
		fmt.Errorf("create a table: %w", sqlError("42601")),
		fmt.Errorf("%w: %w", schema.ErrRole, sqlError("42501")), // says by itself what to run
	} {
		require.Equal(t, known, ExplainDatabase(known))
	}
}

func TestNATSAddressesAreShownWithoutCredentials(t *testing.T) {
	for given, want := range map[string]string{
		"":                               "",
		"nats://127.0.0.1:4222":          "nats://127.0.0.1:4222",
		"nats://user:secret@broker:4222": "nats://broker:4222",
		"secret@broker":                  "nats://broker",
		"tls://a:1, user:secret@b:2":     "tls://a:1,nats://b:2",
		"nats://broker:1/?token=secret":  "nats://broker:1",
		"nats://user:sec/ret@broker":     "",
		"nats://user:%zz@broker":         "",
	} {
		require.Equal(t, want, natsServers(given), given)
		for _, cause := range []error{nats.ErrNoServers, &url.Error{Op: "parse", URL: given, Err: errors.New("secret")}} {
			err := natsError(given, cause)
			require.NotContains(t, err.Error(), "sec")
			if want != "" && errors.Is(err, nats.ErrNoServers) {
				require.ErrorContains(t, err, "connect to "+want+": ")
			}
		}
	}
}
