package postgres_test

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// enrolling is a store, its owner's means and a tenant.
type enrolling struct {
	s      *postgres.Store
	db     *owner
	tenant uuid.UUID
}

func newEnrolling(t *testing.T) enrolling {
	t.Helper()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	return enrolling{s, db, subject(s, db).NewTenant(t)}
}

func (e enrolling) invite(t *testing.T, token byte) store.Enrollment {
	t.Helper()
	_, err := e.s.CreateInvite(t.Context(), store.NewInvite{
		Tenant: e.tenant, Kind: store.DeviceAgent, Token: store.TokenHash{token}, TTL: store.MaxInviteTTL, Admin: true,
	})
	require.NoError(t, err)
	return store.Enrollment{
		Token: store.TokenHash{token}, Kind: store.DeviceAgent, Fingerprint: hex.EncodeToString([]byte{token}),
		Keys: store.DeviceKeys{Identity: [32]byte{token}},
	}
}

func (e enrolling) state(t *testing.T, token byte) store.InviteState {
	t.Helper()
	hash := store.TokenHash{token}
	return store.InviteState(query[string](t, e.db, "SELECT state FROM invites WHERE token_hash = $1", hash[:]))
}

func (e enrolling) device(t *testing.T, token byte) store.Device {
	t.Helper()
	device, err := e.s.Enroll(t.Context(), e.invite(t, token))
	require.NoError(t, err)
	return device
}

// FAULTS BL-H02 (b) and (d): an invite ends by the database's clock in the statement that
// consumes it; no job needs to have run.
func TestInviteEndsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	late, inTime := e.invite(t, 1), e.invite(t, 2)
	age := func(token store.TokenHash, by time.Duration) {
		e.db.exec(t, "UPDATE invites SET created_at = created_at - $2::interval, expires_at = expires_at - $2::interval WHERE token_hash = $1",
			token[:], by.String())
	}
	age(late.Token, store.MaxInviteTTL)
	age(inTime.Token, store.MaxInviteTTL-time.Minute)
	_, err := e.s.Enroll(t.Context(), late)
	require.Equal(t, store.ErrUnauthenticated, err)
	require.Equal(t, store.InviteCreated, e.state(t, 1))
	require.NoError(t, e.s.ProofFailed(t.Context(), late.Token))
	_, err = e.s.Enroll(t.Context(), inTime)
	require.NoError(t, err)
	require.Equal(t, store.InviteConsumed, e.state(t, 2))

	e.invite(t, 3)
	require.Equal(t, store.InviteExpired, e.state(t, 1), "moved by who came next")
	id := query[uuid.UUID](t, e.db, "SELECT id FROM invites WHERE token_hash = $1", late.Token[:])
	require.NoError(t, e.s.RevokeInvite(t.Context(), e.tenant, id))
	require.Equal(t, store.InviteExpired, e.state(t, 1), "and stays so")
}

// The expiry is looked at after the wait for the invite's lock, not before it.
func TestInviteExpiresWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	submission := e.invite(t, 1)
	holder := e.db.connect(t)
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "UPDATE invites SET expires_at = clock_timestamp() + interval '200 ms'")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := e.s.Enroll(t.Context(), submission)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return query[bool](t, e.db, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	}, patience, time.Millisecond)
	_, err = tx.Exec(t.Context(), "SELECT pg_sleep(0.3)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, store.ErrUnauthenticated, <-done)
}

// FAULTS BL-H03 (c): a failure of the database in the middle leaves no device and the
// invite usable, and is not answered as a refusal.
func TestEnrollIsOneTransaction(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	submission := e.invite(t, 1)
	e.db.exec(t, "ALTER TABLE invites ADD CONSTRAINT invites_broken_ck CHECK (state <> 'CONSUMED')")
	_, err := e.s.Enroll(t.Context(), submission)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnauthenticated)
	require.Zero(t, query[int](t, e.db, "SELECT count(*) FROM devices"))
	require.Equal(t, store.InviteCreated, e.state(t, 1))
	e.db.exec(t, "ALTER TABLE invites DROP CONSTRAINT invites_broken_ck")
	_, err = e.s.Enroll(t.Context(), submission)
	require.NoError(t, err)
}

