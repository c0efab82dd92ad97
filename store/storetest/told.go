package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// told is a room event that waits in the outbox, without its ids.
type told struct {
	To          uuid.UUID          `json:"-"`
	Event       wire.RoomEventType `json:"event"`
	Version     int64              `json:"version"`
	Participant string             `json:"participant_id"`
	Device      string             `json:"device_id"`
	Role        store.Role         `json:"role"`
	Epoch       *int64             `json:"epoch"`
}

// hears takes all rows out of the outbox and returns the room events of one room, oldest
// first.
func (f fixture) hears(t *testing.T, room uuid.UUID) (events []told) {
	t.Helper()
	for {
		rows, err := f.Store.ClaimRows(t.Context(), 1000, time.Hour)
		require.NoError(t, err)
		if len(rows) == 0 {
			return events
		}
		require.NoError(t, f.Store.SettleRows(t.Context(), rows))
		for _, row := range rows {
			if row.Room != room {
				continue
			}
			var ids struct {
				Event string `json:"event_id"`
				Room  string `json:"room_id"`
			}
			event := told{To: row.To}
			require.NoError(t, json.Unmarshal(row.Payload, &ids))
			require.NoError(t, json.Unmarshal(row.Payload, &event))
			require.Equal(t, room.String(), ids.Room)
			require.NoError(t, uuid.Validate(ids.Event))
			require.Equal(t, f.tenant, row.Tenant)
			require.Equal(t, wire.ServerRoomEvent.String(), row.Kind)
			events = append(events, event)
		}
	}
}

func joined(version int64, p store.Participant) told {
	return told{Event: wire.RoomJoined, Version: version, Participant: p.ID.String(), Device: p.Device.String(), Role: p.Role}
}

func removed(version int64, p store.Participant) told {
	return told{Event: wire.MemberRemoved, Version: version, Participant: p.ID.String(), Device: p.Device.String()}
}

// linked: p asked for a new start; a zero p is the operator.
func linked(version int64, p store.Participant) told {
	event := told{Event: wire.DeviceLinked, Version: version}
	if p.ID != uuid.Nil {
		event.Participant = p.ID.String()
	}
	if p.Device != uuid.Nil {
		event.Device = p.Device.String()
	}
	return event
}

// schemeRoom is a new room of the scheme without participants: a direct one for the double
// ratchet.
func (f fixture) schemeRoom(t *testing.T, kind store.RoomKind, scheme store.Scheme) store.Room {
	t.Helper()
	room, err := f.Store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: f.tenant, Kind: kind, Scheme: scheme, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	return room
}

func (f fixture) room(t *testing.T, id uuid.UUID) store.Room {
	t.Helper()
	room, err := f.Store.FindRoom(t.Context(), f.tenant, id)
	require.NoError(t, err)
	return room
}

// send appends a message under a gen and expects a refusal, or none.
func (f fixture) send(t *testing.T, p store.Participant, gen uint64, want *wire.Error) {
	t.Helper()
	before := f.HistoryRows(t, f.tenant, p.Room)
	m := message(p, uuid.NewString(), "x")
	m.Gen = gen
	_, err := f.Edge.AppendMessage(t.Context(), sealed(m, "x"))
	requireIs(t, err, want, "a message of gen %d", gen)
	if want == nil {
		before++
	}
	require.Equal(t, before, f.HistoryRows(t, f.tenant, p.Room))
}
