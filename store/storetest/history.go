package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var (
	errConflict  = &wire.Error{Code: wire.HistoryConflict}
	errMalformed = &wire.Error{Code: wire.MalformedRequest}
)

func testHistory(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p := f.member(t)
	q := f.add(t, p.Room, store.RoleOwner)
	appendOK := func(t *testing.T, m store.Message, duplicate bool) {
		t.Helper()
		got, err := s.Store.AppendMessage(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, duplicate, got.Duplicate)
	}
	appendFails := func(t *testing.T, m store.Message, want error) {
		t.Helper()
		before := s.HistoryRows(t, f.tenant, p.Room)
		got, err := s.Store.AppendMessage(t.Context(), m)
		require.ErrorIs(t, err, want)
		require.Zero(t, got)
		require.Equal(t, before, s.HistoryRows(t, f.tenant, p.Room), "nothing was stored")
	}

	t.Run("the same message twice is one row", func(t *testing.T) {
		before := s.HistoryRows(t, f.tenant, p.Room)
		m := message(p, "again", "text")
		appendOK(t, m, false)
		appendOK(t, m, true)
		appendOK(t, m, true)
		require.Equal(t, before+1, s.HistoryRows(t, f.tenant, p.Room))
	})

	t.Run("the same id with other bytes or sender", func(t *testing.T) {
		m := message(p, "taken", `{"a": 1}`)
		appendOK(t, m, false)
		appendFails(t, message(p, "taken", `{"a":1}`), errConflict)
		appendFails(t, message(p, "taken", `{"a": 1} `), errConflict)
		appendFails(t, message(q, "taken", `{"a": 1}`), errConflict)
		appendOK(t, m, true)
	})

	t.Run("an id is unique in its room only", func(t *testing.T) {
		other := f.member(t)
		appendOK(t, message(p, "both", "here"), false)
		appendOK(t, message(other, "both", "there"), false)
		appendOK(t, message(p, "both", "here"), true)
	})

	t.Run("every byte is kept", func(t *testing.T) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		m := message(p, `odd!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`", string(all))
		m.KID = "a\x00b\u2028\U0001f600\xff"
		appendOK(t, m, false)
		appendOK(t, m, true)
		m.Bytes = append(bytes.Clone(all[:255]), 0xfe)
		appendFails(t, m, errConflict)
	})

	t.Run("sizes", func(t *testing.T) {
		appendOK(t, message(p, "one-byte", "x"), false)
		largest := message(p, strings.Repeat("i", wire.MaxIDLength), strings.Repeat("x", wire.MaxMessage))
		appendOK(t, largest, false)
		appendOK(t, largest, true)
	})

	t.Run("kinds and generations", func(t *testing.T) {
		for _, kind := range []wire.Kind{wire.KindMessage, wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest} {
			m := message(p, "kind-"+kind.String(), "x")
			m.Kind, m.Gen = kind, wire.MaxInteger
			appendOK(t, m, false)
		}
	})

	t.Run("shapes that history does not take", func(t *testing.T) {
		for name, change := range map[string]func(*store.Message){
			"no id":            func(m *store.Message) { m.ID = "" },
			"long id":          func(m *store.Message) { m.ID = strings.Repeat("i", wire.MaxIDLength+1) },
			"NUL in id":        func(m *store.Message) { m.ID = "a\x00b" },
			"space in id":      func(m *store.Message) { m.ID = "a b" },
			"control in id":    func(m *store.Message) { m.ID = "a\x7f" },
			"letter beyond id": func(m *store.Message) { m.ID = "ä" },
			"broken UTF-8":     func(m *store.Message) { m.ID = "\xff" },
			"no bytes":         func(m *store.Message) { m.Bytes = nil },
			"too many bytes":   func(m *store.Message) { m.Bytes = make([]byte, wire.MaxMessage+1) },
			"notice":           func(m *store.Message) { m.Kind = wire.KindNotice },
			"no kind":          func(m *store.Message) { m.Kind = 0 },
			"unknown kind":     func(m *store.Message) { m.Kind = 99 },
			"large generation": func(m *store.Message) { m.Gen = wire.MaxInteger + 1 },
		} {
			m := message(p, "shape", "x")
			change(&m)
			t.Run(name, func(t *testing.T) { appendFails(t, m, errMalformed) })
		}
	})

	t.Run("who may not", func(t *testing.T) {
		stranger := f.member(t)
		m := message(stranger, "stranger", "x")
		m.Room = p.Room
		appendFails(t, m, store.ErrNotFound)

		m = message(p, "nowhere", "x")
		m.Room = newID(t)
		appendFails(t, m, store.ErrNotFound)

		m = message(p, "nobody", "x")
		m.Tenant = newID(t)
		appendFails(t, m, store.ErrNotFound)

		gone := f.add(t, p.Room, store.RoleAgent)
		m = message(gone, "was-here", "x")
		appendOK(t, m, false)
		f.remove(t, gone)
		appendFails(t, m, store.ErrNotFound)
		m.ID = "is-gone"
		appendFails(t, m, store.ErrNotFound)
	})

	t.Run("an archived room", func(t *testing.T) {
		member := f.member(t)
		appendOK(t, message(member, "before", "x"), false)
		s.ArchiveRoom(t, f.tenant, member.Room)
		_, err := s.Store.AppendMessage(t.Context(), message(member, "after", "x"))
		require.ErrorIs(t, err, store.ErrConflict)
		require.Equal(t, 1, s.HistoryRows(t, f.tenant, member.Room))
	})

	t.Run("an ended context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		member := f.member(t)
		for i := range 20 {
			m := message(member, fmt.Sprintf("cancelled-%d", i), "x")
			_, err := s.Store.AppendMessage(ctx, m)
			if err != nil { // it may have been written before anyone looked
				require.ErrorIs(t, err, context.Canceled)
			}
			_, err = s.Store.AppendMessage(t.Context(), m)
			require.NoError(t, err, "the same call again finds out")
			require.Equal(t, i+1, s.HistoryRows(t, f.tenant, member.Room))
		}
	})
}

