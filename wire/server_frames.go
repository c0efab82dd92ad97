package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// Every function here appends one complete server frame to dst and returns it.
// None allocates when dst has room.

// AppendWelcome appends welcome {participant_id, session_id}.
func AppendWelcome(dst []byte, participant, session UUID) []byte {
	dst = append(dst, `{"type":"welcome","participant_id":"`...)
	dst = AppendUUID(dst, participant)
	dst = append(dst, `","session_id":"`...)
	dst = AppendUUID(dst, session)
	return append(dst, `"}`...)
}

// AppendDeliver appends deliver {stream_id, replay, envelope}; the envelope's
// bytes are copied as they are.
func AppendDeliver(dst []byte, id StreamID, replay bool, envelope []byte) []byte {
	dst = append(dst, `{"type":"deliver","stream_id":"`...)
	dst = id.Append(dst)
	dst = append(dst, `","replay":`...)
	dst = strconv.AppendBool(dst, replay)
	dst = append(dst, `,"envelope":`...)
	dst = append(dst, envelope...)
	return append(dst, '}')
}

// AppendQueued appends queued {id, stream_id, to}: the envelope with that id is
// stored for that recipient.
func AppendQueued(dst, envelopeID []byte, id StreamID, to UUID) []byte {
	dst = append(dst, `{"type":"queued","id":`...)
	dst = appendString(dst, envelopeID)
	dst = append(dst, `,"stream_id":"`...)
	dst = id.Append(dst)
	dst = append(dst, `","to":"`...)
	dst = AppendUUID(dst, to)
	return append(dst, `"}`...)
}

// AppendNack appends nack {id, reason}, without id when envelopeID is empty.
func AppendNack(dst, envelopeID []byte, reason Code) []byte {
	dst = append(dst, `{"type":"nack",`...)
	if len(envelopeID) > 0 {
		dst = append(dst, `"id":`...)
		dst = appendString(dst, envelopeID)
		dst = append(dst, ',')
	}
	dst = append(dst, `"reason":"`...)
	dst = append(dst, reason...)
	return append(dst, `"}`...)
}

// AppendResumeComplete appends resume_complete {replayed, more}; more is written
// only when it is true.
func AppendResumeComplete(dst []byte, replayed int, more bool) []byte {
	dst = append(dst, `{"type":"resume_complete","replayed":`...)
	dst = strconv.AppendInt(dst, int64(replayed), 10)
	if more {
		dst = append(dst, `,"more":true`...)
	}
	return append(dst, '}')
}

// AppendResyncRequired appends resync_required {oldest_id}; oldest is nil when
// the inbox is empty, and the member is then null.
func AppendResyncRequired(dst []byte, oldest *StreamID) []byte {
	dst = append(dst, `{"type":"resync_required","oldest_id":`...)
	if oldest == nil {
		return append(dst, `null}`...)
	}
	dst = append(dst, '"')
	dst = oldest.Append(dst)
	return append(dst, `"}`...)
}

// AppendPing appends ping {id}.
func AppendPing(dst []byte, id uint64) []byte {
	dst = append(dst, `{"type":"ping","id":"`...)
	dst = strconv.AppendUint(dst, id, 10)
	return append(dst, `"}`...)
}

// AppendError appends error {reason, frame_type, detail}; frame_type, cut to
// MaxUnknownType bytes, is there for an unknown frame, also one whose type is "".
func AppendError(dst []byte, reason Code, frameType, detail string) []byte {
	dst = append(dst, `{"type":"error","reason":"`...)
	dst = append(dst, reason...)
	dst = append(dst, '"')
	if frameType != "" || reason == UnknownFrame {
		dst = append(dst, `,"frame_type":`...)
		dst = appendString(dst, cutString(frameType, MaxUnknownType))
	}
	dst = append(dst, `,"detail":`...)
	dst = appendString(dst, detail)
	return append(dst, '}')
}

// ErrInvalidRow reports a stored row of the server's own that cannot become a
// frame.
var ErrInvalidRow = errors.New("row is not a JSON object without type, stream_id and replay")

// AppendBoardUpdate appends board.update {stream_id, event_id, card_id, revision,
// replay}. row is the stored JSON object with the members between the two, which
// are copied as they are; with ErrInvalidRow nothing is appended.
func AppendBoardUpdate(dst []byte, id StreamID, replay bool, row []byte) ([]byte, error) {
	return appendRow(dst, ServerBoardUpdate, id, replay, row)
}

// AppendRoomEvent appends room.event {stream_id, ..., replay} in the same way.
func AppendRoomEvent(dst []byte, id StreamID, replay bool, row []byte) ([]byte, error) {
	return appendRow(dst, ServerRoomEvent, id, replay, row)
}

// appendRow checks the row, since anyone who may write to the stream by hand can
// have put it there.
func appendRow(dst []byte, t ServerType, id StreamID, replay bool, row []byte) ([]byte, error) {
	var o object
	if o.scan(row, MaxDepth) != faultNone || o.has(inType) || o.has(inStreamID) || o.has(inReplay) {
		return dst, ErrInvalidRow
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, t.String()...)
	dst = append(dst, `","stream_id":"`...)
	dst = id.Append(dst)
	dst = append(dst, `","replay":`...)
	dst = strconv.AppendBool(dst, replay)
	row = bytes.TrimLeft(row, " \t\r\n")[1:]
	if o.seen != 0 || o.unknown {
		dst = append(dst, ',')
	}
	return append(dst, row...), nil
}
