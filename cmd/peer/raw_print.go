package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// print shows one frame: with --json the frame itself, else a line for people.
// Only rows are results; what is said about the connection goes to the error
// output when people read.
func (l *listening) print(frame wire.ServerFrame) error {
	if l.command.JSON {
		_, err := l.con.out.Write(append(oneLine(frame.Raw), '\n'))
		return err
	}
	switch frame.Type {
	case wire.ServerDeliver, wire.ServerBoardUpdate, wire.ServerRoomEvent:
		_, err := fmt.Fprintf(l.con.out, "%s %-6s %s  %s\n",
			time.Now().Format(time.TimeOnly), marker(frame.Replay), frame.StreamID, describe(frame))
		return err
	case wire.ServerResumeComplete:
		if l.command.NoFollow {
			l.con.notef("the replay is complete; %d rows", l.printed)
		} else {
			l.con.notef("listening; %d rows were waiting", frame.Replayed)
		}
	case wire.ServerResyncRequired:
		l.con.notef("rows after the cursor are no longer retained; what is retained follows")
	case wire.ServerError:
		l.con.notef("the relay reports %s: %s", frame.Reason, frame.Detail)
	default:
	}
	return nil
}

// oneLine replaces the line breaks an envelope may have between its members.
// Inside JSON strings there are none.
func oneLine(raw []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
}

func marker(replay wire.Replay) string {
	switch replay {
	case wire.ReplayStored:
		return "replay"
	case wire.ReplayLive:
		return "live"
	default: // of an older relay
		return "-"
	}
}

// describe says what a row is. Names inside it are the sender's own words, so
// they are quoted.
func describe(frame wire.ServerFrame) string {
	switch frame.Type {
	case wire.ServerBoardUpdate:
		return fmt.Sprintf("board.update card %q revision %d", frame.CardID, frame.Revision)
	case wire.ServerRoomEvent:
		return describeEvent(frame.RoomEvent)
	default:
	}
	var e struct {
		ID   string `json:"id"`
		From string `json:"from"`
		Kind string `json:"kind"`
	}
	_ = json.Unmarshal(frame.Envelope, &e) // for display; the relay has checked it
	return fmt.Sprintf("%q %q from %q, %d bytes", e.Kind, e.ID, e.From, len(frame.Envelope))
}

// describeEvent names the members that the event has. Its type may be newer than this
// program.
func describeEvent(e *wire.RoomEvent) string {
	text := fmt.Appendf(nil, "room.event %q", e.Event)
	for _, member := range [...]struct{ name, value string }{
		{"participant", e.ParticipantID}, {"device", e.DeviceID}, {"role", e.Role},
	} {
		if member.value != "" {
			text = fmt.Appendf(text, " %s %q", member.name, member.value)
		}
	}
	for _, member := range [...]struct {
		name  string
		value *int64
	}{{"epoch", e.Epoch}, {"remaining", e.Remaining}, {"room version", &e.Version}} {
		if member.value != nil {
			text = fmt.Appendf(text, " %s %d", member.name, *member.value)
		}
	}
	return string(text)
}
