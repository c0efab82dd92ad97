package mls

// WireFormat is the kind of an MLSMessage (RFC 9420 section 17.2).
type WireFormat uint16

// Wire formats.
const (
	PublicMessage WireFormat = iota + 1
	PrivateMessage
	Welcome
	GroupInfo
	KeyPackage
)

// ContentType is the kind of what a PublicMessage or a PrivateMessage frames (RFC 9420
// section 6).
type ContentType uint8

// Content types.
const (
	Application ContentType = iota + 1
	Proposal
	Commit
)

// SenderType says who sent a PublicMessage (RFC 9420 section 6); a PrivateMessage is a
// member's.
type SenderType uint8

// Sender types.
const (
	Member SenderType = iota + 1
	External
	NewMemberProposal
	NewMemberCommit // who joins by this commit (section 12.4.3.2)
)

// Message is what was read of an MLSMessage.
type Message struct {
	WireFormat WireFormat
	// GroupID and Epoch are those of a PublicMessage, a PrivateMessage and a GroupInfo. GroupID
	// is a part of the parsed bytes.
	GroupID []byte
	Epoch   uint64
	// Content is that of a PublicMessage and a PrivateMessage.
	Content ContentType
	// Sender is that of a PublicMessage, and Member of a PrivateMessage.
	Sender SenderType
}

// mls10 is the one ProtocolVersion there is.
const mls10 = 1

// Parse reads one MLSMessage, which is all of data. Where the package comment shows a whole
// structure, the vectors in it have to fill data exactly. It allocates nothing.
//
// ErrTruncated, ErrTrailing, ErrLength and ErrUnknown say what is wrong.
func Parse(data []byte) (Message, error) {
	r := reader{rest: data}
	r.version()
	m := Message{WireFormat: WireFormat(r.uint16())}
	switch m.WireFormat {
	case PublicMessage:
		m.public(&r)
	case PrivateMessage:
		m.private(&r)
	case Welcome:
		r.take(2) // cipher suite
		r.skip(2)
		r.end()
	case GroupInfo:
		m.groupInfo(&r)
	case KeyPackage:
	default:
		r.fail(ErrUnknown)
	}
	if r.err != nil {
		return Message{}, r.err
	}
	return m, nil
}

func (m *Message) public(r *reader) {
	m.GroupID, m.Epoch = r.vector(), r.uint64()
	switch m.Sender = SenderType(r.uint8()); m.Sender {
	case Member, External:
		r.take(4) // which one
	case NewMemberProposal, NewMemberCommit:
	default:
		r.fail(ErrUnknown)
	}
	r.skip(1)
	m.Content = r.content()
}

func (m *Message) private(r *reader) {
	m.GroupID, m.Epoch, m.Content, m.Sender = r.vector(), r.uint64(), r.content(), Member
	r.skip(3)
	r.end()
}

func (m *Message) groupInfo(r *reader) {
	r.version()
	r.take(2) // cipher suite
	m.GroupID, m.Epoch = r.vector(), r.uint64()
	r.skip(5) // of the context: two hashes, extensions; then extensions, confirmation tag
	r.take(4) // signer
	r.skip(1)
	r.end()
}

// ByMember reports a commit of somebody who is in the group.
func (m *Message) ByMember() bool { return m.Content == Commit && m.Sender == Member }

// Joins reports a commit by which its sender joins the group.
func (m *Message) Joins() bool { return m.Content == Commit && m.Sender == NewMemberCommit }
