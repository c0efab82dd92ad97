package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// firstSeq has as many digits as every seq after it in one run, so that an
// envelope's bytes are a template in which only digits change.
const firstSeq = 1_000_000_000

const (
	senderDigits = 6
	seqDigits    = 10
	// envelopePrefix begins every envelope of this generator; the id follows.
	envelopePrefix = `{"v":1,"id":"`
	// idLength: tag, sender, seq.
	idLength = tagLength + 1 + senderDigits + 1 + seqDigits
)

const tagLength = 8

// template makes the envelopes of one sender to one recipient. The same seq gives
// the same bytes.
type template struct {
	raw    []byte
	idSeq  int // where the id's seq stands
	seq    int
	sealed int // where text stands that changes with each envelope, as a ciphertext would
}

// heading is what all envelopes of one sender to one recipient have in common.
type heading struct {
	tag     string // tagLength characters, which tell runs apart
	sender  int    // an index below 10^senderDigits
	session string
	from    string
	to      string
	kind    string
	sent    time.Time // the ts member; zero: some time, which only notices care about
	expires time.Time // zero: without the member
}

// newTemplate makes a template of exactly size bytes.
func newTemplate(h heading, size int) (*template, error) {
	if len(h.tag) != tagLength {
		return nil, fmt.Errorf("tag %q has not %d characters", h.tag, tagLength)
	}
	if h.sent.IsZero() {
		h.sent = time.UnixMilli(1_790_000_000_000)
	}
	raw := fmt.Appendf(nil, envelopePrefix+`%s-%0*d-%d","session_id":%q,"from":%q,"to":%q,"kind":%q,"gen":1,"seq":%d,"ts":%d,`,
		h.tag, senderDigits, h.sender, firstSeq, h.session, h.from, h.to, h.kind, firstSeq, h.sent.UnixMilli())
	if !h.expires.IsZero() {
		raw = fmt.Appendf(raw, `"expires_at":%d,`, h.expires.UnixMilli())
	}
	raw = append(raw, `"nonce":"AAAAAAAAAAAAAAAA","sig":"`...)
	seqAt := bytes.LastIndex(raw, []byte(`"seq":`)) + len(`"seq":`)
	raw = append(raw, text(uint64(h.sender), 86)...)
	raw = append(raw, `","ct":"`...)
	room := size - len(raw) - len(`"}`)
	if room < seqDigits {
		return nil, fmt.Errorf("an envelope with these ids has at least %d bytes", size-room+seqDigits)
	}
	body := len(raw)
	raw = append(raw, text(uint64(h.sender)+1, room)...)
	raw = append(raw, `"}`...)
	return &template{
		raw:    raw,
		idSeq:  len(envelopePrefix) + idLength - seqDigits,
		seq:    seqAt,
		sealed: body,
	}, nil
}

// text returns n characters of base64url that depend on seed alone and compress
// as badly as ciphertext.
func text(seed uint64, n int) []byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.New(rand.NewPCG(seed, 0x70656572))
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[random.IntN(len(alphabet))]
	}
	return out
}

// at returns the envelope with this seq, valid until the next call.
func (t *template) at(seq uint64) []byte {
	var digits [20]byte
	written := strconv.AppendUint(digits[:0], seq, 10)
	copy(t.raw[t.idSeq:], written)
	copy(t.raw[t.seq:], written)
	copy(t.raw[t.sealed:], written)
	return t.raw
}

// clone returns a template that does not share memory.
func (t *template) clone() *template {
	copied := *t
	copied.raw = bytes.Clone(t.raw)
	return &copied
}

// parseID reads an id this generator made.
func parseID(id []byte, tag string) (sender int, seq uint64, ok bool) {
	if len(id) != idLength || string(id[:tagLength]) != tag {
		return 0, 0, false
	}
	for _, c := range id[tagLength+1 : tagLength+1+senderDigits] {
		sender = sender*10 + int(c-'0')
	}
	for _, c := range id[idLength-seqDigits:] {
		seq = seq*10 + uint64(c-'0')
	}
	return sender, seq, true
}

// envelopeID returns the id of an envelope this generator made, nil for others.
func envelopeID(envelope []byte) []byte {
	if len(envelope) < len(envelopePrefix)+idLength || string(envelope[:len(envelopePrefix)]) != envelopePrefix {
		return nil
	}
	return envelope[len(envelopePrefix) : len(envelopePrefix)+idLength]
}
