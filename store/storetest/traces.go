package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var errPrivateRefused = &wire.Error{Code: wire.PrivateRefused}

// trace is that of a private message whose envelope is text.
func trace(from, to store.Participant, id, text string) store.Trace {
	return store.Trace{
		Tenant: from.Tenant, Room: from.Room, MessageID: id, From: from.ID, To: to.ID,
		TS: 1_700_000_000_000, Declared: true, Digest: blake2b.Sum256([]byte(text)),
	}
}

func withFile(t store.Trace, f store.FileHeader) store.Trace {
	t.Files = []store.FileHeader{f}
	return t
}

// traced and untraced append a trace, and look that it was stored, or was not.
func (f fixture) traced(t *testing.T, tr store.Trace, duplicate bool) {
	t.Helper()
	before := len(f.traces(t, tr.Room))
	got, err := f.Edge.AppendTrace(t.Context(), tr)
	require.NoError(t, err)
	require.Equal(t, duplicate, got.Duplicate)
	want := before + 1
	if duplicate {
		want = before
	}
	require.Len(t, f.traces(t, tr.Room), want)
}

func (f fixture) untraced(t *testing.T, tr store.Trace, want error) {
	t.Helper()
	got, err := f.Edge.AppendTrace(t.Context(), tr)
	require.ErrorIs(t, err, want)
	require.Zero(t, got)
}

// pair is two agents of a new room.
func (f fixture) pair(t *testing.T) (p, q store.Participant) {
	t.Helper()
	p = f.member(t)
	return p, f.add(t, p.Room, store.RoleAgent)
}

func testTraces(t *testing.T, s Subject) {
	for name, test := range map[string]func(*testing.T, fixture){
		"what is stored":  testTraceStored,
		"one id":          testTraceIDs,
		"shapes":          testTraceShapes,
		"who may not":     testTraceEnds,
		"a refusing room": testTracePolicy,
		"races":           testTraceRaces,
		"kept apart":      testTracesKeptApart,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, s)) })
	}
}

