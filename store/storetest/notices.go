package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var (
	errNotPermitted = &wire.Error{Code: wire.NoticeNotPermitted}
	errEnvelope     = &wire.Error{Code: wire.InvalidEnvelope}
	errDuplicate    = &wire.Error{Code: wire.NoticeDuplicate}
	errIDConflict   = &wire.Error{Code: wire.NoticeIDConflict}
	errGen          = &wire.Error{Code: wire.NoticeInvalidGen}
	errStale        = &wire.Error{Code: wire.NoticeStale}
	errCap          = &wire.Error{Code: wire.NoticeCap}
)

// leeway is more than any test takes to come to the database.
const leeway = time.Minute

// notice is one of p's, of its first generation and valid for an hour.
func notice(p store.Participant, id, text string) store.Notice {
	now := uint64(time.Now().UnixMilli())
	return sealedNotice(store.Notice{
		Tenant: p.Tenant, Room: p.Room, Sender: p.ID, ID: id, Gen: 1,
		TS: now, ExpiresAt: now + uint64(time.Hour.Milliseconds()),
	}, text)
}

// sealedNotice returns n with the bytes that say what its fields say; see sealed.
func sealedNotice(n store.Notice, text string) store.Notice {
	more := ""
	if n.KID != "" {
		more += `,"kid":` + quote(n.KID)
	}
	if n.ExpiresAt != 0 {
		more += `,"expires_at":` + strconv.FormatUint(n.ExpiresAt, 10)
	}
	n.Bytes = envelope(n.Room, n.Sender, n.Room, n.ID, wire.KindNotice, n.Gen, n.TS, text, more)
	return n
}

// alerter is a new agent of the room who has allocated a generation.
func (f fixture) alerter(t *testing.T, room uuid.UUID) store.Participant {
	t.Helper()
	p := f.add(t, room, store.RoleAgent)
	f.allocate(t, p, 1)
	return p
}

func (f fixture) allAlerters(t *testing.T, n int) []store.Participant {
	t.Helper()
	room := f.newRoom(t, store.RoomGroup)
	senders := make([]store.Participant, n)
	for i := range senders {
		senders[i] = f.alerter(t, room.ID)
	}
	return senders
}

// accept and refuse append a notice, and look that it was stored, or was not.
func (f fixture) accept(t *testing.T, n store.Notice) {
	t.Helper()
	before := f.notices(t, n.Tenant, n.Room)
	require.NoError(t, f.Edge.AppendNotice(t.Context(), n))
	after := f.notices(t, n.Tenant, n.Room)
	require.Len(t, after, len(before)+1)
	require.Equal(t, n.ID, after[len(before)].ID)
}

func (f fixture) refuse(t *testing.T, n store.Notice, want error) {
	t.Helper()
	before := f.notices(t, n.Tenant, n.Room)
	require.ErrorIs(t, f.Edge.AppendNotice(t.Context(), n), want)
	require.Equal(t, before, f.notices(t, n.Tenant, n.Room), "nothing was stored")
}

// notices are all of a room's, oldest first; none for a room that does not exist.
func (f fixture) notices(t *testing.T, tenant, room uuid.UUID) (all []store.StoredNotice) {
	t.Helper()
	for from, more := int64(0), true; more; {
		rows, next, err := f.Store.NoticePage(t.Context(), tenant, room, store.Page{From: from, Limit: store.MaxPage})
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		require.NoError(t, err)
		if all = append(all, rows...); len(rows) > 0 {
			from = rows[len(rows)-1].Position
		}
		more = next
	}
	return all
}

func testNotices(t *testing.T, s Subject) {
	for name, test := range map[string]func(*testing.T, fixture){
		"what is stored":     testNoticeStored,
		"who may not":        testNoticeSenders,
		"one id":             testNoticeIDs,
		"shapes":             testNoticeShapes,
		"generations":        testNoticeGenerations,
		"times":              testNoticeTimes,
		"the cap":            testNoticeCap,
		"the order of looks": testNoticeOrder,
		"pages":              testNoticePages,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, s)) })
	}
}

