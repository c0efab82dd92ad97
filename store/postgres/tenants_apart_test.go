package postgres_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// The hostile tenant of PostgreSQL: whoever has come to speak as the service's role, or as a
// device's, inside tenant A asks for what is B's. The tables and columns are those the
// database has, so that a new one is asked for without a change here. A table whose rows
// cannot be made from the types of its columns needs an entry in particular.

// particular is what a column holds where a value of its type would not do.
var particular = map[string]string{
	"tenants.name":  "'TENANT'",
	"devices.label": "'same'", "devices.kind": "'agent'", "devices.state": "'ACTIVE'", "devices.revoked_at": "NULL", "devices.invite_id": "ROOM",
	"devices.identity_key": "BYTES32", "devices.agreement_key": "BYTES32", "devices.agreement_signature": "BYTES32 || BYTES32", "devices.fingerprint": "'F'",
	"invites.kind": "'agent'", "invites.state": "'CREATED'", "invites.consumed_by": "NULL", "invites.created_by": "DEVICE",
	"invites.failed_proofs": "0", "invites.created_at": "now()", "invites.expires_at": "now() + interval '5 minutes'",
	"rooms.kind": "'group'", "rooms.scheme": "'sender_keys'", "rooms.private_messages": "'allowed'", "rooms.state": "'ACTIVE'", "rooms.archived_at": "NULL",
	"participants.role": "'owner'", "participants.joined_at": "now()", "participants.left_at": "NULL",
	"credentials.kind": "'session'", "session_history.kind": "'message'", "session_history.message_id": "'same'",
	"message_traces.message_id": "'same'", "message_traces.files": "NULL", "notices.notice_id": "'same'",
	"notices.ts": "now()", "notices.expires_at": "now() + interval '1 hour'",
	"room_rules.rule": "'message.send'", "room_rules.participant_id": "PARTICIPANT",
	"board_cards.kind": "'task'", "board_events.type": "'comment'", "board_events.revision": "2", "board_events.card_id": "CARD", "board_cards.id": "CARD",
	"outbox.kind": "'room.event'", "outbox.payload": `'{}'`,
	"tenants.cursor_key":     "uuid_send(gen_random_uuid())",
	"sender_generations.kid": "uuid_send(gen_random_uuid())",
	"board_events.signature": "BYTES32 || BYTES32", "signed_prekeys.signature": "BYTES32 || BYTES32",
}

// column is one of a table's.
type column struct {
	table, name, kind string
	always            bool // GENERATED ALWAYS
}

// columnsOf lists the columns of all tables that hold rows of tenants.
func columnsOf(t *testing.T, db *owner) map[string][]column {
	t.Helper()
	rows, err := db.connect(t).Query(t.Context(), `
		SELECT c.relname::text, a.attname::text, t.typname::text, a.attidentity = 'a'
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
		  AND c.relname NOT IN ('goose_db_version', 'state_transition')
		ORDER BY c.relname, a.attnum`)
	require.NoError(t, err)
	tables := make(map[string][]column)
	var c column
	_, err = pgx.ForEachRow(rows, []any{&c.table, &c.name, &c.kind, &c.always}, func() error {
		tables[c.table] = append(tables[c.table], c)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(tables), 20)
	return tables
}

// tenantColumn is the column that says whose a row of the table is.
func tenantColumn(table string) string {
	if table == "tenants" {
		return "id"
	}
	return "tenant_id"
}

// neighbour is a tenant with a row in every table. What people choose, and what would be
// equal by chance, is the same in every one.
type neighbour struct {
	tenant, room, participant, device, card uuid.UUID
	hash                                    []byte // of whatever is the hash of a secret
}

func newNeighbour(t *testing.T, db *owner, tables map[string][]column) neighbour {
	t.Helper()
	id := func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	n := neighbour{id(), id(), id(), id(), id(), nil}
	n.hash = append(n.tenant[:], n.room[:]...)
	conn := db.connect(t)
	// The rows need not fit each other in the order of the tables' names.
	_, err := conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	for table, columns := range tables {
		_, err := conn.Exec(t.Context(), n.insert(table, columns, nil))
		require.NoError(t, err, "%s: what may its columns hold?", table)
	}
	return n
}

// insert makes a row of the table in the columns that may be set.
func (n neighbour) insert(table string, columns []column, may map[string]bool) string {
	var names, values []string
	for _, c := range columns {
		if c.always || may != nil && !may[c.name] {
			continue
		}
		names, values = append(names, c.name), append(values, n.value(c))
	}
	if len(names) == 0 {
		return "INSERT INTO " + table + " DEFAULT VALUES"
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", "))
}

