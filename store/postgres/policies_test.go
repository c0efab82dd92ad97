package postgres_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// resident is a tenant with one row in every table.
type resident struct {
	tenant uuid.UUID
	member store.Participant
	hash   store.TokenHash
}

func newResident(t *testing.T, s store.Store, db *owner, seed byte) resident {
	t.Helper()
	r := resident{tenant: subject(s, db).NewTenant(t), hash: store.TokenHash{seed}}
	room, err := s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: r.tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	r.member, err = s.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: room.ID, Role: store.RoleAgent})
	require.NoError(t, err)
	_, err = s.MintCredential(t.Context(), r.tenant, r.member.ID, store.CredentialSession, r.hash, time.Hour)
	require.NoError(t, err)
	_, err = s.AppendMessage(t.Context(), store.Message{
		Tenant: r.tenant, Room: room.ID, Sender: r.member.ID, ID: "first", Kind: wire.KindMessage, Bytes: []byte("x"),
	})
	require.NoError(t, err)
	r.alert(t, s)
	db.exec(t, traceRow(r.tenant, room.ID, r.member.ID, r.member.ID))
	db.exec(t, groupRow(r.tenant, room.ID))
	db.exec(t, "DELETE FROM outbox WHERE room_id = $1", room.ID)
	for _, table := range mlsTables {
		db.exec(t, mlsRow(table, r.member))
	}
	for _, table := range prekeyTables {
		db.exec(t, prekeyRow(table, r.member))
	}
	db.exec(t, "UPDATE participants SET mls_since = 1, welcome_epoch = 1 WHERE id = $1", r.member.ID)
	card := uuid.New()
	for _, table := range boardTables {
		db.exec(t, boardRow(table, r.tenant, room.ID, card, r.member.ID))
	}
	for i, table := range enrollmentTables {
		db.exec(t, enrollmentRow(table, r.tenant, r.member.Device, r.token(i)))
	}
	return r
}

// token is the hash in the row of one of enrollmentTables.
func (r resident) token(table int) store.TokenHash {
	return store.TokenHash{r.hash[0], byte(table + 1)}
}

// visible runs under the settings and counts the rows of each table that the role may read.
func visible(t *testing.T, conn *pgx.Conn, settings map[string]string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	inTransaction(t, conn, settings, func(tx pgx.Tx) {
		for _, table := range tenantTables {
			var may bool
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT has_table_privilege($1, 'SELECT')", table).Scan(&may), table)
			if !may {
				continue
			}
			var n int
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n), table)
			if n > 0 {
				counts[table] = n
			}
		}
	})
	return counts
}

var tenantTables = []string{
	"tenants", "devices", "rooms", "participants", "credentials", "session_history", "message_traces", "mls_groups", "room_rules", "sender_generations", "notices",
	"board_sequences", "board_cards", "board_events", "outbox", "invites", "device_challenges", "device_tokens",
	"mls_group_ids", "mls_commits", "mls_welcomes", "mls_commit_reports", "key_packages", "signed_prekeys", "prekeys",
}

var prekeyTables = []string{"signed_prekeys", "prekeys"}

// prekeyRow inserts a row of the member's device into one of prekeyTables.
func prekeyRow(table string, member store.Participant) string {
	return fmt.Sprintf(map[string]string{
		"signed_prekeys": "INSERT INTO signed_prekeys (tenant_id, device_id, id, key, signature) VALUES ('%s', '%s', 1, sha256('x'), sha512('x'))",
		"prekeys":        "INSERT INTO prekeys (tenant_id, device_id, id, key) VALUES ('%s', '%s', 1, sha256('x'))",
	}[table], member.Tenant, member.Device)
}

var enrollmentTables = []string{"invites", "device_challenges", "device_tokens"}

