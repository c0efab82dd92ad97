package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func testPrekeys(t *testing.T, s Subject) {
	t.Run("publishing", func(t *testing.T) { testPublishPrekeys(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("publishing what is refused", func(t *testing.T) { testPrekeysRefused(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("at most so many", func(t *testing.T) { testMaxPrekeys(t, newFixture(t, s)) })
	t.Run("signed prekeys", func(t *testing.T) { testSignedPrekeys(t, newFixture(t, s)) })
	t.Run("taking", func(t *testing.T) { testTakePrekeys(t, newFixture(t, s)) })
	t.Run("taken once", func(t *testing.T) { testPrekeysTakenOnce(t, newFixture(t, s)) })
	t.Run("taking each other's", func(t *testing.T) { testTakeEachOthers(t, newFixture(t, s)) })
	t.Run("who may take", func(t *testing.T) { testWhoTakes(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("states of devices", func(t *testing.T) { testTakeInStates(t, newFixture(t, s)) })
	t.Run("warnings", func(t *testing.T) { testPrekeysLow(t, newFixture(t, s)) })
	t.Run("revoked", func(t *testing.T) { testRevokedPrekeys(t, newFixture(t, s)) })
}

// prekeys are those with these ids, both included.
func prekeys(first, last uint32) (made []store.OneTimePrekey) {
	for id := first; id <= last; id++ {
		made = append(made, store.OneTimePrekey{ID: id, Key: newHash()})
	}
	return made
}

func signedPrekey(id uint32) *store.SignedPrekey {
	return &store.SignedPrekey{ID: id, Key: newHash(), Signature: [64]byte{byte(id)}}
}

func (f fixture) publish(t *testing.T, device uuid.UUID, signed *store.SignedPrekey, oneTime ...store.OneTimePrekey) store.PrekeyStock {
	t.Helper()
	stock, err := f.Store.PublishPrekeys(t.Context(), f.tenant, device, signed, oneTime)
	require.NoError(t, err)
	require.Equal(t, stock, f.stock(t, device))
	return stock
}

func (f fixture) stock(t *testing.T, device uuid.UUID) store.PrekeyStock {
	t.Helper()
	stock, err := f.Store.PrekeyStock(t.Context(), f.tenant, device)
	require.NoError(t, err)
	return stock
}

func (f fixture) take(t *testing.T, device, by uuid.UUID) store.PrekeyBundle {
	t.Helper()
	bundle, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, device, by)
	require.NoError(t, err)
	return bundle
}

// couple are an owner's and an agent's device in a direct room.
type couple struct {
	room         store.Room
	owner, agent store.Device
	of           map[uuid.UUID]store.Participant // by device
}

func (f fixture) couple(t *testing.T) couple {
	t.Helper()
	p := couple{room: f.newRoom(t, store.RoomDirect), owner: f.human(t), agent: f.active(t, false), of: make(map[uuid.UUID]store.Participant)}
	for role, device := range map[store.Role]store.Device{store.RoleOwner: p.owner, store.RoleAgent: p.agent} {
		p.of[device.ID] = f.joinAs(t, p.room.ID, device.ID, role)
	}
	return p
}

func (f fixture) joinAs(t *testing.T, room, device uuid.UUID, role store.Role) store.Participant {
	t.Helper()
	joined, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room, Device: device, Role: role})
	require.NoError(t, err)
	return joined
}

func testPublishPrekeys(t *testing.T, f, other fixture) {
	for _, state := range []store.DeviceState{store.DeviceApproved, store.DeviceActive} {
		device := f.in(t, state).ID
		require.Zero(t, f.stock(t, device))
		require.Zero(t, f.publish(t, device, nil), "nothing is nothing")
		keys := prekeys(5, 8)
		require.Equal(t, store.PrekeyStock{SignedID: 3, LastID: 8, OneTime: 4}, f.publish(t, device, signedPrekey(3), keys[2], keys[0], keys[3], keys[1]))
		require.Equal(t, store.PrekeyStock{SignedID: 3, LastID: 8, OneTime: 4}, f.publish(t, device, nil, keys...), "again")
		require.Equal(t, store.PrekeyStock{SignedID: 3, LastID: 8, OneTime: 4}, f.publish(t, device, nil, prekeys(1, 4)...), "below the highest")
		more := slices.Concat(keys[3:], prekeys(9, 10))
		require.Equal(t, store.PrekeyStock{SignedID: 3, LastID: 10, OneTime: 6}, f.publish(t, device, nil, more...), "some of them again")
		require.Equal(t, store.PrekeyStock{SignedID: 3, LastID: store.MaxPrekeyID, OneTime: 7},
			f.publish(t, device, nil, store.OneTimePrekey{ID: store.MaxPrekeyID, Key: newHash()}))
	}
	// FAULTS BL-G06: ids and keys are a device's own.
	mine, its, theirs := f.active(t, false).ID, f.active(t, false).ID, other.active(t, false).ID
	signed, keys := signedPrekey(1), prekeys(1, 2)
	for f, device := range map[*fixture]uuid.UUID{&f: mine, &other: theirs} {
		require.Equal(t, store.PrekeyStock{SignedID: 1, LastID: 2, OneTime: 2}, f.publish(t, device, signed, keys...))
	}
	require.Equal(t, store.PrekeyStock{SignedID: 1, LastID: 2, OneTime: 2}, f.publish(t, its, signed, keys...))
}

// testPrekeysRefused: what is refused changes nothing, the good part of it neither.
func testPrekeysRefused(t *testing.T, f, other fixture) {
	device := f.active(t, false).ID
	keys := prekeys(10, 12)
	before := f.publish(t, device, signedPrekey(5), keys...)
	good := prekeys(20, 21)
	for name, c := range map[string]struct {
		signed  *store.SignedPrekey
		oneTime []store.OneTimePrekey
		want    error
	}{
		"signed id 0":                {signedPrekey(0), good, store.ErrInvalid},
		"signed id too high":         {signedPrekey(store.MaxPrekeyID + 1), good, store.ErrInvalid},
		"id 0":                       {signedPrekey(6), append(prekeys(0, 0), good...), store.ErrInvalid},
		"id too high":                {signedPrekey(6), append(good, store.OneTimePrekey{ID: store.MaxPrekeyID + 1, Key: newHash()}), store.ErrInvalid},
		"an id twice":                {signedPrekey(6), append(prekeys(21, 21), good...), store.ErrInvalid},
		"a key twice":                {signedPrekey(6), append(good, store.OneTimePrekey{ID: 22, Key: good[0].Key}), store.ErrInvalid},
		"stored with another key":    {signedPrekey(6), append(prekeys(11, 11), good...), store.ErrConflict},
		"stored under another id":    {signedPrekey(6), append(good, store.OneTimePrekey{ID: 22, Key: keys[0].Key}), store.ErrConflict},
		"an older signed prekey":     {signedPrekey(4), good, store.ErrConflict},
		"another key of the same id": {signedPrekey(5), good, store.ErrConflict},
		"too many":                   {signedPrekey(6), prekeys(20, 20+store.MaxPrekeys), store.ErrConflict},
		"too many with those before": {signedPrekey(6), prekeys(20, 20+store.MaxPrekeys-3), store.ErrConflict},
	} {
		_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, device, c.signed, c.oneTime)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, before, f.stock(t, device), name)
	}
	for name, state := range map[string]store.DeviceState{"pending": store.DevicePending, "suspended": store.DeviceSuspended, "revoked": store.DeviceRevoked} {
		_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, f.in(t, state).ID, signedPrekey(1), prekeys(1, 1))
		require.ErrorIs(t, err, store.ErrConflict, name)
	}
	for name, id := range map[string]uuid.UUID{"nobody's": newID(t), "another tenant's": other.active(t, false).ID} {
		_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, id, nil, prekeys(1, 1))
		require.ErrorIs(t, err, store.ErrNotFound, name)
		_, err = f.Store.PrekeyStock(t.Context(), f.tenant, id)
		require.ErrorIs(t, err, store.ErrNotFound, name)
	}
}

// testMaxPrekeys: what was handed out makes room, however many were uploaded in all.
func testMaxPrekeys(t *testing.T, f fixture) {
	p := f.couple(t)
	all := prekeys(1, store.MaxPrekeys)
	require.Equal(t, store.PrekeyStock{SignedID: 1, LastID: store.MaxPrekeys, OneTime: store.MaxPrekeys}, f.publish(t, p.agent.ID, signedPrekey(1), all...))
	f.publish(t, p.agent.ID, nil, all...)
	next := prekeys(store.MaxPrekeys+1, store.MaxPrekeys+1)
	_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, p.agent.ID, nil, next)
	require.ErrorIs(t, err, store.ErrConflict)
	f.take(t, p.agent.ID, p.owner.ID)
	require.Equal(t, store.MaxPrekeys, f.publish(t, p.agent.ID, nil, next...).OneTime)
	require.Equal(t, store.MaxPrekeys, f.publish(t, p.agent.ID, nil, all...).OneTime, "the one that was handed out is not stored again")

	// What many upload at once is bounded, too.
	device := f.active(t, false).ID
	results := race(8, func(i int) error {
		first := uint32(1 + 40*i)
		_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, device, nil, prekeys(first, first+39))
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("unexpected: %w", err)
		}
		return nil
	})
	require.Equal(t, len(results), count(results, nil))
	require.LessOrEqual(t, f.stock(t, device).OneTime, store.MaxPrekeys)
}