func (n neighbour) value(c column) string {
	quoted := func(id uuid.UUID) string { return "'" + id.String() + "'::uuid" }
	value, given := particular[c.table+"."+c.name]
	switch {
	case c.name == tenantColumn(c.table):
		value = quoted(n.tenant)
	case given:
	case c.name == "room_id", c.table == "rooms" && c.name == "id":
		value = "ROOM"
	case c.name == "device_id", c.table == "devices" && c.name == "id":
		value = "DEVICE"
	case c.name == "participant_id", c.name == "sender_id", c.name == "recipient_id", c.name == "author_id", c.table == "participants" && c.name == "id":
		value = "PARTICIPANT"
	case strings.HasSuffix(c.name, "_hash"):
		value = `'\x` + hex.EncodeToString(n.hash) + `'::bytea`
	default:
		value = map[string]string{
			"uuid": "ROOM", "int4": "1", "int8": "1", "bool": "false", "bytea": "BYTES32", "timestamptz": "now()",
		}[c.kind]
	}
	return strings.NewReplacer(
		"'TENANT'", "'"+n.tenant.String()+"'", "ROOM", quoted(n.room), "DEVICE", quoted(n.device), "PARTICIPANT", quoted(n.participant), "CARD", quoted(n.card),
		"BYTES32", `decode(repeat('2a', 32), 'hex')`,
	).Replace(value)
}

// hostile are the ways to act, of somebody who is in a and knows all ids of b.
func hostile(a, b neighbour) map[string]map[string]string {
	service := func(more ...string) map[string]string {
		settings := map[string]string{"relay.tenant": a.tenant.String(), "relay.actor": "service"}
		for pair := range slices.Chunk(more, 2) {
			settings[pair[0]] = pair[1]
		}
		return settings
	}
	return map[string]map[string]string{
		"nothing set":                   nil,
		"an actor and no tenant":        {"relay.actor": "service"},
		"a tenant and no actor":         {"relay.tenant": a.tenant.String()},
		"settings that are empty":       {"relay.actor": "", "relay.tenant": "", "relay.sign_in": "", "relay.token": "", "relay.device": "", "relay.tenant_name": ""},
		"the service in a":              service(),
		"the service with b's device":   service("relay.device", b.device.String()),
		"the service with a's hash":     service("relay.token", hex.EncodeToString(a.hash)),
		"the service with a's name":     service("relay.tenant_name", a.tenant.String()),
		"a device that signs in":        {"relay.sign_in": a.device.String()},
		"a's device":                    asDevice(a.tenant, a.device),
		"a's device as if the service":  asDevice(a.tenant, a.device, "relay.actor", "service"),
		"a's device as if maintenance":  asDevice(a.tenant, a.device, "relay.actor", "maintenance"),
		"b's device in a":               asDevice(a.tenant, b.device),
		"b's device that signs in in a": asDevice(a.tenant, b.device, "relay.sign_in", b.device.String()),
		"a device that is in no tenant": asDevice(uuid.Nil, b.device, "relay.tenant", ""),
		"maintenance":                   {"relay.actor": "maintenance"},
	}
}

// seenByMaintenance is what the relay's own upkeep finds of all tenants: which there are,
// and what is due in inboxes, of which no content is a part (schema, 00001 and 00009).
var seenByMaintenance = map[string]bool{"maintenance tenants": true, "maintenance outbox": true}

