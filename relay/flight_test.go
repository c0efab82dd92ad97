package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// toRoom is an envelope to the whole room.
func (o *oneInbox) toRoom(id string, seq int) []byte {
	return fmt.Appendf(nil, `{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":"message","gen":1,"seq":%d,"ts":1,"nonce":"","ct":""}`,
		id, o.identity.Room, o.identity.Participant, o.identity.Room, seq)
}

// DESIGN section 6, "Freshness": a node that has lost its lease, and has not heard of it
// yet, accepts nothing, lets nobody in and delivers nothing (FAULTS H06).
func TestNothingWithoutALease(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t)
	o.say(nil, o.identity.Participant, uuid.New())
	s, p := greetedSocket(t, r)
	p.Message(wire.AppendResume(nil, "$", 0))
	require.Equal(t, wire.ServerResumeComplete, s.next(t).Type)
	p.Message(o.toRoom("before", 1))
	require.Equal(t, wire.ServerQueued, s.next(t).Type)

	o.unheld.Store(true)
	p.Message(o.toRoom("after", 2))
	refused := s.next(t)
	require.Equal(t, wire.ServerNack, refused.Type)
	require.Equal(t, wire.Unavailable, refused.Reason)
	require.EqualValues(t, 1, o.appends.Load(), "nothing was stored")

	late := &socket{frames: make(chan string, 1), closed: make(chan wire.CloseCode, 1)}
	token, _ := store.NewToken()
	r.Open(late).Message(wire.AppendHello(nil, token, false))
	require.Equal(t, wire.CloseQuota, late.ended(t))
	require.Empty(t, late.frames)

	r.Deliver(&inbox.Live{
		Room: o.identity.Room, Kind: inbox.RowEnvelope, Payload: []byte(`{}`),
		Copies: []inbox.Copy{{Participant: o.identity.Participant, ID: wire.StreamID{Incarnation: 1, Sequence: 1}}},
	})
	require.Equal(t, wire.CloseGoingAway, s.ended(t))
	require.Empty(t, s.frames)
}

// FAULTS H06 (d): who was removed and goes on sending before this node is told of it is cut off as
// it will be then.
func TestARemovedSenderIsCutOff(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t)
	o.say(nil, uuid.New(), uuid.New())
	s, p := greetedSocket(t, r)
	p.Message(o.toRoom("after", 1))
	refused := s.next(t)
	require.Equal(t, wire.ServerNack, refused.Type)
	require.Equal(t, wire.NotAMember, refused.Reason)
	require.Equal(t, wire.CloseAuth, s.ended(t))
	require.Zero(t, o.appends.Load())
}

// DESIGN section 6, "Freshness": a change is answered only when every envelope that was
// admitted before it has its verdict.
func TestChangesWaitForEnvelopesInFlight(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t)
	o.say(nil, o.identity.Participant, uuid.New())
	o.holding = make(chan struct{})
	s, p := greetedSocket(t, r)
	go p.Message(o.toRoom("in-flight", 1))
	require.Eventually(t, func() bool { return o.appends.Load() == 1 }, 10*time.Second, time.Millisecond)
	applied := make(chan error, 1)
	go func() { applied <- r.Apply(context.WithoutCancel(t.Context()), changeOf(o)) }()
	select {
	case err := <-applied:
		require.Fail(t, "applied while an envelope was in flight", "error: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(o.holding)
	require.NoError(t, <-applied)
	require.Equal(t, wire.ServerQueued, s.next(t).Type, "its verdict came before")
}

// Of two connections that send one id at once the second waits until the first has its
// verdict, and is then completed, not written again (FAULTS E05 f).
func TestTwinsAreStoredOneAfterTheOther(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t)
	o.say(nil, o.identity.Participant, uuid.New())
	o.holding = make(chan struct{})
	one, first := greetedSocket(t, r)
	two, second := greetedSocket(t, r)
	go first.Message(o.toRoom("twin", 1))
	require.Eventually(t, func() bool { return o.appends.Load() == 1 }, 10*time.Second, time.Millisecond)
	go second.Message(o.toRoom("twin", 1))
	rm := r.hub.room(o.identity.Room)
	require.Eventually(t, func() bool {
		rm.mu.Lock()
		defer rm.mu.Unlock()
		return rm.sending["twin"] != nil // it waits
	}, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 1, o.appends.Load())
	close(o.holding)
	require.Equal(t, wire.ServerQueued, one.next(t).Type)
	require.Equal(t, wire.ServerQueued, two.next(t).Type)
	require.EqualValues(t, 2, o.appends.Load())
}

// DESIGN section 6, "Freshness": credentials are asked for again now and then, so that a
// connection whose revocation was announced to nobody ends; a database that does not answer
// ends none (FAULTS H06).
func TestCredentialsAreCheckedAgain(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t)
	s, _ := greetedSocket(t, r)
	r.Resync()
	require.Empty(t, s.closed)
	o.revoked.Store(true)
	o.say(errors.New("down"))
	r.Resync()
	require.Empty(t, s.closed, "not known")
	o.say(nil)
	r.Resync()
	require.Equal(t, wire.CloseAuth, s.ended(t))
}