func testSignedPrekeys(t *testing.T, f fixture) {
	p := f.couple(t)
	first, second := signedPrekey(1), signedPrekey(7)
	f.publish(t, p.agent.ID, first)
	require.Equal(t, *first, f.take(t, p.agent.ID, p.owner.ID).Signed)
	f.publish(t, p.agent.ID, first)
	f.publish(t, p.agent.ID, second)
	require.Equal(t, *second, f.take(t, p.agent.ID, p.owner.ID).Signed)
	again := *second
	again.Signature = [64]byte{99}
	f.publish(t, p.agent.ID, &again)
	require.Equal(t, again, f.take(t, p.agent.ID, p.owner.ID).Signed, "signed anew")
	f.publish(t, p.agent.ID, nil, prekeys(1, 1)...)
	require.Equal(t, again, f.take(t, p.agent.ID, p.owner.ID).Signed, "as it was")
}

// testTakePrekeys: X3DH goes on without a one-time prekey when there is none any more, and
// with one as soon as there is (X3DH, section 3.2).
func testTakePrekeys(t *testing.T, f fixture) {
	p := f.couple(t)
	signed, keys := signedPrekey(1), prekeys(1, 3)
	f.publish(t, p.agent.ID, signed, keys[2], keys[0], keys[1])
	for i := range keys {
		require.Equal(t, store.PrekeyBundle{Device: p.agent, Signed: *signed, OneTime: &keys[i]}, f.take(t, p.agent.ID, p.owner.ID), "the lowest first")
		require.Equal(t, store.PrekeyStock{SignedID: 1, LastID: 3, OneTime: len(keys) - i - 1}, f.stock(t, p.agent.ID))
	}
	for range 2 {
		require.Equal(t, store.PrekeyBundle{Device: p.agent, Signed: *signed}, f.take(t, p.agent.ID, p.owner.ID))
	}
	require.Zero(t, f.publish(t, p.agent.ID, nil, keys...).OneTime, "what was handed out is not stored again")
	require.Nil(t, f.take(t, p.agent.ID, p.owner.ID).OneTime)
	next := prekeys(4, 4)
	f.publish(t, p.agent.ID, nil, next...)
	require.Equal(t, &next[0], f.take(t, p.agent.ID, p.owner.ID).OneTime)

	_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.owner.ID, p.agent.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "nothing was published")
	unsigned := prekeys(1, 1)
	f.publish(t, p.owner.ID, nil, unsigned...)
	_, err = f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.owner.ID, p.agent.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "no signed prekey")
	require.Equal(t, 1, f.stock(t, p.owner.ID).OneTime, "nothing was handed out")
	f.publish(t, p.owner.ID, signedPrekey(1))
	require.Equal(t, &unsigned[0], f.take(t, p.owner.ID, p.agent.ID).OneTime)

	_, err = f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.owner.ID, p.owner.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "its own")
}

