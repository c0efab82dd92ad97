package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// boards is a stack with a Board.
type boards struct {
	*sessions
	wakes atomic.Int64
	lost  *lostBoard
}

// lostBoard loses the answer of a commit where a test wants it.
type lostBoard struct {
	board.Store
	lose atomic.Bool
	gate *gate
	out  atomic.Bool // a commit was not inside the gate
}

func (b *lostBoard) AppendBoardEvent(ctx context.Context, e board.NewEvent) (board.Event, bool, error) {
	if !b.gate.entered() {
		b.out.Store(true)
	}
	event, committed, err := b.Store.AppendBoardEvent(ctx, e)
	if b.lose.Load() {
		return board.Event{}, false, errFault
	}
	return event, committed, err
}

func newBoards(t *testing.T) *boards {
	t.Helper()
	b := &boards{lost: &lostBoard{}}
	b.sessions = newSessions(t, func(c *api.Config) {
		parts, ok := c.Store.(*parts)
		require.True(t, ok)
		faults, ok := parts.Store.(*faults)
		require.True(t, ok)
		keeps, ok := faults.Store.(*postgres.Store)
		require.True(t, ok)
		b.lost.Store, b.lost.gate = keeps, parts.gate
		c.Board, c.OutboxWake = b.lost, func() { b.wakes.Add(1) }
	})
	return b
}

var (
	sealedText = base64.StdEncoding.EncodeToString([]byte("sealed <&>\x00\xff"))
	signedText = base64.StdEncoding.EncodeToString([]byte("signed"))
)

