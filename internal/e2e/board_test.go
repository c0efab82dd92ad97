package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// boardEvent is what the events endpoint and every commit say of an event.
type boardEvent struct {
	Sequence int64  `json:"sequence"`
	EventID  string `json:"event_id"`
	CardID   string `json:"card_id"`
	Type     string `json:"type"`
	Revision int64  `json:"revision"`
	Content  []byte `json:"content"`
}

type boardPage struct {
	Events []boardEvent `json:"events"`
	More   bool         `json:"more"`
}

// sealedMembers are those that every event has, with these.
func sealedMembers(more map[string]any) map[string]any {
	more["content"] = base64.StdEncoding.EncodeToString([]byte("sealed secret"))
	more["signature"] = base64.StdEncoding.EncodeToString([]byte("signature"))
	return more
}

func newCard(t *testing.T, s *testkit.Relay, who testkit.Participant, kind string) boardEvent {
	t.Helper()
	return session[boardEvent](t, s, who, http.MethodPost, "/board/cards", sealedMembers(map[string]any{"kind": kind}), http.StatusCreated)
}

func comment(t *testing.T, s *testkit.Relay, who testkit.Participant, card string) boardEvent {
	t.Helper()
	return session[boardEvent](t, s, who, http.MethodPost, "/board/cards/"+card+"/events",
		sealedMembers(map[string]any{"type": "comment"}), http.StatusCreated)
}

func boardEvents(t *testing.T, s *testkit.Relay, who testkit.Participant) []boardEvent {
	t.Helper()
	return session[boardPage](t, s, who, http.MethodGet, "/board/events", nil, http.StatusOK).Events
}

// hinted demands the frame to be the event's hint and nothing more (RELAY: "It has no
// subject, details, option labels, comment or approval").
func hinted(t *testing.T, frame wire.ServerFrame, e boardEvent, replay bool) {
	t.Helper()
	require.JSONEq(t, fmt.Sprintf(`{"type":"board.update","stream_id":%q,"event_id":%q,"card_id":%q,"revision":%d,"replay":%t}`,
		frame.StreamID, e.EventID, e.CardID, e.Revision, replay), string(frame.Raw))
}

// RELAY, "Durable Board hints": a hint for every participant's inbox, live and by
// replay; the event can be read when it comes; new ideas come without.
func TestBoardHints(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "owner", "viewer", "agent")
	author, owner, viewer := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	idea := newCard(t, s, who[0], "idea")
	task := newCard(t, s, who[0], "task")
	first := owner.next()
	hinted(t, first, task, false)
	events := boardEvents(t, s, who[1])
	require.Equal(t, []string{idea.EventID, task.EventID}, []string{events[0].EventID, events[1].EventID}, "the idea is there, too")
	require.Equal(t, "sealed secret", string(events[1].Content))
	onIdea := comment(t, s, who[1], idea.CardID)
	hinted(t, owner.next(), onIdea, false)
	for _, p := range []*peer{author, viewer} {
		hinted(t, p.next(), task, false)
		hinted(t, p.next(), onIdea, false)
	}
	// Hints and envelopes share the inbox and its order.
	alive(t, author, owner)
	offline := resumeOnce(t, s, who[3], "0").rows
	require.Len(t, offline, 2)
	hinted(t, offline[0], task, true)
	hinted(t, offline[1], onIdea, true)
	again := resumeOnce(t, s, who[1], first.StreamID).rows
	require.Len(t, again, 2)
	hinted(t, again[0], onIdea, true)
	require.Equal(t, wire.ServerDeliver, again[1].Type)
}

