package storetest

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func (f fixture) newInvite() store.NewInvite {
	return store.NewInvite{Tenant: f.tenant, Kind: store.DeviceAgent, Token: newHash(), TTL: store.MaxInviteTTL}
}

func (f fixture) invite(t *testing.T, invite store.NewInvite) store.Invite {
	t.Helper()
	made, err := f.Store.CreateInvite(t.Context(), invite)
	require.NoError(t, err)
	return made
}

// submission answers an invite with keys that nobody has.
func submission(invite store.NewInvite) store.Enrollment {
	e := store.Enrollment{Token: invite.Token, Kind: invite.Kind, Label: "laptop"}
	e.Keys.Identity, e.Keys.Agreement = newHash(), newHash()
	e.Keys.AgreementSignature = [64]byte{1}
	e.Fingerprint = hex.EncodeToString(e.Keys.Identity[:10])
	return e
}

// enrolled is a new agent device: PENDING, or APPROVED where it is an admin.
func (f fixture) enrolled(t *testing.T, admin bool) store.Device {
	t.Helper()
	return f.enrolledAs(t, store.DeviceAgent, admin)
}

func (f fixture) enrolledAs(t *testing.T, kind store.DeviceKind, admin bool) store.Device {
	t.Helper()
	invite := f.newInvite()
	invite.Kind, invite.Admin = kind, admin
	f.invite(t, invite)
	device, err := f.Store.Enroll(t.Context(), submission(invite))
	require.NoError(t, err)
	return device
}

// refuses submits and expects the one refusal, without a word of its cause (FAULTS BL-H04).
func (f fixture) refuses(t *testing.T, e store.Enrollment, why string) {
	t.Helper()
	device, err := f.Store.Enroll(t.Context(), e)
	require.Equal(t, store.ErrUnauthenticated, err, why)
	require.Zero(t, device, why)
}

// devices are all of the tenant's, in any of their states.
func (f fixture) devices(t *testing.T) []store.Device {
	t.Helper()
	devices, more, err := f.Store.DevicePage(t.Context(), f.tenant, "", uuid.Nil, store.MaxPage)
	require.NoError(t, err)
	require.False(t, more)
	return devices
}

