package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// tcp is a connection of which a test writes every byte.
type tcp struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

const upgradeRequest = "GET /v1/relay HTTP/1.1\r\nHost: relay\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

func dialTCP(t *testing.T, s *testkit.Relay) *tcp {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &tcp{t: t, Conn: conn, r: bufio.NewReaderSize(conn, 1024)}
}

// upgraded is a connection that has said hello, if there is a credential.
func upgraded(t *testing.T, s *testkit.Relay, credential string) *tcp {
	t.Helper()
	c := dialTCP(t, s)
	c.write([]byte(upgradeRequest + "\r\n"))
	require.Equal(t, http.StatusSwitchingProtocols, c.status())
	if credential != "" {
		c.write(hello(credential))
		require.Equal(t, wire.ServerWelcome, c.next().Type)
	}
	return c
}

func (c *tcp) write(b []byte) {
	c.t.Helper()
	_, err := c.Write(b)
	require.NoError(c.t, err)
}

func (c *tcp) status() int {
	c.t.Helper()
	answer, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	_ = answer.Body.Close()
	return answer.StatusCode
}

// frame reads one WebSocket frame.
func (c *tcp) frame() ws.Frame {
	c.t.Helper()
	h, err := ws.ReadHeader(c.r)
	require.NoError(c.t, err)
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(c.r, f.Payload)
	require.NoError(c.t, err)
	return f
}

// next reads the next message that is no ping of the protocol.
func (c *tcp) next() wire.ServerFrame {
	c.t.Helper()
	for {
		f := c.frame()
		if f.Header.OpCode == ws.OpPong {
			continue
		}
		require.Equal(c.t, ws.OpText, f.Header.OpCode, "%q", f.Payload)
		got, err := wire.ParseServer(f.Payload)
		require.NoError(c.t, err)
		if got.Type != wire.ServerPing && got.Type != wire.ServerRoomEvent {
			return got
		}
	}
}

// closed reads up to the close frame, then up to the end of the connection.
func (c *tcp) closed(code wire.CloseCode) {
	c.t.Helper()
	for {
		f := c.frame()
		if f.Header.OpCode != ws.OpClose {
			continue
		}
		got, reason := ws.ParseCloseFrameData(f.Payload)
		require.Equal(c.t, code, wire.CloseCode(got), reason)
		_, err := c.r.ReadByte()
		require.ErrorIs(c.t, err, io.EOF)
		return
	}
}

func text(message []byte) []byte {
	return ws.MustCompileFrame(ws.MaskFrame(ws.NewTextFrame(message)))
}

func hello(credential string) []byte {
	return text(fmt.Appendf(nil, `{"type":"hello","token":%q}`, credential))
}

// What follows the request in the same packet is not lost, wherever it is cut
// (FAULTS A01).
func TestHelloInThePacketOfTheUpgrade(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent")[0]
	first := append([]byte(upgradeRequest+"\r\n"), hello(who.Credential)...)
	for n := range 25 {
		c := dialTCP(t, s)
		whole := bytes.Clone(first)
		cut := len(whole)
		if n > 0 { // in the frame's header, then further on
			cut = len(upgradeRequest) + 2 + n
		}
		c.write(whole[:cut])
		require.Equal(t, http.StatusSwitchingProtocols, c.status())
		c.write(whole[cut:])
		require.Equal(t, wire.ServerWelcome, c.next().Type)
		require.NoError(t, c.Close())
	}
}

