package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// Only exact lower-case names are members: another spelling beside the true one neither
// routes, nor changes the kind or the sender, in routing, policy, trace or history
// (FAULTS F01).
func TestOtherSpellingsAreOtherMembers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "agent", "owner")
	a, b := connect(t, s, who[0]), online(t, s, who[1])
	with := func(kind, id, more string) []byte {
		return a.envelopeWith(kind, who[1].ID, id, `"ct":"QQ==",`+more)
	}
	for i, more := range []string{
		`"TO":"` + who[2].ID + `"`, `"To":"` + a.who.Room + `"`, `"From":"` + who[2].ID + `"`, `"FROM":"` + who[2].ID + `"`,
		`"Kind":"message"`, `"KIND":"notice"`, `"Id":"other"`, `"Session_ID":"x"`, `"SEQ":0`, `"Type":"resume"`, `"File":{"name":1}`,
		`"\u004bind":"message"`, `"\u017Beq":1`, `"\u212Aid":"x"`,
	} {
		sent := with("control", fmt.Sprintf("control-%d", i), more)
		require.Contains(t, a.queued(sent, 1), who[1].ID, more)
		require.Equal(t, string(sent), string(b.delivered().Envelope))
	}
	sent := with("message", "private", `"Kind":"control"`)
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
	found := session[traces](t, s, who[3], http.MethodGet, "/traces", nil, http.StatusOK).Traces
	require.Len(t, found, 1, "one message; no control envelope became one, and the message no control envelope")
	require.Equal(t, "private", found[0].MessageID)
	for _, p := range who[2:] {
		require.Empty(t, resumeOnce(t, s, p, "0").rows)
	}
	_, body := ask(t, s, who[3], http.MethodGet, "/v1/sessions/"+who[3].Room+"/history", nil)
	require.JSONEq(t, `{"messages":[]}`, string(body))

	// A control frame is known by its type alone; an object without one is an envelope.
	a.nacked([]byte(`{"Type":"resume","last_id":"0"}`), wire.InvalidEnvelope)
	a.nacked([]byte(`{"TYPE":"hello"}`), wire.InvalidEnvelope)
}

// Members twice, in any writing: refused before anything is stored (FAULTS F03).
func TestMembersTwice(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	gen := generation(t, s, who[0], 1)
	a := connect(t, s, who[0])
	message := func(before, after string) []byte {
		return bytes.Replace(a.envelopeWith("message", a.who.Room, "twice", `"ct":"QQ==","file":{"name":"a","mimeType":"b","sizeBytes":1}`),
			[]byte(before), []byte(after), 1)
	}
	id := `"session_id":"` + a.who.Room + `"`
	const file = `"file":{"name":"a","mimeType":"b","sizeBytes":1}`
	for _, frame := range [][]byte{
		message(id, id+","+id),
		message(id, id+`,"session\u005fid":"`+a.who.Room+`"`),
		message(id, id+`,"session_id":"`+who[1].ID+`"`),
		message(file, file+","+file),
		message(file, file+`,"\u0066ile":null`),
		message(`"name":"a"`, `"name":"a","n\u0061me":"b"`),
		message(`"ct":"QQ=="`, `"ct":"QQ==","x":1,"x":2`),
		bytes.Replace(a.fresh("twice", gen), []byte(`"id":"twice"`), []byte(`"id":"twice","id":"twice"`), 1),
		bytes.Replace(a.fresh("twice", gen), []byte(`"id":"twice"`), []byte(`"id":"twice","\u0069d":"other"`), 1),
		bytes.Replace(a.fresh("twice", gen), []byte(`"to":`), []byte(`"to":"`+who[1].ID+`","to":`), 1),
	} {
		a.send(frame)
		got := a.next()
		require.Equal(t, wire.ServerNack, got.Type, "%s: %s", frame, got.Raw)
		require.Equal(t, wire.InvalidEnvelope, got.Reason)
	}
	require.Empty(t, resumeOnce(t, s, who[1], "0").rows)
	a.queued(message("", ""), 2)
	a.queued(a.fresh("twice", gen), 2)
}

