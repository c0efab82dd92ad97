package inbox

import (
	"bytes"
	"strconv"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// A live message is one line of text and the payload, so that it reads well in
// `nats sub 'live.>'`:
//
//	<kind> <incarnation> @<received> <participant>:<sequence> <participant>:<sequence> ...\n<payload>
//
// received is when the relay received the message, in Unix microseconds, 0 when not known.
//
// or liveMissed alone, which says that such messages of this room may be lost.

const liveMissed = "missed\n"

var kindNames = [...]string{RowEnvelope: "envelope", RowBoardUpdate: "board.update", RowRoomEvent: "room.event"}

// String is the kind's name: the value of the header Relay-Kind and the first word
// of a live message.
func (k RowKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

func kindOf(name string) (RowKind, bool) {
	for kind, known := range kindNames {
		if name == known {
			return RowKind(kind), true
		}
	}
	return 0, false
}

// headerKind names the kind of rows that are not envelopes (DESIGN section 5).
const headerKind = "Relay-Kind"

// liveOverhead is at least the length of the first line of a live message.
func liveOverhead(recipients int) int {
	const head, number = 80, 20 // kind, incarnation and time; a sequence
	return head + recipients*(1+uuidLength+1+number)
}

// appendLive appends the announcement of a stored message. Copies without a
// sequence were stored and announced before and are left out.
func appendLive(dst []byte, m *Message, ids []wire.StreamID, announce []bool) []byte {
	dst = append(dst, m.Kind.String()...)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, ids[0].Incarnation, 10)
	dst = append(dst, " @"...)
	if m.Received.IsZero() {
		dst = append(dst, '0')
	} else {
		dst = strconv.AppendInt(dst, m.Received.UnixMicro(), 10)
	}
	for i, participant := range m.To {
		if announce != nil && !announce[i] {
			continue
		}
		dst = append(dst, ' ')
		dst = wire.AppendUUID(dst, participant)
		dst = append(dst, ':')
		dst = strconv.AppendUint(dst, ids[i].Sequence, 10)
	}
	dst = append(dst, '\n')
	return append(dst, m.Payload...)
}

// parseLive reads an announcement into live, reusing its slice of copies. The
// payload stays in data.
func parseLive(live *Live, data []byte) bool {
	line, payload, found := bytes.Cut(data, []byte{'\n'})
	if !found {
		return false
	}
	name, rest, _ := bytes.Cut(line, []byte{' '})
	kind, known := kindOf(string(name))
	number, rest, _ := bytes.Cut(rest, []byte{' '})
	incarnation, err := strconv.ParseUint(string(number), 10, 64)
	if !known || err != nil {
		return false
	}
	number, rest, _ = bytes.Cut(rest, []byte{' '})
	if len(number) == 0 || number[0] != '@' {
		return false
	}
	received, err := strconv.ParseInt(string(number[1:]), 10, 64)
	if err != nil || received < 0 {
		return false
	}
	live.Received = time.Time{}
	if received > 0 {
		live.Received = time.UnixMicro(received)
	}
	live.Kind, live.Payload, live.Copies = kind, payload, live.Copies[:0]
	for len(rest) > uuidLength {
		participant, ok := wire.ParseUUID(rest[:uuidLength])
		if !ok || rest[uuidLength] != ':' {
			return false
		}
		number, rest, _ = bytes.Cut(rest[uuidLength+1:], []byte{' '})
		sequence, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			return false
		}
		live.Copies = append(live.Copies, Copy{Participant: participant, ID: wire.StreamID{Incarnation: incarnation, Sequence: sequence}})
	}
	return len(rest) == 0 && len(live.Copies) > 0
}
