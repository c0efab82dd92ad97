package senderkey_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

var benchAAD = make([]byte, 300)

func BenchmarkSeal1KiB(b *testing.B) {
	text := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	var s *senderkey.Sender
	for i := 0; b.Loop(); i++ {
		if i%(senderkey.MaxIterations-1) == 0 {
			s = newSender(b, uint64(i+1), 1)
		}
		if _, _, err := s.Seal(seal.NewNonce(), text, benchAAD); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	const batch = 10_000
	text := make([]byte, 1024)
	s := newSender(b, 1, 1, "bob")
	d := distribute(b, s, "bob")
	messages := make([]senderkey.Message, batch)
	for i := range messages {
		nonce := seal.NewNonce()
		_, ct, err := s.Seal(nonce, text, benchAAD)
		require.NoError(b, err)
		messages[i] = senderkey.Message{From: "alice", KID: s.KID(), Gen: 1, Nonce: nonce, CT: ct, AAD: benchAAD, Verified: true}
	}
	b.SetBytes(1024)
	b.ReportAllocs()
	var r *senderkey.Receivers
	for i := 0; b.Loop(); i++ {
		if i%batch == 0 {
			r = &senderkey.Receivers{}
			accept(b, r, "alice", d)
		}
		if _, err := r.Open(&messages[i%batch]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForgedJump is the dearest message that is refused.
func BenchmarkForgedJump(b *testing.B) {
	s := newSender(b, 1, 1, "bob")
	var r senderkey.Receivers
	accept(b, &r, "alice", distribute(b, s, "bob"))
	m := send(b, s, "alice")
	m.CT[2], m.CT[3] = 3, 0xE8
	for b.Loop() {
		if _, err := r.Open(&m.Message); err == nil {
			b.Fatal("opened")
		}
	}
}

// BenchmarkAcceptFarthest is the dearest distribution.
func BenchmarkAcceptFarthest(b *testing.B) {
	var r senderkey.Receivers
	d := senderkey.Distribution{KID: kidOf(1), Gen: 1}
	accept(b, &r, "alice", d)
	d.Iteration = senderkey.MaxIterations - 1
	_, _ = rand.Read(d.CK[:])
	for b.Loop() {
		if _, err := r.Accept("alice", d); err == nil {
			b.Fatal("accepted")
		}
	}
}
