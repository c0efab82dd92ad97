package storetest

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var (
	errSchemeMismatch = &wire.Error{Code: wire.SchemeMismatch}
	errMLSDisabled    = &wire.Error{Code: wire.MLSSchemeDisabled}
	errRemovalPending = &wire.Error{Code: wire.MLSRemovalPending}
	errRetired        = &wire.Error{Code: wire.MLSRetired}
	errUnknownGen     = &wire.Error{Code: wire.MLSUnknown}
	errNotActivated   = &wire.Error{Code: wire.NotActivated}
	errArchived       = &wire.Error{Code: wire.RoomIsArchived}
)

// schemeMember is an agent of a new room of the scheme. In a direct room the owner has
// written.
func (f fixture) schemeMember(t *testing.T, scheme store.Scheme) store.Participant {
	t.Helper()
	kind := store.RoomGroup
	if scheme == store.SchemeDoubleRatchet {
		kind = store.RoomDirect
	}
	room, err := f.Store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: f.tenant, Kind: kind, Scheme: scheme, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	if kind == store.RoomDirect {
		_, err := f.Store.AppendMessage(t.Context(), message(f.add(t, room.ID, store.RoleOwner), "first", "x"))
		require.NoError(t, err)
	}
	return f.add(t, room.ID, store.RoleAgent)
}

// What a room's scheme takes. Every kind with every set of markers that is not listed is
// refused: RELAY, e2ee_scheme_mismatch.
var taken = map[store.Scheme]map[wire.Kind][]string{
	store.SchemeSenderKeys: {
		wire.KindMessage: {"", "kid"}, wire.KindSenderKey: {"", "kid"},
		wire.KindControl: {"", "kid"}, wire.KindKeyRequest: {"", "kid"},
	},
	store.SchemeDoubleRatchet: {wire.KindMessage: {"", "hdr"}, wire.KindControl: {"", "hdr"}},
	store.SchemeNone:          {wire.KindControl: {""}},
}

var markerSets = map[string]func(*store.Message){
	"":        func(*store.Message) {},
	"kid":     func(m *store.Message) { m.KID = "AAAAAAAAAAAAAAAAAAAAAA" },
	"enc":     func(m *store.Message) { m.Enc = "pairwise" },
	"hdr":     func(m *store.Message) { m.Hdr = true },
	"kid hdr": func(m *store.Message) { m.KID, m.Hdr = "AAAAAAAAAAAAAAAAAAAAAA", true },
	"kid enc": func(m *store.Message) { m.KID, m.Enc = "AAAAAAAAAAAAAAAAAAAAAA", "pairwise" },
	"enc hdr": func(m *store.Message) { m.Enc, m.Hdr = "pairwise", true },
}

var historyKinds = []wire.Kind{wire.KindMessage, wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest}

func testSchemes(t *testing.T, s Subject) {
	f := newFixture(t, s)
	for scheme, kinds := range taken {
		p := f.schemeMember(t, scheme)
		stored := s.HistoryRows(t, f.tenant, p.Room)
		for _, kind := range historyKinds {
			for markers, mark := range markerSets {
				m := message(p, fmt.Sprintf("%s-%s", kind, quoteID(markers)), "x")
				m.Kind = kind
				mark(&m)
				want := errSchemeMismatch
				for _, fits := range kinds[kind] {
					if fits == markers {
						want, stored = nil, stored+1
					}
				}
				_, err := s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
				requireIs(t, err, want, "%s in %s with %q", kind, scheme, markers)
			}
		}
		require.Equal(t, stored, s.HistoryRows(t, f.tenant, p.Room), scheme)
	}
}

func quoteID(markers string) string { return fmt.Sprintf("%x", markers) }

// requireIs is ErrorIs for a refusal that may be none.
func requireIs(t *testing.T, err error, want *wire.Error, format string, args ...any) {
	t.Helper()
	if want == nil {
		require.NoErrorf(t, err, format, args...)
		return
	}
	require.ErrorIsf(t, err, want, format, args...)
}

// epochRoom is an MLS room with a sender.
type epochRoom struct {
	fixture

	p store.Participant
}

func (r epochRoom) try(t *testing.T, id string, kind wire.Kind, gen uint64, mark string, want *wire.Error) {
	t.Helper()
	before := r.HistoryRows(t, r.tenant, r.p.Room)
	m := message(r.p, id, "x")
	m.Kind, m.Gen = kind, gen
	markerSets[mark](&m)
	_, err := r.Edge.AppendMessage(t.Context(), sealed(m, "x"))
	requireIs(t, err, want, "%s of gen %d with %q", kind, gen, mark)
	if want != nil {
		require.Equal(t, before, r.HistoryRows(t, r.tenant, r.p.Room), "nothing was stored")
	}
}

