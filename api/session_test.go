package api_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// gate stands for the protocol core's part in what HTTP accepts: it knows what is under
// way, and may accept nothing.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
}

func (g *gate) Enter(uuid.UUID) (func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, cluster.ErrNotHeld
	}
	g.inside++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
	}, nil
}

func (g *gate) entered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside > 0
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// sessions is a stack in which participants call.
type sessions struct {
	*stack
	gate   *gate
	parts  *parts
	tenant uuid.UUID
}

// parts lets parts of the stack fail, and sees whether what a participant causes is
// inside the gate.
type parts struct {
	api.Store
	inbox.Writer
	api.Presence
	describe func(context.Context, uuid.UUID, uuid.UUID) (inbox.Description, error)
	gate     *gate

	mu       sync.Mutex
	trace    error // what AppendTrace answers instead
	hang     bool  // AppendTrace answers when its time is over
	write    error // what Write and Complete answer instead
	presence error
	policy   *store.PrivateMessages // what Roster says it is
	outside  []string               // calls that were not inside the gate
}

func (p *parts) set(change func(*parts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *parts) seen(call string) {
	if !p.gate.entered() {
		p.outside = append(p.outside, call)
	}
}

func (p *parts) AppendTrace(ctx context.Context, t store.Trace) (store.Appended, error) {
	p.mu.Lock()
	p.seen("AppendTrace")
	err, hang := p.trace, p.hang
	p.mu.Unlock()
	if hang {
		<-ctx.Done()
		return store.Appended{}, ctx.Err()
	}
	if err != nil {
		return store.Appended{}, err
	}
	return p.Store.AppendTrace(ctx, t)
}

func (p *parts) Roster(ctx context.Context, tenant, room uuid.UUID) (store.Roster, error) {
	roster, err := p.Store.Roster(ctx, tenant, room)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.policy != nil {
		roster.Room.PrivateMessages = *p.policy
	}
	return roster, err
}

func (p *parts) Write(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	if err := p.writing("Write"); err != nil {
		return nil, err
	}
	return p.Writer.Write(ctx, m)
}

func (p *parts) Complete(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	if err := p.writing("Complete"); err != nil {
		return nil, err
	}
	return p.Writer.Complete(ctx, m)
}

func (p *parts) writing(call string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen(call)
	return p.write
}

func (p *parts) Describe(ctx context.Context, room, participant uuid.UUID) (inbox.Description, error) {
	return p.describe(ctx, room, participant)
}

func (p *parts) Lookup(ctx context.Context, ids []uuid.UUID) ([]cluster.Presence, error) {
	p.mu.Lock()
	err := p.presence
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.Presence.Lookup(ctx, ids)
}

func newSessions(t *testing.T, options ...func(*api.Config)) *sessions {
	t.Helper()
	s := &sessions{gate: &gate{}}
	s.parts = &parts{gate: s.gate}
	s.stack = newStack(t, append([]func(*api.Config){func(c *api.Config) {
		s.parts.Store, s.parts.Writer, s.parts.describe = c.Store, c.Inboxes, c.Inboxes.Describe
		node, ok := c.Announcer.(*faults).Announcer.(*cluster.Node)
		require.True(t, ok)
		s.parts.Presence = node
		c.Store, c.Inboxes, c.Presence, c.Admission = s.parts, s.parts, s.parts, s.gate
		c.RequestTimeout = 5 * time.Second
		c.Limits = api.Limits{TokenPerSecond: -1, AddressPerSecond: -1, FailuresPerSecond: -1}
	}}, options...)...)
	var err error
	s.tenant, err = s.store.DefaultTenant(t.Context())
	require.NoError(t, err)
	return s
}

// as sends a request with a participant's credential.
func (s *sessions) as(t *testing.T, who api.Member, method, path, body string, headers ...string) response {
	t.Helper()
	return send(t, s.public, method, "/v1/sessions/"+who.RoomID+path, body, append(headers, "Authorization", "Bearer "+who.Credential)...)
}

// make creates a room.
func (s *sessions) make(t *testing.T, body string) string {
	t.Helper()
	answer := s.send(t, http.MethodPost, "/v1/rooms", body)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var room api.Room
	answer.decode(t, &room)
	return room.ID
}

// store puts a session-addressed envelope into history.
func (s *sessions) append(t *testing.T, sender api.Member, id, text string) []byte {
	t.Helper()
	envelope := []byte(text)
	_, err := s.store.AppendMessage(t.Context(), store.Message{
		Tenant: s.tenant, Room: uuid.MustParse(sender.RoomID), Sender: uuid.MustParse(sender.ParticipantID),
		ID: id, Kind: wire.KindMessage, Gen: 7, Bytes: envelope,
	})
	require.NoError(t, err)
	return envelope
}

// sessionPaths are all endpoints of a room that a participant may call with GET.
var sessionPaths = []string{"/history", "/participants", "/presence", "/notices", "/traces", "/rules"}

// A credential opens its own room, and any other does not exist for it, whatever the
// endpoint (DESIGN section 9).
func TestCredentialsOpenTheirOwnRoom(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	here, there := s.make(t, `{}`), s.make(t, `{}`)
	owner, other := s.member(t, here, "owner"), s.member(t, there, "owner")
	for _, path := range sessionPaths {
		require.Equal(t, http.StatusOK, s.as(t, owner, http.MethodGet, path, "").status, path)
		require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, "/v1/sessions/"+here+path, "").status, path)
		foreign := other
		foreign.RoomID = here
		s.as(t, foreign, http.MethodGet, path, "").refused(t, 404, "not_found")
		s.send(t, http.MethodGet, "/v1/sessions/"+uuid.NewString()+path, "").refused(t, 404, "not_found")
		send(t, s.public, http.MethodGet, "/v1/sessions/"+here+path, "").refused(t, 401, "unauthorized")
	}
	s.send(t, http.MethodDelete, "/v1/rooms/"+here+"/members/"+owner.ParticipantID, "")
	for _, path := range sessionPaths {
		s.as(t, owner, http.MethodGet, path, "").refused(t, 401, "unauthorized")
	}
	require.NotContains(t, s.log.String(), owner.Credential)
}

