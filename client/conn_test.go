package client_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	participant = "01980000-0000-7000-8000-000000000001"
	session     = "01980000-0000-7000-8000-000000000002"
	other       = "01980000-0000-7000-8000-000000000003"
	welcome     = `{"type":"welcome","participant_id":"` + participant + `","session_id":"` + session + `"}`
)

// peer is the server's end of a connection in these tests. It fails the test when
// the client does something else than is expected.
type peer struct {
	t   *testing.T
	ctx context.Context
	ws  *websocket.Conn
}

// fail ends the script; it does not run on the test's goroutine.
func (p peer) failf(format string, values ...any) {
	p.t.Errorf(format, values...)
	panic(http.ErrAbortHandler)
}

func (p peer) read() string {
	kind, got, err := p.ws.Read(p.ctx)
	if err != nil || kind != websocket.MessageText {
		p.failf("read: %v %v", kind, err)
	}
	return string(got)
}

func (p peer) expect(message string) {
	if got := p.read(); got != message {
		p.failf("the client sent %s instead of %s", got, message)
	}
}

func (p peer) send(messages ...string) {
	for _, message := range messages {
		if err := p.ws.Write(p.ctx, websocket.MessageText, []byte(message)); err != nil {
			p.failf("write: %v", err)
		}
	}
}

func (p peer) close(code wire.CloseCode, reason string) {
	_ = p.ws.Close(websocket.StatusCode(code), reason)
}

// gone waits until the client has left.
func (p peer) gone() {
	for {
		if _, _, err := p.ws.Read(p.ctx); err != nil {
			return
		}
	}
}

// serve runs script as the relay's side of the one connection of a test. The test
// ends when the script has.
func serve(t *testing.T, script func(p peer)) (url string) {
	t.Helper()
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(wire.MaxServerMessage)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		script(peer{t, ctx, ws})
	}))
	t.Cleanup(func() {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("the relay's side of the script did not end")
		}
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// greeted is serve with the hello done.
func greeted(t *testing.T, script func(p peer)) *client.Conn {
	t.Helper()
	url := serve(t, func(p peer) {
		p.expect(`{"type":"hello","token":"secret","direct":false}`)
		p.send(welcome)
		script(p)
	})
	conn, err := client.Dial(t.Context(), url, client.Options{Token: "secret"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func receive(t *testing.T, conn *client.Conn) wire.ServerFrame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	frame, err := conn.Receive(ctx)
	require.NoError(t, err)
	return frame
}

func TestHelloResumeAndReplayInOrder(t *testing.T) {
	t.Parallel()
	envelope := `{ "v":1, "id" : "a\u0062" }`
	conn := greeted(t, func(p peer) {
		p.expect(`{"type":"resume","last_id":"7-8","limit":100}`)
		p.send(`{"type":"deliver","stream_id":"7-9","replay":true,"envelope":`+envelope+`}`,
			`{"type":"deliver","stream_id":"7-11","replay":false,"envelope":`+envelope+`}`,
			`{"type":"resume_complete","replayed":1,"more":true}`)
		p.gone()
	})
	require.Equal(t, participant, conn.ParticipantID())
	require.Equal(t, session, conn.SessionID())
	require.NoError(t, conn.Resume(t.Context(), "7-8", 100))

	first, second, end := receive(t, conn), receive(t, conn), receive(t, conn)
	require.Equal(t, "7-9", first.StreamID)
	require.Equal(t, wire.ReplayStored, first.Replay)
	require.Equal(t, envelope, string(first.Envelope), "the sender's bytes, unchanged")
	require.Equal(t, wire.ReplayLive, second.Replay)
	require.Equal(t, 1, end.Replayed)
	require.True(t, end.More)
}

func TestResumeLeavesALimitOfZeroOut(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(`{"type":"resume","last_id":"$"}`)
	})
	require.NoError(t, conn.Resume(t.Context(), "$", 0))
}

func TestDevelopmentConnectionIsAskedFor(t *testing.T) {
	t.Parallel()
	url := serve(t, func(p peer) {
		p.expect(`{"type":"hello","token":"secret","direct":true}`)
		p.send(welcome)
		p.gone()
	})
	conn, err := client.Dial(t.Context(), url, client.Options{Token: "secret", Direct: true})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestRefusedHelloIsACloseErrorWithoutTheToken(t *testing.T) {
	t.Parallel()
	url := serve(t, func(p peer) {
		p.read()
		p.close(wire.CloseAuth, wire.ReasonAuth)
	})
	_, err := client.Dial(t.Context(), url, client.Options{Token: "secret"})
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, wire.CloseAuth, closed.Code)
	require.Equal(t, wire.ReasonAuth, closed.Reason)
	require.False(t, closed.Retryable())
	require.NotContains(t, err.Error(), "secret")
}

func TestFirstFrameThatIsNoWelcomeFailsTheDial(t *testing.T) {
	t.Parallel()
	url := serve(t, func(p peer) {
		p.read()
		p.send(`{"type":"ping","id":"1"}`)
		p.gone()
	})
	_, err := client.Dial(t.Context(), url, client.Options{Token: "secret"})
	require.ErrorContains(t, err, "ping instead of welcome")
}

func TestServerThatDoesNotUpgrade(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := client.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), client.Options{})
	require.ErrorContains(t, err, "404 Not Found instead of opening a WebSocket")
}