// attempt runs one statement as somebody, and undoes it.
func attempt(t *testing.T, conn *pgx.Conn, settings map[string]string, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	t.Helper()
	inTransaction(t, conn, settings, func(tx pgx.Tx) { tag, err = tx.Exec(t.Context(), statement, args...) })
	return tag, err
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if err == nil {
		return ""
	}
	if !errors.As(err, &pgErr) {
		return err.Error()
	}
	return pgErr.Code
}

const (
	privilegeState = "42501" // of a right, or of a policy
	uniqueState    = "23505"
)

// BL-G01: nothing of B is there for whoever acts in A, and nothing of anybody without a
// tenant.
func TestNothingOfAnotherTenantIsRead(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := newOwner(url)
	tables := columnsOf(t, db)
	a, b := newNeighbour(t, db, tables), newNeighbour(t, db, tables)
	db.exec(t, "ANALYZE")
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)

	for name, settings := range hostile(a, b) {
		for table := range tables {
			for what, condition := range map[string]string{
				"rows": tenantColumn(table) + " = $1",
				// An error for a row of B would tell that there is one: a policy comes first.
				"errors": "CASE WHEN " + tenantColumn(table) + " = $1 THEN 1 / (length(" + tenantColumn(table) + "::text) - 36) = 1 ELSE false END",
			} {
				var n int
				var err error
				inTransaction(t, service, settings, func(tx pgx.Tx) {
					err = tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE "+condition, b.tenant).Scan(&n)
				})
				if seenByMaintenance[name+" "+table] {
					continue
				}
				if err != nil {
					require.Equal(t, privilegeState, sqlState(err), "%s: %s of %s: %v", name, what, table, err)
				}
				require.Zero(t, n, "%s: %s of %s", name, what, table)
			}
		}
	}
	for table := range tables {
		var statistics int
		inTransaction(t, service, nil, func(tx pgx.Tx) {
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_stats WHERE tablename = $1", table).Scan(&statistics))
		})
		require.Zero(t, statistics, "%s: the planner's sample of everybody's rows", table)
	}
	require.Zero(t, query[int](t, db, `SELECT count(*) FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
		AND (has_sequence_privilege($1, c.oid, 'SELECT,USAGE,UPDATE') OR has_sequence_privilege($2, c.oid, 'SELECT,USAGE,UPDATE'))
		AND c.relname <> 'goose_db_version_id_seq'`, schema.ServiceRole, schema.DeviceRole), "a counter of everybody's rows")
}

// BL-G01: nothing of B is written by whoever acts in A.
func TestNothingOfAnotherTenantIsWritten(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := newOwner(url)
	tables := columnsOf(t, db)
	a, b := newNeighbour(t, db, tables), newNeighbour(t, db, tables)
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)
	before, may := dump(t, db, tables, b.tenant), make(map[string]map[string]bool)
	for table := range tables {
		may[table] = mayInsert(t, db, table)
	}

	for name, settings := range hostile(a, b) {
		for table, columns := range tables {
			where := " WHERE " + tenantColumn(table) + " = $1"
			statements := []string{"DELETE FROM " + table + where}
			for _, c := range columns {
				value := c.name
				if c.always {
					value = "DEFAULT"
				}
				statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s%s", table, c.name, value, where))
			}
			for _, statement := range statements {
				tag, err := attempt(t, service, settings, statement, b.tenant)
				if name == "maintenance" && table == "outbox" {
					continue // it claims rows and settles them
				}
				if err != nil {
					require.Equal(t, privilegeState, sqlState(err), "%s: %s: %v", name, statement, err)
				}
				require.Zero(t, tag.RowsAffected(), "%s: %s", name, statement)
			}
			_, err := attempt(t, service, settings, b.insert(table, columns, may[table]))
			require.Equal(t, privilegeState, sqlState(err), "%s: insert into %s: %v", name, table, err)
			_, err = attempt(t, service, settings, "TRUNCATE "+table)
			require.Equal(t, privilegeState, sqlState(err), "%s: truncate %s", name, table)
		}
	}
	for table := range tables {
		require.False(t, query[bool](t, db, "SELECT has_column_privilege($1, $2, $3, 'UPDATE')", schema.ServiceRole, table, tenantColumn(table)),
			"a row of %s could change its tenant", table)
	}
	require.Equal(t, before, dump(t, db, tables, b.tenant))
}

