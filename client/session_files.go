package client

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
)

// arriving is how far a file in chunks has come.
type arriving struct {
	Began uint64 `json:"began"` // number of its first chunk
	Count int    `json:"count"`
	Have  int    `json:"have"`
}

func fileKey(room, from, file string) string { return room + filePart + from + "/" + file }

func chunkKey(room, from, file string, index int) string {
	return fmt.Sprintf("%s%s%s/%s/%04d", room, chunkPart, from, file, index)
}

// chunk returns the only part of a payload where that is a chunk.
func chunk(payload []byte) *content.Chunk {
	parts, err := content.Decode(payload)
	if err != nil || len(parts) != 1 {
		return nil
	}
	c, _ := parts[0].(*content.Chunk)
	return c
}

// saveChunk stores a chunk of a file, and reports whether it was the last one that was missing.
func (s *Session) saveChunk(tx *keystore.Tx, from string, c *content.Chunk, payload []byte) (file string, whole bool, err error) {
	file = base64.RawURLEncoding.EncodeToString(c.FileID[:])
	key := fileKey(s.id, from, file)
	var a arriving
	if text := tx.Get(keystore.Messages, key); text != nil {
		if err := stored(text, &a); err != nil {
			return "", false, err
		}
	} else {
		if err := s.makeRoom(tx, from); err != nil {
			return "", false, err
		}
		if a.Began, err = number(tx, s.id); err != nil {
			return "", false, err
		}
		a.Count = c.Count
	}
	at := chunkKey(s.id, from, file, c.Index)
	if a.Count != c.Count || tx.Get(keystore.Messages, at) != nil {
		return "", false, fmt.Errorf("%w: one chunk twice, or another number of them", content.ErrFile)
	}
	a.Have++
	text, err := json.Marshal(a)
	if err != nil {
		return "", false, err
	}
	if err := tx.Put(keystore.Messages, at, payload); err != nil {
		return "", false, err
	}
	return file, a.Have == a.Count, tx.Put(keystore.Messages, key, text)
}

// makeRoom drops the sender's file that began first, where it has too many that did not come
// whole.
func (s *Session) makeRoom(tx *keystore.Tx, from string) error {
	prefix := fileKey(s.id, from, "")
	open, oldest, began := 0, "", uint64(0)
	for key, text := range tx.All(keystore.Messages, prefix) {
		var a arriving
		if err := stored(text, &a); err != nil {
			return err
		}
		if a.Have == a.Count { // whole, and not taken yet
			continue
		}
		if open++; oldest == "" || a.Began < began {
			oldest, began = strings.TrimPrefix(key, prefix), a.Began
		}
	}
	if open < maxArriving {
		return nil
	}
	return s.dropFile(tx, from, oldest)
}

func (s *Session) dropFile(tx *keystore.Tx, from, file string) error {
	keys := []string{fileKey(s.id, from, file)}
	for key := range tx.All(keystore.Messages, s.id+chunkPart+from+"/"+file+"/") {
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err := tx.Delete(keystore.Messages, key); err != nil {
			return err
		}
	}
	return nil
}

// assemble puts the chunks of a file together, which are all there, and checks them.
func (s *Session) assemble(tx *keystore.Tx, from, file string) (File, error) {
	var assembler content.Assembler
	for _, payload := range tx.All(keystore.Messages, s.id+chunkPart+from+"/"+file+"/") {
		c := chunk(payload)
		if c == nil {
			return File{}, fmt.Errorf("%w: a chunk", encryption.ErrState)
		}
		whole, err := assembler.Add(c)
		if err != nil {
			return File{}, err
		}
		if whole != nil {
			return File{Name: whole.Name, MIMEType: whole.MIMEType, Data: whole.Data}, nil
		}
	}
	return File{}, fmt.Errorf("%w: chunks are missing", content.ErrFile)
}
