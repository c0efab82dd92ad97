package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// rows reads a participant's inbox from its beginning.
func (s *sessions) rows(t *testing.T, who api.Member) []inbox.Row {
	t.Helper()
	room, id := uuid.MustParse(who.RoomID), uuid.MustParse(who.ParticipantID)
	bounds, err := s.inboxes.Bounds(t.Context(), room, id)
	require.NoError(t, err)
	var rows []inbox.Row
	after := uint64(0)
	for more := bounds.Newest > 0; more; {
		var piece []inbox.Row
		piece, more, err = s.inboxes.Read(t.Context(), room, id, after, bounds.Newest, 500)
		require.NoError(t, err)
		for _, row := range piece {
			after = row.ID.Sequence
		}
		rows = append(rows, piece...)
	}
	return rows
}

// say sends a plaintext message that must be accepted.
func (s *sessions) say(t *testing.T, who api.Member, body string) api.Sent {
	t.Helper()
	answer := s.as(t, who, http.MethodPost, "/messages", body)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var sent api.Sent
	answer.decode(t, &sent)
	return sent
}

func text(content string) string { return `{"parts":[{"type":"text","text":"` + content + `"}]}` }

func private(to api.Member, rest string) string {
	return `{"to":"` + to.ParticipantID + `",` + strings.TrimPrefix(rest, "{")
}

func repeatable(id, rest string) string {
	return `{"id":"` + id + `","ts":1790000000000,` + strings.TrimPrefix(rest, "{")
}

func (s *sessions) traces(t *testing.T, room string) []api.TraceRow {
	t.Helper()
	var page api.Traces
	s.send(t, http.MethodGet, "/v1/sessions/"+room+"/traces", "").decode(t, &page)
	return page.Traces
}

// A plaintext message is one envelope that the server makes, in every recipient's inbox,
// which a client reads as it reads any other.
func TestPlaintextMessage(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	sender, owner, viewer := s.member(t, room, "agent"), s.member(t, room, "owner"), s.member(t, room, "viewer")
	data := base64.StdEncoding.EncodeToString([]byte("\x00\xff file"))
	sent := s.say(t, sender, `{"parts":[{"type":"text","text":"é <\u0000> \ud83d\ude00"},{"type":"file","name":"a b.txt","mime_type":"text/plain","data":"`+data+`"}]}`)
	require.Len(t, sent.Queued, 2)
	require.Empty(t, s.rows(t, sender))
	for i, who := range []api.Member{owner, viewer} {
		rows := s.rows(t, who)
		require.Len(t, rows, 1)
		require.Equal(t, inbox.RowEnvelope, rows[0].Kind)
		require.Equal(t, api.Queued{ParticipantID: who.ParticipantID, StreamID: rows[0].ID.String()}, sent.Queued[i])
		frame, err := wire.ParseServer(wire.AppendDeliver(nil, rows[0].ID, false, rows[0].Payload))
		require.NoError(t, err)
		var client wire.ClientFrame
		require.NoError(t, wire.ParseClient(frame.Envelope, &client))
		require.Nil(t, client.Envelope.Check(), "it has what every envelope has")
		require.Equal(t, sent.MessageID, string(client.Envelope.ID))
		require.Equal(t, room, string(client.Envelope.To))
		require.Equal(t, sender.ParticipantID, string(client.Envelope.From))
		require.Equal(t, "none", string(client.Envelope.Enc))
		var envelope struct{ Parts []api.Part }
		require.NoError(t, json.Unmarshal(frame.Envelope, &envelope))
		require.Equal(t, "é <\x00> 😀", *envelope.Parts[0].Text)
		require.Equal(t, data, *envelope.Parts[1].Data)
		require.EqualValues(t, 7, *envelope.Parts[1].SizeBytes)
	}
	require.Empty(t, s.traces(t, room), "a trace is of private messages between agents only")
	var history api.History
	s.as(t, sender, http.MethodGet, "/history", "").decode(t, &history)
	require.Empty(t, history.Messages, "plaintext has no history")

	toOwner := s.say(t, sender, private(owner, text("hello")))
	require.Len(t, toOwner.Queued, 1)
	require.Len(t, s.rows(t, owner), 2)
	require.Len(t, s.rows(t, viewer), 1)
	require.Empty(t, s.traces(t, room), "a human is outside the policy")
	require.Empty(t, s.parts.outside, "all of it while changes wait")
}

