package client_test

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

func comment(text string) client.BoardContent { return client.BoardContent{Comment: text} }

// card makes one as the owner.
func (m *meeting) card(t *testing.T, subject string) client.BoardCommit {
	t.Helper()
	made, err := m.owner.CreateCard(t.Context(), m.id, boardseal.Decision, client.BoardContent{
		Subject: subject, Details: "grüß dich\n<&>", Options: []string{"yes", "no"},
	})
	require.NoError(t, err)
	return made
}

// A card from its making to its end, as its author, others, and the relay see it.
func TestACardsLife(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	made := m.card(t, "Shall we ship?")
	require.Equal(t, client.BoardCommit{Sequence: 1, EventID: made.EventID, CardID: made.CardID, Revision: 1}, made)
	card, err := m.agent.Card(t.Context(), m.id, made.CardID)
	require.NoError(t, err)
	require.NoError(t, card.Err)
	require.Equal(t, &client.BoardContent{Subject: "Shall we ship?", Details: "grüß dich\n<&>", Options: []string{"yes", "no"}}, card.Content)
	require.Equal(t, []string{made.EventID, m.ownerID, m.ownerID}, []string{card.ContentEvent, card.ContentAuthor, card.Author})

	change := func(d *client.Device, what client.BoardEventType, revision uint64, content client.BoardContent) client.BoardCommit {
		t.Helper()
		commit, err := d.ChangeCard(t.Context(), m.id, client.BoardChange{
			CardID: made.CardID, Type: what, Revision: revision, Basis: card.ContentEvent, Content: content,
		})
		require.NoError(t, err)
		return commit
	}
	change(m.agent, boardseal.OptionChosen, 1, client.BoardContent{Option: "yes", Comment: "all green"})
	updated := change(m.agent, boardseal.Updated, 2, client.BoardContent{Subject: "Shall we ship today?"})
	_, err = m.owner.ChangeCard(t.Context(), m.id, client.BoardChange{
		CardID: made.CardID, Type: boardseal.Approval, Revision: 2, Content: client.BoardContent{Approval: client.Approved},
	})
	require.ErrorIs(t, err, &wire.Error{Code: wire.Conflict}, "of a revision that is over")
	card, err = m.owner.Card(t.Context(), m.id, made.CardID)
	require.NoError(t, err)
	require.Equal(t, []string{updated.EventID, m.agentID}, []string{card.ContentEvent, card.ContentAuthor})
	change(m.owner, boardseal.Approval, card.Revision, client.BoardContent{Approval: client.Approved})
	change(m.owner, boardseal.Closed, 4, client.BoardContent{})
	last := change(m.agent, boardseal.Comment, 0, comment("done"))
	require.EqualValues(t, 6, last.Sequence)
	require.EqualValues(t, 6, last.Revision)

	m.set(one)
	events := gather(t, m.agent.BoardEvents(t.Context(), m.id, 0))
	require.Equal(t, 6, m.count(http.MethodGet, "/board/events"), "a page for each")
	require.Equal(t, events[3:], gather(t, m.agent.BoardEvents(t.Context(), m.id, 3)))
	for i, want := range []client.BoardEvent{
		{Type: boardseal.Created, Author: m.ownerID, Content: &client.BoardContent{Subject: "Shall we ship?", Details: "grüß dich\n<&>", Options: []string{"yes", "no"}}},
		{Type: boardseal.OptionChosen, Author: m.agentID, Basis: made.EventID, Content: &client.BoardContent{Option: "yes", Comment: "all green"}},
		{Type: boardseal.Updated, Author: m.agentID, Basis: made.EventID, Content: &client.BoardContent{Subject: "Shall we ship today?"}},
		{Type: boardseal.Approval, Author: m.ownerID, Basis: updated.EventID, Content: &client.BoardContent{Approval: client.Approved}},
		{Type: boardseal.Closed, Author: m.ownerID, Basis: updated.EventID, Content: &client.BoardContent{}},
		{Type: boardseal.Comment, Author: m.agentID, Basis: updated.EventID, Content: &client.BoardContent{Comment: "done"}},
	} {
		got := events[i]
		require.ElementsMatch(t, []string{m.ownerID, m.agentID}, got.Readers)
		want.Sequence, want.Revision, want.CardID, want.Kind = uint64(i+1), uint64(i+1), made.CardID, boardseal.Decision
		want.EventID, want.CreatedAt, want.Readers = got.EventID, got.CreatedAt, got.Readers
		require.Equal(t, want, got)
	}
	cards := gather(t, m.agent.Cards(t.Context(), m.id, client.OldestFirst))
	require.Len(t, cards, 1)
	require.True(t, cards[0].Closed)
	require.EqualValues(t, 6, cards[0].Revision)
	require.Equal(t, "Shall we ship today?", cards[0].Content.Subject)
	_, err = m.agent.Card(t.Context(), m.id, uuid.NewString())
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	_, err = m.agent.Card(t.Context(), m.id, "../events")
	require.ErrorIs(t, err, client.ErrID)

	var kept struct {
		Events []struct{ Content []byte }
	}
	m.Call(t, http.MethodGet, "/v1/sessions/"+m.id+"/board/events", nil, &kept)
	for _, e := range kept.Events {
		require.NotContains(t, string(e.Content), "ship", "what the relay keeps")
		require.NotContains(t, string(e.Content), "done")
	}
}

