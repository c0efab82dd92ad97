package wire

// ReasonFlood is the reason of a close for too many WebSocket control frames or
// empty fragments.
const ReasonFlood = "frame_flood"

// CloseInfo says all there is to say of one way the relay closes a connection;
// docs/protocol.md is checked against Closes.
type CloseInfo struct {
	Code   CloseCode
	Reason string // of the close frame; empty where it is text for people
	Again  bool   // a client may connect again by itself, after a pause that grows
	Text   string // what it means, in one sentence
}

// Closes is the one table of close codes and reasons (RELAY, "Close codes"; RFC
// 6455 section 7.4).
func Closes() []CloseInfo { return closes }

var closes = []CloseInfo{
	{CloseGoingAway, ReasonShutdown, true, "The server shuts down or starts anew."},
	{CloseGoingAway, ReasonNoPong, true, "Two pings in a row were not answered."},
	{CloseGoingAway, ReasonLink, true, "The server cannot read this inbox or hear of new rows; resume brings what was missed."},
	{CloseProtocolError, "", false, "A frame that RFC 6455 forbids, or a compressed one."},
	{CloseUnsupportedData, "", false, "A binary message."},
	{CloseInvalidUTF8, "", false, "A text message that is not valid UTF-8."},
	{ClosePolicy, string(ReadOnly), false, "A viewer sent an envelope."},
	{ClosePolicy, string(NoticeNotPermitted), false, "A viewer sent a notice."},
	{ClosePolicy, string(WrongSender), false, "An envelope's \"from\" was not this participant."},
	{ClosePolicy, string(NotAMember), false, "An envelope's \"session_id\" or \"to\" was not in this room."},
	{ClosePolicy, string(SeqRegression), true, "An envelope's \"seq\" did not rise; on a new connection any \"seq\" may come first."},
	{ClosePolicy, string(RateLimited), true, "Too many envelopes after a rate_limited nack, or too many other frames."},
	{ClosePolicy, ReasonQueue, true, "This connection read too slowly; resume brings what was missed."},
	{ClosePolicy, ReasonSlow, true, "A message was begun and not finished in time."},
	{ClosePolicy, ReasonFlood, false, "Too many WebSocket control frames or empty fragments."},
	{CloseTooLarge, ReasonTooLarge, false, "A message of more than 65,536 bytes."},
	{CloseFrozen, ReasonFrozen, true, "The operator has frozen the network; wait for minutes, not seconds."},
	{CloseQuota, ReasonQuota, true, "Too many connections of this participant, tenant or server."},
	{CloseQuota, string(Unavailable), true, "The credential could not be looked up now."},
	{CloseAuth, ReasonAuth, false, "hello failed or did not come in time, or the credential is no longer valid, or this participant is in the room no more."},
}