// enrollmentRow is an insert into one of enrollmentTables, under this hash.
func enrollmentRow(table string, tenant, device uuid.UUID, hash store.TokenHash) string {
	return strings.NewReplacer("TENANT", tenant.String(), "DEVICE", device.String(), "ID", uuid.NewString(), "HASH", hex.EncodeToString(hash[:])).Replace(map[string]string{
		"invites": `INSERT INTO invites (tenant_id, id, kind, admin, token_hash, expires_at)
			VALUES ('TENANT', 'ID', 'agent', false, '\xHASH', now() + interval '1 minute')`,
		"device_challenges": `INSERT INTO device_challenges (tenant_id, device_id, nonce_hash, expires_at)
			VALUES ('TENANT', 'DEVICE', '\xHASH', now() + interval '1 minute')`,
		"device_tokens": `INSERT INTO device_tokens (tenant_id, device_id, token_hash, expires_at)
			VALUES ('TENANT', 'DEVICE', '\xHASH', now() + interval '1 minute')`,
	}[table])
}

func inTransaction(t *testing.T, conn *pgx.Conn, settings map[string]string, do func(pgx.Tx)) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for name, value := range settings {
		_, err := tx.Exec(t.Context(), "SELECT set_config($1, $2, true)", name, value)
		require.NoError(t, err)
	}
	do(tx)
}

// asDevice is the settings of a transaction of a device, with more names and values.
func asDevice(tenant, device uuid.UUID, more ...string) map[string]string {
	settings := map[string]string{"role": schema.DeviceRole, "relay.tenant": tenant.String(), "relay.device": device.String()}
	for pair := range slices.Chunk(more, 2) {
		settings[pair[0]] = pair[1]
	}
	return settings
}

func TestPoliciesRead(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	require.ElementsMatch(t, tenantTables, strings.Split(query[string](t, db, `SELECT string_agg(relname, ' ') FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname NOT IN ('goose_db_version', 'state_transition')`), " "),
		"a table without a test")
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)
	everything := map[string]int{
		"tenants": 1, "devices": 1, "rooms": 1, "participants": 1, "credentials": 1, "session_history": 1, "message_traces": 1, "mls_groups": 1, "room_rules": 1, "sender_generations": 1, "notices": 1,
		"board_sequences": 1, "board_cards": 1, "board_events": 1, "invites": 1, "device_challenges": 1, "device_tokens": 1,
		"mls_group_ids": 1, "mls_commits": 1, "mls_welcomes": 1, "mls_commit_reports": 1, "key_packages": 1, "signed_prekeys": 1, "prekeys": 1,
	}
	invite, access := a.token(0), a.token(2)
	second, err := s.CreateRoom(t.Context(), store.NewRoom{Tenant: a.tenant, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed})
	require.NoError(t, err)
	neighbour, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: a.tenant, Room: second.ID, Role: store.RoleOwner})
	require.NoError(t, err)
	db.exec(t, "DELETE FROM outbox WHERE room_id = $1", second.ID)

	for name, c := range map[string]struct {
		settings map[string]string
		want     map[string]int
	}{
		"nothing set":                   {nil, map[string]int{}},
		"empty settings":                {map[string]string{"relay.tenant": "", "relay.actor": "", "relay.token": "", "relay.device": "", "relay.tenant_name": ""}, map[string]int{}},
		"an actor and no tenant":        {map[string]string{"relay.actor": "service"}, map[string]int{}},
		"a device and no tenant":        {map[string]string{"role": schema.DeviceRole, "relay.device": a.member.Device.String()}, map[string]int{}},
		"a tenant and no actor":         {map[string]string{"relay.tenant": a.tenant.String()}, map[string]int{"tenants": 1}},
		"an unknown actor":              {map[string]string{"relay.tenant": a.tenant.String(), "relay.actor": "root"}, map[string]int{"tenants": 1}},
		"an unknown tenant":             {map[string]string{"relay.tenant": uuid.NewString(), "relay.actor": "service"}, map[string]int{}},
		"the service in b":              {map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, everything},
		"b's device":                    {asDevice(b.tenant, b.member.Device), map[string]int{"tenants": 1, "devices": 1, "rooms": 1, "participants": 1, "session_history": 1, "room_rules": 1, "sender_generations": 1, "notices": 1, "board_cards": 1, "board_events": 1, "mls_groups": 1, "mls_commits": 1, "mls_welcomes": 1, "mls_commit_reports": 1, "key_packages": 1}},
		"b's device in a":               {asDevice(a.tenant, b.member.Device), map[string]int{"tenants": 1}},
		"a device of one room":          {asDevice(a.tenant, neighbour.Device), map[string]int{"tenants": 1, "devices": 1, "rooms": 1, "participants": 1}},
		"a token":                       {map[string]string{"relay.token": hex.EncodeToString(a.hash[:])}, map[string]int{"credentials": 1}},
		"an invite's token":             {map[string]string{"relay.token": hex.EncodeToString(invite[:])}, map[string]int{"invites": 1}},
		"an access token":               {map[string]string{"relay.token": hex.EncodeToString(access[:])}, map[string]int{"device_tokens": 1}},
		"an unknown token":              {map[string]string{"relay.token": strings.Repeat("00", 32)}, map[string]int{}},
		"maintenance":                   {map[string]string{"relay.actor": "maintenance"}, map[string]int{"tenants": 2, "outbox": 2}},
		"a tenant's name":               {map[string]string{"relay.tenant_name": a.tenant.String()}, map[string]int{"tenants": 1}},
		"the service as if a device":    {map[string]string{"relay.tenant": b.tenant.String(), "relay.device": b.member.Device.String()}, map[string]int{"tenants": 1}},
		"a device as if the service":    {asDevice(b.tenant, b.member.Device, "relay.actor", "service", "relay.device", ""), map[string]int{"tenants": 1}},
		"a device as if maintenance":    {asDevice(uuid.Nil, uuid.Nil, "relay.actor", "maintenance"), map[string]int{}},
		"a device with a token":         {asDevice(uuid.Nil, uuid.Nil, "relay.token", hex.EncodeToString(a.hash[:])), map[string]int{}},
		"a device with a tenant's name": {asDevice(uuid.Nil, uuid.Nil, "relay.tenant_name", a.tenant.String()), map[string]int{}},
		"a device's role, nothing set":  {map[string]string{"role": schema.DeviceRole}, map[string]int{}},
	} {
		require.Equal(t, c.want, visible(t, service, c.settings), name)
	}

	_, err = s.RemoveParticipant(t.Context(), b.tenant, b.member.Room, b.member.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"tenants": 1, "devices": 1, "participants": 1, "key_packages": 1},
		visible(t, service, asDevice(b.tenant, b.member.Device)),
		"a former member sees the room and its history no more")
}

