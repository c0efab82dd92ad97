package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// plaintext posts a message with a participant's credential.
func plaintext(t *testing.T, relay *testkit.Relay, from testkit.Participant, body string) (status int, id string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+relay.Addr()+"/v1/sessions/"+from.Room+"/messages", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+from.Credential)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var sent struct {
		MessageID string `json:"message_id"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&sent))
	return answer.StatusCode, sent.MessageID
}

// Plaintext goes the way of all envelopes: live to who is connected, and to who is not from
// the inbox, the largest files too, and several of them in one replay.
func TestPlaintextReachesSockets(t *testing.T) {
	relay := shared(t)
	room := relay.Room(t, testkit.RoomOptions{Scheme: "none"})
	sender, reader := relay.Join(t, room, "agent"), relay.Join(t, room, "owner")
	live := relay.RawDial(t)
	live.Send(t, string(wire.AppendHello(nil, reader.Credential, false)))
	live.Until(t, wire.ServerWelcome)
	live.Send(t, string(wire.AppendResume(nil, "$", 0)))
	live.Until(t, wire.ServerResumeComplete)

	data := base64.StdEncoding.EncodeToString(make([]byte, wire.MaxFileSize))
	var ids []string
	for i := range 4 {
		status, id := plaintext(t, relay, sender, `{"parts":[{"type":"text","text":"`+strconv.Itoa(i)+`"},`+
			`{"type":"file","name":"n","mime_type":"m","data":"`+data+`"}]}`)
		require.Equal(t, http.StatusCreated, status)
		ids = append(ids, id)
		frame := live.Until(t, wire.ServerDeliver)
		require.Equal(t, wire.ReplayLive, frame.Replay)
		requirePlaintext(t, frame, id, strconv.Itoa(i))
	}

	again := relay.RawDial(t)
	again.Send(t, string(wire.AppendHello(nil, reader.Credential, false)))
	again.Until(t, wire.ServerWelcome)
	again.Send(t, string(wire.AppendResume(nil, "0", 0)))
	for i, id := range ids {
		frame := again.Until(t, wire.ServerDeliver)
		require.Equal(t, wire.ReplayStored, frame.Replay)
		requirePlaintext(t, frame, id, strconv.Itoa(i))
	}
	// Room events of those who joined are rows, too.
	require.GreaterOrEqual(t, again.Until(t, wire.ServerResumeComplete).Replayed, len(ids))

	relay.Remove(t, sender)
	status, _ := plaintext(t, relay, sender, `{"parts":[{"type":"text","text":"x"}]}`)
	require.Equal(t, http.StatusUnauthorized, status)
}

func requirePlaintext(t *testing.T, frame wire.ServerFrame, id, text string) {
	t.Helper()
	var envelope struct {
		ID    string `json:"id"`
		Parts []struct {
			Text string `json:"text"`
			Size int    `json:"size_bytes"`
		} `json:"parts"`
	}
	require.NoError(t, json.Unmarshal(frame.Envelope, &envelope))
	require.Equal(t, id, envelope.ID)
	require.Equal(t, text, envelope.Parts[0].Text)
	require.Equal(t, wire.MaxFileSize, envelope.Parts[1].Size)
}
