package encryption

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// privateGen is the gen of envelopes to one participant. They are of no generation, and the
// relay lets it be any number (docs/protocol.md, "An envelope").
const privateGen = 0

// newID draws the id of an envelope that no caller knows of: 128 bits or more.
func newID() string { return rand.Text() }

// lost says that an authentic envelope cannot be opened, and why.
func lost(why error) error { return fmt.Errorf("%w: %w", ErrLost, why) }

// member returns who has this participant id in the room now.
func (r *Room) member(participant string) (*Member, bool) {
	for i := range r.Members {
		if r.Members[i].ID() == participant {
			return &r.Members[i], true
		}
	}
	return nil, false
}

func (r *Room) channel(peer *Member) (*pairwise.Channel, error) {
	own := &pairwise.Own{ID: r.Self.Participant, Identity: r.Self.Identity, Agreement: r.Self.Agreement}
	return pairwise.New(r.ID, own, peer.Member)
}

// private is an envelope to one participant, not sealed yet.
type private struct {
	header  pairwise.Header // without Gen and Seq
	payload []byte
}

// sealPrivate seals an envelope to one member, under the next seq. Errors are those of pairwise
// and signed.
func sealPrivate(tx *keystore.Tx, room *Room, to *Member, p *private) (Sealed, error) {
	channel, err := room.channel(to)
	if err != nil {
		return Sealed{}, err
	}
	h := p.header
	h.Gen = privateGen
	if h.Seq, err = nextSequence(tx, room.ID); err != nil {
		return Sealed{}, err
	}
	raw, err := channel.Seal(&h, p.payload)
	if err != nil {
		return Sealed{}, err
	}
	return Sealed{ID: h.ID, To: to.ID(), Kind: h.Kind, Gen: h.Gen, Seq: h.Seq, Recipients: 1, Raw: raw}, nil
}

// sealPrivateDraft seals a message or control to one member (RELAY, "Client 0.2.9": direction
// keys, enc "pairwise").
func sealPrivateDraft(tx *keystore.Tx, room *Room, draft *Draft) (Sealed, error) {
	to, ok := room.member(draft.To)
	switch {
	case !ok:
		return Sealed{}, fmt.Errorf("%w: the recipient is not in the room", ErrKind)
	case draft.Kind != wire.KindMessage && draft.Kind != wire.KindControl, draft.ExpiresAt != 0:
		return Sealed{}, fmt.Errorf("%w: not to one participant", ErrKind)
	}
	return sealPrivate(tx, room, to, &private{
		header:  pairwise.Header{ID: draft.ID, Kind: draft.Kind, TS: draft.TS, File: draft.File},
		payload: draft.Payload,
	})
}

// openPrivate verifies and decrypts an envelope for this participant alone. What from signed
// and cannot be opened is ErrLost; other errors are those of package signed.
func openPrivate(room *Room, from *Member, raw []byte) (*pairwise.Message, error) {
	channel, err := room.channel(from)
	if err != nil {
		return nil, err
	}
	m, err := channel.Open(raw)
	if errors.Is(err, pairwise.ErrPairwise) || errors.Is(err, seal.ErrOpen) {
		return nil, lost(err)
	}
	return m, err
}

// shown is what a private message or control brings.
func shown(m *pairwise.Message) *Opened {
	return &Opened{Kind: m.Kind, Payload: m.Payload, Private: true, Gen: m.Gen, TS: m.TS, File: m.File}
}
