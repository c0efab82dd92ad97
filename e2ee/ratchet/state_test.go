package ratchet_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

// A stored state is read as a whole or not at all, and has one form.
func TestStoredSessionsAreStrict(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	begun, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	owner, agent := pairOf(t)
	sealed(t, owner, "lost")
	opens(t, agent, sealed(t, owner, "next"), "next")
	opens(t, owner, sealed(t, agent, "turn"), "turn")
	sealed(t, owner, "lost")
	opens(t, agent, sealed(t, owner, "next"), "next")
	require.Equal(t, 2, agent.Skipped())

	for _, session := range []*ratchet.Session{begun, owner, agent} {
		stored := state(t, session)
		var other ratchet.Session
		for n := range stored {
			require.ErrorIs(t, other.UnmarshalBinary(stored[:n]), ratchet.ErrState, n)
		}
		require.ErrorIs(t, other.UnmarshalBinary(append(bytes.Clone(stored), 0)), ratchet.ErrState)
		require.ErrorIs(t, other.UnmarshalBinary(make([]byte, 1<<20)), ratchet.ErrState)
		for i := range stored {
			changed := bytes.Clone(stored)
			changed[i] ^= 0x80
			if other.UnmarshalBinary(changed) == nil {
				require.Equal(t, changed, state(t, &other), "one form, byte %d", i)
			}
		}
		// A failed read leaves what was there.
		copied := restarted(t, session)
		require.Error(t, copied.UnmarshalBinary(stored[1:]))
		require.Equal(t, stored, state(t, copied))
	}

	// Rules that hold between the parts.
	stored := state(t, agent)
	recv := 2 + 128 + 48 + 2 + len(room) + 96 + 8 + 32 // where the present chain is
	for name, change := range map[string]func(b []byte){
		"version":                 func(b []byte) { b[0]++ },
		"flag":                    func(b []byte) { b[1] |= 4 },
		"a responder unanswered":  func(b []byte) { b[1] = 0 },
		"an initiator unanswered": func(b []byte) { b[1] = 1 },
		"signed prekey 0":         func(b []byte) { copy(b[2+128+32:], make([]byte, 4)) },
		"room with a space":       func(b []byte) { b[2+128+48+2] = ' ' },
		"present chain is past":   func(b []byte) { copy(b[recv:], b[recv+42+36+2:][:32]) },
		"nothing received":        func(b []byte) { copy(b[recv+32:], make([]byte, 4)) },
		"lost beyond the end":     func(b []byte) { b[recv+36] = 1 },
		"key beyond the end":      func(b []byte) { b[recv+42] = 1 },
		"too many keys":           func(b []byte) { binary.BigEndian.PutUint16(b[recv+40:], 2001) },
		"too many chains":         func(b []byte) { binary.BigEndian.PutUint16(b[recv+42+36:], 2065) },
		"sent too many":           func(b []byte) { binary.BigEndian.PutUint32(b[recv-40:], 1<<32-1) },
		"sent too many before":    func(b []byte) { binary.BigEndian.PutUint32(b[recv-36:], 1<<32-1) },
	} {
		changed := bytes.Clone(stored)
		change(changed)
		require.NotEqual(t, stored, changed, name)
		require.ErrorIs(t, new(ratchet.Session).UnmarshalBinary(changed), ratchet.ErrState, name)
	}
}

