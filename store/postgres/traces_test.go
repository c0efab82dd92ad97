package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
)

func traceRow(tenant, room, from, to uuid.UUID) string {
	return fmt.Sprintf("INSERT INTO message_traces (tenant_id, room_id, message_id, sender_id, recipient_id, ts, declared, digest) VALUES ('%s', '%s', 't-%s', '%s', '%s', 0, true, sha256('x'))",
		tenant, room, uuid.New(), from, to)
}

func groupRow(tenant, room uuid.UUID) string {
	return fmt.Sprintf("INSERT INTO mls_groups (tenant_id, room_id, epoch) VALUES ('%s', '%s', 0)", tenant, room)
}

// private is the trace of a private message of r to another.
func private(r resident, to store.Participant, id string) store.Trace {
	return store.Trace{
		Tenant: r.tenant, Room: r.member.Room, MessageID: id, From: r.member.ID, To: to.ID,
		Declared: true, Files: []store.FileHeader{{Name: "n", MIMEType: "m", SizeBytes: 1}}, Digest: [32]byte{1},
	}
}

// companion is another agent of r's room.
func companion(t *testing.T, s store.Store, r resident) store.Participant {
	t.Helper()
	p, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: r.member.Room, Role: store.RoleAgent})
	require.NoError(t, err)
	return p
}

// Traces are read by the room's owner and nobody else's device; both ends of a new one
// are current members, whoever writes; none is ever changed or deleted.
func TestTracePolicies(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	add := func(r resident, room uuid.UUID, role store.Role) store.Participant {
		p, err := s.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: room, Role: role})
		require.NoError(t, err)
		return p
	}
	second, err := s.CreateRoom(t.Context(), store.NewRoom{Tenant: a.tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed})
	require.NoError(t, err)
	keeper, elsewhere, theirs := add(a, a.member.Room, store.RoleOwner), add(a, second.ID, store.RoleOwner), add(b, b.member.Room, store.RoleOwner)
	gone := add(a, a.member.Room, store.RoleOwner)
	_, err = s.RemoveParticipant(t.Context(), a.tenant, gone.Room, gone.ID, uuid.Nil)
	require.NoError(t, err)
	service := newOwner(pgtest.As(t, url, schema.ServiceRole)).connect(t)
	for name, c := range map[string]struct {
		settings map[string]string
		want     int
	}{
		"the owner":                  {asDevice(a.tenant, keeper.Device), 1},
		"an agent":                   {asDevice(a.tenant, a.member.Device), 0},
		"a controller":               {asDevice(a.tenant, add(a, a.member.Room, store.RoleController).Device), 0},
		"a viewer":                   {asDevice(a.tenant, add(a, a.member.Room, store.RoleViewer).Device), 0},
		"the owner of another room":  {asDevice(a.tenant, elsewhere.Device), 0},
		"a former owner":             {asDevice(a.tenant, gone.Device), 0},
		"an owner of another tenant": {asDevice(a.tenant, theirs.Device), 0},
	} {
		require.Equal(t, c.want, visible(t, service, c.settings)["message_traces"], name)
	}

	for name, c := range map[string]struct{ room, from, to uuid.UUID }{
		"from a former member":     {a.member.Room, gone.ID, a.member.ID},
		"to a former member":       {a.member.Room, a.member.ID, gone.ID},
		"from another room":        {a.member.Room, elsewhere.ID, a.member.ID},
		"to another room":          {a.member.Room, a.member.ID, elsewhere.ID},
		"to another tenant":        {a.member.Room, a.member.ID, b.member.ID},
		"into another room":        {second.ID, a.member.ID, keeper.ID},
		"into the other's room":    {b.member.Room, b.member.ID, theirs.ID},
		"from nobody":              {a.member.Room, uuid.New(), a.member.ID},
		"to nobody, in a's tenant": {a.member.Room, a.member.ID, uuid.New()},
	} {
		inTransaction(t, service, map[string]string{"relay.tenant": a.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), traceRow(a.tenant, c.room, c.from, c.to))
			require.ErrorContains(t, err, "row-level security", name)
		})
	}
	for _, statement := range []string{"UPDATE message_traces SET ts = 1", "DELETE FROM message_traces"} {
		inTransaction(t, service, map[string]string{"relay.tenant": a.tenant.String(), "relay.actor": "service"}, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), statement)
			require.ErrorContains(t, err, "permission denied", statement)
		})
	}
}

