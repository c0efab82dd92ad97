package natsd_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/natsd"
)

// natsContext is what the nats program reads.
type natsContext struct{ URL, User, Password string }

func readContext(t *testing.T, s *natsd.Server) natsContext {
	t.Helper()
	info, err := os.Stat(s.ContextFile())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	b, err := os.ReadFile(s.ContextFile())
	require.NoError(t, err)
	var c natsContext
	require.NoError(t, json.Unmarshal(b, &c))
	require.Equal(t, s.URL(), c.URL)
	return c
}

// debugConn is a connection as the nats program makes it; refusals arrive on the channel.
func debugConn(t *testing.T, s *natsd.Server) (*nats.Conn, <-chan error) {
	t.Helper()
	c := readContext(t, s)
	refusals := make(chan error, 16)
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err }))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc, refusals
}

// filled is a server with a stream INBOX_00 of ten rows.
func filled(t *testing.T) (*natsd.Server, *nats.Conn, jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	s := start(t, natsd.Config{Dir: t.TempDir()})
	nc, js := relayConn(t, s)
	stream := makeStream(t, js)
	for range 10 {
		_, err := js.Publish(t.Context(), "inbox.00.room.participant", []byte("row"))
		require.NoError(t, err)
	}
	return s, nc, js, stream
}

func messages(t *testing.T, stream jetstream.Stream) uint64 {
	t.Helper()
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	return info.State.Msgs
}

func TestDebugUserReads(t *testing.T) {
	s, relay, _, _ := filled(t)
	nc, refusals := debugConn(t, s)
	js, err := jetstream.New(nc)
	require.NoError(t, err)

	names := []string{}
	for name := range js.StreamNames(t.Context()).Name() {
		names = append(names, name)
	}
	require.Equal(t, []string{"INBOX_00"}, names)
	stream, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.Equal(t, uint64(10), messages(t, stream))
	msg, err := stream.GetMsg(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, "row", string(msg.Data))
	_, err = stream.GetLastMsgForSubject(t.Context(), "inbox.00.room.participant")
	require.NoError(t, err)

	// As nats sub --stream does.
	ephemeral, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	require.NoError(t, err)
	requireBatch(t, ephemeral, 10)
	// As nats stream view does: durable, with acknowledgements, deleted in the end.
	pager, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "stream_pager_1", InactiveThreshold: time.Hour, AckPolicy: jetstream.AckExplicitPolicy,
	})
	require.NoError(t, err)
	requireBatch(t, pager, 10)
	require.Eventually(t, func() bool {
		info, err := pager.Info(t.Context())
		return err == nil && info.NumAckPending == 0
	}, 10*time.Second, 10*time.Millisecond, "acknowledgements arrive")
	require.NoError(t, stream.DeleteConsumer(t.Context(), "stream_pager_1"))

	live, err := nc.SubscribeSync("live.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	require.NoError(t, relay.Publish("live.room", []byte("now")))
	got, err := live.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "live.room", got.Subject)
	require.Empty(t, refusals)
}

func requireBatch(t *testing.T, c jetstream.Consumer, want int) {
	t.Helper()
	batch, err := c.Fetch(want, jetstream.FetchMaxWait(10*time.Second))
	require.NoError(t, err)
	n := 0
	for m := range batch.Messages() {
		require.Equal(t, "row", string(m.Data()))
		require.Equal(t, "inbox.00.room.participant", m.Subject())
		if c.CachedInfo().Config.AckPolicy == jetstream.AckExplicitPolicy {
			require.NoError(t, m.Ack())
		}
		n++
	}
	require.NoError(t, batch.Error())
	require.Equal(t, want, n)
}

