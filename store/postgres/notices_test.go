package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

// alert gives the resident a generation, a notice and a rule.
func (r resident) alert(t *testing.T, s store.Store) {
	t.Helper()
	_, err := s.AllocateGeneration(t.Context(), store.NewGeneration{
		Tenant: r.tenant, Room: r.member.Room, Participant: r.member.ID, SessionKey: []byte("key"),
	})
	require.NoError(t, err)
	require.NoError(t, s.SetRule(t.Context(), store.RuleSetting{
		Tenant: r.tenant, Room: r.member.Room, Rule: store.RuleAlertEmit, Allowed: true,
	}))
	require.NoError(t, s.AppendNotice(t.Context(), alertOf(r, "first", "x")))
}

func alertOf(r resident, id, body string) store.Notice {
	now := uint64(time.Now().UnixMilli())
	return store.Notice{
		Tenant: r.tenant, Room: r.member.Room, Sender: r.member.ID, ID: id, Gen: 1,
		TS: now, ExpiresAt: now + uint64(time.Hour.Milliseconds()), Bytes: []byte(body),
	}
}

func noticeRow(tenant, room, sender uuid.UUID) string {
	return fmt.Sprintf(`INSERT INTO notices (tenant_id, room_id, notice_id, sender_id, gen, ts, expires_at, envelope)
		VALUES ('%s', '%s', 'n', '%s', 1, now(), now() + '1h', 'x')`, tenant, room, sender)
}

func ruleRow(tenant, room, participant uuid.UUID) string {
	return fmt.Sprintf("INSERT INTO room_rules (tenant_id, room_id, rule, participant_id, allowed) VALUES ('%s', '%s', 'message.send', '%s', true)",
		tenant, room, participant)
}

func generationRow(tenant, room, participant uuid.UUID) string {
	return fmt.Sprintf("INSERT INTO sender_generations (tenant_id, room_id, participant_id, gen, kid, session_key) VALUES ('%s', '%s', '%s', 7, decode(repeat('07', 16), 'hex'), 'k')",
		tenant, room, participant)
}

// Whoever writes, rows are of current members only: rules of any, generations of those
// who send, notices of agents.
func TestPoliciesOfNotices(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)
	member := func(role store.Role) store.Participant {
		p, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: b.tenant, Room: b.member.Room, Role: role})
		require.NoError(t, err)
		return p
	}
	other, err := s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: b.tenant, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	former := member(store.RoleAgent)
	_, err = s.RemoveParticipant(t.Context(), b.tenant, former.Room, former.ID, uuid.Nil)
	require.NoError(t, err)

	rows := map[string]func(tenant, room, participant uuid.UUID) string{
		"notices": noticeRow, "room_rules": ruleRow, "sender_generations": generationRow,
	}
	everyone := []string{"notices", "room_rules", "sender_generations"}
	for name, c := range map[string]struct {
		room, participant uuid.UUID
		may               []string
	}{
		"an agent":                 {b.member.Room, b.member.ID, everyone},
		"an owner":                 {b.member.Room, member(store.RoleOwner).ID, []string{"room_rules", "sender_generations"}},
		"a viewer":                 {b.member.Room, member(store.RoleViewer).ID, []string{"room_rules"}},
		"a former member":          {b.member.Room, former.ID, nil},
		"a member of another room": {other.ID, b.member.ID, nil},
		"another tenant's member":  {b.member.Room, a.member.ID, nil},
		"everybody":                {b.member.Room, uuid.Nil, []string{"room_rules"}},
	} {
		for table, row := range rows {
			inTransaction(t, service, map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
				_, err := tx.Exec(t.Context(), row(b.tenant, c.room, c.participant))
				if slices.Contains(c.may, table) {
					require.NoError(t, err, "%s: %s", name, table)
					return
				}
				require.ErrorContains(t, err, "row-level security", "%s: %s", name, table)
			})
		}
	}
}

