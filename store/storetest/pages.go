package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// list is a paged list of a room, each row by its position and id.
type list func(t *testing.T, tenant, room uuid.UUID, page store.Page) ([]listed, bool, error)

type listed struct {
	position int64
	id       string
	at       time.Time
}

func lists(s store.Store) map[string]list {
	return map[string]list{
		"history": func(t *testing.T, tenant, room uuid.UUID, page store.Page) (out []listed, more bool, err error) {
			t.Helper()
			rows, more, err := s.HistoryPage(t.Context(), tenant, room, page)
			for _, row := range rows {
				out = append(out, listed{row.Position, row.ID, row.ReceivedAt})
			}
			return out, more, err
		},
		"traces": func(t *testing.T, tenant, room uuid.UUID, page store.Page) (out []listed, more bool, err error) {
			t.Helper()
			rows, more, err := s.TracePage(t.Context(), tenant, room, page)
			for _, row := range rows {
				out = append(out, listed{row.Position, row.MessageID, row.CommittedAt})
			}
			return out, more, err
		},
	}
}

// walk reads the list to its end in pages of limit rows, and looks at each page.
func walk(t *testing.T, read list, tenant, room uuid.UUID, page store.Page) (all []listed) {
	t.Helper()
	for {
		rows, more, err := read(t, tenant, room, page)
		require.NoError(t, err)
		require.LessOrEqual(t, len(rows), page.Limit)
		if more {
			require.Len(t, rows, page.Limit)
		}
		all = append(all, rows...)
		if !more {
			return all
		}
		page.From = rows[len(rows)-1].position
	}
}

// traces are all of a room's, oldest first.
func (f fixture) traces(t *testing.T, room uuid.UUID) (all []store.StoredTrace) {
	t.Helper()
	for page := (store.Page{Limit: store.MaxPage}); ; {
		rows, more, err := f.Store.TracePage(t.Context(), f.tenant, room, page)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		require.NoError(t, err)
		all = append(all, rows...)
		if !more {
			return all
		}
		page.From = rows[len(rows)-1].Position
	}
}

func testPages(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p, q := f.pair(t)
	const rows = 250
	errs := race(2*rows, func(i int) error {
		id := fmt.Sprintf("m-%03d", i/2)
		if i%2 == 0 {
			_, err := s.Store.AppendMessage(t.Context(), message(p, id, "x"))
			return err
		}
		_, err := s.Store.AppendTrace(t.Context(), trace(p, q, "t"+id, "x"))
		return err
	})
	require.NoError(t, errors.Join(errs...))
	_, err := s.Store.AppendMessage(t.Context(), message(f.member(t), "elsewhere", "x"))
	require.NoError(t, err)

	for name, read := range lists(s.Store) {
		t.Run(name, func(t *testing.T) {
			testWalks(t, read, f.tenant, p.Room, rows)
			testPageEnds(t, read, f.tenant, p.Room)
			testPageSince(t, read, f.tenant, p.Room)
			testPageLimits(t, read, f.tenant, p.Room)
			empty := f.newRoom(t, store.RoomGroup)
			none, more, err := read(t, f.tenant, empty.ID, store.Page{Limit: 1})
			require.NoError(t, err)
			require.False(t, more)
			require.Empty(t, none)
			_, _, err = read(t, f.tenant, newID(t), store.Page{Limit: 1})
			require.ErrorIs(t, err, store.ErrNotFound)
			_, _, err = read(t, newFixture(t, s).tenant, p.Room, store.Page{Limit: 1, Newest: true})
			require.ErrorIs(t, err, store.ErrNotFound)
		})
	}
}

// testWalks: FAULTS BL-D10, each row exactly once in both directions, and the walk ends.
func testWalks(t *testing.T, read list, tenant, room uuid.UUID, rows int) {
	t.Helper()
	oldestFirst := walk(t, read, tenant, room, store.Page{Limit: store.MaxPage})
	require.Len(t, oldestFirst, rows)
	seen := map[string]bool{}
	for i, row := range oldestFirst {
		require.False(t, seen[row.id])
		seen[row.id] = true
		if i > 0 {
			require.Greater(t, row.position, oldestFirst[i-1].position)
			require.False(t, row.at.Before(oldestFirst[i-1].at), "times rise with positions")
		}
	}
	newestFirst := slices.Clone(oldestFirst)
	slices.Reverse(newestFirst)
	for _, limit := range []int{1, 2, 100, rows, rows + 1} {
		require.Equal(t, oldestFirst, walk(t, read, tenant, room, store.Page{Limit: limit}))
		require.Equal(t, newestFirst, walk(t, read, tenant, room, store.Page{Limit: limit, Newest: true}))
	}
}