// with is a body with the sealed members and these, of which null takes one away.
func with(members string) string {
	all := map[string]any{"content": sealedText, "signature": signedText}
	var more map[string]any
	if err := json.Unmarshal([]byte("{"+members+"}"), &more); err != nil {
		panic(err)
	}
	for name, value := range more {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(body)
}

func (b *boards) card(t *testing.T, who api.Member, kind string) (made api.BoardCommitted) {
	t.Helper()
	answer := b.as(t, who, http.MethodPost, "/board/cards", with(`"kind":"`+kind+`"`))
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	answer.decode(t, &made)
	return made
}

func (b *boards) event(t *testing.T, who api.Member, card, members string) response {
	t.Helper()
	return b.as(t, who, http.MethodPost, "/board/cards/"+card+"/events", with(members))
}

func (b *boards) events(t *testing.T, who api.Member, query string, headers ...string) (page api.BoardEvents) {
	t.Helper()
	answer := b.as(t, who, http.MethodGet, "/board/events"+query, "", headers...)
	require.Equal(t, http.StatusOK, answer.status, answer.body)
	answer.decode(t, &page)
	return page
}

// RELAY, "Durable Board hints": cards and events over HTTP, bytes as they were sent.
func TestBoardOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	room := b.make(t, `{}`)
	agent, owner, viewer := b.member(t, room, "agent"), b.member(t, room, "owner"), b.member(t, room, "viewer")
	b.wakes.Store(0) // the members' joining was to be told, too
	made := b.card(t, agent, "decision")
	require.Equal(t, int64(1), made.Sequence)
	require.Equal(t, agent.ParticipantID, made.Author)
	require.Equal(t, uuid.Version(7), uuid.MustParse(made.CardID).Version(), "made by the server")

	answer := b.event(t, owner, made.CardID, `"type":"updated","revision":1,"content":"AAEC"`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var updated api.BoardCommitted
	answer.decode(t, &updated)
	require.Equal(t, int64(2), updated.Revision)
	require.Equal(t, "decision", updated.Kind)
	require.Equal(t, http.StatusCreated, b.event(t, agent, made.CardID, `"type":"comment"`).status)
	require.Equal(t, http.StatusCreated, b.event(t, owner, made.CardID, `"type":"approval","revision":3,"content":null`).status)
	require.Equal(t, http.StatusCreated, b.event(t, agent, made.CardID, `"type":"closed","revision":4,"content":""`).status)
	answer = b.event(t, agent, made.CardID, `"type":"updated","revision":5`)
	answer.refused(t, 409, "conflict")
	require.Contains(t, answer.body, "closed, at revision 5")
	require.Equal(t, int64(5), b.wakes.Load(), "hints are published at once, for what was committed")

	for _, who := range []api.Member{agent, owner, viewer} {
		var card api.BoardCard
		b.as(t, who, http.MethodGet, "/board/cards/"+made.CardID, "").decode(t, &card)
		require.Equal(t, []byte{0, 1, 2}, card.Content)
		require.Equal(t, []byte("signed"), card.Signature)
		require.True(t, card.Closed)
		require.Equal(t, int64(5), card.Revision)
		require.Equal(t, agent.ParticipantID, card.Author)
		page := b.events(t, who, "")
		require.Len(t, page.Events, 5)
		require.Equal(t, int64(5), page.NextAfter)
		require.False(t, page.More)
		require.Equal(t, "sealed <&>\x00\xff", string(page.Events[0].Content))
		require.Equal(t, "created", page.Events[0].Type)
		require.Equal(t, updated.EventID, page.Events[1].EventID)
		require.NotNil(t, page.Events[3].Content, "empty, but there")
	}
	operator := b.send(t, http.MethodGet, "/v1/sessions/"+room+"/board/events?after=4", "")
	require.Equal(t, http.StatusOK, operator.status, "the operator reads what is sealed")
	require.False(t, b.lost.out.Load(), "every commit is inside the gate")
	require.NotContains(t, b.log.String(), sealedText)
}

// Viewers read; owner and controller approve; the operator is no participant.
func TestBoardRolesOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	room := b.make(t, `{}`)
	agent, viewer := b.member(t, room, "agent"), b.member(t, room, "viewer")
	made := b.card(t, agent, "task")
	b.as(t, viewer, http.MethodPost, "/board/cards", with(`"kind":"task"`)).refused(t, 403, "forbidden")
	b.event(t, viewer, made.CardID, `"type":"comment"`).refused(t, 403, "forbidden")
	b.event(t, agent, made.CardID, `"type":"approval","revision":1`).refused(t, 403, "forbidden")
	b.send(t, http.MethodPost, "/v1/sessions/"+room+"/board/cards", with(`"kind":"task"`)).refused(t, 403, "forbidden")
	b.send(t, http.MethodPost, "/v1/sessions/"+room+"/board/cards/"+made.CardID+"/events", with(`"type":"comment"`)).refused(t, 403, "forbidden")
	for i, role := range []string{"owner", "controller"} {
		answer := b.event(t, b.member(t, room, role), made.CardID, fmt.Sprintf(`"type":"approval","revision":%d`, i+1))
		require.Equal(t, http.StatusCreated, answer.status, answer.body)
	}

	other := b.member(t, b.make(t, `{}`), "owner")
	for _, path := range []string{"/board/cards", "/board/cards/" + made.CardID, "/board/events"} {
		foreign := other
		foreign.RoomID = room
		b.as(t, foreign, http.MethodGet, path, "").refused(t, 404, "not_found")
		send(t, b.public, http.MethodGet, "/v1/sessions/"+room+path, "").refused(t, 401, "unauthorized")
	}
	b.as(t, other, http.MethodGet, "/board/cards/"+made.CardID, "").refused(t, 404, "not_found")
	b.event(t, other, made.CardID, `"type":"comment"`).refused(t, 404, "not_found")

	b.send(t, http.MethodDelete, "/v1/rooms/"+room+"/members/"+agent.ParticipantID, "")
	b.event(t, agent, made.CardID, `"type":"comment"`).refused(t, 401, "unauthorized")
	require.Len(t, b.events(t, viewer, "").Events, 3)
	b.gate.close()
	b.event(t, b.member(t, room, "agent"), made.CardID, `"type":"comment"`).refused(t, 503, "unavailable")
}