// RELAY: between agents the trace comes first, with what the API has counted.
func TestPrivatePlaintextIsTraced(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	one, two, owner := s.member(t, room, "agent"), s.member(t, room, "agent"), s.member(t, room, "owner")
	body := repeatable("p-1", private(two, `{"parts":[{"type":"file","name":"a","mime_type":"x/y","size_bytes":1,"data":"YQ=="},`+
		`{"type":"text","text":"t"},{"type":"file","name":"é","mime_type":"z","data":""}]}`))
	sent := s.say(t, one, body)
	require.Len(t, sent.Queued, 1)
	require.Equal(t, two.ParticipantID, sent.Queued[0].ParticipantID)
	traces := s.traces(t, room)
	require.Len(t, traces, 1)
	require.Equal(t, "p-1", traces[0].MessageID)
	require.EqualValues(t, 1790000000000, traces[0].TS)
	require.Equal(t, []api.TracedFile{{Name: "a", MIMEType: "x/y", SizeBytes: 1}, {Name: "é", MIMEType: "z"}}, traces[0].Files)
	require.Equal(t, traces[0].Files[0], *traces[0].File)

	// The same request again is the same message: one trace, one row, the same stream id.
	require.Equal(t, sent, s.say(t, one, body))
	require.Len(t, s.traces(t, room), 1)
	require.Len(t, s.rows(t, two), 1)
	s.as(t, one, http.MethodPost, "/messages", repeatable("p-1", private(two, text("other")))).refused(t, 409, "history_conflict")
	require.Len(t, s.rows(t, two), 1)

	// Its trace was committed, its row lost: the repetition completes it.
	s.parts.set(func(p *parts) { p.write = inbox.ErrUnavailable })
	later := repeatable("p-2", private(two, text("later")))
	s.as(t, one, http.MethodPost, "/messages", later).refused(t, 503, "unavailable")
	require.Len(t, s.traces(t, room), 2)
	require.Len(t, s.rows(t, two), 1)
	s.parts.set(func(p *parts) { p.write = nil })
	s.say(t, one, later)
	require.Len(t, s.traces(t, room), 2)
	require.Len(t, s.rows(t, two), 2)
	require.Empty(t, s.rows(t, owner))

	// Without a trace too the same request writes nothing twice.
	everybody := repeatable("g-1", text("all"))
	sent = s.say(t, one, everybody)
	require.Equal(t, sent, s.say(t, one, everybody))
	require.Len(t, s.rows(t, owner), 1)
	require.Empty(t, s.parts.outside, "all of it while changes wait")
}

// Two of the same at the same time are one.
func TestPlaintextTwins(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	one, two := s.member(t, room, "agent"), s.member(t, room, "agent")
	answers := make([]response, 4)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = s.as(t, one, http.MethodPost, "/messages", repeatable("twin", private(two, text("x"))))
		})
	}
	wg.Wait()
	for _, answer := range answers {
		require.Equal(t, http.StatusCreated, answer.status, answer.body)
		require.Equal(t, answers[0].body, answer.body)
	}
	require.Len(t, s.rows(t, two), 1)
	require.Len(t, s.traces(t, room), 1)
}

