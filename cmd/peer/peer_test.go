package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

const (
	participant = "01980000-0000-7000-8000-000000000001"
	session     = "01980000-0000-7000-8000-000000000002"
	other       = "01980000-0000-7000-8000-000000000003"
	hello       = `{"type":"hello","token":"secret","direct":false}`
	complete    = `{"type":"resume_complete","replayed":0}`
)

// relay is the server's end of these tests: one script per connection, in order.
type relay struct {
	t   *testing.T
	ctx context.Context
	ws  *websocket.Conn
}

func (r relay) failf(format string, values ...any) {
	r.t.Errorf(format, values...)
	panic(http.ErrAbortHandler)
}

func (r relay) read() string {
	_, got, err := r.ws.Read(r.ctx)
	if err != nil {
		r.failf("read: %v", err)
	}
	return string(got)
}

func (r relay) expect(message string) {
	if got := r.read(); got != message {
		r.failf("the client sent %s instead of %s", got, message)
	}
}

func (r relay) send(messages ...string) {
	for _, message := range messages {
		if err := r.ws.Write(r.ctx, websocket.MessageText, []byte(message)); err != nil {
			r.failf("write: %v", err)
		}
	}
}

func (r relay) close(code wire.CloseCode, reason string) {
	_ = r.ws.Close(websocket.StatusCode(code), reason)
}

func (r relay) gone() {
	for {
		if _, _, err := r.ws.Read(r.ctx); err != nil {
			return
		}
	}
}

// serve runs one script per connection, after its hello; a connection too many
// fails the test.
func serve(t *testing.T, scripts ...func(r relay)) (url string) {
	t.Helper()
	var mu sync.Mutex
	var running sync.WaitGroup
	running.Add(len(scripts))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		if len(scripts) == 0 {
			mu.Unlock()
			t.Error("the client connected once more")
			return
		}
		script := scripts[0]
		scripts = scripts[1:]
		mu.Unlock()
		defer running.Done()
		ws, err := websocket.Accept(w, request, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(2 * maxLine)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r := relay{t, ctx, ws}
		r.expect(hello)
		r.send(`{"type":"welcome","participant_id":"` + participant + `","session_id":"` + session + `"}`)
		script(r)
	}))
	t.Cleanup(func() {
		running.Wait()
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// outcome of one command line.
type outcome struct {
	code     int
	out, err string
}

func (o outcome) lines() []string { return strings.Split(strings.TrimSuffix(o.out, "\n"), "\n") }

func peer(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	t.Setenv("PEER_CREDENTIAL", "secret")
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code := run(ctx, args, console{in: strings.NewReader(stdin), out: &out, err: &errs, program: "peer"})
	require.NoError(t, ctx.Err())
	return outcome{code, out.String(), errs.String()}
}

func queued(id string, sequence int, to string) string {
	return fmt.Sprintf(`{"type":"queued","id":%q,"stream_id":"7-%d","to":%q}`, id, sequence, to)
}

func deliver(sequence int, replay bool) string {
	return fmt.Sprintf(`{"type":"deliver","stream_id":"7-%d","replay":%t,"envelope":{"id":"m%d"}}`, sequence, replay, sequence)
}

func TestWrongUseExitsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"shout"},
		{"raw", "send", "--count", "x"},
		{"raw", "send", "--count", "-1"},
		{"raw", "send", "--credential-file", "-", "-"},
		{"raw", "listen", "--after", "yesterday"},
		{"raw", "listen", "--limit", "501"},
		{"raw", "send", "--kind", "shout", "--count", "1"},
		{"raw", "send", "--count", "1", "envelopes.jsonl"},
		{"raw", "listen", "--url", "127.0.0.1:8787"},
		{"raw", "send", "--url", "ftp://127.0.0.1/v1/relay", "--count", "1"},
		{"raw", "template", "--url", "ws:///v1/relay"},
		{"raw", "send", "--count", "1", "--size", "65537"},
		{"raw", "template", "--size", "65537"},
		{"raw", "listen", "--timeout", "-1s"},
		{"send", "hello"},
		{"send", "--room", "lobby", "hello"},
		{"listen", "--room", "lobby"},
		{"listen", "--room", session, "--timeout", "-1s"},
		{"listen", "--room", session, "--exit-after", "-1"},
		{"poll", "--room", session, "--limit", "0"},
		{"poll", "--room", session, "--limit", "101"},
		{"export", "--room", "lobby"},
	} {
		got := peer(t, "", args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.err)
		require.Regexp(t, "(?m)^peer: see peer (raw )?((listen|send|template|poll|notice send|export) )?--help$", got.err, "%v", args)
		if len(args) > 1 {
			command := args[0]
			if command == "raw" {
				command += " " + args[1]
			}
			require.Contains(t, got.err, "peer: see peer "+command+" --help\n")
		}
		require.Empty(t, got.out)
	}
}

