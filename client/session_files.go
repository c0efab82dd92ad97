package client

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
)

// arriving is how far a file in chunks has come.
type arriving struct {
	ID       string `json:"id"` // of the envelope that brought its first chunk
	StreamID string `json:"stream_id"`
	Began    uint64 `json:"began"` // number of that chunk
	Count    int    `json:"count"`
	Have     int    `json:"have"`
	Bytes    int    `json:"bytes"` // of what is there
}

func (a *arriving) whole() bool { return a.Have == a.Count }

// fileKey begins with filesPart and not with the room: the files of all rooms have one bound.
func fileKey(room, from, file string) string { return filesPart + room + "/" + from + "/" + file }

func chunksKey(room, from, file string) string { return room + chunkPart + from + "/" + file + "/" }

func chunkKey(room, from, file string, index int) string {
	return fmt.Sprintf("%s%04d", chunksKey(room, from, file), index)
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

// saveChunk stores the chunk that m is, and reports whether it was the last one that was
// missing.
func (s *Session) saveChunk(tx *keystore.Tx, m *savedMessage, c *content.Chunk) (file string, whole bool, err error) {
	file = base64.RawURLEncoding.EncodeToString(c.FileID[:])
	key := fileKey(s.id, m.From, file)
	a := arriving{ID: m.ID, StreamID: m.StreamID, Count: c.Count}
	if text := tx.Get(keystore.Messages, key); text != nil {
		if err := stored(text, &a); err != nil {
			return "", false, err
		}
	} else if a.Began, err = number(tx, s.id); err != nil {
		return "", false, err
	}
	at := chunkKey(s.id, m.From, file, c.Index)
	if a.Count != c.Count || tx.Get(keystore.Messages, at) != nil {
		return "", false, fmt.Errorf("%w: one chunk twice, or another number of them", content.ErrFile)
	}
	if err := s.makeRoomFor(tx, m.From, key, len(m.Payload)); err != nil {
		return "", false, err
	}
	a.Have++
	a.Bytes += len(m.Payload)
	text, err := json.Marshal(a)
	if err != nil {
		return "", false, err
	}
	if err := tx.Put(keystore.Messages, at, m.Payload); err != nil {
		return "", false, err
	}
	return file, a.whole(), tx.Put(keystore.Messages, key, text)
}

// makeRoomFor makes room for more bytes of a sender's file. What is given up are files that have not
// come whole; of those that have, and are not taken yet, only the bytes count.
func (s *Session) makeRoomFor(tx *keystore.Tx, from, key string, more int) error {
	var others []share
	fresh := 1
	for at, text := range tx.All(keystore.Messages, filesPart) {
		var a arriving
		if err := stored(text, &a); err != nil {
			return err
		}
		if at == key {
			fresh = 0
		}
		if at == key || a.whole() {
			more += a.Bytes
			continue
		}
		parts := strings.SplitN(strings.TrimPrefix(at, filesPart), "/", 3)
		other := share{key: at, room: parts[0], from: parts[1], age: a.Began, size: a.Bytes}
		other.giveUp = func(tx *keystore.Tx) error {
			return giveUpFile(tx, other.room, other.from, parts[2], &a, "too many have not come whole")
		}
		others = append(others, other)
	}
	return makeRoom(tx, others,
		bound{func(o *share) bool { return o.room == s.id && o.from == from }, one, maxArriving - fresh},
		bound{everything, one, maxArrivingFiles - fresh},
		bound{everything, bytesOf, maxArrivingBytes - more})
}

// giveUpFile forgets a file, and reports it.
func giveUpFile(tx *keystore.Tx, room, from, file string, a *arriving, why string) error {
	failure := newFailure(a.ID, from, a.StreamID, fmt.Errorf("%w: %s", content.ErrFile, why))
	return errors.Join(dropFile(tx, room, from, file), saveItem(tx, room, &savedItem{Failure: failure}))
}

func dropFile(tx *keystore.Tx, room, from, file string) error {
	keys := []string{fileKey(room, from, file)}
	for key := range tx.All(keystore.Messages, chunksKey(room, from, file)) {
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
	for _, payload := range tx.All(keystore.Messages, chunksKey(s.id, from, file)) {
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