// testPrekeysTakenOnce: 50 who ask at the same time get 40 prekeys, each once, and ten get
// none; a device that repeats its upload meanwhile brings none back.
func testPrekeysTakenOnce(t *testing.T, f fixture) {
	p := f.couple(t)
	room := f.newRoom(t, store.RoomGroup).ID
	f.join(t, room, p.agent.ID)
	takers := []uuid.UUID{p.owner.ID}
	for range 4 {
		taker := f.active(t, false).ID
		f.join(t, room, taker)
		takers = append(takers, taker)
	}
	keys := prekeys(1, 40)
	f.publish(t, p.agent.ID, signedPrekey(1), keys...)
	var (
		mu    sync.Mutex
		taken = make(map[store.OneTimePrekey]int)
		none  int
	)
	results := race(55, func(i int) error {
		if i >= 50 {
			_, err := f.Store.PublishPrekeys(t.Context(), f.tenant, p.agent.ID, nil, keys)
			return err
		}
		bundle, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.agent.ID, takers[i%len(takers)])
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
		case bundle.OneTime == nil:
			none++
		default:
			taken[*bundle.OneTime]++
		}
		return err
	})
	require.Equal(t, 55, count(results, nil))
	require.Equal(t, 10, none)
	require.Len(t, taken, 40)
	for _, key := range keys {
		require.Equal(t, 1, taken[key], key.ID)
	}
	require.Zero(t, f.stock(t, p.agent.ID).OneTime)
}