func testInvites(t *testing.T, s Subject) {
	t.Run("creating", func(t *testing.T) { testCreateInvite(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("at most so many", func(t *testing.T) { testPendingInvites(t, newFixture(t, s)) })
	t.Run("revoking", func(t *testing.T) { testRevokeInvite(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("failed proofs", func(t *testing.T) { testFailedProofs(t, newFixture(t, s)) })
	t.Run("an admin", func(t *testing.T) { testHasAdmin(t, newFixture(t, s), newFixture(t, s)) })
}

// testCreateInvite: FAULTS BL-H02 (c), a lifetime that is none.
func testCreateInvite(t *testing.T, f, other fixture) {
	made := f.newInvite()
	made.Kind, made.Admin = store.DeviceHuman, true
	before := time.Now()
	got := f.invite(t, made)
	require.NotEqual(t, uuid.Nil, got.ID)
	require.WithinDuration(t, before.Add(store.MaxInviteTTL), got.ExpiresAt, time.Minute)
	require.Equal(t, store.Invite{
		ID: got.ID, Tenant: f.tenant, Kind: store.DeviceHuman, Admin: true, State: store.InviteCreated, ExpiresAt: got.ExpiresAt,
	}, got)

	admin, suspended, foreign := f.active(t, true), f.active(t, true), other.active(t, true)
	_, err := f.Store.SuspendDevice(t.Context(), f.tenant, suspended.ID, uuid.Nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*store.NewInvite)
		want   error
	}{
		"by an admin":           {func(i *store.NewInvite) { i.CreatedBy = admin.ID }, nil},
		"no kind":               {func(i *store.NewInvite) { i.Kind = "" }, store.ErrInvalid},
		"unknown kind":          {func(i *store.NewInvite) { i.Kind = "Agent" }, store.ErrInvalid},
		"no ttl":                {func(i *store.NewInvite) { i.TTL = 0 }, store.ErrInvalid},
		"negative ttl":          {func(i *store.NewInvite) { i.TTL = -time.Minute }, store.ErrInvalid},
		"eleven minutes":        {func(i *store.NewInvite) { i.TTL = 11 * time.Minute }, store.ErrInvalid},
		"ten years":             {func(i *store.NewInvite) { i.TTL = 10 * 365 * 24 * time.Hour }, store.ErrInvalid},
		"a nanosecond too long": {func(i *store.NewInvite) { i.TTL = store.MaxInviteTTL + 1 }, store.ErrInvalid},
		"unknown tenant":        {func(i *store.NewInvite) { i.Tenant = newID(t) }, store.ErrNotFound},
		"by nobody known":       {func(i *store.NewInvite) { i.CreatedBy = newID(t) }, store.ErrForbidden},
		"by no admin":           {func(i *store.NewInvite) { i.CreatedBy = f.active(t, false).ID }, store.ErrForbidden},
		"by an approved admin":  {func(i *store.NewInvite) { i.CreatedBy = f.enrolled(t, true).ID }, store.ErrForbidden},
		"by a suspended admin":  {func(i *store.NewInvite) { i.CreatedBy = suspended.ID }, store.ErrForbidden},
		"by another's admin":    {func(i *store.NewInvite) { i.CreatedBy = foreign.ID }, store.ErrForbidden},
		"a token twice":         {func(i *store.NewInvite) { i.Token = made.Token }, store.ErrConflict},
	} {
		invite := f.newInvite()
		c.change(&invite)
		_, err := f.Store.CreateInvite(t.Context(), invite)
		if c.want == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
	}
}

func testPendingInvites(t *testing.T, f fixture) {
	brief := f.newInvite()
	brief.TTL = time.Millisecond
	f.invite(t, brief)
	const extra = 5
	results := race(store.MaxPendingInvite+extra, func(int) error {
		_, err := f.Store.CreateInvite(t.Context(), f.newInvite())
		return err
	})
	// The brief one may have been usable still.
	require.InDelta(t, store.MaxPendingInvite, count(results, nil), 1)
	require.Equal(t, len(results), count(results, nil)+count(results, store.ErrConflict))
}

func testRevokeInvite(t *testing.T, f, other fixture) {
	revoke := func(tenant, invite uuid.UUID) error { return f.Store.RevokeInvite(t.Context(), tenant, invite) }
	pending, consumed, brief := f.newInvite(), f.newInvite(), f.newInvite()
	brief.TTL = time.Millisecond
	made, used, late := f.invite(t, pending), f.invite(t, consumed), f.invite(t, brief)
	_, err := f.Store.Enroll(t.Context(), submission(consumed))
	require.NoError(t, err)

	require.ErrorIs(t, revoke(f.tenant, newID(t)), store.ErrNotFound)
	require.ErrorIs(t, revoke(other.tenant, made.ID), store.ErrNotFound)
	require.ErrorIs(t, revoke(newID(t), made.ID), store.ErrNotFound)
	require.ErrorIs(t, revoke(f.tenant, used.ID), store.ErrConflict)
	require.NoError(t, revoke(f.tenant, made.ID))
	require.NoError(t, revoke(f.tenant, made.ID), "revoked before")
	require.NoError(t, revoke(f.tenant, late.ID), "expired, or revoked just in time")
	f.refuses(t, submission(pending), "revoked")
	f.refuses(t, submission(brief), "revoked or expired")
}

// testFailedProofs: FAULTS BL-H03 (a), and ten of them end the invite.
func testFailedProofs(t *testing.T, f fixture) {
	fail := func(token store.TokenHash) { require.NoError(t, f.Store.ProofFailed(t.Context(), token)) }
	fail(newHash())

	usable, worn, consumed := f.newInvite(), f.newInvite(), f.newInvite()
	used := f.invite(t, consumed)
	f.invite(t, usable)
	f.invite(t, worn)
	for range store.MaxFailedProofs - 1 {
		fail(usable.Token)
	}
	_, err := f.Store.Enroll(t.Context(), submission(usable))
	require.NoError(t, err, "a good proof after bad ones")

	require.NoError(t, errors.Join(race(store.MaxFailedProofs, func(int) error {
		return f.Store.ProofFailed(t.Context(), worn.Token)
	})...))
	f.refuses(t, submission(worn), "revoked by failed proofs")
	fail(worn.Token)

	_, err = f.Store.Enroll(t.Context(), submission(consumed))
	require.NoError(t, err)
	for range store.MaxFailedProofs {
		fail(consumed.Token)
	}
	require.ErrorIs(t, f.Store.RevokeInvite(t.Context(), f.tenant, used.ID), store.ErrConflict, "it stays consumed")
}

func testHasAdmin(t *testing.T, f, other fixture) {
	has := func(want bool, why string) {
		t.Helper()
		got, err := f.Store.HasAdmin(t.Context(), f.tenant)
		require.NoError(t, err)
		require.Equal(t, want, got, why)
	}
	has(false, "nobody is there")
	f.active(t, false)
	other.active(t, true)
	has(false, "no admin of this tenant is")
	admin := f.enrolled(t, true)
	has(true, "approved")
	_, err := f.Store.ActivateDevice(t.Context(), f.tenant, admin.ID)
	require.NoError(t, err)
	has(true, "active")
	_, err = f.Store.SuspendDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	has(true, "suspended")
	_, err = f.Store.ReinstateDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	_, err = f.Store.RevokeDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	has(false, "revoked")
}

func testEnrolling(t *testing.T, s Subject) {
	t.Run("makes a device", func(t *testing.T) { testEnroll(t, newFixture(t, s)) })
	t.Run("refusals", func(t *testing.T) { testEnrollRefusals(t, newFixture(t, s)) })
	t.Run("by an invite of who may not invite any more", func(t *testing.T) { testInviterGone(t, newFixture(t, s)) })
	t.Run("one invite, many submissions", func(t *testing.T) { testInviteOnce(t, newFixture(t, s)) })
	t.Run("one key, many invites", func(t *testing.T) { testKeyOnce(t, newFixture(t, s)) })
	t.Run("revoking meanwhile", func(t *testing.T) { testRevokeAgainstEnroll(t, newFixture(t, s)) })
	t.Run("the same in two tenants", func(t *testing.T) { testSameKeysApart(t, newFixture(t, s), newFixture(t, s)) })
}

func testEnroll(t *testing.T, f fixture) {
	for _, admin := range []bool{false, true} {
		for _, kind := range []store.DeviceKind{store.DeviceAgent, store.DeviceHuman} {
			invite := f.newInvite()
			invite.Kind, invite.Admin = kind, admin
			f.invite(t, invite)
			e := submission(invite)
			e.Label = strings.Repeat("ü", store.MaxDeviceLabel)
			got, err := f.Store.Enroll(t.Context(), e)
			require.NoError(t, err)
			want := store.Device{
				ID: got.ID, Tenant: f.tenant, Kind: kind, Label: e.Label, State: store.DevicePending,
				Keys: &e.Keys, Fingerprint: e.Fingerprint, CreatedAt: got.CreatedAt,
			}
			if admin {
				want.Admin, want.State, want.ApprovedAt = true, store.DeviceApproved, got.ApprovedAt
				require.NotNil(t, got.ApprovedAt)
			}
			require.NotEqual(t, uuid.Nil, got.ID)
			require.WithinDuration(t, time.Now(), got.CreatedAt, time.Minute)
			require.Equal(t, want, got)
			found, err := f.Store.Device(t.Context(), f.tenant, got.ID)
			require.NoError(t, err)
			require.Equal(t, got, found)
		}
	}
}

// testEnrollRefusals: FAULTS BL-H03 (b) and (d), BL-H04.
func testEnrollRefusals(t *testing.T, f fixture) {
	known := f.enrolled(t, false)
	invite := f.newInvite()
	f.invite(t, invite)
	for name, change := range map[string]func(*store.Enrollment){
		"unknown token":    func(e *store.Enrollment) { e.Token = newHash() },
		"no token":         func(e *store.Enrollment) { e.Token = store.TokenHash{} },
		"another kind":     func(e *store.Enrollment) { e.Kind = store.DeviceHuman },
		"no kind":          func(e *store.Enrollment) { e.Kind = "" },
		"an enrolled key":  func(e *store.Enrollment) { e.Keys.Identity = known.Keys.Identity },
		"too long a label": func(e *store.Enrollment) { e.Label = strings.Repeat("x", store.MaxDeviceLabel+1) },
		"NUL in the label": func(e *store.Enrollment) { e.Label = "a\x00b" },
		"a broken label":   func(e *store.Enrollment) { e.Label = "\xff" },
	} {
		e := submission(invite)
		change(&e)
		f.refuses(t, e, name)
	}
	nameless := submission(invite)
	nameless.Fingerprint = ""
	_, err := f.Store.Enroll(t.Context(), nameless)
	require.ErrorIs(t, err, store.ErrInvalid)
	require.Len(t, f.devices(t), 1, "a refusal makes no device")

	good := submission(invite)
	_, err = f.Store.Enroll(t.Context(), good)
	require.NoError(t, err, "and leaves the invite as it was")
	f.refuses(t, good, "the same submission again")
	f.refuses(t, submission(invite), "consumed")
	require.Len(t, f.devices(t), 2)

	brief := f.newInvite()
	brief.TTL = time.Millisecond
	f.invite(t, brief)
	expired := submission(brief)
	require.Eventually(t, func() bool { // one that came in time would have enrolled
		_, err := f.Store.Enroll(t.Context(), expired)
		return errors.Is(err, store.ErrUnauthenticated)
	}, patience, time.Millisecond)
}

// testInviterGone: a revoked admin does not come back by an invite it made before.
func testInviterGone(t *testing.T, f fixture) {
	admin := f.active(t, true)
	invite := f.newInvite()
	invite.CreatedBy, invite.Admin = admin.ID, true
	f.invite(t, invite)
	usual := f.newInvite()
	f.invite(t, usual)
	_, err := f.Store.SuspendDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	f.refuses(t, submission(invite), "its maker is suspended")
	_, err = f.Store.ReinstateDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	_, err = f.Store.Enroll(t.Context(), submission(invite))
	require.NoError(t, err, "its maker is back")

	for range 10 {
		admin := f.active(t, true)
		invite := f.newInvite()
		invite.CreatedBy = admin.ID
		made := f.invite(t, invite)
		results := race(3, func(i int) error {
			if i > 0 {
				_, err := f.Store.Enroll(t.Context(), submission(invite))
				return err
			}
			_, err := f.Store.RevokeDevice(t.Context(), f.tenant, admin.ID, uuid.Nil)
			return err
		})
		require.NoError(t, results[0])
		require.LessOrEqual(t, count(results[1:], nil), 1)
		require.Equal(t, 2, count(results[1:], nil)+count(results[1:], store.ErrUnauthenticated))
		f.refuses(t, submission(invite), "its maker is revoked")
		if count(results[1:], nil) == 0 {
			require.NoError(t, f.Store.RevokeInvite(t.Context(), f.tenant, made.ID), "it was revoked")
		}
	}
	_, err = f.Store.Enroll(t.Context(), submission(usual))
	require.NoError(t, err, "the invites of others are as they were")
}

// testInviteOnce: FAULTS BL-H01.
func testInviteOnce(t *testing.T, f fixture) {
	const rounds, submissions = 10, 50
	for round := range rounds {
		invite := f.newInvite()
		f.invite(t, invite)
		results := race(submissions, func(int) error {
			_, err := f.Store.Enroll(t.Context(), submission(invite))
			return err
		})
		require.Equal(t, 1, count(results, nil))
		for _, err := range results {
			if err != nil {
				require.Equal(t, store.ErrUnauthenticated, err)
			}
		}
		require.Len(t, f.devices(t), round+1)
	}
}

func testKeyOnce(t *testing.T, f fixture) {
	const invites = 8
	made := make([]store.NewInvite, invites)
	for i := range made {
		made[i] = f.newInvite()
		f.invite(t, made[i])
	}
	keys := submission(made[0])
	results := race(invites, func(i int) error {
		e := keys
		e.Token = made[i].Token
		_, err := f.Store.Enroll(t.Context(), e)
		return err
	})
	require.Equal(t, 1, count(results, nil))
	require.Equal(t, invites-1, count(results, store.ErrUnauthenticated))
	for i, err := range results {
		if err != nil {
			_, err := f.Store.Enroll(t.Context(), submission(made[i]))
			require.NoError(t, err, "the other invites are as they were")
		}
	}
}

// testRevokeAgainstEnroll: FAULTS BL-H02 (a).
func testRevokeAgainstEnroll(t *testing.T, f fixture) {
	const rounds, submissions = 40, 4
	for range rounds {
		before := len(f.devices(t))
		invite := f.newInvite()
		made := f.invite(t, invite)
		results := race(submissions+1, func(i int) error {
			if i > 0 {
				_, err := f.Store.Enroll(t.Context(), submission(invite))
				return err
			}
			revoked := f.Store.RevokeInvite(t.Context(), f.tenant, made.ID)
			if _, err := f.Store.Enroll(t.Context(), submission(invite)); !errors.Is(err, store.ErrUnauthenticated) {
				t.Errorf("enrolled after the revocation returned: %v", err)
			}
			return revoked
		})
		enrolled := count(results[1:], nil)
		require.Equal(t, submissions, enrolled+count(results[1:], store.ErrUnauthenticated))
		if results[0] == nil {
			require.Zero(t, enrolled)
		} else {
			require.ErrorIs(t, results[0], store.ErrConflict)
			require.Equal(t, 1, enrolled)
		}
		require.Len(t, f.devices(t), before+enrolled)
	}
}

// testSameKeysApart: FAULTS BL-G06, what one tenant has is nothing to another.
func testSameKeysApart(t *testing.T, f, other fixture) {
	mine, theirs := f.newInvite(), other.newInvite()
	f.invite(t, mine)
	other.invite(t, theirs)
	e := submission(mine)
	devices := make([]store.Device, 2)
	results := race(2, func(i int) (err error) {
		own := e
		own.Token = []store.TokenHash{mine.Token, theirs.Token}[i]
		devices[i], err = f.Store.Enroll(t.Context(), own)
		return err
	})
	require.NoError(t, errors.Join(results...))
	require.Equal(t, f.tenant, devices[0].Tenant)
	require.Equal(t, other.tenant, devices[1].Tenant)
	require.Equal(t, devices[0].Keys, devices[1].Keys)
	require.Equal(t, []store.Device{devices[0]}, f.devices(t))
	require.Equal(t, []store.Device{devices[1]}, other.devices(t))
}