func TestStoredConversationsAreStrict(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, err := ratchet.ForOwner(room, &alice.Keys, &bot.Keys)
	require.NoError(t, err)
	var ids []ratchet.SessionID
	for range ratchet.MaxSessions + 2 {
		require.NoError(t, owner.Begin(&alice.Device, bot.bundle(t, 1, 0), noon))
		ids = append(ids, owner.Newest().ID())
	}
	stored := state(t, owner)
	var other ratchet.Sessions
	require.NoError(t, other.UnmarshalBinary(stored))
	for n := range stored {
		require.ErrorIs(t, other.UnmarshalBinary(stored[:n]), ratchet.ErrState, n)
	}
	require.ErrorIs(t, other.UnmarshalBinary(append(bytes.Clone(stored), 0)), ratchet.ErrState)
	require.ErrorIs(t, other.UnmarshalBinary(make([]byte, 4<<20)), ratchet.ErrState)
	require.Equal(t, stored, state(t, &other))

	keys := 2 + 8 + 2 + len(room)
	retired := keys + 256 + 1
	list := retired + 2*16 + 1
	size := 4 + int(binary.BigEndian.Uint32(stored[list:]))
	for name, change := range map[string]func(b []byte){
		"version":              func(b []byte) { b[0]++ },
		"flag":                 func(b []byte) { b[1] = 3 },
		"an agent's":           func(b []byte) { b[1] = 0 },
		"begun after the last": func(b []byte) { binary.BigEndian.PutUint64(b[2:], uint64(noon.UnixMilli())) },
		"last of 2^53":         func(b []byte) { binary.BigEndian.PutUint64(b[2:], 1<<53) },
		"another room":         func(b []byte) { b[keys-1] ^= 1 },
		"keys that do not fit": func(b []byte) { b[keys] ^= 1 },
		"retired twice":        func(b []byte) { copy(b[retired+16:], b[retired:retired+16]) },
		"retired and there":    func(b []byte) { copy(b[retired:], ids[len(ids)-1][:]) },
		"too many retired":     func(b []byte) { b[retired-1] = 65 },
		"too many":             func(b []byte) { b[list-1] = 6 },
		"out of order": func(b []byte) {
			copy(b[list:], stored[list+size:list+2*size])
			copy(b[list+size:], stored[list:list+size])
		},
		"one twice": func(b []byte) { copy(b[list+size:], stored[list:list+size]) },
	} {
		changed := bytes.Clone(stored)
		change(changed)
		require.NotEqual(t, stored, changed, name)
		require.ErrorIs(t, other.UnmarshalBinary(changed), ratchet.ErrState, name)
		require.ErrorIs(t, other.UnmarshalFor(room, &alice.Keys, &bot.Keys, changed), ratchet.ErrState, name)
	}

	// Of these devices and this room, and of no others.
	third := newPerson(t, "third").Keys
	for _, c := range []struct {
		room      string
		own, peer *identity.Keys
	}{{room + "1", &alice.Keys, &bot.Keys}, {room, &third, &bot.Keys}, {room, &alice.Keys, &third}, {room, &bot.Keys, &alice.Keys}} {
		require.ErrorIs(t, other.UnmarshalFor(c.room, c.own, c.peer, stored), ratchet.ErrState)
	}
	for n := range keys + 256 {
		require.ErrorIs(t, other.UnmarshalFor(room, &alice.Keys, &bot.Keys, stored[:n]), ratchet.ErrState, n)
	}
	var again ratchet.Sessions
	require.NoError(t, again.UnmarshalFor(room, &alice.Keys, &bot.Keys, stored))
	require.Equal(t, stored, state(t, &again))
}

func TestStoredRepairsAreStrict(t *testing.T) {
	t.Parallel()
	owner, _ := pairOf(t)
	m := sealed(t, owner, "x")
	var r ratchet.Repair
	r.Failed(m, ratchet.ErrUnknownSession)
	require.True(t, r.Ask(noon))
	r.Failed(forged(t, m, func(h *ratchet.Header) { h.Session[0]++ }), ratchet.ErrNotAuthentic)
	stored := state(t, &r)
	var other ratchet.Repair
	require.NoError(t, other.UnmarshalBinary(stored))
	require.Equal(t, stored, state(t, &other))
	for n := range stored {
		require.ErrorIs(t, other.UnmarshalBinary(stored[:n]), ratchet.ErrState)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"longer":         func(b []byte) []byte { return append(b, 0) },
		"version":        func(b []byte) []byte { b[0] = 2; return b },
		"wanted":         func(b []byte) []byte { b[1] = 2; return b },
		"failures":       func(b []byte) []byte { b[2] = 3; return b },
		"suspect of 0":   func(b []byte) []byte { b[2] = 0; return b },
		"asks":           func(b []byte) []byte { b[3] = 8; return b },
		"negative":       func(b []byte) []byte { b[4] = 0x80; return b },
		"given up twice": func(b []byte) []byte { b[28] = 2; return append(b, b[29:45]...) },
		"too many":       func(b []byte) []byte { b[28] = 17; return append(b, make([]byte, 256)...) },
	} {
		require.ErrorIs(t, other.UnmarshalBinary(change(bytes.Clone(stored))), ratchet.ErrState, name)
	}
	require.Equal(t, stored, state(t, &other))
	for i := range 100 { // bounded
		r.Failed(forged(t, m, func(h *ratchet.Header) { h.Session[1] = byte(i) }), ratchet.ErrUnknownSession)
	}
	require.LessOrEqual(t, len(state(t, &r)), 29+16*16)
	require.NoError(t, other.UnmarshalBinary(state(t, &r)))
}

