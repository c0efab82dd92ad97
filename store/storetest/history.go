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
		got, err := s.Edge.AppendMessage(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, duplicate, got.Duplicate)
	}
	appendFails := func(t *testing.T, m store.Message, want error) {
		t.Helper()
		before := s.HistoryRows(t, f.tenant, p.Room)
		got, err := s.Edge.AppendMessage(t.Context(), m)
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
		m := message(p, `odd!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`", oddText)
		m.KID = "AAAAAAAAAAAAAAAAAAAA_-"
		m = sealed(m, oddText)
		appendOK(t, m, false)
		appendOK(t, m, true)
		for name, change := range map[string]func([]byte) []byte{
			"white space after it": func(b []byte) []byte { return append(b, ' ') },
			"white space in it":    func(b []byte) []byte { return bytes.Replace(b, []byte(`,"seq"`), []byte(`,`+"\t"+`"seq"`), 1) },
			"an escape for a sign": func(b []byte) []byte { return bytes.Replace(b, []byte(`"seq"`), []byte(`"s\u0065q"`), 1) },
			"one more member":      func(b []byte) []byte { return bytes.Replace(b, []byte(`"v":1,"id"`), []byte(`"x":1,"v":1,"id"`), 1) },
		} {
			other := m
			other.Bytes = change(bytes.Clone(m.Bytes))
			require.NotEqual(t, m.Bytes, other.Bytes, name)
			appendFails(t, other, errConflict)
		}
	})

	t.Run("sizes", func(t *testing.T) {
		appendOK(t, message(p, "i", ""), false)
		largest := sized(message(p, strings.Repeat("i", wire.MaxIDLength), ""), wire.MaxMessage)
		require.Len(t, largest.Bytes, wire.MaxMessage)
		appendOK(t, largest, false)
		appendOK(t, largest, true)
	})

	t.Run("kinds and generations", func(t *testing.T) {
		for _, kind := range []wire.Kind{wire.KindMessage, wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest} {
			m := message(p, "kind-"+kind.String(), "x")
			m.Kind, m.Gen = kind, wire.MaxInteger
			appendOK(t, sealed(m, "x"), false)
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
			"notice":           func(m *store.Message) { m.Kind = wire.KindNotice },
			"no kind":          func(m *store.Message) { m.Kind = 0 },
			"unknown kind":     func(m *store.Message) { m.Kind = 99 },
			"large generation": func(m *store.Message) { m.Gen = wire.MaxInteger + 1 },
		} {
			m := message(p, "shape", "x")
			change(&m)
			t.Run(name, func(t *testing.T) { appendFails(t, sealed(m, "x"), errMalformed) })
		}
		for name, m := range map[string]store.Message{
			"no bytes":       {Tenant: p.Tenant, Room: p.Room, Sender: p.ID, ID: "shape", Kind: wire.KindMessage},
			"too many bytes": sized(message(p, "shape", ""), wire.MaxMessage+1),
		} {
			t.Run(name, func(t *testing.T) { appendFails(t, m, errMalformed) })
		}
	})

	t.Run("who may not", func(t *testing.T) {
		stranger := f.member(t)
		m := message(stranger, "stranger", "x")
		m.Room = p.Room
		appendFails(t, sealed(m, "x"), store.ErrNotFound)

		m = message(p, "nowhere", "x")
		m.Room = newID(t)
		appendFails(t, sealed(m, "x"), store.ErrNotFound)

		m = message(p, "nobody", "x")
		m.Tenant = newID(t)
		appendFails(t, m, store.ErrNotFound)

		gone := f.add(t, p.Room, store.RoleAgent)
		m = message(gone, "was-here", "x")
		appendOK(t, m, false)
		f.remove(t, gone)
		appendFails(t, m, store.ErrNotFound)
		appendFails(t, message(gone, "is-gone", "x"), store.ErrNotFound)
	})

	t.Run("an archived room", func(t *testing.T) {
		member := f.member(t)
		appendOK(t, message(member, "before", "x"), false)
		s.ArchiveRoom(t, f.tenant, member.Room)
		_, err := s.Edge.AppendMessage(t.Context(), message(member, "after", "x"))
		require.ErrorIs(t, err, errArchived)
		require.Equal(t, 1, s.HistoryRows(t, f.tenant, member.Room))
	})

	t.Run("an ended context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		member := f.member(t)
		for i := range 20 {
			m := message(member, fmt.Sprintf("cancelled-%d", i), "x")
			_, err := s.Edge.AppendMessage(ctx, m)
			if err != nil { // it may have been written before anyone looked
				require.ErrorIs(t, err, context.Canceled)
			}
			_, err = s.Edge.AppendMessage(t.Context(), m)
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
				answers[i], err = s.Edge.AppendMessage(t.Context(), m)
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
				_, err := s.Edge.AppendMessage(t.Context(), message(p, id, strconv.Itoa(i)))
				return err
			})
			require.Equal(t, 1, count(errs, nil))
			require.Equal(t, 49, count(errs, errConflict))
			for i, err := range errs {
				got, again := s.Edge.AppendMessage(t.Context(), message(p, id, strconv.Itoa(i)))
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
			_, err := s.Edge.AppendMessage(t.Context(), message(senders[i], "shared", "the same bytes"))
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
				m = sealed(m, "text")
			}
			_, err := s.Edge.AppendMessage(t.Context(), m)
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
			m := message(p, fmt.Sprintf("reuse-%d", i), fmt.Sprintf("text of %d", i))
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 {
				go cancel()
			}
			defer cancel()
			_, err := s.Edge.AppendMessage(ctx, m)
			clear(m.Bytes)
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		})
		require.NoError(t, errors.Join(errs...))
		for i := range errs {
			_, err := s.Edge.AppendMessage(t.Context(), message(p, fmt.Sprintf("reuse-%d", i), fmt.Sprintf("text of %d", i)))
			require.NoError(t, err, "what was stored is what was sent")
		}
	})
}
