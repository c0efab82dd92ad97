package wire

import "strconv"

// FrameType tells what ParseClient found.
type FrameType uint8

// Frames a client sends.
const (
	FrameEnvelope FrameType = iota + 1
	FrameHello
	FrameResume
	FramePong
	FrameUnknown // a "type" this relay does not know
)

func (t FrameType) String() string {
	switch t {
	case FrameEnvelope:
		return "envelope"
	case FrameHello:
		return "hello"
	case FrameResume:
		return "resume"
	case FramePong:
		return "pong"
	case FrameUnknown:
	}
	return "unknown"
}

// ClientFrame is one parsed frame of a client; only the members of its Type are
// set. It is reused: parsing into it overwrites all of it. Its slices point into
// the parsed bytes unless they were written with escapes.
type ClientFrame struct {
	Type     FrameType
	Envelope Envelope // FrameEnvelope; its Check says whether it may be stored

	Token  []byte // FrameHello
	Direct bool   // FrameHello: asks for a development connection

	LastID []byte // FrameResume, decoded, not yet read as a Cursor
	Limit  int    // FrameResume: 1 to MaxResumeLimit, 0 when absent

	PongID []byte // FramePong, decoded

	// UnknownType is the type of a FrameUnknown as text, or the JSON of a type that is
	// no string, cut to MaxUnknownType bytes.
	UnknownType string
}

// FrameError says why a client's frame was refused.
type FrameError struct {
	Code       Code
	Type       FrameType // what it was, as far as known: FrameHello, FrameResume … or 0
	EnvelopeID []byte    // decoded, of an envelope whose id could be read; else nil
	Detail     string    // for people; holds no bytes of the frame
}

func (e *FrameError) Error() string { return string(e.Code) + ": " + e.Detail }

// ParseClient reads one frame: a control frame when the object has a "type"
// member, wherever it stands, and otherwise an envelope.
//
// The error is a *FrameError. Its Code is InvalidEnvelope for whatever is not one
// well-formed JSON object, and for an envelope with a member name twice;
// EnvelopeID then holds the id if one could be read. It is InvalidFrame or
// InvalidCursor for a known control frame with a bad member.
//
// Every other object without "type" is a FrameEnvelope: what else is wrong with it
// is said by Envelope.Check, since viewers and the rate come first (DESIGN
// section 6, "Admission"). A "type" the relay does not know is no error either but
// a FrameUnknown.
//
// It does not allocate for accepted frames whose strings have no escapes.
func ParseClient(data []byte, frame *ClientFrame) error {
	*frame = ClientFrame{}
	if len(data) > MaxMessage {
		return &FrameError{Code: InvalidEnvelope, Detail: faultErrors[faultSize].Detail}
	}
	var o object
	f := o.scan(data, MaxDepth)
	if o.has(inType) {
		return frame.readControl(&o, f)
	}
	if f != faultNone {
		return envelopeError(&o, f)
	}
	frame.Type = FrameEnvelope
	frame.Envelope.read(&o)
	return nil
}

func envelopeError(o *object, f fault) error {
	e := &FrameError{Code: InvalidEnvelope, Detail: faultErrors[f].Detail}
	if f == faultDuplicate {
		e.Type = FrameEnvelope
	}
	if id, ok := o.text(inID); ok && ValidID(id) && !o.clash {
		e.EnvelopeID = id
	}
	return e
}

// readControl reads an object that has a type member.
func (frame *ClientFrame) readControl(o *object, f fault) error {
	frame.Type = controlType(o)
	known := frame.Type
	if o.twice&(1<<inType) != 0 {
		known = 0 // which of them is meant cannot be told
	}
	switch {
	case f == faultDuplicate && known == FrameUnknown:
		// Whatever it is, it is not ours to judge.
	case f == faultDuplicate:
		return invalidFrame(known, faultErrors[f].Detail)
	case f != faultNone:
		return &FrameError{Code: InvalidEnvelope, Type: known, Detail: faultErrors[f].Detail}
	}
	switch frame.Type {
	case FrameHello:
		return frame.readHello(o)
	case FrameResume:
		return frame.readResume(o)
	case FramePong:
		return frame.readPong(o)
	case FrameUnknown, FrameEnvelope: // an object with a type is no envelope
		frame.readUnknown(o)
	}
	return nil
}

func controlType(o *object) FrameType {
	text, _ := o.text(inType)
	switch string(text) {
	case "hello":
		return FrameHello
	case "resume":
		return FrameResume
	case "pong":
		return FramePong
	}
	return FrameUnknown
}

func (frame *ClientFrame) readHello(o *object) error {
	var ok bool
	if frame.Token, ok = o.text(inToken); !ok {
		return invalidFrame(FrameHello, "token must be a string")
	}
	if frame.Direct, ok = o.boolean(inDirect); !ok && o.has(inDirect) {
		return invalidFrame(FrameHello, "direct must be true or false")
	}
	return nil
}

func (frame *ClientFrame) readResume(o *object) error {
	var ok bool
	if frame.LastID, ok = o.text(inLastID); !ok && o.has(inLastID) {
		return &FrameError{Code: InvalidCursor, Type: FrameResume, Detail: "last_id must be a string"}
	} else if !ok {
		return invalidFrame(FrameResume, "last_id is missing")
	}
	limit, ok := o.integer(inLimit, MaxResumeLimit)
	if o.has(inLimit) && (!ok || limit == 0) {
		return invalidFrame(FrameResume, "limit must be an integer from 1 to 500")
	}
	frame.Limit = int(limit)
	return nil
}

func (frame *ClientFrame) readPong(o *object) error {
	var ok bool
	if frame.PongID, ok = o.text(inID); !ok {
		return invalidFrame(FramePong, "id must be a string")
	}
	return nil
}

func (frame *ClientFrame) readUnknown(o *object) {
	text, ok := o.text(inType)
	if !ok {
		text = o.raw(inType)
	}
	// Three bytes more than needed, so that a rune that is cut is seen to be.
	frame.UnknownType = cutString(string(text[:min(len(text), MaxUnknownType+3)]), MaxUnknownType)
}

func invalidFrame(t FrameType, detail string) error {
	return &FrameError{Code: InvalidFrame, Type: t, Detail: detail}
}

// AppendHello appends hello {token, direct}; direct is written only when it is
// true.
func AppendHello(dst []byte, token string, direct bool) []byte {
	dst = append(dst, `{"type":"hello","token":`...)
	dst = appendString(dst, token)
	if direct {
		dst = append(dst, `,"direct":true`...)
	}
	return append(dst, '}')
}

// AppendResume appends resume {last_id, limit}; limit is written only when it is
// not 0. lastID is "$", "0" or a stream id as the relay sent it.
func AppendResume(dst []byte, lastID string, limit int) []byte {
	dst = append(dst, `{"type":"resume","last_id":`...)
	dst = appendString(dst, lastID)
	if limit != 0 {
		dst = append(dst, `,"limit":`...)
		dst = strconv.AppendInt(dst, int64(limit), 10)
	}
	return append(dst, '}')
}

// AppendPong appends pong {id}, the answer to the ping with that id.
func AppendPong(dst []byte, id string) []byte {
	dst = append(dst, `{"type":"pong","id":`...)
	dst = appendString(dst, id)
	return append(dst, '}')
}