// Those who are in the room when an event is made can read it, also when its author has left;
// those who join later cannot.
func TestWhoCanReadTheBoard(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	away := m.device(t, client.KindAgent, nil)
	awayID := m.add(t, away, client.RoleAgent)
	early := m.card(t, "early")
	_, err := m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: early.CardID, Type: boardseal.Comment, Content: comment("bye")})
	require.NoError(t, err)
	require.NoError(t, m.agent.LeaveRoom(t.Context(), m.id))
	late := m.device(t, client.KindAgent, nil)
	lateID := m.add(t, late, client.RoleAgent)
	m.card(t, "later")

	events := gather(t, away.BoardEvents(t.Context(), m.id, 0))
	require.Len(t, events, 3)
	require.Equal(t, "bye", events[1].Content.Comment, "of one who has left")
	require.ElementsMatch(t, []string{m.ownerID, m.agentID, awayID}, events[1].Readers)
	events = gather(t, late.BoardEvents(t.Context(), m.id, 0))
	require.ErrorIs(t, events[0].Err, boardseal.ErrNotForUs)
	require.NotContains(t, events[0].Readers, lateID)
	require.ErrorIs(t, events[1].Err, client.ErrUnknownSender, "it had left before")
	require.Nil(t, events[0].Content)
	require.Nil(t, events[1].Content)
	require.NoError(t, events[2].Err)
	require.Equal(t, "later", events[2].Content.Subject)
	cards := gather(t, late.Cards(t.Context(), m.id, client.NewestFirst))
	require.Equal(t, "later", cards[0].Content.Subject)
	require.ErrorIs(t, cards[1].Err, boardseal.ErrNotForUs)
	require.Equal(t, early.EventID, cards[1].ContentEvent)
}

// A device without keys is told of, and nothing is sealed for it; nor for one whose keys have
// changed.
func TestNothingIsSealedForKeysThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	keyless := m.Join(t, m.id, "viewer")
	require.Equal(t, []string{keyless.ID}, m.card(t, "one").Withheld)
	other := m.device(t, client.KindAgent, nil)
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) {
			for _, p := range listed(body["participants"]) {
				if p["role"] == "agent" {
					showAs(p, other.Keys())
				}
			}
		}
	})
	made := m.card(t, "two")
	require.Equal(t, []string{m.agentID, keyless.ID}, made.Withheld)
	m.behave()
	card, err := m.agent.Card(t.Context(), m.id, made.CardID)
	require.NoError(t, err)
	require.ErrorIs(t, card.Err, boardseal.ErrNotForUs)
	card, err = m.owner.Card(t.Context(), m.id, made.CardID)
	require.NoError(t, err)
	require.Equal(t, "two", card.Content.Subject)
}

// listed are the objects of a member.
func listed(value any) (rows []map[string]any) {
	items, _ := value.([]any)
	for _, item := range items {
		if row, ok := item.(map[string]any); ok {
			rows = append(rows, row)
		}
	}
	return rows
}

// showAs puts other keys into a row.
func showAs(row map[string]any, keys identity.Keys) {
	row["identity_key"], row["agreement_key"] = text(keys.Identity[:]), text(keys.Agreement[:])
	row["agreement_signature"] = text(keys.AgreementSignature[:])
}