// A client that lost the answer sends the same request again.
func TestBoardRequestsMayBeRepeated(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	agent := b.member(t, b.make(t, `{}`), "agent")
	card, event := uuid.NewString(), uuid.NewString()
	body := with(`"kind":"task","card_id":"` + card + `","event_id":"` + uuid.NewString() + `"`)
	b.lost.lose.Store(true)
	b.as(t, agent, http.MethodPost, "/board/cards", body).refused(t, 503, "unavailable")
	b.lost.lose.Store(false)
	again := b.as(t, agent, http.MethodPost, "/board/cards", body)
	require.Equal(t, http.StatusOK, again.status, again.body)
	comment := `"type":"comment","event_id":"` + event + `"`
	first := b.event(t, agent, card, comment)
	require.Equal(t, http.StatusCreated, first.status)
	second := b.event(t, agent, card, comment)
	require.Equal(t, http.StatusOK, second.status)
	require.JSONEq(t, first.body, second.body)
	b.event(t, agent, card, comment+`,"content":"AAAA"`).refused(t, 409, "conflict")
	b.as(t, agent, http.MethodPost, "/board/cards", with(`"kind":"idea","card_id":"`+card+`"`)).refused(t, 409, "conflict")
	require.Len(t, b.events(t, agent, "").Events, 2)
}

// Of concurrent changes one wins, and the others learn what the card is at.
func TestBoardConflictsOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	agent := b.member(t, b.make(t, `{}`), "agent")
	made := b.card(t, agent, "task")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	update := func() (status int, text []byte, err error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			b.public.URL+"/v1/sessions/"+agent.RoomID+"/board/cards/"+made.CardID+"/events", strings.NewReader(with(`"type":"updated","revision":1`)))
		if err != nil {
			return 0, nil, err
		}
		request.Header.Set("Authorization", "Bearer "+agent.Credential)
		answer, err := client.Do(request)
		if err != nil {
			return 0, nil, err
		}
		defer answer.Body.Close()
		text, err = io.ReadAll(answer.Body)
		return answer.StatusCode, text, err
	}
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			switch status, text, err := update(); {
			case err == nil && status == http.StatusCreated:
				won.Add(1)
			case err == nil && status == http.StatusConflict && strings.Contains(string(text), "the card is at revision 2"):
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(1), won.Load())
	require.Equal(t, int64(19), lost.Load())
}