// Ten envelopes in one segment get ten verdicts, also when the client shuts its side
// right after (FAULTS A03).
func TestEnvelopesInOneSegment(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	for _, shut := range []bool{false, true} {
		c := upgraded(t, s, who[0].Credential)
		c.write(text([]byte(`{"type":"resume","last_id":"$"}`)))
		require.Equal(t, wire.ServerResumeComplete, c.next().Type)
		p := &peer{t: t, who: who[0]}
		var segment []byte
		for n := range 10 {
			segment = append(segment, text(p.envelope("control", who[1].ID, fmt.Sprintf("%t-%d", shut, n)))...)
		}
		c.write(segment)
		if shut {
			half, ok := c.Conn.(*net.TCPConn)
			require.True(t, ok)
			require.NoError(t, half.CloseWrite())
		}
		for n := range 10 {
			got := c.next()
			require.Equal(t, wire.ServerQueued, got.Type)
			require.Equal(t, fmt.Sprintf("%t-%d", shut, n), got.ID)
		}
	}
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 20)
	s.RequireConnections(t, 1)
}

// Foreign web pages do not get a socket, and headers are bounded, on the listener as
// the relay sets it up (FAULTS A12, B08).
func TestUpgradeOnTheRealListener(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for name, c := range map[string]struct {
		headers string
		status  int
	}{
		"foreign origin":  {"Origin: https://evil.example\r\n", http.StatusForbidden},
		"own host":        {"Origin: http://" + s.Addr() + "\r\n", http.StatusForbidden},
		"null origin":     {"Origin: null\r\n", http.StatusForbidden},
		"one long header": {"X: " + strings.Repeat("x", 1<<20) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"many headers":    {strings.Repeat("X: y\r\n", 20_000), http.StatusRequestHeaderFieldsTooLarge},
		"two lengths":     {"Content-Length: 5\r\nContent-Length: 50\r\n", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialTCP(t, s)
			_, _ = conn.Write([]byte(upgradeRequest + c.headers + "\r\nGET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")) // may be cut off
			require.Equal(t, c.status, conn.status())
			if c.status != http.StatusForbidden {
				_, err := io.Copy(io.Discard, conn.r)
				if err != nil {
					require.ErrorContains(t, err, "reset", "the connection ends")
				}
			}
		})
	}
	require.NotNil(t, connect(t, s, room(t, s, "agent")[0]))
}

// NUL, wherever PostgreSQL could see it: a named refusal, or every byte kept; never
// unavailable and never a closed socket (FAULTS F06).
func TestNULInEnvelopes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	kept := 0
	for name, members := range map[string]string{
		"an unknown member":        `"ct":"QQ==","x":"a\u0000b"`,
		"the name of one":          `"ct":"QQ==","a\u0000b":1`,
		"a nested unknown member":  `"ct":"QQ==","x":{"\u0000":["\u0000"]}`,
		"kid":                      `"ct":"QQ==","kid":"\u0000AAAAAAAAAAAAAAAAAAAAA"`,
		"sig":                      `"ct":"QQ==","sig":"\u0000"`,
		"enc":                      `"ct":"QQ==","enc":"\u0000"`,
		"ct":                       `"ct":"\u0000"`,
		"hdr":                      `"ct":"QQ==","hdr":{"x":"\u0000"}`,
		"file.name":                `"ct":"QQ==","file":{"name":"a\u0000","mimeType":"b","sizeBytes":1}`,
		"U+FFFD, which is allowed": `"ct":"QQ==","x":"\ufffd"`,
	} {
		for _, kind := range []string{"message", "control"} {
			sent := p.envelopeWith(kind, p.who.Room, fmt.Sprintf("nul-%s-%d", kind, p.seq.Load()), members)
			p.send(sent)
			got := p.next()
			if got.Type == wire.ServerNack {
				require.Contains(t, []wire.Code{wire.InvalidEnvelope, wire.MalformedRequest}, got.Reason, name)
				require.NotContains(t, name, "unknown")
				continue
			}
			require.Equal(t, wire.ServerQueued, got.Type, "%s: %s", name, got.Raw)
			require.NotEqual(t, "file.name", name)
			require.Equal(t, string(sent), string(other.delivered().Envelope))
			kept++
		}
	}
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, kept)
	require.GreaterOrEqual(t, kept, 6)
}

