package signed

import (
	"fmt"

	"github.com/peerrelay/peerrelay/identity"
)

// Member is a participant with the public keys of its device, which were checked: the one
// thing that envelopes are attributed to. The zero Member signed nothing.
type Member struct {
	id   string
	keys identity.Keys
}

// NewMember checks keys (identity.Keys.Check, FAULTS H10) and the participant's id. The
// error is identity.ErrKeys or ErrEnvelope.
func NewMember(participant string, keys *identity.Keys) (Member, error) {
	if !validUUID(participant) {
		return Member{}, fmt.Errorf("%w: the participant's id is not a UUID in small letters", ErrEnvelope)
	}
	if err := keys.Check(); err != nil {
		return Member{}, err
	}
	return Member{participant, *keys}, nil
}

// ID returns the participant's id.
func (m Member) ID() string { return m.id }

// Identity returns the Ed25519 key.
func (m Member) Identity() [32]byte { return m.keys.Identity }

// Agreement returns the X25519 key.
func (m Member) Agreement() [32]byte { return m.keys.Agreement }
