package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// mlsGroup is the answer of GET …/group-info.
type mlsGroup struct {
	Epoch           uint64   `json:"epoch"`
	BaseEpoch       uint64   `json:"base_epoch"`
	GroupID         []byte   `json:"group_id"`
	GroupInfo       string   `json:"group_info"`
	Members         []string `json:"members"`
	PendingRemovals []string `json:"pending_removals"`
}

// mlsCommits is the answer of GET …/commits.
type mlsCommits struct {
	Commits []struct {
		Epoch  uint64 `json:"epoch"`
		Sender string `json:"sender"`
		Commit string `json:"commit"`
	} `json:"commits"`
	More bool `json:"more"`
}

// mlsWelcome is the answer of GET …/welcome.
type mlsWelcome struct {
	Epoch   uint64 `json:"epoch"`
	Welcome string `json:"welcome"`
}

// askOf is a request of a device about a room.
func askOf(t *testing.T, s *testkit.Relay, d *testkit.Device, method, room, path string, body any) testkit.Answer {
	t.Helper()
	return s.Public(t, method, "/v1/rooms/"+room+path, d.AccessToken, body)
}

func commit(t *testing.T, s *testkit.Relay, d *testkit.Device, room string, c testkit.MLSCommit) testkit.Answer {
	t.Helper()
	return askOf(t, s, d, http.MethodPost, room, "/commits", c)
}

// accepted commits, and demands the epoch that it made.
func accepted(t *testing.T, s *testkit.Relay, d *testkit.Device, room string, c testkit.MLSCommit) {
	t.Helper()
	var made struct {
		Epoch uint64 `json:"epoch"`
	}
	commit(t, s, d, room, c).Demand(t, http.StatusCreated).Into(t, &made)
	require.Equal(t, c.Epoch+1, made.Epoch)
}