func testNoticeStored(t *testing.T, f fixture) {
	p := f.allAlerters(t, 1)[0]
	before := time.Now()
	odd := notice(p, `odd!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`", "")
	odd.KID = "AAAAAAAAAAAAAAAAAAAA_-"
	odd = sealedNotice(odd, oddText)
	odd.Bytes = append(odd.Bytes, "\n\t "...)
	smallest := notice(p, "i", "")
	largest := notice(p, strings.Repeat("i", wire.MaxIDLength), "")
	largest = sealedNotice(largest, strings.Repeat("x", wire.MaxMessage-len(largest.Bytes)))
	sent := []store.Notice{odd, smallest, largest}
	for _, n := range sent {
		f.accept(t, n)
	}
	stored := f.notices(t, p.Tenant, p.Room)
	for i, n := range sent {
		got := stored[i]
		require.Equal(t, n.ID, got.ID)
		require.True(t, bytes.Equal(n.Bytes, got.Bytes), "byte for byte")
		require.Equal(t, p.ID, got.Sender)
		require.Equal(t, n.Gen, got.Gen)
		require.Equal(t, time.UnixMilli(int64(n.ExpiresAt)).UTC(), got.ExpiresAt)
		require.WithinRange(t, got.AcceptedAt, before.Add(-leeway), time.Now().Add(leeway))
		require.Equal(t, time.UTC, got.AcceptedAt.Location())
	}
}

func testNoticeSenders(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p := f.alerter(t, room.ID)
	for _, role := range []store.Role{store.RoleOwner, store.RoleController} {
		human := f.add(t, room.ID, role)
		f.allocate(t, human, 1)
		f.refuse(t, notice(human, "human", "x"), errNotPermitted)
	}
	f.refuse(t, notice(f.add(t, room.ID, store.RoleViewer), "viewer", "x"), errNotPermitted)

	for name, change := range map[string]func(*store.Notice){
		"a member of another room": func(n *store.Notice) { n.Sender = f.allAlerters(t, 1)[0].ID },
		"nobody":                   func(n *store.Notice) { n.Sender = newID(t) },
		"no room":                  func(n *store.Notice) { n.Room = newID(t) },
		"no tenant":                func(n *store.Notice) { n.Tenant = newID(t) },
	} {
		n := notice(p, "lost", "x")
		change(&n)
		require.ErrorIs(t, f.Edge.AppendNotice(t.Context(), sealedNotice(n, "x")), store.ErrNotFound, name)
	}
	require.Empty(t, f.notices(t, f.tenant, room.ID))

	gone := f.alerter(t, room.ID)
	was := notice(gone, "was-here", "x")
	f.accept(t, was)
	f.remove(t, gone)
	f.refuse(t, was, store.ErrNotFound)
	f.refuse(t, notice(gone, "is-gone", "x"), store.ErrNotFound)

	before := notice(p, "before", "x")
	f.refuse(t, before, errGen) // who left knows that key
	before.Gen = f.allocate(t, p, 2).Gen
	f.accept(t, sealedNotice(before, "x"))
	f.ArchiveRoom(t, f.tenant, room.ID)
	f.refuse(t, notice(p, "after", "x"), errArchived)
	f.refuse(t, notice(gone, "after", "x"), errArchived)
}

func testNoticeIDs(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 2)
	p, q := senders[0], senders[1]
	n := notice(p, "taken", `{"a": 1}`)
	f.accept(t, n)
	f.refuse(t, n, errDuplicate)
	f.refuse(t, n, errDuplicate)
	f.refuse(t, notice(p, "taken", `{"a":1}`), errIDConflict)
	f.refuse(t, notice(p, "taken", `{"a": 1} `), errIDConflict)
	f.refuse(t, notice(q, "taken", `{"a": 1}`), errIDConflict)
	f.refuse(t, n, errDuplicate)

	elsewhere := f.allAlerters(t, 1)[0]
	f.accept(t, notice(elsewhere, "taken", "other bytes")) // unique in its room only
	f.refuse(t, n, errDuplicate)
}

