package schema_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
)

const tables = `SELECT relname::text FROM pg_class
	WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'goose_db_version' ORDER BY 1`

// textColumns is every column that could hold message content in clear, and what it
// holds instead. A new one needs an entry here, and with it a reason.
var textColumns = map[string]string{
	"tenants.name":                "operator's name of the tenant",
	"devices.label":               "name its owner gave the device",
	"devices.kind":                "human or agent",
	"devices.state":               "state machine",
	"devices.fingerprint":         "of the public keys, which people compare",
	"invites.kind":                "human or agent",
	"invites.state":               "state machine",
	"rooms.kind":                  "group or direct",
	"rooms.scheme":                "name of the encryption scheme",
	"rooms.private_messages":      "policy",
	"rooms.state":                 "state machine",
	"participants.role":           "role",
	"credentials.kind":            "session or development",
	"session_history.message_id":  "id the sender chose; visible to the relay in the envelope",
	"session_history.kind":        "kind of envelope",
	"message_traces.message_id":   "id the sender chose; visible to the relay in the envelope",
	"message_traces.files":        "names, types and sizes that RELAY has senders declare in clear",
	"notices.notice_id":           "id the sender chose; visible to the relay in the envelope",
	"board_cards.kind":            "idea, task, question or decision",
	"board_events.type":           "what an event does to its card",
	"outbox.kind":                 "kind of row: board.update or room.event",
	"room_rules.rule":             "name of a right",
	"state_transition.machine":    "reference data",
	"state_transition.from_state": "reference data",
	"state_transition.event":      "reference data",
	"state_transition.to_state":   "reference data",
}

func TestNoContentInClear(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	found := list(t, db, `
		SELECT c.relname || '.' || a.attname
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'm') AND a.attnum > 0 AND NOT a.attisdropped
		  AND c.relname <> 'goose_db_version'
		  AND t.typname NOT IN ('uuid', 'timestamptz', 'int4', 'int8', 'bool', 'bytea')`)
	for _, column := range found {
		require.Contains(t, textColumns, column, "a column that could hold content in clear")
	}
	require.Len(t, found, len(textColumns), "an entry of the list has no column")
}

func TestEveryTableIsTheTenants(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	require.NotEmpty(t, list(t, db, tables))
	require.Empty(t, list(t, db, `SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'goose_db_version'
		  AND NOT (relrowsecurity AND relforcerowsecurity)`), "tables without forced row-level security")
	require.Equal(t, []string{"state_transition", "tenants"}, list(t, db, `SELECT relname::text FROM pg_class c
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'goose_db_version'
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND a.attnotnull)
		ORDER BY 1`), "tables without a tenant")
	require.Equal(t, []string{"state_transition"}, list(t, db, `SELECT DISTINCT tablename::text FROM pg_policies
		WHERE coalesce(qual, 'true') = 'true' AND coalesce(with_check, 'true') = 'true'`), "policies that ask nothing")
	require.Empty(t, list(t, db, `SELECT proname::text FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace AND prosecdef`), "functions with their owner's rights")
	require.Empty(t, list(t, db, `SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('v', 'm')`), "views, which have their owner's rights")
}

func TestEverythingIsNamed(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	names := list(t, db, `SELECT c.relname || ' ' || k.conname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relname <> 'goose_db_version' AND k.contype IN ('c', 'f', 'p', 'u', 'x')
		UNION SELECT c.relname || ' ' || i.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relname <> 'goose_db_version'`)
	ours := regexp.MustCompile(`^[a-z_]+_(pk|uq|fk|ck|ix)$`)
	for _, line := range names {
		table, name, _ := strings.Cut(line, " ")
		require.True(t, strings.HasPrefix(name, table+"_") && ours.MatchString(name), "%s: PostgreSQL made up the name %s", table, name)
	}
}

// rights is what a role may do with one table; columns in alphabetical order.
type rights struct {
	insert, update string
	selects        bool
	deletes        bool
}