// FAULTS E09: whatever keeps a trace from being committed keeps the message from being
// delivered, and nothing else from working.
func TestPlaintextWithoutATraceIsNotDelivered(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	one, two := s.member(t, room, "agent"), s.member(t, room, "agent")
	for name, c := range map[string]struct {
		fault  func(*parts)
		status int
		code   string
	}{
		"fails":             {func(p *parts) { p.trace = errors.New("permission denied for table") }, 503, "unavailable"},
		"hangs":             {func(p *parts) { p.hang = true }, 503, "unavailable"},
		"unknown refusal":   {func(p *parts) { p.trace = &wire.Error{Code: "surprise"} }, 503, "unavailable"},
		"foreign refusal":   {func(p *parts) { p.trace = &wire.Error{Code: wire.NoticeCap} }, 503, "unavailable"},
		"nobody there":      {func(p *parts) { p.trace = store.ErrNotFound }, 503, "unavailable"},
		"archived":          {func(p *parts) { p.trace = &wire.Error{Code: wire.RoomIsArchived} }, 409, "room_archived"},
		"refused":           {func(p *parts) { p.trace = &wire.Error{Code: wire.PrivateRefused} }, 403, "private_refused"},
		"known otherwise":   {func(p *parts) { p.trace = &wire.Error{Code: wire.HistoryConflict} }, 409, "history_conflict"},
		"shape":             {func(p *parts) { p.trace = &wire.Error{Code: wire.MalformedRequest} }, 400, "malformed_request"},
		"policy is gone":    {func(p *parts) { p.policy = new(store.PrivateMessages("")) }, 503, "unavailable"},
		"policy is strange": {func(p *parts) { p.policy = new(store.PrivateMessages("perhaps")) }, 503, "unavailable"},
	} {
		sender := s.member(t, room, "agent") // each has its own rate
		s.parts.set(c.fault)
		for _, body := range []string{text("x"), `{"parts":[{"type":"file","name":"a","mime_type":"b","data":"YQ=="}]}`} {
			answer := s.as(t, sender, http.MethodPost, "/messages", private(two, body))
			answer.refused(t, c.status, c.code)
			require.NotContains(t, answer.body, "permission", name)
			if name == "hangs" {
				break // each takes the time of a request
			}
		}
		require.Empty(t, s.rows(t, two), name)
		s.parts.set(func(p *parts) { p.trace, p.hang, p.policy = nil, false, nil })
	}
	require.Empty(t, s.traces(t, room))
	s.say(t, one, text("to everybody"))
	s.say(t, one, private(two, text("in private")))
	require.Len(t, s.rows(t, two), 2)
}

// A room may refuse private messages between agents; humans are outside of that.
func TestPlaintextPolicy(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none","private_messages":"refused"}`)
	one, two, owner := s.member(t, room, "agent"), s.member(t, room, "agent"), s.member(t, room, "owner")
	s.as(t, one, http.MethodPost, "/messages", private(two, text("x"))).refused(t, 403, "private_refused")
	require.Empty(t, s.rows(t, two))
	require.Empty(t, s.traces(t, room))
	s.say(t, one, private(owner, text("x")))
	s.say(t, owner, private(two, text("x")))
	s.say(t, one, text("x"))
}

// Who may not, where it may not, and to whom it cannot go.
func TestPlaintextIsRefused(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	agent := s.member(t, room, "agent")
	s.as(t, agent, http.MethodPost, "/messages", text("x")).refused(t, 409, "no_recipients")
	viewer := s.member(t, room, "viewer")
	s.as(t, viewer, http.MethodPost, "/messages", text("x")).refused(t, 403, "read_only")
	s.send(t, http.MethodPost, "/v1/sessions/"+room+"/messages", text("x")).refused(t, 403, "forbidden")
	elsewhere := s.member(t, s.make(t, `{"scheme":"none"}`), "agent")
	for _, to := range []string{uuid.NewString(), elsewhere.ParticipantID, agent.ParticipantID, room} {
		s.as(t, agent, http.MethodPost, "/messages", private(api.Member{ParticipantID: to}, text("x"))).refused(t, 403, "not_a_member")
	}
	// FAULTS C10: what is subject syntax is no id.
	for _, to := range []string{"", "*", ">", "a.b", "a\\r\\nPUB x 1", "$JS.API.x", "\\u0000", uuid.Nil.String(), strings.ToUpper(agent.ParticipantID)} {
		s.as(t, agent, http.MethodPost, "/messages", private(api.Member{ParticipantID: to}, text("x"))).refused(t, 400, "malformed_request")
	}
	for _, scheme := range []string{"sender_keys", "mls"} {
		encrypted := s.make(t, `{"scheme":"`+scheme+`"}`)
		sender, other := s.member(t, encrypted, "agent"), s.member(t, encrypted, "agent")
		s.as(t, sender, http.MethodPost, "/messages", text("x")).refused(t, 409, "e2ee_scheme_mismatch")
		s.as(t, sender, http.MethodPost, "/messages", private(other, text("x"))).refused(t, 409, "e2ee_scheme_mismatch")
		require.Empty(t, s.rows(t, other))
	}
	s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`)
	s.as(t, agent, http.MethodPost, "/messages", text("x")).refused(t, 503, "unavailable")
	s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":false}`)
	s.gate.close() // as when the node's lease is not held
	s.as(t, agent, http.MethodPost, "/messages", text("x")).refused(t, 503, "unavailable")
	require.Empty(t, s.rows(t, viewer))
	require.Empty(t, s.traces(t, room))
}