func testNoticeShapes(t *testing.T, f fixture) {
	p := f.allAlerters(t, 1)[0]
	for name, change := range map[string]func(*store.Notice){
		"no id":            func(n *store.Notice) { n.ID = "" },
		"long id":          func(n *store.Notice) { n.ID = strings.Repeat("i", wire.MaxIDLength+1) },
		"NUL in id":        func(n *store.Notice) { n.ID = "a\x00b" },
		"space in id":      func(n *store.Notice) { n.ID = "a b" },
		"letter beyond id": func(n *store.Notice) { n.ID = "ä" },
		"broken UTF-8":     func(n *store.Notice) { n.ID = "\xff" },
		"no expiry":        func(n *store.Notice) { n.ExpiresAt = 0 },
		"large expiry":     func(n *store.Notice) { n.ExpiresAt = wire.MaxInteger + 1 },
		"large ts":         func(n *store.Notice) { n.TS = 1<<64 - 1 },
		"large generation": func(n *store.Notice) { n.Gen = wire.MaxInteger + 1 },
	} {
		n := notice(p, "shape", "x")
		change(&n)
		t.Run(name, func(t *testing.T) { f.refuse(t, sealedNotice(n, "x"), errEnvelope) })
	}
	large := notice(p, "shape", "")
	large = sealedNotice(large, strings.Repeat("x", wire.MaxMessage+1-len(large.Bytes)))
	f.refuse(t, large, errEnvelope)
	large.Bytes = nil
	f.refuse(t, large, errEnvelope)
}

func testNoticeGenerations(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p, none := f.alerter(t, room.ID), f.add(t, room.ID, store.RoleAgent)
	other := f.alerter(t, room.ID)
	f.allocate(t, other, 2)

	of := func(p store.Participant, gen uint64) store.Notice {
		n := notice(p, fmt.Sprintf("gen-%d", gen), "x")
		n.Gen = gen
		return sealedNotice(n, "x")
	}
	f.refuse(t, of(none, 1), errGen)
	f.refuse(t, of(p, 0), errGen)
	f.refuse(t, of(p, 2), errGen) // another sender's
	f.refuse(t, of(p, wire.MaxInteger), errGen)
	f.allocate(t, p, 2)
	f.accept(t, of(p, 2))
	f.accept(t, of(p, 1)) // an older one is one, too
}

// The limits of store: NoticeSkew, NoticeLifetime. The database's clock is at or after
// the moment that a test takes as now, by less than leeway.
func testNoticeTimes(t *testing.T, f fixture) {
	p := f.allAlerters(t, 1)[0]
	const skew, lifetime = store.NoticeSkew, store.NoticeLifetime
	for name, c := range map[string]struct {
		ts, expires time.Duration // from now
		want        error
	}{
		"slow clock":                {-skew + leeway, hour, nil},
		"too slow clock":            {-skew - time.Millisecond, hour, errStale},
		"fast clock":                {skew, hour, nil},
		"too fast clock":            {skew + leeway, hour, errStale},
		"expires soon":              {0, leeway, nil},
		"expired":                   {-leeway, 0, errStale},
		"expired long ago":          {-skew + leeway, -skew + 2*leeway, errStale},
		"longest life":              {0, lifetime, nil},
		"longest life, slow clock":  {-leeway, lifetime - leeway, nil},
		"too long":                  {0, lifetime + time.Millisecond, errStale},
		"too long, slow clock":      {-leeway, lifetime - leeway + time.Millisecond, errStale},
		"too long, fast clock":      {leeway, lifetime + leeway + time.Millisecond, errStale},
		"expires as it is sent":     {2 * leeway, 2 * leeway, errStale},
		"expires before it is sent": {2 * leeway, leeway, errStale},
		"shortest life":             {leeway, leeway + time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			n := notice(p, strings.ReplaceAll(name, " ", "-"), "x")
			n.TS, n.ExpiresAt = uint64(now.Add(c.ts).UnixMilli()), uint64(now.Add(c.expires).UnixMilli())
			n = sealedNotice(n, "x")
			if c.want != nil {
				f.refuse(t, n, c.want)
				return
			}
			f.accept(t, n)
		})
	}
	n := notice(p, "no-ts", "x")
	n.TS = 0
	f.refuse(t, sealedNotice(n, "x"), errStale)
	n.TS, n.ExpiresAt = wire.MaxInteger, wire.MaxInteger
	f.refuse(t, sealedNotice(n, "x"), errStale)
}

