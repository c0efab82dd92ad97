package postgres_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
)

// fillRooms makes n rooms of each scheme, with these devices and one that has a generation as
// participants of each; direct rooms are activated.
func fillRooms(t *testing.T, db *owner, tenant uuid.UUID, n int, devices ...uuid.UUID) {
	t.Helper()
	const room = `INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages, state, activated)
		SELECT $1, gen_random_uuid(), CASE scheme WHEN 'double_ratchet' THEN 'direct' ELSE 'group' END, scheme, 'allowed', 'ACTIVE',
			scheme = 'double_ratchet'
		FROM unnest(ARRAY['sender_keys', 'mls', 'double_ratchet', 'none']) scheme, generate_series(1, $2)`
	db.exec(t, room, tenant, n)
	for i, device := range devices {
		db.exec(t, `INSERT INTO participants (tenant_id, id, room_id, device_id, role, last_gen, mls_since)
			SELECT tenant_id, gen_random_uuid(), id, $2, 'agent', $3, CASE scheme WHEN 'mls' THEN 1 END FROM rooms
			WHERE tenant_id = $1`, tenant, device, i)
	}
}

// FAULTS BL-I06; STATE, "Device revocation triggers mandatory rekey of all affected rooms":
// a device in a thousand rooms leaves them with as many statements as from a few.
func TestRevokingTakesAHandfulOfStatements(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	subject := subject(s, db)
	took := map[int]int{}
	for _, n := range []int{1, 250} {
		tenant := subject.NewTenant(t)
		device, other := subject.NewDevice(t, tenant, store.DeviceActive), subject.NewDevice(t, tenant, store.DeviceActive)
		fillRooms(t, db, tenant, n, device, other)
		change, statements, err := s.RevokeCounting(t.Context(), tenant, device)
		require.NoError(t, err)
		took[n] = statements
		require.Len(t, change.Rooms, 4*n)
		require.Len(t, change.Participants, 4*n)
		require.True(t, slices.IsSortedFunc(change.Rooms, func(a, b store.Room) int { return bytes.Compare(a.ID[:], b.ID[:]) }))
		for _, room := range change.Rooms {
			want := store.RoomRekeying
			if room.Scheme == store.SchemeNone {
				want = store.RoomActive
			}
			require.Equal(t, want, room.State, room.Scheme)
			require.Equal(t, int64(2), room.Version)
			require.False(t, room.Activated)
		}
		require.Equal(t, n, query[int](t, db, "SELECT count(*) FROM participants WHERE tenant_id = $1 AND first_gen > last_gen", tenant))
		require.Zero(t, query[int](t, db, "SELECT count(*) FROM participants WHERE tenant_id = $1 AND device_id = $2 AND left_at IS NULL", tenant, device))
		events := query[int](t, db, `SELECT count(*) FROM outbox WHERE tenant_id = $1
			AND convert_from(payload, 'UTF8')::jsonb ->> 'event' IN ('member_removed', 'rekey_required')`, tenant)
		require.Equal(t, 4*n+3*n, events, "all are told, and those who have to change keys")
	}
	require.Equal(t, took[1], took[250])
	require.Less(t, took[250], 15)
}

// A message that activates a room is stored with that, or neither is: the room does not
// wait for a first message that it has, nor has it begun without one.
func TestActivationIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	room, err := b.CreateRoom(t.Context(), store.NewRoom{
		Tenant: b.resident.tenant, Kind: store.RoomDirect, Scheme: store.SchemeDoubleRatchet, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	r := b.resident
	r.member, err = b.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: room.ID, Role: store.RoleOwner})
	require.NoError(t, err)
	activated := func() bool {
		return query[bool](t, b.db, "SELECT activated FROM rooms WHERE id = $1", room.ID)
	}
	b.db.exec(t, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	b.db.exec(t, "CREATE TRIGGER fail BEFORE INSERT ON session_history FOR EACH ROW EXECUTE FUNCTION fail()")
	_, err = b.AppendMessage(t.Context(), text(r, "first", "x"))
	require.Error(t, err)
	require.False(t, activated())
	b.db.exec(t, "DROP TRIGGER fail ON session_history")
	_, err = b.AppendMessage(t.Context(), text(r, "first", "x"))
	require.NoError(t, err)
	require.True(t, activated())
}