func testHistoryRaces(t *testing.T, s Subject) {
	f := newFixture(t, s)

	t.Run("the same bytes at once are stored once", func(t *testing.T) {
		p := f.member(t)
		for round := range 5 {
			m := message(p, fmt.Sprintf("same-%d", round), "text")
			answers := make([]store.Appended, 50)
			errs := race(len(answers), func(i int) (err error) {
				answers[i], err = s.Store.AppendMessage(t.Context(), m)
				return err
			})
			require.NoError(t, errors.Join(errs...))
			first := 0
			for _, a := range answers {
				if !a.Duplicate {
					first++
				}
			}
			require.Equal(t, 1, first)
			require.Equal(t, round+1, s.HistoryRows(t, f.tenant, p.Room))
		}
	})

	t.Run("other bytes at once: one wins, and stays", func(t *testing.T) {
		p := f.member(t)
		for round := range 5 {
			id := fmt.Sprintf("other-%d", round)
			errs := race(50, func(i int) error {
				_, err := s.Store.AppendMessage(t.Context(), message(p, id, strconv.Itoa(i)))
				return err
			})
			require.Equal(t, 1, count(errs, nil))
			require.Equal(t, 49, count(errs, errConflict))
			for i, err := range errs {
				got, again := s.Store.AppendMessage(t.Context(), message(p, id, strconv.Itoa(i)))
				if err == nil {
					require.NoError(t, again)
					require.True(t, got.Duplicate)
					continue
				}
				require.ErrorIs(t, again, errConflict)
			}
		}
	})

	t.Run("one sender's id taken by several senders at once", func(t *testing.T) {
		room := f.newRoom(t, store.RoomGroup)
		senders := make([]store.Participant, 10)
		for i := range senders {
			senders[i] = f.add(t, room.ID, store.RoleAgent)
		}
		errs := race(len(senders), func(i int) error {
			_, err := s.Store.AppendMessage(t.Context(), message(senders[i], "shared", "the same bytes"))
			return err
		})
		require.Equal(t, 1, count(errs, nil))
		require.Equal(t, 9, count(errs, errConflict))
	})

	t.Run("good and bad messages of many tenants share commits", func(t *testing.T) {
		const tenants, each = 4, 40
		members := make([]store.Participant, tenants)
		for i := range members {
			members[i] = newFixture(t, s).member(t)
		}
		errs := race(tenants*each, func(i int) error {
			m := message(members[i%tenants], fmt.Sprintf("m-%d", i), "text")
			if i%10 == 3 {
				m.Sender = members[(i+1)%tenants].ID
			}
			_, err := s.Store.AppendMessage(t.Context(), m)
			return err
		})
		rows := 0
		for i, err := range errs {
			if i%10 == 3 {
				require.ErrorIs(t, err, store.ErrNotFound)
				continue
			}
			require.NoError(t, err)
			rows++
		}
		stored := 0
		for _, p := range members {
			stored += s.HistoryRows(t, p.Tenant, p.Room)
		}
		require.Equal(t, rows, stored)
	})

	t.Run("the caller may reuse its bytes at once", func(t *testing.T) {
		p := f.member(t)
		errs := race(20, func(i int) error {
			buf := []byte(fmt.Sprintf("text of %d", i))
			m := message(p, fmt.Sprintf("reuse-%d", i), "")
			m.Bytes = buf
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 {
				go cancel()
			}
			defer cancel()
			_, err := s.Store.AppendMessage(ctx, m)
			clear(buf)
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		})
		require.NoError(t, errors.Join(errs...))
		for i := range errs {
			_, err := s.Store.AppendMessage(t.Context(), message(p, fmt.Sprintf("reuse-%d", i), fmt.Sprintf("text of %d", i)))
			require.NoError(t, err, "what was stored is what was sent")
		}
	})
}
