package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// FAULTS K03, RELAY "auth failure/revocation 4403": a session whose device is revoked stops, with
// the reason, and asks for nothing more.
func TestARevokedDeviceStopsListening(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	lost := make(chan error, 16)
	options := client.ListenOptions{
		CaughtUp: func() { close(caughtUp) },
		Lost:     func(err error, _ time.Duration) { lost <- err },
	}
	go func() { ended <- bob.ListenWith(t.Context(), options, bob.take) }()
	<-caughtUp
	_, err := o.admin.RevokeDevice(t.Context(), o.robot.ID())
	require.NoError(t, err)
	select {
	case err = <-ended:
	case <-time.After(sessionPatience):
		t.Fatal("it goes on listening")
	}
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, wire.CloseAuth, closed.Code)
	require.False(t, client.Retryable(err))
	require.Empty(t, lost, "there was no other attempt")
	requests := o.proxy.requests.Load()
	_, err = bob.Send(t.Context(), client.Draft{Text: "x"})
	require.Error(t, err)
	require.LessOrEqual(t, o.proxy.requests.Load(), requests+4)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.LessOrEqual(t, len(pending), 1)
}
