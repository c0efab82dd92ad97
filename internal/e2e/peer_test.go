package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// patience bounds every wait of these tests; none of them measures time.
const (
	patience = time.Minute
	poll     = 10 * time.Millisecond
)

// peer is a participant's connection in a test.
type peer struct {
	t    *testing.T
	conn *client.Conn
	who  testkit.Participant
	seq  atomic.Uint64

	events []wire.ServerFrame // room events that came while something else was waited for
}

// connect says hello and does not resume.
func connect(t *testing.T, s *testkit.Relay, who testkit.Participant) *peer {
	t.Helper()
	conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: who.Credential})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: t, conn: conn, who: who}
}

// online connects and follows the live feed.
func online(t *testing.T, s *testkit.Relay, who testkit.Participant) *peer {
	t.Helper()
	p := connect(t, s, who)
	require.Empty(t, p.resume("$", 0).rows)
	return p
}

// envelope builds a valid envelope with the next seq of this connection.
func (p *peer) envelope(kind, to, id string) []byte {
	return p.envelopeWith(kind, to, id, `"ct":"`+base64.StdEncoding.EncodeToString([]byte(id))+`"`)
}

func (p *peer) envelopeWith(kind, to, id, members string) []byte {
	return fmt.Appendf(nil,
		`{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":%q,"gen":1,"seq":%d,"ts":%d,"nonce":"bm9uY2U=",%s}`,
		id, p.who.Room, p.who.ID, to, kind, p.seq.Add(1), time.Now().UnixMilli(), members)
}

func (p *peer) send(frame []byte) {
	p.t.Helper()
	require.NoError(p.t, p.conn.SendRaw(p.t.Context(), frame))
}

// next returns the next frame that is no ping and no room event.
func (p *peer) next() wire.ServerFrame {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	frame, err := p.other(ctx)
	require.NoError(p.t, err)
	return frame
}

// receive returns the next frame, or how the connection ended; a socket that stays
// open and silent fails the test.
func (p *peer) receive() (wire.ServerFrame, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	frame, err := p.other(ctx)
	require.NotErrorIs(p.t, err, context.DeadlineExceeded, "an open socket stays silent")
	return frame, err
}

// other returns the next frame that is no room event, and keeps those for event.
func (p *peer) other(ctx context.Context) (wire.ServerFrame, error) {
	for {
		frame, err := p.conn.Receive(ctx)
		if err != nil || frame.Type != wire.ServerRoomEvent {
			return frame, err
		}
		p.events = append(p.events, frame)
	}
}