// The table refuses what AppendTrace refuses, whoever writes.
func TestTraceConstraints(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	insert := func(id string, ts int64, declared bool, files, digest string) error {
		_, err := db.connect(t).Exec(t.Context(), `INSERT INTO message_traces (tenant_id, room_id, message_id, sender_id, recipient_id, ts, declared, files, digest)
			VALUES ($1, $2, $3, $4, $4, $5, $6, nullif($7::text, '')::jsonb, $8::text::bytea)`, r.tenant, r.member.Room, id, r.member.ID, ts, declared, files, digest)
		return err
	}
	digest := "0123456789abcdef0123456789abcdef"
	require.NoError(t, insert("m-1", 0, true, `[{}]`, digest))
	require.NoError(t, insert("m-2", 1<<53-1, false, `[{},{}]`, digest))
	require.NoError(t, insert("m-3", 1, true, "", digest))
	for constraint, err := range map[string]error{
		"message_traces_message_id_ck": insert("a b", 0, true, "", digest),
		"message_traces_ts_ck":         insert("m", 1<<53, true, "", digest),
		"message_traces_digest_ck":     insert("m", 0, true, "", digest[1:]),
	} {
		require.ErrorContains(t, err, constraint)
	}
	for _, files := range []string{`[]`, `{}`, `"x"`, `null`, `[{},{}]`} {
		require.ErrorContains(t, insert("m", 0, true, files, digest), "message_traces_files_ck", files)
	}
}

// Traces share commits as messages do, and a row that the database refuses costs no other
// of its batch its verdict.
func TestWaitingTracesShareACommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	to := companion(t, b, b.resident)
	b.db.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.message_id LIKE 'bad%' THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$`)
	b.db.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON message_traces FOR EACH ROW EXECUTE FUNCTION refuse()")
	tx, err := b.db.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE message_traces")
	require.NoError(t, err)
	const n = 30
	answers := make(chan answer, n)
	send := func(i int, id string) {
		go func() {
			got, err := b.AppendTrace(t.Context(), private(b.resident, to, id))
			answers <- answer{i, got, err}
		}()
	}
	send(0, "plug")
	awaitBlocked(t, b.db, 1)
	for i := 1; i < n; i++ {
		id := fmt.Sprintf("m-%d", i)
		if i%10 == 5 {
			id = fmt.Sprintf("bad-%d", i)
		}
		send(i, id)
	}
	require.Eventually(t, func() bool { return b.TracesDepth() == n-1 }, patience, time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	withdrawn := make(chan error, 1)
	go func() {
		_, err := b.AppendTrace(ctx, private(b.resident, to, "withdrawn"))
		withdrawn <- err
	}()
	require.Eventually(t, func() bool { return b.TracesDepth() == n }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-withdrawn, context.Canceled)

	require.NoError(t, tx.Rollback(t.Context()))
	for range n {
		a := <-answers
		if a.i%10 == 5 {
			requireUnknown(t, a.err)
			continue
		}
		require.NoError(t, a.err)
	}
	require.Equal(t, n-3+1, query[int](t, b.db, "SELECT count(*) FROM message_traces"), "with the resident's own")
}

// A trace whose answer was lost: the same again finds out.
func TestLostTraceAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	s := pgtest.Open(t, p.url)
	r := newResident(t, s, db, 1)
	to := companion(t, s, r)
	tr := private(r, to, "lost")
	_, err := s.AppendTrace(t.Context(), private(r, to, "before")) // its statements are known now
	require.NoError(t, err)
	result := make(chan error, 1)
	p.mute.Store(true)
	go func() {
		_, err := s.AppendTrace(t.Context(), tr)
		result <- err
	}()
	require.Eventually(t, func() bool {
		return query[int](t, db, "SELECT count(*) FROM message_traces WHERE message_id = 'lost'") == 1
	}, patience, time.Millisecond)
	p.cut()
	requireUnknown(t, <-result)
	p.mute.Store(false)
	got, err := s.AppendTrace(t.Context(), tr)
	require.NoError(t, err)
	require.True(t, got.Duplicate)
}

// The id of a message in history is never traced, whichever node stored the message and
// however shortly before.
func TestATraceNeverTakesTheIDOfAMessage(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	one, two, db := pgtest.Open(t, url), pgtest.Open(t, url), newOwner(url)
	r := newResident(t, one, db, 1)
	to := companion(t, one, r)
	release := stall(t, db, "session_history")
	message, tr := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := one.AppendMessage(t.Context(), text(r, "slow", "x"))
		message <- err
	}()
	awaitBlocked(t, db, 1)
	go func() {
		_, err := two.AppendTrace(t.Context(), private(r, to, "slow"))
		tr <- err
	}()
	awaitBlocked(t, db, 2) // the trace waits for the room, and then sees the message
	release()
	require.NoError(t, <-message)
	require.ErrorContains(t, <-tr, "history_conflict")
	require.Zero(t, query[int](t, db, "SELECT count(*) FROM message_traces WHERE message_id = 'slow'"))
}
