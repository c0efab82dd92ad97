package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Limits of notices (RELAY leaves them to the server).
const (
	NoticeSkew     = 5 * time.Minute // between ts and the database's clock
	NoticeLifetime = 24 * time.Hour  // from ts to expires_at
	NoticeCap      = 20              // unexpired notices per sender and room
)

// Notice is a participant alert on its way to its store.
type Notice struct {
	Tenant    uuid.UUID
	Room      uuid.UUID
	Sender    uuid.UUID // participant
	ID        string
	Gen       uint64
	KID       string // empty when the envelope has none
	TS        uint64 // Unix milliseconds, the sender's clock
	ExpiresAt uint64 // Unix milliseconds
	Bytes     []byte // the envelope exactly as sent
}

// StoredNotice is an accepted notice.
type StoredNotice struct {
	Position   int64
	ID         string
	Sender     uuid.UUID
	Gen        uint64
	Bytes      []byte
	AcceptedAt time.Time
	ExpiresAt  time.Time
}

// NoticeWriter is the notice writer of RELAY.
type NoticeWriter interface {
	// AppendNotice stores the notice durably before it returns nil, which it does once
	// per id in a room, whoever else sends the same at the same time. It looks up, in the
	// same transaction, that the sender is an agent who is a current participant and
	// holds RuleMessageSend and RuleAlertEmit.
	//
	// The refusals, in the order they are looked for, each of which proves that this call
	// stored nothing. ErrNotFound for the room, a *wire.Error with RoomIsArchived,
	// ErrNotFound for a sender who is not a current participant; then, each a *wire.Error:
	// NoticeNotPermitted (a right or the role is missing), InvalidEnvelope (a shape that
	// notices do not have: id, bytes, no expires_at, gen), NoticeDuplicate (the same bytes
	// of the same sender are stored), NoticeIDConflict (the id is stored otherwise),
	// NoticeInvalidGen (a gen this sender never allocated in this room, or one that is
	// retired, see Rooms), NoticeStale (ts off by more than NoticeSkew, expired by now or by
	// ts, or a lifetime over NoticeLifetime), NoticeCap. On any other error the notice may be
	// stored.
	AppendNotice(ctx context.Context, n Notice) error
}

// NoticeReader lists accepted notices, until long after they have expired.
type NoticeReader interface {
	// NoticePage: as HistoryReader.HistoryPage.
	NoticePage(ctx context.Context, tenant, room uuid.UUID, page Page) (rows []StoredNotice, more bool, err error)
}

// Rule is a right that a room's owner can take from agents and give back.
type Rule string

// Rules; both are on until the owner says otherwise.
const (
	RuleMessageSend Rule = "message.send"
	RuleAlertEmit   Rule = "session.alert.emit"
)

// Valid reports whether r is one of the rules.
func (r Rule) Valid() bool { return r == RuleMessageSend || r == RuleAlertEmit }

// RuleSetting is what the owner has set.
type RuleSetting struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	Rule   Rule
	// Participant is whom it is for; uuid.Nil: everybody in the room for whom nothing
	// of their own is set.
	Participant uuid.UUID
	Allowed     bool
}

// Rules reads and changes a room's rules.
type Rules interface {
	// RoomRules returns what is set for the room and its current participants, by rule,
	// the room's own first. ErrNotFound: no such room.
	RoomRules(ctx context.Context, tenant, room uuid.UUID) ([]RuleSetting, error)
	// SetRule is in force for every envelope that is stored after it returned. ErrNotFound
	// for the room or a participant who is not a current one; ErrInvalid for the rule.
	SetRule(ctx context.Context, setting RuleSetting) error
}