func testPageEnds(t *testing.T, read list, tenant, room uuid.UUID) {
	t.Helper()
	all := walk(t, read, tenant, room, store.Page{Limit: 100})
	first, last := all[0].position, all[len(all)-1].position
	for _, c := range []struct {
		page store.Page
		want []listed
	}{
		{store.Page{From: last, Limit: 5}, nil},
		{store.Page{From: math.MaxInt64, Limit: 5}, nil},
		{store.Page{From: first, Limit: 5, Newest: true}, nil},
		{store.Page{From: first, Limit: len(all)}, all[1:]},
		{store.Page{From: math.MaxInt64, Limit: 1, Newest: true}, all[len(all)-1:]},
	} {
		rows, more, err := read(t, tenant, room, c.page)
		require.NoError(t, err)
		require.False(t, more && len(rows) < c.page.Limit)
		require.Equal(t, c.want, rows)
	}
}

func testPageSince(t *testing.T, read list, tenant, room uuid.UUID) {
	t.Helper()
	all := walk(t, read, tenant, room, store.Page{Limit: 100})
	since := all[len(all)/2].at
	var want []listed
	for _, row := range all {
		if !row.at.Before(since) {
			want = append(want, row)
		}
	}
	require.Equal(t, want, walk(t, read, tenant, room, store.Page{Limit: 7, Since: since}))
	slices.Reverse(want)
	require.Equal(t, want, walk(t, read, tenant, room, store.Page{Limit: 7, Since: since, Newest: true}))
	require.Empty(t, walk(t, read, tenant, room, store.Page{Limit: 7, Since: all[len(all)-1].at.Add(time.Hour)}))
}

// testPageLimits: FAULTS BL-G07.
func testPageLimits(t *testing.T, read list, tenant, room uuid.UUID) {
	t.Helper()
	for _, page := range []store.Page{
		{Limit: 0},
		{Limit: -1},
		{Limit: math.MinInt},
		{Limit: store.MaxPage + 1},
		{Limit: 1 << 31},
		{Limit: math.MaxInt},
		{Limit: 1, From: -1},
		{Limit: 1, From: math.MinInt64, Newest: true},
	} {
		rows, more, err := read(t, tenant, room, page)
		require.ErrorIs(t, err, store.ErrInvalid, "%+v", page)
		require.False(t, more)
		require.Empty(t, rows)
	}
}

// testHistoryRead: what is read is what was appended.
func testHistoryRead(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p := f.member(t)
	before := time.Now()
	bare := message(p, "bare", "")
	full := message(p, `odd!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`", oddText)
	full.KID, full.Kind, full.Gen = "AAAAAAAAAAAAAAAAAAAA_-", wire.KindSenderKey, wire.MaxInteger
	full = sealed(full, oddText)
	largest := sized(message(p, "largest", ""), wire.MaxMessage)
	sent := []store.Message{bare, full, largest}
	for _, m := range sent {
		_, err := s.Store.AppendMessage(t.Context(), m)
		require.NoError(t, err)
	}
	rows, more, err := s.Store.HistoryPage(t.Context(), f.tenant, p.Room, store.Page{Limit: 3})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, rows, 3)
	for i, m := range sent {
		got := rows[i]
		require.WithinRange(t, got.ReceivedAt, before.Add(-leeway), time.Now().Add(leeway))
		require.Equal(t, store.StoredMessage{
			Position: got.Position, ID: m.ID, Sender: m.Sender, Kind: m.Kind.String(), Gen: m.Gen, KID: m.KID,
			Bytes: m.Bytes, ReceivedAt: got.ReceivedAt,
		}, got)
		require.Equal(t, time.UTC, got.ReceivedAt.Location())
		one, err := s.Store.HistoryMessage(t.Context(), f.tenant, p.Room, m.ID)
		require.NoError(t, err)
		require.Equal(t, got, one)
	}
	for name, ask := range map[string]struct {
		tenant, room uuid.UUID
		id           string
	}{
		"another id":     {f.tenant, p.Room, "Bare"},
		"no id":          {f.tenant, p.Room, ""},
		"NUL in the id":  {f.tenant, p.Room, "bare\x00"},
		"broken UTF-8":   {f.tenant, p.Room, "\xff"},
		"another room":   {f.tenant, f.member(t).Room, "bare"},
		"no room":        {f.tenant, newID(t), "bare"},
		"another tenant": {newFixture(t, s).tenant, p.Room, "bare"},
	} {
		_, err := s.Store.HistoryMessage(t.Context(), ask.tenant, ask.room, ask.id)
		require.ErrorIs(t, err, store.ErrNotFound, name)
	}
}
