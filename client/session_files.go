package client

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
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
	if err := s.makeRoom(tx, m.From, key, len(m.Payload)); err != nil {
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

// arrival is a file of any room that has not come whole.
type arrival struct {
	arriving

	key              string
	room, from, file string
}

// arrivals are all of them, and the bytes of these and of those that are whole and not taken yet.
func arrivals(tx *keystore.Tx) (all []arrival, bytes int, err error) {
	for key, text := range tx.All(keystore.Messages, filesPart) {
		a := arrival{key: key}
		if err := stored(text, &a.arriving); err != nil {
			return nil, 0, err
		}
		bytes += a.Bytes
		if !a.whole() {
			parts := strings.SplitN(strings.TrimPrefix(key, filesPart), "/", 3)
			a.room, a.from, a.file = parts[0], parts[1], parts[2]
			all = append(all, a)
		}
	}
	return all, bytes, nil
}

// makeRoom makes room for more bytes of a sender's file. It gives up files that have not come
// whole: of the same sender, where that would have too many; and of the sender that has most
// of them, where all senders of all rooms would have too much: so that nobody's files fill the
// store, which would then take nothing at all.
func (s *Session) makeRoom(tx *keystore.Tx, from, key string, more int) error {
	all, bytes, err := arrivals(tx)
	if err != nil {
		return err
	}
	known := len(all)
	all = slices.DeleteFunc(all, func(a arrival) bool { return a.key == key })
	fresh := len(all) == known
	own := slices.DeleteFunc(slices.Clone(all), func(a arrival) bool { return a.room != s.id || a.from != from })
	tooMany := fresh && len(own) >= maxArriving
	for len(all) > 0 && (tooMany || bytes+more > maxArrivingBytes || fresh && len(all) >= maxArrivingFiles) {
		if !tooMany {
			own = ofLargest(all)
		}
		tooMany = false
		oldest := slices.MinFunc(own, func(a, b arrival) int { return cmp.Compare(a.Began, b.Began) })
		if err := giveUp(tx, &oldest); err != nil {
			return err
		}
		bytes -= oldest.Bytes
		all = slices.DeleteFunc(all, func(a arrival) bool { return a.key == oldest.key })
	}
	return nil
}

// ofLargest are the files of the sender that has most of them, by bytes.
func ofLargest(all []arrival) []arrival {
	bytes := make(map[string]int)
	largest := ""
	for i := range all {
		from := all[i].from
		bytes[from] += all[i].Bytes
		if bytes[from] > bytes[largest] {
			largest = from
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a arrival) bool { return a.from != largest })
}

// giveUp forgets a file, and reports it.
func giveUp(tx *keystore.Tx, a *arrival) error {
	failure := newFailure(a.ID, a.from, a.StreamID, fmt.Errorf("%w: too many have not come whole", content.ErrFile))
	return errors.Join(dropFile(tx, a.room, a.from, a.file), saveItem(tx, a.room, &savedItem{Failure: failure}))
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