func TestSilentServerFailsTheDialInTime(t *testing.T) {
	t.Parallel()
	url := serve(t, func(p peer) { p.gone() })
	_, err := client.Dial(t.Context(), url, client.Options{Token: "secret", Timeout: 100 * time.Millisecond})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The first frame may share a packet with the answer to the upgrade.
func TestFrameInTheSamePacketAsTheUpgrade(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := listener.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		request, err := http.ReadRequest(bufio.NewReader(nc))
		if err != nil {
			return
		}
		sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: %s\r\n\r\n\x81\x7e%c%c%s",
			base64.StdEncoding.EncodeToString(sum[:]), len(welcome)>>8, byte(len(welcome)), welcome)
		_, _ = nc.Read(make([]byte, 4096)) // the hello, or the end
	}()
	defer func() {
		listener.Close()
		<-done
	}()
	conn, err := client.Dial(t.Context(), "ws://"+listener.Addr().String(), client.Options{Token: "secret"})
	require.NoError(t, err)
	require.Equal(t, participant, conn.ParticipantID())
	<-done // the server has closed without a close frame
	_, err = conn.Receive(t.Context())
	require.Error(t, err)
	var closed *client.CloseError
	require.NotErrorAs(t, err, &closed)
	require.NoError(t, conn.Close())
}

func TestPingsAreAnsweredWhileNobodyReceives(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	conn := greeted(t, func(p peer) {
		p.send(`{"type":"ping","id":"41"}`, `{"type":"ping","id":"\"odd\""}`)
		p.expect(`{"type":"pong","id":"41"}`)
		p.expect(`{"type":"pong","id":"\"odd\""}`)
		close(answered)
		p.gone()
	})
	<-answered
	require.NoError(t, conn.Close())
}

func TestFramesReadBeforeTheCloseComeFirst(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.send(`{"type":"resume_complete","replayed":0}`, `{"type":"a.later.one","x":[1]}`)
		p.close(wire.ClosePolicy, string(wire.SeqRegression))
	})
	require.Equal(t, wire.ServerResumeComplete, receive(t, conn).Type)
	later := receive(t, conn)
	require.Equal(t, wire.ServerUnknown, later.Type)
	require.Equal(t, "a.later.one", later.TypeName)

	for range 2 { // the end is told as often as it is asked for
		_, err := conn.Receive(t.Context())
		var closed *client.CloseError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, wire.ClosePolicy, closed.Code)
		require.Equal(t, string(wire.SeqRegression), closed.Reason)
	}
	err := conn.SendRaw(t.Context(), []byte("{}"))
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed, "a send says why it failed, too")
}

func TestReceiveSurvivesTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	conn := greeted(t, func(p peer) {
		<-goOn
		p.send(`{"type":"resume_complete","replayed":0}`)
		p.gone()
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := conn.Receive(ended)
	require.ErrorIs(t, err, context.Canceled)
	close(goOn)
	require.Equal(t, wire.ServerResumeComplete, receive(t, conn).Type)
}

func TestWhatIsNoFrameEndsTheConnection(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.send(`{"type":"deliver","stream_id":5}`)
		p.gone()
	})
	_, err := conn.Receive(t.Context())
	require.ErrorIs(t, err, wire.ErrServerFrame)
}

func TestCloseWithAFullQueueAndTwice(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		for range 2 * wire.MaxQueueFrames {
			if p.ws.Write(p.ctx, websocket.MessageText, []byte(`{"type":"resume_complete","replayed":0}`)) != nil {
				return
			}
		}
		p.gone()
	})
	require.NoError(t, conn.Close())
	require.NoError(t, conn.Close())
	for {
		if _, err := conn.Receive(t.Context()); err != nil {
			require.ErrorIs(t, err, client.ErrClosed)
			return
		}
	}
}

// What the protocol's table says of each reason holds; one it does not know is
// judged by its code.
func TestWhichClosesMayBeRetried(t *testing.T) {
	t.Parallel()
	for _, known := range wire.Closes() {
		closed := client.CloseError{Code: known.Code, Reason: known.Reason}
		require.Equal(t, known.Again, closed.Retryable(), "%d %s", known.Code, known.Reason)
	}
	require.True(t, (&client.CloseError{Code: wire.ClosePolicy, Reason: wire.ReasonQueue}).Retryable())
	for code, want := range map[wire.CloseCode]bool{
		wire.CloseGoingAway: true, wire.CloseFrozen: true, wire.CloseQuota: true,
		wire.CloseAuth: false, wire.ClosePolicy: false, wire.CloseTooLarge: false,
		wire.CloseInvalidUTF8: false, wire.CloseProtocolError: false, wire.CloseUnsupportedData: false,
		3999: true, 1011: true,
	} {
		closed := client.CloseError{Code: code, Reason: "in other words"}
		require.Equal(t, want, closed.Retryable(), "%d", code)
	}
}

func TestWhichUpgradesMayBeRetried(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		200: false, 400: false, 401: false, 403: false, 404: false, 429: true, 500: true, 502: true, 503: true,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		_, err := client.Dial(t.Context(), server.URL, client.Options{Token: "secret"})
		server.Close()
		var upgrade *client.UpgradeError
		require.ErrorAs(t, err, &upgrade)
		require.Equal(t, status, upgrade.StatusCode)
		require.Equal(t, want, client.Retryable(err), "%d", status)
	}
}

func TestAServerThatCannotBeTrustedIsNotRetried(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	_, err := client.Dial(t.Context(), server.URL, client.Options{Token: "secret"})
	require.ErrorContains(t, err, "certificate")
	require.False(t, client.Retryable(err))

	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err = client.Dial(t.Context(), "wss"+strings.TrimPrefix(plain.URL, "http"), client.Options{Token: "secret"})
	require.Error(t, err)
	require.False(t, client.Retryable(err))

	plain.Close()
	_, err = client.Dial(t.Context(), plain.URL, client.Options{Token: "secret"})
	require.Error(t, err)
	require.True(t, client.Retryable(err), "nobody listens yet: %v", err)
}
