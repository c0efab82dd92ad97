package wire

import (
	"errors"
	"fmt"
)

// MaxServerMessage bounds a message of the relay: a deliver around the largest
// envelope, which is one of a room without encryption, with room for what later relays
// add.
const MaxServerMessage = MaxPlaintext + 4096

// ServerType tells what ParseServer found.
type ServerType uint8

// Frames a relay sends. The comment names the members of ServerFrame that are set.
const (
	ServerWelcome        ServerType = iota + 1 // ParticipantID, SessionID
	ServerDeliver                              // StreamID, Replay, Envelope
	ServerQueued                               // ID, StreamID, To
	ServerNack                                 // ID, empty when the relay could not read it; Reason
	ServerResumeComplete                       // Replayed, More
	ServerResyncRequired                       // OldestID, empty when nothing is retained
	ServerPing                                 // ID
	ServerError                                // Reason, FrameType, Detail
	ServerBoardUpdate                          // StreamID, Replay, EventID, CardID, Revision
	ServerRoomEvent                            // StreamID, Replay, RoomEvent
	ServerUnknown                              // a type this package does not know: see TypeName
)

var serverTypes = [...]string{
	ServerWelcome:        "welcome",
	ServerDeliver:        "deliver",
	ServerQueued:         "queued",
	ServerNack:           "nack",
	ServerResumeComplete: "resume_complete",
	ServerResyncRequired: "resync_required",
	ServerPing:           "ping",
	ServerError:          "error",
	ServerBoardUpdate:    "board.update",
	ServerRoomEvent:      "room.event",
}

func (t ServerType) String() string {
	if t == 0 || int(t) >= len(serverTypes) {
		return "unknown"
	}
	return serverTypes[t]
}

// Replay is the replay member of a row. A relay older than the marker leaves it
// out, and a client must then wait for resume_complete (RELAY).
type Replay uint8

// What the marker says.
const (
	ReplayUnmarked Replay = iota
	ReplayLive            // false: a live push, which moves no cursor
	ReplayStored          // true: part of the ordered scan of a resume
)

// ServerFrame is one parsed frame of a relay; only the members its Type names are
// set, besides Type, TypeName and Raw.
type ServerFrame struct {
	Type     ServerType
	Replay   Replay
	More     bool
	TypeName string

	ParticipantID string
	SessionID     string
	ID            string
	StreamID      string // always in the form ParseStreamID reads
	To            string
	OldestID      string // in the form ParseStreamID reads, or empty
	EventID       string
	CardID        string
	FrameType     string
	Detail        string
	Reason        Code
	Revision      uint64
	Replayed      int
	RoomEvent     *RoomEvent // of a type that may be newer than this package

	// Envelope is exactly what the sender sent: the bytes between the colon and the
	// next comma or brace. It points into Raw.
	Envelope []byte
	Raw      []byte // the whole frame, as given
}

// ErrServerFrame reports a message that is not a frame of a relay.
var ErrServerFrame = errors.New("not a frame of a relay")

// ParseServer reads one frame of a relay by the same strict rules as ParseClient,
// except that an envelope inside it may itself be nested MaxDepth deep. Members
// it does not know are allowed, and so are types it does not know.
func ParseServer(data []byte) (ServerFrame, error) {
	if len(data) > MaxServerMessage {
		return ServerFrame{}, fmt.Errorf("%w: %s", ErrServerFrame, faultErrors[faultSize].Detail)
	}
	var r serverReader
	if f := r.object.scan(data, MaxDepth+1); f != faultNone {
		return ServerFrame{}, fmt.Errorf("%w: %s", ErrServerFrame, faultErrors[f].Detail)
	}
	frame := ServerFrame{Raw: data}
	r.readType(&frame)
	r.read(&frame)
	if r.bad != "" {
		return ServerFrame{}, fmt.Errorf("%w: %s of %s is missing or wrong", ErrServerFrame, r.bad, frame.Type)
	}
	return frame, nil
}

// serverReader reads members and keeps the first that is missing or wrong.
type serverReader struct {
	object object
	bad    string
}

func (r *serverReader) readType(frame *ServerFrame) {
	text, ok := r.object.text(inType)
	if !ok {
		r.refuse(inType)
	}
	for t, name := range serverTypes {
		if string(text) == name && t > 0 {
			frame.Type, frame.TypeName = ServerType(t), name
			return
		}
	}
	frame.Type, frame.TypeName = ServerUnknown, string(text)
}

func (r *serverReader) read(frame *ServerFrame) {
	switch frame.Type {
	case ServerWelcome:
		frame.ParticipantID = r.text(inParticipantID)
		frame.SessionID = r.text(inSessionID)
	case ServerDeliver:
		r.row(frame)
		frame.Envelope = r.envelope()
	case ServerQueued:
		frame.ID = r.text(inID)
		frame.StreamID = r.streamID(inStreamID)
		frame.To = r.text(inTo)
	case ServerNack:
		frame.ID = r.optionalText(inID)
		frame.Reason = Code(r.text(inReason))
	case ServerResumeComplete:
		frame.Replayed = int(r.integer(inReplayed))
		frame.More, _ = r.optionalBool(inMore)
	case ServerResyncRequired:
		if r.object.tokens[inOldestID].kind != tokenNull {
			frame.OldestID = r.streamID(inOldestID)
		}
	case ServerPing:
		frame.ID = r.text(inID)
	case ServerError:
		frame.Reason = Code(r.text(inReason))
		frame.FrameType = r.optionalText(inFrameType)
		frame.Detail = r.optionalText(inDetail)
	case ServerBoardUpdate:
		r.row(frame)
		frame.EventID = r.text(inEventID)
		frame.CardID = r.text(inCardID)
		frame.Revision = r.integer(inRevision)
	case ServerRoomEvent:
		r.row(frame)
		frame.RoomEvent = r.roomEvent()
	case ServerUnknown:
	}
}

func (r *serverReader) row(frame *ServerFrame) {
	frame.StreamID = r.streamID(inStreamID)
	switch stored, marked := r.optionalBool(inReplay); {
	case stored:
		frame.Replay = ReplayStored
	case marked:
		frame.Replay = ReplayLive
	}
}

func (r *serverReader) refuse(m member) {
	if r.bad == "" {
		r.bad = memberNames[m]
	}
}

func (r *serverReader) text(m member) string {
	text, ok := r.object.text(m)
	if !ok {
		r.refuse(m)
	}
	return string(text)
}

func (r *serverReader) optionalText(m member) string {
	if !r.object.has(m) {
		return ""
	}
	return r.text(m)
}

func (r *serverReader) streamID(m member) string {
	text, _ := r.object.text(m)
	if _, ok := ParseStreamID(text); !ok {
		r.refuse(m)
	}
	return string(text)
}

func (r *serverReader) integer(m member) uint64 {
	n, ok := r.object.integer(m, MaxInteger)
	if !ok {
		r.refuse(m)
	}
	return n
}

func (r *serverReader) optionalBool(m member) (value, present bool) {
	value, ok := r.object.boolean(m)
	if !ok && r.object.has(m) {
		r.refuse(m)
	}
	return value, ok
}

// envelope returns the value with the white space around it, which belongs to the
// message its sender sent.
func (r *serverReader) envelope() []byte {
	t := &r.object.tokens[inEnvelope]
	if t.kind != tokenObject {
		r.refuse(inEnvelope)
		return nil
	}
	data, start, end := r.object.data, int(t.start), int(t.end)
	for isSpace(data[start-1]) {
		start--
	}
	for isSpace(data[end]) {
		end++
	}
	return data[start:end:end]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