// FAULTS F01, F03, F04: bodies are read strictly, and what is refused changes nothing.
func TestBoardBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	agent := b.member(t, b.make(t, `{}`), "agent")
	made := b.card(t, agent, "task")
	padded := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, members := range []string{
		``, `"kind":""`, `"kind":"epic"`, `"kind":"Task"`, `"kind":1`, `"kind":"task","title":"x"`, `"kind":"task","Kind":"task"`,
		`"kind":"task","card_id":"x"`, `"kind":"task","card_id":"` + strings.ToUpper(uuid.NewString()) + `"`,
		`"kind":"task","card_id":"00000000-0000-0000-0000-000000000000"`, `"kind":"task","event_id":"x"`, `"kind":"task","card_id":""`, `"kind":"task","event_id":""`,
		`"kind":"task","content":null`, `"kind":"task","content":""`, `"kind":"task","content":"AA"`, `"kind":"task","content":"AB=="`,
		`"kind":"task","content":"AAA-"`, `"kind":"task","content":"AAAA\n"`, `"kind":"task","content":"é"`, `"kind":"task","content":[1]`,
		`"kind":"task","signature":null`, `"kind":"task","signature":""`, `"kind":"task","signature":"x"`,
		`"kind":"task","revision":1`, `"kind":"task","type":"created"`,
	} {
		b.as(t, agent, http.MethodPost, "/board/cards", with(members)).refused(t, 400, "malformed_request")
	}
	for _, members := range []string{
		``, `"type":"created"`, `"type":"deleted"`, `"type":"comment","revision":1`, `"type":"comment","revision":0`, `"type":"updated"`,
		`"type":"updated","revision":0`, `"type":"updated","revision":-1`, `"type":"updated","revision":"1"`, `"type":"updated","revision":1.5`,
		`"type":"updated","revision":9223372036854775808`, `"type":"updated","revision":1,"content":null`, `"type":"comment","content":""`,
		`"type":"closed","revision":1,"signature":""`, `"type":"comment","card_id":"` + uuid.NewString() + `"`,
	} {
		b.event(t, agent, made.CardID, members).refused(t, 400, "malformed_request")
	}
	for _, body := range []string{
		`{"type":"comment","content":"AAAA","signature":null}`, `{"type":"comment","type":"comment","content":"AAAA","signature":"AAAA"}`,
		`[]`, `null`, ``, `{"type":"comment","content":"AAAA","signature":"AAAA"}{}`,
	} {
		b.as(t, agent, http.MethodPost, "/board/cards/"+made.CardID+"/events", body).refused(t, 400, "malformed_request")
	}
	b.event(t, agent, made.CardID, `"type":"comment","content":"`+padded(board.MaxContent+1)+`"`).refused(t, 413, "too_large")
	b.event(t, agent, made.CardID, `"type":"comment","signature":"`+padded(board.MaxSignature+1)+`"`).refused(t, 413, "too_large")
	b.event(t, agent, made.CardID, `"type":"comment","content":"`+padded(128<<10)+`"`).refused(t, 413, "too_large")
	b.event(t, agent, uuid.NewString(), `"type":"comment"`).refused(t, 404, "not_found")
	b.event(t, agent, "x", `"type":"comment"`).refused(t, 404, "not_found")
	require.Len(t, b.events(t, agent, "").Events, 1, "nothing of it was committed")
	largest := b.event(t, agent, made.CardID, `"type":"comment","content":"`+padded(board.MaxContent)+`","signature":"`+padded(board.MaxSignature)+`"`)
	require.Equal(t, http.StatusCreated, largest.status, largest.body)
}

// FAULTS D10, G07: pages hold each event once, and bad numbers are refused.
func TestBoardPagesOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	room := b.make(t, `{}`)
	agent := b.member(t, room, "agent")
	empty := b.as(t, agent, http.MethodGet, "/board/events?after=0", "")
	require.JSONEq(t, `{"events":[],"next_after":0,"more":false}`, empty.body)
	b.as(t, agent, http.MethodGet, "/board/events?after=1", "").refused(t, 409, "conflict")
	require.JSONEq(t, `{"cards":[]}`, b.as(t, agent, http.MethodGet, "/board/cards", "").body)

	const rows = 12
	var ids []string
	for range rows {
		ids = append(ids, b.card(t, agent, "idea").CardID)
	}
	for _, limit := range []int{1, 2, 5, 12, 500} {
		var seen []string
		for after, more := int64(0), true; more; {
			page := b.events(t, agent, fmt.Sprintf("?limit=%d&after=%d", limit, after))
			for _, e := range page.Events {
				seen = append(seen, e.CardID)
			}
			after, more = page.NextAfter, page.More
		}
		require.Equal(t, ids, seen)
		for _, order := range []string{"oldest", "newest"} {
			var cards []string
			for cursor, more := "", true; more; {
				var page api.BoardCards
				b.as(t, agent, http.MethodGet, fmt.Sprintf("/board/cards?order=%s&limit=%d%s", order, limit, cursor), "").decode(t, &page)
				for _, c := range page.Cards {
					if order == "oldest" {
						cards = append(cards, c.CardID)
					} else {
						cards = append([]string{c.CardID}, cards...)
					}
				}
				cursor, more = "&cursor="+page.NextCursor, page.NextCursor != ""
			}
			require.Equal(t, ids, cards)
		}
	}
	for _, query := range []string{
		"after=-1", "after=", "after=x", "after=1.0", "after=1e3", "after=%2B1", "after=01", "after=9223372036854775808", "after=1&after=2",
		"limit=0", "limit=-1", "limit=501", "limit=2147483648", "limit=", "before=1", "cursor=x",
	} {
		b.as(t, agent, http.MethodGet, "/board/events?"+query, "").refused(t, 400, "malformed_request")
	}
	for _, query := range []string{"limit=0", "limit=501", "cursor=x", "order=random", "after=1"} {
		b.as(t, agent, http.MethodGet, "/board/cards?"+query, "").refused(t, 400, "malformed_request")
	}
	b.as(t, agent, http.MethodGet, "/board/cards/"+ids[0]+"?x=1", "").refused(t, 400, "malformed_request")
	// FAULTS D10: a cursor from before a restored backup would skip what comes up to it.
	b.as(t, agent, http.MethodGet, "/board/events?after=9223372036854775807", "").refused(t, 409, "conflict")
}

