package wire

import "strconv"

// RoomEventType says what happened in a room.
type RoomEventType string

// Room events. Who they are for, and which members of RoomEvent they have, beside
// event_id, room_id and version, which all have:
const (
	// RoomJoined: somebody is a member now. Everybody, that one too: participant_id, device_id, role.
	RoomJoined RoomEventType = "room_joined"
	// MemberRemoved: somebody is no member any more. Everybody else: participant_id, device_id.
	MemberRemoved RoomEventType = "member_removed"
	// RekeyRequired: somebody who knows the keys left. Everybody in an encrypted room.
	RekeyRequired RoomEventType = "rekey_required"
	// CommitAccepted: the MLS group is in another epoch. Everybody: epoch, participant_id (who
	// committed). The commit is fetched over HTTP.
	CommitAccepted RoomEventType = "commit"
	// WelcomeWaits: a commit added this participant to the MLS group. That one only: epoch.
	WelcomeWaits RoomEventType = "welcome"
	// CommitReported: a member cannot apply the commit of an epoch. Everybody: epoch,
	// participant_id (who reported).
	CommitReported RoomEventType = "commit_reported"
	// DeviceLinked: a direct room's session starts anew, and its owner writes first.
	// Everybody: participant_id, device_id (who asked for it).
	DeviceLinked RoomEventType = "device_linked"
	// ArchivedRoom: nothing is stored in the room any more. Everybody.
	ArchivedRoom RoomEventType = "room_archived"
	// RoomReset: all encryption state begins anew. Everybody: epoch in an MLS room.
	RoomReset RoomEventType = "room_reset"
	// PrekeysLow, KeyPackagesLow: few are left that are handed out once. That device's
	// participant only: remaining.
	PrekeysLow     RoomEventType = "prekeys_low"
	KeyPackagesLow RoomEventType = "key_packages_low"
)

// RoomEvent is what a room.event frame tells, beside stream_id and replay. It may come more
// than once, with the same EventID.
type RoomEvent struct {
	EventID       string
	Event         RoomEventType
	RoomID        string
	Version       int64  // of the room, after what happened
	ParticipantID string // empty: absent
	DeviceID      string // empty: absent
	Role          string // empty: absent
	Epoch         *int64 // nil: absent
	Remaining     *int64 // nil: absent
}

// AppendRow appends the JSON object that is stored in inboxes, which AppendRoomEvent makes
// a frame of. Every text in it is an id or a name of the protocol and needs no escapes.
func (e *RoomEvent) AppendRow(dst []byte) []byte {
	dst = append(dst, '{')
	for _, member := range [...]struct{ name, value string }{
		{"event_id", e.EventID}, {"event", string(e.Event)}, {"room_id", e.RoomID},
		{"participant_id", e.ParticipantID}, {"device_id", e.DeviceID}, {"role", e.Role},
	} {
		if member.value != "" {
			dst = append(dst, '"')
			dst = append(dst, member.name...)
			dst = append(dst, `":`...)
			dst = appendString(dst, member.value)
			dst = append(dst, ',')
		}
	}
	dst = append(dst, `"version":`...)
	dst = strconv.AppendInt(dst, e.Version, 10)
	for _, member := range [...]struct {
		name  string
		value *int64
	}{{"epoch", e.Epoch}, {"remaining", e.Remaining}} {
		if member.value != nil {
			dst = append(dst, `,"`...)
			dst = append(dst, member.name...)
			dst = append(dst, `":`...)
			dst = strconv.AppendInt(dst, *member.value, 10)
		}
	}
	return append(dst, '}')
}