// late demands that a commit is refused for the room's epoch, which the answer names.
func late(t *testing.T, answer testkit.Answer, epoch uint64) {
	t.Helper()
	answer.Refused(t, http.StatusConflict, wire.EpochConflict)
	var body struct {
		Epoch *uint64 `json:"epoch"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer.Body), &body))
	require.Equal(t, &epoch, body.Epoch)
}

func groupOf(t *testing.T, s *testkit.Relay, d *testkit.Device, room string) (g mlsGroup) {
	t.Helper()
	askOf(t, s, d, http.MethodGet, room, "/group-info", nil).Into(t, &g)
	return g
}

// newGroup is a crew whose MLS group all but the viewer are in: the room is in epoch 1.
func newGroup(t *testing.T, s *testkit.Relay) *crew {
	t.Helper()
	c := newCrew(t, s, testkit.RoomOptions{Scheme: "mls"})
	accepted(t, s, c.owner, c.room(), testkit.NewMLSCommit("group", 0, 0, "begin").Adding("come in", c.as[c.first].ID, c.as[c.second].ID))
	awaitEvents(t, s, c.as[c.second], "welcome ") // and what was told before
	return c
}

// message is a message of the next number under a generation.
func (p *peer) message(gen uint64) []byte {
	return under(gen, p.envelope("message", p.who.Room, fmt.Sprintf("m-%s-%d", p.who.ID, p.seq.Load())))
}

// transcript is mls/testdata/messages.json: messages of another implementation by name.
func transcript(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../mls/testdata/messages.json")
	require.NoError(t, err)
	var list []struct{ Name, Message string }
	require.NoError(t, json.Unmarshal(text, &list))
	all := make(map[string]string, len(list))
	for _, m := range list {
		all[m.Name] = m.Message
	}
	return all
}

// STATE, "Create Room" and "Add Member", with the messages of another implementation: key
// packages are published and claimed, a commit adds two, who fetch it and their welcome
// byte for byte; messages are taken under the epoch, and under no other. A removal is
// committed in public, and somebody joins by an external commit.
func TestGroupOfAnotherImplementation(t *testing.T) {
	t.Parallel()
	s := shared(t)
	said := transcript(t)
	c := newCrew(t, s, testkit.RoomOptions{Scheme: "mls"})
	alice, bob, carol, dave := c.owner, c.first, c.second, c.viewer
	room := c.room()
	require.Equal(t, mlsGroup{Members: []string{}, PendingRemovals: []string{}}, groupOf(t, s, bob, room))
	a, b, d := online(t, s, c.as[alice]), online(t, s, c.as[bob]), online(t, s, c.as[dave])
	a.nacked(a.message(0), wire.MLSUnknown)

	expires := time.Now().Add(time.Hour)
	for name, device := range map[string]*testkit.Device{"bob": bob, "carol": carol} {
		for range 2 {
			s.PublishKeyPackages(t, device, testkit.MLSKeyPackage{KeyPackage: said[name+": key package"], ExpiresAt: expires}).Demand(t, http.StatusOK)
		}
		require.JSONEq(t, `{"available":1,"last_resort":false}`, s.Public(t, http.MethodGet, "/v1/devices/me/key-packages", device.AccessToken, nil).Body)
	}
	packages := claimed(t, s, alice, room, c.as[bob].ID, c.as[carol].ID)
	require.Equal(t, map[string]string{c.as[bob].ID: said["bob: key package"], c.as[carol].ID: said["carol: key package"]}, packages)
	require.Zero(t, *b.told(wire.KeyPackagesLow).Remaining)

	first := testkit.MLSCommit{
		Epoch: 0, Commit: said["0: add bob and carol: commit"], GroupInfo: said["0: add bob and carol: group info"],
		Welcome: said["0: add bob and carol: welcome"], Added: []string{c.as[bob].ID, c.as[carol].ID},
	}
	accepted(t, s, alice, room, first)
	for _, p := range []*peer{a, b, d} {
		told := p.told(wire.CommitAccepted)
		require.Equal(t, int64(1), *told.Epoch)
		require.Equal(t, c.as[alice].ID, told.ParticipantID)
	}
	require.Equal(t, int64(1), *b.told(wire.WelcomeWaits).Epoch)
	require.Equal(t, said["0: add bob and carol: welcome"], welcomeOf(t, s, bob, room, 1))
	require.Equal(t, said["0: add bob and carol: welcome"], welcomeOf(t, s, carol, room, 1))
	for _, other := range []*testkit.Device{alice, dave} {
		askOf(t, s, other, http.MethodGet, room, "/welcome", nil).Refused(t, http.StatusNotFound, wire.NotFound)
	}

	group := groupOf(t, s, dave, room)
	require.Equal(t, "first group", string(group.GroupID))
	require.Equal(t, said["0: add bob and carol: group info"], group.GroupInfo)
	require.ElementsMatch(t, []string{c.as[alice].ID, c.as[bob].ID, c.as[carol].ID}, group.Members)
	b.says(b.message(1), 3, a, d)
	b.nacked(b.message(0), wire.MLSRetired)
	b.nacked(b.message(2), wire.MLSUnknown)

	removal := testkit.MLSCommit{
		Epoch: 1, Commit: said["1: alice removes carol: commit"], GroupInfo: said["1: alice removes carol: group info"], Removed: []string{c.as[carol].ID},
	}
	accepted(t, s, alice, room, removal)
	b.nacked(b.message(1), wire.MLSRetired)
	b.says(b.message(2), 3, a, d)
	lost := removal
	lost.Commit, lost.GroupInfo = said["1: bob removes carol: commit"], said["1: bob removes carol: group info"]
	late(t, commit(t, s, bob, room, lost), 2)

	joining := testkit.MLSCommit{Epoch: 2, Commit: said["2: dave joins: commit"], GroupInfo: said["2: dave joins: group info"]}
	commit(t, s, dave, room, joining).Refused(t, http.StatusForbidden, wire.Forbidden) // a viewer
	accepted(t, s, carol, room, joining)                                               // who was removed from the group, and is in the room still
	require.Contains(t, groupOf(t, s, bob, room).Members, c.as[carol].ID)

	var all mlsCommits
	askOf(t, s, bob, http.MethodGet, room, "/commits?after_epoch=0&limit=2", nil).Into(t, &all)
	require.True(t, all.More)
	var rest mlsCommits
	askOf(t, s, bob, http.MethodGet, room, "/commits?after_epoch=2", nil).Into(t, &rest)
	require.False(t, rest.More)
	all.Commits = slices.Concat(all.Commits, rest.Commits)
	for i, want := range []string{"0: add bob and carol", "1: alice removes carol", "2: dave joins"} {
		require.Equal(t, uint64(i+1), all.Commits[i].Epoch)
		require.Equal(t, said[want+": commit"], all.Commits[i].Commit)
		require.Equal(t, []string{c.as[alice].ID, c.as[alice].ID, c.as[carol].ID}[i], all.Commits[i].Sender)
	}
}

// claimed are key packages by participant.
func claimed(t *testing.T, s *testkit.Relay, d *testkit.Device, room string, participants ...string) map[string]string {
	t.Helper()
	var answer struct {
		KeyPackages []struct {
			ParticipantID string `json:"participant_id"`
			DeviceID      string `json:"device_id"`
			KeyPackage    string `json:"key_package"`
		} `json:"key_packages"`
	}
	claim(t, s, d, room, participants...).Into(t, &answer)
	packages := make(map[string]string)
	for _, p := range answer.KeyPackages {
		require.NotEmpty(t, p.DeviceID)
		packages[p.ParticipantID] = p.KeyPackage
	}
	return packages
}

func claim(t *testing.T, s *testkit.Relay, d *testkit.Device, room string, participants ...string) testkit.Answer {
	t.Helper()
	return askOf(t, s, d, http.MethodPost, room, "/key-packages/claim", map[string]any{"participant_ids": participants})
}

func welcomeOf(t *testing.T, s *testkit.Relay, d *testkit.Device, room string, epoch uint64) string {
	t.Helper()
	var welcome mlsWelcome
	askOf(t, s, d, http.MethodGet, room, "/welcome", nil).Into(t, &welcome)
	require.Equal(t, epoch, welcome.Epoch)
	return welcome.Welcome
}

// STATE, "Mandatory Rekey"; RELAY, "mls_removal_pending"; FAULTS BL-I06: however somebody
// leaves the room, every message of those who stay is refused until a commit that removes
// them from the group is accepted.
func TestEachRemovalWaitsForItsCommit(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *testkit.Relay, *crew){
		"removed by the owner": func(t *testing.T, s *testkit.Relay, c *crew) {
			removeFrom(t, s, c.owner, c.as[c.second]).Demand(t, http.StatusOK)
		},
		"leaves by itself": func(t *testing.T, s *testkit.Relay, c *crew) {
			removeFrom(t, s, c.second, c.as[c.second]).Demand(t, http.StatusOK)
		},
		"device revoked": func(t *testing.T, s *testkit.Relay, c *crew) { moveDevice(t, s, c.second, "revoke") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			c := newGroup(t, s)
			a, b := online(t, s, c.as[c.owner]), online(t, s, c.as[c.first])
			a.says(a.message(1), 3, b)
			leave(t, s, c)
			b.told(wire.MemberRemoved)
			b.told(wire.RekeyRequired)
			require.Equal(t, "REKEYING", showRoom(t, s, c.room()).State)
			for _, gen := range []uint64{0, 1, 2} {
				a.nacked(a.message(gen), wire.MLSRemovalPending)
				b.nacked(b.message(gen), wire.MLSRemovalPending)
			}
			group := groupOf(t, s, c.first, c.room())
			require.Equal(t, []string{c.as[c.second].ID}, group.PendingRemovals)
			require.Contains(t, group.Members, c.as[c.second].ID)
			gone(t, askOf(t, s, c.second, http.MethodGet, c.room(), "/group-info", nil))
			gone(t, commit(t, s, c.second, c.room(), testkit.NewMLSCommit("group", 1, 0, "of the leaver")))

			accepted(t, s, c.first, c.room(), testkit.NewMLSCommit("group", 1, 0, "removes nobody"))
			a.nacked(a.message(2), wire.MLSRemovalPending)
			accepted(t, s, c.first, c.room(), testkit.NewMLSCommit("group", 2, 0, "removes").Removing(c.as[c.second].ID))
			require.Equal(t, "ACTIVE", showRoom(t, s, c.room()).State)
			a.nacked(a.message(2), wire.MLSRetired)
			a.says(a.message(3), 2, b)
			require.Empty(t, groupOf(t, s, c.first, c.room()).PendingRemovals)
		})
	}
}

// gone demands the answer to who is not in the room, or has no device any more.
func gone(t *testing.T, answer testkit.Answer) {
	t.Helper()
	require.Contains(t, []int{http.StatusNotFound, http.StatusUnauthorized}, answer.Status, answer.Body)
}

// STATE, "Simultaneous Admin Changes"; FAULTS BL-I01: of commits for one epoch that reach
// two nodes at the same moment one is accepted; the others are told the epoch, and succeed
// after rebasing. The welcome that waits is the winner's.
func TestTwoNodesAgreeOnOneCommit(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	nodes := []*testkit.Relay{one, two}
	c := newGroup(t, nodes[0])
	guest := nodes[0].ActiveDevice(t, "agent", false)
	const rounds = 15 // each racer may send 20 in a second
	for round := range rounds {
		epoch := uint64(1 + 2*round)
		added := added(t, nodes[0], c.owner, c.room(), guest, "agent")
		racers := []*testkit.Device{c.owner, c.first, c.second}
		commits, answers, errs := make([]testkit.MLSCommit, len(racers)), make([]testkit.Answer, len(racers)), make([]error, len(racers))
		start := make(chan struct{})
		var all sync.WaitGroup
		for i, racer := range racers {
			name := fmt.Sprintf("round %d, racer %d", round, i)
			commits[i] = testkit.NewMLSCommit("group", epoch, 0, name).Adding(name, added.ID)
			all.Go(func() {
				<-start
				answers[i], errs[i] = nodes[i%2].TryPublic(t, http.MethodPost, "/v1/rooms/"+c.room()+"/commits", racer.AccessToken, commits[i])
			})
		}
		close(start)
		all.Wait()
		winner := -1
		for i := range racers {
			require.NoError(t, errs[i])
			if answers[i].Status == http.StatusCreated {
				require.Equal(t, -1, winner, "one wins")
				winner = i
				continue
			}
			late(t, answers[i], epoch+1)
		}
		require.NotEqual(t, -1, winner)
		for _, s := range nodes {
			require.Equal(t, commits[winner].Welcome, welcomeOf(t, s, guest, c.room(), epoch+1))
			require.Equal(t, commits[winner].GroupInfo, groupOf(t, s, c.first, c.room()).GroupInfo)
		}
		removeFrom(t, nodes[1], c.owner, added).Demand(t, http.StatusOK)
		loser := (winner + 1) % len(racers)
		accepted(t, nodes[loser%2], racers[loser], c.room(), testkit.NewMLSCommit("group", epoch+1, 0, "rebased").Removing(added.ID))
	}
	a, b := online(t, nodes[0], c.as[c.owner]), online(t, nodes[1], c.as[c.first])
	a.says(a.message(1+2*rounds), 3, b)
	b.says(b.message(1+2*rounds), 3, a)
}

// FAULTS BL-I02; STATE, "Corrupt State": the server cannot tell a commit of random bytes from
// another one. Members report it, an owner resets the room, a new group works, and the
// room's epoch never falls.
func TestBrokenCommitIsNotTheEnd(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newGroup(t, s)
	a, b := online(t, s, c.as[c.owner]), online(t, s, c.as[c.first])
	noise := make([]byte, 100)
	_, err := rand.Read(noise)
	require.NoError(t, err)
	accepted(t, s, c.second, c.room(), testkit.NewMLSCommit("group", 1, 0, string(noise)))
	b.told(wire.CommitAccepted)

	report := func(d *testkit.Device, epoch string) testkit.Answer {
		return askOf(t, s, d, http.MethodPost, c.room(), "/commits/"+epoch+"/report", nil)
	}
	for range 2 { // told once
		report(c.first, "2").Demand(t, http.StatusOK)
	}
	reported := b.told(wire.CommitReported)
	require.Equal(t, int64(2), *reported.Epoch)
	require.Equal(t, c.as[c.first].ID, reported.ParticipantID)
	for _, epoch := range []string{"0", "3", "-1", "02", "x", "9007199254740993"} {
		report(c.first, epoch).Refused(t, http.StatusNotFound, wire.NotFound)
	}
	askOf(t, s, c.first, http.MethodPost, c.room(), "/reset", nil).Refused(t, http.StatusForbidden, wire.Forbidden)

	askOf(t, s, c.owner, http.MethodPost, c.room(), "/reset", nil).Demand(t, http.StatusOK)
	reset := b.told(wire.RoomReset)
	group := groupOf(t, s, c.first, c.room())
	require.Equal(t, mlsGroup{Epoch: 3, BaseEpoch: 3, Members: []string{}, PendingRemovals: []string{}}, group)
	require.Equal(t, int64(3), *reset.Epoch)
	for gen := range uint64(5) {
		a.nacked(a.message(gen), map[bool]wire.Code{true: wire.MLSRetired, false: wire.MLSUnknown}[gen < 3])
	}
	askOf(t, s, c.first, http.MethodGet, c.room(), "/welcome", nil).Refused(t, http.StatusNotFound, wire.NotFound)
	late(t, askOf(t, s, c.first, http.MethodGet, c.room(), "/commits?after_epoch=2", nil), 3)
	late(t, commit(t, s, c.first, c.room(), testkit.NewMLSCommit("group", 2, 0, "of the group before")), 3)
	commit(t, s, c.first, c.room(), testkit.NewMLSCommit("group", 3, 3, "the same id again")).Refused(t, http.StatusConflict, wire.Conflict)
	commit(t, s, c.first, c.room(), testkit.NewMLSCommit("another", 3, 0, "not its first epoch")).Refused(t, http.StatusConflict, wire.Conflict)

	accepted(t, s, c.first, c.room(), testkit.NewMLSCommit("another", 3, 3, "anew").Adding("again", c.as[c.owner].ID, c.as[c.second].ID))
	require.Equal(t, uint64(3), groupOf(t, s, c.owner, c.room()).BaseEpoch)
	a.says(a.message(4), 3, b)
	accepted(t, s, c.owner, c.room(), testkit.NewMLSCommit("another", 4, 3, "and on"))
}

// A reset and a commit at the same moment: the one that is second is told, or applied to
// what the first has made; no group of two kinds comes of it.
func TestResetRacesWithCommit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newGroup(t, s)
	epoch, base, group := uint64(1), uint64(0), "group"
	for round := range 10 {
		var answer, resetAnswer testkit.Answer
		var err, resetErr error
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			body := testkit.NewMLSCommit(group, epoch, base, fmt.Sprintf("round %d", round))
			answer, err = s.TryPublic(t, http.MethodPost, "/v1/rooms/"+c.room()+"/commits", c.first.AccessToken, body)
		})
		both.Go(func() {
			<-start
			resetAnswer, resetErr = s.TryPublic(t, http.MethodPost, "/v1/rooms/"+c.room()+"/reset", c.owner.AccessToken, nil)
		})
		close(start)
		both.Wait()
		require.NoError(t, err)
		require.NoError(t, resetErr)
		resetAnswer.Demand(t, http.StatusOK)
		next := epoch + 1
		if answer.Status == http.StatusCreated {
			next++ // the commit was first
		} else {
			late(t, answer, next)
		}
		require.Equal(t, mlsGroup{Epoch: next, BaseEpoch: next, Members: []string{}, PendingRemovals: []string{}}, groupOf(t, s, c.first, c.room()))
		epoch, base, group = next, next, fmt.Sprintf("group-%d", round)
		accepted(t, s, c.first, c.room(), testkit.NewMLSCommit(group, epoch, base, "anew").Adding("w", c.as[c.owner].ID))
		epoch++
	}
	a, b := online(t, s, c.as[c.owner]), online(t, s, c.as[c.first])
	a.says(a.message(epoch), 3, b)
}

// FAULTS BL-I08: a commit that is sent twice, and a welcome that is fetched and told twice,
// are one.
func TestCommitAndWelcomeAreOne(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCrew(t, s, testkit.RoomOptions{Scheme: "mls"})
	b := online(t, s, c.as[c.first])
	first := testkit.NewMLSCommit("group", 0, 0, "begin").Adding("come in", c.as[c.first].ID)
	for range 3 {
		accepted(t, s, c.owner, c.room(), first)
	}
	live := []string{b.told(wire.CommitAccepted).EventID, b.told(wire.WelcomeWaits).EventID}
	for range 2 {
		require.Equal(t, first.Welcome, welcomeOf(t, s, c.first, c.room(), 1))
	}
	accepted(t, s, c.owner, c.room(), testkit.NewMLSCommit("group", 1, 0, "on"))
	accepted(t, s, c.owner, c.room(), first)                                                 // of an epoch before, and accepted
	late(t, commit(t, s, c.first, c.room(), first), 2)                                       // of another sender
	late(t, commit(t, s, c.owner, c.room(), testkit.NewMLSCommit("group", 0, 0, "else")), 2) // other bytes
	require.Equal(t, first.Welcome, welcomeOf(t, s, c.first, c.room(), 1), "a commit of others leaves it")

	replayed := awaitEvents(t, s, c.as[c.first], "commit "+c.as[c.owner].ID)
	var again []string
	for _, frame := range replayed.events {
		if e := frame.RoomEvent; e.Event == wire.WelcomeWaits || e.Event == wire.CommitAccepted && *e.Epoch == 1 {
			again = append(again, e.EventID)
		}
	}
	slices.Sort(live)
	slices.Sort(again)
	require.Equal(t, live, slices.Compact(again), "a row that comes again has its event_id")
}

// STATE, "Session Establishment": in a direct room of scheme mls the owner writes first, too.
func TestDirectRoomOfAGroup(t *testing.T) {
	t.Parallel()
	s := shared(t)
	owner, agent := s.ActiveDevice(t, "human", false), s.ActiveDevice(t, "agent", false)
	self := opened(t, s, owner, testkit.RoomOptions{Kind: "direct", Scheme: "mls"})
	other := added(t, s, owner, self.Room, agent, "agent")
	accepted(t, s, agent, self.Room, testkit.NewMLSCommit("pair", 0, 0, "begin").Adding("come in", self.ID))
	a, b := online(t, s, self), online(t, s, other)
	b.nacked(b.message(1), wire.NotActivated)
	a.says(a.message(1), 1, b)
	b.says(b.message(1), 1, a)
}

// FAULTS BL-I05: a device that is added to two rooms at the same moment gets a package for
// each; when there are none left the answer says whose, and hands out nothing. Who has few
// left is told.
func TestEveryClaimGetsItsOwnKeyPackage(t *testing.T) {
	t.Parallel()
	s := shared(t)
	owner, agent, idle := s.ActiveDevice(t, "human", false), s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "agent", false)
	var rooms, members []testkit.Participant
	for range 2 {
		rooms = append(rooms, opened(t, s, owner, testkit.RoomOptions{Scheme: "mls"}))
		members = append(members, added(t, s, owner, rooms[len(rooms)-1].Room, agent, "agent"))
	}
	without := added(t, s, owner, rooms[0].Room, idle, "agent")
	claim(t, s, owner, rooms[0].Room, members[0].ID).Refused(t, http.StatusConflict, wire.KeyPackagesExhausted)
	var packages []testkit.MLSKeyPackage
	for n := range 10 {
		packages = append(packages, testkit.NewMLSKeyPackage(fmt.Sprint("package ", n)))
	}
	s.PublishKeyPackages(t, agent, packages...).Demand(t, http.StatusOK)
	exhausted := claim(t, s, owner, rooms[0].Room, members[0].ID, without.ID)
	exhausted.Refused(t, http.StatusConflict, wire.KeyPackagesExhausted)
	require.Contains(t, exhausted.Body, without.ID)

	answers, errs := make([]testkit.Answer, 10), make([]error, 10)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-start
			body := map[string]any{"participant_ids": []string{members[i%2].ID}}
			answers[i], errs[i] = s.TryPublic(t, http.MethodPost, "/v1/rooms/"+rooms[i%2].Room+"/key-packages/claim", owner.AccessToken, body)
		})
	}
	close(start)
	all.Wait()
	seen := make(map[string]bool)
	for i, answer := range answers {
		require.NoError(t, errs[i])
		answer.Demand(t, http.StatusOK)
		require.False(t, seen[answer.Body], "handed out once")
		seen[answer.Body] = true
	}
	claim(t, s, owner, rooms[1].Room, members[1].ID).Refused(t, http.StatusConflict, wire.KeyPackagesExhausted)
	low := awaitEvents(t, s, members[0], "key_packages_low ")
	for _, frame := range low.events {
		if frame.RoomEvent.Event == wire.KeyPackagesLow {
			require.Less(t, *frame.RoomEvent.Remaining, int64(10))
		}
	}
	last := testkit.NewMLSKeyPackage("last resort")
	last.LastResort = true
	s.PublishKeyPackages(t, agent, last).Demand(t, http.StatusOK)
	for i, room := range rooms {
		require.Equal(t, map[string]string{members[i].ID: last.KeyPackage}, claimed(t, s, owner, room.Room, members[i].ID))
	}
}

// With --mls off nothing of groups is there, not even for the operator; with it, all is for
// devices that are in the room.
func TestGroupsAreForMembers(t *testing.T) {
	t.Parallel()
	requests := func(room string) map[string]any {
		return map[string]any{
			"POST /v1/devices/me/key-packages":     map[string]any{"key_packages": []any{testkit.NewMLSKeyPackage("x")}},
			"GET /v1/devices/me/key-packages":      nil,
			"POST " + room + "/key-packages/claim": map[string]any{"participant_ids": []string{"019ad2f0-6a40-7d52-8e13-2b9c4f5a6d70"}},
			"POST " + room + "/commits":            testkit.NewMLSCommit("group", 0, 0, "x"),
			"GET " + room + "/commits":             nil,
			"GET " + room + "/group-info":          nil,
			"GET " + room + "/welcome":             nil,
			"POST " + room + "/commits/1/report":   nil,
		}
	}
	off, on := unlimited(t), unlimited(t, testkit.MLS())
	owner := off.ActiveDevice(t, "human", false)
	self := opened(t, off, owner, testkit.RoomOptions{Scheme: "mls"})
	for request, body := range requests("/v1/rooms/" + self.Room) {
		method, path, _ := strings.Cut(request, " ")
		off.Public(t, method, path, owner.AccessToken, body).Refused(t, http.StatusForbidden, wire.MLSSchemeDisabled)
	}

	owner, stranger := on.ActiveDevice(t, "human", false), on.ActiveDevice(t, "agent", true)
	self = opened(t, on, owner, testkit.RoomOptions{Scheme: "mls"})
	operator, err := os.ReadFile(on.Data() + "/keys/operator.token")
	require.NoError(t, err)
	for request, body := range requests("/v1/rooms/" + self.Room) {
		method, path, _ := strings.Cut(request, " ")
		on.Public(t, method, path, string(bytes.TrimSpace(operator)), body).Refused(t, http.StatusForbidden, wire.Forbidden)
		if !strings.Contains(path, "/me/") {
			on.Public(t, method, path, stranger.AccessToken, body).Refused(t, http.StatusNotFound, wire.NotFound)
		}
		on.Public(t, method, path, "", body).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
	}
}

// What the server can tell of a commit it does: nothing is changed by one that is refused.
func TestCommitsThatDoNotFit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newGroup(t, s)
	before := groupOf(t, s, c.first, c.room())
	said := transcript(t)
	good := testkit.NewMLSCommit("group", 1, 0, "good")
	with := func(change func(*testkit.MLSCommit)) testkit.MLSCommit {
		changed := good
		change(&changed)
		return changed
	}
	other := func(info testkit.MLSCommit) testkit.MLSCommit {
		return with(func(m *testkit.MLSCommit) { m.GroupInfo = info.GroupInfo })
	}
	of := func(message string) testkit.MLSCommit {
		return with(func(m *testkit.MLSCommit) { m.Commit = message })
	}
	viewer, first := c.as[c.viewer].ID, c.as[c.first].ID
	large := func(n int) string { return strings.Repeat("x", n) }
	for name, r := range map[string]struct {
		body   any
		status int
		code   wire.Code
	}{
		"no commit":                  {of(""), 400, wire.MalformedRequest},
		"noise":                      {of("AAAA"), 400, wire.MalformedRequest},
		"base64 with a line break":   {of(good.Commit[:4] + "\n" + good.Commit[4:]), 400, wire.MalformedRequest},
		"base64 not padded":          {of("AAEAAgVncm91cAAAAAAAAAAAAwAAAA"), 400, wire.MalformedRequest},
		"a message":                  {of(said["1: application"]), 400, wire.MalformedRequest},
		"a proposal":                 {of(said["3: bob proposes in public"]), 400, wire.MalformedRequest},
		"a welcome":                  {of(said["0: add bob and carol: welcome"]), 400, wire.MalformedRequest},
		"a key package":              {of(said["bob: key package"]), 400, wire.MalformedRequest},
		"group info of this epoch":   {other(testkit.NewMLSCommit("group", 0, 0, "x")), 400, wire.MalformedRequest},
		"group info of the next one": {other(testkit.NewMLSCommit("group", 2, 0, "x")), 400, wire.MalformedRequest},
		"group info of another":      {other(testkit.NewMLSCommit("groups", 1, 0, "x")), 400, wire.MalformedRequest},
		"a commit as group info":     {with(func(m *testkit.MLSCommit) { m.GroupInfo = m.Commit }), 400, wire.MalformedRequest},
		"no group info":              {with(func(m *testkit.MLSCommit) { m.GroupInfo = "" }), 400, wire.MalformedRequest},
		"a group without an id":      {testkit.NewMLSCommit("", 1, 0, "x"), 400, wire.MalformedRequest},
		"a long id":                  {testkit.NewMLSCommit(large(256), 1, 0, "x"), 400, wire.MalformedRequest},
		"an epoch without a next":    {testkit.NewMLSCommit("group", 1<<53-1, 0, "x"), 400, wire.MalformedRequest},
		"an epoch that is no number": {map[string]any{"epoch": "1", "commit": good.Commit, "group_info": good.GroupInfo}, 400, wire.MalformedRequest},
		"no epoch":                   {map[string]any{"commit": good.Commit, "group_info": good.GroupInfo}, 400, wire.MalformedRequest},
		"a member more":              {map[string]any{"epoch": 1, "commit": good.Commit, "group_info": good.GroupInfo, "force": true}, 400, wire.MalformedRequest},
		"null":                       {map[string]any{"epoch": 1, "commit": good.Commit, "group_info": good.GroupInfo, "added": nil}, 400, wire.MalformedRequest},
		"welcome for nobody":         {with(func(m *testkit.MLSCommit) { m.Welcome = good.Adding("w").Welcome }), 400, wire.MalformedRequest},
		"nobody welcomed":            {with(func(m *testkit.MLSCommit) { m.Added = []string{viewer} }), 400, wire.MalformedRequest},
		"another welcome":            {with(func(m *testkit.MLSCommit) { m.Added, m.Welcome = []string{viewer}, m.Commit }), 400, wire.MalformedRequest},
		"added twice":                {good.Adding("w", viewer, viewer), 400, wire.MalformedRequest},
		"added by no id":             {good.Adding("w", "me"), 400, wire.MalformedRequest},
		"added too many":             {good.Adding("w", slices.Repeat([]string{viewer}, 101)...), 400, wire.MalformedRequest},
		"removed too many":           {good.Removing(slices.Repeat([]string{viewer}, 501)...), 400, wire.MalformedRequest},
		"removes itself":             {good.Removing(first), 400, wire.MalformedRequest},
		"a stranger added":           {good.Adding("w", c.owner.ID), 404, wire.NotFound},
		"a stranger removed":         {good.Removing(c.owner.ID), 404, wire.NotFound},
		"a member added":             {good.Adding("w", c.as[c.owner].ID), 409, wire.Conflict},
		"another group":              {testkit.NewMLSCommit("groups", 1, 0, "x"), 409, wire.Conflict},
		"an epoch of the group":      {testkit.NewMLSCommit("group", 1, 1, "x"), 409, wire.Conflict},
		"an epoch before":            {testkit.NewMLSCommit("group", 0, 0, "x"), 409, wire.EpochConflict},
		"an epoch after":             {testkit.NewMLSCommit("group", 2, 0, "x"), 409, wire.EpochConflict},
		"a large commit":             {testkit.NewMLSCommit("group", 1, 0, large(70<<10)), 413, wire.TooLarge},
		"a large group info":         {other(testkit.NewMLSCommit("group", 1, 0, large(300<<10))), 413, wire.TooLarge},
		"a large welcome":            {good.Adding(large(513<<10), viewer), 413, wire.TooLarge},
		"a large body":               {of(base64.StdEncoding.EncodeToString(make([]byte, 2<<20))), 413, wire.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			require.Eventually(t, func() bool { // 20 in a second
				answer := askOf(t, s, c.first, http.MethodPost, c.room(), "/commits", r.body)
				if answer.Status == http.StatusTooManyRequests {
					return false
				}
				answer.Refused(t, r.status, r.code)
				return true
			}, patience, 100*time.Millisecond)
			require.Equal(t, before, groupOf(t, s, c.first, c.room()))
		})
	}
	require.Eventually(t, func() bool {
		return commit(t, s, c.first, c.room(), good.Adding(large(400<<10), viewer)).Status == http.StatusCreated
	}, patience, 100*time.Millisecond, "what is refused above is refused for that one thing")

	plain := opened(t, s, c.owner, testkit.RoomOptions{})
	commit(t, s, c.owner, plain.Room, testkit.NewMLSCommit("group", 0, 0, "x")).Refused(t, http.StatusConflict, wire.Conflict)
	for _, query := range []string{"after_epoch=-1", "after_epoch=x", "after_epoch=01", "limit=0", "limit=501", "after=1"} {
		askOf(t, s, c.first, http.MethodGet, c.room(), "/commits?"+query, nil).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	}
}

// What is wrong with key packages and claims is refused, and changes nothing.
func TestKeyPackagesThatDoNotFit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCrew(t, s, testkit.RoomOptions{Scheme: "mls"})
	good := testkit.NewMLSKeyPackage("good")
	with := func(change func(*testkit.MLSKeyPackage)) []testkit.MLSKeyPackage {
		changed := testkit.NewMLSKeyPackage("changed")
		change(&changed)
		return []testkit.MLSKeyPackage{good, changed}
	}
	for name, r := range map[string]struct {
		packages []testkit.MLSKeyPackage
		status   int
		code     wire.Code
	}{
		"none":           {nil, 400, wire.MalformedRequest},
		"too many":       {slices.Repeat([]testkit.MLSKeyPackage{good}, 101), 400, wire.MalformedRequest},
		"no key package": {with(func(p *testkit.MLSKeyPackage) { p.KeyPackage = testkit.NewMLSCommit("g", 0, 0, "x").Commit }), 400, wire.MalformedRequest},
		"noise":          {with(func(p *testkit.MLSKeyPackage) { p.KeyPackage = "AAAA" }), 400, wire.MalformedRequest},
		"expired":        {with(func(p *testkit.MLSKeyPackage) { p.ExpiresAt = time.Now().Add(-time.Minute) }), 400, wire.MalformedRequest},
		"for 91 days":    {with(func(p *testkit.MLSKeyPackage) { p.ExpiresAt = time.Now().Add(91 * 24 * time.Hour) }), 400, wire.MalformedRequest},
		"for ever":       {with(func(p *testkit.MLSKeyPackage) { p.ExpiresAt = time.Time{} }), 400, wire.MalformedRequest},
		"too large": {with(func(p *testkit.MLSKeyPackage) {
			p.KeyPackage = testkit.NewMLSKeyPackage(strings.Repeat("x", 16<<10)).KeyPackage
		}), 413, wire.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			packages := r.packages
			if packages == nil {
				packages = []testkit.MLSKeyPackage{}
			}
			s.PublishKeyPackages(t, c.first, packages...).Refused(t, r.status, r.code)
			require.JSONEq(t, `{"available":0,"last_resort":false}`, s.Public(t, http.MethodGet, "/v1/devices/me/key-packages", c.first.AccessToken, nil).Body)
		})
	}
	var most []testkit.MLSKeyPackage
	for n := range 100 {
		most = append(most, testkit.NewMLSKeyPackage(fmt.Sprint(n, " ", strings.Repeat("x", 16<<10-20))))
	}
	s.PublishKeyPackages(t, c.first, most...).Demand(t, http.StatusOK)

	first, viewer := c.as[c.first].ID, c.as[c.viewer].ID
	for name, r := range map[string]struct {
		by     *testkit.Device
		of     []string
		status int
		code   wire.Code
	}{
		"nobody":     {c.owner, []string{}, 400, wire.MalformedRequest},
		"no id":      {c.owner, []string{"me"}, 400, wire.MalformedRequest},
		"too many":   {c.owner, slices.Repeat([]string{first}, 101), 400, wire.MalformedRequest},
		"twice":      {c.owner, []string{first, first}, 400, wire.MalformedRequest},
		"itself":     {c.first, []string{first}, 400, wire.MalformedRequest},
		"a stranger": {c.owner, []string{first, c.owner.ID}, 404, wire.NotFound},
		"a viewer":   {c.viewer, []string{first}, 403, wire.Forbidden},
		"without":    {c.owner, []string{first, viewer}, 409, wire.KeyPackagesExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			claim(t, s, r.by, c.room(), r.of...).Refused(t, r.status, r.code)
			require.Contains(t, s.Public(t, http.MethodGet, "/v1/devices/me/key-packages", c.first.AccessToken, nil).Body, `"available":100`)
		})
	}
}