func TestAnAddressWithoutAPathMeansTheRelay(t *testing.T) {
	for given, want := range map[string]string{
		"ws://127.0.0.1:8787":                "ws://127.0.0.1:8787/v1/relay",
		"wss://relay.example/":               "wss://relay.example/v1/relay",
		"https://relay.example":              "https://relay.example/v1/relay",
		"wss://relay.example/there/v1/relay": "wss://relay.example/there/v1/relay",
	} {
		got, err := connection{URL: given}.address()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestACredentialIsNeeded(t *testing.T) {
	t.Setenv("PEER_CREDENTIAL", "")
	var out, errs bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"raw", "listen"}, console{in: strings.NewReader(""), out: &out, err: &errs, program: "peer"}))
	require.Contains(t, errs.String(), "--credential-file")
}

func TestHelpExitsWithZeroAndShowsAnExample(t *testing.T) {
	for _, command := range []string{"listen", "send", "template"} {
		got := peer(t, "", "raw", command, "--help")
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.out, "peer raw "+command+" --credential-file")
	}
}

func TestSendKeepsEveryByteOfALine(t *testing.T) {
	first, second := `{ "id" : "a\u0062",  "x":1.50}`, "\t{\"id\":\"m2\"} \r"
	url := serve(t, func(r relay) {
		r.expect(first)
		r.send(queued("ab", 1, other))
		r.expect(second)
		r.send(queued("m2", 2, other), queued("m2", 3, session))
		r.gone()
	})
	got := peer(t, first+"\n\n"+second+"\n", "raw", "send", "--url", url, "--json", "--rate", "0")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, []string{
		`{"verdict":"queued","id":"ab","to":"` + other + `","stream_id":"7-1"}`,
		`{"verdict":"queued","id":"m2","to":"` + other + `","stream_id":"7-2"}`,
		`{"verdict":"queued","id":"m2","to":"` + session + `","stream_id":"7-3"}`,
	}, got.lines())
}

func TestSendReadsAFileAndACredentialFile(t *testing.T) {
	folder := t.TempDir()
	envelopes, credential := filepath.Join(folder, "envelopes"), filepath.Join(folder, "credential")
	require.NoError(t, os.WriteFile(envelopes, []byte(`{"id":"m1"}`), 0o600))
	require.NoError(t, os.WriteFile(credential, []byte("secret\n"), 0o600))
	url := serve(t, func(r relay) {
		r.expect(`{"id":"m1"}`)
		r.send(queued("m1", 1, other))
		r.gone()
	})
	t.Setenv("PEER_CREDENTIAL", "another")
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"raw", "send", "--url", url, "--credential-file", credential, envelopes},
		console{in: strings.NewReader(""), out: &out, err: &errs, program: "peer"})
	require.Equal(t, exitOK, code, errs.String())
	require.Contains(t, out.String(), "queued  m1")
}

