package wire

// ClientFrame is what a client may send: *Hello, *Resume, *Pong, *Envelope,
// *Unknown. (A placeholder until the parser lands.)

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

// ClientFrame is one parsed frame of a client; only the members of its Type are
// set. It is reused: parsing into it overwrites all of it.
type ClientFrame struct {
	Type     FrameType
	Envelope Envelope // FrameEnvelope

	Token  []byte // FrameHello
	Direct bool   // FrameHello: asks for a development connection

	LastID []byte // FrameResume, decoded, not yet read as a Cursor
	Limit  int    // FrameResume: 1 to MaxResumeLimit, 0 when absent

	PongID []byte // FramePong, decoded

	UnknownType string // FrameUnknown: as text, cut to MaxUnknownType bytes
}

// ParseClient reads one frame. data must be valid UTF-8 (the front has checked).
// It does not allocate for frames whose strings have no escapes.
//
// The error is a *FrameError: its Code is InvalidEnvelope for whatever is not one
// JSON object, or is an envelope that breaks a rule (EnvelopeID then holds the id
// if it could be read), and InvalidFrame or InvalidCursor for a known control
// frame with a bad member.
func ParseClient(data []byte, frame *ClientFrame) error { panic("wire: parser not written yet") }

// FrameError says why a client's frame was refused.
type FrameError struct {
	Code       Code
	Type       FrameType // what it was, as far as known: FrameHello, FrameResume … or 0
	EnvelopeID []byte    // decoded, of an envelope whose id could be read; else nil
	Detail     string    // for people; holds no bytes of the frame
}

func (e *FrameError) Error() string { return string(e.Code) + ": " + e.Detail }

func appendString(dst, s []byte) []byte { panic("wire: not written yet") }
func cutString(s string, n int) string  { panic("wire: not written yet") }