// TestRights pins what the relay's roles may do, so that a right is never given by accident.
func TestRights(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	requireRights(t, db, schema.ServiceRole, map[string]rights{
		"state_transition": {selects: true},
		"tenants":          {selects: true, insert: "id name", update: "frozen"},
		"devices": {
			selects: true,
			insert:  "admin agreement_key agreement_signature approved_at fingerprint id identity_key invite_id kind label state tenant_id",
			update:  "approved_at label last_prekey revoked_at state",
		},
		"invites":           {selects: true, insert: "admin created_by expires_at id kind tenant_id token_hash", update: "consumed_by failed_proofs state"},
		"device_challenges": {selects: true, insert: "device_id expires_at nonce_hash tenant_id", deletes: true},
		"device_tokens":     {selects: true, insert: "device_id expires_at tenant_id token_hash", update: "revoked_at", deletes: true},
		"rooms":             {selects: true, insert: "id kind made_by private_messages scheme tenant_id", update: "activated archived_at state version"},
		"participants":      {selects: true, insert: "device_id id role room_id tenant_id", update: "first_gen last_gen left_at mls_since welcome_epoch"},
		"credentials":       {selects: true, insert: "expires_at id kind participant_id room_id tenant_id token_hash", update: "revoked_at", deletes: true},
		"session_history":   {selects: true, insert: "envelope gen kid kind message_id room_id sender_id tenant_id", deletes: true},

		"message_traces": {selects: true, insert: "declared digest files message_id recipient_id room_id sender_id tenant_id ts"},

		"mls_groups":         {selects: true, insert: "epoch group_id group_info room_id tenant_id", update: "base epoch group_id group_info updated_at"},
		"mls_group_ids":      {selects: true, insert: "began group_id room_id tenant_id", deletes: true},
		"mls_commits":        {selects: true, insert: "content epoch room_id sender_id tenant_id", deletes: true},
		"mls_welcomes":       {selects: true, insert: "content epoch room_id tenant_id", deletes: true},
		"mls_commit_reports": {selects: true, insert: "epoch participant_id room_id tenant_id"},
		"key_packages":       {selects: true, insert: "content device_id expires_at last_resort ref tenant_id", update: "content", deletes: true},
		"signed_prekeys":     {selects: true, insert: "device_id id key signature tenant_id", update: "id key signature", deletes: true},
		"prekeys":            {selects: true, insert: "device_id id key tenant_id", deletes: true},

		"room_rules":         {selects: true, insert: "allowed participant_id room_id rule tenant_id", update: "allowed updated_at"},
		"sender_generations": {selects: true, insert: "gen kid participant_id room_id session_key tenant_id", deletes: true},
		"notices":            {selects: true, insert: "envelope expires_at gen kid notice_id room_id sender_id tenant_id ts", deletes: true},

		"board_sequences": {selects: true, insert: "room_id tenant_id", update: "last"},
		"board_cards": {
			selects: true, insert: "content_position id kind last_position position room_id tenant_id",
			update: "closed content_position last_position revision",
		},
		"board_events": {selects: true, insert: "author_id card_id content id revision room_id sequence signature tenant_id type"},
		"outbox": {
			selects: true, insert: "kind participant_id payload room_id tenant_id", update: "claimed_until claims", deletes: true,
		},
	})
	requireRights(t, db, schema.DeviceRole, map[string]rights{
		"tenants": {selects: true}, "devices": {selects: true}, "rooms": {selects: true},
		"participants": {selects: true}, "session_history": {selects: true}, "message_traces": {selects: true},
		"room_rules": {selects: true}, "sender_generations": {selects: true}, "notices": {selects: true},
		"board_cards": {selects: true}, "board_events": {selects: true},
		"mls_groups": {selects: true}, "mls_commits": {selects: true}, "mls_welcomes": {selects: true},
		"mls_commit_reports": {selects: true}, "key_packages": {selects: true},
	})
}

