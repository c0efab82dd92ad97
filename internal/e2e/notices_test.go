package e2e_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// generation allocates the participant's next gen.
func generation(t *testing.T, s *testkit.Relay, who testkit.Participant, kid byte) uint64 {
	t.Helper()
	answer := session[struct {
		Gen uint64 `json:"gen"`
	}](t, s, who, http.MethodPost, "/sender-generations", map[string]string{
		"kid":         base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{kid}, 16)),
		"session_key": base64.StdEncoding.EncodeToString([]byte("public key")),
	}, http.StatusCreated)
	return answer.Gen
}

// notice builds a valid notice to the session.
func (p *peer) notice(id string, gen uint64, sent, expires time.Time) []byte {
	return fmt.Appendf(nil,
		`{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":"notice","gen":%d,"seq":%d,"ts":%d,"expires_at":%d,"nonce":"bm9uY2U=","ct":"QQ==","sig":"c2ln"}`,
		id, p.who.Room, p.who.ID, p.who.Room, gen, p.seq.Add(1), sent.UnixMilli(), expires.UnixMilli())
}

// fresh is a notice that is valid now.
func (p *peer) fresh(id string, gen uint64) []byte {
	now := time.Now()
	return p.notice(id, gen, now, now.Add(time.Hour))
}

// RELAY, "A notice is a participant alert": accepted once, fanned out once; each refusal
// of the writer under its own name.
func TestNotices(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	a, b, owner := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	gen := generation(t, s, who[0], 1)
	now := time.Now()

	sent := a.fresh("n1", gen)
	a.queued(sent, 2)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
	require.Equal(t, string(sent), string(owner.delivered().Envelope))

	connect(t, s, who[0]).nacked(sent, wire.NoticeDuplicate)
	a.nacked(a.fresh("n1", gen), wire.NoticeIDConflict)
	a.nacked(a.fresh("n2", gen+1), wire.NoticeInvalidGen)
	for name, times := range map[string][2]time.Time{
		"ts long ago":      {now.Add(-6 * time.Minute), now.Add(time.Hour)},
		"ts in the future": {now.Add(6 * time.Minute), now.Add(time.Hour)},
		"expired":          {now.Add(-time.Minute), now.Add(-time.Second)},
		"lives too long":   {now, now.Add(24*time.Hour + time.Minute)},
	} {
		a.nacked(a.notice("stale", gen, times[0], times[1]), wire.NoticeStale)
		_ = name
	}
	// Generations are the sender's own.
	b.nacked(b.fresh("n3", gen), wire.NoticeInvalidGen)
	owner.nacked(owner.fresh("n4", gen), wire.NoticeNotPermitted)

	for n := 2; n <= 20; n++ {
		a.queued(a.fresh(fmt.Sprintf("cap%d", n), gen), 2)
		b.delivered()
	}
	a.nacked(a.fresh("one-more", gen), wire.NoticeCap)
	alive(t, a, b) // nothing of the refused ones came
	listed := session[struct {
		Notices []struct {
			ID string `json:"notice_id"`
		} `json:"notices"`
	}](t, s, who[2], http.MethodGet, "/notices", nil, http.StatusOK)
	require.Len(t, listed.Notices, 20)
}