func TestTenFailedProofsRevoke(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	token := e.invite(t, 1).Token
	for i := range store.MaxFailedProofs {
		require.Equal(t, store.InviteCreated, e.state(t, 1), "after %d", i)
		require.NoError(t, e.s.ProofFailed(t.Context(), token))
	}
	require.Equal(t, store.InviteRevoked, e.state(t, 1))
	require.NoError(t, e.s.ProofFailed(t.Context(), token))
	require.Equal(t, store.MaxFailedProofs, query[int](t, e.db, "SELECT failed_proofs FROM invites"))
}

// A challenge works for 60 s, by the database's clock, and those that ended are deleted
// little by little, whosever they are.
func TestChallengesEnd(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	device := e.device(t, 1)
	for i := range 2 * 10 {
		require.NoError(t, e.s.NewChallenge(t.Context(), e.tenant, uuid.New(), store.TokenHash{byte(i)}))
	}
	nonce := store.TokenHash{99}
	require.NoError(t, e.s.NewChallenge(t.Context(), e.tenant, device.ID, nonce))
	require.True(t, query[bool](t, e.db, `SELECT bool_and(expires_at - now() BETWEEN interval '50 s' AND interval '60 s')
		FROM device_challenges`))
	e.db.exec(t, "UPDATE device_challenges SET expires_at = now() - interval '1 s'")
	_, err := e.s.SignIn(t.Context(), e.tenant, device.ID, nonce, store.TokenHash{1}, time.Hour, func([32]byte) bool { return true })
	require.Equal(t, store.ErrUnauthenticated, err)
	for i := range 2 {
		require.NoError(t, e.s.NewChallenge(t.Context(), e.tenant, device.ID, store.TokenHash{byte(200 + i)}))
	}
	require.Equal(t, 2, query[int](t, e.db, "SELECT count(*) FROM device_challenges"))
}

// Whatever a caller does, one invite makes one device and one key belongs to one.
func TestEnrollmentConstraints(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	device := e.device(t, 1)
	conn := e.db.connect(t)
	other := e.invite(t, 2)
	const copied = `INSERT INTO devices (tenant_id, id, kind, state, identity_key, agreement_key, agreement_signature, fingerprint, invite_id)
		SELECT d.tenant_id, gen_random_uuid(), d.kind, d.state, KEY, d.agreement_key, d.agreement_signature, 'x', INVITE
		FROM devices d, invites o WHERE o.state = 'CREATED'`
	for constraint, sql := range map[string]string{
		"devices_invite_uq":              strings.NewReplacer("KEY", "sha256('x')", "INVITE", "d.invite_id").Replace(copied),
		"devices_identity_key_uq":        strings.NewReplacer("KEY", "d.identity_key", "INVITE", "o.id").Replace(copied),
		"devices_keys_ck":                "UPDATE devices SET agreement_key = NULL",
		"devices_identity_key_ck":        "UPDATE devices SET identity_key = 'x'",
		"devices_agreement_key_ck":       "UPDATE devices SET agreement_key = 'x'",
		"devices_agreement_signature_ck": "UPDATE devices SET agreement_signature = 'x'",
		"devices_fingerprint_ck":         "UPDATE devices SET fingerprint = ''",
		"invites_expires_at_ck":          "UPDATE invites SET expires_at = created_at + interval '601 s'",
		"invites_consumed_by_ck":         "UPDATE invites SET consumed_by = NULL",
		"invites_failed_proofs_ck":       "UPDATE invites SET failed_proofs = 11",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.ErrorContains(t, err, `"`+constraint+`"`)
	}
	found, err := e.s.Device(t.Context(), e.tenant, device.ID)
	require.NoError(t, err)
	require.Equal(t, device, found)
	_, err = e.s.Enroll(t.Context(), other)
	require.NoError(t, err)
}