// RELAY: the trace carries message_id, from, to and ts, and file only when declared.
func testTraceStored(t *testing.T, f fixture) {
	p, q := f.pair(t)
	before := time.Now()
	odd := `odd "name" \ / <b>&amp; 'ä` + "\U0001f600\ufffd\u200e"
	sent := []store.Trace{
		trace(p, q, "plain", "x"),
		withFile(trace(q, p, `odd!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`", "y"), store.FileHeader{Name: odd, MIMEType: odd, SizeBytes: 0}),
		withFile(trace(p, q, strings.Repeat("i", wire.MaxIDLength), "z"), store.FileHeader{
			Name: strings.Repeat("\U0001f600", wire.MaxFileName), MIMEType: strings.Repeat("ä", wire.MaxMIMEType), SizeBytes: wire.MaxFileSize,
		}),
	}
	sent[1].TS, sent[2].TS = 0, wire.MaxInteger
	for _, tr := range sent {
		f.traced(t, tr, false)
	}
	stored := f.traces(t, p.Room)
	require.Len(t, stored, len(sent))
	for i, got := range stored {
		require.WithinRange(t, got.CommittedAt, before.Add(-leeway), time.Now().Add(leeway))
		require.Equal(t, time.UTC, got.CommittedAt.Location())
		want := sent[i]
		want.Digest = [32]byte{} // never handed out
		require.Equal(t, want, got.Trace)
	}
}

func testTraceIDs(t *testing.T, f fixture) {
	p, q := f.pair(t)
	r := f.add(t, p.Room, store.RoleAgent)
	first := trace(p, q, "taken", "text")
	f.traced(t, first, false)
	f.traced(t, first, true)
	for name, other := range map[string]store.Trace{
		"another digest":    trace(p, q, "taken", "other"),
		"another sender":    trace(r, q, "taken", "text"),
		"another recipient": trace(p, r, "taken", "text"),
		"the other way":     trace(q, p, "taken", "text"),
	} {
		t.Run(name, func(t *testing.T) { f.untraced(t, other, errConflict) })
	}
	f.traced(t, first, true)

	_, err := f.Edge.AppendMessage(t.Context(), message(p, "in-history", "x"))
	require.NoError(t, err)
	f.untraced(t, trace(p, q, "in-history", "x"), errConflict)

	elsewhere, other := f.pair(t)
	f.traced(t, trace(elsewhere, other, "taken", "text"), false)
	f.traced(t, trace(elsewhere, other, "in-history", "x"), false)
	require.Len(t, f.traces(t, p.Room), 1)
}

func testTraceShapes(t *testing.T, f fixture) {
	p, q := f.pair(t)
	file := store.FileHeader{Name: "n", MIMEType: "m", SizeBytes: 1}
	for name, change := range map[string]func(*store.Trace){
		"no id":          func(tr *store.Trace) { tr.MessageID = "" },
		"long id":        func(tr *store.Trace) { tr.MessageID = strings.Repeat("i", wire.MaxIDLength+1) },
		"space in id":    func(tr *store.Trace) { tr.MessageID = "a b" },
		"NUL in id":      func(tr *store.Trace) { tr.MessageID = "a\x00b" },
		"broken id":      func(tr *store.Trace) { tr.MessageID = "\xff" },
		"to oneself":     func(tr *store.Trace) { tr.To = tr.From },
		"large ts":       func(tr *store.Trace) { tr.TS = wire.MaxInteger + 1 },
		"two declared":   func(tr *store.Trace) { tr.Files = []store.FileHeader{file, file} },
		"no name":        func(tr *store.Trace) { tr.Files[0].Name = "" },
		"no type":        func(tr *store.Trace) { tr.Files[0].MIMEType = "" },
		"long name":      func(tr *store.Trace) { tr.Files[0].Name = strings.Repeat("ä", wire.MaxFileName+1) },
		"long type":      func(tr *store.Trace) { tr.Files[0].MIMEType = strings.Repeat("ä", wire.MaxMIMEType+1) },
		"large file":     func(tr *store.Trace) { tr.Files[0].SizeBytes = wire.MaxFileSize + 1 },
		"enormous file":  func(tr *store.Trace) { tr.Files[0].SizeBytes = 1<<64 - 1 },
		"NUL":            func(tr *store.Trace) { tr.Files[0].Name = "a\x00b" },
		"line break":     func(tr *store.Trace) { tr.Files[0].Name = "a\nb" },
		"delete":         func(tr *store.Trace) { tr.Files[0].MIMEType = "a\x7fb" },
		"C1 control":     func(tr *store.Trace) { tr.Files[0].Name = "a\u0085b" },
		"line separator": func(tr *store.Trace) { tr.Files[0].Name = "a\u2028b" },
		"paragraph":      func(tr *store.Trace) { tr.Files[0].MIMEType = "a\u2029b" },
	} {
		tr := withFile(trace(p, q, "shape", "x"), file)
		change(&tr)
		t.Run(name, func(t *testing.T) { refusedShape(t, f, tr) })
	}
	require.Empty(t, f.traces(t, p.Room))
}

// refusedShape appends a bad trace among good ones, none of which may pay for it.
func refusedShape(t *testing.T, f fixture, bad store.Trace) {
	t.Helper()
	p, q := f.pair(t)
	errs := race(4, func(i int) error {
		if i == 0 {
			_, err := f.Edge.AppendTrace(t.Context(), bad)
			return err
		}
		_, err := f.Edge.AppendTrace(t.Context(), trace(p, q, fmt.Sprintf("good-%d", i), "x"))
		return err
	})
	require.ErrorIs(t, errs[0], errMalformed)
	require.NoError(t, errors.Join(errs[1:]...))
}

func testTraceEnds(t *testing.T, f fixture) {
	p, q := f.pair(t)
	stranger, other := f.pair(t)
	gone := f.add(t, p.Room, store.RoleAgent)
	f.traced(t, trace(gone, p, "was-here", "x"), false)
	f.remove(t, gone)
	nowhere, nobody := trace(p, q, "nowhere", "x"), trace(p, q, "nobody", "x")
	nowhere.Room, nobody.Tenant = newID(t), newID(t)
	from, to := trace(p, q, "stranger", "x"), trace(p, q, "stranger", "x")
	from.From, to.To = stranger.ID, other.ID
	for name, tr := range map[string]store.Trace{
		"no room": nowhere, "no tenant": nobody, "from a stranger": from, "to a stranger": to,
		"from a former member": trace(gone, p, "gone", "x"), "to a former member": trace(p, gone, "gone", "x"),
		"a former member's again": trace(gone, p, "was-here", "x"),
	} {
		t.Run(name, func(t *testing.T) { f.untraced(t, tr, store.ErrNotFound) })
	}
	f.ArchiveRoom(t, f.tenant, p.Room)
	f.untraced(t, trace(p, q, "archived", "x"), errArchived)
	require.Len(t, f.traces(t, p.Room), 1, "and it stays")
}

// RELAY: a room declares private_messages, and nothing is stored where it refuses them.
func testTracePolicy(t *testing.T, f fixture) {
	room, err := f.Store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: f.tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateRefused,
	})
	require.NoError(t, err)
	p, q := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleAgent)
	f.untraced(t, trace(p, q, "private", "x"), errPrivateRefused)
	_, err = f.Edge.AppendMessage(t.Context(), message(p, "for-all", "x"))
	require.NoError(t, err)
	f.untraced(t, trace(p, q, "for-all", "x"), errPrivateRefused)
	require.Empty(t, f.traces(t, room.ID))
	require.Equal(t, 1, f.HistoryRows(t, f.tenant, room.ID))
}

