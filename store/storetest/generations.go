package storetest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// newGeneration is one of p's, with a key and kid of that seed.
func newGeneration(p store.Participant, seed byte) store.NewGeneration {
	return store.NewGeneration{
		Tenant: p.Tenant, Room: p.Room, Participant: p.ID, KID: [16]byte{0: seed, 15: 0xff}, SessionKey: []byte{seed, 0, 0xff},
	}
}

func (f fixture) allocate(t *testing.T, p store.Participant, seed byte) store.Generation {
	t.Helper()
	g, err := f.Store.AllocateGeneration(t.Context(), newGeneration(p, seed))
	require.NoError(t, err)
	return g
}

func (f fixture) generations(t *testing.T, room uuid.UUID) []store.Generation {
	t.Helper()
	current, err := f.Store.CurrentGenerations(t.Context(), f.tenant, room)
	require.NoError(t, err)
	return current
}

func testGenerations(t *testing.T, s Subject) {
	t.Run("allocating", func(t *testing.T) { testAllocating(t, newFixture(t, s)) })
	t.Run("session keys", func(t *testing.T) { testSessionKeys(t, newFixture(t, s)) })
	t.Run("who may not", func(t *testing.T) { testGenerationRefusals(t, newFixture(t, s)) })
	t.Run("the current ones", func(t *testing.T) { testCurrentGenerations(t, newFixture(t, s)) })
	t.Run("only the newest", func(t *testing.T) { testGenerationsAreBounded(t, newFixture(t, s)) })
	t.Run("many at once", func(t *testing.T) { testGenerationRaces(t, newFixture(t, s)) })
}

func testAllocating(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p, q := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleOwner)
	first := f.allocate(t, p, 1)
	require.Equal(t, p.ID, first.Participant)
	require.Equal(t, newGeneration(p, 1).KID, first.KID)
	require.Equal(t, newGeneration(p, 1).SessionKey, first.SessionKey)
	require.False(t, first.AllocatedAt.IsZero())
	require.Equal(t, uint64(1), first.Gen, "from 1")
	require.Equal(t, uint64(2), f.allocate(t, p, 2).Gen)
	require.Equal(t, uint64(3), f.allocate(t, p, 3).Gen)
	require.Equal(t, uint64(1), f.allocate(t, q, 2).Gen, "per participant, and so is a kid")

	require.False(t, first.Again)
	known := first
	known.Again = true
	require.Equal(t, known, f.allocate(t, p, 1), "published before: the gen of then")
	changed := newGeneration(p, 1)
	changed.SessionKey = []byte("another")
	_, err := f.Store.AllocateGeneration(t.Context(), changed)
	require.ErrorIs(t, err, store.ErrConflict)
	require.Equal(t, uint64(4), f.allocate(t, p, 4).Gen, "neither took a gen")

	again, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{
		Tenant: f.tenant, Room: f.newRoom(t, store.RoomGroup).ID, Device: p.Device, Role: store.RoleAgent,
	})
	require.NoError(t, err)
	require.Equal(t, uint64(1), f.allocate(t, again, 4).Gen, "per room")
}

func testSessionKeys(t *testing.T, f fixture) {
	p := f.member(t)
	for i, size := range []int{1, 32, store.MaxSessionKey} {
		g := newGeneration(p, byte(i))
		g.SessionKey = bytes.Repeat([]byte{0xfe}, size)
		_, err := f.Store.AllocateGeneration(t.Context(), g)
		require.NoError(t, err)
		require.Equal(t, g.SessionKey, f.generations(t, p.Room)[0].SessionKey)
	}
	for _, size := range []int{0, store.MaxSessionKey + 1} {
		g := newGeneration(p, 9)
		g.SessionKey = make([]byte, size)
		_, err := f.Store.AllocateGeneration(t.Context(), g)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	require.Equal(t, uint64(3), f.generations(t, p.Room)[0].Gen)
}

func testGenerationRefusals(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p, viewer := f.add(t, room.ID, store.RoleController), f.add(t, room.ID, store.RoleViewer)
	gone, stranger := f.add(t, room.ID, store.RoleAgent), f.member(t)
	f.remove(t, gone)
	for name, c := range map[string]struct {
		change func(*store.NewGeneration)
		want   error
	}{
		"room":               {func(g *store.NewGeneration) { g.Room = newID(t) }, store.ErrNotFound},
		"another room":       {func(g *store.NewGeneration) { g.Room = stranger.Room }, store.ErrNotFound},
		"tenant":             {func(g *store.NewGeneration) { g.Tenant = newID(t) }, store.ErrNotFound},
		"participant":        {func(g *store.NewGeneration) { g.Participant = newID(t) }, store.ErrNotFound},
		"former participant": {func(g *store.NewGeneration) { g.Participant = gone.ID }, store.ErrNotFound},
		"viewer":             {func(g *store.NewGeneration) { g.Participant = viewer.ID }, store.ErrForbidden},
	} {
		g := newGeneration(p, 1)
		c.change(&g)
		got, err := f.Store.AllocateGeneration(t.Context(), g)
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, got, name)
	}
	require.Empty(t, f.generations(t, room.ID), "a refusal changes nothing")
	f.allocate(t, p, 1)
	f.ArchiveRoom(t, f.tenant, room.ID)
	for seed := range byte(2) {
		_, err := f.Store.AllocateGeneration(t.Context(), newGeneration(p, seed+1))
		require.ErrorIs(t, err, store.ErrConflict)
	}
}