func TestPoliciesWrite(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)

	inserts := map[string]string{
		"tenants":         fmt.Sprintf("INSERT INTO tenants (id, name) VALUES ('%s', 'c')", uuid.New()),
		"devices":         fmt.Sprintf("INSERT INTO devices (tenant_id, id, kind, state) VALUES ('%s', '%s', 'agent', 'ACTIVE')", b.tenant, uuid.New()),
		"rooms":           fmt.Sprintf("INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages) VALUES ('%s', '%s', 'group', 'none', 'allowed')", b.tenant, uuid.New()),
		"participants":    fmt.Sprintf("INSERT INTO participants (tenant_id, id, room_id, device_id, role) VALUES ('%s', '%s', '%s', '%s', 'owner')", b.tenant, uuid.New(), b.member.Room, b.member.Device),
		"credentials":     fmt.Sprintf("INSERT INTO credentials (tenant_id, id, room_id, participant_id, kind, token_hash, expires_at) VALUES ('%s', '%s', '%s', '%s', 'session', sha256('x'), now() + '1h')", b.tenant, uuid.New(), b.member.Room, b.member.ID),
		"session_history": historyRow(b.tenant, b.member.Room, b.member.ID),
		"message_traces":  traceRow(b.tenant, b.member.Room, b.member.ID, b.member.ID),
		"mls_groups":      groupRow(b.tenant, b.member.Room),

		"room_rules":         ruleRow(b.tenant, b.member.Room, b.member.ID),
		"sender_generations": generationRow(b.tenant, b.member.Room, b.member.ID),
		"notices":            noticeRow(b.tenant, b.member.Room, b.member.ID),
	}
	for _, table := range mlsTables {
		inserts[table] = mlsRow(table, b.member)
	}
	for _, table := range prekeyTables {
		inserts[table] = prekeyRow(table, b.member)
	}
	for _, table := range boardTables {
		inserts[table] = boardRow(table, b.tenant, b.member.Room, uuid.New(), b.member.ID)
	}
	for i, table := range enrollmentTables {
		inserts[table] = enrollmentRow(table, b.tenant, b.member.Device, b.token(i+10))
	}
	updates := map[string]string{
		"invites": "failed_proofs = 1", "device_tokens": "revoked_at = now()",
		"tenants": "frozen = true", "devices": "label = 'x'", "rooms": "version = version + 1",
		"participants": "left_at = now()", "credentials": "revoked_at = now()",
		"room_rules": "allowed = false", "board_sequences": "last = last + 1", "board_cards": "closed = true",
		"mls_groups": "epoch = epoch + 1", "key_packages": "content = NULL", "signed_prekeys": "id = 2",
	}
	for name, settings := range map[string]map[string]string{
		"nothing set":                 nil,
		"the service in a":            {"relay.tenant": a.tenant.String(), "relay.actor": "service"},
		"b without actor":             {"relay.tenant": b.tenant.String()},
		"the service with b's device": {"relay.tenant": b.tenant.String(), "relay.device": b.member.Device.String()},
		"b's token":                   {"relay.token": hex.EncodeToString(b.hash[:])},
		"maintenance":                 {"relay.actor": "maintenance"},
	} {
		for _, table := range tenantTables {
			inTransaction(t, service, settings, func(tx pgx.Tx) {
				_, err := tx.Exec(t.Context(), inserts[table])
				require.ErrorContains(t, err, "row-level security", "%s: insert into %s", name, table)
			})
			if set, ok := updates[table]; ok {
				inTransaction(t, service, settings, func(tx pgx.Tx) {
					where := "tenant_id"
					if table == "tenants" {
						where = "id"
					}
					tag, err := tx.Exec(t.Context(), "UPDATE "+table+" SET "+set+" WHERE "+where+" = $1", b.tenant)
					require.NoError(t, err)
					require.Zero(t, tag.RowsAffected(), "%s: update %s", name, table)
				})
			}
		}
		for _, table := range []string{"credentials", "session_history", "notices", "device_challenges", "device_tokens", "mls_commits", "mls_welcomes", "key_packages", "signed_prekeys", "prekeys"} {
			inTransaction(t, service, settings, func(tx pgx.Tx) {
				tag, err := tx.Exec(t.Context(), "DELETE FROM "+table+" WHERE tenant_id = $1", b.tenant)
				require.NoError(t, err)
				require.Zero(t, tag.RowsAffected(), "%s: delete from %s", name, table)
			})
		}
	}

	for name, settings := range map[string]map[string]string{
		"b's device":                 asDevice(b.tenant, b.member.Device),
		"b's device as if a service": asDevice(b.tenant, b.member.Device, "relay.actor", "service"),
	} {
		for _, table := range tenantTables {
			statements := []string{inserts[table], "DELETE FROM " + table}
			if set, ok := updates[table]; ok {
				statements = append(statements, "UPDATE "+table+" SET "+set)
			}
			for _, statement := range statements {
				inTransaction(t, service, settings, func(tx pgx.Tx) {
					_, err := tx.Exec(t.Context(), statement)
					require.ErrorContains(t, err, "permission denied", "%s: %s", name, statement)
				})
			}
		}
	}

	other, err := s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: b.tenant, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	inTransaction(t, service, map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), historyRow(b.tenant, other.ID, b.member.ID))
		require.ErrorContains(t, err, "row-level security", "a member of another room of the tenant")
	})
	former, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: b.tenant, Room: b.member.Room, Role: store.RoleAgent})
	require.NoError(t, err)
	_, err = s.RemoveParticipant(t.Context(), b.tenant, former.Room, former.ID, uuid.Nil)
	require.NoError(t, err)
	inTransaction(t, service, map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), historyRow(b.tenant, former.Room, former.ID))
		require.ErrorContains(t, err, "row-level security", "a former member")
	})
	inTransaction(t, service, map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), historyRow(b.tenant, b.member.Room, a.member.ID))
		require.ErrorContains(t, err, "row-level security", "whoever writes, the sender must be a member")
	})
	inTransaction(t, service, map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), historyRow(b.tenant, b.member.Room, b.member.ID))
		require.NoError(t, err)
	})
}

func historyRow(tenant, room, sender uuid.UUID) string {
	return fmt.Sprintf("INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, envelope) VALUES ('%s', '%s', 'm', '%s', 'message', 0, 'x')",
		tenant, room, sender)
}