// testEpochs: the MLS refusals of RELAY, "When the API refuses the store"; DESIGN section
// 1: gen is the room's epoch. The subject has MLS switched on.
func testEpochs(t *testing.T, s Subject) {
	f := newFixture(t, s)
	r := epochRoom{f, f.schemeMember(t, store.SchemeMLS)}
	message, control := wire.KindMessage, wire.KindControl

	r.try(t, "no-group", message, 0, "", errUnknownGen)
	r.try(t, "no-group", message, 1, "", errUnknownGen)
	r.try(t, "control", control, 7, "", nil)

	s.SetEpoch(t, f.tenant, r.p.Room, 0)
	r.try(t, "first", message, 0, "", nil)
	r.try(t, "next", message, 1, "", errUnknownGen)
	s.SetEpoch(t, f.tenant, r.p.Room, 5)
	r.try(t, "now", message, 5, "", nil)
	r.try(t, "old", message, 4, "", errRetired)
	r.try(t, "oldest", message, 0, "", errRetired)
	r.try(t, "new", message, 6, "", errUnknownGen)
	r.try(t, "far", message, wire.MaxInteger, "", errUnknownGen)
	r.try(t, "first", message, 0, "", nil) // a resend is a resend
	for mark := range markerSets {
		if mark != "" {
			r.try(t, "marked", message, 5, mark, errSchemeMismatch)
			r.try(t, "marked", control, 5, mark, errSchemeMismatch)
		}
	}
	r.try(t, "keys", wire.KindSenderKey, 5, "", errSchemeMismatch)
	r.try(t, "keys", wire.KindKeyRequest, 5, "", errSchemeMismatch)

	s.SetRoomState(t, f.tenant, r.p.Room, store.RoomRekeying)
	r.try(t, "pending", message, 5, "", errRemovalPending)
	r.try(t, "pending", message, 4, "", errRemovalPending)
	r.try(t, "pending", message, 5, "kid", errSchemeMismatch)
	r.try(t, "now", message, 5, "", nil)
	r.try(t, "control-2", control, 5, "", nil)
	_, err := s.Edge.AppendMessage(t.Context(), sealed(store.Message{
		Tenant: f.tenant, Room: r.p.Room, Sender: r.p.ID, ID: "now", Kind: message, Gen: 5,
	}, "other"))
	require.ErrorIs(t, err, errConflict)
	s.SetRoomState(t, f.tenant, r.p.Room, store.RoomActive)
	r.try(t, "pending", message, 5, "", nil)

	t.Run("an epoch is its room's", func(t *testing.T) {
		other := epochRoom{f, f.schemeMember(t, store.SchemeMLS)}
		other.try(t, "m", message, 5, "", errUnknownGen)
		s.SetEpoch(t, f.tenant, other.p.Room, 1)
		other.try(t, "m", message, 5, "", errUnknownGen)
		other.try(t, "m", message, 1, "", nil)
	})

	t.Run("REKEYING stops no other scheme", func(t *testing.T) {
		keys := epochRoom{f, f.member(t)}
		s.SetRoomState(t, f.tenant, keys.p.Room, store.RoomRekeying)
		keys.try(t, "m", message, 5, "", nil)
	})

	t.Run("senders of all epochs at once", func(t *testing.T) {
		r := epochRoom{f, f.schemeMember(t, store.SchemeMLS)}
		s.SetEpoch(t, f.tenant, r.p.Room, 1)
		errs := race(60, func(i int) error {
			m := store.Message{Tenant: f.tenant, Room: r.p.Room, Sender: r.p.ID, ID: strconv.Itoa(i), Kind: message, Gen: uint64(i % 3)}
			_, err := s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
			return err
		})
		for i, err := range errs {
			requireIs(t, err, []*wire.Error{errRetired, nil, errUnknownGen}[i%3], "gen %d", i%3)
		}
		require.Equal(t, 20, s.HistoryRows(t, f.tenant, r.p.Room))
	})
}

// TestMLSOff is for a subject that has MLS switched off: every envelope to an MLS room is
// refused, whatever the state of its group.
func TestMLSOff(t *testing.T, s Subject) {
	t.Helper()
	if s.Edge == nil {
		s.Edge = s.Store
	}
	f := newFixture(t, s)
	r := epochRoom{f, f.schemeMember(t, store.SchemeMLS)}
	s.SetEpoch(t, f.tenant, r.p.Room, 3)
	for _, kind := range historyKinds {
		for mark := range markerSets {
			r.try(t, "m", kind, 3, mark, errMLSDisabled)
		}
	}
	require.Zero(t, s.HistoryRows(t, f.tenant, r.p.Room))
	errs := race(4, func(int) error { // alone or together
		_, err := s.Edge.AppendMessage(t.Context(), message(r.p, uuid.NewString(), "x"))
		return err
	})
	require.Equal(t, 4, count(errs, errMLSDisabled))
}
