package wire

import "strconv"

// RoomEventType says what happened in a room.
type RoomEventType string

// Room events. RoomEvents says who they are for and which members they have.
const (
	// RoomJoined: somebody is a member now.
	RoomJoined RoomEventType = "room_joined"
	// MemberRemoved: somebody is no member any more.
	MemberRemoved RoomEventType = "member_removed"
	// RekeyRequired: somebody who knows the keys left.
	RekeyRequired RoomEventType = "rekey_required"
	// CommitAccepted: the MLS group is in another epoch.
	CommitAccepted RoomEventType = "commit"
	// WelcomeWaits: a commit added this participant to the MLS group.
	WelcomeWaits RoomEventType = "welcome"
	// CommitReported: a member cannot apply the commit of an epoch.
	CommitReported RoomEventType = "commit_reported"
	// DeviceLinked: a direct room's session starts anew, and its owner writes first.
	DeviceLinked RoomEventType = "device_linked"
	// ArchivedRoom: nothing is stored in the room any more.
	ArchivedRoom RoomEventType = "room_archived"
	// RoomReset: all encryption state begins anew.
	RoomReset RoomEventType = "room_reset"
	// PrekeysLow, KeyPackagesLow: few are left that are handed out once.
	PrekeysLow     RoomEventType = "prekeys_low"
	KeyPackagesLow RoomEventType = "key_packages_low"
)

// RoomEventInfo says what a room event means.
type RoomEventInfo struct {
	Event   RoomEventType
	For     string   // who gets it
	Members []string // that it has besides event_id, event, room_id and version
	Text    string
}

// RoomEvents is the one table of room events.
func RoomEvents() []RoomEventInfo { return roomEvents }

var roomEvents = []RoomEventInfo{
	{RoomJoined, "everybody, the new member too", []string{"participant_id", "device_id", "role"}, "Somebody is a member now."},
	{MemberRemoved, "everybody who stays", []string{"participant_id", "device_id"}, "Somebody is no member any more."},
	{RekeyRequired, "everybody in an encrypted room", nil, "Somebody who knows the keys left: they are to be replaced."},
	{CommitAccepted, "everybody", []string{"participant_id", "epoch"}, "The MLS group is in this epoch now, by a commit of this participant."},
	{WelcomeWaits, "the new member", []string{"epoch"}, "A commit added this participant to the MLS group; its welcome waits."},
	{CommitReported, "everybody", []string{"participant_id", "epoch"}, "This participant cannot apply the commit of this epoch."},
	{DeviceLinked, "everybody", []string{"participant_id", "device_id"}, "A direct room's session starts anew, as this participant asked, and its owner writes first."},
	{ArchivedRoom, "everybody", nil, "Nothing is stored in the room any more."},
	{RoomReset, "everybody", []string{"epoch"}, "All encryption state begins anew; \"epoch\" is there in an MLS room only."},
	{PrekeysLow, "the device's participant", []string{"remaining"}, "Few one-time prekeys of the device are left."},
	{KeyPackagesLow, "the device's participant", []string{"remaining"}, "Few key packages of the device are left."},
}

// RoomEvent is what a room.event frame tells, beside stream_id and replay. It may come more
// than once, with the same EventID. Numbers are from 0 to MaxInteger.
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
// a frame of.
func (e *RoomEvent) AppendRow(dst []byte) []byte {
	dst = append(dst, '{')
	for _, member := range [...]struct{ name, value string }{
		{"event_id", e.EventID},
		{"event", string(e.Event)},
		{"room_id", e.RoomID},
		{"participant_id", e.ParticipantID},
		{"device_id", e.DeviceID},
		{"role", e.Role},
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

// roomEvent reads what AppendRow appended. Types and members that it does not know are
// those of a newer relay.
func (r *serverReader) roomEvent() *RoomEvent {
	return &RoomEvent{
		EventID: r.text(inEventID), Event: RoomEventType(r.text(inEvent)), RoomID: r.text(inRoomID),
		Version: int64(r.integer(inVersion)), ParticipantID: r.optionalText(inParticipantID),
		DeviceID: r.optionalText(inDeviceID), Role: r.optionalText(inRole),
		Epoch: r.optionalInteger(inEpoch), Remaining: r.optionalInteger(inRemaining),
	}
}

func (r *serverReader) optionalInteger(m member) *int64 {
	if !r.object.has(m) {
		return nil
	}
	n := int64(r.integer(m))
	return &n
}
