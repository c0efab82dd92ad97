package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// anyone is a signature check that is content with every key.
func anyone([32]byte) bool { return true }

func (f fixture) challenge(t *testing.T, device uuid.UUID) store.TokenHash {
	t.Helper()
	nonce := newHash()
	require.NoError(t, f.Store.NewChallenge(t.Context(), f.tenant, device, nonce))
	return nonce
}

// signIn returns a new access token of the device.
func (f fixture) signIn(t *testing.T, device store.Device) store.TokenHash {
	t.Helper()
	token := newHash()
	_, err := f.Store.SignIn(t.Context(), f.tenant, device.ID, f.challenge(t, device.ID), token, hour, anyone)
	require.NoError(t, err)
	return token
}

// refusesToken expects the one refusal, whatever its cause.
func (f fixture) refusesToken(t *testing.T, token store.TokenHash) {
	t.Helper()
	device, err := f.Store.AuthenticateDevice(t.Context(), token)
	require.Equal(t, store.ErrUnauthenticated, err)
	require.Zero(t, device)
}

func testSigningIn(t *testing.T, s Subject) {
	t.Run("once per nonce", func(t *testing.T) { testSignIn(t, newFixture(t, s)) })
	t.Run("refusals", func(t *testing.T) { testSignInRefusals(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("a nonce in many hands", func(t *testing.T) { testNonceRace(t, newFixture(t, s)) })
	t.Run("at most so many challenges", func(t *testing.T) { testChallengeBound(t, newFixture(t, s)) })
	t.Run("at most so many tokens", func(t *testing.T) { testTokenBound(t, newFixture(t, s)) })
	t.Run("tokens", func(t *testing.T) { testAccessTokens(t, newFixture(t, s)) })
	t.Run("in the device's tenant", func(t *testing.T) { testSignInFindsTheTenant(t, s) })
}

func testSignIn(t *testing.T, f fixture) {
	for _, device := range []store.Device{f.in(t, store.DeviceApproved), f.active(t, false)} {
		nonce, token, before := f.challenge(t, device.ID), newHash(), time.Now()
		var asked [32]byte
		expires, err := f.Store.SignIn(t.Context(), f.tenant, device.ID, nonce, token, hour, func(identity [32]byte) bool {
			asked = identity
			return true
		})
		require.NoError(t, err)
		require.Equal(t, device.Keys.Identity, asked)
		require.WithinDuration(t, before.Add(hour), expires, time.Minute)
		got, err := f.Store.AuthenticateDevice(t.Context(), token)
		require.NoError(t, err)
		require.Equal(t, device, got)

		_, err = f.Store.SignIn(t.Context(), f.tenant, device.ID, nonce, newHash(), hour, anyone)
		require.Equal(t, store.ErrUnauthenticated, err, "the nonce again")
		_, err = f.Store.SignIn(t.Context(), f.tenant, device.ID, f.challenge(t, device.ID), token, hour, anyone)
		require.ErrorIs(t, err, store.ErrConflict, "the token again")
	}
}

func testSignInRefusals(t *testing.T, f, other fixture) {
	device, another := f.active(t, false), f.active(t, false)
	refuses := func(why string, tenant, device uuid.UUID, nonce store.TokenHash, verify func([32]byte) bool) {
		t.Helper()
		token := newHash()
		expires, err := f.Store.SignIn(t.Context(), tenant, device, nonce, token, hour, verify)
		require.Equal(t, store.ErrUnauthenticated, err, why)
		require.Zero(t, expires, why)
		f.refusesToken(t, token)
	}
	nonce := f.challenge(t, device.ID)
	refuses("unknown nonce", f.tenant, device.ID, newHash(), anyone)
	refuses("another's nonce", f.tenant, another.ID, nonce, anyone)
	refuses("a device of another tenant", f.tenant, other.active(t, false).ID, nonce, anyone)
	refuses("a wrong signature", f.tenant, device.ID, nonce, func([32]byte) bool { return false })
	refuses("the nonce was used up with it", f.tenant, device.ID, nonce, anyone)

	unknown := newID(t)
	refuses("no such device, which got a challenge", f.tenant, unknown, f.challenge(t, unknown), anyone)
	keyless := f.NewDevice(t, f.tenant, store.DeviceActive)
	refuses("no keys", f.tenant, keyless, f.challenge(t, keyless), anyone)
	for _, state := range []store.DeviceState{store.DevicePending, store.DeviceSuspended, store.DeviceRevoked} {
		device := f.in(t, state)
		refuses(string(state), f.tenant, device.ID, f.challenge(t, device.ID), anyone)
	}

	for _, ttl := range []time.Duration{0, -hour} {
		_, err := f.Store.SignIn(t.Context(), f.tenant, device.ID, f.challenge(t, device.ID), newHash(), ttl, anyone)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	require.ErrorIs(t, f.Store.NewChallenge(t.Context(), newID(t), newID(t), newHash()), store.ErrNotFound, "no tenant")
	nonce = f.challenge(t, device.ID)
	require.ErrorIs(t, f.Store.NewChallenge(t.Context(), f.tenant, device.ID, nonce), store.ErrConflict)
}

func testNonceRace(t *testing.T, f fixture) {
	device := f.active(t, false)
	for range 10 {
		nonce := f.challenge(t, device.ID)
		results := race(16, func(int) error {
			_, err := f.Store.SignIn(t.Context(), f.tenant, device.ID, nonce, newHash(), hour, anyone)
			return err
		})
		require.Equal(t, 1, count(results, nil))
		require.Equal(t, 15, count(results, store.ErrUnauthenticated))
	}
}

func testChallengeBound(t *testing.T, f fixture) {
	device := f.active(t, false)
	usable := func(nonces []store.TokenHash) (n int) {
		for _, nonce := range nonces {
			_, err := f.Store.SignIn(t.Context(), f.tenant, device.ID, nonce, newHash(), hour, anyone)
			if err == nil {
				n++
				continue
			}
			require.Equal(t, store.ErrUnauthenticated, err)
		}
		return n
	}
	apart := f.active(t, false)
	untouched := f.challenge(t, apart.ID)
	nonces := make([]store.TokenHash, 3*store.MaxChallenges)
	for i := range nonces {
		nonces[i] = f.challenge(t, device.ID)
	}
	require.Equal(t, store.MaxChallenges, usable(nonces[len(nonces)-store.MaxChallenges:]), "the newest work")
	require.Zero(t, usable(nonces), "the others ended")

	require.NoError(t, errors.Join(race(len(nonces), func(i int) error {
		nonces[i] = newHash()
		return f.Store.NewChallenge(t.Context(), f.tenant, device.ID, nonces[i])
	})...))
	require.Equal(t, store.MaxChallenges, usable(nonces), "also when they come at once")
	_, err := f.Store.SignIn(t.Context(), f.tenant, apart.ID, untouched, newHash(), hour, anyone)
	require.NoError(t, err, "each device has its own")
}

func testTokenBound(t *testing.T, f fixture) {
	device := f.active(t, false)
	tokens := make([]store.TokenHash, store.MaxTokens+2)
	for i := range tokens {
		tokens[i] = f.signIn(t, device)
	}
	for _, ended := range tokens[:2] {
		f.refusesToken(t, ended)
	}
	for _, token := range tokens[2:] {
		_, err := f.Store.AuthenticateDevice(t.Context(), token)
		require.NoError(t, err)
	}
}

func testAccessTokens(t *testing.T, f fixture) {
	f.refusesToken(t, newHash())
	f.refusesToken(t, store.TokenHash{})
	device := f.active(t, false)
	p := f.join(t, f.newRoom(t, store.RoomGroup).ID, device.ID)
	_, credential := f.mint(t, p, hour)
	f.refusesToken(t, credential)
	token := f.signIn(t, device)
	_, err := f.Edge.Authenticate(t.Context(), token)
	require.ErrorIs(t, err, store.ErrUnauthenticated, "an access token is no credential")

	brief := newHash()
	_, err = f.Store.SignIn(t.Context(), f.tenant, device.ID, f.challenge(t, device.ID), brief, soon, anyone)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := f.Store.AuthenticateDevice(t.Context(), brief)
		return errors.Is(err, store.ErrUnauthenticated)
	}, patience, soon/10)
	_, err = f.Store.AuthenticateDevice(t.Context(), token)
	require.NoError(t, err)
}
