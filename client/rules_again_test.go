package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// A file whose draft has an id goes on where it was refused: the parts of both calls make one file.
func TestAFileGoesOnUnderItsID(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "before")
	parts := 0
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		id, kind := envelopeOf(message)
		if kind != "message" {
			return true, nil
		}
		if parts++; parts <= 2 {
			return true, nil
		}
		return false, nackOf(id, wire.InvalidFilePart)
	})
	draft := client.Draft{ID: "a-file-of-this-test", File: someFile(t, 4)}
	_, err := bob.Send(t.Context(), draft)
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidFilePart})
	o.proxy.onUp(nil)
	_, err = bob.Send(t.Context(), draft)
	require.NoError(t, err)
	o.alice.poll(t)
	require.Empty(t, o.alice.failures())
	require.Len(t, o.alice.messages(), 2)
	require.Equal(t, draft.File.Data, o.alice.messages()[1].Files[0].Data)
}

// A room's scheme does not change, nor who this device is in it: a relay that says so is not
// believed, and nothing is sealed for what it says.
func TestARoomStaysWhatItIs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(answer map[string]any){
		"scheme":      func(answer map[string]any) { answer["scheme"] = "none" },
		"kind":        func(answer map[string]any) { answer["kind"] = "direct" },
		"participant": func(answer map[string]any) { answer["participant_id"] = answer["room_id"] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, l, _ := liedTo(t)
			bob := open(t, o.robot, o.room)
			say(t, bob, "before")
			l.rosters(o.room, change)
			_, err := o.admin.AddMember(t.Context(), o.room, o.device(t, client.KindAgent).ID(), client.RoleAgent)
			require.NoError(t, err)
			bob.pollForEvent(t, wire.RoomJoined)
			_, err = bob.Send(t.Context(), client.Draft{Text: "a secret"})
			require.Error(t, err)
			require.ErrorContains(t, err, "something else")
		})
	}
}