func text(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// What a relay may do to events is found out: nothing is shown as another one than its author
// signed (RELAY: "verify signed content before acting").
func TestAHostileRelayAndTheBoard(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	first, second := m.card(t, "first"), m.card(t, "second")
	_, err := m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: first.CardID, Type: boardseal.Comment, Content: comment("a")})
	require.NoError(t, err)
	_, err = m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: second.CardID, Type: boardseal.Comment, Content: comment("b")})
	require.NoError(t, err)
	_, err = m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{
		CardID: first.CardID, Type: boardseal.Updated, Revision: 2, Content: client.BoardContent{Subject: "first, mended"},
	})
	require.NoError(t, err)
	require.Len(t, gather(t, m.owner.BoardEvents(t.Context(), m.id, 0)), 5)

	swap := func(rows []map[string]any, a, b int, names ...string) {
		for _, name := range names {
			rows[a][name], rows[b][name] = rows[b][name], rows[a][name]
		}
	}
	meddle := func(change func(rows []map[string]any)) []client.BoardEvent {
		t.Helper()
		m.set(func(m *meddler) {
			m.answer = func(_ *http.Request, body map[string]any) {
				if rows := listed(body["events"]); len(rows) == 5 {
					change(rows)
				}
			}
		})
		return gather(t, m.owner.BoardEvents(t.Context(), m.id, 0))
	}
	for name, c := range map[string]struct {
		change func(rows []map[string]any)
		want   error
		of     []int
	}{
		"card ids":  {func(r []map[string]any) { swap(r, 2, 3, "card_id") }, boardseal.ErrContext, []int{2, 3}},
		"event ids": {func(r []map[string]any) { swap(r, 2, 3, "event_id") }, client.ErrBoardEvent, []int{2, 3}},
		"contents":  {func(r []map[string]any) { swap(r, 2, 3, "content") }, boardseal.ErrSignature, []int{2, 3}},
		"contents and signatures": {
			func(r []map[string]any) { swap(r, 0, 1, "content", "signature") },
			boardseal.ErrContext,
			[]int{0, 1},
		},
		"a content again": {func(r []map[string]any) {
			r[3]["content"], r[3]["signature"], r[3]["card_id"] = r[2]["content"], r[2]["signature"], r[2]["card_id"]
		}, client.ErrBoardEvent, []int{3}},
		"a type":               {func(r []map[string]any) { r[2]["type"] = "approval" }, client.ErrBoardEvent, []int{2}},
		"a kind":               {func(r []map[string]any) { r[0]["kind"] = "idea" }, client.ErrBoardEvent, []int{0}},
		"a revision":           {func(r []map[string]any) { r[4]["revision"] = 4 }, client.ErrBoardEvent, []int{4}},
		"the revision of made": {func(r []map[string]any) { r[0]["revision"] = 2 }, client.ErrBoardEvent, []int{0}},
		"an author":            {func(r []map[string]any) { r[2]["author"] = m.ownerID }, boardseal.ErrSignature, []int{2}},
		"nobody":               {func(r []map[string]any) { r[2]["author"] = uuid.NewString() }, client.ErrUnknownSender, []int{2}},
		"no content":           {func(r []map[string]any) { delete(r[2], "content") }, boardseal.ErrFormat, []int{2}},
		"other bytes":          {func(r []map[string]any) { r[2]["content"] = text([]byte("sealed")) }, boardseal.ErrFormat, []int{2}},
	} {
		events := meddle(c.change)
		for i, e := range events {
			refused := false
			for _, at := range c.of {
				refused = refused || at == i
			}
			if refused {
				require.ErrorIs(t, e.Err, c.want, "%s %d", name, i)
				require.Nil(t, e.Content, "%s %d", name, i)
			} else {
				require.NoError(t, e.Err, "%s %d", name, i)
			}
		}
	}
	for name, change := range map[string]func(rows []map[string]any){
		"a gap":     func(r []map[string]any) { r[4]["sequence"] = 6 },
		"no order":  func(r []map[string]any) { swap(r, 2, 3, "sequence") },
		"no event":  func(r []map[string]any) { r[2]["event_id"] = "x" },
		"no number": func(r []map[string]any) { r[2]["revision"] = -1 },
	} {
		m.set(func(m *meddler) {
			m.answer = func(_ *http.Request, body map[string]any) {
				if rows := listed(body["events"]); len(rows) > 0 {
					change(rows)
				}
			}
		})
		require.ErrorIs(t, failure(t, m.owner.BoardEvents(t.Context(), m.id, 0)), client.ErrAnswer, name)
	}
	m.behave()

	// The relay tells the keys of somebody else for the author.
	other := m.device(t, client.KindAgent, nil)
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) {
			for _, p := range listed(body["participants"]) {
				showAs(p, other.Keys())
			}
		}
	})
	events := gather(t, m.owner.BoardEvents(t.Context(), m.id, 0))
	require.NoError(t, events[0].Err, "one's own")
	require.ErrorIs(t, events[2].Err, client.ErrKeysChanged)
	require.Nil(t, events[2].Content)
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) {
			for _, p := range listed(body["participants"]) {
				p["agreement_signature"] = text(make([]byte, 64))
			}
		}
	})
	require.ErrorIs(t, gather(t, m.owner.BoardEvents(t.Context(), m.id, 0))[2].Err, identity.ErrKeys)
}

