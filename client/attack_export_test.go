package client

import (
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
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
