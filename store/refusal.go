package store

// RefusalError is a refusal whose reason may be told to whoever asked: it names states, roles and
// what to do first, which a caller who comes as far as this may know, and nothing of what is in a
// room. A refusal of another type is told without a reason.
type RefusalError struct {
	Reason string // for people, without a full stop: "the device is SUSPENDED: reinstate it first"
	Err    error  // ErrConflict or ErrForbidden
}

func (e *RefusalError) Error() string { return e.Reason + ": " + e.Err.Error() }

func (e *RefusalError) Unwrap() error { return e.Err }

// ErrNotManager is the ErrForbidden of a member who does not manage the room (see Rooms).
var ErrNotManager error = &RefusalError{"only the room's owners and the tenant's admins may do this", ErrForbidden}

// Conflict says which state of the device does not allow the event, and what comes first.
func (s DeviceState) Conflict(event DeviceEvent) error {
	reason := "the device is " + string(s)
	switch {
	case s == DeviceRevoked:
		reason += ", for ever: enroll it anew, with new keys"
	case event == DeviceApprove:
		reason += ": only a PENDING device is approved"
	case s == DevicePending:
		reason += ": an admin has to approve it first"
	case s == DeviceApproved:
		reason += ": it has to publish its keys first"
	case s == DeviceSuspended:
		reason += ": reinstate it first"
	}
	return &RefusalError{reason, ErrConflict}
}

// Conflict says that the room's state does not allow something, and why.
func (s RoomState) Conflict() error {
	reason := "the room is " + string(s)
	switch s {
	case RoomCreated:
		reason += ": nobody was ever in it"
	case RoomArchived:
		reason += ", for ever: make another room"
	case RoomActive, RoomRekeying:
	}
	return &RefusalError{reason, ErrConflict}
}