// A card says itself which event its content is of.
func TestAHostileRelayAndCards(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	first, second := m.card(t, "first"), m.card(t, "second")
	_, err := m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{
		CardID: first.CardID, Type: boardseal.Updated, Revision: 1, Content: client.BoardContent{Subject: "mended"},
	})
	require.NoError(t, err)
	_, err = m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: first.CardID, Type: boardseal.Comment, Content: comment("a")})
	require.NoError(t, err)
	var kept struct {
		Events []struct{ Content, Signature string }
	}
	m.Call(t, http.MethodGet, "/v1/sessions/"+m.id+"/board/events", nil, &kept)
	for name, c := range map[string]struct {
		change func(row map[string]any)
		want   error
	}{
		"a comment": {func(r map[string]any) {
			r["content"], r["signature"] = kept.Events[3].Content, kept.Events[3].Signature
		}, client.ErrBoardEvent},
		"of another card": {func(r map[string]any) {
			r["content"], r["signature"] = kept.Events[1].Content, kept.Events[1].Signature
		}, boardseal.ErrContext},
		"another signature":   {func(r map[string]any) { r["signature"] = kept.Events[0].Signature }, boardseal.ErrSignature},
		"of a later revision": {func(r map[string]any) { r["revision"] = 1 }, client.ErrBoardEvent},
		"no content":          {func(r map[string]any) { r["content"] = "" }, boardseal.ErrFormat},
	} {
		m.set(func(m *meddler) {
			m.answer = func(r *http.Request, body map[string]any) {
				if strings.HasSuffix(r.URL.Path, first.CardID) {
					c.change(body)
				}
			}
		})
		card, err := m.owner.Card(t.Context(), m.id, first.CardID)
		require.NoError(t, err)
		require.ErrorIs(t, card.Err, c.want, name)
		require.Nil(t, card.Content, name)
	}
	for name, value := range map[string]any{"kind": "idea", "author": m.agentID} {
		m.set(func(m *meddler) {
			m.answer = func(_ *http.Request, body map[string]any) {
				for _, row := range listed(body["cards"]) {
					row[name] = value
				}
			}
		})
		cards := gather(t, m.owner.Cards(t.Context(), m.id, client.OldestFirst))
		require.ErrorIs(t, cards[1].Err, client.ErrBoardEvent, name)
		require.Equal(t, second.CardID, cards[1].CardID)
	}
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) { body["card_id"] = second.CardID }
	})
	_, err = m.owner.Card(t.Context(), m.id, first.CardID)
	require.ErrorIs(t, err, client.ErrAnswer)
}

// What is sent again after a lost answer is the same event; where no answer comes at all, the
// caller knows which one to look for.
func TestALostAnswerCommitsAnEventOnce(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	lost := 0
	m.set(func(m *meddler) {
		m.lose = func(r *http.Request) bool {
			loses := r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/board/") && lost == 0
			if loses {
				lost++
			}
			return loses
		}
	})
	made := m.card(t, "once")
	require.Equal(t, 2, m.count(http.MethodPost, "/board/cards"))
	require.EqualValues(t, 1, made.Sequence)
	m.behave()

	ctx, cancel := context.WithCancel(t.Context())
	m.set(func(m *meddler) {
		m.lose = func(r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/events") {
				cancel() // there is no time to ask again
			}
			return strings.HasSuffix(r.URL.Path, "/events")
		}
	})
	unknown, err := m.agent.ChangeCard(ctx, m.id, client.BoardChange{CardID: made.CardID, Type: boardseal.Comment, Content: comment("hello")})
	require.Error(t, err)
	m.behave()
	events := gather(t, m.owner.BoardEvents(t.Context(), m.id, 0))
	require.Len(t, events, 2)
	require.Equal(t, unknown.EventID, events[1].EventID)

	for name, value := range map[string]any{
		"event_id": uuid.NewString(), "card_id": uuid.NewString(), "author": m.ownerID, "type": "closed", "sequence": 0, "revision": 1,
	} {
		m.set(func(m *meddler) { m.answer = func(_ *http.Request, body map[string]any) { replace(body, name, value) } })
		_, err := m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: made.CardID, Type: boardseal.Comment, Content: comment("x")})
		require.ErrorIs(t, err, client.ErrAnswer, name)
	}
}