// DESIGN section 6, "Freshness": a credential that is revoked, or whose participant is
// removed, while the body still comes has sent nothing.
func TestRevokedWhileTheBodyComes(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	owner := s.member(t, room, "owner")
	for name, take := range map[string]func(api.Member){
		"revoked": func(m api.Member) {
			require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/credentials/"+m.CredentialID, "").status)
		},
		"removed": func(m api.Member) {
			require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/rooms/"+room+"/members/"+m.ParticipantID, "").status)
		},
		"frozen": func(api.Member) {
			require.Equal(t, http.StatusOK, s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`).status)
		},
	} {
		agent := s.member(t, room, "agent")
		reader := &pausedBody{first: `{"parts":[`, then: `{"type":"text","text":"x"}]}`, pause: func() { take(agent) }}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://relay/v1/sessions/"+room+"/messages", reader)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+agent.Credential)
		recorder := &recordedAnswer{header: http.Header{}}
		s.api.Public().ServeHTTP(recorder, request)
		want := http.StatusUnauthorized
		if name == "frozen" {
			want = http.StatusServiceUnavailable
			s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":false}`)
		}
		require.Equal(t, want, recorder.status, name)
		require.Empty(t, s.rows(t, owner), name)
	}
}

// pausedBody lets something happen in the middle of a body.
type pausedBody struct {
	first, then string
	pause       func()
}