// FAULTS G07, C10: numbers, ids and names out of their range are refused, and none is
// taken for another.
func TestListsRefuseBadQueries(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	owner := s.member(t, s.make(t, `{}`), "owner")
	cursor := s.historyCursor(t, owner)
	require.Equal(t, http.StatusOK, s.as(t, owner, http.MethodGet, "/history?cursor="+cursor, "").status)
	for _, path := range []string{"/history", "/notices", "/traces"} {
		for _, query := range []string{
			"limit=0", "limit=501", "limit=-1", "limit=2147483648", "limit=1e2", "limit=%2B5", "limit=05", "limit=%205", "limit=", "limit=1&limit=1",
			"cursor=", "cursor=x", "cursor=AAAA", "cursor=" + strings.Repeat("A", 200), "cursor=" + cursor + "=", "cursor=%00",
			"order=", "order=random", "order=newest&order=newest", "Limit=1", "page=1", "limit=%zz", "a;b",
		} {
			s.as(t, owner, http.MethodGet, path+"?"+query, "").refused(t, 400, "malformed_request")
		}
	}
	for _, query := range []string{"cursor=" + cursor, "order=newest&cursor=" + cursor} {
		s.as(t, owner, http.MethodGet, "/notices?"+query, "").refused(t, 400, "malformed_request")
	}
	s.as(t, owner, http.MethodGet, "/history?order=newest&cursor="+cursor, "").refused(t, 400, "malformed_request")
	s.as(t, owner, http.MethodGet, "/rules?limit=1", "").refused(t, 400, "malformed_request")
	for _, id := range []string{"a b", "*", ">", "a\r\nPUB x 1", "$JS.API.x", "", strings.Repeat("x", 129), "é", "e\u0301", "\x00"} {
		answer := s.as(t, owner, http.MethodGet, "/history?message_id="+url.QueryEscape(id), "")
		require.Contains(t, []int{400, 404}, answer.status, "%q: %s", id, answer.body)
		send(t, s.public, http.MethodGet, "/v1/sessions/"+url.PathEscape(id)+"/history", "", "Authorization", "Bearer "+owner.Credential).
			refused(t, 404, "not_found")
	}
	s.as(t, owner, http.MethodGet, "/history?message_id=m&limit=1", "").refused(t, 400, "malformed_request")
	s.as(t, owner, http.MethodGet, "/history?message_id=m", "").refused(t, 404, "not_found")
}

