package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// A relay that once names numbers above all others is not believed: a room's version, a generation and
// the ids of prekeys are what they were, and all goes on when it says the truth.
func TestNumbersFarAboveAllOthersAreNotBelieved(t *testing.T) {
	o, l, _ := liedTo(t)
	bob := open(t, o.robot, o.room)

	l.rosters(o.room, func(answer map[string]any) { answer["version"] = int64(1) << 50 })
	_, err := o.robot.OpenSession(t.Context(), o.room) // looks again before the next message
	require.NoError(t, err)
	_, err = bob.Send(t.Context(), client.Draft{Text: "a version"})
	require.ErrorIs(t, err, keystore.ErrImplausible)

	for _, lie := range []struct{ method, path, from, to string }{
		{http.MethodGet, "/participants", `"gen":0`, `"gen":9007199254740990`},
		{http.MethodPost, "/sender-generations", `"gen":1`, `"gen":9007199254740990`},
	} {
		lied := 0
		l.tell(func(request *http.Request, status int, body []byte) (int, []byte) {
			if request.Method != lie.method || !strings.HasSuffix(request.URL.Path, lie.path) {
				return status, body
			}
			if lie.method == http.MethodGet {
				body = []byte(strings.ReplaceAll(string(body), `"participant_id":"`+bob.Participant()+`"`,
					`"participant_id":"`+bob.Participant()+`","generation":{"gen":9007199254740990,"kid":"","session_key":""}`))
			}
			lied++
			return status, []byte(strings.Replace(string(body), lie.from, lie.to, 1))
		})
		_, err = bob.Send(t.Context(), client.Draft{Text: lie.path})
		require.ErrorIs(t, err, keystore.ErrImplausible, lie.path)
		require.Positive(t, lied)
	}
	l.tell(func(request *http.Request, status int, body []byte) (int, []byte) {
		if request.URL.Path == "/v1/devices/me/prekeys" && request.Method == http.MethodGet {
			body = []byte(`{"signed_prekey_id":1,"last_prekey_id":1073741824,"one_time_prekeys":0}`)
		}
		return status, body
	})
	require.ErrorIs(t, o.robot.RefillPrekeys(t.Context()), keystore.ErrImplausible)

	l.tell(nil)
	require.NoError(t, o.robot.RefillPrekeys(t.Context()))
	say(t, bob, "the truth")
	o.alice.pollFor(t, 1)
	require.Equal(t, []string{"the truth"}, o.alice.texts())
	require.Zero(t, restores(t, o.robot))
}

// Such a version of an event is reported, and holds nothing up.
func TestEventsFarAboveAllOthersAreNotBelieved(t *testing.T) {
	o := newOffline(t)
	room := o.talk.room(t, client.NewRoom{Kind: "direct"}, o.robot)
	alice, bob := open(t, o.admin, room), open(t, o.robot, room)
	say(t, alice, "one")
	bob.pollFor(t, 1)
	lied := false
	o.proxy.onDown(func(message []byte) [][]byte {
		if lied || !strings.Contains(string(message), `"resume_complete"`) {
			return [][]byte{message}
		}
		lied = true
		return [][]byte{fmt.Appendf(nil, `{"type":"room.event","stream_id":"9-9","event_id":"01980000-0000-7000-8000-0000000000aa",`+
			`"event":"device_linked","room_id":%q,"version":%d,"replay":false}`, room, int64(1)<<50), message}
	})
	bob.listen(t)
	bob.awaitItems(t, func(i client.Item) bool { return i.Failure != nil })
	require.ErrorIs(t, bob.failures()[0].Err, keystore.ErrImplausible)
	say(t, bob, "the conversation goes on")
	alice.pollFor(t, 1)
	_, err := o.admin.ResetRoom(t.Context(), room) // and begins anew when it should
	require.NoError(t, err)
	bob.awaitItems(t, func(i client.Item) bool { return i.Event != nil && i.Event.Event == wire.DeviceLinked })
	_, err = bob.Send(t.Context(), client.Draft{Text: "too early"})
	require.Error(t, err)
	alice.pollForReset(t, 1)
	say(t, alice, "anew")
	bob.await(t, "one", "anew")
}