// paused is a relay with a room, whose hints wait in the outbox from now on until resume is
// called.
func paused(t *testing.T, roles ...string) (s *testkit.Relay, who []testkit.Participant, resume func()) {
	t.Helper()
	database := pgtest.URL(t)
	s = unlimited(t, testkit.Database(database))
	who = room(t, s, roles...) // whose events would wait as well
	change := func(sql string) {
		conn, err := pgx.Connect(t.Context(), database)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	change("REVOKE DELETE ON outbox FROM relay_service")
	change("REVOKE UPDATE ON outbox FROM relay_service")
	change("REVOKE UPDATE (claimed_until, claims) ON outbox FROM relay_service")
	return s, who, func() {
		change("GRANT UPDATE (claimed_until, claims), DELETE ON outbox TO relay_service")
	}
}

// FAULTS K02, H08: who was removed between an event and its hint gets none, live or by
// replay, also after joining again; who joined meanwhile gets it.
func TestHintsGoToWhoIsEntitledNow(t *testing.T) {
	t.Parallel()
	s, who, resume := paused(t, "agent", "agent", "agent", "agent", "owner")
	before := online(t, s, who[1])
	var waiting []boardEvent
	for range 3 {
		waiting = append(waiting, newCard(t, s, who[0], "task"))
	}
	s.Remove(t, who[2])
	back := s.Join(t, who[0].Room, "agent")
	resume()
	for _, e := range waiting {
		hinted(t, before.next(), e, false)
	}
	for _, p := range []testkit.Participant{who[0], who[3], who[4], back} {
		rows := resumeOnce(t, s, p, "0").rows
		require.Len(t, rows, len(waiting))
		for i, e := range waiting {
			hinted(t, rows[i], e, true)
		}
	}
	refusedHello(t, s, client.Options{Token: who[2].Credential}, wire.CloseAuth)

	// Removed when its inbox has the hints: it gets them no more, nor as another participant.
	gone := online(t, s, back)
	s.Remove(t, back)
	gone.closed(wire.CloseAuth)
	refusedHello(t, s, client.Options{Token: back.Credential}, wire.CloseAuth)
	require.Empty(t, resumeOnce(t, s, s.Join(t, who[0].Room, "agent"), "0").rows)
}

// A relay that is killed after it answered loses no hint: it comes later, or twice.
func TestHintsSurviveAKilledRelay(t *testing.T) {
	t.Parallel()
	s := testkit.StartApart(t, testkit.EnvelopesPerSecond(1000))
	who := room(t, s, "agent", "owner")
	var committed []boardEvent
	for range 2 {
		card := newCard(t, s, who[0], "question")
		committed = append(committed, card)
		for range 10 {
			committed = append(committed, comment(t, s, who[0], card.CardID))
		}
		s.Kill()
		s.StartAgain(t)
	}
	require.Eventually(t, func() bool {
		seen := make(map[string]bool)
		for _, row := range resumeOnce(t, s, who[1], "0").rows {
			seen[row.EventID] = true
		}
		return len(seen) == len(committed)
	}, patience, poll)
	events := boardEvents(t, s, who[1])
	require.Len(t, events, len(committed))
	for i, e := range committed {
		require.Equal(t, int64(i+1), e.Sequence)
		require.Equal(t, e.EventID, events[i].EventID)
	}
}

// Hints reach participants on other nodes, whichever node the event was committed on.
func TestHintsAcrossNodes(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	who := room(t, one, "agent", "agent")
	a, b := online(t, one, who[0]), online(t, two, who[1])
	card := newCard(t, one, who[0], "decision")
	hinted(t, a.next(), card, false)
	hinted(t, b.next(), card, false)
	answer := comment(t, two, who[1], card.CardID)
	hinted(t, a.next(), answer, false)
	hinted(t, b.next(), answer, false)
}

// RELAY: "a replay gap in this cache never erases PostgreSQL Board events".
func TestBoardOutlivesItsInboxes(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "owner")
	p := online(t, s, who[1])
	card := newCard(t, s, who[0], "task")
	cursor := p.next().StreamID
	s.RestartWithout(t, filepath.Join("nats", "jetstream"))
	require.True(t, resumeOnce(t, s, who[1], cursor).resync)
	require.Equal(t, card.EventID, boardEvents(t, s, who[1])[0].EventID)
	later := comment(t, s, who[0], card.CardID)
	require.Equal(t, int64(2), later.Sequence)
	require.Eventually(t, func() bool { return len(resumeOnce(t, s, who[1], "0").rows) == 1 }, patience, poll)
}

// FAULTS E03: while NATS is away events commit, and their hints come when it is back.
func TestHintsWaitForNATS(t *testing.T) {
	t.Parallel()
	broker, one, two := pair(t)
	who := room(t, one, "agent", "owner")
	card := newCard(t, one, who[0], "task")
	require.Eventually(t, func() bool { return len(resumeOnce(t, one, who[1], "0").rows) == 1 }, patience, poll)
	broker.Stop()
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusServiceUnavailable }, patience, poll)
	status, body := ask(t, one, who[0], http.MethodPost, "/v1/sessions/"+who[0].Room+"/board/cards/"+card.CardID+"/events",
		sealedMembers(map[string]any{"type": "comment"}))
	broker.Start(t)
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusOK && two.Ready(t) == http.StatusOK }, patience, poll)
	want := 1
	if status == http.StatusCreated { // unless the node could not renew its lease, and accepted nothing
		want = 2
	} else {
		require.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	}
	require.Len(t, boardEvents(t, one, who[1]), want)
	require.Eventually(t, func() bool {
		seen := make(map[string]bool)
		for _, row := range onlineRows(t, one, who[1]) {
			seen[row.EventID] = true
		}
		return len(seen) == want
	}, patience, poll)
}

// onlineRows replays an inbox, also while connections are refused for a moment.
func onlineRows(t *testing.T, s *testkit.Relay, who testkit.Participant) []wire.ServerFrame {
	t.Helper()
	onlineAgain(t, s, who).leave()
	return resumeOnce(t, s, who, "0").rows
}