// replace changes the answer to an event.
func replace(body map[string]any, name string, value any) {
	if body["sequence"] != nil {
		body[name] = value
	}
}

// The cursor is the caller's to move, outlives the device, and knows what was handled.
func TestTheBoardsCursor(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	dir := filepath.Join(t.TempDir(), "reader")
	reader, err := client.EnrollDevice(t.Context(), dir, client.Enrollment{
		RelayURL: m.url, Invite: m.Invite(t, "human", true).Token, Kind: client.KindHuman, Label: "reader",
	}, client.DeviceOptions{})
	require.NoError(t, err)
	_, err = reader.PublishKeys(t.Context())
	require.NoError(t, err)
	m.add(t, reader, client.RoleViewer)
	made := m.card(t, "one")
	for _, text := range []string{"a", "b", "c"} {
		_, err := m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: made.CardID, Type: boardseal.Comment, Content: comment(text)})
		require.NoError(t, err)
	}
	at := func(want uint64) {
		t.Helper()
		cursor, err := reader.BoardCursor(m.id)
		require.NoError(t, err)
		require.Equal(t, want, cursor)
	}
	at(0)
	events := gather(t, reader.BoardEvents(t.Context(), m.id, 0))
	at(0)
	require.NoError(t, reader.MoveBoardCursor(m.id, events[:3]...))
	at(3)
	require.NoError(t, reader.MoveBoardCursor(m.id, events[0]))
	at(3)
	require.NoError(t, reader.Close())
	reader, err = client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	at(3)
	require.Equal(t, events[3:], gather(t, reader.BoardEvents(t.Context(), m.id, 3)))

	// The relay shows an event again, at a later sequence.
	var all struct{ Events []map[string]any }
	m.Call(t, http.MethodGet, "/v1/sessions/"+m.id+"/board/events", nil, &all)
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) {
			if rows := listed(body["events"]); len(rows) == 1 {
				again := maps.Clone(all.Events[1])
				again["sequence"] = rows[0]["sequence"]
				body["events"] = []any{again}
			}
		}
	})
	again := gather(t, reader.BoardEvents(t.Context(), m.id, 3))
	require.ErrorIs(t, again[0].Err, client.ErrBoardEvent)
	require.Nil(t, again[0].Content)
	m.behave()
	require.Equal(t, events, gather(t, reader.BoardEvents(t.Context(), m.id, 0)), "looking back is no replay")

	require.ErrorIs(t, failure(t, reader.BoardEvents(t.Context(), m.id, 5)), client.ErrBoardCursor, "of a relay that was restored")
	require.NoError(t, reader.ResetBoardCursor(m.id))
	at(0)
	require.Equal(t, events, gather(t, reader.BoardEvents(t.Context(), m.id, 0)))
	require.ErrorIs(t, reader.MoveBoardCursor("x", events...), client.ErrID)
}