func testNoticeCap(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 2)
	p, q := senders[0], senders[1]
	brief := notice(p, "brief", "x")
	first := notice(p, "n-0", "x")
	f.accept(t, first)
	for i := range store.NoticeCap - 2 {
		f.accept(t, notice(p, fmt.Sprintf("n-%d", i+1), "x"))
	}
	brief.TS = uint64(time.Now().UnixMilli())
	brief.ExpiresAt = brief.TS + 2000
	brief = sealedNotice(brief, "x")
	f.accept(t, brief)
	next := notice(p, "next", "x")
	if err := f.Edge.AppendNotice(t.Context(), next); err != nil { // nil: this took longer than brief lived
		require.ErrorIs(t, err, errCap)
		f.refuse(t, first, errDuplicate)
		f.accept(t, notice(q, "q", "x")) // per sender
		require.Eventually(t, func() bool {
			err := f.Edge.AppendNotice(t.Context(), next)
			if err != nil {
				require.ErrorIs(t, err, errCap)
			}
			return err == nil
		}, leeway, 50*time.Millisecond, "only what has not expired counts")
	}
	f.refuse(t, notice(p, "one-more", "x"), errCap)
	f.refuse(t, brief, errDuplicate) // though it has expired
}

// A notice that everything speaks against, and less and less.
func testNoticeOrder(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p := f.alerter(t, room.ID)
	stored := notice(p, "stored", "x")
	f.accept(t, stored)
	for i := range store.NoticeCap - 1 {
		f.accept(t, notice(p, fmt.Sprintf("n-%d", i), "x"))
	}
	human := f.add(t, room.ID, store.RoleOwner)
	off := store.RuleSetting{Tenant: f.tenant, Room: room.ID, Rule: store.RuleAlertEmit}
	require.NoError(t, f.Store.SetRule(t.Context(), off))

	n := notice(p, "stored", "y")
	n.Room, n.Sender, n.Gen, n.TS = newID(t), newID(t), 99, 1
	refuse := func(want error) {
		t.Helper()
		f.refuse(t, sealedNotice(n, "y"), want)
	}
	refuse(store.ErrNotFound)
	n.Room = room.ID
	refuse(store.ErrNotFound)
	n.Sender = human.ID
	refuse(errNotPermitted)
	n.Sender = p.ID
	refuse(errNotPermitted)
	off.Allowed = true
	require.NoError(t, f.Store.SetRule(t.Context(), off))
	refuse(errIDConflict)
	f.refuse(t, stored, errDuplicate)
	n.ID = ""
	refuse(errEnvelope)
	n.ID = "new"
	refuse(errGen)
	n.Gen = 1
	refuse(errStale)
	n.TS = stored.TS
	refuse(errCap)
}

func testNoticePages(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 2)
	room, tenant := senders[0].Room, f.tenant
	page := func(p store.Page) ([]store.StoredNotice, bool) {
		t.Helper()
		rows, more, err := f.Store.NoticePage(t.Context(), tenant, room, p)
		require.NoError(t, err)
		return rows, more
	}
	for _, newest := range []bool{false, true} {
		rows, more := page(store.Page{Limit: 1, Newest: newest})
		require.Empty(t, rows, "a room without notices")
		require.False(t, more)
	}
	for i := range 7 {
		f.accept(t, notice(senders[i%2], fmt.Sprintf("n-%d", i), strconv.Itoa(i)))
	}
	all := f.notices(t, tenant, room)
	require.Len(t, all, 7)
	for _, limit := range []int{1, 2, 3, 6, 7, 8, store.MaxPage} {
		for _, newest := range []bool{false, true} {
			var got []store.StoredNotice
			for at, more := (store.Page{Limit: limit, Newest: newest}), true; more; {
				var rows []store.StoredNotice
				rows, more = page(at)
				require.LessOrEqual(t, len(rows), limit)
				require.Equal(t, len(got)+len(rows) < len(all), more)
				got = append(got, rows...)
				at.From = rows[len(rows)-1].Position
			}
			if newest {
				reverse(got)
			}
			require.Equal(t, all, got)
		}
	}
	for i, n := range all {
		rows, _ := page(store.Page{Limit: len(all), Since: n.AcceptedAt})
		require.Equal(t, all[i:], rows, "those from then on")
		rows, _ = page(store.Page{Limit: len(all), Since: n.AcceptedAt, Newest: true})
		require.Len(t, rows, len(all)-i)
	}
	rows, more := page(store.Page{From: all[6].Position, Limit: 5})
	require.Empty(t, rows)
	require.False(t, more)
	for _, bad := range []store.Page{{}, {Limit: -1}, {Limit: store.MaxPage + 1}, {Limit: 1 << 31}, {From: -1, Limit: 1}} {
		_, _, err := f.Store.NoticePage(t.Context(), tenant, room, bad)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, _, err := f.Store.NoticePage(t.Context(), tenant, newID(t), store.Page{Limit: 1})
	require.ErrorIs(t, err, store.ErrNotFound)
}

