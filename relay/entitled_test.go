package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// oneInbox is a store and inboxes with one room and one inbox, whose roster a test
// changes while rows are on their way: between a whole relay's parts that moment is too
// short to hit.
type oneInbox struct {
	nothing

	identity store.Identity
	rows     []inbox.Row

	duringBounds func() // once: what happens after the bounds were read and before they are known

	revoked atomic.Bool   // the credential is not valid any more
	unheld  atomic.Bool   // the lease is lost
	appends atomic.Int64  // into history
	holding chan struct{} // not nil: appends wait until it is closed
	mu      sync.Mutex    // guards the following
	roster  store.Roster
	broken  error
}

func (o *oneInbox) ValidCredentials(_ context.Context, _ uuid.UUID, ids []uuid.UUID) ([]uuid.UUID, error) {
	if o.revoked.Load() {
		ids = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return ids, o.broken
}

func (o *oneInbox) Held() bool { return !o.unheld.Load() }

func (o *oneInbox) AppendMessage(context.Context, store.Message) (store.Appended, error) {
	n := o.appends.Add(1)
	if o.holding != nil {
		<-o.holding
	}
	return store.Appended{Duplicate: n > 1}, nil
}

func (o *oneInbox) Write(_ context.Context, m inbox.Message) ([]wire.StreamID, error) {
	return make([]wire.StreamID, len(m.To)), nil
}

func (o *oneInbox) Complete(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	return o.Write(ctx, m)
}

func (o *oneInbox) Authenticate(context.Context, store.TokenHash) (store.Identity, error) {
	return o.identity, nil
}

func (o *oneInbox) Roster(context.Context, uuid.UUID, uuid.UUID) (store.Roster, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.roster, o.broken
}

// say is what look-ups answer from now on.
func (o *oneInbox) say(err error, participants ...uuid.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken, o.roster = err, store.Roster{Room: store.Room{PrivateMessages: store.PrivateAllowed}}
	for _, id := range participants {
		o.roster.Participants = append(o.roster.Participants, store.Participant{ID: id, Role: store.RoleAgent})
	}
}

func (o *oneInbox) Join(context.Context, uuid.UUID) error { return nil }
func (o *oneInbox) Leave(uuid.UUID)                       {}

func (o *oneInbox) Bounds(context.Context, uuid.UUID, uuid.UUID) (inbox.Bounds, error) {
	n := uint64(len(o.rows))
	if during := o.duringBounds; during != nil {
		o.duringBounds = nil
		during()
	}
	return inbox.Bounds{Incarnation: 1, StreamFirst: 1, StreamLast: n, Oldest: min(n, 1), Newest: n}, nil
}

func (o *oneInbox) Read(_ context.Context, _, _ uuid.UUID, after, upto uint64, limit int) ([]inbox.Row, bool, error) {
	rows := o.rows[after:upto]
	if len(rows) > limit {
		return rows[:limit], true, nil
	}
	return rows, false, nil
}

// socket keeps the frames that a connection would send.
type socket struct {
	frames chan string
	closed chan wire.CloseCode
}

func (s *socket) Send(msg []byte) bool {
	s.frames <- string(msg)
	return true
}

func (s *socket) Queue(msg []byte) bool               { return s.Send(msg) }
func (s *socket) Flush()                              {}
func (s *socket) Close(code wire.CloseCode, _ string) { s.closed <- code }
func (s *socket) Authenticated()                      {}
func (s *socket) WhenDrained(_ int, f func())         { go f() }
func (s *socket) RemoteAddr() netip.AddrPort          { return netip.AddrPort{} }

func (s *socket) next(t *testing.T) wire.ServerFrame {
	t.Helper()
	select {
	case text := <-s.frames:
		frame, err := wire.ParseServer([]byte(text))
		require.NoError(t, err)
		return frame
	case <-time.After(10 * time.Second):
		require.Fail(t, "no frame")
		return wire.ServerFrame{}
	}
}

// ended is the code of the close that must come.
func (s *socket) ended(t *testing.T) wire.CloseCode {
	t.Helper()
	select {
	case code := <-s.closed:
		return code
	case <-time.After(10 * time.Second):
		require.Fail(t, "the connection stays open")
		return 0
	}
}

const hint = `{"event_id":"01890a5d-ac96-774b-bcce-b302099a8057","card_id":"01890a5d-ac96-774b-bcce-b302099a8058","revision":%d}`

func hintRow(sequence uint64) inbox.Row {
	return inbox.Row{ID: wire.StreamID{Incarnation: 1, Sequence: sequence}, Kind: inbox.RowBoardUpdate, Payload: fmt.Appendf(nil, hint, sequence)}
}

func envelopeRow(sequence uint64) inbox.Row {
	return inbox.Row{ID: wire.StreamID{Incarnation: 1, Sequence: sequence}, Kind: inbox.RowEnvelope, Payload: fmt.Appendf(nil, `{"n":%d}`, sequence)}
}

// greetedSocket is a connection of the one participant.
func greetedSocket(t *testing.T, r *Relay) (*socket, Peer) {
	t.Helper()
	s := &socket{frames: make(chan string, 100), closed: make(chan wire.CloseCode, 1)}
	p := r.Open(s)
	token, _ := store.NewToken()
	p.Message(wire.AppendHello(nil, token, false))
	require.Equal(t, wire.ServerWelcome, s.next(t).Type)
	return s, p
}

func newOneInbox(t *testing.T, rows ...inbox.Row) (*oneInbox, *Relay) {
	t.Helper()
	o := &oneInbox{rows: rows, identity: store.Identity{
		Tenant: uuid.New(), Room: uuid.New(), Participant: uuid.New(), Credential: uuid.New(), Role: store.RoleAgent,
		Kind: store.CredentialSession, ExpiresAt: time.Now().Add(time.Hour),
	}}
	r, err := New(Config{Store: o, Inboxes: o, Lease: o, Presence: new(noPresence), PingInterval: time.Hour})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return o, r
}

func changeOf(o *oneInbox) cluster.Change {
	return cluster.Change{Tenant: o.identity.Tenant, Room: o.identity.Room}
}

func liveOf(o *oneInbox, row inbox.Row) *inbox.Live {
	return &inbox.Live{
		Room: o.identity.Room, Kind: row.Kind, Payload: row.Payload,
		Copies: []inbox.Copy{{Participant: o.identity.Participant, ID: row.ID}},
	}
}

// RELAY, "The relay rechecks the current participant roster before a live push or a
// replay"; FAULTS K02: hints of someone who is in the room no more are left out of a
// replay, which counts what it sent.
func TestReplayLooksAtTheRosterForHints(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t, hintRow(1), envelopeRow(2), hintRow(3))
	s, p := greetedSocket(t, r)
	o.say(nil, uuid.New()) // somebody else is there
	p.Message(wire.AppendResume(nil, "0", 0))
	require.Equal(t, wire.ServerDeliver, s.next(t).Type)
	complete := s.next(t)
	require.Equal(t, wire.ServerResumeComplete, complete.Type, "%s", complete.Raw)
	require.Equal(t, 1, complete.Replayed)

	o.say(nil, o.identity.Participant)
	require.NoError(t, r.Apply(t.Context(), changeOf(o)))
	p.Message(wire.AppendResume(nil, "0", 0))
	for i, want := range []wire.ServerType{wire.ServerBoardUpdate, wire.ServerDeliver, wire.ServerBoardUpdate} {
		got := s.next(t)
		require.Equal(t, want, got.Type)
		require.Equal(t, wire.StreamID{Incarnation: 1, Sequence: uint64(i + 1)}.String(), got.StreamID)
	}
	require.Equal(t, 3, s.next(t).Replayed)
}

