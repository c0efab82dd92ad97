package schema_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
)

// beforeOutbox is the last version without the outbox for all rows of the server.
const beforeOutbox = 8

// operatorDatabase is an empty database on a server of its own, whose owner is no
// superuser: forced policies bind it too. admin is the same one for who may do anything.
func operatorDatabase(t *testing.T) (operator, admin string) {
	t.Helper()
	server, err := pgd.Start(t.Context(), pgd.Config{Dir: t.TempDir(), Roles: []string{"operator", schema.ServiceRole}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
	db := connect(t, server.URL())
	for _, sql := range []string{"CREATE ROLE operator LOGIN NOSUPERUSER CREATEROLE", "CREATE DATABASE theirs OWNER operator"} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	in := func(server string) string {
		u, err := url.Parse(server)
		require.NoError(t, err)
		u.Path = "/theirs"
		return u.String()
	}
	return in(server.URLAs("operator")), in(server.URL())
}

// Hints that waited when the relay was upgraded go out after it, in their order and with
// the bytes that the older relay would have written; generations go on where they were.
func TestUpgradeKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	operator, admin := operatorDatabase(t)
	require.NoError(t, schema.UpTo(t.Context(), operator, beforeOutbox))
	db := connect(t, admin)
	tenant, room, device, member, idle := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	ids := strings.NewReplacer("TENANT", tenant.String(), "ROOM", room.String(), "DEVICE", device.String(), "MEMBER", member.String(), "IDLE", idle.String())
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := db.Exec(t.Context(), ids.Replace(sql), args...)
		require.NoError(t, err)
	}
	exec("INSERT INTO tenants (id, name) VALUES ('TENANT', 'one')")
	exec("INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages) VALUES ('TENANT', 'ROOM', 'group', 'sender_keys', 'allowed')")
	exec("INSERT INTO devices (tenant_id, id, kind, state) VALUES ('TENANT', 'DEVICE', 'agent', 'ACTIVE')")
	exec("INSERT INTO participants (tenant_id, id, room_id, device_id, role, left_at) VALUES ('TENANT', 'IDLE', 'ROOM', 'DEVICE', 'agent', now())")
	exec("INSERT INTO participants (tenant_id, id, room_id, device_id, role) VALUES ('TENANT', 'MEMBER', 'ROOM', 'DEVICE', 'agent')")
	for gen := 1; gen <= 3; gen++ {
		exec(`INSERT INTO sender_generations (tenant_id, room_id, participant_id, gen, kid, session_key)
			VALUES ('TENANT', 'ROOM', 'MEMBER', $1, $2, 'session')`, gen, fmt.Appendf(nil, "%016d", gen))
	}
	exec("INSERT INTO board_sequences (tenant_id, room_id, last) VALUES ('TENANT', 'ROOM', 3)")
	card := uuid.New()
	exec(`INSERT INTO board_cards (tenant_id, room_id, id, kind, revision, position, content_position, last_position)
		VALUES ('TENANT', 'ROOM', $1, 'task', 3, 1, 1, 3)`, card)
	var want []store.OutboxRow
	for sequence := 1; sequence <= 3; sequence++ {
		event := uuid.New()
		exec(`INSERT INTO board_events (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature)
			VALUES ('TENANT', 'ROOM', $1, $2, $3, $4, $1, 'MEMBER', 'x', 'x')`, sequence, event, card, []string{"created", "updated", "comment"}[sequence-1])
		exec(`INSERT INTO board_outbox (tenant_id, room_id, sequence, event_id, card_id, revision)
			VALUES ('TENANT', 'ROOM', $1, $2, $3, $1)`, sequence, event, card)
		want = append(want, store.OutboxRow{
			Tenant: tenant, Room: room, Kind: "board.update",
			// What the older relay's publisher wrote.
			Payload: fmt.Appendf(nil, `{"event_id":%q,"card_id":%q,"revision":%d}`, event.String(), card.String(), sequence),
		})
	}
	exec("UPDATE board_outbox SET claimed_until = now() + interval '1 hour', claims = 5 WHERE sequence = 1")

	require.NoError(t, schema.Up(t.Context(), operator))
	s := pgtest.Open(t, operator)
	rows, err := s.ClaimRows(t.Context(), 10, time.Hour)
	require.NoError(t, err)
	require.Len(t, rows, len(want), "what a node of the older relay had claimed, too: it may come again")
	for i := range rows {
		require.Equal(t, int64(i+1), rows[i].Position)
		rows[i].Position = 0
	}
	require.Equal(t, want, rows)
	require.Equal(t, []string{"0 0", "0 3"}, list(t, db, "SELECT first_gen || ' ' || last_gen FROM participants ORDER BY 1"))

	require.NoError(t, schema.Down(t.Context(), operator, beforeOutbox), "with rows in it")
	require.NoError(t, schema.Up(t.Context(), operator))
}

// description is all that a database is made of, but for the order of its columns.
const description = `
	SELECT concat_ws(' ', 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
	       pg_get_expr(d.adbin, d.adrelid), array_to_string(a.attacl, ','))
	FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
	UNION ALL SELECT concat_ws(' ', 'relation', relname, relkind, relrowsecurity, relforcerowsecurity, array_to_string(relacl, ','))
	FROM pg_class WHERE relnamespace = 'public'::regnamespace
	UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
	FROM pg_constraint WHERE connamespace = 'public'::regnamespace
	UNION ALL SELECT concat_ws(' ', 'index', indexdef) FROM pg_indexes WHERE schemaname = 'public'
	UNION ALL SELECT concat_ws(' ', 'policy', tablename, policyname, cmd, roles, qual, with_check) FROM pg_policies
	UNION ALL SELECT concat_ws(' ', 'trigger', tgrelid::regclass, pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
	UNION ALL SELECT concat_ws(' ', 'function', pg_get_functiondef(oid), array_to_string(proacl, ','))
	FROM pg_proc WHERE pronamespace = 'public'::regnamespace
	UNION ALL SELECT concat_ws(' ', 'state', machine, from_state, event, to_state) FROM state_transition
	ORDER BY 1`

// Every migration after the eighth is undone without a trace.
func TestDownLeavesTheEighthVersion(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	require.NoError(t, schema.UpTo(t.Context(), url, beforeOutbox))
	db := connect(t, url)
	want := list(t, db, description)
	require.NoError(t, schema.Up(t.Context(), url))
	require.NotEqual(t, want, list(t, db, description))
	require.NoError(t, schema.Down(t.Context(), url, beforeOutbox))
	require.Equal(t, want, list(t, db, description))
}