func testTakeEachOthers(t *testing.T, f fixture) {
	p := f.couple(t)
	f.publish(t, p.agent.ID, signedPrekey(1), prekeys(1, 30)...)
	f.publish(t, p.owner.ID, signedPrekey(1), prekeys(1, 30)...)
	results := race(40, func(i int) error {
		device, by := p.agent.ID, p.owner.ID
		if i%2 == 0 {
			device, by = by, device
		}
		_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, device, by)
		return err
	})
	require.Equal(t, 40, count(results, nil))
	require.Equal(t, 10, f.stock(t, p.owner.ID).OneTime)
	require.Equal(t, 10, f.stock(t, p.agent.ID).OneTime)
}

// testWhoTakes: for whoever shares no room with the device it does not exist, and nothing is
// handed out.
func testWhoTakes(t *testing.T, f, other fixture) {
	p := f.couple(t)
	f.publish(t, p.agent.ID, signedPrekey(1), prekeys(1, 5)...)
	stranger, former := f.active(t, false).ID, f.active(t, false).ID
	f.join(t, f.newRoom(t, store.RoomGroup).ID, stranger)
	left := f.newRoom(t, store.RoomGroup).ID
	f.join(t, left, p.agent.ID)
	f.remove(t, f.join(t, left, former))
	archived, reader := f.newRoom(t, store.RoomGroup).ID, f.active(t, false).ID
	f.join(t, archived, p.agent.ID)
	f.join(t, archived, reader)
	f.ArchiveRoom(t, f.tenant, archived)
	for name, by := range map[string]uuid.UUID{
		"nobody known": newID(t), "nobody": uuid.Nil, "a stranger": stranger, "a former member": former,
		"a member of an archived room": reader, "another tenant's": other.couple(t).owner.ID,
	} {
		_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.agent.ID, by)
		require.ErrorIs(t, err, store.ErrNotFound, name)
		_, err = other.Store.TakePrekeyBundle(t.Context(), other.tenant, p.agent.ID, by)
		require.ErrorIs(t, err, store.ErrNotFound, name)
	}
	_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, newID(t), p.owner.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, 5, f.stock(t, p.agent.ID).OneTime)

	keyless := f.add(t, left, store.RoleAgent)
	f.publish(t, keyless.Device, signedPrekey(1), prekeys(1, 1)...)
	_, err = f.Store.TakePrekeyBundle(t.Context(), f.tenant, keyless.Device, p.agent.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "without keys")
	require.Equal(t, 1, f.stock(t, keyless.Device).OneTime)

	f.join(t, left, former)
	f.take(t, p.agent.ID, former)
	f.remove(t, p.of[p.agent.ID])
	_, err = f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.agent.ID, p.owner.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "the device left")
}

// testTakeInStates: a device that is not ACTIVE takes nothing and gives nothing (STATE,
// "Device Lifecycle States").
func testTakeInStates(t *testing.T, f fixture) {
	p := f.couple(t)
	f.publish(t, p.agent.ID, signedPrekey(1), prekeys(1, 5)...)
	f.publish(t, p.owner.ID, signedPrekey(1), prekeys(1, 5)...)
	refused := func(why string) {
		for _, pair := range [][2]uuid.UUID{{p.agent.ID, p.owner.ID}, {p.owner.ID, p.agent.ID}} {
			_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, pair[0], pair[1])
			require.ErrorIs(t, err, store.ErrNotFound, why)
		}
	}
	_, err := f.Store.SuspendDevice(t.Context(), f.tenant, p.agent.ID, uuid.Nil)
	require.NoError(t, err)
	refused("one is suspended")
	require.Equal(t, store.PrekeyStock{SignedID: 1, LastID: 5, OneTime: 5}, f.stock(t, p.agent.ID))
	_, err = f.Store.ReinstateDevice(t.Context(), f.tenant, p.agent.ID, uuid.Nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, f.take(t, p.agent.ID, p.owner.ID).OneTime.ID, "as if nothing had been")
	_, err = f.Store.RevokeDevice(t.Context(), f.tenant, p.agent.ID, uuid.Nil)
	require.NoError(t, err)
	refused("one is revoked")
	require.Equal(t, 5, f.stock(t, p.owner.ID).OneTime)
}

