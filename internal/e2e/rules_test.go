package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// RELAY: hello is answered with welcome, which names the participant and the session; after
// it envelopes may be sent, and nothing is delivered before a resume.
func TestWelcome(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	greeted := upgraded(t, s, "")
	greeted.write(hello(who[0].Credential))
	require.JSONEq(t, fmt.Sprintf(`{"type":"welcome","participant_id":%q,"session_id":%q}`, who[0].ID, who[0].Room), string(greeted.next().Raw))

	deaf, follows, other := connect(t, s, who[1]), online(t, s, who[1]), connect(t, s, who[0])
	for n := range 3 {
		sent := other.envelope("control", who[1].ID, fmt.Sprintf("before-%d", n))
		other.queued(sent, 1)
		require.Equal(t, string(sent), string(follows.delivered().Envelope), "another connection of the same participant")
	}
	sent := deaf.envelope("control", who[0].ID, "reply")
	require.Contains(t, deaf.queued(sent, 1), who[0].ID, "the first frame after welcome is the verdict, and no delivery")
	require.Len(t, deaf.resume("0", 0).rows, 3)
}

// RELAY, "the envelope does not match the room's scheme", "the operator has not enabled MLS
// rooms", "the MLS generation is unknown": refusals of history as the database gives them.
func TestSchemesOverTheSocket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []testkit.Option
		scheme  string
		kind    string
		members string
		reason  wire.Code // of an envelope to the room
	}{
		"sender keys":               {nil, "sender_keys", "message", padding(4), ""},
		"sender keys, pairwise":     {nil, "sender_keys", "message", padding(4) + `,"enc":"pairwise"`, wire.SchemeMismatch},
		"sender keys, ratchet":      {nil, "sender_keys", "message", padding(4) + `,"hdr":"x"`, wire.SchemeMismatch},
		"none, a message":           {nil, "none", "message", padding(4), wire.SchemeMismatch},
		"none, a key":               {nil, "none", "senderkey", padding(4), wire.SchemeMismatch},
		"none, control":             {nil, "none", "control", padding(4), ""},
		"mls is off":                {nil, "mls", "message", padding(4), wire.MLSSchemeDisabled},
		"mls without a group":       {[]testkit.Option{testkit.MLS()}, "mls", "message", padding(4), wire.MLSUnknown},
		"mls with a sender's key":   {[]testkit.Option{testkit.MLS()}, "mls", "message", padding(4) + `,"kid":"AAECAwQFBgcICQoLDA0ODw"`, wire.SchemeMismatch},
		"mls, a distribution of it": {[]testkit.Option{testkit.MLS()}, "mls", "senderkey", padding(4), wire.SchemeMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unlimited(t, c.options...)
			id := s.Room(t, testkit.RoomOptions{Scheme: c.scheme})
			a, b := online(t, s, s.Join(t, id, "agent")), online(t, s, s.Join(t, id, "agent"))
			frame := a.envelopeWith(c.kind, a.who.Room, "x", c.members)
			if c.reason == "" {
				a.queued(frame, 1)
				require.Equal(t, string(frame), string(b.delivered().Envelope))
				return
			}
			a.nacked(frame, c.reason)
			alive(t, a, b) // an envelope to one participant is outside these rules
			require.Len(t, resumeOnce(t, s, b.who, "0").rows, 1)
		})
	}
}

// RELAY, "The relay preserves the original envelope bytes through inbox storage, live
// delivery, replay and the history API", with kid and file, in any writing.
func TestBytesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "viewer")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	var all []string
	for i, members := range []string{
		` "kid" : "q83vASNFZ4mrze8BI0VniQ",` + "\n\t\"ct\":\"A\\u0041\\/\", \"x\" : [1.0e5 ,{ } , \"\\ud83d\\ude00<&>\u2028\"]",
		`"file":{"sizeBytes":7,"mimeType":"text/plain; charset=\u00fc","name":"\u202eb\u00e4.txt"},"ct":"QQ=="`,
		`"ct":"` + strings.Repeat("Aé", 12_000) + `"`,
	} {
		frame := bytes.Replace(a.envelopeWith("message", a.who.Room, fmt.Sprintf("b-%d", i), members), []byte(`{"v"`), []byte("\r\n {\t\"v\""), 1)
		frame = append(frame, " \n"...)
		a.queued(frame, 2)
		require.Equal(t, string(frame), string(b.delivered().Envelope), "white space around it, too")
		all = append(all, string(frame))
	}
	require.Equal(t, all, resumeOnce(t, s, who[1], "0").envelopes())
	require.Equal(t, all, resumeOnce(t, s, who[2], "0").envelopes())
	listed := session[struct {
		Messages []struct {
			Envelope []byte `json:"envelope"`
			KID      string `json:"kid"`
		} `json:"messages"`
	}](t, s, who[2], http.MethodGet, "/history", nil, http.StatusOK).Messages
	require.Len(t, listed, len(all))
	require.Equal(t, "q83vASNFZ4mrze8BI0VniQ", listed[0].KID)
	for i, envelope := range all {
		require.Equal(t, envelope, string(listed[i].Envelope))
		require.Equal(t, envelope, rawMessage(t, s, who[1], fmt.Sprintf("b-%d", i)))
	}
}

// rawMessage is the bytes of one message of history.
func rawMessage(t *testing.T, s *testkit.Relay, who testkit.Participant, id string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/v1/sessions/"+who.Room+"/history?message_id="+id, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+who.Credential)
	request.Header.Set("Accept", "application/octet-stream")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
	return string(body)
}