// Every way to change something that the API has is refused by the server itself.
func TestDebugUserMayNotWrite(t *testing.T) {
	s, _, _, stream := filled(t)
	nc, refusals := debugConn(t, s)
	for _, subject := range []string{
		"inbox.00.room.participant",
		"live.room",
		"control.room",
		"_INBOX.of.somebody",
		"$KV.presence.x",
		"$JS.API.STREAM.CREATE.NEW",
		"$JS.API.STREAM.UPDATE.INBOX_00",
		"$JS.API.STREAM.DELETE.INBOX_00",
		"$JS.API.STREAM.PURGE.INBOX_00",
		"$JS.API.STREAM.MSG.DELETE.INBOX_00",
		"$JS.API.STREAM.SNAPSHOT.INBOX_00",
		"$JS.API.STREAM.RESTORE.INBOX_00",
		"$JS.API.STREAM.LEADER.STEPDOWN.INBOX_00",
		"$JS.API.CONSUMER.PAUSE.INBOX_00.c",
		"$JS.API.CONSUMER.RESET.INBOX_00.c",
		"$JS.API.ACCOUNT.PURGE.RELAY",
		"$SYS.REQ.SERVER.PING",
	} {
		require.NoError(t, nc.Publish(subject, []byte("{}")))
		require.NoError(t, nc.Flush())
		select {
		case err := <-refusals:
			require.ErrorIs(t, err, nats.ErrPermissionViolation, subject)
		case <-time.After(10 * time.Second):
			require.Fail(t, "not refused", subject)
		}
	}
	for _, subject := range []string{">", "inbox.>", "control.>", "$JS.API.>", "$JS.ACK.>"} {
		_, err := nc.Subscribe(subject, func(*nats.Msg) {})
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
		select {
		case err := <-refusals:
			require.ErrorIs(t, err, nats.ErrPermissionViolation, subject)
		case <-time.After(10 * time.Second):
			require.Fail(t, "not refused", subject)
		}
	}
	require.Equal(t, uint64(10), messages(t, stream))
}

// The answer to an allowed question must not land in an inbox or in the live feed.
func TestDebugUserCannotAimAnswers(t *testing.T) {
	s, relay, js, stream := filled(t)
	live, err := relay.SubscribeSync("live.>")
	require.NoError(t, err)
	require.NoError(t, relay.Flush())
	nc, _ := debugConn(t, s)
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	require.NoError(t, err)
	next := "$JS.API.CONSUMER.MSG.NEXT.INBOX_00." + consumer.CachedInfo().Name
	for _, target := range []string{"inbox.00.room.participant", "live.room"} {
		require.NoError(t, nc.PublishRequest("$JS.API.STREAM.INFO.INBOX_00", target, nil))
		require.NoError(t, nc.PublishRequest("$JS.API.DIRECT.GET.INBOX_00", target, []byte(`{"seq":1}`)))
		require.NoError(t, nc.PublishRequest(next, target, []byte(`{"batch":2,"no_wait":true}`)))
		require.NoError(t, nc.PublishRequest("$JS.API.CONSUMER.CREATE.INBOX_00", target, []byte(`{}`)))
	}
	// An answer to a later question of the same connection comes after theirs.
	_, err = nc.Request("$JS.API.STREAM.INFO.INBOX_00", nil, 10*time.Second)
	require.NoError(t, err)
	_, err = nc.Request("$JS.API.CONSUMER.CREATE.INBOX_00", []byte(`{}`), 10*time.Second)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "inbox.00.room.participant", []byte("row"))
	require.NoError(t, err)
	require.Equal(t, uint64(11), messages(t, stream))
	require.NoError(t, relay.Publish("live.room", []byte("marker")))
	got, err := live.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "marker", string(got.Data))
}