func reverse(rows []store.StoredNotice) {
	for i, j := 0, len(rows)-1; i < j; i, j = i+1, j-1 {
		rows[i], rows[j] = rows[j], rows[i]
	}
}

func testNoticeRaces(t *testing.T, s Subject) {
	for name, test := range map[string]func(*testing.T, fixture){
		"E06 twins":                            testNoticeTwins,
		"one id of many senders":               testNoticeSharedID,
		"the cap holds":                        testNoticeCapRace,
		"no row appears behind a reader":       testNoticePositions,
		"nothing is stored after it was ended": testNoticeEnds,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, s)) })
	}
}

// FAULTS E06.
func testNoticeTwins(t *testing.T, f fixture) {
	const rounds = 200
	senders := f.allAlerters(t, rounds/store.NoticeCap)
	for round := range rounds {
		n := notice(senders[round%len(senders)], fmt.Sprintf("twin-%d", round), "the same bytes")
		errs := race(2, func(int) error { return f.Edge.AppendNotice(t.Context(), n) })
		require.Equal(t, 1, count(errs, nil), "%v", errs)
		require.Equal(t, 1, count(errs, errDuplicate), "%v", errs)
		require.ErrorIs(t, f.Edge.AppendNotice(t.Context(), n), errDuplicate)
		n = sealedNotice(n, "other bytes")
		require.ErrorIs(t, f.Edge.AppendNotice(t.Context(), n), errIDConflict)
	}
	require.Len(t, f.notices(t, f.tenant, senders[0].Room), rounds)
}

func testNoticeSharedID(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 10)
	for round := range 10 {
		errs := race(len(senders), func(i int) error {
			return f.Edge.AppendNotice(t.Context(), notice(senders[i], fmt.Sprintf("shared-%d", round), "the same bytes"))
		})
		require.Equal(t, 1, count(errs, nil), "%v", errs)
		require.Equal(t, len(senders)-1, count(errs, errIDConflict), "%v", errs)
	}
}

func testNoticeCapRace(t *testing.T, f fixture) {
	p := f.allAlerters(t, 1)[0]
	errs := race(30, func(i int) error { return f.Edge.AppendNotice(t.Context(), notice(p, fmt.Sprintf("n-%d", i), "x")) })
	require.Equal(t, store.NoticeCap, count(errs, nil), "%v", errs)
	require.Equal(t, 30-store.NoticeCap, count(errs, errCap), "%v", errs)
	require.Len(t, f.notices(t, p.Tenant, p.Room), store.NoticeCap)
}

// Pages are read from position to position while notices are stored: together they are
// all that was stored.
func testNoticePositions(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 10)
	room := senders[0].Room
	done := make(chan []error)
	go func() {
		done <- race(len(senders)*10, func(i int) error {
			return f.Edge.AppendNotice(t.Context(), notice(senders[i%len(senders)], fmt.Sprintf("n-%d", i), "x"))
		})
	}()
	var seen []store.StoredNotice
	var written bool
	for from, more := int64(0), true; !written || more; {
		select {
		case errs := <-done:
			require.NoError(t, errors.Join(errs...))
			written = true
		default:
		}
		rows, next, err := f.Store.NoticePage(t.Context(), f.tenant, room, store.Page{From: from, Limit: 3})
		require.NoError(t, err)
		if seen = append(seen, rows...); len(rows) > 0 {
			from = rows[len(rows)-1].Position
		}
		more = next
	}
	require.Equal(t, f.notices(t, f.tenant, room), seen)
	require.Len(t, seen, len(senders)*10)
	for i := range seen[1:] {
		require.False(t, seen[i+1].AcceptedAt.Before(seen[i].AcceptedAt), "times rise with positions")
	}
}

