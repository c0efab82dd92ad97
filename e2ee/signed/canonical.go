package signed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"

	"github.com/peerrelay/peerrelay/wire"
)

// ErrCanonical says that bytes are not one JSON object with a canonical form here.
var ErrCanonical = errors.New("not a JSON object that can be signed")

// MaxCanonical is how many bytes Canonical reads.
const MaxCanonical = 1 << 20

// Canonical returns the canonical form (RFC 8785) of one JSON object, in memory of its own.
//
// It refuses, with an error that is ErrCanonical and repeats nothing of raw: what is no
// object or has something behind it, names that an object has twice, surrogates without
// their other half, bytes that are not UTF-8, numbers that are not plain digits from 0 to
// 2^53-1, more than 32 objects and arrays within each other, and more than MaxCanonical
// bytes. The form is never longer than raw.
func Canonical(raw []byte) ([]byte, error) {
	if len(raw) > MaxCanonical {
		return nil, fmt.Errorf("%w: it is too long", ErrCanonical)
	}
	if err := check(raw); err != nil {
		return nil, err
	}
	form, err := jcs.Transform(raw)
	if err != nil { // another reader, which the first one is stricter than
		return nil, fmt.Errorf("%w: there is no canonical form", ErrCanonical)
	}
	return form, nil
}

// check reads raw token by token. The decoder's defaults refuse bad UTF-8, lone surrogates
// and names that come twice.
func check(raw []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if d.PeekKind() != jsontext.KindBeginObject {
		return fmt.Errorf("%w: it is no object", ErrCanonical)
	}
	for {
		token, err := d.ReadToken()
		switch {
		case err != nil:
			return fmt.Errorf("%w: it is no valid JSON", ErrCanonical)
		case d.StackDepth() > wire.MaxDepth:
			return fmt.Errorf("%w: it is nested too deeply", ErrCanonical)
		case token.Kind() == jsontext.KindNumber && !plainInteger(token.String()):
			return fmt.Errorf("%w: a number is not plain digits from 0 to 2^53-1", ErrCanonical)
		case d.StackDepth() == 0:
			return checkEnd(d)
		}
	}
}

func checkEnd(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the object", ErrCanonical)
	}
	return nil
}

// plainInteger is for text that is a JSON number, which has no leading zeros.
func plainInteger(text string) bool {
	var n uint64
	for _, c := range []byte(text) {
		if c < '0' || c > '9' || n > wire.MaxInteger {
			return false
		}
		n = 10*n + uint64(c-'0')
	}
	return n <= wire.MaxInteger
}

// object is the members of a canonical object, in their order.
type object []objectMember

type objectMember struct {
	name   string
	quoted jsontext.Value // the name as it is written
	value  jsontext.Value // canonical
}

// split takes a canonical object apart.
func split(form []byte) (object, error) {
	var o object
	d := jsontext.NewDecoder(bytes.NewReader(form))
	if _, err := d.ReadToken(); err != nil {
		return nil, ErrCanonical
	}
	for d.PeekKind() == jsontext.KindString {
		quoted, err := d.ReadValue()
		if err != nil {
			return nil, ErrCanonical
		}
		m := objectMember{quoted: bytes.Clone(quoted)} // before the decoder reads on
		name, err := jsontext.AppendUnquote(nil, m.quoted)
		if err != nil {
			return nil, ErrCanonical
		}
		value, err := d.ReadValue()
		if err != nil {
			return nil, ErrCanonical
		}
		m.name, m.value = string(name), bytes.Clone(value)
		o = append(o, m)
	}
	return o, nil
}

// without returns the canonical object less the named members.
func (o object) without(names ...string) []byte {
	size := 2
	for _, m := range o {
		size += len(m.quoted) + len(m.value) + 2
	}
	form := append(make([]byte, 0, size), '{')
	for _, m := range o {
		if slices.Contains(names, m.name) {
			continue
		}
		if len(form) > 1 {
			form = append(form, ',')
		}
		form = append(form, m.quoted...)
		form = append(form, ':')
		form = append(form, m.value...)
	}
	return append(form, '}')
}

// get returns the value of a member, or nil.
func (o object) get(name string) jsontext.Value {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}
