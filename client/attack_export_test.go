package client

import (
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

// MaxPending is how many envelopes of a room wait for their keys.
const MaxPending = maxPending

// MaxArrivingBytes bounds the files that have not come whole.
const MaxArrivingBytes = maxArrivingBytes

// Chunks has chunks of somebody come.
func (s *Session) Chunks(from string, chunks ...*content.Chunk) error {
	return s.store.Update(func(tx *keystore.Tx) error {
		for _, c := range chunks {
			payload, err := content.Encode(c)
			if err == nil {
				_, _, err = s.saveChunk(tx, &savedMessage{ID: "chunk", From: from, Payload: payload}, c)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// KeepPending has n envelopes of somebody come whose key is missing.
func (s *Session) KeepPending(from string, n int) error {
	return s.store.Update(func(tx *keystore.Tx) error {
		for i := range n {
			if err := s.savePending(tx, &arrived{}, &signed.Claims{From: from, ID: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// PendingOf counts them.
func (s *Session) PendingOf(from string) (n int, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		for _, text := range tx.All(keystore.Messages, s.id+pendingPart) {
			var a arrived
			if err := stored(text, &a); err != nil {
				return err
			}
			if a.From == from {
				n++
			}
		}
		return nil
	})
	return n, err
}