// A header has one form.
func TestHeadersAreStrict(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	first := sealed(t, owner, "x").Header
	h, err := ratchet.ParseHeader(first)
	require.NoError(t, err)
	require.Equal(t, alice.Keys.Identity, h.Start.Identity)
	require.EqualValues(t, noon.UnixMilli(), h.Start.Started)
	require.Equal(t, first, h.Bytes())
	for n := range first {
		_, err := ratchet.ParseHeader(first[:n])
		require.ErrorIs(t, err, ratchet.ErrHeader, "%d bytes", n)
	}
	short := bytes.Clone(first[:ratchet.HeaderSize])
	short[1] = 0
	_, err = ratchet.ParseHeader(short)
	require.NoError(t, err)
	for name, change := range map[string]func(b []byte){
		"version":         func(b []byte) { b[0] = 2 },
		"no flag":         func(b []byte) { b[1] = 0 },
		"another flag":    func(b []byte) { b[1] = 3 },
		"signed 0":        func(b []byte) { copy(b[122:], []byte{0, 0, 0, 0}) },
		"signed 2^31":     func(b []byte) { copy(b[122:], []byte{0x80, 0, 0, 0}) },
		"one-time 2^31":   func(b []byte) { copy(b[126:], []byte{0x80, 0, 0, 0}) },
		"started of 2^53": func(b []byte) { b[131] = 0x20 },
		"PN of 2^32-1":    func(b []byte) { copy(b[50:], []byte{255, 255, 255, 255}) },
	} {
		changed := bytes.Clone(first)
		change(changed)
		_, err := ratchet.ParseHeader(changed)
		require.ErrorIs(t, err, ratchet.ErrHeader, name)
	}
	_, err = ratchet.ParseHeader(append(bytes.Clone(first), 0))
	require.ErrorIs(t, err, ratchet.ErrHeader)
}

func FuzzParseHeader(f *testing.F) {
	owner, agent := pairOf(f)
	f.Add(sealed(f, owner, "x").Header)
	f.Add(sealed(f, agent, "x").Header)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ratchet.ParseHeader(b)
		if err != nil {
			require.ErrorIs(t, err, ratchet.ErrHeader)
			return
		}
		require.Equal(t, b, h.Bytes())
	})
}

func FuzzUnmarshalSession(f *testing.F) {
	owner, agent := pairOf(f)
	f.Add(state(f, owner))
	sealed(f, owner, "lost")
	opens(f, agent, sealed(f, owner, "next"), "next")
	f.Add(state(f, agent))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ratchet.Session
		if err := s.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ratchet.ErrState)
			return
		}
		require.Equal(t, b, state(t, &s))
		m, err := s.Seal([]byte("x"))
		if err != nil {
			require.ErrorIs(t, err, ratchet.ErrExhausted)
			return
		}
		_, err = s.Open(m)
		require.Error(t, err)
	})
}

func FuzzUnmarshalSessions(f *testing.F) {
	alice, bot := newPerson(f, "owner"), newPerson(f, "agent")
	owner, err := ratchet.ForOwner(room, &alice.Keys, &bot.Keys)
	require.NoError(f, err)
	f.Add(state(f, owner))
	for range ratchet.MaxSessions + 1 {
		require.NoError(f, owner.Begin(&alice.Device, bot.bundle(f, 1, 0), noon))
	}
	f.Add(state(f, owner))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ratchet.Sessions
		if err := s.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ratchet.ErrState)
			return
		}
		require.Equal(t, b, state(t, &s))
	})
}

func FuzzUnmarshalRepair(f *testing.F) {
	f.Add(state(f, &ratchet.Repair{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r ratchet.Repair
		if err := r.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ratchet.ErrState)
			return
		}
		require.Equal(t, b, state(t, &r))
		r.Ask(noon)
		require.NoError(t, new(ratchet.Repair).UnmarshalBinary(state(t, &r)))
	})
}

// FuzzOpen: no message that nobody sealed changes a state.
func FuzzOpen(f *testing.F) {
	owner, agent := pairOf(f)
	before := state(f, agent)
	m := sealed(f, owner, "x")
	f.Add(m.Header, m.Nonce[:], m.Ciphertext)
	f.Fuzz(func(t *testing.T, header, nonce, ct []byte) {
		fuzzed := &ratchet.Message{Header: header, Ciphertext: ct}
		copy(fuzzed.Nonce[:], nonce)
		s := agent.Clone()
		plaintext, err := s.Open(fuzzed)
		if err == nil {
			require.Equal(t, "x", string(plaintext))
			return
		}
		require.Equal(t, before, state(t, s))
	})
}
