package senderkey_test

import (
	"crypto/rand"
	"encoding"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

const (
	goodCK  = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	goodKID = "AAAAAAAAAAAAAAAAAAAAAQ"
)

// There is one way to write each payload (FAULTS BL-F01).
func TestPayloadsThatAreRefused(t *testing.T) {
	t.Parallel()
	good := `{"ck":"` + goodCK + `","gen":7,"iteration":0,"kid":"` + goodKID + `","type":"sender_key","v":1}`
	_, err := senderkey.ParseDistribution([]byte(good))
	require.NoError(t, err)
	replace := func(from, to string) string {
		require.Contains(t, good, from)
		return strings.Replace(good, from, to, 1)
	}
	for name, text := range map[string]string{
		"empty":               ``,
		"null":                `null`,
		"array":               `[]`,
		"no member":           `{}`,
		"space":               replace(`,"gen"`, `, "gen"`),
		"trailing space":      good + " ",
		"trailing value":      good + "{}",
		"order":               `{"gen":7,"ck":"` + goodCK + `","iteration":0,"kid":"` + goodKID + `","type":"sender_key","v":1}`,
		"twice":               replace(`"gen":7`, `"gen":7,"gen":7`),
		"other case":          replace(`"gen"`, `"Gen"`),
		"escaped name":        replace(`"gen"`, `"\u0067en"`),
		"escaped text":        replace(`"sender_key"`, `"\u0073ender_key"`),
		"unknown member":      replace(`"v":1`, `"v":1,"x":1`),
		"version":             replace(`"v":1`, `"v":2`),
		"no version":          replace(`,"v":1`, ``),
		"type":                replace(`sender_key`, `key_request`),
		"no type":             replace(`"type":"sender_key",`, ``),
		"gen as text":         replace(`"gen":7`, `"gen":"7"`),
		"gen as fraction":     replace(`"gen":7`, `"gen":7.0`),
		"gen with exponent":   replace(`"gen":7`, `"gen":7e0`),
		"gen negative":        replace(`"gen":7`, `"gen":-7`),
		"gen minus zero":      replace(`"gen":7`, `"gen":-0`),
		"gen null":            replace(`"gen":7`, `"gen":null`),
		"gen 2^53":            replace(`"gen":7`, `"gen":9007199254740992`),
		"no gen":              replace(`"gen":7,`, ``),
		"iteration 2^14":      replace(`"iteration":0`, `"iteration":16384`),
		"iteration 2^32":      replace(`"iteration":0`, `"iteration":4294967296`),
		"iteration null":      replace(`"iteration":0`, `"iteration":null`),
		"no iteration":        replace(`"iteration":0,`, ``),
		"key of 31 bytes":     replace(goodCK, goodCK[1:]),
		"key of 33 bytes":     replace(goodCK, goodCK+"A"),
		"key padded":          replace(goodCK, goodCK+"="),
		"key with other bits": replace(goodCK, goodCK[:42]+"B"),
		"key with line break": replace(goodCK, goodCK[:42]+`\n`),
		"key in base64":       replace(goodCK, "+"+goodCK[1:]),
		"no key":              replace(`"ck":"`+goodCK+`",`, ``),
		"kid of 15 bytes":     replace(goodKID, goodKID[:20]),
		"kid of zeros":        replace(goodKID, "AAAAAAAAAAAAAAAAAAAAAA"),
		"kid with other bits": replace(goodKID, "AAAAAAAAAAAAAAAAAAAAAR"),
		"kid empty":           replace(goodKID, ""),
		"kid null":            replace(`"`+goodKID+`"`, "null"),
		"with an id":          replace(`"iteration"`, `"id":"`+goodKID+`","iteration"`),
		"bad UTF-8":           replace("sender_key", "sender_key\xff"),
		"large":               replace("sender_key", strings.Repeat("x", 10000)),
		"deep":                strings.Repeat("[", 100000),
	} {
		_, err := senderkey.ParseDistribution([]byte(text))
		require.ErrorIs(t, err, senderkey.ErrPayload, name)
	}
	request := `{"gen":7,"id":"` + goodKID + `","kid":"` + goodKID + `","type":"key_request","v":1}`
	_, err = senderkey.ParseKeyRequest([]byte(request))
	require.NoError(t, err)
	gone := `{"gen":7,"kid":"` + goodKID + `","type":"key_unavailable","v":1}`
	_, err = senderkey.ParseKeyUnavailable([]byte(gone))
	require.NoError(t, err)
	for _, text := range []string{
		"", good, gone,
		strings.Replace(request, `"id":"`+goodKID+`",`, "", 1),
		strings.Replace(request, `"id":"`+goodKID, `"id":"`+goodKID[1:], 1),
		strings.Replace(request, `"id":"`+goodKID, `"id":"`+goodKID[:21]+"R", 1),
		strings.Replace(request, `"kid":"`+goodKID, `"kid":"x`, 1),
	} {
		_, err := senderkey.ParseKeyRequest([]byte(text))
		require.ErrorIs(t, err, senderkey.ErrPayload, text)
	}
	for _, text := range []string{"", good, request, strings.Replace(gone, goodKID, "x", 1)} {
		_, err := senderkey.ParseKeyUnavailable([]byte(text))
		require.ErrorIs(t, err, senderkey.ErrPayload, text)
	}
}

// FuzzPayloads: what is read is written as the same bytes, and is one kind of payload.
func FuzzPayloads(f *testing.F) {
	for _, g := range readVectors(f).Generations {
		f.Add([]byte(g.Distributions[1].Payload))
		f.Add([]byte(g.Request))
		f.Add([]byte(g.Unavailable))
	}
	f.Add(senderkey.Distribution{Gen: 1}.Encode())
	f.Add(senderkey.KeyRequest{Gen: 1}.Encode())
	f.Add(senderkey.KeyUnavailable{Gen: 1}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		kinds := 0
		check := func(encoded []byte, err error) {
			if err != nil {
				require.ErrorIs(t, err, senderkey.ErrPayload)
				return
			}
			kinds++
			require.Equal(t, string(data), string(encoded))
		}
		d, err := senderkey.ParseDistribution(data)
		check(d.Encode(), err)
		r, err := senderkey.ParseKeyRequest(data)
		check(r.Encode(), err)
		u, err := senderkey.ParseKeyUnavailable(data)
		check(u.Encode(), err)
		require.LessOrEqual(t, kinds, 1)
	})
}