// Integers are plain digits up to 2^53-1; nothing goes through a float (FAULTS F09).
func TestNumbersInEnvelopes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	p := online(t, s, who[0])
	file := func(id, size string) []byte {
		return p.envelopeWith("message", p.who.Room, id, `"ct":"QQ==","file":{"name":"a","mimeType":"b","sizeBytes":`+size+`}`)
	}
	for _, size := range []string{"0", "1", "699999", "700000"} {
		p.queued(file("size"+size, size), 1)
	}
	for _, size := range []string{
		"700001", "-1", "-0", "1.0", "7e5", "7.0e5", "0.5", "700000.0000000000001", "1e400", `"5"`,
		"true", "null", "00", "0x5", "+1", "18446744073709551616", "[1]", "{}",
	} {
		p.nacked(file("bad", size), wire.InvalidEnvelope)
	}
	sequence := func(q *peer, id, seq string) []byte {
		frame := q.envelopeWith("control", who[1].ID, id, `"ct":"QQ=="`)
		return bytes.Replace(frame, fmt.Appendf(nil, `"seq":%d`, q.seq.Load()), []byte(`"seq":`+seq), 1)
	}
	q := connect(t, s, who[0])
	for _, seq := range []string{"9007199254740992", "9007199254740993", "18446744073709551615", "18446744073709551616", "1.0", "1e3", "-1", `"1"`} {
		q.nacked(sequence(q, "over", seq), wire.InvalidEnvelope)
	}
	q.queued(sequence(q, "a", "9007199254740990"), 1)
	q.queued(sequence(q, "b", "9007199254740991"), 1)
	q.nacked(sequence(q, "c", "9007199254740991"), wire.SeqRegression)
	q.closed(wire.ClosePolicy)
}

// The same bytes on two connections at once: both senders are told the same places,
// and there is one row and one delivery for each recipient (FAULTS E06, E05 a).
func TestTwinsOfOneMessage(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	one, two, reader := connect(t, s, who[0]), connect(t, s, who[0]), online(t, s, who[1])
	const rounds = 60
	var all []string
	for n := range rounds {
		frame := one.envelope("message", one.who.Room, fmt.Sprintf("twin-%d", n))
		all = append(all, string(frame))
		var twins sync.WaitGroup
		for _, p := range []*peer{one, two} {
			twins.Go(func() { _ = p.conn.SendRaw(t.Context(), frame) })
		}
		twins.Wait()
		require.Equal(t, one.verdict(2), two.verdict(2))
		require.Equal(t, string(frame), string(reader.delivered().Envelope), "one delivery")
	}
	alone := connect(t, s, who[0])
	alone.queued([]byte(all[0]), 2)
	for _, p := range who[1:] {
		require.Equal(t, all, resumeOnce(t, s, p, "0").envelopes())
	}
}

// Rooms of every size up to the largest, and the largest envelope: one queued for each
// recipient, and the bytes in the inboxes. One more member is refused when it is
// added (FAULTS E04).
func TestLargestEnvelopeToLargeRooms(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func() []testkit.Option{
		"embedded": func() []testkit.Option { return nil },
		"external": func() []testkit.Option { return []testkit.Option{testkit.NATSURL(testkit.StartBroker(t).URL())} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Half a gigabyte of one envelope goes to disk while other tests do.
			database := pgtest.URL(t)
			s := unlimited(t, append(options(), testkit.InboxTimeout(patience), testkit.Database(database))...)
			who := room(t, s, "agent", "agent")
			sender := connect(t, s, who[0])
			for _, recipients := range []int{1, 2, store.MaxParticipants - 1} {
				if recipients >= len(who) {
					who = append(who, crowd(t, databaseOwner(t, database), who[0].Room, recipients-len(who))...)
					who = append(who, s.Join(t, who[0].Room, "agent"))
					s.Told(t, who[0].Room)
				}
				id := fmt.Sprintf("to-%d", recipients)
				fixed := len(sender.envelopeWith("message", sender.who.Room, id, padding(0)))
				sent := sender.envelopeWith("message", sender.who.Room, id, padding(wire.MaxMessage-fixed-1))
				ids := sender.queued(sent, recipients)
				for _, p := range []testkit.Participant{who[1], who[(recipients+1)/2], who[recipients]} {
					p.Credential = s.Mint(t, p, "session", time.Hour)
					rows := resumeOnce(t, s, p, "0").rows
					last := rows[len(rows)-1]
					require.Equal(t, ids[p.ID], last.StreamID)
					require.Equal(t, string(sent), string(last.Envelope))
				}
			}
			require.ErrorContains(t, s.TryJoin(t, who[0].Room, "agent"), "409")
			sender.queued(sender.envelope("message", sender.who.Room, "still"), store.MaxParticipants-1)
		})
	}
}