// RELAY, "Clients through 0.2.31 receive a card-only comment event at the same Board
// sequence so their durable cursor can settle".
func TestOldClientsGetCardOnlyComments(t *testing.T) {
	t.Parallel()
	b := newBoards(t)
	agent := b.member(t, b.make(t, `{}`), "agent")
	made := b.card(t, agent, "idea")
	require.Equal(t, http.StatusCreated, b.event(t, agent, made.CardID, `"type":"comment"`).status)
	require.Equal(t, http.StatusCreated, b.event(t, agent, made.CardID, `"type":"updated","revision":2`).status)

	whole := b.events(t, agent, "")
	for _, version := range []string{"0.2.31", "0.2.9", "0.0.0", "0.1.100"} {
		old := b.events(t, agent, "", "Peer-Client-Version", version)
		want := whole
		want.Events = append([]api.BoardEvent(nil), whole.Events...)
		comment := whole.Events[1]
		want.Events[1] = api.BoardEvent{
			Sequence: comment.Sequence, EventID: comment.EventID, CardID: comment.CardID, Type: "comment", Revision: comment.Revision,
		}
		require.Equal(t, want, old, version)
	}
	answer := b.as(t, agent, http.MethodGet, "/board/events?after=1&limit=1", "", "Peer-Client-Version", "0.2.31")
	require.JSONEq(t, fmt.Sprintf(`{"events":[{"sequence":2,"event_id":%q,"card_id":%q,"type":"comment","revision":2}],"next_after":2,"more":true}`,
		whole.Events[1].EventID, made.CardID), answer.body, "and nothing else")
	for _, version := range []string{"0.2.32", "0.3.0", "0.10.0", "1.0.0", "10.2.31"} {
		require.Equal(t, whole, b.events(t, agent, "", "Peer-Client-Version", version), version)
	}
	for _, version := range []string{
		"", "0.2", "0.2.31.0", "v0.2.31", "0.2.x", "0.2.-1", "0.2.031", "0.2.31-rc1", "0.2.+1", "0..31", "99999999999999999999.0.0", "0.2.31, 0.2.32",
	} {
		b.as(t, agent, http.MethodGet, "/board/events", "", "Peer-Client-Version", version).refused(t, 400, "malformed_request")
	}
	b.as(t, agent, http.MethodGet, "/board/events", "", "Peer-Client-Version", "0.2.31", "Peer-Client-Version", "0.2.32").
		refused(t, 400, "malformed_request")
}

func TestServerWithoutABoard(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	agent := s.member(t, s.make(t, `{}`), "agent")
	for _, path := range []string{"/board/cards", "/board/cards/" + uuid.NewString(), "/board/events"} {
		s.as(t, agent, http.MethodGet, path, "").refused(t, 404, "not_found")
	}
	s.as(t, agent, http.MethodPost, "/board/cards", with(`"kind":"task"`)).refused(t, 404, "not_found")
}