type state interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// examples are states with something of everything.
func examples(t testing.TB) map[string]state {
	t.Helper()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob", "carol"))
	giveAll(t, &o)
	sendMany(t, o.Present(), "alice", 3)
	begin(t, &o, 2, roster(2, "bob", "dave"))
	sendMany(t, o.Present(), "alice", senderkey.RepairWindow+2)
	_, err := o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: kidOf(1)}, start)
	require.NoError(t, err)
	_, err = o.Answer("dave", senderkey.KeyRequest{ID: senderkey.RequestID{1}, Gen: 1}, start)
	require.NoError(t, err)

	var r senderkey.Receivers
	s := newSender(t, 1, 1, "bob")
	accept(t, &r, "alice", distribute(t, s, "bob"))
	messages := sendMany(t, s, "alice", 4)
	opens(t, &r, messages[1])
	opens(t, &r, messages[3])
	old := distribute(t, newSender(t, 1, 2, "bob"), "bob")
	old.KID = senderkey.KID{}
	accept(t, &r, "carol", old)

	var repair senderkey.Repair
	for kid := range byte(3) {
		_, err := repair.Ask(staleOf(t, "alice", kidOf(kid), 1), start.Add(time.Duration(kid)*time.Second))
		require.NoError(t, err)
	}
	repair.Resolved(senderkey.Key{Sender: "alice", KID: kidOf(1)})
	repair.Unavailable("alice", senderkey.KeyUnavailable{KID: kidOf(2)})
	return map[string]state{
		"outgoing": &o, "sender": o.Present(), "membership": o.Present().Membership(), "receivers": &r, "repair": &repair,
	}
}

// Of a saved state every byte is there, and none is too many; another state is not loaded, and
// what is refused leaves the old one.
func TestSavedStatesThatAreRefused(t *testing.T) {
	t.Parallel()
	all := examples(t)
	for name, s := range all {
		data := save(t, s)
		for n := range data {
			require.ErrorIs(t, s.UnmarshalBinary(data[:n]), senderkey.ErrState, "%s, %d bytes", name, n)
		}
		require.ErrorIs(t, s.UnmarshalBinary(append(slices.Clip(data), 0)), senderkey.ErrState, name)
		for _, at := range []int{0, 1} {
			other := append([]byte(nil), data...)
			other[at] += 7
			require.ErrorIs(t, s.UnmarshalBinary(other), senderkey.ErrState, name)
		}
		for other, o := range all {
			if other != name {
				require.ErrorIs(t, s.UnmarshalBinary(save(t, o)), senderkey.ErrState, "%s as %s", other, name)
			}
		}
		require.Equal(t, data, save(t, s), name)
		reload(t, s)
	}
}

// A sender whose keys do not fit one another is refused: it would give away others than it uses.
func TestDamagedSenderIsRefused(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	sendMany(t, s, "alice", 3)
	data := save(t, s)
	for at := 2 + 16 + 8; at < 2+16+8+4+32+4+32; at++ {
		damaged := append([]byte(nil), data...)
		damaged[at] ^= 1
		require.ErrorIs(t, s.UnmarshalBinary(damaged), senderkey.ErrState, at)
	}
}

// FuzzStates: what is loaded is saved as the same bytes, and can be used.
func FuzzStates(f *testing.F) {
	for _, s := range examples(f) {
		f.Add(save(f, s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kinds := 0
		load := func(s state) bool {
			if err := s.UnmarshalBinary(data); err != nil {
				require.ErrorIs(t, err, senderkey.ErrState)
				return false
			}
			kinds++
			require.Equal(t, data, save(t, s))
			return true
		}
		load(&senderkey.Membership{})
		load(&senderkey.Sender{})
		var o senderkey.Outgoing
		if load(&o) && o.Present() != nil {
			o.Confirm(o.Present().Gen())
			_ = seals(&o)
			_, _ = o.Answer("bob", senderkey.KeyRequest{Gen: 1}, start)
			_ = o.Begin(rand.Reader, 1<<40, kidOf(200), roster(1<<40, "bob"))
			reload(t, &o)
		}
		var r senderkey.Receivers
		if load(&r) {
			_, _ = r.Open(&senderkey.Message{From: "alice", KID: kidOf(1), Gen: 1, CT: make([]byte, 40), Verified: true})
			_, _ = r.Accept("alice", senderkey.Distribution{KID: kidOf(1), Gen: 1, Iteration: 1})
			reload(t, &r)
		}
		var repair senderkey.Repair
		if load(&repair) {
			_, _ = repair.Ask(staleOf(t, "alice", kidOf(1), 1), start)
			_, _ = repair.Due(start)
			reload(t, &repair)
		}
		require.LessOrEqual(t, kinds, 1)
	})
}