// mayInsert is the columns of the table that the service may set.
func mayInsert(t *testing.T, db *owner, table string) map[string]bool {
	t.Helper()
	may := make(map[string]bool)
	for name := range strings.FieldsSeq(query[string](t, db, `SELECT coalesce(string_agg(attname, ' '), '') FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND has_column_privilege($2, attrelid, attnum, 'INSERT')`,
		table, schema.ServiceRole)) {
		may[name] = true
	}
	return may
}

// dump is every row of a tenant.
func dump(t *testing.T, db *owner, tables map[string][]column, tenant uuid.UUID) map[string]string {
	t.Helper()
	rows := make(map[string]string)
	for table := range tables {
		rows[table] = query[string](t, db, "SELECT coalesce(string_agg(to_jsonb(r)::text, ' ' ORDER BY to_jsonb(r)::text), '') FROM "+table+" r WHERE "+
			tenantColumn(table)+" = $1", tenant)
		require.NotEmpty(t, rows[table], table)
	}
	return rows
}

// global is every unique constraint in which the tenant is not the first column, and why
// nobody learns anything from being refused by it.
var global = map[string]string{
	"tenants_pk":                  "an id of 74 random bits that the server makes, for the operator",
	"tenants_name_uq":             "tenants are the operator's, who may list them",
	"rooms_id_uq":                 "an id of 74 random bits that the server makes for each new room",
	"devices_id_uq":               "an id of 74 random bits that the server makes for each new device",
	"credentials_token_hash_uq":   "the hash of 256 random bits that the server makes: who could guess it could use it",
	"invites_token_hash_uq":       "as of a credential",
	"device_tokens_token_hash_uq": "as of a credential",
}

// BL-G06: a key of A's row is never compared with those of B.
func TestKeysAreOfTheTenant(t *testing.T) {
	t.Parallel()
	db := newOwner(pgtest.URL(t))
	found := query[string](t, db, `SELECT string_agg(i.indexrelid::regclass::text, ' ') FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE c.relnamespace = 'public'::regnamespace AND i.indisunique AND a.attname <> 'tenant_id'
		  AND c.relname NOT IN ('goose_db_version', 'state_transition')`)
	require.ElementsMatch(t, slices.Collect(maps.Keys(global)), strings.Fields(found))
	// A reference is looked up without policies: one that left the tenant out would tell
	// whether the row is there.
	require.Empty(t, query[string](t, db, `SELECT coalesce(string_agg(conname, ' '), '') FROM pg_constraint f
		WHERE f.contype = 'f' AND f.connamespace = 'public'::regnamespace AND f.confrelid <> 'tenants'::regclass
		  AND NOT EXISTS (
			SELECT FROM generate_subscripts(f.conkey, 1) i
			JOIN pg_attribute mine ON mine.attrelid = f.conrelid AND mine.attnum = f.conkey[i]
			JOIN pg_attribute its ON its.attrelid = f.confrelid AND its.attnum = f.confkey[i]
			WHERE mine.attname = 'tenant_id' AND its.attname = 'tenant_id')`))
}