// testRevokedPrekeys: what a revoked device had is gone, also where it was revoked while
// others took it.
func testRevokedPrekeys(t *testing.T, f fixture) {
	for range 5 {
		p := f.couple(t)
		f.publish(t, p.agent.ID, signedPrekey(1), prekeys(1, 20)...)
		results := race(9, func(i int) (err error) {
			switch {
			case i == 0:
				_, err = f.Store.RevokeDevice(t.Context(), f.tenant, p.agent.ID, uuid.Nil)
			case i < 5:
				_, err = f.Store.PublishPrekeys(t.Context(), f.tenant, p.agent.ID, signedPrekey(2), prekeys(uint32(20*i+1), uint32(20*i+4)))
				if errors.Is(err, store.ErrConflict) {
					err = nil
				}
			default:
				_, err = f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.agent.ID, p.owner.ID)
				if errors.Is(err, store.ErrNotFound) {
					err = nil
				}
			}
			return err
		})
		require.Equal(t, len(results), count(results, nil), "%v", results)
		stock := f.stock(t, p.agent.ID)
		require.Zero(t, stock.SignedID)
		require.Zero(t, stock.OneTime)
	}
}

// warning is a PrekeysLow as it is written.
type warning struct {
	Room      uuid.UUID
	To        uuid.UUID
	Version   int64
	Remaining int64
}

// warnings takes the events of that kind that wait, and all others.
func (f fixture) warnings(t *testing.T) (found []warning) {
	t.Helper()
	for {
		rows, err := f.Store.ClaimRows(t.Context(), 1000, time.Hour)
		require.NoError(t, err)
		if len(rows) == 0 {
			return found
		}
		for _, row := range rows {
			var event struct {
				Event     wire.RoomEventType `json:"event"`
				EventID   uuid.UUID          `json:"event_id"`
				RoomID    uuid.UUID          `json:"room_id"`
				Version   int64              `json:"version"`
				Remaining *int64             `json:"remaining"`
			}
			if row.Tenant != f.tenant || row.Kind != wire.ServerRoomEvent.String() {
				continue
			}
			require.NoError(t, json.Unmarshal(row.Payload, &event))
			if event.Event != wire.PrekeysLow {
				continue
			}
			require.Equal(t, row.Room, event.RoomID)
			require.NotEqual(t, uuid.Nil, event.EventID)
			require.NotNil(t, event.Remaining)
			found = append(found, warning{Room: row.Room, To: row.To, Version: event.Version, Remaining: *event.Remaining})
		}
		require.NoError(t, f.Store.SettleRows(t.Context(), rows))
	}
}

// testPrekeysLow: a device is told when few are left and when none is, once each, in the
// direct room that it shares with who took the last.
func testPrekeysLow(t *testing.T, f fixture) {
	group := f.newRoom(t, store.RoomGroup).ID // made before the direct room
	p := f.couple(t)
	f.joinAs(t, group, p.owner.ID, store.RoleOwner)
	inGroup := f.join(t, group, p.agent.ID)
	third := f.active(t, false).ID
	f.join(t, group, third)
	version := func(room uuid.UUID) int64 {
		found, err := f.Store.FindRoom(t.Context(), f.tenant, room)
		require.NoError(t, err)
		return found.Version
	}
	direct := func(remaining int64) []warning {
		return []warning{{p.room.ID, p.of[p.agent.ID].ID, version(p.room.ID), remaining}}
	}

	f.publish(t, p.agent.ID, signedPrekey(1), prekeys(1, store.LowPrekeys+1)...)
	f.take(t, p.agent.ID, p.owner.ID)
	require.Empty(t, f.warnings(t), "%d are left", store.LowPrekeys)
	f.take(t, p.agent.ID, p.owner.ID)
	require.Equal(t, direct(store.LowPrekeys-1), f.warnings(t))
	for range store.LowPrekeys - 2 {
		f.take(t, p.agent.ID, p.owner.ID)
	}
	require.Empty(t, f.warnings(t), "it was told")
	f.take(t, p.agent.ID, p.owner.ID)
	require.Equal(t, direct(0), f.warnings(t))
	require.Nil(t, f.take(t, p.agent.ID, p.owner.ID).OneTime)
	require.Empty(t, f.warnings(t), "it was told")

	f.publish(t, p.agent.ID, nil, prekeys(20, 20)...)
	f.take(t, p.agent.ID, third)
	require.Equal(t, []warning{{group, inGroup.ID, version(group), 0}}, f.warnings(t), "only what both are in")

	f.publish(t, p.agent.ID, nil, prekeys(30, 30+store.LowPrekeys-1)...)
	before := f.stock(t, p.agent.ID)
	_, err := f.Store.TakePrekeyBundle(t.Context(), f.tenant, p.agent.ID, f.active(t, false).ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, before, f.stock(t, p.agent.ID))
	require.Empty(t, f.warnings(t), "nothing was taken")
}