func TestANackOrASilenceExitsWithOne(t *testing.T) {
	url := serve(t, func(r relay) {
		r.expect(`{"id":"m1"}`)
		r.expect(`{"id":"m2"}`)
		r.expect(`{"id":"m3"}`)
		r.send(queued("m1", 1, other), queued("stranger", 2, other), `{"type":"nack","id":"m2","reason":"partial"}`)
		r.gone()
	})
	got := peer(t, "{\"id\":\"m1\"}\n{\"id\":\"m2\"}\n{\"id\":\"m3\"}\n",
		"raw", "send", "--url", url, "--json", "--rate", "0", "--timeout", "200ms")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, []string{
		`{"verdict":"queued","id":"m1","to":"` + other + `","stream_id":"7-1"}`,
		`{"verdict":"nack","id":"m2","reason":"partial"}`,
		`{"verdict":"none","id":"m3"}`,
	}, got.lines())
	require.Contains(t, got.err, "3 sent, 1 refused, 1 without an answer")
}

// A refusal that names no envelope must not be taken for another one's.
func TestALineWithoutIDGoesAlone(t *testing.T) {
	url := serve(t, func(r relay) {
		r.expect(`{"id":"m1"}`)
		r.send(queued("m1", 1, other))
		r.expect(`not JSON`)
		r.send(`{"type":"nack","reason":"invalid_envelope"}`)
		r.expect(`{"id":"m2"}`)
		r.send(queued("m2", 2, other))
		r.gone()
	})
	got := peer(t, "{\"id\":\"m1\"}\nnot JSON\n{\"id\":\"m2\"}", "raw", "send", "--url", url, "--json", "--rate", "0", "--recipients", "1")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, []string{
		`{"verdict":"queued","id":"m1","to":"` + other + `","stream_id":"7-1"}`,
		`{"verdict":"nack","id":"","reason":"invalid_envelope"}`,
		`{"verdict":"queued","id":"m2","to":"` + other + `","stream_id":"7-2"}`,
	}, got.lines())
}

func TestAClosedConnectionIsToldWithItsReason(t *testing.T) {
	url := serve(t, func(r relay) {
		r.expect(`{"id":"m1"}`)
		r.send(`{"type":"nack","id":"m1","reason":"wrong_sender"}`)
		r.close(wire.ClosePolicy, "wrong_sender")
	})
	got := peer(t, "{\"id\":\"m1\"}\n{\"id\":\"m2\"}", "raw", "send", "--url", url, "--rate", "1", "--timeout", "5s")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.out, "refused m1  wrong_sender: ")
	require.Contains(t, got.err, "1008 wrong_sender")
}

func TestTestEnvelopesAreValidAndAsLargeAsAsked(t *testing.T) {
	const count, size = 3, 2048
	sent := make(chan string, count)
	url := serve(t, func(r relay) {
		for i := range count {
			message := r.read()
			sent <- message
			var e envelope
			if err := json.Unmarshal([]byte(message), &e); err != nil {
				r.failf("%v", err)
			}
			r.send(queued(e.ID, i+1, other))
		}
		r.gone()
	})
	got := peer(t, "", "raw", "send", "--url", url, "--count", "3", "--to", other, "--kind", "control",
		"--size", "2048", "--gen", "4", "--rate", "0", "--recipients", "1")
	require.Equal(t, exitOK, got.code, got.err)
	for i := range count {
		message := <-sent
		require.Len(t, message, size)
		var frame wire.ClientFrame
		require.NoError(t, wire.ParseClient([]byte(message), &frame))
		require.Nil(t, frame.Envelope.Check())
		require.Equal(t, wire.KindControl, frame.Envelope.Kind)
		require.Equal(t, participant, string(frame.Envelope.From))
		require.Equal(t, session, string(frame.Envelope.SessionID))
		require.Equal(t, other, string(frame.Envelope.To))
		require.Equal(t, uint64(4), frame.Envelope.Gen)
		require.Equal(t, uint64(i+1), frame.Envelope.Seq)
	}
}

