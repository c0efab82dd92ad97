package natsd_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/infra/natsd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := natsd.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closeServer(s)) })
	return s
}

func closeServer(s *natsd.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Close(ctx)
}

// relayConn is an in-process connection of the full user.
func relayConn(t *testing.T, s *natsd.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := s.InProcess()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func makeStream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "INBOX_00", Subjects: []string{"inbox.00.>"}, AllowDirect: true, MaxMsgsPerSubject: 500,
	})
	require.NoError(t, err)
	return stream
}

func TestRestartKeepsMessages(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	nc, js := relayConn(t, first)
	makeStream(t, js)
	ack, err := js.Publish(t.Context(), "inbox.00.a.b", []byte("kept"))
	require.NoError(t, err)
	require.Equal(t, uint64(1), ack.Sequence)
	url := first.URL()
	nc.Close()
	require.NoError(t, closeServer(first))

	second := start(t, natsd.Config{Dir: dir})
	require.Equal(t, url, second.URL(), "the port is kept")
	_, js = relayConn(t, second)
	stream, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []byte("kept"), msg.Data)
}