// RELAY: the raw bytes of a notice are one strict JSON object from a closed list of
// members; anything else is refused before any write.
func TestNoticeShape(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	gen := generation(t, s, who[0], 1)
	for _, c := range [][2]string{
		{`"sig":"c2ln"`, `"sig":"c2ln","file":{"name":"a","mimeType":"b","sizeBytes":1}`},
		{`"sig":"c2ln"`, `"sig":"c2ln","enc":"pairwise"`},
		{`"sig":"c2ln"`, `"sig":"c2ln","hdr":"x"`},
		{`"sig":"c2ln"`, `"sig":"c2ln","extra":1`},
		{`"sig":"c2ln"`, `"sig":"c2ln","Kid":"x"`},
		{`"sig":"c2ln"`, `"sig":"c2ln","sig":"c2ln"`},
		{`"sig":"c2ln"`, `"sig":"c2ln","\u0069d":"shape"`},
		{`"sig":"c2ln"}`, `"sig":"c2ln"}{}`},
		{`"sig":"c2ln"}`, `"sig":"c2ln"} x`},
	} {
		frame := bytes.Replace(a.fresh("shape", gen), []byte(c[0]), []byte(c[1]), 1)
		a.nacked(frame, wire.InvalidEnvelope)
	}
	pairwise := bytes.Replace(a.fresh("shape", gen), []byte(`"to":"`+who[0].Room), []byte(`"to":"`+who[1].ID), 1)
	a.nacked(pairwise, wire.InvalidEnvelope)
	sent := a.fresh("shape", gen)
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope), "the id was not used up")
}

// RELAY: message.send and session.alert.emit are looked up fresh for each envelope.
func TestNoticeRightsAreFresh(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	a, other := connect(t, s, who[0]), connect(t, s, who[1])
	gen, othersGen := generation(t, s, who[0], 1), generation(t, s, who[1], 1)
	set := func(rule, participant string, allowed bool) {
		body := map[string]any{"rule": rule, "allowed": allowed}
		if participant != "" {
			body["participant_id"] = participant
		}
		session[any](t, s, who[2], http.MethodPut, "/rules", body, http.StatusOK)
	}
	a.queued(a.fresh("n1", gen), 2)
	set("session.alert.emit", who[0].ID, false)
	a.nacked(a.fresh("n2", gen), wire.NoticeNotPermitted)
	other.queued(other.fresh("n3", othersGen), 2)
	set("session.alert.emit", who[0].ID, true)
	a.queued(a.fresh("n4", gen), 2)
	set("message.send", "", false)
	a.nacked(a.fresh("n5", gen), wire.NoticeNotPermitted)
	status, body := ask(t, s, who[0], http.MethodPut, "/v1/sessions/"+who[0].Room+"/rules", map[string]any{"rule": "message.send", "allowed": true})
	require.Equal(t, http.StatusForbidden, status, "the rules are the owner's: %s", body)
}

// RELAY: never from a development connection.
func TestNoNoticeOverADevelopmentConnection(t *testing.T) {
	t.Parallel()
	s := unlimited(t, testkit.AllowDevelopment())
	who := room(t, s, "agent", "agent")
	gen := generation(t, s, who[0], 1)
	conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: s.Mint(t, who[0], "development", time.Hour), Direct: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t: t, conn: conn, who: who[0]}
	p.nacked(p.fresh("n", gen), wire.NoticeNotPermitted)
	p.queued(p.envelope("message", p.who.Room, "m"), 1)
}

// FAULTS E06: of two that send the same notice at once exactly one is accepted and
// fanned out once.
func TestNoticeTwins(t *testing.T) {
	t.Parallel()
	const rounds = 15
	s := shared(t)
	who := room(t, s, "agent", "agent")
	gen := generation(t, s, who[0], 1)
	one, two, b := online(t, s, who[0]), online(t, s, who[0]), online(t, s, who[1])
	for n := range rounds {
		sent := one.fresh(fmt.Sprintf("twin%d", n), gen)
		verdicts := make([]wire.ServerFrame, 2)
		var both sync.WaitGroup
		for i, p := range []*peer{one, two} {
			both.Go(func() {
				p.send(sent)
				verdicts[i] = p.next()
			})
		}
		both.Wait()
		types := []wire.ServerType{verdicts[0].Type, verdicts[1].Type}
		require.ElementsMatch(t, []wire.ServerType{wire.ServerQueued, wire.ServerNack}, types)
		for _, v := range verdicts {
			if v.Type == wire.ServerNack {
				require.Equal(t, wire.NoticeDuplicate, v.Reason)
			}
		}
		require.Equal(t, string(sent), string(b.delivered().Envelope))
	}
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, rounds)
}