// The store compares and keeps bytes, whatever they say.
func TestNoticesAreBytes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	n := alertOf(r, "odd", string(all))
	n.KID = "a\x00b\u2028\xff"
	require.NoError(t, s.AppendNotice(t.Context(), n))
	rows, _, err := s.NoticePage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 1, Newest: true})
	require.NoError(t, err)
	require.Equal(t, all, rows[0].Bytes)
	require.Equal(t, n.KID, string(query[[]byte](t, db, "SELECT kid FROM notices WHERE notice_id = 'odd'")))

	// Looked for before generation, times and cap.
	duplicate, conflict := &wire.Error{Code: wire.NoticeDuplicate}, &wire.Error{Code: wire.NoticeIDConflict}
	again := n
	again.Gen, again.TS = 99, 1
	require.ErrorIs(t, s.AppendNotice(t.Context(), again), duplicate)
	again.Bytes = all[1:]
	require.ErrorIs(t, s.AppendNotice(t.Context(), again), conflict)

	other, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: r.member.Room, Role: store.RoleAgent})
	require.NoError(t, err)
	again = n
	again.Sender = other.ID
	require.ErrorIs(t, s.AppendNotice(t.Context(), again), conflict, "another sender's same bytes")
}

func TestPruneNotices(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.History.KeepFor = 24 * time.Hour }), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	old := alertOf(a, "old", "x")
	for _, r := range []resident{a, b} {
		require.NoError(t, s.AppendNotice(t.Context(), alertOf(r, "old", "x")))
		require.NoError(t, s.AppendNotice(t.Context(), alertOf(r, "expired", "x")))
	}
	age := func(id, by string) {
		db.exec(t, "UPDATE notices SET ts = ts - $2::interval, expires_at = expires_at - $2::interval WHERE notice_id = $1", id, by)
	}
	age("old", "26 hours")
	age("expired", "24 hours")
	deleted, err := s.PruneNotices(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), deleted)
	for _, r := range []resident{a, b} {
		rows, _, err := s.NoticePage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 10})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Equal(t, []string{"first", "expired"}, []string{rows[0].ID, rows[1].ID})
	}
	deleted, err = s.PruneNotices(t.Context())
	require.NoError(t, err)
	require.Zero(t, deleted)
	old.TS -= uint64((26 * time.Hour).Milliseconds())
	old.ExpiresAt -= uint64((26 * time.Hour).Milliseconds())
	require.ErrorIs(t, s.AppendNotice(t.Context(), old), &wire.Error{Code: wire.NoticeStale}, "never accepted twice")
}

// What a notice is measured by is what holds when its turn in the room has come, however
// long it waited for that: the clock, and the sender's rights.
func TestNoticesAreDecidedAfterTheWait(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.Timeout = patience }), newOwner(url)
	r := newResident(t, s, db, 1)
	// held runs meanwhile in the transaction of another who holds the room.
	held := func(t *testing.T, n store.Notice, meanwhile func(pgx.Tx)) error {
		t.Helper()
		tx, err := db.connect(t).Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT FROM rooms WHERE id = $1 FOR UPDATE", r.member.Room)
		require.NoError(t, err)
		result := make(chan error, 1)
		go func() { result <- s.AppendNotice(t.Context(), n) }()
		awaitBlocked(t, db, 1)
		meanwhile(tx)
		require.NoError(t, tx.Commit(t.Context()))
		return <-result
	}

	brief := alertOf(r, "brief", "x")
	brief.ExpiresAt = brief.TS + 1500
	require.ErrorIs(t, held(t, brief, func(tx pgx.Tx) {
		require.Eventually(t, func() bool {
			var now int64
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&now))
			return now > int64(brief.ExpiresAt)
		}, patience, 10*time.Millisecond)
	}), &wire.Error{Code: wire.NoticeStale})

	require.ErrorIs(t, held(t, alertOf(r, "forbidden", "x"), func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), "UPDATE room_rules SET allowed = false WHERE room_id = $1", r.member.Room)
		require.NoError(t, err)
	}), &wire.Error{Code: wire.NoticeNotPermitted})

	require.NoError(t, held(t, alertOf(r, "allowed", "x"), func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), "UPDATE room_rules SET allowed = true WHERE room_id = $1", r.member.Room)
		require.NoError(t, err)
	}))
}

