package client_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// rosters changes what the relay says of who is in a room.
func (l *liar) rosters(room string, change func(answer map[string]any)) {
	l.tell(func(request *http.Request, status int, body []byte) (int, []byte) {
		var answer map[string]any
		if request.URL.Path != "/v1/rooms/"+room || request.Method != http.MethodGet || json.Unmarshal(body, &answer) != nil {
			return status, body
		}
		change(answer)
		text, _ := json.Marshal(answer)
		return status, text
	})
}

// liedTo is a room whose agent asks the relay through a liar.
func liedTo(t *testing.T, others ...client.DeviceKind) (o *offline, l *liar, also []*client.Device) {
	t.Helper()
	o = &offline{talk: newTalk(t), dir: filepath.Join(t.TempDir(), "device")}
	o.proxy = newProxy(t, o.relay)
	l = newLiar(t, o.proxy.URL)
	o.robot = o.agentAt(t, l.URL, o.dir, client.DeviceOptions{})
	for _, kind := range others {
		also = append(also, o.device(t, kind))
	}
	o.room = o.talk.room(t, client.NewRoom{}, append(slices.Clone(also), o.robot)...)
	o.alice = open(t, o.admin, o.room)
	return o, l, also
}

// STATE, "All encryption state is validated client-side before use": of somebody whose device is
// shown with other keys than before, nothing is believed, and it is said why.
func TestNothingIsBelievedOfChangedKeys(t *testing.T) {
	t.Parallel()
	o, l, also := liedTo(t, client.KindAgent)
	bob, carol := open(t, o.robot, o.room), open(t, also[0], o.room)
	say(t, o.alice, "it is me")
	bob.poll(t)
	say(t, o.alice, "from keys of before")
	l.rosters(o.room, func(answer map[string]any) {
		var stolen map[string]any
		all, _ := answer["participants"].([]any)
		for _, one := range all {
			if p, _ := one.(map[string]any); p["participant_id"] == carol.Participant() {
				stolen = p
			}
		}
		for _, one := range all {
			p, _ := one.(map[string]any)
			if p["participant_id"] != o.alice.Participant() {
				continue
			}
			for _, key := range []string{"identity_key", "agreement_key", "agreement_signature"} {
				p[key] = stolen[key]
			}
		}
	})
	later := o.again(t)
	later.poll(t)
	require.Empty(t, later.texts())
	require.NotEmpty(t, later.failures())
	for _, failure := range later.failures() {
		require.ErrorIs(t, failure.Err, client.ErrKeysChanged)
	}
	_, err := later.Send(t.Context(), client.Draft{Text: "a secret"})
	require.ErrorIs(t, err, client.ErrKeysChanged)
}

// STATE, "Mandatory Rekey": a relay that shows the room as it was before somebody left changes
// nothing: the newest version of a room counts.
func TestAnOldRosterIsNotTaken(t *testing.T) {
	t.Parallel()
	o, l, also := liedTo(t, client.KindAgent, client.KindAgent)
	bob, carol, dave := open(t, o.robot, o.room), open(t, also[0], o.room), open(t, also[1], o.room)
	say(t, bob, "before")
	var mu sync.Mutex
	var old map[string]any
	lying, lies := false, 0
	l.rosters(o.room, func(answer map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		if old == nil {
			old = answer
		}
		if lying {
			clear(answer)
			maps.Copy(answer, old)
			lies++
		}
	})
	members := func() (ids []string) {
		for _, p := range bob.Members() {
			ids = append(ids, p.ParticipantID)
		}
		return ids
	}
	_, err := o.robot.Room(t.Context(), o.room) // the answer that is kept
	require.NoError(t, err)
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, carol.Participant()))
	bob.pollForEvent(t, wire.MemberRemoved)
	say(t, bob, "one left")
	require.NotContains(t, members(), carol.Participant())
	mu.Lock()
	lying = true
	mu.Unlock()
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, dave.Participant()))
	bob.poll(t)
	say(t, bob, "two left")
	mu.Lock()
	require.Positive(t, lies)
	mu.Unlock()
	require.NotContains(t, members(), carol.Participant())
	o.alice.poll(t)
	require.Equal(t, []string{"before", "one left", "two left"}, o.alice.texts())
}