func testTraceRaces(t *testing.T, f fixture) {
	p, q := f.pair(t)
	answers := make([]store.Appended, 50)
	errs := race(len(answers), func(i int) (err error) {
		answers[i], err = f.Edge.AppendTrace(t.Context(), trace(p, q, "same", "x"))
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
	errs = race(50, func(i int) error {
		_, err := f.Edge.AppendTrace(t.Context(), trace(p, q, "other", strconv.Itoa(i)))
		return err
	})
	require.Equal(t, 1, count(errs, nil))
	require.Equal(t, 49, count(errs, errConflict))
	require.Len(t, f.traces(t, p.Room), 2)
}

// FAULTS BL-G06: the same ids in two tenants.
func testTracesKeptApart(t *testing.T, f fixture) {
	other := newFixture(t, f.Subject)
	p, q := f.pair(t)
	them, theirs := other.pair(t)
	errs := race(2, func(i int) error {
		tr := trace(p, q, "same", "mine")
		if i == 1 {
			tr = trace(them, theirs, "same", "theirs")
		}
		_, err := f.Edge.AppendTrace(t.Context(), tr)
		return err
	})
	require.NoError(t, errors.Join(errs...))
	f.traced(t, trace(p, q, "same", "mine"), true)
	other.traced(t, trace(them, theirs, "same", "theirs"), true)

	intruder := trace(them, theirs, "intruder", "x")
	intruder.Tenant = f.tenant
	f.untraced(t, intruder, store.ErrNotFound)
	intruder.Room = p.Room
	f.untraced(t, intruder, store.ErrNotFound)
	intruder.From = p.ID
	f.untraced(t, intruder, store.ErrNotFound)
	_, _, err := f.Store.TracePage(t.Context(), f.tenant, them.Room, store.Page{Limit: 1})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Len(t, f.traces(t, p.Room), 1)
	require.Len(t, other.traces(t, them.Room), 1)
}

// testVerifiedTraces: those of the plaintext path, which only the API writes.
func testVerifiedTraces(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p, q := f.pair(t)
	add := func(files int, want error) {
		t.Helper()
		tr := trace(p, q, fmt.Sprintf("files-%d", files), "x")
		tr.Declared = false
		for i := range files {
			tr.Files = append(tr.Files, store.FileHeader{Name: fmt.Sprintf("file %d", i), MIMEType: "text/plain", SizeBytes: uint64(i)})
		}
		_, err := s.Store.AppendTrace(t.Context(), tr)
		require.ErrorIs(t, err, want)
		if want == nil {
			all := f.traces(t, p.Room)
			tr.Digest = [32]byte{}
			require.Equal(t, tr, all[len(all)-1].Trace)
		}
	}
	add(0, nil)
	add(1, nil)
	add(2, nil)
	add(store.MaxTraceFiles, nil)
	add(store.MaxTraceFiles+1, errMalformed)
	require.Len(t, f.traces(t, p.Room), 4)

	// No envelope has these, so a store that is asked over a network is never asked.
	for name, text := range map[string]string{
		"broken UTF-8": "a\xffb", "lone surrogate": "a\xed\xa0\x80b", "overlong NUL": "a\xc0\x80b", "truncated UTF-8": "a\xf0\x9f",
	} {
		for _, file := range []store.FileHeader{{Name: text, MIMEType: "m"}, {Name: "n", MIMEType: text}} {
			_, err := s.Store.AppendTrace(t.Context(), withFile(trace(p, q, "shape", "x"), file))
			require.ErrorIs(t, err, errMalformed, name)
		}
	}
}
