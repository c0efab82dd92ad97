package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

const (
	hour = time.Hour
	// soon is long enough to authenticate once, and short enough to wait for.
	soon = 300 * time.Millisecond
	// patience bounds every wait for something that will happen.
	patience = 20 * time.Second
)

func testMinting(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p := f.member(t)

	t.Run("for a current participant", func(t *testing.T) {
		hash, before := newHash(), time.Now()
		c, err := s.Store.MintCredential(t.Context(), f.tenant, p.ID, store.CredentialDevelopment, hash, 90*time.Minute)
		require.NoError(t, err)
		require.NotEqual(t, uuid.Nil, c.ID)
		require.WithinDuration(t, before.Add(90*time.Minute), c.ExpiresAt, time.Minute)
		want := c
		want.Tenant, want.Room, want.Participant, want.Kind = f.tenant, p.Room, p.ID, store.CredentialDevelopment
		require.Equal(t, want, c)
		identity, err := s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err)
		require.Equal(t, store.CredentialDevelopment, identity.Kind)
		require.Equal(t, c.ExpiresAt, identity.ExpiresAt)
	})

	t.Run("refusals", func(t *testing.T) {
		gone, suspended := f.add(t, p.Room, store.RoleAgent), f.add(t, p.Room, store.RoleAgent)
		f.remove(t, gone)
		f.SetDeviceState(t, f.tenant, suspended.Device, store.DeviceSuspended)
		used := newHash()
		for _, c := range []struct {
			name        string
			participant uuid.UUID
			kind        store.CredentialKind
			hash        store.TokenHash
			ttl         time.Duration
			want        error
		}{
			{"first use of a token", p.ID, store.CredentialSession, used, hour, nil},
			{"a token twice", p.ID, store.CredentialSession, used, hour, store.ErrConflict},
			{"unknown participant", newID(t), store.CredentialSession, newHash(), hour, store.ErrNotFound},
			{"removed participant", gone.ID, store.CredentialSession, newHash(), hour, store.ErrNotFound},
			{"suspended device", suspended.ID, store.CredentialSession, newHash(), hour, store.ErrConflict},
			{"no kind", p.ID, "", newHash(), hour, store.ErrInvalid},
			{"unknown kind", p.ID, "root", newHash(), hour, store.ErrInvalid},
			{"no ttl", p.ID, store.CredentialSession, newHash(), 0, store.ErrInvalid},
			{"negative ttl", p.ID, store.CredentialSession, newHash(), -hour, store.ErrInvalid},
		} {
			_, err := s.Store.MintCredential(t.Context(), f.tenant, c.participant, c.kind, c.hash, c.ttl)
			if c.want == nil {
				require.NoError(t, err, c.name)
				continue
			}
			require.ErrorIs(t, err, c.want, c.name)
		}
	})
}

func testAuthenticate(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p := f.member(t)
	refused := func(t *testing.T, hash store.TokenHash) {
		t.Helper()
		identity, err := s.Edge.Authenticate(t.Context(), hash)
		require.ErrorIs(t, err, store.ErrUnauthenticated)
		require.Zero(t, identity)
		require.Equal(t, store.ErrUnauthenticated.Error(), err.Error(), "the same words whatever the cause")
	}

	t.Run("what a credential proves", func(t *testing.T) {
		c, hash := f.mint(t, p, hour)
		identity, err := s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err)
		require.Equal(t, store.Identity{
			Tenant: f.tenant, Room: p.Room, Participant: p.ID, Device: p.Device, Credential: c.ID,
			Role: p.Role, Kind: store.CredentialSession, ExpiresAt: c.ExpiresAt,
		}, identity)
		require.NoError(t, s.Store.SetFrozen(t.Context(), f.tenant, true))
		identity, err = s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err)
		require.True(t, identity.Frozen)
		require.NoError(t, s.Store.SetFrozen(t.Context(), f.tenant, false))
	})

	t.Run("unknown", func(t *testing.T) {
		refused(t, newHash())
		refused(t, store.TokenHash{})
	})

	t.Run("expired, by the database's clock", func(t *testing.T) {
		c, hash := f.mint(t, p, soon)
		_, err := s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := s.Edge.Authenticate(t.Context(), hash)
			return err != nil
		}, patience, soon/10)
		refused(t, hash)
		require.False(t, time.Now().Before(c.ExpiresAt.Add(-time.Second)), "not before its time")
		valid, err := s.Edge.ValidCredentials(t.Context(), f.tenant, []uuid.UUID{c.ID})
		require.NoError(t, err)
		require.Empty(t, valid)
	})

	t.Run("revoked", func(t *testing.T) {
		c, hash := f.mint(t, p, hour)
		_, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, uuid.Nil)
		require.NoError(t, err)
		refused(t, hash)
	})

	t.Run("of a removed participant", func(t *testing.T) {
		gone := f.add(t, p.Room, store.RoleAgent)
		_, hash := f.mint(t, gone, hour)
		f.remove(t, gone)
		refused(t, hash)
	})

	t.Run("of a device that is not active", func(t *testing.T) {
		member := f.add(t, p.Room, store.RoleAgent)
		c, hash := f.mint(t, member, hour)
		f.SetDeviceState(t, f.tenant, member.Device, store.DeviceSuspended)
		refused(t, hash)
		valid, err := s.Edge.ValidCredentials(t.Context(), f.tenant, []uuid.UUID{c.ID})
		require.NoError(t, err)
		require.Empty(t, valid)
		f.SetDeviceState(t, f.tenant, member.Device, store.DeviceActive)
		_, err = s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err, "reinstated")
		f.SetDeviceState(t, f.tenant, member.Device, store.DeviceRevoked)
		refused(t, hash)
	})

	t.Run("the valid ones of many", func(t *testing.T) {
		good, _ := f.mint(t, p, hour)
		bad, _ := f.mint(t, p, hour)
		_, err := s.Store.RevokeCredential(t.Context(), f.tenant, bad.ID, uuid.Nil)
		require.NoError(t, err)
		valid, err := s.Edge.ValidCredentials(t.Context(), f.tenant, []uuid.UUID{bad.ID, good.ID, newID(t)})
		require.NoError(t, err)
		require.Equal(t, []uuid.UUID{good.ID}, valid)
		valid, err = s.Edge.ValidCredentials(t.Context(), f.tenant, nil)
		require.NoError(t, err)
		require.Empty(t, valid)
	})
}

