package postgres_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
)

// FAULTS BL-H02 (a), two hundred rounds: a revocation and a submission at the same instant.
// One of the two wins, the other is told so, and after the revocation nobody enrolls.
func TestARevokedInviteIsNeverConsumed(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 25
	e := newEnrolling(t)
	var all sync.WaitGroup
	var wins [workers]int
	for w := range workers {
		tenant := subject(e.s, e.db).NewTenant(t) // each with its own: invites of a tenant follow one another
		all.Go(func() {
			for round := range rounds {
				wins[w] += revokeAgainstEnroll(t, e.s, tenant, uint64(w*rounds+round)+1)
			}
		})
	}
	all.Wait()
	enrolled := 0
	for _, n := range wins {
		enrolled += n
	}
	require.Equal(t, enrolled, query[int](t, e.db, "SELECT count(*) FROM devices"))
	require.Equal(t, enrolled, query[int](t, e.db, "SELECT count(*) FROM invites WHERE state = 'CONSUMED' AND consumed_by IS NOT NULL"))
	require.Equal(t, workers*rounds-enrolled, query[int](t, e.db, "SELECT count(*) FROM invites WHERE state = 'REVOKED' AND consumed_by IS NULL"))
	t.Logf("%d of %d submissions came before the revocation", enrolled, workers*rounds)
}

// revokeAgainstEnroll is one round; it returns 1 where the device enrolled.
func revokeAgainstEnroll(t *testing.T, s store.Store, tenant uuid.UUID, n uint64) int {
	var token store.TokenHash
	binary.BigEndian.PutUint64(token[:], n)
	submission := store.Enrollment{Token: token, Kind: store.DeviceAgent, Fingerprint: "f", Keys: store.DeviceKeys{Identity: [32]byte(token)}}
	made, err := s.CreateInvite(t.Context(), store.NewInvite{Tenant: tenant, Kind: store.DeviceAgent, Token: token, TTL: store.MaxInviteTTL})
	if err != nil {
		t.Errorf("invite: %v", err)
		return 0
	}
	barrier, revoked := make(chan struct{}), make(chan error, 1)
	go func() {
		<-barrier
		revoked <- s.RevokeInvite(t.Context(), tenant, made.ID)
	}()
	close(barrier)
	_, enrolled := s.Enroll(t.Context(), submission)
	taken := <-revoked
	if (enrolled == nil) == (taken == nil) {
		t.Errorf("enrolled: %v, revoked: %v", enrolled, taken)
	}
	if _, late := s.Enroll(t.Context(), submission); late == nil {
		t.Error("enrolled after it was decided")
	}
	if enrolled != nil {
		return 0
	}
	return 1
}

// FAULTS BL-H03 (c): the database fails to store the device. That is no refusal, and the
// invite is as it was.
func TestAFailureLeavesTheInviteUsable(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	submission := e.invite(t, 1)
	e.db.exec(t, "ALTER TABLE devices ADD CONSTRAINT devices_broken_ck CHECK (invite_id IS NULL)")
	_, err := e.s.Enroll(t.Context(), submission)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnauthenticated)
	require.Equal(t, store.InviteCreated, e.state(t, 1))
	require.Zero(t, query[int](t, e.db, "SELECT count(*) FROM devices"))
	e.db.exec(t, "ALTER TABLE devices DROP CONSTRAINT devices_broken_ck")
	_, err = e.s.Enroll(t.Context(), submission)
	require.NoError(t, err)
}

// FAULTS BL-H03 (d): the connection is cut after the enrollment was committed and before
// that was answered. Another attempt is refused as any with a used invite, and there is one
// device.
func TestLostEnrollmentAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	e := enrolling{pgtest.Open(t, p.url), db, uuid.Nil}
	e.tenant = subject(e.s, db).NewTenant(t)
	submission := e.invite(t, 1)

	// The commit waits for a lock of ours, so that its answer is what is lost.
	db.exec(t, `CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4711); RETURN NULL; END $$`)
	db.exec(t, `CREATE CONSTRAINT TRIGGER invites_wait AFTER UPDATE ON invites DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION wait_for_test()`)
	holder := db.connect(t)
	_, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock(4711)")
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := e.s.Enroll(t.Context(), submission)
		result <- err
	}()
	require.Eventually(t, func() bool {
		return query[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted") == 1
	}, patience, time.Millisecond)
	p.mute.Store(true)
	_, err = holder.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.state(t, 1) == store.InviteConsumed }, patience, time.Millisecond)
	p.cut()
	err = <-result
	requireUnknown(t, err)
	require.NotErrorIs(t, err, store.ErrUnauthenticated)

	p.mute.Store(false)
	p.cut() // what the pool opened meanwhile would wait for its answer until the time is up
	require.Eventually(t, func() bool { return e.s.Ping(t.Context()) == nil }, patience, time.Millisecond)
	_, err = e.s.Enroll(t.Context(), submission)
	require.Equal(t, store.ErrUnauthenticated, err)
	require.Equal(t, 1, query[int](t, db, "SELECT count(*) FROM devices"))
}