func requireRights(t *testing.T, db *pgx.Conn, role string, want map[string]rights) {
	t.Helper()
	login := map[string]string{schema.ServiceRole: "t", schema.DeviceRole: "f"}[role]
	require.Equal(t, []string{"f f f f f " + login}, list(t, db, `SELECT
		concat_ws(' ', rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication, rolcanlogin)
		FROM pg_roles WHERE rolname = $1`, role))
	has := func(sql string, args ...any) (yes bool) {
		t.Helper()
		require.NoError(t, db.QueryRow(t.Context(), sql, args...).Scan(&yes))
		return yes
	}
	for _, table := range list(t, db, tables) {
		right := func(name string) bool { return has("SELECT has_table_privilege($1, $2, $3)", role, table, name) }
		got := rights{
			insert: columnsWith(t, db, role, table, "INSERT"), update: columnsWith(t, db, role, table, "UPDATE"),
			selects: columnsWith(t, db, role, table, "SELECT") != "", deletes: right("DELETE"),
		}
		require.Equal(t, want[table], got, "%s on %s", role, table)
		for _, name := range []string{"TRUNCATE", "REFERENCES", "TRIGGER"} {
			require.False(t, right(name), "%s: %s on %s", role, name, table)
		}
	}
	require.False(t, has("SELECT has_schema_privilege($1, 'public', 'CREATE')", role))
}

func columnsWith(t *testing.T, db *pgx.Conn, role, table, right string) string {
	t.Helper()
	return strings.Join(list(t, db, `SELECT attname::text FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped
		  AND has_column_privilege($2, attrelid, attnum, $3) ORDER BY 1`, table, role, right), " ")
}

// A policy that asks for one role's rows must not be part of the other's plans.
func TestPoliciesAreOfOneRole(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	require.Empty(t, list(t, db, `SELECT policyname::text FROM pg_policies
		WHERE NOT roles <@ ARRAY[$1, $2]::name[]`, schema.ServiceRole, schema.DeviceRole), "policies for others")
	require.Equal(t, []string{"tenants_own"}, list(t, db, `SELECT policyname::text FROM pg_policies
		WHERE cardinality(roles) > 1`), "policies of both roles")
	require.Equal(t, []string{"SELECT"}, list(t, db, `SELECT DISTINCT cmd FROM pg_policies
		WHERE $1 = ANY(roles)`, schema.DeviceRole), "a device only reads")
	require.Equal(t, []string{"board_cards_member", "board_events_member", "devices_self", "key_packages_self", "message_traces_owner", "mls_commit_reports_member", "mls_commits_member", "mls_groups_member", "mls_welcomes_member", "notices_member", "participants_self", "room_rules_member", "rooms_member", "sender_generations_member", "session_history_member", "tenants_own"},
		list(t, db, `SELECT policyname::text FROM pg_policies WHERE $1 = ANY(roles) ORDER BY 1`, schema.DeviceRole))
}

// The state machines, in Go and in the table, are the same.
func TestTransitionTables(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.URL(t))
	var want []string
	for _, from := range roomStates {
		for _, event := range roomEvents {
			if to, err := from.Next(event); err == nil {
				want = append(want, fmt.Sprintf("room %s %s %s", from, event, to))
			}
		}
	}
	for _, from := range deviceStates {
		for _, event := range deviceEvents {
			if to, err := from.Next(event); err == nil {
				want = append(want, fmt.Sprintf("device %s %s %s", from, event, to))
			}
		}
	}
	for _, from := range inviteStates {
		for _, event := range inviteEvents {
			if to, err := from.Next(event); err == nil {
				want = append(want, fmt.Sprintf("invite %s %s %s", from, event, to))
			}
		}
	}
	slices.Sort(want)
	got := list(t, db, "SELECT concat_ws(' ', machine, from_state, event, to_state) FROM state_transition")
	slices.Sort(got)
	require.Equal(t, want, got)
}

var (
	roomStates   = []store.RoomState{store.RoomCreated, store.RoomActive, store.RoomRekeying, store.RoomArchived}
	roomEvents   = []store.RoomEvent{store.RoomMembersAdded, store.RoomMemberRemoved, store.RoomRekeyed, store.RoomArchive}
	deviceStates = []store.DeviceState{store.DevicePending, store.DeviceApproved, store.DeviceActive, store.DeviceSuspended, store.DeviceRevoked}
	deviceEvents = []store.DeviceEvent{store.DeviceApprove, store.DeviceActivate, store.DeviceSuspend, store.DeviceReinstate, store.DeviceRevoke}
	inviteStates = []store.InviteState{store.InviteCreated, store.InviteConsumed, store.InviteExpired, store.InviteRevoked}
	inviteEvents = []store.InviteEvent{store.InviteConsume, store.InviteExpire, store.InviteRevoke}
)