// Broken Unicode and NUL in a notice: refused, or every byte kept; nothing is mended on the
// way, and nothing is a fault of the server (FAULTS F04, F06).
func TestTextOfNotices(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	gen := generation(t, s, who[0], 1)
	a, b := connect(t, s, who[0]), online(t, s, who[1])
	kept := 0
	for i, change := range [][2]string{
		{`"nonce":"bm9uY2U="`, `"nonce":"a\u0000b"`},
		{`"ct":"QQ=="`, `"ct":"\u0000"`},
		{`"sig":"c2ln"`, `"sig":"\u0000\ufffd"`},
		{`"sig":"c2ln"`, `"sig":"\ud83d\ude00 \u2028"`},
		{`"nonce":"bm9uY2U="`, `"nonce":"\ud800"`},
		{`"ct":"QQ=="`, `"ct":"\udc00x"`},
		{`"sig":"c2ln"`, `"sig":"\ud83d"`},
		{`"sig":"c2ln"`, `"sig":"c2ln","kid":"\u0000AAAAAAAAAAAAAAAAAAAAA"`},
		{`"id":"text`, `"id":"\u0000text`},
		{`"id":"text`, `"id":"\ufffdtext`},
	} {
		sent := bytes.Replace(a.fresh(fmt.Sprintf("text-%d", i), gen), []byte(change[0]), []byte(change[1]), 1)
		a.send(sent)
		got := a.next()
		if got.Type == wire.ServerNack {
			require.Equal(t, wire.InvalidEnvelope, got.Reason, "%s", sent)
			continue
		}
		require.Equal(t, wire.ServerQueued, got.Type)
		require.Equal(t, wire.ServerQueued, a.next().Type)
		require.Equal(t, string(sent), string(b.delivered().Envelope))
		kept++
	}
	listed := session[struct {
		Notices []struct {
			Envelope []byte `json:"envelope"`
		} `json:"notices"`
	}](t, s, who[2], http.MethodGet, "/notices", nil, http.StatusOK).Notices
	rows := resumeOnce(t, s, who[1], "0").envelopes()
	require.Len(t, listed, kept)
	require.Len(t, rows, kept)
	for i := range rows {
		require.Equal(t, rows[i], string(listed[i].Envelope))
		require.NotContains(t, rows[i], "\uFFFD", "nobody sent that character itself")
	}
	require.GreaterOrEqual(t, kept, 1)
}

// Identifiers that are subject syntax, in every place where HTTP takes one: refused, and no
// inbox gets a row (FAULTS C10).
func TestIdentifiersOverHTTP(t *testing.T) {
	t.Parallel()
	s := shared(t)
	plain := s.Room(t, testkit.RoomOptions{Scheme: "none"})
	who := []testkit.Participant{s.Join(t, plain, "agent"), s.Join(t, plain, "agent"), s.Join(t, plain, "owner")}
	elsewhere := room(t, s, "agent", "agent")
	for _, id := range []string{
		"a.b", "*", ">", "a b", "a\r\nPUB x 1", "$JS.API.x", "", strings.Repeat("x", 300), "\u00e9", "e\u0301", "..", "%2e%2e",
		who[0].ID + ".", "." + who[0].ID, strings.ToUpper(who[0].ID), "{" + who[0].ID + "}", strings.ReplaceAll(who[0].ID, "-", ""),
		"00000000-0000-0000-0000-000000000000", elsewhere[1].ID,
	} {
		caller := s.Join(t, plain, "agent") // each credential may ask so often only
		status, body := ask(t, s, caller, http.MethodPost, "/v1/sessions/"+plain+"/messages",
			map[string]any{"to": id, "parts": []any{map[string]any{"type": "text", "text": "x"}}})
		require.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, status, "to %q: %s", id, body)
		if id != "" { // an empty part of a path is another path
			for _, path := range []string{"/history", "/participants", "/presence", "/notices", "/board/events"} {
				status, body = ask(t, s, caller, http.MethodGet, "/v1/sessions/"+url.PathEscape(id)+path, nil)
				require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, status, "%q %s: %s", id, path, body)
			}
		}
		status, body = ask(t, s, caller, http.MethodGet, "/v1/sessions/"+plain+"/history?message_id="+url.QueryEscape(id), nil)
		require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, status, "message %q: %s", id, body)
		if id == "" || id == elsewhere[1].ID {
			continue // left out, and an id like any other for a card
		}
		status, body = ask(t, s, caller, http.MethodPost, "/v1/sessions/"+plain+"/board/cards",
			sealedMembers(map[string]any{"kind": "task", "card_id": id}))
		require.Equal(t, http.StatusBadRequest, status, "card %q: %s", id, body)
	}
	for _, p := range append(who[1:3:3], elsewhere...) {
		require.Empty(t, resumeOnce(t, s, p, "0").rows)
	}
}

// The same envelope comes once over every way, whichever node took it and whichever pushes
// it: one row, one queued with its id, one live frame for each connection (FAULTS C11).
func TestEachEnvelopeOnceAcrossNodes(t *testing.T) {
	t.Parallel()
	const each = 120
	_, one, two := sharedPair(t)
	who := room(t, one, "agent", "agent", "agent", "agent", "agent")
	l := newLedger(t)
	followers := []*follower{l.follow(one, who[2]), l.follow(two, who[2]), l.follow(two, who[3]), l.follow(one, who[4])}
	done := make(chan struct{})
	for i, s := range []*testkit.Relay{one, two} {
		others := append([]testkit.Participant{who[1-i]}, who[2:]...)
		p := connect(t, s, who[i])
		go func() {
			defer func() { done <- struct{}{} }()
			for n := range each {
				l.send(p, fmt.Sprintf("node%d-%d", i, n), others...)
			}
		}()
	}
	<-done
	<-done
	queued, _ := l.count("")
	require.Equal(t, 2*each, queued)
	for _, f := range followers {
		f.caughtUp()
	}
	for _, s := range []*testkit.Relay{one, two} {
		require.Len(t, resumeOnce(t, s, who[2], "0").rows, 2*each)
		l.check(s, who...)
	}
}