// event returns the next room event, which comes before anything else that was not read.
func (p *peer) event() wire.ServerFrame {
	p.t.Helper()
	if len(p.events) > 0 {
		first := p.events[0]
		p.events = p.events[1:]
		return first
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	frame, err := p.conn.Receive(ctx)
	require.NoError(p.t, err)
	require.Equal(p.t, wire.ServerRoomEvent, frame.Type, "frame %s", frame.Raw)
	return frame
}

// queued sends and expects one queued per recipient, which it returns by recipient.
func (p *peer) queued(frame []byte, recipients int) map[string]string {
	p.t.Helper()
	p.send(frame)
	return p.verdict(recipients)
}

func (p *peer) verdict(recipients int) map[string]string {
	p.t.Helper()
	ids := make(map[string]string)
	for range recipients {
		got := p.next()
		require.Equal(p.t, wire.ServerQueued, got.Type, "frame %s", got.Raw)
		require.NotContains(p.t, ids, got.To)
		ids[got.To] = got.StreamID
	}
	return ids
}

// nacked sends and expects one nack with that reason, which names the envelope where its
// id can be read.
func (p *peer) nacked(frame []byte, reason wire.Code) wire.ServerFrame {
	p.t.Helper()
	p.send(frame)
	got := p.next()
	require.Equal(p.t, wire.ServerNack, got.Type, "frame %s", got.Raw)
	require.Equal(p.t, reason, got.Reason)
	var sent wire.ClientFrame
	if wire.ParseClient(frame, &sent) == nil {
		require.Equal(p.t, string(sent.Envelope.ID), got.ID)
	}
	return got
}

// delivered expects one live envelope and returns it.
func (p *peer) delivered() wire.ServerFrame {
	p.t.Helper()
	got := p.next()
	require.Equal(p.t, wire.ServerDeliver, got.Type, "frame %s", got.Raw)
	require.Equal(p.t, wire.ReplayLive, got.Replay)
	return got
}

// resumed is what one resume brought.
type resumed struct {
	resync bool
	oldest string
	rows   []wire.ServerFrame // replay: true, without room events
	events []wire.ServerFrame // room events of replay: true
	live   []wire.ServerFrame // replay: false, before resume_complete
	more   bool
}

func (r resumed) envelopes() []string {
	var all []string
	for _, row := range r.rows {
		all = append(all, string(row.Envelope))
	}
	return all
}

// resume asks and collects until resume_complete, and checks what must always hold:
// rising order, the right count.
func (p *peer) resume(cursor string, limit int) resumed {
	p.t.Helper()
	require.NoError(p.t, p.conn.Resume(p.t.Context(), cursor, limit))
	return p.completed()
}

// joined returns the stream id of the event that tells a participant of its own joining:
// those of who joined before come before it.
func joined(t *testing.T, s *testkit.Relay, who testkit.Participant) string {
	t.Helper()
	p := connect(t, s, who)
	defer p.leave()
	p.events = p.resume("0", 0).events
	for {
		if frame := p.event(); frame.RoomEvent.Event == wire.RoomJoined && frame.RoomEvent.ParticipantID == who.ID {
			return frame.StreamID
		}
	}
}

// resumeOnce resumes on a connection of its own.
func resumeOnce(t *testing.T, s *testkit.Relay, who testkit.Participant, cursor string) resumed {
	t.Helper()
	p := connect(t, s, who)
	defer p.leave()
	return p.resume(cursor, 0)
}

func (p *peer) leave() {
	p.t.Helper()
	require.NoError(p.t, p.conn.Close())
}

func (p *peer) completed() resumed {
	p.t.Helper()
	var r resumed
	var last wire.StreamID
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		got, err := p.conn.Receive(ctx)
		require.NoError(p.t, err)
		switch got.Type {
		case wire.ServerResyncRequired:
			require.False(p.t, r.resync, "one resync_required a resume")
			require.Empty(p.t, r.rows, "resync_required comes before the rows")
			r.resync, r.oldest = true, got.OldestID
		case wire.ServerDeliver, wire.ServerBoardUpdate, wire.ServerRoomEvent:
			p.takeRow(&r, got, &last)
		case wire.ServerResumeComplete:
			require.Equal(p.t, len(r.rows)+len(r.events), got.Replayed, "replayed counts the replay rows")
			r.more = got.More
			return r
		default:
			require.Fail(p.t, "unexpected frame", "%s", got.Raw)
		}
	}
}

// takeRow takes a row that came during a resume.
func (p *peer) takeRow(r *resumed, got wire.ServerFrame, last *wire.StreamID) {
	p.t.Helper()
	switch {
	case got.Replay == wire.ReplayStored:
		id := streamID(p.t, got.StreamID)
		require.Positive(p.t, id.Compare(*last), "replay rows rise: %s after %s", id, last)
		*last = id
		if got.Type == wire.ServerRoomEvent {
			r.events = append(r.events, got)
			return
		}
		r.rows = append(r.rows, got)
	case got.Type == wire.ServerRoomEvent:
		p.events = append(p.events, got)
	default:
		r.live = append(r.live, got)
	}
}

// closed expects the connection to end with this code, whatever comes before.
func (p *peer) closed(code wire.CloseCode) (before []wire.ServerFrame) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		frame, err := p.conn.Receive(ctx)
		if err == nil {
			before = append(before, frame)
			continue
		}
		requireClose(p.t, err, code)
		return before
	}
}

func requireClose(t *testing.T, err error, code wire.CloseCode) {
	t.Helper()
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, code, closed.Code, "close: %v", err)
}

// refusedHello expects hello to be closed with this code.
func refusedHello(t *testing.T, s *testkit.Relay, options client.Options, code wire.CloseCode) {
	t.Helper()
	conn, err := client.Dial(t.Context(), s.RelayURL(), options)
	if err == nil {
		_ = conn.Close()
	}
	require.Error(t, err)
	requireClose(t, err, code)
}

// alive proves that a connection still serves: an envelope to the other one arrives.
func alive(t *testing.T, from, to *peer) {
	t.Helper()
	id := fmt.Sprintf("alive-%d", from.seq.Load())
	sent := from.envelope("control", to.who.ID, id)
	require.Len(t, from.queued(sent, 1), 1)
	require.Equal(t, string(sent), string(to.delivered().Envelope))
}

func streamID(t *testing.T, text string) wire.StreamID {
	t.Helper()
	id, ok := wire.ParseStreamID([]byte(text))
	require.True(t, ok, "stream id %q", text)
	return id
}

func padding(n int) string { return `"ct":"` + strings.Repeat("A", n) + `"` }
