package wire

import "net/http"

// Code is the stable name of a refusal: a nack's reason, an error frame's reason
// or the "error" member of an HTTP answer.
type Code string

// Codes of nack frames: the one verdict of an envelope that was not queued.
const (
	InvalidEnvelope    Code = "invalid_envelope"
	ReadOnly           Code = "read_only"
	NoticeNotPermitted Code = "notice_not_permitted"
	RateLimited        Code = "rate_limited"
	WrongSender        Code = "wrong_sender"
	NotAMember         Code = "not_a_member"
	SeqRegression      Code = "seq_regression"
	NoRecipients       Code = "no_recipients"
	PrivateRefused     Code = "private_refused"
	NotActivated       Code = "not_activated"
	Unavailable        Code = "unavailable"
	Partial            Code = "partial"
	MLSSchemeDisabled  Code = "mls_scheme_disabled"
	SchemeMismatch     Code = "e2ee_scheme_mismatch"
	MLSRetired         Code = "mls_generation_retired"
	MLSRemovalPending  Code = "mls_removal_pending"
	MLSUnknown         Code = "mls_generation_unknown"
	HistoryConflict    Code = "history_conflict"
	MalformedRequest   Code = "malformed_request"
	InvalidFilePart    Code = "invalid_file_part"
	NoticeStale        Code = "notice_stale"
	NoticeCap          Code = "notice_cap"
	NoticeIDConflict   Code = "notice_id_conflict"
	NoticeInvalidGen   Code = "notice_invalid_generation"
	NoticeDuplicate    Code = "notice_duplicate"
	RoomIsArchived     Code = "room_archived"
)

// Codes of error frames: a control frame that was refused without closing.
const (
	AlreadyAuthenticated Code = "already_authenticated"
	InvalidCursor        Code = "invalid_cursor"
	InvalidFrame         Code = "invalid_frame"
	ResumeInProgress     Code = "resume_in_progress"
	UnknownFrame         Code = "unknown_frame"
)

// Codes of HTTP answers that are not also nack reasons.
const (
	Unauthorized     Code = "unauthorized"
	Forbidden        Code = "forbidden"
	NotFound         Code = "not_found"
	MethodNotAllowed Code = "method_not_allowed"
	Conflict         Code = "conflict"
	TooLarge         Code = "too_large"
	Internal         Code = "internal"

	// EpochConflict and KeyPackagesExhausted refuse a commit and a claim (STATE, "Simultaneous
	// Admin Changes").
	EpochConflict        Code = "epoch_conflict"
	KeyPackagesExhausted Code = "key_packages_exhausted"

	// EnrollmentRefused is the one refusal of an enrollment, so that nobody learns which
	// tokens there are (STATE, "Failure cases").
	EnrollmentRefused Code = "enrollment_refused"
)

// CloseCode is a WebSocket close code the relay sends.
type CloseCode uint16

// Close codes (RELAY, "Close codes"; RFC 6455 section 7.4).
const (
	CloseGoingAway       CloseCode = 1001 // shutdown, or a peer that answers no pings
	CloseProtocolError   CloseCode = 1002
	CloseUnsupportedData CloseCode = 1003 // binary frame
	CloseInvalidUTF8     CloseCode = 1007
	ClosePolicy          CloseCode = 1008 // wrong sender, recipient outside the room, seq, rate, viewer, full queue
	CloseTooLarge        CloseCode = 1009
	CloseFrozen          CloseCode = 1012
	CloseQuota           CloseCode = 1013
	CloseAuth            CloseCode = 4403
)

// Reasons of close frames that are not also the code of a nack.
const (
	ReasonAuth     = "authentication failed" // the same text whatever the cause
	ReasonQueue    = "queue_full"
	ReasonFrozen   = "network_frozen"
	ReasonQuota    = "connection_quota"
	ReasonShutdown = "shutting_down"
	ReasonNoPong   = "no_pong"
	ReasonTooLarge = "message_too_large"
	ReasonSlow     = "message_timeout" // a message begun and not finished in time
	ReasonLink     = "storage_link_lost"
)

// CodeInfo says all there is to say of a code; docs/protocol.md is checked
// against Codes.
type CodeInfo struct {
	Code   Code
	Frame  string    // "nack", "error" or "http"
	Close  CloseCode // the close that follows, 0 for none
	Status int       // HTTP status, where the API answers with this code; 0 elsewhere
	Resend bool      // the same bytes may be sent again, on a new connection
	Text   string    // what it means, in one sentence
}

// Codes is the one table of nack reasons, error reasons and HTTP error codes.
func Codes() []CodeInfo { return codes }