func TestPacing(t *testing.T) {
	url := serve(t, func(r relay) {
		for i := range 4 {
			r.read()
			r.send(queued(fmt.Sprint("m", i), i+1, other))
		}
		r.gone()
	})
	began := time.Now()
	got := peer(t, "{\"id\":\"m0\"}\n{\"id\":\"m1\"}\n{\"id\":\"m2\"}\n{\"id\":\"m3\"}", "raw", "send", "--url", url, "--rate", "20", "--recipients", "1")
	require.Equal(t, exitOK, got.code, got.err)
	require.GreaterOrEqual(t, time.Since(began), 3*time.Second/20)
}

func TestTemplateCanBeSent(t *testing.T) {
	url := serve(t, func(r relay) { r.gone() })
	got := peer(t, "", "raw", "template", "--url", url)
	require.Equal(t, exitOK, got.code, got.err)
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient([]byte(strings.TrimSpace(got.out)), &frame))
	require.Nil(t, frame.Envelope.Check())
	require.Equal(t, session, string(frame.Envelope.To))
}

func TestListenPagesThroughTheReplay(t *testing.T) {
	url := serve(t, func(r relay) {
		r.expect(`{"type":"resume","last_id":"0","limit":2}`)
		r.send(deliver(3, true), deliver(9, false), deliver(4, true), `{"type":"resume_complete","replayed":2,"more":true}`)
		r.expect(`{"type":"resume","last_id":"7-4","limit":2}`)
		r.send(deliver(6, true), deliver(9, true), `{"type":"resume_complete","replayed":2}`)
		r.gone()
	})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "0", "--limit", "2", "--no-follow", "--json")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, []string{
		deliver(3, true), deliver(9, false), deliver(4, true), deliver(6, true),
		`{"type":"resume_complete","replayed":2}`,
	}, got.lines(), "the row that came live is not shown again")
}

func TestListenGoesOnFromTheLastReplayRow(t *testing.T) {
	url := serve(t,
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-2"}`)
			r.send(deliver(3, true), deliver(8, false))
			_ = r.ws.CloseNow() // in mid-replay
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-3"}`)
			r.send(deliver(5, true), deliver(8, true), complete, deliver(9, false))
			r.close(wire.CloseGoingAway, wire.ReasonShutdown)
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-8"}`)
			r.send(deliver(9, true), `{"type":"resync_required","oldest_id":null}`, deliver(10, true), complete)
			r.gone()
		})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "7-2", "--json", "--exit-after", "5")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, []string{
		deliver(3, true), deliver(8, false), deliver(5, true), complete, deliver(9, false),
		`{"type":"resync_required","oldest_id":null}`, deliver(10, true),
	}, got.lines())
	require.Contains(t, got.err, "1001 shutting_down; connecting again in")
}

// "$" shows nothing old, and still misses nothing that comes while the connection
// is lost.
func TestListenFromNowOnKnowsWhereItBegan(t *testing.T) {
	url := serve(t,
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.send(deliver(3, true), deliver(4, true), `{"type":"resume_complete","replayed":2}`)
			_ = r.ws.CloseNow()
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-4"}`)
			r.send(deliver(5, true), complete)
			r.gone()
		})
	got := peer(t, "", "raw", "listen", "--url", url, "--json", "--exit-after", "1")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, []string{complete, deliver(5, true)}, got.lines())
}

func TestListenFromNowOnInAnEmptyInbox(t *testing.T) {
	url := serve(t,
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.send(complete)
			_ = r.ws.CloseNow()
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.send(deliver(1, true), complete)
			r.gone()
		})
	got := peer(t, "", "raw", "listen", "--url", url, "--json", "--exit-after", "1")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, []string{complete, deliver(1, true)}, got.lines())
}