func TestGateRefuses(t *testing.T) {
	s, _, js, stream := filled(t)
	_, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "theirs"})
	require.NoError(t, err)
	nc, _ := debugConn(t, s)
	create := "$JS.API.CONSUMER.CREATE.INBOX_00"
	for name, c := range map[string]struct{ subject, body string }{
		"push consumer":       {create, `{"stream_name":"INBOX_00","config":{"deliver_subject":"live.room","ack_policy":"none"}}`},
		"push, other case":    {create, `{"stream_name":"INBOX_00","config":{"Deliver_Subject":"live.room","ack_policy":"none"}}`},
		"push, config twice":  {create, `{"stream_name":"INBOX_00","config":{"deliver_subject":"live.room"},"config":{"ack_policy":"none"}}`},
		"deliver group":       {create, `{"stream_name":"INBOX_00","config":{"deliver_group":"g"}}`},
		"durable for ever":    {create + ".c", `{"stream_name":"INBOX_00","config":{"durable_name":"c","name":"c"}}`},
		"durable, old way":    {"$JS.API.CONSUMER.DURABLE.CREATE.INBOX_00.c", `{"stream_name":"INBOX_00","config":{"durable_name":"c"}}`},
		"idle for two hours":  {create, `{"stream_name":"INBOX_00","config":{"inactive_threshold":7200000000000}}`},
		"not JSON":            {create, `deliver`},
		"nothing":             {create, ``},
		"someone's consumer":  {"$JS.API.CONSUMER.DELETE.INBOX_00.theirs", ``},
		"no such consumer":    {"$JS.API.CONSUMER.DELETE.INBOX_00.nobodys", ``},
		"update of another's": {create + ".theirs", `{"stream_name":"INBOX_00","config":{"name":"theirs","durable_name":"theirs"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := nc.Request(c.subject, []byte(c.body), 10*time.Second)
			require.NoError(t, err)
			var got struct {
				Error *struct {
					Code        int
					Description string
				}
			}
			require.NoError(t, json.Unmarshal(answer.Data, &got))
			require.NotNil(t, got.Error, "answer %s", answer.Data)
			require.Equal(t, 403, got.Error.Code)
			require.Contains(t, got.Error.Description, "refused")
		})
	}
	left, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.Equal(t, 1, left.CachedInfo().State.Consumers)
}

// Looking must not exhaust the server: each consumer costs goroutines.
func TestConsumersAreBounded(t *testing.T) {
	s, _, relay, stream := filled(t)
	nc, _ := debugConn(t, s)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	made := 0
	for made < 200 {
		_, err = js.CreateConsumer(t.Context(), "INBOX_00", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		if err != nil {
			break
		}
		made++
	}
	require.ErrorContains(t, err, "maximum consumers limit reached")
	require.Equal(t, 32, made)
	stored := messages(t, stream)
	_, err = relay.Publish(t.Context(), "inbox.00.a.b", []byte("more"))
	require.NoError(t, err)
	require.Equal(t, stored+1, messages(t, stream))
}

func TestGateChangesNoConsumer(t *testing.T) {
	s, _, _, stream := filled(t)
	_, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Name: "theirs", MemoryStorage: true, InactiveThreshold: time.Hour, AckPolicy: jetstream.AckNonePolicy,
	})
	require.NoError(t, err)
	nc, _ := debugConn(t, s)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateOrUpdateConsumer(t.Context(), "INBOX_00", jetstream.ConsumerConfig{
		Name: "theirs", InactiveThreshold: time.Second, AckPolicy: jetstream.AckNonePolicy,
	})
	require.ErrorIs(t, err, jetstream.ErrConsumerExists)
	theirs, err := stream.Consumer(t.Context(), "theirs")
	require.NoError(t, err)
	require.Equal(t, time.Hour, theirs.CachedInfo().Config.InactiveThreshold)
}

func TestPasswords(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	c := readContext(t, first)
	for name, auth := range map[string]nats.Option{
		"none":          nats.Name("none"),
		"wrong":         nats.UserInfo(c.User, c.Password+"x"),
		"empty":         nats.UserInfo(c.User, ""),
		"relay's user":  nats.UserInfo("relay", c.Password),
		"gate's user":   nats.UserInfo("gate", c.Password),
		"unknown user":  nats.UserInfo("sys", c.Password),
		"password only": nats.Token(c.Password),
	} {
		_, err := nats.Connect(c.URL, auth)
		require.ErrorIs(t, err, nats.ErrAuthorization, name)
	}
	require.NoError(t, closeServer(first))
	second := start(t, natsd.Config{Dir: dir})
	require.Equal(t, c.Password, readContext(t, second).Password, "kept over a restart")
}