// FAULTS D10: rows of one commit are each on one page, in both orders, with their bytes
// exactly as they were sent.
func TestHistoryInPages(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	owner := s.member(t, s.make(t, `{}`), "owner")
	const rows = 250
	sent := make(map[string][]byte, rows)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range rows { // at once, so that they share commits
		wg.Go(func() {
			id := fmt.Sprintf("m-%03d", i)
			envelope := s.append(t, owner, id, fmt.Sprintf("{ \"id\":\"%s\",\t\"text\":\"<&> \\u00e9 é\" }", id))
			mu.Lock()
			defer mu.Unlock()
			sent[id] = envelope
		})
	}
	wg.Wait()
	var forward []string
	for _, limit := range []int{1, 2, 100} {
		oldest := s.walk(t, owner, fmt.Sprintf("/history?limit=%d", limit), limit, sent)
		newest := s.walk(t, owner, fmt.Sprintf("/history?order=newest&limit=%d", limit), limit, sent)
		require.Len(t, oldest, rows)
		for i, id := range oldest {
			require.Equal(t, id, newest[rows-1-i])
		}
		if forward != nil {
			require.Equal(t, forward, oldest)
		}
		forward = oldest
	}

	answer := s.as(t, owner, http.MethodGet, "/history?message_id=m-007", "", "Accept", "text/html, application/octet-stream;q=0.9")
	require.Equal(t, http.StatusOK, answer.status)
	require.Equal(t, "application/octet-stream", answer.header.Get("Content-Type"))
	require.Equal(t, string(sent["m-007"]), answer.body)
	var row api.HistoryRow
	s.as(t, owner, http.MethodGet, "/history?message_id=m-007", "").decode(t, &row)
	require.Equal(t, string(sent["m-007"]), string(row.Envelope))
	require.Equal(t, owner.ParticipantID, row.From)
	require.Equal(t, "message", row.Kind)
	require.EqualValues(t, 7, row.Gen)
	require.Empty(t, row.KID)
	require.WithinDuration(t, time.Now(), row.ReceivedAt, time.Hour)
}

// walk follows the cursors of a history list to its end and returns the ids, each of
// which comes once, with the bytes that were sent.
func (s *sessions) walk(t *testing.T, who api.Member, path string, limit int, sent map[string][]byte) []string {
	t.Helper()
	var ids []string
	seen := make(map[string]bool)
	cursor := ""
	for range len(sent) + 1 {
		var page api.History
		answer := s.as(t, who, http.MethodGet, path+cursor, "")
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		answer.decode(t, &page)
		require.LessOrEqual(t, len(page.Messages), limit)
		for _, m := range page.Messages {
			require.False(t, seen[m.MessageID])
			seen[m.MessageID] = true
			require.Equal(t, string(sent[m.MessageID]), string(m.Envelope))
			ids = append(ids, m.MessageID)
		}
		if page.NextCursor == "" {
			require.NotContains(t, answer.body, "next_cursor")
			return ids
		}
		cursor = "&cursor=" + page.NextCursor
	}
	t.Fatal("the walk does not end")
	return nil
}

// A page is bounded by bytes too, and nothing is lost by it.
func TestHistoryPagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	owner := s.member(t, s.make(t, `{}`), "owner")
	sent := make(map[string][]byte)
	for i := range 70 {
		id := fmt.Sprintf("m-%d", i)
		sent[id] = s.append(t, owner, id, strings.Repeat("x", wire.MaxMessage))
	}
	var page api.History
	s.as(t, owner, http.MethodGet, "/history?limit=500", "").decode(t, &page)
	require.Len(t, page.Messages, 64)
	require.NotEmpty(t, page.NextCursor)
	require.Len(t, s.walk(t, owner, "/history?limit=500", 500, sent), 70)
}

