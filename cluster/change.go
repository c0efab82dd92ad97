package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

const (
	maxControlBytes = 512 << 10 // of one control message; larger ones are ignored
	maxIDsPerChange = 4000      // participants or credentials in one control message
)

// control is what travels on control.<room_id>.
type control struct {
	Announcement uuid.UUID `json:"announcement"`
	Origin       string    `json:"origin"` // the announcing process, which has applied it already
	Change       Change    `json:"change"`
}

// ack answers a control message on its reply subject.
type ack struct {
	Announcement uuid.UUID `json:"announcement"`
	Node         string    `json:"node"`
	Lease        string    `json:"lease"` // the lease epoch under which the change was applied
}

// controlSubject names the subject of a change: ids in it are UUIDs, never text
// that somebody chose.
func controlSubject(c *Change) string {
	if c.Room == uuid.Nil {
		return "control.tenant." + c.Tenant.String()
	}
	return "control." + c.Room.String()
}

// scope is what changes are applied one at a time for.
func (c *Change) scope() uuid.UUID {
	if c.Room == uuid.Nil {
		return c.Tenant
	}
	return c.Room
}

func (c *Change) validate() error {
	switch {
	case c.Tenant == uuid.Nil:
		return errors.New("a change needs a tenant")
	case c.Frozen && c.Thawed:
		return errors.New("a change is frozen or thawed, not both")
	case len(c.Removed) > maxIDsPerChange || len(c.Credentials) > maxIDsPerChange:
		return ErrTooLarge
	}
	return nil
}

// parts splits a change that names more ids than one message takes.
func (c *Change) parts() []Change {
	if len(c.Removed) <= maxIDsPerChange && len(c.Credentials) <= maxIDsPerChange {
		return []Change{*c}
	}
	removed := slices.Collect(slices.Chunk(c.Removed, maxIDsPerChange))
	credentials := slices.Collect(slices.Chunk(c.Credentials, maxIDsPerChange))
	parts := make([]Change, max(len(removed), len(credentials)))
	for i := range parts {
		parts[i] = *c
		parts[i].Removed, parts[i].Credentials = nil, nil
		if i < len(removed) {
			parts[i].Removed = removed[i]
		}
		if i < len(credentials) {
			parts[i].Credentials = credentials[i]
		}
	}
	return parts
}

func encodeControl(m *control) ([]byte, error) {
	if err := m.Change.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode change: %w", err)
	}
	if len(data) > maxControlBytes {
		return nil, ErrTooLarge
	}
	return data, nil
}

// decodeControl is strict: unknown, duplicate or wrongly spelled members, anything
// after the value, and a subject that is not the change's own are errors.
func decodeControl(subject string, data []byte) (*control, error) {
	if len(data) > maxControlBytes {
		return nil, ErrTooLarge
	}
	var m control
	if err := json.Unmarshal(data, &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("decode change: %w", err)
	}
	if err := m.Change.validate(); err != nil {
		return nil, err
	}
	if m.Announcement == uuid.Nil {
		return nil, errors.New("a change needs an announcement id")
	}
	if want := controlSubject(&m.Change); subject != want {
		return nil, fmt.Errorf("change came on another subject than %s", want)
	}
	return &m, nil
}

func decodeAck(data []byte) (ack, error) {
	var a ack
	if len(data) > 4096 {
		return a, ErrTooLarge
	}
	err := json.Unmarshal(data, &a, json.RejectUnknownMembers(true))
	return a, err
}