// A rule waits for the notices on their way, which is what makes it in force once it
// has been answered.
func TestRulesWaitForNotices(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.Timeout = patience }), newOwner(url)
	r := newResident(t, s, db, 1)
	tx, err := db.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE notices")
	require.NoError(t, err)
	sent, set := make(chan error, 1), make(chan error, 1)
	go func() { sent <- s.AppendNotice(t.Context(), alertOf(r, "on-its-way", "x")) }()
	awaitBlocked(t, db, 1)
	off := store.RuleSetting{Tenant: r.tenant, Room: r.member.Room, Rule: store.RuleAlertEmit}
	go func() { set <- s.SetRule(t.Context(), off) }()
	awaitBlocked(t, db, 2)
	require.Empty(t, set)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-sent)
	require.NoError(t, <-set)
	require.ErrorIs(t, s.AppendNotice(t.Context(), alertOf(r, "after", "x")), &wire.Error{Code: wire.NoticeNotPermitted})
}

// The commit happened and its answer was lost: the outcome is unknown, and so it is
// said, since a notice that is called a duplicate is never sent out.
func TestLostNoticeAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	s := pgtest.Open(t, p.url)
	r := newResident(t, s, db, 1)
	n := alertOf(r, "lost", "x")
	rows := func() int { return query[int](t, db, "SELECT count(*) FROM notices WHERE room_id = $1", r.member.Room) }
	require.Equal(t, 1, rows())
	result := make(chan error, 1)
	require.NoError(t, s.Ping(t.Context())) // the pool asks one that was idle for long first, and waits
	p.mute.Store(true)
	go func() { result <- s.AppendNotice(t.Context(), n) }()
	require.Eventually(t, func() bool { return rows() == 2 }, patience, time.Millisecond)
	p.cut()
	err := <-result
	requireUnknown(t, err)
	p.mute.Store(false)
	require.ErrorIs(t, s.AppendNotice(t.Context(), n), &wire.Error{Code: wire.NoticeDuplicate})
	require.Equal(t, 2, rows())
}

// What fails in a way that repeating mends is repeated inside, and the notice of this
// very call is no duplicate then.
func TestRepeatedNoticeIsNoDuplicate(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, conns(1)), newOwner(url)
	r := newResident(t, s, db, 1)
	for i, disturb := range []func(){
		func() {
			_, err := s.Pool().Exec(t.Context(), "DEALLOCATE ALL")
			require.NoError(t, err)
		},
		func() { db.exec(t, "ALTER TABLE rooms ADD COLUMN later int") },
		func() { db.exec(t, "ALTER TABLE notices ADD COLUMN later int") }, // FAULTS G05
		func() { killSessions(t, db) },
	} {
		disturb()
		err := s.AppendNotice(t.Context(), alertOf(r, fmt.Sprintf("n-%d", i), "x"))
		require.NoError(t, err, "%d", i)
	}
	db.exec(t, `CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('stumbles') = 1 THEN RAISE EXCEPTION 'stumbled' USING ERRCODE = '40P01'; END IF; RETURN NULL; END $$`)
	db.exec(t, "CREATE SEQUENCE stumbles")
	db.exec(t, "GRANT USAGE ON stumbles TO "+schema.ServiceRole)
	db.exec(t, "CREATE CONSTRAINT TRIGGER stumble AFTER INSERT ON notices DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stumble()")
	require.NoError(t, s.AppendNotice(t.Context(), alertOf(r, "stumbled", "x")), "a deadlock at the commit")
	require.Equal(t, int64(2), query[int64](t, db, "SELECT last_value FROM stumbles"), "it was repeated")
	require.Equal(t, 6, query[int](t, db, "SELECT count(*) FROM notices WHERE room_id = $1", r.member.Room))
}