// Once the end of a right, a membership or a room was answered, no notice is stored
// that was on its way.
func testNoticeEnds(t *testing.T, f fixture) {
	for name, c := range map[string]struct {
		end  func(store.Participant) error
		want error
	}{
		"a rule": {func(p store.Participant) error {
			return f.Store.SetRule(t.Context(), store.RuleSetting{Tenant: p.Tenant, Room: p.Room, Rule: store.RuleAlertEmit})
		}, errNotPermitted},
		"a membership": {func(p store.Participant) error {
			_, err := f.Store.RemoveParticipant(t.Context(), p.Tenant, p.Room, p.ID, uuid.Nil)
			return err
		}, store.ErrNotFound},
		"a room": {func(p store.Participant) error { f.ArchiveRoom(t, p.Tenant, p.Room); return nil }, errArchived},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				p := f.allAlerters(t, 1)[0]
				var stored []store.StoredNotice
				errs := race(store.NoticeCap, func(i int) error {
					if i == store.NoticeCap/2 {
						err := c.end(p)
						stored = f.notices(t, p.Tenant, p.Room)
						return err
					}
					return f.Edge.AppendNotice(t.Context(), notice(p, fmt.Sprintf("n-%d", i), "x"))
				})
				require.Equal(t, len(errs), count(errs, nil)+count(errs, c.want), "%v", errs)
				require.Equal(t, stored, f.notices(t, p.Tenant, p.Room))
				require.Len(t, stored, count(errs, nil)-1)
			}
		})
	}
}

// FAULTS G06: two tenants use the same ids, at the same time and one after the other.
func testNoticesKeptApart(t *testing.T, s Subject) {
	mine, other := newFixture(t, s), newFixture(t, s)
	members := []store.Participant{mine.allAlerters(t, 1)[0], other.allAlerters(t, 1)[0]}
	me, them := members[0], members[1]
	ctx := t.Context()

	errs := race(2, func(i int) error {
		return s.Edge.AppendNotice(ctx, notice(members[i], "same", members[i].ID.String()))
	})
	require.NoError(t, errors.Join(errs...))
	mine.accept(t, notice(me, "later", "mine"))
	other.accept(t, notice(them, "later", "theirs"))
	for _, p := range members {
		rows := mine.notices(t, p.Tenant, p.Room)
		require.Len(t, rows, 2)
		require.Contains(t, string(rows[0].Bytes), `"ct":"`+p.ID.String()+`"`)
	}

	before := other.notices(t, other.tenant, them.Room)
	intruder := notice(them, "intruder", "x")
	intruder.Tenant = mine.tenant
	require.ErrorIs(t, s.Edge.AppendNotice(ctx, intruder), store.ErrNotFound)
	intruder.Room = me.Room
	require.ErrorIs(t, s.Edge.AppendNotice(ctx, sealedNotice(intruder, "x")), store.ErrNotFound)
	_, _, err := s.Store.NoticePage(ctx, mine.tenant, them.Room, store.Page{Limit: 1})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, before, other.notices(t, other.tenant, them.Room))

	require.NoError(t, s.Store.SetRule(ctx, store.RuleSetting{Tenant: mine.tenant, Room: me.Room, Rule: store.RuleAlertEmit}))
	require.ErrorIs(t, s.Store.SetRule(ctx, store.RuleSetting{Tenant: mine.tenant, Room: them.Room, Rule: store.RuleAlertEmit}), store.ErrNotFound)
	require.ErrorIs(t, s.Store.SetRule(ctx, store.RuleSetting{
		Tenant: mine.tenant, Room: me.Room, Participant: them.ID, Rule: store.RuleAlertEmit,
	}), store.ErrNotFound)
	_, err = s.Store.RoomRules(ctx, mine.tenant, them.Room)
	require.ErrorIs(t, err, store.ErrNotFound)
	other.accept(t, notice(them, "still", "x"))
	mine.refuse(t, notice(me, "still", "x"), errNotPermitted)

	_, err = s.Store.AllocateGeneration(ctx, store.NewGeneration{Tenant: mine.tenant, Room: them.Room, Participant: them.ID, SessionKey: []byte("k")})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Store.CurrentGenerations(ctx, mine.tenant, them.Room)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, uint64(2), mine.allocate(t, me, 2).Gen)
	require.Equal(t, uint64(2), other.allocate(t, them, 2).Gen, "counted in each tenant")
}
