package inbox

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// Subjects and names are made of server-made UUIDs and numbers only, so nothing a
// client sends can be subject syntax (FAULTS C10).
const (
	streamPrefix = "INBOX_"
	inboxPrefix  = "inbox."
	livePrefix   = "live."
	uuidLength   = 36
)

// shardOf places a room: FNV-1a (32 bits) over the 16 bytes of its id, modulo the
// number of shards (DESIGN section 5).
func shardOf(room uuid.UUID, shards int) int {
	hash := uint32(2166136261)
	for _, b := range room {
		hash = (hash ^ uint32(b)) * 16777619
	}
	return int(hash % uint32(shards))
}

func shardToken(shard int) string { return fmt.Sprintf("%02d", shard) }

func streamName(shard int) string { return streamPrefix + shardToken(shard) }

// probeSubject belongs to the shard's stream but to no inbox: a room id is longer.
func probeSubject(shard int) string { return inboxPrefix + shardToken(shard) + ".probe" }

// appendSubject appends inbox.<shard>.<room>.<participant>.
func appendSubject(dst []byte, token string, room, participant uuid.UUID) []byte {
	dst = append(dst, inboxPrefix...)
	dst = append(dst, token...)
	dst = append(dst, '.')
	dst = wire.AppendUUID(dst, room)
	dst = append(dst, '.')
	return wire.AppendUUID(dst, participant)
}

// parseSubject reads what appendSubject wrote; anything else in the stream (the
// probe, what people publish by hand) is not ours.
func parseSubject(subject string) (room, participant uuid.UUID, ok bool) {
	if !strings.HasPrefix(subject, inboxPrefix) || len(subject) < 2*uuidLength+2 {
		return room, participant, false
	}
	at := len(subject) - uuidLength
	participant, okParticipant := wire.ParseUUID([]byte(subject[at:]))
	room, okRoom := wire.ParseUUID([]byte(subject[at-1-uuidLength : at-1]))
	return room, participant, okRoom && okParticipant && subject[at-1] == '.'
}

func liveSubject(room uuid.UUID) string { return livePrefix + room.String() }

// liveRoom reads the room of a live subject.
func liveRoom(subject string) (uuid.UUID, bool) {
	if len(subject) != len(livePrefix)+uuidLength {
		return uuid.UUID{}, false
	}
	return wire.ParseUUID([]byte(subject[len(livePrefix):]))
}

// shardOfStream reads the number out of a stream's name.
func shardOfStream(name string) (int, bool) {
	digits, ours := strings.CutPrefix(name, streamPrefix)
	if !ours {
		return 0, false
	}
	shard, err := strconv.Atoi(digits)
	return shard, err == nil && shard >= 0 && name == streamName(shard)
}
