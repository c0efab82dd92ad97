package storetest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func testGroups(t *testing.T, s Subject) {
	t.Run("the first commit makes the group", func(t *testing.T) { testFirstCommit(t, newFixture(t, s)) })
	t.Run("members and epochs", func(t *testing.T) { testEpochsOfCommits(t, newFixture(t, s)) })
	t.Run("the same commit again", func(t *testing.T) { testSameCommit(t, newFixture(t, s)) })
	t.Run("refused commits", func(t *testing.T) { testRefusedCommits(t, newFixture(t, s)) })
	t.Run("who is named", func(t *testing.T) { testNamedInCommits(t, newFixture(t, s)) })
	t.Run("external commits", func(t *testing.T) { testExternalCommits(t, newFixture(t, s)) })
	t.Run("welcomes", func(t *testing.T) { testWelcomes(t, newFixture(t, s)) })
	t.Run("pages of commits", func(t *testing.T) { testCommitPages(t, newFixture(t, s)) })
	t.Run("strangers", func(t *testing.T) { testMLSStrangers(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("archived rooms", func(t *testing.T) { testMLSArchived(t, newFixture(t, s)) })
}

func testGroupEnds(t *testing.T, s Subject) {
	t.Run("removals wait for a commit", func(t *testing.T) { testPendingRemovals(t, newFixture(t, s)) })
	t.Run("who was not in the group leaves", func(t *testing.T) { testLeavingNoGroup(t, newFixture(t, s)) })
	t.Run("everybody leaves", func(t *testing.T) { testDesertedGroup(t, newFixture(t, s)) })
	t.Run("resets", func(t *testing.T) { testGroupResets(t, newFixture(t, s)) })
	t.Run("a commit nobody can apply", func(t *testing.T) { testReportedCommits(t, newFixture(t, s)) })
	t.Run("reports of one member", func(t *testing.T) { testReportsOfOneMember(t, newFixture(t, s)) })
}

// groupRoom is an MLS room.
type groupRoom struct {
	fixture

	id uuid.UUID
}

func (f fixture) newGroupRoom(t *testing.T) groupRoom {
	t.Helper()
	room, err := f.Store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: f.tenant, Kind: store.RoomGroup, Scheme: store.SchemeMLS, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	return groupRoom{f, room.ID}
}

func (r groupRoom) member(t *testing.T, role store.Role) store.Participant {
	t.Helper()
	return r.add(t, r.id, role)
}

func (r groupRoom) state(t *testing.T) store.RoomState {
	t.Helper()
	room, err := r.Store.FindRoom(t.Context(), r.tenant, r.id)
	require.NoError(t, err)
	return room.State
}

func (r groupRoom) version(t *testing.T) int64 {
	t.Helper()
	room, err := r.Store.FindRoom(t.Context(), r.tenant, r.id)
	require.NoError(t, err)
	return room.Version
}

// group is what p sees of it.
func (r groupRoom) group(t *testing.T, p store.Participant) store.Group {
	t.Helper()
	g, err := r.Store.Group(t.Context(), r.tenant, r.id, p.Device)
	require.NoError(t, err)
	require.Equal(t, r.id, g.Room)
	return g
}

// commit is one of p's that fits the group as it is, or begins one.
func (r groupRoom) commit(t *testing.T, p store.Participant, added ...store.Participant) store.NewCommit {
	t.Helper()
	g := r.group(t, p)
	c := store.NewCommit{
		Tenant: r.tenant, Room: r.id, By: p.Device, Epoch: g.Epoch, GroupEpoch: g.Epoch - g.Base, GroupID: g.ID,
		Commit: random(64), GroupInfo: random(64), Added: ids(added...),
	}
	if g.ID == nil {
		c.GroupID = random(16)
	}
	if len(added) > 0 {
		c.Welcome = random(64)
	}
	return c
}

func (r groupRoom) accept(t *testing.T, c store.NewCommit) uint64 {
	t.Helper()
	epoch, err := r.Store.AcceptCommit(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, c.Epoch+1, epoch)
	return epoch
}

// with makes a group of p and the others.
func (r groupRoom) with(t *testing.T, p store.Participant, others ...store.Participant) uint64 {
	t.Helper()
	return r.accept(t, r.commit(t, p, others...))
}

func (r groupRoom) welcome(t *testing.T, p store.Participant) (store.Welcome, error) {
	t.Helper()
	return r.Store.Welcome(t.Context(), r.tenant, r.id, p.Device)
}

func (r groupRoom) commits(t *testing.T, p store.Participant, after uint64) []store.Commit {
	t.Helper()
	commits, more, err := r.Store.CommitPage(t.Context(), r.tenant, r.id, p.Device, after, store.MaxPage)
	require.NoError(t, err)
	require.False(t, more)
	return commits
}

// try sends a message of p under a gen.
func (r groupRoom) try(t *testing.T, p store.Participant, gen uint64, want *wire.Error) {
	t.Helper()
	m := message(p, newID(t).String(), "x")
	m.Gen = gen
	_, err := r.Store.AppendMessage(t.Context(), sealed(m, "x"))
	requireIs(t, err, want, "gen %d", gen)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func ids(participants ...store.Participant) (ids []uuid.UUID) {
	for _, p := range participants {
		ids = append(ids, p.ID)
	}
	return ids
}

func sorted(participants ...store.Participant) []uuid.UUID {
	all := ids(participants...)
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return all
}

// toldOf is an event that waits in the outbox.
type toldOf struct {
	To          uuid.UUID          `json:"-"`
	Event       wire.RoomEventType `json:"event"`
	Room        uuid.UUID          `json:"room_id"`
	Version     int64              `json:"version"`
	Participant string             `json:"participant_id"`
	Epoch       *uint64            `json:"epoch"`
	Remaining   *int64             `json:"remaining"`
}

// told empties the outbox, and returns what was in it of these types, in order.
func (f fixture) told(t *testing.T, types ...wire.RoomEventType) (events []toldOf) {
	t.Helper()
	for {
		rows, err := f.Store.ClaimRows(t.Context(), 1000, time.Hour)
		require.NoError(t, err)
		if len(rows) == 0 {
			return events
		}
		for _, row := range rows {
			event := toldOf{To: row.To}
			require.NoError(t, json.Unmarshal(row.Payload, &event))
			if slices.Contains(types, event.Event) {
				require.Equal(t, event.Room, row.Room)
				require.Equal(t, wire.ServerRoomEvent.String(), row.Kind)
				events = append(events, event)
			}
		}
		require.NoError(t, f.Store.SettleRows(t.Context(), rows))
	}
}

// toldGroup is told of what happens to groups.
func (r groupRoom) toldGroup(t *testing.T) []toldOf {
	t.Helper()
	return r.told(t, wire.CommitAccepted, wire.WelcomeWaits, wire.CommitReported)
}

// unchanged runs what must be refused, and compares all that is kept of the room.
func (r groupRoom) unchanged(t *testing.T, p store.Participant, why string, refused func() error) error {
	t.Helper()
	kept := func() any {
		room, err := r.Store.FindRoom(t.Context(), r.tenant, r.id)
		require.NoError(t, err)
		commits, _, err := r.Store.CommitPage(t.Context(), r.tenant, r.id, p.Device, 0, store.MaxPage)
		welcome, none := r.welcome(t, p)
		return []any{room, commits, err, r.group(t, p), welcome, none != nil}
	}
	r.toldGroup(t)
	before := kept()
	err := refused()
	require.Equal(t, before, kept(), why)
	require.Empty(t, r.toldGroup(t), why)
	return err
}

func testFirstCommit(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent, viewer := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleViewer)
	require.Equal(t, store.Group{Room: r.id, Members: []uuid.UUID{}, Pending: []uuid.UUID{}}, r.group(t, viewer), "none yet")
	require.Empty(t, r.commits(t, owner, 0))
	_, err := r.welcome(t, owner)
	require.ErrorIs(t, err, store.ErrNotFound)
	r.try(t, owner, 0, errUnknownGen)
	r.toldGroup(t)

	version := r.version(t)
	c := r.commit(t, owner, agent, viewer)
	require.Equal(t, uint64(1), r.accept(t, c))
	require.Equal(t, store.Group{
		Room: r.id, Epoch: 1, ID: c.GroupID, Info: c.GroupInfo, Members: sorted(owner, agent, viewer), Pending: []uuid.UUID{},
	}, r.group(t, viewer))
	require.Equal(t, version+1, r.version(t), "a change of the room")
	epoch := uint64(1)
	require.Equal(t, []toldOf{
		{Event: wire.CommitAccepted, Room: r.id, Version: version + 1, Participant: owner.ID.String(), Epoch: &epoch},
		{To: agent.ID, Event: wire.WelcomeWaits, Room: r.id, Version: version + 1, Epoch: &epoch},
		{To: viewer.ID, Event: wire.WelcomeWaits, Room: r.id, Version: version + 1, Epoch: &epoch},
	}, r.toldGroup(t))
	commits := r.commits(t, agent, 0)
	require.Len(t, commits, 1)
	require.False(t, commits[0].At.IsZero())
	commits[0].At = time.Time{}
	require.Equal(t, store.Commit{Epoch: 1, Sender: owner.ID, Bytes: c.Commit}, commits[0])
	for _, p := range []store.Participant{agent, viewer} {
		welcome, err := r.welcome(t, p)
		require.NoError(t, err)
		require.Equal(t, store.Welcome{Epoch: 1, Bytes: c.Welcome}, welcome)
	}
	_, err = r.welcome(t, owner)
	require.ErrorIs(t, err, store.ErrNotFound, "who made the group joins nothing")
	r.try(t, owner, 1, nil)
	r.try(t, owner, 0, errRetired)
	r.try(t, owner, 2, errUnknownGen)

	alone := f.newGroupRoom(t)
	p := alone.member(t, store.RoleAgent)
	require.Equal(t, uint64(1), alone.with(t, p), "also without others")
	require.Equal(t, ids(p), alone.group(t, p).Members)
}

// DESIGN section 1: gen is the room's epoch.
func testEpochsOfCommits(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	r.with(t, owner, agent)
	id := r.group(t, owner).ID
	for epoch := uint64(1); epoch < 5; epoch++ {
		c := r.commit(t, []store.Participant{owner, agent}[epoch%2])
		require.Equal(t, epoch, c.GroupEpoch)
		r.accept(t, c)
		g := r.group(t, agent)
		require.Equal(t, epoch+1, g.Epoch)
		require.Equal(t, c.GroupInfo, g.Info, "the newest")
		require.Equal(t, id, g.ID)
		require.Equal(t, sorted(owner, agent), g.Members)
		r.try(t, owner, epoch, errRetired)
		r.try(t, owner, epoch+1, nil)
	}
	other := f.newGroupRoom(t)
	p := other.member(t, store.RoleOwner)
	require.Zero(t, other.group(t, p).Epoch, "an epoch is its room's")

	largest := r.commit(t, owner, r.member(t, store.RoleAgent))
	largest.Commit, largest.Welcome, largest.GroupInfo = random(store.MaxCommit), random(store.MaxWelcome), random(store.MaxGroupInfo)
	r.accept(t, largest)
	require.Equal(t, largest.GroupInfo, r.group(t, owner).Info)
	longest := other.commit(t, p)
	longest.GroupID = random(store.MaxGroupID)
	other.accept(t, longest)
	require.Equal(t, longest.GroupID, other.group(t, p).ID)
}

// FAULTS BL-I08; DESIGN section 7: a commit whose answer was lost may have happened.
func testSameCommit(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	first := r.commit(t, owner, agent)
	r.accept(t, first)
	second := r.commit(t, agent)
	r.accept(t, second)
	for _, c := range []store.NewCommit{first, second, first} {
		require.NoError(t, r.unchanged(t, owner, "again", func() error {
			epoch, err := r.Store.AcceptCommit(t.Context(), c)
			require.Equal(t, c.Epoch+1, epoch)
			return err
		}))
	}
	others := second
	others.By = owner.Device
	require.Equal(t, uint64(2), r.lost(t, owner, others), "the same bytes of another sender")
	later := second
	later.Epoch, later.GroupEpoch = 2, 2
	require.Equal(t, uint64(3), r.accept(t, later), "or in another epoch: another commit")
}

// lost expects a commit to be told the epoch that the room is in.
func (r groupRoom) lost(t *testing.T, p store.Participant, c store.NewCommit) uint64 {
	t.Helper()
	err := r.unchanged(t, p, "a commit for another epoch changes nothing", func() error {
		epoch, err := r.Store.AcceptCommit(t.Context(), c)
		require.Zero(t, epoch)
		return err
	})
	var conflict *store.EpochError
	require.ErrorAs(t, err, &conflict)
	require.ErrorIs(t, err, store.ErrConflict)
	return conflict.Current
}

func testRefusedCommits(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, viewer := r.member(t, store.RoleOwner), r.member(t, store.RoleViewer)
	outside, added := r.member(t, store.RoleController), r.member(t, store.RoleAgent)
	r.with(t, owner, viewer)
	r.accept(t, r.commit(t, owner))
	many := make([]uuid.UUID, store.MaxParticipants+1)
	for i := range many {
		many[i] = newID(t)
	}
	for name, change := range map[string]func(*store.NewCommit){
		"no commit":               func(c *store.NewCommit) { c.Commit = nil },
		"a long commit":           func(c *store.NewCommit) { c.Commit = make([]byte, store.MaxCommit+1) },
		"no group info":           func(c *store.NewCommit) { c.GroupInfo = nil },
		"a long group info":       func(c *store.NewCommit) { c.GroupInfo = make([]byte, store.MaxGroupInfo+1) },
		"no group id":             func(c *store.NewCommit) { c.GroupID = nil },
		"a long group id":         func(c *store.NewCommit) { c.GroupID = make([]byte, store.MaxGroupID+1) },
		"no welcome":              func(c *store.NewCommit) { c.Welcome = nil },
		"a welcome for nobody":    func(c *store.NewCommit) { c.Added = nil },
		"a long welcome":          func(c *store.NewCommit) { c.Welcome = make([]byte, store.MaxWelcome+1) },
		"many added":              func(c *store.NewCommit) { c.Added = many[:store.MaxCommitAdds+1] },
		"many removed":            func(c *store.NewCommit) { c.Removed = many },
		"somebody added twice":    func(c *store.NewCommit) { c.Added = ids(added, added) },
		"somebody removed twice":  func(c *store.NewCommit) { c.Removed = ids(viewer, viewer) },
		"the committer, added":    func(c *store.NewCommit) { c.Added = ids(added, owner) },
		"the committer, removed":  func(c *store.NewCommit) { c.Removed = ids(owner) },
		"also one that was known": func(c *store.NewCommit) { c.Added = ids(owner); c.Removed = ids(owner) },
	} {
		r.refuse(t, owner, name, store.ErrInvalid, added, change)
	}
	for name, change := range map[string]func(*store.NewCommit){
		"another group id":        func(c *store.NewCommit) { c.GroupID = []byte("other") },
		"a group id with more":    func(c *store.NewCommit) { c.GroupID = append(bytes.Clone(c.GroupID), 0) },
		"an earlier group epoch":  func(c *store.NewCommit) { c.GroupEpoch-- },
		"a later group epoch":     func(c *store.NewCommit) { c.GroupEpoch++ },
		"a group that begins":     func(c *store.NewCommit) { c.GroupEpoch = 0; c.GroupID = []byte("other") },
		"a group epoch far ahead": func(c *store.NewCommit) { c.GroupEpoch = 1 << 63 },
	} {
		r.refuse(t, owner, name, store.ErrConflict, added, change)
	}
	for _, epoch := range []uint64{0, 1, 3, 4, wire.MaxInteger, wire.MaxInteger + 1, 1<<64 - 1} {
		c := r.commit(t, owner)
		c.Epoch = epoch
		require.Equal(t, uint64(2), r.lost(t, owner, c), "epoch %d", epoch)
	}
	r.refuse(t, viewer, "a viewer", store.ErrForbidden, added, func(*store.NewCommit) {})
	r.refuse(t, viewer, "a viewer in another epoch", store.ErrForbidden, added, func(c *store.NewCommit) { c.Epoch++ })
	r.refuse(t, outside, "who is not in the group", store.ErrForbidden, added, func(*store.NewCommit) {})
	r.refuse(t, outside, "the same with another group", store.ErrForbidden, added, func(c *store.NewCommit) { c.GroupID = []byte("other") })
	late := r.commit(t, outside)
	late.Epoch, late.GroupEpoch, late.GroupID = 0, 0, []byte("other")
	require.Equal(t, uint64(2), r.lost(t, outside, late), "who lost the race to make the group looks again")

	keys := f.add(t, f.newRoom(t, store.RoomGroup).ID, store.RoleOwner)
	_, err := f.Store.AcceptCommit(t.Context(), store.NewCommit{
		Tenant: f.tenant, Room: keys.Room, By: keys.Device, GroupID: []byte{1}, Commit: []byte{1}, GroupInfo: []byte{1},
	})
	require.ErrorIs(t, err, store.ErrConflict, "another scheme")
	none := f.newGroupRoom(t)
	c := none.commit(t, none.member(t, store.RoleAgent))
	c.External = true
	_, err = f.Store.AcceptCommit(t.Context(), c)
	require.ErrorIs(t, err, store.ErrConflict, "there is no group to join")
	var conflict *store.EpochError
	require.NotErrorAs(t, err, &conflict)
	c.External, c.GroupEpoch = false, 1
	_, err = f.Store.AcceptCommit(t.Context(), c)
	require.ErrorIs(t, err, store.ErrConflict, "a group begins with its epoch 0")
}

// refuse expects a commit that adds somebody, and fits but for the change, to be refused.
func (r groupRoom) refuse(t *testing.T, p store.Participant, name string, want error, added store.Participant, change func(*store.NewCommit)) {
	t.Helper()
	c := r.commit(t, p, added)
	change(&c)
	err := r.unchanged(t, p, name, func() error {
		epoch, err := r.Store.AcceptCommit(t.Context(), c)
		require.Zero(t, epoch, name)
		return err
	})
	require.ErrorIs(t, err, want, name)
	var conflict *store.EpochError
	require.NotErrorAs(t, err, &conflict, name)
}

func testNamedInCommits(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, in, out, gone := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	stranger := f.newGroupRoom(t).member(t, store.RoleAgent)
	r.remove(t, gone) // before there was a group
	r.with(t, owner, in)
	for name, c := range map[string]struct {
		want   error
		change func(*store.NewCommit)
	}{
		"nobody known, added":         {store.ErrNotFound, func(c *store.NewCommit) { c.Added = []uuid.UUID{newID(t)} }},
		"of another room, added":      {store.ErrNotFound, func(c *store.NewCommit) { c.Added = ids(out, stranger) }},
		"who left, added":             {store.ErrNotFound, func(c *store.NewCommit) { c.Added = ids(gone) }},
		"who left, added and removed": {store.ErrNotFound, func(c *store.NewCommit) { c.Added, c.Removed = ids(gone), ids(gone) }},
		"nobody known, removed":       {store.ErrNotFound, func(c *store.NewCommit) { c.Removed = []uuid.UUID{newID(t)} }},
		"of another room, removed":    {store.ErrNotFound, func(c *store.NewCommit) { c.Removed = ids(stranger) }},
		"who is in the group, added":  {store.ErrConflict, func(c *store.NewCommit) { c.Added = ids(out, in) }},
	} {
		r.refuse(t, owner, name, c.want, out, c.change)
	}
	again := r.commit(t, owner, in)
	again.Removed = ids(in)
	epoch := r.accept(t, again)
	welcome, err := r.welcome(t, in)
	require.NoError(t, err)
	require.Equal(t, store.Welcome{Epoch: epoch, Bytes: again.Welcome}, welcome, "who is removed and added joins anew")
	require.Equal(t, sorted(owner, in), r.group(t, owner).Members)

	removal := r.commit(t, owner)
	removal.Removed = ids(in, out, gone) // the others were not in the group
	r.accept(t, removal)
	require.Equal(t, ids(owner), r.group(t, owner).Members)
	r.refuse(t, in, "who was removed from the group", store.ErrForbidden, out, func(*store.NewCommit) {})
	r.accept(t, r.commit(t, owner, in, out))
	require.Equal(t, sorted(owner, in, out), r.group(t, owner).Members)
}

// RFC 9420 section 12.4.3.2: who has the group info may join by itself.
func testExternalCommits(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, joiner, viewer := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleViewer)
	r.with(t, owner)
	c := r.commit(t, joiner)
	c.External = true
	r.accept(t, c)
	require.Equal(t, sorted(owner, joiner), r.group(t, owner).Members)
	r.accept(t, r.commit(t, joiner))

	anew := r.commit(t, joiner)
	anew.External, anew.Removed = true, ids(joiner)
	r.accept(t, anew)
	require.Equal(t, sorted(owner, joiner), r.group(t, owner).Members, "in place of what it was")
	r.accept(t, r.commit(t, joiner))
	external := func(c *store.NewCommit) { c.External, c.Added, c.Welcome = true, nil, nil }
	r.refuse(t, viewer, "a viewer", store.ErrForbidden, joiner, external)
	r.refuse(t, joiner, "another group", store.ErrConflict, joiner, func(c *store.NewCommit) { external(c); c.GroupID = []byte("other") })

	welcomed := r.member(t, store.RoleAgent)
	r.accept(t, r.commit(t, owner, welcomed))
	c = r.commit(t, welcomed)
	external(&c)
	r.accept(t, c)
	_, err := r.welcome(t, welcomed)
	require.ErrorIs(t, err, store.ErrNotFound, "it joined without it")
}

func testWelcomes(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, a, b, c := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	first := r.commit(t, owner, a, b)
	r.accept(t, first)
	second := r.commit(t, a, c)
	r.accept(t, second)
	has := func(p store.Participant, epoch uint64, want []byte) {
		t.Helper()
		welcome, err := r.welcome(t, p)
		require.NoError(t, err)
		require.Equal(t, store.Welcome{Epoch: epoch, Bytes: want}, welcome)
	}
	hasNone := func(p store.Participant, want error) {
		t.Helper()
		welcome, err := r.welcome(t, p)
		require.ErrorIs(t, err, want)
		require.Zero(t, welcome)
	}
	has(a, 1, first.Welcome)
	has(b, 1, first.Welcome)
	has(c, 2, second.Welcome)
	hasNone(owner, store.ErrNotFound)

	r.remove(t, b)
	hasNone(b, store.ErrNotFound)
	back := f.join(t, r.id, b.Device)
	hasNone(back, store.ErrNotFound)
	third := r.commit(t, owner, back)
	third.Removed = ids(b)
	r.accept(t, third)
	has(back, 3, third.Welcome)
	has(a, 1, first.Welcome)
	removal := r.commit(t, owner)
	removal.Removed = ids(a)
	r.accept(t, removal)
	hasNone(a, store.ErrNotFound)
	has(c, 2, second.Welcome)
}

func testCommitPages(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner := r.member(t, store.RoleOwner)
	r.with(t, owner)
	for range 4 {
		r.accept(t, r.commit(t, owner))
	}
	page := func(after uint64, limit int) (epochs []uint64, more bool) {
		t.Helper()
		commits, more, err := r.Store.CommitPage(t.Context(), r.tenant, r.id, owner.Device, after, limit)
		require.NoError(t, err)
		for _, c := range commits {
			epochs = append(epochs, c.Epoch)
		}
		return epochs, more
	}
	for _, c := range []struct {
		after uint64
		limit int
		want  []uint64
		more  bool
	}{
		{0, 5, []uint64{1, 2, 3, 4, 5}, false},
		{0, 4, []uint64{1, 2, 3, 4}, true},
		{2, 2, []uint64{3, 4}, true},
		{3, 2, []uint64{4, 5}, false},
		{4, store.MaxPage, []uint64{5}, false},
		{5, 1, nil, false},
	} {
		got, more := page(c.after, c.limit)
		require.Equal(t, c.want, got, "%d after %d", c.limit, c.after)
		require.Equal(t, c.more, more, "%d after %d", c.limit, c.after)
	}
	for _, after := range []uint64{6, wire.MaxInteger, 1<<64 - 1} {
		_, _, err := r.Store.CommitPage(t.Context(), r.tenant, r.id, owner.Device, after, 1)
		late := new(store.EpochError)
		require.ErrorAs(t, err, &late, "a room that has forgotten an epoch says so")
		require.Equal(t, uint64(5), late.Current)
	}
	for _, limit := range []int{-1, 0, store.MaxPage + 1} {
		_, _, err := r.Store.CommitPage(t.Context(), r.tenant, r.id, owner.Device, 0, limit)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	const full = 4 << 20 / store.MaxCommit
	for range full + 1 {
		c := r.commit(t, owner)
		c.Commit = random(store.MaxCommit)
		r.accept(t, c)
	}
	got, more := page(5, store.MaxPage)
	require.Len(t, got, full, "about 4 MiB")
	require.True(t, more)
	got, more = page(5+full, store.MaxPage)
	require.Len(t, got, 1)
	require.False(t, more)
}

// groupCalls is every call of a device on a room's group.
func (r groupRoom) groupCalls(t *testing.T, tenant, room, device uuid.UUID, other store.Participant) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	return map[string]func() error{
		"commit": func() error {
			_, err := r.Store.AcceptCommit(ctx, store.NewCommit{
				Tenant: tenant, Room: room, By: device, Epoch: 1, GroupEpoch: 1, GroupID: []byte{1}, Commit: []byte{1}, GroupInfo: []byte{1},
			})
			return err
		},
		"commits": func() error {
			_, _, err := r.Store.CommitPage(ctx, tenant, room, device, 0, 1)
			return err
		},
		"group":   func() error { _, err := r.Store.Group(ctx, tenant, room, device); return err },
		"welcome": func() error { _, err := r.Store.Welcome(ctx, tenant, room, device); return err },
		"report":  func() error { return r.Store.ReportCommit(ctx, tenant, room, device, 1) },
		"claim": func() error {
			_, err := r.Store.ClaimKeyPackages(ctx, tenant, room, device, ids(other))
			return err
		},
	}
}

func testMLSStrangers(t *testing.T, f, other fixture) {
	r := f.newGroupRoom(t)
	owner, agent, gone := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	suspended := f.join(t, r.id, f.active(t, false).ID)
	r.with(t, owner, agent, gone, suspended)
	r.remove(t, gone)
	_, err := f.Store.SuspendDevice(t.Context(), f.tenant, suspended.Device, uuid.Nil)
	require.NoError(t, err)
	foreigner := other.newGroupRoom(t).member(t, store.RoleOwner)
	for name, c := range map[string]struct {
		tenant, room, device uuid.UUID
		want                 error
	}{
		"a member of another room":      {f.tenant, r.id, f.newGroupRoom(t).member(t, store.RoleOwner).Device, store.ErrNotFound},
		"a member who left":             {f.tenant, r.id, gone.Device, store.ErrNotFound},
		"an admin who is no member":     {f.tenant, r.id, f.active(t, true).ID, store.ErrNotFound},
		"no room":                       {f.tenant, newID(t), owner.Device, store.ErrNotFound},
		"a suspended member":            {f.tenant, r.id, suspended.Device, store.ErrForbidden},
		"the operator":                  {f.tenant, r.id, uuid.Nil, store.ErrForbidden},
		"no device":                     {f.tenant, r.id, newID(t), store.ErrForbidden},
		"another tenant's device":       {f.tenant, r.id, foreigner.Device, store.ErrForbidden},
		"another tenant, with its own":  {other.tenant, r.id, foreigner.Device, store.ErrNotFound},
		"another tenant, with a member": {other.tenant, r.id, owner.Device, store.ErrForbidden},
	} {
		for call, do := range r.groupCalls(t, c.tenant, c.room, c.device, agent) {
			err := r.unchanged(t, owner, name+": "+call, do)
			require.ErrorIs(t, err, c.want, "%s: %s", name, call)
		}
	}
}

func testMLSArchived(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	first := r.commit(t, owner, agent)
	r.accept(t, first)
	next := r.commit(t, owner)
	f.ArchiveRoom(t, f.tenant, r.id)
	for name, do := range map[string]func() error{
		"commit": func() error { _, err := r.Store.AcceptCommit(t.Context(), next); return err },
		"claim": func() error {
			_, err := r.Store.ClaimKeyPackages(t.Context(), r.tenant, r.id, owner.Device, ids(agent))
			return err
		},
		"report": func() error { return r.Store.ReportCommit(t.Context(), r.tenant, r.id, agent.Device, 1) },
	} {
		require.ErrorIs(t, r.unchanged(t, owner, name, do), errArchived, name)
	}
	require.Len(t, r.commits(t, agent, 0), 1, "members read on")
	_, err := r.welcome(t, agent)
	require.NoError(t, err)
	epoch, err := r.Store.AcceptCommit(t.Context(), first)
	require.NoError(t, err, "what was accepted was")
	require.Equal(t, uint64(1), epoch)
}

// FAULTS BL-I06; STATE, "Mandatory Rekey": REKEYING until a commit removes who left.
func testPendingRemovals(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, a, b, stays := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	revoked := f.join(t, r.id, f.active(t, false).ID)
	r.with(t, owner, a, b, stays, revoked)
	require.Equal(t, store.RoomActive, r.state(t))
	r.remove(t, a)
	_, err := r.Store.RemoveParticipant(t.Context(), r.tenant, r.id, b.ID, b.Device) // by itself
	require.NoError(t, err)
	_, err = f.Store.RevokeDevice(t.Context(), f.tenant, revoked.Device, uuid.Nil)
	require.NoError(t, err)
	g := r.group(t, stays)
	require.Equal(t, sorted(owner, a, b, stays, revoked), g.Members, "until a commit removes them")
	require.Equal(t, sorted(a, b, revoked), g.Pending)
	require.Equal(t, store.RoomRekeying, r.state(t))
	r.try(t, stays, 1, errRemovalPending)

	r.accept(t, r.commit(t, stays)) // made before it heard of it
	require.Equal(t, store.RoomRekeying, r.state(t))
	require.Equal(t, sorted(a, b, revoked), r.group(t, stays).Pending)
	r.try(t, stays, 2, errRemovalPending)
	some := r.commit(t, stays)
	some.Removed = ids(a, revoked)
	r.accept(t, some)
	require.Equal(t, store.RoomRekeying, r.state(t), "one is left")
	require.Equal(t, ids(b), r.group(t, stays).Pending)
	rest := r.commit(t, owner)
	rest.Removed = ids(b)
	version := r.version(t)
	epoch := r.accept(t, rest)
	require.Equal(t, store.RoomActive, r.state(t))
	require.Equal(t, version+1, r.version(t))
	require.Empty(t, r.group(t, stays).Pending)
	require.Equal(t, sorted(owner, stays), r.group(t, stays).Members)
	r.try(t, stays, epoch, nil)
	r.try(t, stays, epoch-1, errRetired)
}

func testLeavingNoGroup(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, early, agent, late := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	r.remove(t, early)
	require.Equal(t, store.RoomActive, r.state(t), "there is no group")
	epoch := r.with(t, owner, agent)
	r.remove(t, late)
	require.Equal(t, store.RoomActive, r.state(t), "it knew no keys")
	r.try(t, agent, epoch, nil)
	require.Empty(t, r.group(t, owner).Pending)
	r.remove(t, agent)
	other := r.member(t, store.RoleAgent)
	r.remove(t, other)
	require.Equal(t, store.RoomRekeying, r.state(t), "somebody else's removal is still pending")
}

func testDesertedGroup(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	first := r.commit(t, owner, agent)
	epoch := r.accept(t, first)
	r.remove(t, agent)
	r.remove(t, owner)
	require.Equal(t, store.RoomActive, r.state(t))
	next := f.join(t, r.id, agent.Device)
	g := r.group(t, next)
	require.Equal(t, store.Group{Room: r.id, Epoch: epoch + 1, Base: epoch + 1, Members: []uuid.UUID{}, Pending: []uuid.UUID{}}, g, "it is over")
	_, err := r.welcome(t, next)
	require.ErrorIs(t, err, store.ErrNotFound)
	r.try(t, next, epoch, errRetired)
	r.try(t, next, epoch+1, errUnknownGen)
	r.with(t, next)
	require.Equal(t, ids(next), r.group(t, next).Members)
	r.try(t, next, epoch+2, nil)
}

// STATE, "Corrupt State".
func testGroupResets(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent, gone := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	reset := func() {
		t.Helper()
		_, err := r.Store.ResetRoom(t.Context(), r.tenant, r.id, owner.Device)
		require.NoError(t, err)
	}
	f.told(t)
	reset()
	require.Equal(t, store.Group{Room: r.id, Members: []uuid.UUID{}, Pending: []uuid.UUID{}}, r.group(t, owner), "there was nothing")
	first := r.commit(t, owner, agent, gone)
	r.accept(t, first)
	r.accept(t, r.commit(t, agent))
	r.remove(t, gone)
	f.told(t)
	reset()
	events := f.told(t, wire.RoomReset)
	require.Len(t, events, 1)
	require.Equal(t, uint64(3), *events[0].Epoch)
	require.Equal(t, store.Group{Room: r.id, Epoch: 3, Base: 3, Members: []uuid.UUID{}, Pending: []uuid.UUID{}}, r.group(t, owner))
	require.Equal(t, store.RoomActive, r.state(t), "nobody's removal is pending any more")
	for gen, want := range []*wire.Error{errRetired, errRetired, errRetired, errUnknownGen, errUnknownGen} {
		r.try(t, owner, uint64(gen), want)
	}
	_, err := r.welcome(t, agent)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = r.Store.CommitPage(t.Context(), r.tenant, r.id, agent.Device, 2, 1)
	var conflict *store.EpochError
	require.ErrorAs(t, err, &conflict, "no commit made the epoch that follows")
	require.Equal(t, uint64(3), conflict.Current)
	require.Empty(t, r.commits(t, agent, 3))

	old := r.commit(t, agent)
	old.GroupID = first.GroupID
	err = r.unchanged(t, agent, "the id of an earlier group", func() error { _, err := r.Store.AcceptCommit(t.Context(), old); return err })
	require.ErrorIs(t, err, store.ErrConflict)
	stale := first
	stale.Commit = random(64)
	require.Equal(t, uint64(3), r.lost(t, owner, stale))
	begin := r.commit(t, agent, owner)
	require.Zero(t, begin.GroupEpoch)
	require.Equal(t, uint64(3), begin.Epoch)
	r.accept(t, begin)
	require.Equal(t, store.Group{
		Room: r.id, Epoch: 4, Base: 3, ID: begin.GroupID, Info: begin.GroupInfo, Members: sorted(owner, agent), Pending: []uuid.UUID{},
	}, r.group(t, owner))
	next := r.commit(t, owner)
	require.Equal(t, uint64(1), next.GroupEpoch)
	r.accept(t, next)
	r.try(t, agent, 5, nil)
	require.Len(t, r.commits(t, agent, 3), 2)
	for _, after := range []uint64{0, 2} {
		_, _, err = r.Store.CommitPage(t.Context(), r.tenant, r.id, agent.Device, after, store.MaxPage)
		late := new(store.EpochError)
		require.ErrorAs(t, err, &late, "commits of a group that is over lead nowhere")
		require.Equal(t, uint64(5), late.Current)
	}
}

// FAULTS BL-I02: the server cannot tell a broken commit; the room does not stay stuck.
func testReportedCommits(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent, viewer := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleViewer)
	r.with(t, owner, agent, viewer)
	broken := r.commit(t, agent)
	broken.Commit = []byte(strings.Repeat("\x00\xff", 100))
	epoch := r.accept(t, broken)
	version := r.version(t)
	r.toldGroup(t)
	for range 2 { // once for each participant
		for _, p := range []store.Participant{owner, viewer} {
			require.NoError(t, r.Store.ReportCommit(t.Context(), r.tenant, r.id, p.Device, epoch))
		}
	}
	require.Equal(t, []toldOf{
		{Event: wire.CommitReported, Room: r.id, Version: version, Participant: owner.ID.String(), Epoch: &epoch},
		{Event: wire.CommitReported, Room: r.id, Version: version, Participant: viewer.ID.String(), Epoch: &epoch},
	}, r.toldGroup(t))
	require.Equal(t, version, r.version(t), "nothing else changes")
	require.Equal(t, epoch, r.group(t, owner).Epoch)
	for _, unknown := range []uint64{0, epoch + 1, wire.MaxInteger, 1<<64 - 1} {
		err := r.unchanged(t, owner, "no such commit", func() error {
			return r.Store.ReportCommit(t.Context(), r.tenant, r.id, owner.Device, unknown)
		})
		require.ErrorIs(t, err, store.ErrNotFound, "epoch %d", unknown)
	}
	_, err := r.Store.ResetRoom(t.Context(), r.tenant, r.id, owner.Device)
	require.NoError(t, err)
	r.with(t, owner, agent, viewer)
	r.try(t, agent, r.group(t, agent).Epoch, nil)
}

// A member reports once since it joined the group, so that nobody, and least a viewer, who
// sends nothing, fills the inboxes of the others with reports.
func testReportsOfOneMember(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, viewer := r.member(t, store.RoleOwner), r.member(t, store.RoleViewer)
	outside := r.member(t, store.RoleViewer)
	r.accept(t, r.commit(t, owner)) // the group begins without them
	joined := r.with(t, owner, viewer)
	for range 3 {
		r.accept(t, r.commit(t, owner))
	}
	last := r.group(t, owner).Epoch
	r.toldGroup(t)
	reports := func(p store.Participant) []toldOf {
		for epoch := range last {
			require.NoError(t, r.Store.ReportCommit(t.Context(), r.tenant, r.id, p.Device, epoch+1))
		}
		return r.toldGroup(t)
	}
	version, first := r.version(t), uint64(1)
	told := func(p store.Participant, epoch uint64) []toldOf {
		return []toldOf{{Event: wire.CommitReported, Room: r.id, Version: version, Participant: p.ID.String(), Epoch: &epoch}}
	}
	require.Equal(t, told(viewer, joined), reports(viewer), "the commit that added it, and none before or after")
	require.Equal(t, told(outside, first), reports(outside), "it is in no group yet")
	require.Empty(t, reports(viewer))
	require.Empty(t, reports(outside))

	again := r.commit(t, owner, viewer)
	again.Removed = []uuid.UUID{viewer.ID}
	last = r.accept(t, again)
	r.toldGroup(t)
	version = r.version(t)
	require.Equal(t, told(viewer, last), reports(viewer), "it has joined anew")
}

func testCommitRaces(t *testing.T, s Subject) {
	t.Run("100 commits for one epoch", func(t *testing.T) { TestCommitRace(t, s) })
	t.Run("the first commits of a room", func(t *testing.T) { testFirstCommitRace(t, newFixture(t, s)) })
	t.Run("one commit many times", func(t *testing.T) { testSameCommitRace(t, newFixture(t, s)) })
	t.Run("commits and a reset", func(t *testing.T) { testResetRace(t, newFixture(t, s)) })
	t.Run("commits and a removal", func(t *testing.T) { testRemovalRace(t, newFixture(t, s)) })
}

// TestCommitRace lets the members of a room commit at once, through the stores in turn, and
// the losers again until each has won (FAULTS BL-I01; STATE, "Simultaneous Admin Changes").
func TestCommitRace(t *testing.T, s Subject, stores ...store.Groups) {
	t.Helper()
	f := newFixture(t, s)
	stores = append(stores, s.Store)
	r := f.newGroupRoom(t)
	const rivals = 100
	members := []store.Participant{r.member(t, store.RoleOwner)}
	for range 9 {
		members = append(members, r.member(t, store.RoleAgent))
	}
	newcomers := make([]store.Participant, rivals)
	for i := range newcomers {
		newcomers[i] = r.member(t, store.RoleAgent)
	}
	r.with(t, members[0], members[1:]...)
	r.toldGroup(t)
	commits := make([]store.NewCommit, rivals)
	for i := range commits {
		commits[i] = r.commit(t, members[i%len(members)], newcomers[i])
	}
	epochs := make([]uint64, rivals)
	errs := race(rivals, func(i int) (err error) {
		epochs[i], err = stores[i%len(stores)].AcceptCommit(t.Context(), commits[i])
		return err
	})
	winner := slices.Index(errs, nil)
	require.Equal(t, 1, count(errs, nil), "exactly one")
	require.Equal(t, uint64(2), epochs[winner])
	for i, err := range errs {
		if i == winner {
			continue
		}
		var conflict *store.EpochError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, uint64(2), conflict.Current)
	}
	page := r.commits(t, members[0], 1)
	require.Len(t, page, 1)
	require.Equal(t, commits[winner].Commit, page[0].Bytes)
	g := r.group(t, members[0])
	require.Equal(t, commits[winner].GroupInfo, g.Info)
	require.Equal(t, sorted(append([]store.Participant{newcomers[winner]}, members...)...), g.Members)
	for i, p := range newcomers {
		welcome, err := r.welcome(t, p)
		if i != winner {
			require.ErrorIs(t, err, store.ErrNotFound, "no welcome of a commit that lost")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, commits[winner].Welcome, welcome.Bytes)
	}
	events := r.toldGroup(t)
	require.Len(t, events, 2)
	require.Equal(t, newcomers[winner].ID, events[1].To)

	for rebased := range 10 { // they look again, and one wins each time
		for i := range commits {
			commits[i] = r.commit(t, members[i%len(members)])
		}
		errs := race(10, func(i int) error {
			_, err := stores[i%len(stores)].AcceptCommit(t.Context(), commits[i])
			return err
		})
		require.Equal(t, 1, count(errs, nil))
		require.Equal(t, uint64(3+rebased), r.group(t, members[0]).Epoch)
	}
}