// An older relay has no marker: what it sends is shown and moves no cursor.
func TestListenToARelayWithoutTheMarker(t *testing.T) {
	unmarked := `{"type":"deliver","stream_id":"7-5","envelope":{"id":"m5"}}`
	url := serve(t,
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-2"}`)
			r.send(unmarked)
			_ = r.ws.CloseNow()
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"7-2"}`)
			r.send(unmarked, `{"type":"deliver","stream_id":"7-6","envelope":{"id":"m6"}}`)
			r.gone()
		})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "7-2", "--exit-after", "2")
	require.Equal(t, exitOK, got.code, got.err)
	require.Len(t, got.lines(), 2)
	require.Contains(t, got.lines()[0], "7-5")
	require.Contains(t, got.lines()[1], "7-6")
}

func TestListenStopsWhereAnotherAttemptIsNoUse(t *testing.T) {
	for code, reason := range map[wire.CloseCode]string{
		wire.CloseAuth:   wire.ReasonAuth,
		wire.ClosePolicy: string(wire.WrongSender),
	} {
		url := serve(t, func(r relay) {
			r.read()
			r.close(code, reason)
		})
		got := peer(t, "", "raw", "listen", "--url", url)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.err, fmt.Sprintf("%d %s", code, reason))
	}
}

// What the protocol says may be tried again is, also where the code is 1008.
func TestListenComesBackAfterAFullQueue(t *testing.T) {
	url := serve(t,
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.close(wire.ClosePolicy, wire.ReasonQueue)
		},
		func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.send(deliver(1, true), complete)
			r.gone()
		})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "0", "--exit-after", "1")
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.err, "1008 queue_full; connecting again in")
}

// answers is a server that opens no WebSocket. It counts how often it was asked.
func answers(t *testing.T, status int) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http"), asked
}

func TestListenGivesUpOnAnAnswerThatStaysTheSame(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound} {
		url, asked := answers(t, status)
		got := peer(t, "", "raw", "listen", "--url", url)
		require.Equal(t, exitFailed, got.code)
		require.Equal(t, int32(1), asked.Load())
		require.Contains(t, got.err, fmt.Sprintf("the server answered %d %s", status, http.StatusText(status)))
	}
}

func TestListenGivesUpOnACertificateThatCannotBeVerified(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	got := peer(t, "", "raw", "listen", "--url", server.URL)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "certificate")
	require.NotContains(t, got.err, "again")
}

// Without following there is an end, and success means a whole replay.
func TestNoFollowEndsWithoutAReplayToo(t *testing.T) {
	url, asked := answers(t, http.StatusServiceUnavailable)
	got := peer(t, "", "raw", "listen", "--url", url, "--no-follow", "--timeout", "1200ms")
	require.Equal(t, exitFailed, got.code)
	require.Greater(t, asked.Load(), int32(1))
	require.Contains(t, got.err, "the replay was not complete within 1.2s")
	require.Contains(t, got.err, "last: connect: the server answered 503")

	c := rawListenCommand{NoFollow: true}
	ctx, cancel := c.bound(t.Context())
	defer cancel()
	_, bounded := ctx.Deadline()
	require.True(t, bounded)
}

func TestNoFollowInterruptedFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	url := serve(t, func(r relay) {
		r.read()
		interrupt()
		r.gone()
	})
	var out, errs bytes.Buffer
	code := run(ctx, []string{"raw", "listen", "--url", url, "--credential", "secret", "--no-follow"}, console{in: strings.NewReader(""), out: &out, err: &errs, program: "peer"})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "before the replay was complete")
}

func TestNoFollowDoesNotSayThatItListens(t *testing.T) {
	url := serve(t, func(r relay) {
		r.read()
		r.send(deliver(1, true), `{"type":"resume_complete","replayed":1}`)
		r.gone()
	})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "0", "--no-follow")
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.err, "the replay is complete; 1 rows")
	require.NotContains(t, got.err, "listening")
}

func TestATestNoticeExpires(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	notice, err := newEnvelope(session, participant, session, "notice", 0, 1, 800, now)
	require.NoError(t, err)
	require.Len(t, notice, 800)
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient(notice, &frame))
	require.Nil(t, frame.Envelope.Check())
	require.Contains(t, string(notice), `"expires_at":1790003600000`)
	message, err := newEnvelope(session, participant, session, "message", 0, 1, 800, now)
	require.NoError(t, err)
	require.NotContains(t, string(message), "expires_at")
}

// Somebody who typed only `peer raw send` is told what it waits for; a script is not.
func TestSendSaysThatItReadsFromATerminal(t *testing.T) {
	device, err := os.Open("/dev/zero") // a character device, as a terminal is
	require.NoError(t, err)
	defer device.Close()
	url := serve(t, func(r relay) { r.gone() })
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"raw", "send", "--url", url, "--credential", "secret"}, console{in: device, out: &out, err: &errs, program: "peer"})
	require.Equal(t, exitFailed, code, "a line without an end")
	require.Contains(t, errs.String(), "reading envelopes from standard input, one JSON object a line")

	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.False(t, interactive(null))
	require.False(t, interactive(strings.NewReader("")))
}

func TestListenEndsInTimeAndSaysHowFarItCame(t *testing.T) {
	url := serve(t, func(r relay) {
		r.read()
		r.send(complete, deliver(1, false))
		r.gone()
	})
	got := peer(t, "", "raw", "listen", "--url", url, "--exit-after", "2", "--timeout", "300ms")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "1 rows within 300ms")
}

func TestLineBreaksInsideAnEnvelopeDoNotBreakTheLine(t *testing.T) {
	url := serve(t, func(r relay) {
		r.read()
		r.send("{\"type\":\"deliver\",\"stream_id\":\"7-1\",\"replay\":true,\"envelope\":{\r\n\"id\":\n\"m1\"}}")
		r.gone()
	})
	got := peer(t, "", "raw", "listen", "--url", url, "--after", "0", "--json", "--exit-after", "1")
	require.Equal(t, exitOK, got.code, got.err)
	require.Len(t, got.lines(), 1)
	require.True(t, json.Valid([]byte(got.lines()[0])))
}

func TestPausesGrowAndAreSpread(t *testing.T) {
	l := listening{pause: firstPause}
	backoff := l.backoff()
	limit := firstPause
	for range 12 {
		pause, stop := backoff.Next()
		require.False(t, stop)
		require.GreaterOrEqual(t, pause, limit*(100-jitter)/100)
		require.LessOrEqual(t, pause, limit*(100+jitter)/100)
		limit = min(2*limit, longestPause)
	}
}

// People see what happened in a room in words, with control characters quoted; programs
// see the frame.
func TestListenShowsRoomEvents(t *testing.T) {
	frames := []string{
		`{"type":"room.event","stream_id":"7-3","replay":true,"event_id":"e1","event":"room_joined","room_id":"r","participant_id":"p","device_id":"d","role":"agent","version":4}`,
		`{"type":"room.event","stream_id":"7-4","replay":true,"event_id":"e2","event":"commit","room_id":"r","participant_id":"p","version":5,"epoch":0}`,
		`{"type":"room.event","stream_id":"7-5","replay":true,"event_id":"e3","event":"topic\u001b","room_id":"r","version":6,"topic":1}`,
		`{"type":"room.event","stream_id":"7-6","replay":true,"event_id":"e4","event":"prekeys_low","room_id":"r","version":6,"remaining":9}`,
	}
	listen := func(args ...string) outcome {
		url := serve(t, func(r relay) {
			r.expect(`{"type":"resume","last_id":"0"}`)
			r.send(append(frames, `{"type":"resume_complete","replayed":4}`)...)
			r.gone()
		})
		got := peer(t, "", append([]string{"raw", "listen", "--url", url, "--after", "0", "--exit-after", "4"}, args...)...)
		require.Equal(t, exitOK, got.code, got.err)
		return got
	}
	shown := listen().lines()
	require.Len(t, shown, 4)
	for i, want := range []string{
		`replay 7-3  room.event "room_joined" participant "p" device "d" role "agent" room version 4`,
		`replay 7-4  room.event "commit" participant "p" epoch 0 room version 5`,
		`replay 7-5  room.event "topic\x1b" room version 6`,
		`replay 7-6  room.event "prekeys_low" remaining 9 room version 6`,
	} {
		require.True(t, strings.HasSuffix(shown[i], want), shown[i])
	}
	require.Equal(t, frames, listen("--json").lines())
}