// A participant sees nothing that was stored before it joined; the operator sees all.
func TestHistoryBeginsWithTheMembership(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	first := s.member(t, room, "agent")
	s.append(t, first, "before", "1")
	late := s.member(t, room, "owner")
	s.append(t, first, "after", "2")
	for path, want := range map[string][]string{"/history": {"after"}, "/history?order=newest": {"after"}} {
		var page api.History
		s.as(t, late, http.MethodGet, path, "").decode(t, &page)
		var got []string
		for _, m := range page.Messages {
			got = append(got, m.MessageID)
		}
		require.Equal(t, want, got)
	}
	s.as(t, late, http.MethodGet, "/history?message_id=before", "").refused(t, 404, "not_found")
	s.as(t, late, http.MethodGet, "/history?message_id=before", "", "Accept", "application/octet-stream").refused(t, 404, "not_found")
	for _, path := range []string{"/v1/sessions/" + room + "/history"} {
		var page api.History
		s.send(t, http.MethodGet, path, "").decode(t, &page)
		require.Len(t, page.Messages, 2)
	}
}

// RELAY, "Sender-key identity compatibility": gen rises per participant, a repetition is
// the same one, and participants see each other's keys.
func TestSenderGenerations(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	agent, other, viewer := s.member(t, room, "agent"), s.member(t, room, "agent"), s.member(t, room, "viewer")
	const path = "/sender-generations"
	body := func(kid byte, key string) string {
		return `{"kid":"` + base64.RawURLEncoding.EncodeToString([]byte{kid, 15: 1}) + `","session_key":"` + base64.StdEncoding.EncodeToString([]byte(key)) + `"}`
	}
	allocate := func(who api.Member, status int, body string) api.Generation {
		answer := s.as(t, who, http.MethodPost, path, body)
		require.Equal(t, status, answer.status, answer.body)
		var made api.Generation
		answer.decode(t, &made)
		return made
	}
	first := allocate(agent, 201, body(1, "key one"))
	require.EqualValues(t, 1, first.Gen)
	require.EqualValues(t, 2, allocate(agent, 201, body(2, "key two")).Gen)
	require.Equal(t, first, allocate(agent, 200, body(1, "key one")), "a repetition")
	require.EqualValues(t, 1, allocate(other, 201, body(3, strings.Repeat("k", 1024))).Gen)
	s.as(t, agent, http.MethodPost, path, body(1, "another key")).refused(t, 409, "conflict")
	s.as(t, viewer, http.MethodPost, path, body(4, "key")).refused(t, 403, "forbidden")
	s.send(t, http.MethodPost, "/v1/sessions/"+room+path, body(4, "key")).refused(t, 403, "forbidden")
	for name, bad := range map[string]string{
		"nothing":           `{}`,
		"no key":            `{"kid":"AAAAAAAAAAAAAAAAAAAAAA"}`,
		"null key":          `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":null}`,
		"empty key":         `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":""}`,
		"long key":          body(5, strings.Repeat("k", 1025)),
		"key not padded":    `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":"YQ"}`,
		"key with newline":  `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":"YQ==\n"}`,
		"key in base64url":  `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":"__8="}`,
		"short kid":         `{"kid":"AAAAAAAAAAAAAAAAAAAAA","session_key":"YQ=="}`,
		"padded kid":        `{"kid":"AAAAAAAAAAAAAAAAAAAAAA==","session_key":"YQ=="}`,
		"not canonical kid": `{"kid":"AAAAAAAAAAAAAAAAAAAAAB","session_key":"YQ=="}`,
		"kid with NUL":      `{"kid":"AAAAAAAAAAAAAAAAAAAAA\u0000","session_key":"YQ=="}`,
		"kid with newline":  `{"kid":"AAAAAAAAAAAAAAAAAAAAA\n","session_key":"YQ=="}`,
		"gen of its own":    `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":"YQ==","gen":9}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.as(t, agent, http.MethodPost, path, bad).refused(t, 400, "malformed_request")
		})
	}
	require.EqualValues(t, 3, allocate(agent, 201, body(9, "key three")).Gen, "nothing that was refused took one")

	var list api.Participants
	s.as(t, viewer, http.MethodGet, "/participants", "").decode(t, &list)
	require.Len(t, list.Participants, 3)
	require.Equal(t, "key three", string(list.Participants[0].Generation.SessionKey))
	require.EqualValues(t, 3, list.Participants[0].Generation.Gen)
	require.EqualValues(t, 1, list.Participants[1].Generation.Gen)
	require.Nil(t, list.Participants[2].Generation)
}

// Presence says what nodes have said; what cannot be looked up is refused and never told
// as offline.
func TestPresenceOfARoom(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	here, away := s.member(t, room, "owner"), s.member(t, room, "agent")
	node, ok := s.fault.Announcer.(*cluster.Node)
	require.True(t, ok)
	since := time.UnixMilli(1_790_000_000_000).UTC()
	require.NoError(t, node.PutPresence(cluster.Presence{Participant: uuid.MustParse(here.ParticipantID), Since: since, RTT: 12 * time.Millisecond}))

	var answer api.Presences
	require.Eventually(t, func() bool {
		answer = api.Presences{}
		s.as(t, away, http.MethodGet, "/presence", "").decode(t, &answer)
		return len(answer.Presence) == 2 && answer.Presence[0].Online
	}, patience, checkEvery)
	require.Equal(t, 90, answer.LeaseSeconds)
	require.WithinDuration(t, time.Now(), answer.AsOf, time.Hour)
	row := answer.Presence[0]
	require.Equal(t, here.ParticipantID, row.ParticipantID)
	require.Equal(t, "here", row.Node)
	require.Equal(t, since, row.Since.UTC())
	require.EqualValues(t, 12, *row.RTTMillis)
	require.WithinDuration(t, time.Now(), *row.SeenAt, time.Hour)
	require.Equal(t, api.PresenceRow{ParticipantID: away.ParticipantID}, answer.Presence[1])

	var page api.Presences
	s.as(t, away, http.MethodGet, "/presence?limit=1", "").decode(t, &page)
	require.Len(t, page.Presence, 1)
	s.as(t, away, http.MethodGet, "/presence?limit=1&cursor="+page.NextCursor, "").decode(t, &page)
	require.Equal(t, away.ParticipantID, page.Presence[0].ParticipantID)

	s.parts.set(func(p *parts) { p.presence = errors.New("no responders") })
	s.as(t, away, http.MethodGet, "/presence", "").refused(t, 503, "unavailable")
	without := newSessions(t, func(c *api.Config) { c.Presence = nil })
	without.as(t, without.member(t, without.make(t, `{}`), "agent"), http.MethodGet, "/presence", "").refused(t, 503, "unavailable")
}

// Rules are the owner's; null never stands for everybody.
func TestRulesOfARoom(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	owner, agent, controller := s.member(t, room, "owner"), s.member(t, room, "agent"), s.member(t, room, "controller")
	elsewhere := s.member(t, s.make(t, `{}`), "agent")
	require.JSONEq(t, `{"rules":[]}`, s.as(t, agent, http.MethodGet, "/rules", "").body)

	for _, who := range []api.Member{agent, controller} {
		s.as(t, who, http.MethodPut, "/rules", `{"rule":"message.send","allowed":false}`).refused(t, 403, "forbidden")
	}
	one := `{"allowed":false,"participant_id":"` + agent.ParticipantID + `","rule":"session.alert.emit"}`
	for range 2 {
		require.JSONEq(t, one, s.as(t, owner, http.MethodPut, "/rules", one).body)
	}
	all := `{"allowed":true,"rule":"session.alert.emit"}`
	require.JSONEq(t, all, s.send(t, http.MethodPut, "/v1/sessions/"+room+"/rules", all).body)
	require.JSONEq(t, `{"rules":[`+all+`,`+one+`]}`, s.as(t, agent, http.MethodGet, "/rules", "").body, "the room's own first")

	for _, bad := range []string{
		`{}`, `{"rule":"message.send"}`, `{"rule":"message.send","allowed":null}`, `{"rule":"message.send","allowed":"false"}`,
		`{"rule":"board.write","allowed":false}`, `{"rule":"Message.send","allowed":false}`, `{"rule":"message.send\u0000","allowed":false}`,
		`{"rule":"message.send","participant_id":null,"allowed":false}`, `{"rule":"message.send","participant_id":"","allowed":false}`,
		`{"rule":"message.send","participant_id":"*","allowed":false}`, `{"rule":"message.send","allowed":false,"allowed":true}`,
	} {
		s.as(t, owner, http.MethodPut, "/rules", bad).refused(t, 400, "malformed_request")
	}
	for _, nobody := range []string{uuid.NewString(), elsewhere.ParticipantID, uuid.Nil.String()} {
		s.as(t, owner, http.MethodPut, "/rules", `{"rule":"message.send","participant_id":"`+nobody+`","allowed":false}`).refused(t, 404, "not_found")
	}
	require.JSONEq(t, `{"rules":[`+all+`,`+one+`]}`, s.as(t, agent, http.MethodGet, "/rules", "").body, "unchanged")
}

// Accepted notices are listed with their bytes, those of before a membership left out.
func TestNoticesOfARoom(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	agent := s.member(t, room, "agent")
	gen := s.as(t, agent, http.MethodPost, "/sender-generations", `{"kid":"AAAAAAAAAAAAAAAAAAAAAA","session_key":"YQ=="}`)
	require.Equal(t, http.StatusCreated, gen.status, gen.body)
	raw := func(id string) []byte { return []byte(`{"id":"` + id + `" }`) }
	notice := func(id string) {
		now := uint64(time.Now().UnixMilli())
		require.NoError(t, s.store.AppendNotice(t.Context(), store.Notice{
			Tenant: s.tenant, Room: uuid.MustParse(room), Sender: uuid.MustParse(agent.ParticipantID), ID: id,
			Gen: 1, TS: now, ExpiresAt: now + 60_000, Bytes: raw(id),
		}))
	}
	notice("n-1")
	late := s.member(t, room, "viewer")
	notice("n-2")
	notice("n-3")
	var page api.Notices
	s.as(t, agent, http.MethodGet, "/notices?limit=2", "").decode(t, &page)
	require.Len(t, page.Notices, 2)
	require.Equal(t, "n-1", page.Notices[0].MessageID)
	require.Equal(t, raw("n-1"), page.Notices[0].Envelope, "byte for byte")
	require.Equal(t, agent.ParticipantID, page.Notices[0].From)
	require.True(t, page.Notices[0].ExpiresAt.After(page.Notices[0].AcceptedAt))
	cursor := page.NextCursor
	page = api.Notices{}
	s.as(t, agent, http.MethodGet, "/notices?limit=2&cursor="+cursor, "").decode(t, &page)
	require.Len(t, page.Notices, 1)
	require.Equal(t, "n-3", page.Notices[0].MessageID)
	require.Empty(t, page.NextCursor)
	page = api.Notices{}
	s.as(t, late, http.MethodGet, "/notices?order=newest", "").decode(t, &page)
	require.Len(t, page.Notices, 2)
	require.Equal(t, "n-3", page.Notices[0].MessageID)
}

// RELAY: traces are the owner's; file only where there was one, files where there were
// several.
func TestTracesOfARoom(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{}`)
	one, two, owner := s.member(t, room, "agent"), s.member(t, room, "agent"), s.member(t, room, "owner")
	files := []store.FileHeader{{Name: "a", MIMEType: "b", SizeBytes: 1}, {Name: "c", MIMEType: "d", SizeBytes: 0}}
	const rows = 250
	for i := range rows { // FAULTS D10
		_, err := s.store.AppendTrace(t.Context(), store.Trace{
			Tenant: s.tenant, Room: uuid.MustParse(room), MessageID: fmt.Sprintf("p-%d", i), TS: uint64(i),
			From: uuid.MustParse(one.ParticipantID), To: uuid.MustParse(two.ParticipantID),
			Declared: i%3 == 1, Files: files[:i%3], Digest: [32]byte{byte(i), 1},
		})
		require.NoError(t, err)
	}
	for _, who := range []api.Member{one, two, s.member(t, room, "controller"), s.member(t, room, "viewer")} {
		s.as(t, who, http.MethodGet, "/traces", "").refused(t, 403, "forbidden")
	}
	var earlier api.Traces
	s.as(t, s.member(t, room, "owner"), http.MethodGet, "/traces", "").decode(t, &earlier)
	require.Empty(t, earlier.Traces, "nothing from before it joined")
	for _, limit := range []int{1, 2, 100} {
		at, cursor := rows, ""
		for at > 0 {
			var page api.Traces
			s.as(t, owner, http.MethodGet, fmt.Sprintf("/traces?limit=%d%s", limit, cursor), "").decode(t, &page)
			require.NotEmpty(t, page.Traces)
			for _, row := range page.Traces {
				at--
				requireTrace(t, row, at, one, two)
			}
			cursor = "&cursor=" + page.NextCursor
			require.Equal(t, at == 0, page.NextCursor == "")
		}
	}
	var oldest api.Traces
	answer := s.send(t, http.MethodGet, "/v1/sessions/"+room+"/traces?order=oldest&limit=1", "")
	answer.decode(t, &oldest)
	require.Equal(t, "p-0", oldest.Traces[0].MessageID)
	require.NotContains(t, answer.body, "file")
	require.NotContains(t, answer.body, "digest")
}

