package client

import (
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

// Bounds of envelopes that wait for their keys.
const (
	MaxPending      = maxPending
	MaxPendingBytes = maxPendingBytes
	RetryBatch      = retryBatch
)

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

// KeepPending has n envelopes of so many bytes come of somebody, whose key is missing.
func (s *Session) KeepPending(from string, n, size int) error {
	for i := range n {
		err := s.store.Update(func(tx *keystore.Tx) error {
			return s.savePending(tx, &arrived{Envelope: make([]byte, size)}, &signed.Claims{From: from, ID: fmt.Sprint(i)})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PendingOf counts them, and their bytes.
func (s *Session) PendingOf(from string) (n, bytes int, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		all := allPending(tx)
		for _, p := range all {
			if p.from == from {
				n++
				bytes += len(tx.Get(keystore.Messages, p.key))
			}
		}
		return nil
	})
	return n, bytes, err
}