func testRevoking(t *testing.T, s Subject) {
	f := newFixture(t, s)

	t.Run("one", func(t *testing.T) {
		p := f.member(t)
		c, _ := f.mint(t, p, hour)
		_, other := f.mint(t, p, hour)
		revoked, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, uuid.Nil)
		require.NoError(t, err)
		require.Equal(t, []store.Credential{c}, revoked)
		revoked, err = s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, uuid.Nil)
		require.NoError(t, err)
		require.Empty(t, revoked, "revoked before")
		_, err = s.Store.RevokeCredential(t.Context(), f.tenant, newID(t), uuid.Nil)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Edge.Authenticate(t.Context(), other)
		require.NoError(t, err, "the others live on")
	})

	t.Run("by a device", func(t *testing.T) {
		p, q := f.member(t), f.member(t)
		c, token := f.mint(t, p, hour)
		_, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, q.Device)
		require.ErrorIs(t, err, store.ErrNotFound, "somebody else's")
		_, err = s.Edge.Authenticate(t.Context(), token)
		require.NoError(t, err)
		_, err = s.Store.RevokeCredential(t.Context(), f.tenant, newID(t), q.Device)
		require.ErrorIs(t, err, store.ErrNotFound)
		revoked, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, p.Device)
		require.NoError(t, err)
		require.Equal(t, []store.Credential{c}, revoked)
		_, err = s.Edge.Authenticate(t.Context(), token)
		require.ErrorIs(t, err, store.ErrUnauthenticated)
		revoked, err = s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, p.Device)
		require.NoError(t, err)
		require.Empty(t, revoked, "revoked before")
	})

	t.Run("an expired one", func(t *testing.T) {
		p := f.member(t)
		c, hash := f.mint(t, p, time.Millisecond)
		require.Eventually(t, func() bool {
			_, err := s.Edge.Authenticate(t.Context(), hash)
			return err != nil
		}, patience, time.Millisecond)
		revoked, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, uuid.Nil)
		require.NoError(t, err)
		require.Empty(t, revoked)
	})

	t.Run("all of a participant", func(t *testing.T) {
		p := f.member(t)
		q := f.add(t, p.Room, store.RoleOwner)
		a, _ := f.mint(t, p, hour)
		b, _ := f.mint(t, p, hour)
		_, other := f.mint(t, q, hour)
		revoked, err := s.Store.RevokeParticipantCredentials(t.Context(), f.tenant, p.ID)
		require.NoError(t, err)
		require.ElementsMatch(t, []store.Credential{a, b}, revoked)
		revoked, err = s.Store.RevokeParticipantCredentials(t.Context(), f.tenant, p.ID)
		require.NoError(t, err)
		require.Empty(t, revoked)
		_, err = s.Store.RevokeParticipantCredentials(t.Context(), f.tenant, newID(t))
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Edge.Authenticate(t.Context(), other)
		require.NoError(t, err)
	})

	t.Run("while others authenticate, none succeeds after it", func(t *testing.T) {
		p := f.member(t)
		for range 10 {
			c, hash := f.mint(t, p, hour)
			stop, late := make(chan struct{}), make(chan error, 4)
			for range cap(late) {
				go func() {
					<-stop // closed after the revocation was answered
					_, err := s.Edge.Authenticate(t.Context(), hash)
					late <- err
				}()
			}
			early := race(4, func(i int) error {
				if i == 0 {
					_, err := s.Store.RevokeCredential(t.Context(), f.tenant, c.ID, uuid.Nil)
					close(stop)
					return err
				}
				_, err := s.Edge.Authenticate(t.Context(), hash)
				return err
			})
			require.Equal(t, len(early), count(early, nil)+count(early, store.ErrUnauthenticated))
			for range cap(late) {
				require.ErrorIs(t, <-late, store.ErrUnauthenticated)
			}
		}
	})

	t.Run("a removal leaves no credential that is minted meanwhile", func(t *testing.T) {
		for range 10 {
			p := f.member(t)
			hashes := make([]store.TokenHash, 4)
			race(len(hashes)+1, func(i int) error {
				if i == len(hashes) {
					_, err := s.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, p.ID, uuid.Nil)
					return err
				}
				hashes[i] = newHash()
				_, err := s.Store.MintCredential(t.Context(), f.tenant, p.ID, store.CredentialSession, hashes[i], hour)
				return err
			})
			for _, hash := range hashes {
				_, err := s.Edge.Authenticate(t.Context(), hash)
				require.ErrorIs(t, err, store.ErrUnauthenticated)
			}
		}
	})
}
