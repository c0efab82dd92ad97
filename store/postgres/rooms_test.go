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

// A device cannot fill the tenant with rooms: those that it made and that are not archived
// have a bound, whoever is in them.
func TestOpenRoomsOfADeviceAreBounded(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	subject := subject(s, db)
	tenant := subject.NewTenant(t)
	human := func() uuid.UUID {
		id := subject.NewDevice(t, tenant, store.DeviceActive)
		db.exec(t, "UPDATE devices SET kind = 'human' WHERE id = $1", id)
		return id
	}
	maker, other := human(), human()
	open := func(by uuid.UUID) (store.Room, error) {
		room, _, err := s.OpenRoom(t.Context(), store.NewRoom{
			Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
		}, by)
		return room, err
	}
	db.exec(t, `INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages, state, made_by)
		SELECT $1, gen_random_uuid(), 'group', 'sender_keys', 'allowed', 'ACTIVE', $2 FROM generate_series(2, $3)`,
		tenant, maker, store.MaxOpenRooms)
	last, err := open(maker)
	require.NoError(t, err)
	_, err = open(maker)
	require.ErrorIs(t, err, store.ErrConflict)
	require.ErrorContains(t, err, "archive some of them first")
	_, err = open(other)
	require.NoError(t, err, "nobody else is kept from making rooms")
	_, err = s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err, "nor the operator")
	_, err = s.ArchiveRoom(t.Context(), tenant, last.ID, maker)
	require.NoError(t, err)
	_, err = open(maker)
	require.NoError(t, err)
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

// Of two who change their keys at the same moment one finds that it was the last: each
// sees what the other did, since both hold the room.
func TestTheLastToRekeyKnowsIt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	tenant := subject(s, db).NewTenant(t)
	for range 10 {
		room, err := s.CreateRoom(t.Context(), store.NewRoom{
			Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
		})
		require.NoError(t, err)
		members := make([]store.Participant, 3)
		allocate := func(i int, kid byte) (store.Generation, error) {
			return s.AllocateGeneration(t.Context(), store.NewGeneration{
				Tenant: tenant, Room: room.ID, Participant: members[i].ID, KID: [16]byte{kid}, SessionKey: []byte("key"),
			})
		}
		for i := range members {
			members[i], err = s.AddParticipant(t.Context(), store.NewParticipant{Tenant: tenant, Room: room.ID, Role: store.RoleAgent})
			require.NoError(t, err)
			_, err = allocate(i, 1)
			require.NoError(t, err)
		}
		_, err = s.RemoveParticipant(t.Context(), tenant, room.ID, members[2].ID, uuid.Nil)
		require.NoError(t, err)

		tx, err := db.connect(t).Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE sender_generations")
		require.NoError(t, err)
		rekeyed := make(chan bool, 2)
		for i := range 2 {
			go func() {
				g, err := allocate(i, 2)
				rekeyed <- err == nil && g.Rekeyed
			}()
		}
		awaitBlocked(t, db, 2)
		require.NoError(t, tx.Rollback(t.Context()))
		one, other := <-rekeyed, <-rekeyed
		require.NotEqual(t, one, other, "exactly one of the two ends the rekeying")
	}
}