func requireTrace(t *testing.T, row api.TraceRow, i int, from, to api.Member) {
	t.Helper()
	require.Equal(t, fmt.Sprintf("p-%d", i), row.MessageID)
	require.Equal(t, "message.private", row.Event)
	require.Equal(t, from.ParticipantID, row.From)
	require.Equal(t, to.ParticipantID, row.To)
	require.EqualValues(t, i, row.TS)
	require.WithinDuration(t, time.Now(), row.CommittedAt, time.Hour)
	first, second := api.TracedFile{Name: "a", MIMEType: "b", SizeBytes: 1, Declared: i%3 == 1}, api.TracedFile{Name: "c", MIMEType: "d"}
	switch i % 3 {
	case 0:
		require.Nil(t, row.File)
		require.Nil(t, row.Files)
	case 1:
		require.Equal(t, first, *row.File)
		require.Nil(t, row.Files)
	case 2:
		require.Equal(t, first, *row.File)
		require.Equal(t, []api.TracedFile{first, second}, row.Files)
	}
}

// watched sees whether what a participant reads is inside the gate.
type watched struct {
	api.Store
	gate *gate

	mu      sync.Mutex
	inside  int
	outside int
}

func (w *watched) see() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate.entered() {
		w.inside++
	} else {
		w.outside++
	}
}