var codes = []CodeInfo{
	{InvalidEnvelope, "nack", 0, http.StatusBadRequest, false, "The frame is not an envelope this relay accepts."},
	{ReadOnly, "nack", ClosePolicy, http.StatusForbidden, false, "A viewer may not send."},
	{NoticeNotPermitted, "nack", 0, http.StatusForbidden, false, "The sender may not send notices; a viewer's connection closes (1008)."},
	{RateLimited, "nack", 0, http.StatusTooManyRequests, true, "More than 20 envelopes in a second; another one within 10 s closes the connection (1008)."},
	{WrongSender, "nack", ClosePolicy, http.StatusForbidden, false, "\"from\" is not the authenticated participant."},
	{NotAMember, "nack", ClosePolicy, http.StatusForbidden, false, "\"session_id\" or \"to\" is not in this connection's room."},
	{SeqRegression, "nack", ClosePolicy, 0, true, "\"seq\" did not rise within its \"gen\" on this connection."},
	{NoRecipients, "nack", 0, http.StatusConflict, true, "Nobody else is in the room; nothing was stored."},
	{PrivateRefused, "nack", 0, http.StatusForbidden, false, "The room refuses private messages between agents."},
	{NotActivated, "nack", 0, http.StatusConflict, true, "The owner has not sent the first message of this direct room yet."},
	{Unavailable, "nack", 0, http.StatusServiceUnavailable, true, "It could not be stored now, or whether it was stored is not known; a notice must not be sent again."},
	{Partial, "nack", 0, http.StatusServiceUnavailable, true, "Stored in history and perhaps in some inboxes, delivered to nobody; the same bytes complete it."},
	{MLSSchemeDisabled, "nack", 0, http.StatusForbidden, false, "The operator has not enabled MLS rooms."},
	{SchemeMismatch, "nack", 0, http.StatusConflict, false, "The envelope does not match the room's encryption scheme."},
	{MLSRetired, "nack", 0, http.StatusConflict, false, "The generation is retired: the room has newer keys."},
	{MLSRemovalPending, "nack", 0, http.StatusConflict, false, "A removal from the room waits for its MLS commit."},
	{MLSUnknown, "nack", 0, http.StatusNotFound, false, "The generation is unknown: the room has no such keys."},
	{HistoryConflict, "nack", 0, http.StatusConflict, false, "The message id is already stored with other content or another sender."},
	{MalformedRequest, "nack", 0, http.StatusBadRequest, false, "The store refused the envelope's shape."},
	{InvalidFilePart, "nack", 0, http.StatusUnprocessableEntity, false, "The envelope's file part is invalid."},
	{NoticeStale, "nack", 0, http.StatusConflict, false, "The notice's times are outside what is accepted."},
	{NoticeCap, "nack", 0, http.StatusConflict, false, "Too many unexpired notices of this sender in this room."},
	{NoticeIDConflict, "nack", 0, http.StatusConflict, false, "The notice id is already stored with other content."},
	{NoticeInvalidGen, "nack", 0, http.StatusConflict, false, "The notice names a generation its sender did not allocate."},
	{NoticeDuplicate, "nack", 0, http.StatusConflict, false, "The same notice was accepted earlier and is not sent out again."},
	{RoomIsArchived, "nack", 0, http.StatusConflict, false, "The room is archived; nothing is stored in it any more."},

	{AlreadyAuthenticated, "error", 0, 0, false, "A second hello."},
	{InvalidCursor, "error", 0, 0, false, "\"last_id\" is not \"$\", \"0\" or a stream id; nothing was replayed."},
	{InvalidFrame, "error", 0, 0, false, "A known control frame with a member missing or of the wrong type."},
	{ResumeInProgress, "error", 0, 0, false, "A resume came while one was running."},
	{UnknownFrame, "error", 0, 0, false, "A \"type\" this relay does not know; an envelope has no \"type\"."},

	{Unauthorized, "http", 0, http.StatusUnauthorized, false, "No token, or one that is not valid now."},
	{Forbidden, "http", 0, http.StatusForbidden, false, "The caller may not do this."},
	{NotFound, "http", 0, http.StatusNotFound, false, "There is no such thing for this caller."},
	{MethodNotAllowed, "http", 0, http.StatusMethodNotAllowed, false, "This address does not take that method."},
	{Conflict, "http", 0, http.StatusConflict, false, "The state changed, or does not allow this."},
	{TooLarge, "http", 0, http.StatusRequestEntityTooLarge, false, "The body is larger than this endpoint accepts."},
	{EpochConflict, "http", 0, http.StatusConflict, false, "The commit is not for the epoch the room is in, which \"epoch\" names."},
	{KeyPackagesExhausted, "http", 0, http.StatusConflict, false, "A member has no key package left; none was handed out."},
	{EnrollmentRefused, "http", 0, http.StatusBadRequest, false, "The device is not enrolled; whatever is wrong, it is this."},
	{Internal, "http", 0, http.StatusInternalServerError, true, "A fault of the server; its log has the detail."},
}

// Lookup returns the table's row for a code.
func Lookup(code Code) (CodeInfo, bool) {
	for _, info := range codes {
		if info.Code == code {
			return info, true
		}
	}
	return CodeInfo{}, false
}
