package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func testKeyPackages(t *testing.T, s Subject) {
	t.Run("adding", func(t *testing.T) { testAddingKeyPackages(t, newFixture(t, s)) })
	t.Run("refused packages", func(t *testing.T) { testRefusedKeyPackages(t, newFixture(t, s)) })
	t.Run("whose packages", func(t *testing.T) { testKeyPackageDevices(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("a revoked device", func(t *testing.T) { testKeyPackagesOfRevoked(t, newFixture(t, s)) })
	t.Run("claiming", func(t *testing.T) { testClaiming(t, newFixture(t, s)) })
	t.Run("last resort", func(t *testing.T) { testLastResort(t, newFixture(t, s)) })
	t.Run("refused claims", func(t *testing.T) { testRefusedClaims(t, newFixture(t, s)) })
	t.Run("running low", func(t *testing.T) { testRunningLow(t, newFixture(t, s)) })
	t.Run("two rooms at once", func(t *testing.T) { testClaimRaces(t, newFixture(t, s)) })
	t.Run("many devices in any order", func(t *testing.T) { testCrossedClaims(t, newFixture(t, s)) })
	t.Run("uploads at once", func(t *testing.T) { testUploadRaces(t, newFixture(t, s)) })
}

// newKeyPackages are n new ones, the first of which expire first.
func newKeyPackages(n int) []store.KeyPackage {
	packages := make([]store.KeyPackage, n)
	for i := range packages {
		content := random(100)
		packages[i] = store.KeyPackage{
			Ref: blake2b.Sum256(content), Bytes: content,
			ExpiresAt: time.Now().Add(time.Hour + time.Duration(i)*time.Second).UTC().Truncate(time.Microsecond),
		}
	}
	return packages
}

func lastResort() store.KeyPackage {
	p := newKeyPackages(1)[0]
	p.LastResort = true
	return p
}

func (f fixture) addPackages(t *testing.T, device uuid.UUID, packages ...store.KeyPackage) store.KeyPackageStock {
	t.Helper()
	stock, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device, packages)
	require.NoError(t, err)
	require.Equal(t, stock, f.packageStock(t, device))
	return stock
}

func (f fixture) packageStock(t *testing.T, device uuid.UUID) store.KeyPackageStock {
	t.Helper()
	stock, err := f.Store.KeyPackageStock(t.Context(), f.tenant, device)
	require.NoError(t, err)
	return stock
}

func (r groupRoom) claim(t *testing.T, by store.Participant, of ...store.Participant) []store.ClaimedKeyPackage {
	t.Helper()
	claimed, err := r.Store.ClaimKeyPackages(t.Context(), r.tenant, r.id, by.Device, ids(of...))
	require.NoError(t, err)
	require.Len(t, claimed, len(of))
	for i, p := range of {
		require.Equal(t, p.ID, claimed[i].Participant)
		require.Equal(t, p.Device, claimed[i].Device)
	}
	return claimed
}

func testAddingKeyPackages(t *testing.T, f fixture) {
	device := f.active(t, false).ID
	require.Zero(t, f.packageStock(t, device))
	packages := newKeyPackages(store.MaxKeyPackagesAdded)
	require.Equal(t, store.KeyPackageStock{Available: 3}, f.addPackages(t, device, packages[:3]...))
	require.Equal(t, store.KeyPackageStock{Available: 3}, f.addPackages(t, device, packages[:3]...), "they are there")
	require.Equal(t, store.KeyPackageStock{Available: 5}, f.addPackages(t, device, slices.Concat(packages[1:5], packages[4:5])...))
	require.Equal(t, store.KeyPackageStock{Available: 5, LastResort: true}, f.addPackages(t, device, lastResort()))
	again := packages[0]
	again.LastResort = true
	require.Equal(t, store.KeyPackageStock{Available: 5, LastResort: true}, f.addPackages(t, device, again), "it is left as it is")
	f.addPackages(t, device, packages...)
	f.addPackages(t, device, newKeyPackages(store.MaxKeyPackages-store.MaxKeyPackagesAdded)...)
	require.Equal(t, store.KeyPackageStock{Available: store.MaxKeyPackages, LastResort: true}, f.addPackages(t, device, packages...))
	_, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device, newKeyPackages(1))
	require.ErrorIs(t, err, store.ErrConflict, "the device has as many as it may")
	require.Equal(t, store.KeyPackageStock{Available: store.MaxKeyPackages, LastResort: true}, f.packageStock(t, device))
	f.addPackages(t, device, lastResort())
}

func testRefusedKeyPackages(t *testing.T, f fixture) {
	device := f.active(t, false).ID
	good := newKeyPackages(1)[0]
	changed := func(change func(*store.KeyPackage)) []store.KeyPackage {
		p := newKeyPackages(1)[0]
		change(&p)
		return []store.KeyPackage{good, p}
	}
	for name, packages := range map[string][]store.KeyPackage{
		"none":            nil,
		"too many":        newKeyPackages(store.MaxKeyPackagesAdded + 1),
		"an empty one":    changed(func(p *store.KeyPackage) { p.Bytes = nil }),
		"a large one":     changed(func(p *store.KeyPackage) { p.Bytes = make([]byte, store.MaxKeyPackage+1) }),
		"an expired one":  changed(func(p *store.KeyPackage) { p.ExpiresAt = time.Now().Add(-time.Second) }),
		"without expiry":  changed(func(p *store.KeyPackage) { p.ExpiresAt = time.Time{} }),
		"one for long":    changed(func(p *store.KeyPackage) { p.ExpiresAt = time.Now().Add(store.MaxKeyPackageLife + time.Minute) }),
		"one for ever":    changed(func(p *store.KeyPackage) { p.ExpiresAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"an old last one": changed(func(p *store.KeyPackage) { p.LastResort, p.ExpiresAt = true, time.Now().Add(-time.Hour) }),
	} {
		stock, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device, packages)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		require.Zero(t, stock, name)
		require.Zero(t, f.packageStock(t, device), "%s: none of them is stored", name)
	}
	largest := newKeyPackages(1)[0]
	largest.Bytes, largest.ExpiresAt = random(store.MaxKeyPackage), time.Now().Add(store.MaxKeyPackageLife-time.Minute)
	f.addPackages(t, device, largest)
}

func testKeyPackageDevices(t *testing.T, f, other fixture) {
	for state, want := range map[store.DeviceState]error{
		store.DevicePending: store.ErrConflict, store.DeviceApproved: nil, store.DeviceActive: nil,
		store.DeviceSuspended: store.ErrConflict, store.DeviceRevoked: store.ErrConflict,
	} {
		device := f.in(t, state)
		_, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device.ID, newKeyPackages(1))
		if want == nil {
			require.NoError(t, err, state)
			continue
		}
		require.ErrorIs(t, err, want, state)
		require.Zero(t, f.packageStock(t, device.ID), state)
	}
	device := f.active(t, false).ID
	f.addPackages(t, device, newKeyPackages(1)...)
	for _, unknown := range []struct{ tenant, device uuid.UUID }{{f.tenant, newID(t)}, {other.tenant, device}, {f.tenant, uuid.Nil}} {
		_, err := f.Store.AddKeyPackages(t.Context(), unknown.tenant, unknown.device, newKeyPackages(1))
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = f.Store.KeyPackageStock(t.Context(), unknown.tenant, unknown.device)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	theirs := newKeyPackages(2)
	f.addPackages(t, device, theirs...)
	require.Equal(t, 2, f.addPackages(t, f.active(t, false).ID, theirs...).Available, "a package is its device's")
}

// Nobody adds a revoked device to a group, and nothing of it is kept for that.
func testKeyPackagesOfRevoked(t *testing.T, f fixture) {
	device, other := f.active(t, false).ID, f.active(t, false).ID
	f.addPackages(t, device, append(newKeyPackages(3), lastResort())...)
	f.addPackages(t, other, newKeyPackages(2)...)
	_, err := f.Store.RevokeDevice(t.Context(), f.tenant, device, uuid.Nil)
	require.NoError(t, err)
	require.Zero(t, f.packageStock(t, device))
	require.Equal(t, store.KeyPackageStock{Available: 2}, f.packageStock(t, other))
}

func testClaiming(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	viewer, controller := r.member(t, store.RoleViewer), r.member(t, store.RoleController)
	packages := newKeyPackages(3)
	f.addPackages(t, agent.Device, packages...)
	of := newKeyPackages(3)
	f.addPackages(t, viewer.Device, of...)
	for i, by := range []store.Participant{owner, controller, owner} {
		claimed := r.claim(t, by, viewer, agent) // in the order that was asked for
		require.Equal(t, of[i], claimed[0].KeyPackage, "what expires first goes first")
		require.Equal(t, packages[i], claimed[1].KeyPackage)
		require.Equal(t, store.KeyPackageStock{Available: 2 - i}, f.packageStock(t, agent.Device))
	}
	require.Equal(t, store.KeyPackageStock{}, f.addPackages(t, agent.Device, packages...), "what was handed out is known (FAULTS BL-I05)")
	r.exhausted(t, owner, agent, agent)
	fresh := newKeyPackages(1)
	require.Equal(t, store.KeyPackageStock{Available: 1}, f.addPackages(t, agent.Device, append(fresh, packages...)...))
	r.exhausted(t, owner, viewer, agent, viewer)
	require.Equal(t, store.KeyPackageStock{Available: 1}, f.packageStock(t, agent.Device), "all or none")
	require.Equal(t, fresh[0], r.claim(t, owner, agent)[0].KeyPackage, "refilled")
}

// exhausted expects a claim to be refused since there is no package of one participant.
func (r groupRoom) exhausted(t *testing.T, by, empty store.Participant, of ...store.Participant) {
	t.Helper()
	claimed, err := r.Store.ClaimKeyPackages(t.Context(), r.tenant, r.id, by.Device, ids(of...))
	require.Empty(t, claimed)
	var exhausted *store.ExhaustedError
	require.ErrorAs(t, err, &exhausted)
	require.ErrorIs(t, err, store.ErrConflict)
	require.Equal(t, empty.ID, exhausted.Participant)
}

func testLastResort(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	first, second, one := lastResort(), lastResort(), newKeyPackages(1)[0]
	f.addPackages(t, agent.Device, first, one)
	require.Equal(t, one, r.claim(t, owner, agent)[0].KeyPackage, "when there is no other")
	for range 3 {
		require.Equal(t, first, r.claim(t, owner, agent)[0].KeyPackage, "again and again")
	}
	require.Equal(t, store.KeyPackageStock{LastResort: true}, f.addPackages(t, agent.Device, second))
	require.Equal(t, second, r.claim(t, owner, agent)[0].KeyPackage, "in place of the one before")
	f.addPackages(t, agent.Device, first, second)
	require.Equal(t, second, r.claim(t, owner, agent)[0].KeyPackage, "which does not come back")
	third, fourth := lastResort(), lastResort()
	f.addPackages(t, agent.Device, third, fourth)
	require.Equal(t, fourth, r.claim(t, owner, agent)[0].KeyPackage, "in their order")
}

func testRefusedClaims(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent, viewer, gone := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleViewer), r.member(t, store.RoleAgent)
	for _, p := range []store.Participant{owner, agent, viewer, gone} {
		f.addPackages(t, p.Device, newKeyPackages(20)...)
	}
	r.remove(t, gone)
	elsewhere := f.newGroupRoom(t).member(t, store.RoleAgent)
	keys := f.newRoom(t, store.RoomGroup)
	keysOwner, keysAgent := f.add(t, keys.ID, store.RoleOwner), f.add(t, keys.ID, store.RoleAgent)
	many := make([]uuid.UUID, store.MaxCommitAdds+1)
	for i := range many {
		many[i] = newID(t)
	}
	for name, c := range map[string]struct {
		room, by uuid.UUID
		of       []uuid.UUID
		want     error
	}{
		"nobody":             {r.id, owner.Device, nil, store.ErrInvalid},
		"too many":           {r.id, owner.Device, many, store.ErrInvalid},
		"one twice":          {r.id, owner.Device, ids(agent, agent), store.ErrInvalid},
		"itself":             {r.id, owner.Device, ids(agent, owner), store.ErrInvalid},
		"by a viewer":        {r.id, viewer.Device, ids(agent), store.ErrForbidden},
		"nobody known":       {r.id, owner.Device, append(ids(agent), newID(t)), store.ErrNotFound},
		"who left":           {r.id, owner.Device, ids(agent, gone), store.ErrNotFound},
		"of another room":    {r.id, owner.Device, ids(agent, elsewhere), store.ErrNotFound},
		"for another scheme": {keys.ID, keysOwner.Device, ids(keysAgent), store.ErrConflict},
	} {
		claimed, err := r.Store.ClaimKeyPackages(t.Context(), r.tenant, c.room, c.by, c.of)
		require.ErrorIs(t, err, c.want, name)
		require.Empty(t, claimed, name)
		require.Equal(t, 20, f.packageStock(t, agent.Device).Available, name)
	}
}

func testRunningLow(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	f.addPackages(t, agent.Device, append(newKeyPackages(store.LowKeyPackages+1), lastResort())...)
	f.told(t)
	version := r.version(t)
	r.claim(t, owner, agent)
	require.Empty(t, f.told(t, wire.KeyPackagesLow), "%d are left", store.LowKeyPackages)
	for left := int64(store.LowKeyPackages - 1); left >= 0; left-- {
		r.claim(t, owner, agent)
		require.Equal(t, []toldOf{
			{To: agent.ID, Event: wire.KeyPackagesLow, Room: r.id, Version: version, Remaining: &left},
		}, f.told(t, wire.KeyPackagesLow))
	}
	r.claim(t, owner, agent)
	require.Empty(t, f.told(t, wire.KeyPackagesLow), "the last resort is handed out, and it was told")
	require.Equal(t, version, r.version(t), "nothing of the room changed")
	f.addPackages(t, agent.Device, newKeyPackages(1)...)
	empty := r.member(t, store.RoleAgent)
	r.exhausted(t, owner, empty, agent, empty)
	require.Empty(t, f.told(t, wire.KeyPackagesLow), "nothing was handed out")
}

// FAULTS BL-I05.
func testClaimRaces(t *testing.T, f fixture) {
	a, b := f.newGroupRoom(t), f.newGroupRoom(t)
	device := f.active(t, false).ID
	rooms := []groupRoom{a, b}
	members := []store.Participant{f.join(t, a.id, device), f.join(t, b.id, device)}
	owners := []store.Participant{a.member(t, store.RoleOwner), b.member(t, store.RoleOwner)}
	const callers, there = 50, 40
	packages := newKeyPackages(there)
	f.addPackages(t, device, packages...)
	got := make([][32]byte, callers)
	errs := race(callers, func(i int) error {
		room := i % 2
		claimed, err := rooms[room].Store.ClaimKeyPackages(t.Context(), f.tenant, rooms[room].id, owners[room].Device, ids(members[room]))
		if err == nil {
			got[i] = claimed[0].KeyPackage.Ref
		}
		return err
	})
	handed := map[[32]byte]bool{}
	for i, err := range errs {
		if err == nil {
			require.False(t, handed[got[i]], "a package was handed out twice")
			handed[got[i]] = true
			continue
		}
		var exhausted *store.ExhaustedError
		require.ErrorAs(t, err, &exhausted)
	}
	require.Len(t, handed, there, "all of them, and a clear refusal for the rest")
	require.Zero(t, f.packageStock(t, device))
	refill := newKeyPackages(2)
	f.addPackages(t, device, append(refill, packages...)...)
	require.Equal(t, refill[0], a.claim(t, owners[0], members[0])[0].KeyPackage)
	require.Equal(t, refill[1], b.claim(t, owners[1], members[1])[0].KeyPackage)
}

// testCrossedClaims: claims that name the same devices in other orders, and of each other,
// do not wait for each other in a circle.
func testCrossedClaims(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	other := f.newGroupRoom(t)
	var here, there []store.Participant
	for range 6 {
		p := r.member(t, store.RoleAgent)
		f.addPackages(t, p.Device, newKeyPackages(60)...)
		here, there = append(here, p), append(there, f.join(t, other.id, p.Device))
	}
	errs := race(40, func(i int) error {
		room, members := r, here
		if i%2 == 1 {
			room, members = other, there
		}
		by := i % len(members)
		of := append(slices.Clone(members[:by]), members[by+1:]...)
		if i%4 > 1 {
			slices.Reverse(of)
		}
		_, err := room.Store.ClaimKeyPackages(t.Context(), f.tenant, room.id, members[by].Device, ids(of...))
		return err
	})
	require.NoError(t, errors.Join(errs...))
	left := 0
	for _, p := range here {
		left += f.packageStock(t, p.Device).Available
	}
	require.Equal(t, 6*60-40*5, left)
}

func testUploadRaces(t *testing.T, f fixture) {
	device := f.active(t, false).ID
	packages := newKeyPackages(store.MaxKeyPackagesAdded)
	errs := race(10, func(i int) error {
		_, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device, packages[:10+i])
		return err
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 19, f.packageStock(t, device).Available)
	errs = race(5, func(int) error {
		_, err := f.Store.AddKeyPackages(t.Context(), f.tenant, device, newKeyPackages(store.MaxKeyPackagesAdded))
		return err
	})
	require.Equal(t, 1, count(errs, nil), "no more than a device may have")
	require.Equal(t, 4, count(errs, store.ErrConflict))
	require.Equal(t, 119, f.packageStock(t, device).Available)
}