func (w *watched) Authenticate(ctx context.Context, token store.TokenHash) (store.Identity, error) {
	w.see()
	return w.Store.Authenticate(ctx, token)
}

func (w *watched) HistoryPage(ctx context.Context, tenant, room uuid.UUID, page store.Page) ([]store.StoredMessage, bool, error) {
	w.see()
	return w.Store.HistoryPage(ctx, tenant, room, page)
}

// FAULTS H06, H08: no change of the room is answered between the look-up of a credential
// and what is read with it. The operator reads whatever the state of the node.
func TestReadsHoldChangesBack(t *testing.T) {
	t.Parallel()
	var sees *watched
	s := newSessions(t, func(c *api.Config) {
		doorkeeper, ok := c.Admission.(*gate)
		require.True(t, ok)
		sees = &watched{Store: c.Store, gate: doorkeeper}
		c.Store = sees
	})
	agent := s.member(t, s.make(t, `{}`), "agent")
	require.Equal(t, http.StatusOK, s.as(t, agent, http.MethodGet, "/history", "").status)
	require.Equal(t, 2, sees.inside)
	require.Zero(t, sees.outside)
	require.False(t, s.gate.entered(), "it has left")

	s.gate.close()
	s.as(t, agent, http.MethodGet, "/history", "").refused(t, http.StatusServiceUnavailable, "unavailable")
	require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, "/v1/sessions/"+agent.RoomID+"/history", "").status)
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/v1/sessions/"+agent.RoomID+"/history", "", "Authorization", "Bearer "+s.token).status)
}

// FAULTS H06: a body that does not come must not hold a request up between the look-up of
// its credential and what it reads. One where none belongs is not waited for.
func TestNobodyWaitsForABodyWhereNoneBelongs(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	agent := s.member(t, s.make(t, `{}`), "agent")
	for _, declared := range []string{"Transfer-Encoding: chunked", "Content-Length: 1"} {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.public.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "GET /v1/sessions/%s/history HTTP/1.1\r\nHost: relay\r\nConnection: close\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n",
			agent.RoomID, agent.Credential, declared)
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) // while nothing of the body was sent
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusBadRequest, answer.StatusCode, declared)
		require.NoError(t, conn.Close())
	}
}
