package postgres_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

var (
	roomStates   = []store.RoomState{store.RoomCreated, store.RoomActive, store.RoomRekeying, store.RoomArchived}
	roomEvents   = []store.RoomEvent{store.RoomMembersAdded, store.RoomMemberRemoved, store.RoomRekeyed, store.RoomArchive}
	deviceStates = []store.DeviceState{store.DevicePending, store.DeviceApproved, store.DeviceActive, store.DeviceSuspended, store.DeviceRevoked}
	deviceEvents = []store.DeviceEvent{store.DeviceApprove, store.DeviceActivate, store.DeviceSuspend, store.DeviceReinstate, store.DeviceRevoke}
	inviteStates = []store.InviteState{store.InviteCreated, store.InviteConsumed, store.InviteExpired, store.InviteRevoked}
	inviteEvents = []store.InviteEvent{store.InviteConsume, store.InviteExpire, store.InviteRevoke}
)

// machine is a state machine in the database, with what Go says of it.
type machine struct {
	name, table string
	stamp       string // SET clause that keeps the table's other CHECKs content with $1
	id          uuid.UUID
	states      []string
}

// force puts the row into a state without asking the trigger.
func (m machine) force(t *testing.T, owner *pgx.Conn, state string) {
	t.Helper()
	for _, sql := range []string{"SET session_replication_role = replica", "", "RESET session_replication_role"} {
		var err error
		if sql == "" {
			err = m.update(t, owner, state)
		} else {
			_, err = owner.Exec(t.Context(), sql)
		}
		require.NoError(t, err)
	}
}

func (m machine) update(t *testing.T, owner *pgx.Conn, state string) error {
	t.Helper()
	_, err := owner.Exec(t.Context(), "UPDATE "+m.table+" SET state = $1, "+m.stamp+" WHERE id = $2", state, m.id)
	return err
}

// walkTrigger updates every state to every state and expects only the moves Go knows.
func (m machine) walkTrigger(t *testing.T, owner *pgx.Conn, moves map[[2]string]bool) {
	t.Helper()
	for _, from := range m.states {
		for _, to := range m.states {
			m.force(t, owner, from)
			err := m.update(t, owner, to)
			if from == to || moves[[2]string{from, to}] {
				require.NoError(t, err, "%s to %s", from, to)
				continue
			}
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, "%s to %s", from, to)
			require.Equal(t, "PR001", pgErr.Code)
			require.Equal(t, m.name+"_transition", pgErr.ConstraintName)
			require.Contains(t, postgres.MappedConstraints(), pgErr.ConstraintName)
		}
	}
}

func TestRoomStatesInTheDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	m := machine{
		name: "room", table: "rooms", id: r.member.Room, states: texts(roomStates),
		stamp: "archived_at = CASE WHEN $1 = 'ARCHIVED' THEN now() END",
	}
	owner, moves := db.connect(t), map[[2]string]bool{}
	for _, from := range roomStates {
		for _, event := range roomEvents {
			m.force(t, owner, string(from))
			want, refusal := from.Next(event)
			got, err := s.MoveRoom(t.Context(), r.tenant, m.id, event)
			if refusal != nil {
				require.ErrorIs(t, err, store.ErrNotFound, "%s %s", from, event)
				continue
			}
			require.NoError(t, err, "%s %s", from, event)
			require.Equal(t, want, got)
			moves[[2]string{string(from), string(want)}] = true
		}
	}
	m.walkTrigger(t, owner, moves)
}

func TestDeviceStatesInTheDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	m := machine{
		name: "device", table: "devices", id: r.member.Device, states: texts(deviceStates),
		stamp: "revoked_at = CASE WHEN $1 = 'REVOKED' THEN now() END",
	}
	owner, moves := db.connect(t), map[[2]string]bool{}
	for _, from := range deviceStates {
		for _, event := range deviceEvents {
			m.force(t, owner, string(from))
			want, refusal := from.Next(event)
			got, err := s.MoveDevice(t.Context(), r.tenant, m.id, event)
			if refusal != nil {
				require.ErrorIs(t, err, store.ErrNotFound, "%s %s", from, event)
				continue
			}
			require.NoError(t, err, "%s %s", from, event)
			require.Equal(t, want, got)
			moves[[2]string{string(from), string(want)}] = true
		}
	}
	m.walkTrigger(t, owner, moves)
}

func TestInviteStatesInTheDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	m := machine{
		name: "invite", table: "invites", states: texts(inviteStates),
		id:    query[uuid.UUID](t, db, "SELECT id FROM invites WHERE tenant_id = $1", r.tenant),
		stamp: "consumed_by = CASE WHEN $1 = 'CONSUMED' THEN (SELECT id FROM devices LIMIT 1) END",
	}
	moves := map[[2]string]bool{}
	for _, from := range inviteStates {
		for _, event := range inviteEvents {
			if to, err := from.Next(event); err == nil {
				moves[[2]string{string(from), string(to)}] = true
			}
		}
	}
	m.walkTrigger(t, db.connect(t), moves)
}

func texts[S ~string](states []S) (out []string) {
	for _, s := range states {
		out = append(out, string(s))
	}
	return out
}

// Every constraint that mapError gives a meaning exists; the triggers' are walked above.
func TestMappedConstraintsExist(t *testing.T) {
	t.Parallel()
	db := newOwner(pgtest.URL(t))
	for _, name := range postgres.MappedConstraints() {
		if strings.HasSuffix(name, "_transition") {
			continue
		}
		require.True(t, query[bool](t, db, `SELECT EXISTS (SELECT FROM pg_constraint WHERE conname = $1)
			OR EXISTS (SELECT FROM pg_class WHERE relname = $1 AND relkind = 'i')`, name), name)
	}
}