func testFirstCommitRace(t *testing.T, f fixture) {
	for range 5 {
		r := f.newGroupRoom(t)
		commits := make([]store.NewCommit, 10)
		var first store.Participant
		for i := range commits {
			p := r.member(t, store.RoleAgent)
			commits[i] = r.commit(t, p)
			first = p
		}
		errs := race(len(commits), func(i int) error {
			_, err := r.Store.AcceptCommit(t.Context(), commits[i])
			return err
		})
		require.Equal(t, 1, count(errs, nil))
		require.Len(t, r.group(t, first).Members, 1)
		require.Equal(t, commits[slices.Index(errs, nil)].GroupID, r.group(t, first).ID)
		for _, err := range errs {
			var conflict *store.EpochError
			require.True(t, err == nil || errors.As(err, &conflict), "%v", err)
		}
	}
}

func testSameCommitRace(t *testing.T, f fixture) {
	r := f.newGroupRoom(t)
	owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
	r.toldGroup(t)
	c := r.commit(t, owner, agent)
	epochs := make([]uint64, 20)
	errs := race(len(epochs), func(i int) (err error) {
		epochs[i], err = r.Store.AcceptCommit(t.Context(), c)
		return err
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, slices.Repeat([]uint64{1}, len(epochs)), epochs)
	require.Len(t, r.toldGroup(t), 2, "one commit, told once")
}

// testResetRace: whichever comes first, the room's epoch rises and nothing is in between.
func testResetRace(t *testing.T, f fixture) {
	for round := range 10 {
		r := f.newGroupRoom(t)
		owner, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent)
		r.with(t, owner)
		c := r.commit(t, owner, agent)
		errs := race(2, func(i int) (err error) {
			if i == 0 {
				_, err = r.Store.AcceptCommit(t.Context(), c)
				return err
			}
			_, err = r.Store.ResetRoom(t.Context(), r.tenant, r.id, owner.Device)
			return err
		})
		require.NoError(t, errs[1])
		want := uint64(3)
		if errs[0] != nil {
			want = 2
			var conflict *store.EpochError
			require.ErrorAs(t, errs[0], &conflict)
			require.Equal(t, want, conflict.Current)
		}
		require.Equal(t, store.Group{Room: r.id, Epoch: want, Base: want, Members: []uuid.UUID{}, Pending: []uuid.UUID{}}, r.group(t, owner), "round %d", round)
		_, err := r.welcome(t, agent)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

// testRemovalRace: a commit that does not know of a removal may come before or after it;
// only one that removes who left ends it.
func testRemovalRace(t *testing.T, f fixture) {
	for round := range 10 {
		r := f.newGroupRoom(t)
		owner, leaver, agent := r.member(t, store.RoleOwner), r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
		r.with(t, owner, leaver, agent)
		unaware, last := r.commit(t, agent), r.commit(t, leaver)
		errs := race(3, func(i int) (err error) {
			switch i {
			case 0:
				_, err = r.Store.RemoveParticipant(t.Context(), r.tenant, r.id, leaver.ID, uuid.Nil)
			case 1:
				_, err = r.Store.AcceptCommit(t.Context(), unaware)
			default:
				_, err = r.Store.AcceptCommit(t.Context(), last)
			}
			return err
		})
		require.NoError(t, errs[0])
		require.LessOrEqual(t, count(errs[1:], nil), 1)
		for _, err := range errs[1:] {
			require.True(t, err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound), "%v", err)
		}
		require.Equal(t, store.RoomRekeying, r.state(t), "round %s", strconv.Itoa(round))
		require.Equal(t, ids(leaver), r.group(t, owner).Pending)
		removal := r.commit(t, owner)
		removal.Removed = ids(leaver)
		r.accept(t, removal)
		require.Equal(t, store.RoomActive, r.state(t))
	}
}
