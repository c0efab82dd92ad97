package wire

// Kind is the kind of an envelope.
type Kind uint8

// The kinds (RELAY, "Envelope kinds are limited to").
const (
	KindMessage Kind = iota + 1
	KindNotice
	KindSenderKey
	KindControl
	KindKeyRequest
)

func (k Kind) String() string {
	switch k {
	case KindMessage:
		return "message"
	case KindNotice:
		return "notice"
	case KindSenderKey:
		return "senderkey"
	case KindControl:
		return "control"
	case KindKeyRequest:
		return "key_request"
	}
	return "unknown"
}

// Members is the set of known members an envelope has.
type Members uint32

// Known members of an envelope (DESIGN section 6).
const (
	MemberV Members = 1 << iota
	MemberID
	MemberSessionID
	MemberFrom
	MemberTo
	MemberKind
	MemberGen
	MemberSeq
	MemberTS
	MemberNonce
	MemberCT
	MemberKID
	MemberSig
	MemberEnc
	MemberFile
	MemberHdr
	MemberExpiresAt
	MemberUnknown // at least one member with another name
)

// What an envelope must have, and all that a notice may have (RELAY).
const (
	requiredMembers = MemberV | MemberID | MemberSessionID | MemberFrom | MemberTo | MemberKind |
		MemberGen | MemberSeq | MemberTS | MemberNonce | MemberCT
	noticeMembers = requiredMembers | MemberExpiresAt | MemberSig | MemberKID
)

// Has reports whether all of the asked members are in the set.
func (m Members) Has(asked Members) bool { return m&asked == asked }

// Envelope is a view of an envelope: all of its members that could be read. Check
// says whether it keeps every rule. Its slices point into Raw, or, for strings
// written with escapes, into memory of their own; none may be changed, and none
// outlives Raw.
type Envelope struct {
	Raw       []byte // exactly as received
	ID        []byte // decoded; nil when it is missing or not 1 to 128 printable ASCII characters
	SessionID []byte
	From      []byte
	To        []byte
	KID       []byte
	Enc       []byte
	File      File // when Members has MemberFile
	Gen       uint64
	Seq       uint64
	TS        uint64 // Unix milliseconds, the sender's clock
	ExpiresAt uint64 // Unix milliseconds
	Members   Members
	Kind      Kind // 0 when it is none of the five
	fault     fault
}

// Check returns the first rule of kind, shape and file header the envelope breaks
// (DESIGN section 6, "Envelope"; RELAY), always with InvalidEnvelope, or nil. The
// zero Envelope passes; only ParseClient fills one.
//
// For a notice that includes the closed list of members (RELAY). What needs more
// than the bytes is checked by the relay: who sends, to whom, and that a notice is
// addressed to its session.
func (e *Envelope) Check() *Error { return e.fault.err() }

// File is the declared, unencrypted file header (RELAY, "file: {name, mimeType,
// sizeBytes}").
type File struct {
	Name      []byte
	MIMEType  []byte
	SizeBytes uint64
}
