package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// oddText is text of every kind that JSON can hold and the relay accepts.
const oddText = "\"\\/<>&'\u2028\u2029\u007f\U0001f600\ufffd\u00e4"

// message is one of p's to its room, as a client builds it; text, which is UTF-8,
// stands for its content.
func message(p store.Participant, id, text string) store.Message {
	return sealed(store.Message{
		Tenant: p.Tenant, Room: p.Room, Sender: p.ID, ID: id, Kind: wire.KindMessage, Gen: 1,
	}, text)
}

// sealed returns m with the bytes that say what its fields say. Who changes a field
// afterwards seals it again: a store that is asked over a network gets the bytes alone.
func sealed(m store.Message, text string) store.Message {
	m.Bytes = envelope(m.Room, m.Sender, m.Room, m.ID, m.Kind, m.Gen, 1_700_000_000_000, text, markers(m))
	return m
}

// sized is sealed with as much content as makes the envelope size bytes long.
func sized(m store.Message, size int) store.Message {
	empty := len(sealed(m, "").Bytes)
	return sealed(m, strings.Repeat("x", size-empty))
}

// markers are the optional members of m, as JSON.
func markers(m store.Message) (members string) {
	if m.KID != "" {
		members += `,"kid":` + quote(m.KID)
	}
	if m.Enc != "" {
		members += `,"enc":` + quote(m.Enc)
	}
	if m.Hdr {
		members += `,"hdr":"AAAA"`
	}
	return members
}

// envelope builds an envelope (DESIGN section 6). more is what follows the required
// members: empty, or JSON members with a comma before each.
func envelope(room, from, to uuid.UUID, id string, kind wire.Kind, gen, ts uint64, text, more string) []byte {
	return fmt.Appendf(nil, `{"v":1,"id":%s,"session_id":"%s","from":"%s","to":"%s","kind":"%s","gen":%d,"seq":1,"ts":%d,"nonce":"AAAA","ct":%s%s}`,
		quote(id), room, from, to, kind, gen, ts, quote(text), more)
}

// quote returns text as a JSON string; what is not UTF-8 becomes the replacement character.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always has a form
	}
	return string(quoted)
}