func testCurrentGenerations(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	require.Empty(t, f.generations(t, room.ID), "a room without participants")
	a, none, b := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleOwner)
	require.Empty(t, f.generations(t, room.ID), "participants without keys")
	newest := map[uuid.UUID]store.Generation{}
	for seed := range byte(3) {
		newest[b.ID] = f.allocate(t, b, seed)
	}
	newest[a.ID] = f.allocate(t, a, 1)
	current := func() map[uuid.UUID]store.Generation {
		byParticipant := map[uuid.UUID]store.Generation{}
		for _, g := range f.generations(t, room.ID) {
			byParticipant[g.Participant] = g
		}
		return byParticipant
	}
	require.Equal(t, newest, current())
	require.NotContains(t, current(), none.ID)
	f.remove(t, b)
	delete(newest, b.ID)
	require.Equal(t, newest, current(), "of current participants only")

	_, err := f.Store.CurrentGenerations(t.Context(), f.tenant, newID(t))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testGenerationRaces(t *testing.T, f fixture) {
	p := f.member(t)
	const callers = 50
	gens := make([]int, callers)
	errs := race(callers, func(i int) error {
		g, err := f.Store.AllocateGeneration(t.Context(), newGeneration(p, byte(i)))
		gens[i] = int(g.Gen)
		return err
	})
	require.NoError(t, errors.Join(errs...))
	slices.Sort(gens)
	for i, gen := range gens {
		require.Equal(t, i+1, gen, "without gaps or repeats")
	}

	same := make([]store.Generation, callers)
	errs = race(callers, func(i int) (err error) {
		same[i], err = f.Store.AllocateGeneration(t.Context(), newGeneration(p, 200))
		return err
	})
	require.NoError(t, errors.Join(errs...))
	fresh := 0
	for _, g := range same {
		if !g.Again {
			fresh++
		}
		g.Again = same[0].Again
		require.Equal(t, same[0], g, "one kid is one gen")
	}
	require.Equal(t, 1, fresh, "one of them allocated it")
	require.Equal(t, uint64(callers+1), same[0].Gen)

	errs = race(callers, func(i int) error {
		g := newGeneration(p, 201)
		g.SessionKey = []byte{byte(i)}
		_, err := f.Store.AllocateGeneration(t.Context(), g)
		return err
	})
	require.Equal(t, 1, count(errs, nil))
	require.Equal(t, callers-1, count(errs, store.ErrConflict))
}

// Only the newest are kept. An older one was allocated all the same: no gen comes again, and
// a notice may name it.
func testGenerationsAreBounded(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p, q := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleAgent)
	f.allocate(t, q, 0)
	for i := range store.KeptGenerations {
		require.Equal(t, uint64(i)+1, f.allocate(t, p, byte(i)).Gen)
	}
	require.True(t, f.allocate(t, p, 0).Again, "the oldest of those that are kept")
	require.Equal(t, uint64(store.KeptGenerations)+1, f.allocate(t, p, store.KeptGenerations).Gen)
	require.True(t, f.allocate(t, p, 1).Again)
	late := f.allocate(t, p, 0)
	require.Equal(t, uint64(store.KeptGenerations)+2, late.Gen, "its kid is forgotten")
	require.False(t, late.Again)
	require.True(t, f.allocate(t, q, 0).Again, "of somebody else nothing is deleted")
	require.Equal(t, late.Gen, f.generations(t, room.ID)[0].Gen)
	f.accept(t, notice(p, "first", "x"))
}