func (b *pausedBody) Read(p []byte) (int, error) {
	if b.first != "" {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	if b.pause != nil {
		b.pause()
		b.pause = nil
	}
	if b.then == "" {
		return 0, io.EOF
	}
	n := copy(p, b.then)
	b.then = b.then[n:]
	return n, nil
}

type recordedAnswer struct {
	header http.Header
	status int
}

func (r *recordedAnswer) Header() http.Header         { return r.header }
func (r *recordedAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (r *recordedAnswer) WriteHeader(status int)      { r.status = status }

// Bodies are read strictly; FAULTS B07, F06.
func TestPlaintextShape(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	agents := make([]api.Member, 4) // for their rates
	for i := range agents {
		agents[i] = s.member(t, room, "agent")
	}
	owner := s.member(t, room, "owner")
	part := `{"type":"text","text":"x"}`
	sender := 0
	for name, body := range map[string]string{
		"no parts":            `{}`,
		"null parts":          `{"parts":null}`,
		"empty parts":         `{"parts":[]}`,
		"33 parts":            `{"parts":[` + strings.Repeat(part+",", 32) + part + `]}`,
		"null part":           `{"parts":[null]}`,
		"no type":             `{"parts":[{"text":"x"}]}`,
		"other type":          `{"parts":[{"type":"image","text":"x"}]}`,
		"no text":             `{"parts":[{"type":"text"}]}`,
		"empty text":          `{"parts":[{"type":"text","text":""}]}`,
		"null text":           `{"parts":[{"type":"text","text":null}]}`,
		"lone surrogate":      `{"parts":[{"type":"text","text":"\ud800"}]}`,
		"bad UTF-8":           "{\"parts\":[{\"type\":\"text\",\"text\":\"\xff\"}]}",
		"text with a name":    `{"parts":[{"type":"text","text":"x","name":"n"}]}`,
		"file with a text":    `{"parts":[{"type":"file","text":"x","name":"n","mime_type":"m","data":""}]}`,
		"file without data":   `{"parts":[{"type":"file","name":"n","mime_type":"m"}]}`,
		"file without a name": `{"parts":[{"type":"file","mime_type":"m","data":""}]}`,
		"negative size":       `{"parts":[{"type":"file","name":"n","mime_type":"m","size_bytes":-1,"data":""}]}`,
		"size as a fraction":  `{"parts":[{"type":"file","name":"n","mime_type":"m","size_bytes":1.0,"data":"YQ=="}]}`,
		"null to":             `{"to":null,"parts":[` + part + `]}`,
		"id alone":            `{"id":"m","parts":[` + part + `]}`,
		"ts alone":            `{"ts":1,"parts":[` + part + `]}`,
		"empty id":            repeatable("", `{"parts":[`+part+`]}`),
		"id with space":       repeatable("a b", `{"parts":[`+part+`]}`),
		"id with NUL":         repeatable(`a\u0000`, `{"parts":[`+part+`]}`),
		"id of 129":           repeatable(strings.Repeat("x", 129), `{"parts":[`+part+`]}`),
		"id not ASCII":        repeatable("é", `{"parts":[`+part+`]}`),
		"ts too large":        `{"id":"m","ts":9007199254740992,"parts":[` + part + `]}`,
		"ts negative":         `{"id":"m","ts":-1,"parts":[` + part + `]}`,
		"ts as text":          `{"id":"m","ts":"1","parts":[` + part + `]}`,
		"sender of its own":   `{"from":"x","parts":[` + part + `]}`,
		"other case":          `{"Parts":[` + part + `]}`,
		"twice":               `{"parts":[` + part + `],"parts":[` + part + `]}`,
		"twice in a part":     `{"parts":[{"type":"text","text":"x","text":"y"}]}`,
		"two values":          `{"parts":[` + part + `]}{}`,
		"deep arrays":         `{"parts":` + strings.Repeat("[", 1<<20-10),
		"deep objects":        strings.Repeat(`{"parts":`, (1<<20-10)/9),
		"deep in a part":      `{"parts":[{"type":"text","text":` + strings.Repeat("[", 1<<20-40),
	} {
		sender++
		s.as(t, agents[sender%len(agents)], http.MethodPost, "/messages", body).refused(t, 400, "malformed_request")
		require.Empty(t, s.rows(t, owner), name)
	}
}

// FAULTS F07, F08: names and types of files keep the rules of the wire's file header.
func TestPlaintextFileLabels(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	owner := s.member(t, room, "owner")
	label := func(field, value string) string {
		fields := map[string]string{"type": "file", "name": "n", "mime_type": "m", "data": ""}
		fields[field] = value
		encoded, err := json.Marshal(map[string]any{"parts": []any{fields}})
		require.NoError(t, err)
		return string(encoded)
	}
	var agent api.Member
	calls := 0
	post := func(body string) response {
		if calls%15 == 0 { // for its rate
			agent = s.member(t, room, "agent")
		}
		calls++
		return s.as(t, agent, http.MethodPost, "/messages", private(owner, body))
	}
	for field, limit := range map[string]int{"name": 255, "mime_type": 127} {
		for _, good := range []string{
			strings.Repeat("😀", limit), strings.Repeat("e\u0301", limit/2), "👨‍👩‍👧‍👦", "\u202e", "\u200b", "\u2066", "\ufeff", "\u200d", "<b>",
		} {
			answer := post(label(field, good))
			require.Equal(t, http.StatusCreated, answer.status, "%s %q: %s", field, good, answer.body)
		}
		for _, bad := range []string{"", strings.Repeat("😀", limit+1), strings.Repeat("e\u0301", limit/2+1)} {
			post(label(field, bad)).refused(t, 422, "invalid_file_part")
		}
		before := len(s.rows(t, owner))
		for _, r := range []rune{0, 1, '\t', '\n', '\r', 0x1f, 0x7f, 0x80, 0x85, 0x9f, 0x2028, 0x2029} {
			post(label(field, "a"+string(r)+"b")).refused(t, 422, "invalid_file_part")
		}
		require.Len(t, s.rows(t, owner), before)
	}
}

// Files are counted, not believed, and a request has a bound.
func TestPlaintextSizes(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	agent, owner := s.member(t, room, "agent"), s.member(t, room, "owner")
	file := func(size string, data string) string {
		return `{"parts":[{"type":"file","name":"n","mime_type":"m"` + size + `,"data":"` + data + `"}]}`
	}
	for name, body := range map[string]string{
		"more than declared": file(`,"size_bytes":1`, "YWI="),
		"less than declared": file(`,"size_bytes":3`, "YWI="),
		"not padded":         file("", "YQ"),
		"not canonical":      file("", "YR=="),
		"base64url":          file("", "__8="),
		"with a line break":  file("", `YWJj\nYWJj`),
		"no base64":          file("", "!!!!"),
		"700,001 bytes":      file("", base64.StdEncoding.EncodeToString(make([]byte, 700_001))),
		"700,002 bytes":      file("", base64.StdEncoding.EncodeToString(make([]byte, 700_002))),
		"far too many":       file("", base64.StdEncoding.EncodeToString(make([]byte, 780_000))),
	} {
		answer := s.as(t, agent, http.MethodPost, "/messages", body)
		answer.refused(t, 422, "invalid_file_part")
		require.Empty(t, s.rows(t, owner), name)
	}
	largest := base64.StdEncoding.EncodeToString(make([]byte, 700_000))
	s.say(t, agent, file(`,"size_bytes":700000`, largest))
	whole := text("")
	full := text(strings.Repeat("x", 1<<20-len(whole)))
	require.Len(t, full, 1<<20)
	s.say(t, agent, full)
	for _, row := range s.rows(t, owner) { // and a client can read it
		_, err := wire.ParseServer(wire.AppendDeliver(nil, row.ID, true, row.Payload))
		require.NoError(t, err)
		require.LessOrEqual(t, len(row.Payload), wire.MaxPlaintext)
	}
	require.Len(t, s.rows(t, owner), 2)
	s.as(t, agent, http.MethodPost, "/messages", full+" ").refused(t, 413, "too_large")
	s.as(t, agent, http.MethodPost, "/messages", full[:len(full)-2]+strings.Repeat(" ", 10)+"]}").refused(t, 413, "too_large")
	require.Len(t, s.rows(t, owner), 2)
}

// RELAY, 20 envelopes a second: what is refused uses no budget, and others wait for nobody.
func TestPlaintextRate(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	s := newSessions(t, func(c *api.Config) { c.Now = clock.Now })
	room := s.make(t, `{"scheme":"none"}`)
	agent, other := s.member(t, room, "agent"), s.member(t, room, "agent")
	for range wire.EnvelopesPerSec {
		s.say(t, agent, text("x"))
	}
	for range 3 {
		answer := s.as(t, agent, http.MethodPost, "/messages", text("x"))
		answer.refused(t, 429, "rate_limited")
		require.Equal(t, "1", answer.header.Get("Retry-After"))
	}
	s.say(t, other, text("x"))
	require.Len(t, s.rows(t, other), wire.EnvelopesPerSec)
	clock.add(time.Second)
	s.say(t, agent, text("x"))
}

// The content of plaintext is in inboxes only: in no column of the database, no log and no
// refusal (DESIGN section 4).
func TestPlaintextIsInInboxesOnly(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.make(t, `{"scheme":"none"}`)
	one, two := s.member(t, room, "agent"), s.member(t, room, "agent")
	const marker = "MARKED-PLAINTEXT"
	data := base64.StdEncoding.EncodeToString([]byte(marker + "-file"))
	body := `{"parts":[{"type":"text","text":"` + marker + `"},{"type":"file","name":"named","mime_type":"m","data":"` + data + `"}]}`
	var answers strings.Builder
	send := func(body string) {
		answer := s.as(t, one, http.MethodPost, "/messages", body)
		answers.WriteString(answer.body)
	}
	send(body)
	send(private(two, body))
	send(`{"parts":[{"type":"` + marker + `"}]}`)
	send(`{"` + marker + `":1}`)
	send(`{"parts":"` + marker + `"}`)
	send(`{"parts":[{"type":"text","text":"` + marker + `\ud800"}]}`)
	send(`{"parts":[{"type":"file","name":"n","mime_type":"m","data":"` + marker + `"}]}`)
	for _, fault := range []func(*parts){
		func(p *parts) { p.trace = errors.New("trace") },
		func(p *parts) { p.trace, p.write = nil, inbox.ErrUnavailable },
	} {
		s.parts.set(fault)
		send(private(two, body))
	}
	rows := s.rows(t, two)
	require.Len(t, rows, 2)
	require.Contains(t, string(rows[0].Payload), marker)
	require.Len(t, s.traces(t, room), 2)
	for _, secret := range []string{marker, data} {
		require.NotContains(t, s.log.String(), secret)
		require.NotContains(t, answers.String(), secret)
		require.Empty(t, s.columnsWith(t, secret))
	}
	require.NotEmpty(t, s.columnsWith(t, "named"), "the search finds what is there")
}

// columnsWith names the columns of the database that hold a text somewhere.
func (s *sessions) columnsWith(t *testing.T, marker string) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, s.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT table_name, column_name, data_type FROM information_schema.columns
		WHERE table_schema = 'public' ORDER BY 1, 2`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Table, Column, Type string }])
	require.NoError(t, err)
	require.Greater(t, len(columns), 50)
	var found []string
	for _, c := range columns {
		column := pgx.Identifier{c.Column}.Sanitize()
		value := column + "::text"
		if c.Type == "bytea" {
			value = "encode(" + column + ", 'escape')"
		}
		var has bool
		query := fmt.Sprintf("SELECT count(*) > 0 FROM %s WHERE strpos(%s, $1) > 0", pgx.Identifier{"public", c.Table}.Sanitize(), value)
		require.NoError(t, conn.QueryRow(ctx, query, marker).Scan(&has), query)
		if has {
			found = append(found, c.Table+"."+c.Column)
		}
	}
	return found
}

// docs/api.md, "body of a request": a body may take longer than the work after it may; one
// that is not there yet keeps nobody else's message waiting.
func TestBodiesThatComeSlowly(t *testing.T) {
	t.Parallel()
	const work = 3 * time.Second
	s := newSessions(t, func(c *api.Config) { c.RequestTimeout = work })
	room := s.make(t, `{"scheme":"none"}`)
	var finish []func()
	for range 17 { // four bodies each: more than there are places for messages under way
		slow := s.member(t, room, "agent")
		for range 4 {
			body, writer := io.Pipe()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.public.URL+"/v1/sessions/"+room+"/messages", body)
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer "+slow.Credential)
			answered := make(chan int, 1)
			go func() {
				answer, err := s.public.Client().Do(request)
				if err != nil {
					answered <- 0
					return
				}
				_ = answer.Body.Close()
				answered <- answer.StatusCode
			}()
			_, err = writer.Write([]byte(`{"parts":`)) // the request is under way
			require.NoError(t, err)
			finish = append(finish, func() {
				_, err := writer.Write([]byte(`[{"type":"text","text":"x"}]}`))
				require.NoError(t, err)
				require.NoError(t, writer.Close())
				require.Equal(t, http.StatusCreated, <-answered)
			})
		}
	}
	began := time.Now()
	fast := s.member(t, room, "agent")
	require.Equal(t, http.StatusCreated, s.as(t, fast, http.MethodPost, "/messages", `{"parts":[{"type":"text","text":"x"}]}`).status)
	<-time.After(time.Until(began.Add(work + work/10))) // what is not answered now is over the time of a request's work
	for _, end := range finish {
		end()
	}
}