func TestWhoIsNotInTheRoomHasNoBoard(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	made := m.card(t, "one")
	admin := m.device(t, client.KindHuman, nil)
	_, err := admin.CreateCard(t.Context(), m.id, boardseal.Task, client.BoardContent{Subject: "x"})
	require.ErrorIs(t, err, client.ErrNotMember)
	require.ErrorIs(t, failure(t, admin.BoardEvents(t.Context(), m.id, 0)), client.ErrNotMember)
	viewer := m.device(t, client.KindAgent, nil)
	m.add(t, viewer, client.RoleViewer)
	_, err = viewer.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: made.CardID, Type: boardseal.Comment, Content: comment("x")})
	require.ErrorIs(t, err, &wire.Error{Code: wire.Forbidden})
	_, err = m.agent.ChangeCard(t.Context(), m.id, client.BoardChange{
		CardID: made.CardID, Type: boardseal.Approval, Revision: 1, Content: client.BoardContent{Approval: client.Approved},
	})
	require.ErrorIs(t, err, &wire.Error{Code: wire.Forbidden}, "agents do not approve")
	_, err = m.owner.ArchiveRoom(t.Context(), m.id)
	require.NoError(t, err)
	_, err = m.owner.ChangeCard(t.Context(), m.id, client.BoardChange{CardID: made.CardID, Type: boardseal.Comment, Content: comment("x")})
	require.ErrorIs(t, err, &wire.Error{Code: wire.RoomIsArchived})
	require.Len(t, gather(t, m.agent.BoardEvents(t.Context(), m.id, 0)), 1, "members read on")
}

// What cannot be on the Board is refused before the relay is asked.
func TestContentOfTheBoard(t *testing.T) {
	t.Parallel()
	d := newScripted(t).device(filepath.Join(t.TempDir(), "device"))
	long := strings.Repeat("ß", client.MaxSubject+1)
	for name, c := range map[string]struct {
		of      client.BoardEventType
		content client.BoardContent
	}{
		"no subject":             {boardseal.Updated, client.BoardContent{Details: "x"}},
		"two lines":              {boardseal.Updated, client.BoardContent{Subject: "a\nb"}},
		"a separator":            {boardseal.Updated, client.BoardContent{Subject: "a\u2028b"}},
		"a long subject":         {boardseal.Updated, client.BoardContent{Subject: long}},
		"no UTF-8":               {boardseal.Updated, client.BoardContent{Subject: "a", Details: "\xff"}},
		"an option twice":        {boardseal.Updated, client.BoardContent{Subject: "a", Options: []string{"x", "x"}}},
		"an empty option":        {boardseal.Updated, client.BoardContent{Subject: "a", Options: []string{""}}},
		"many options":           {boardseal.Updated, client.BoardContent{Subject: "a", Options: strings.Split(strings.Repeat("x,", 33), ",")}},
		"an update with comment": {boardseal.Updated, client.BoardContent{Subject: "a", Comment: "b"}},
		"an empty comment":       {boardseal.Comment, client.BoardContent{}},
		"a comment with subject": {boardseal.Comment, client.BoardContent{Subject: "a", Comment: "b"}},
		"a comment with details": {boardseal.Comment, client.BoardContent{Details: "a", Comment: "b"}},
		"a comment that chooses": {boardseal.Comment, client.BoardContent{Option: "a", Comment: "b"}},
		"no option":              {boardseal.OptionChosen, client.BoardContent{Comment: "b"}},
		"no verdict":             {boardseal.Approval, client.BoardContent{Comment: "b"}},
		"another verdict":        {boardseal.Approval, client.BoardContent{Approval: "maybe"}},
		"a verdict of nothing":   {boardseal.Closed, client.BoardContent{Approval: client.Approved}},
	} {
		_, err := d.ChangeCard(t.Context(), roomID, client.BoardChange{CardID: roomID, Type: c.of, Revision: 1, Content: c.content})
		require.ErrorIs(t, err, client.ErrBoardContent, name)
	}
	_, err := d.ChangeCard(t.Context(), roomID, client.BoardChange{CardID: roomID, Type: boardseal.Created, Content: client.BoardContent{Subject: "a"}})
	require.ErrorIs(t, err, boardseal.ErrFormat, "cards are made")

	for _, text := range []string{
		`{}`, `{"comment":"x"}`, `{"comment":"x","v":2}`, `{"comment":"x","more":1,"v":1}`, `{"v":1,"comment":"x"}`, ` {"comment":"x","v":1}`,
		`{"comment":"x","comment":"y","v":1}`, `{"comment":1,"v":1}`, `{"comment":"x","v":"1"}`, `[]`, ``, `{"Comment":"x","v":1}`,
	} {
		_, err := client.DecodeContent([]byte(text), boardseal.Comment)
		require.ErrorIs(t, err, client.ErrBoardContent, text)
	}
	content, err := client.DecodeContent([]byte(`{"comment":"x","v":1}`), boardseal.Comment)
	require.NoError(t, err)
	require.Equal(t, comment("x"), *content)
}