// crowd puts participants into the room that nobody is told of: as many events as there are
// pairs of them would take longer than what is tested. The relay knows of them when the next
// one joins.
func crowd(t *testing.T, db *pgx.Conn, room string, n int) []testkit.Participant {
	t.Helper()
	added, devices, ids := make([]testkit.Participant, n), make([]string, n), make([]string, n)
	for i := range added {
		devices[i], ids[i] = newID(t), newID(t)
		added[i] = testkit.Participant{Room: room, ID: ids[i]}
	}
	for _, insert := range []string{
		"INSERT INTO devices (tenant_id, id, kind, state) SELECT tenant_id, device, 'agent', 'ACTIVE'",
		"INSERT INTO participants (tenant_id, id, room_id, device_id, role) SELECT tenant_id, participant, rooms.id, device, 'agent'",
	} {
		_, err := db.Exec(t.Context(), insert+" FROM rooms, unnest($2::uuid[], $3::uuid[]) AS added (device, participant) WHERE rooms.id = $1", room, devices, ids)
		require.NoError(t, err)
	}
	return added
}

// noteLog keeps what a relay logs.
type noteLog struct {
	mu    sync.Mutex
	lines [][]byte
}

func (l *noteLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(line))
	return len(line), nil
}

// withText are the lines that contain a text.
func (l *noteLog) withText(text string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found [][]byte
	for _, line := range l.lines {
		if bytes.Contains(line, []byte(text)) {
			found = append(found, line)
		}
	}
	return found
}

// Text of an attacker makes few log lines, each one whole, without what was not
// escaped; tokens and payloads are in none (FAULTS K01).
func TestLogLinesOfAttackers(t *testing.T) {
	t.Parallel()
	var log noteLog
	s := testkit.Start(t, testkit.Logger(slog.New(slog.NewJSONHandler(&log, nil))), testkit.FramesPerSecond(100_000), testkit.EnvelopesPerSecond(100_000))
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	const attacks = 400
	began := time.Now()
	for n := range attacks {
		p.send(fmt.Appendf(nil, `{"type":"x%d\n[INFO] auth ok\u001b[2J\u2028%s"}`, n, strings.Repeat("é", n*25_000/attacks)))
		require.Equal(t, wire.UnknownFrame, p.next().Reason)
	}
	p.queued(p.envelopeWith("control", who[1].ID, "secret", `"ct":"c2VjcmV0LXBheWxvYWQ="`), 1)
	other.delivered()
	refusedHello(t, s, client.Options{Token: "not-" + who[0].Credential[4:]}, wire.CloseAuth)

	lines := log.withText("auth ok")
	require.NotEmpty(t, lines)
	require.LessOrEqual(t, float64(len(lines)), 5*(time.Since(began).Seconds()+2), "logged at a bounded rate")
	for _, line := range lines {
		require.True(t, json.Valid(line), "%q", line)
		require.Equal(t, 1, bytes.Count(line, []byte("\n")))
		require.NotContains(t, string(line), "\x1b")
		require.Less(t, len(line), 1000)
	}
	for _, secret := range []string{who[0].Credential, who[1].Credential, who[0].Credential[4:], "c2VjcmV0LXBheWxvYWQ="} {
		require.Empty(t, log.withText(secret), "a secret in the log")
	}
}
