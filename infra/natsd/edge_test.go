package natsd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/natsd"
)

// edgeConn connects with what is in the file that an operator copies to an edge node.
func edgeConn(t *testing.T, s *natsd.Server) (*nats.Conn, <-chan error) {
	t.Helper()
	info, err := os.Stat(s.EdgeContextFile())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	content, err := os.ReadFile(s.EdgeContextFile())
	require.NoError(t, err)
	var c natsContext
	require.NoError(t, json.Unmarshal(content, &c))
	require.Equal(t, s.URL(), c.URL)
	refusals := make(chan error, 16)
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err }))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc, refusals
}

// An edge writes and reads inboxes; it can remove no stream, drop no inbox as a whole, and
// announce no change (DESIGN section 6, "Freshness": that is the API's).
func TestEdgeUser(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Config{Dir: t.TempDir(), Edges: true})
	_, relay := relayConn(t, s)
	stream := makeStream(t, relay)
	nc, refusals := edgeConn(t, s)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(5*time.Second))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "inbox.00.room.participant", []byte("row"))
	require.NoError(t, err)
	_, err = stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	seen, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.Equal(t, "INBOX_00", seen.CachedInfo().Config.Name)
	_, err = nc.SubscribeSync("control.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	require.Empty(t, refusals)

	for _, subject := range []string{
		"$JS.API.STREAM.DELETE.INBOX_00", "$JS.API.STREAM.PURGE.INBOX_00", "$JS.API.CONSUMER.CREATE.INBOX_00",
		"control.11111111-1111-4111-8111-111111111111", "control.tenant.11111111-1111-4111-8111-111111111111",
	} {
		require.NoError(t, nc.PublishRequest(subject, nc.NewRespInbox(), []byte("{}")))
		require.ErrorIs(t, <-refusals, nats.ErrPermissionViolation, subject)
	}
	require.EqualValues(t, 1, messages(t, stream))
}

// The user and its file exist only where they are asked for.
func TestEdgeUserOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	with := start(t, natsd.Config{Dir: dir, Edges: true})
	content, err := os.ReadFile(with.EdgeContextFile())
	require.NoError(t, err)
	var c natsContext
	require.NoError(t, json.Unmarshal(content, &c))
	require.NoError(t, closeServer(with))

	without := start(t, natsd.Config{Dir: dir})
	require.NoFileExists(t, without.EdgeContextFile())
	_, err = nats.Connect(without.URL(), nats.UserInfo(c.User, c.Password))
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.NoError(t, closeServer(without))

	start(t, natsd.Config{Dir: dir, Edges: true})
	same, err := os.ReadFile(filepath.Join(dir, "nats", "edge.json"))
	require.NoError(t, err)
	require.Equal(t, content, same, "the same password and port as before")
}