// The same, where the roster cannot be looked up: the connection closes without
// resume_complete, and nothing was pushed on a guess.
func TestReplayWithoutARosterEnds(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t, hintRow(1))
	s, p := greetedSocket(t, r)
	o.say(errors.New("down"))
	p.Message(wire.AppendResume(nil, "0", 0))
	require.Equal(t, wire.CloseGoingAway, s.ended(t))
	require.Empty(t, s.frames)
}

// The same for a live push: with a roster that is known here, and with one that must be
// looked up first.
func TestLivePushLooksAtTheRosterForHints(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"known": true, "looked up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, r := newOneInbox(t)
			s, p := greetedSocket(t, r)
			o.say(nil, uuid.New())
			p.Message(wire.AppendResume(nil, "$", 0))
			require.Equal(t, wire.ServerResumeComplete, s.next(t).Type)
			if known {
				_, err := r.hub.room(o.identity.Room).currentRoster(t.Context(), o)
				require.NoError(t, err)
			}
			o.rows = append(o.rows, hintRow(1), envelopeRow(2))
			for _, row := range o.rows {
				r.Deliver(liveOf(o, row))
			}
			require.Equal(t, wire.ServerDeliver, s.next(t).Type, "the envelope, and no hint before it")

			o.say(nil, o.identity.Participant)
			require.NoError(t, r.Apply(t.Context(), changeOf(o)))
			o.rows = append(o.rows, hintRow(3))
			r.Deliver(liveOf(o, o.rows[2]))
			got := s.next(t)
			require.Equal(t, wire.ServerBoardUpdate, got.Type)
			require.Equal(t, wire.ReplayLive, got.Replay)
			require.Equal(t, "1-3", got.StreamID)
		})
	}
}
