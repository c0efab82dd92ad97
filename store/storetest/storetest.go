// Package storetest is the one suite that every implementation of store.Store passes,
// and every one of store.Edge. It tests the sentences of the interfaces' comments, a
// file per role.
package storetest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// Subject is a store under test and what its interfaces have no words for.
type Subject struct {
	// Store is where tests prepare what they need, and what is under test for every role
	// that is not part of Edge.
	Store store.Store
	// Edge is what is under test for the roles it has; nil: Store.
	Edge store.Edge
	// NewTenant makes another tenant.
	NewTenant func(t *testing.T) uuid.UUID
	// NewDevice makes a device without a room; state is DevicePending or DeviceActive.
	NewDevice func(t *testing.T, tenant uuid.UUID, state store.DeviceState) uuid.UUID
	// SetDeviceState moves a device, by a move that is allowed.
	SetDeviceState func(t *testing.T, tenant, device uuid.UUID, state store.DeviceState)
	// ArchiveRoom moves a room to ARCHIVED.
	ArchiveRoom func(t *testing.T, tenant, room uuid.UUID)
	// SetRoomState moves a room that is ACTIVE or REKEYING to either.
	SetRoomState func(t *testing.T, tenant, room uuid.UUID, state store.RoomState)
	// SetEpoch says in which epoch an MLS room's group is.
	SetEpoch func(t *testing.T, tenant, room uuid.UUID, epoch uint64)
	// HistoryRows counts the rows stored in a room.
	HistoryRows func(t *testing.T, tenant, room uuid.UUID) int
}

// suite is the tests of some roles.
type suite map[string]func(*testing.T, Subject)

// Run runs the whole suite; open returns a store on an empty database.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	storeSuite.run(t, open)
	edgeSuite.run(t, open)
}

// RunEdge runs the tests of the roles of store.Edge.
func RunEdge(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	edgeSuite.run(t, open)
}

var (
	storeSuite = suite{
		"Participants": testParticipants,
		"Minting":      testMinting,

		"OpenRoom":  testOpenRoom,
		"RoomPages": testRoomPages,
		"Managing":  testManaging,
		"Archiving": testArchiving,
		"Resetting": testResetting,
		"Leaving":   testLeaving,
		"RoomRaces": testRoomRaces,

		"HistoryRead":    testHistoryRead,
		"Pages":          testPages,
		"VerifiedTraces": testVerifiedTraces,
		"Epochs":         testEpochs,

		"Invites":         testInvites,
		"Enrolling":       testEnrolling,
		"Devices":         testDevices,
		"Memberships":     testMemberships,
		"RevocationRaces": testRevocationRaces,

		"KeyPackages": testKeyPackages,
		"Groups":      testGroups,
		"GroupEnds":   testGroupEnds,
		"CommitRaces": testCommitRaces,

		"SigningIn":   testSigningIn,
		"Prekeys":     testPrekeys,
		"Tenancy":     testTenancy,
		"TenantPages": testTenantPages,
		"CursorKeys":  testCursorKeys,
	}
	// edgeSuite is what also holds for a store that is asked over a network.
	edgeSuite = suite{
		"Tenants":      testTenants,
		"Rooms":        testRooms,
		"Revoking":     testRevoking,
		"Authenticate": testAuthenticate,
		"History":      testHistory,
		"HistoryRaces": testHistoryRaces,
		"KeptApart":    testKeptApart,

		"DirectRooms":            testFirstMessages,
		"Generations of senders": testRetiredGenerations,

		"Traces":  testTraces,
		"Schemes": testSchemes,

		"Notices":          testNotices,
		"NoticeRaces":      testNoticeRaces,
		"NoticesKeptApart": testNoticesKeptApart,
		"Rules":            testRules,
		"Generations":      testGenerations,
	}
)

func (tests suite) run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if s.Edge == nil {
				s.Edge = s.Store
			}
			test(t, s)
		})
	}
}

// fixture is a subject and a tenant that no other test knows.
type fixture struct {
	Subject
	tenant uuid.UUID
}

func newFixture(t *testing.T, s Subject) fixture {
	t.Helper()
	return fixture{s, s.NewTenant(t)}
}

func (f fixture) newRoom(t *testing.T, kind store.RoomKind) store.Room {
	t.Helper()
	scheme := store.SchemeSenderKeys
	if kind == store.RoomDirect {
		scheme = store.SchemeDoubleRatchet
	}
	room, err := f.Store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: f.tenant, Kind: kind, Scheme: scheme, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	return room
}

func (f fixture) add(t *testing.T, room uuid.UUID, role store.Role) store.Participant {
	t.Helper()
	p, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room, Role: role})
	require.NoError(t, err)
	return p
}

// member is a new participant of a new group room.
func (f fixture) member(t *testing.T) store.Participant {
	t.Helper()
	return f.add(t, f.newRoom(t, store.RoomGroup).ID, store.RoleAgent)
}

func (f fixture) remove(t *testing.T, p store.Participant) {
	t.Helper()
	_, err := f.Store.RemoveParticipant(t.Context(), p.Tenant, p.Room, p.ID, uuid.Nil)
	require.NoError(t, err)
}

func (f fixture) mint(t *testing.T, p store.Participant, ttl time.Duration) (store.Credential, store.TokenHash) {
	t.Helper()
	hash := newHash()
	c, err := f.Store.MintCredential(t.Context(), p.Tenant, p.ID, store.CredentialSession, hash, ttl)
	require.NoError(t, err)
	return c, hash
}

func newHash() (hash store.TokenHash) {
	_, _ = rand.Read(hash[:]) // never fails
	return hash
}

func newID(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id
}