// BL-G06: what is refused to A because B has it is refused by one of those constraints, and
// everything else is as if B were not there.
func TestARowOfBRefusesNothingToA(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := newOwner(url)
	tables := columnsOf(t, db)
	b := newNeighbour(t, db, tables)
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)
	a := uuid.Must(uuid.NewV7())
	db.exec(t, "INSERT INTO tenants (id, name) VALUES ($1, $2)", a, a.String())
	settings := map[string]string{"relay.tenant": a.String(), "relay.actor": "service"}

	taken, fresh := b, neighbour{a, uuid.New(), uuid.New(), uuid.New(), uuid.New(), make([]byte, 32)}
	taken.tenant = a
	hits := make(map[string]bool)
	for table, columns := range tables {
		may := mayInsert(t, db, table)
		_, refused := attempt(t, service, settings, taken.insert(table, columns, may))
		_, otherwise := attempt(t, service, settings, fresh.insert(table, columns, may))
		if sqlState(refused) == sqlState(otherwise) {
			continue
		}
		var pgErr *pgconn.PgError
		require.ErrorAs(t, refused, &pgErr, table)
		require.Equal(t, uniqueState, pgErr.Code, "%s: %v, but otherwise %v", table, refused, otherwise)
		require.Contains(t, global, pgErr.ConstraintName)
		require.Empty(t, pgErr.Detail, "%s: the values of B are not shown", table)
		hits[pgErr.ConstraintName] = true
	}
	require.True(t, hits["rooms_id_uq"], "the comparison finds what there is: %v", hits)
}

// BL-G02: a pool of one connection. Whatever became of what was done in A, the next call is
// B's alone.
func TestSigningInLeavesNothingOnTheConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, conns(1)), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	ctx := t.Context()
	nonce := store.TokenHash{9}

	for name, disturb := range map[string]func(t *testing.T){
		"a challenge": func(t *testing.T) {
			require.NoError(t, s.NewChallenge(ctx, b.tenant, a.member.Device, nonce))
		},
		"a sign-in that is refused": func(t *testing.T) {
			_, err := s.SignIn(ctx, b.tenant, a.member.Device, nonce, store.TokenHash{8}, 1, func([32]byte) bool { return true })
			require.ErrorIs(t, err, store.ErrUnauthenticated)
		},
		"a tenant by name": func(t *testing.T) {
			_, err := s.TenantByName(ctx, a.tenant.String())
			require.NoError(t, err)
		},
		"a tenant that is made": func(t *testing.T) {
			_, err := s.CreateTenant(ctx, "t-"+uuid.NewString())
			require.NoError(t, err)
		},
		"one that fails before it sets a tenant": func(t *testing.T) {
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, s.NewChallenge(cancelled, b.tenant, a.member.Device, nonce), context.Canceled)
		},
		"one cancelled in mid-query": func(t *testing.T) {
			tx, err := db.connect(t).Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "LOCK TABLE device_challenges")
			require.NoError(t, err)
			short, cancel := context.WithCancel(ctx)
			result := make(chan error, 1)
			go func() { result <- s.NewChallenge(short, b.tenant, a.member.Device, store.TokenHash{7}) }()
			awaitBlocked(t, db, 1)
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			require.NoError(t, tx.Rollback(ctx))
		},
		"a connection killed by the server": func(t *testing.T) { killSessions(t, db) },
	} {
		t.Run(name, func(t *testing.T) {
			disturb(t)
			require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, patience, 1)
			require.Empty(t, settingsLeft(t, s))
			_, err := s.Device(ctx, b.tenant, a.member.Device)
			require.ErrorIs(t, err, store.ErrNotFound)
			_, err = s.Device(ctx, b.tenant, b.member.Device)
			require.NoError(t, err)
			devices, _, err := s.DevicePage(ctx, b.tenant, "", uuid.Nil, store.MaxPage)
			require.NoError(t, err)
			require.Len(t, devices, 1)
		})
	}
}

// settingsLeft is every setting of ours that the pool's connection has.
func settingsLeft(t *testing.T, s *postgres.Store) (left string) {
	t.Helper()
	require.NoError(t, s.Pool().AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		return c.QueryRow(t.Context(), `SELECT concat(current_setting('relay.tenant', true), current_setting('relay.actor', true),
			current_setting('relay.token', true), current_setting('relay.device', true), current_setting('relay.tenant_name', true),
			current_setting('relay.sign_in', true))`).Scan(&left)
	}))
	return left
}
