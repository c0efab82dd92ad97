package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/e2ee/signed"
)

// Verify checks the signature of an envelope from the room's history or notices: that the
// participant from, by the keys this device has pinned of it, signed exactly this envelope for
// this room. It decrypts nothing. Errors: ErrUnknownSender, ErrKeysChanged, those of package signed,
// and those of asking the relay for the sender's keys.
func (s *Session) Verify(ctx context.Context, from string, envelope []byte) error {
	member, err := signed.NewMember(s.self, &s.device.keys.public)
	if from != s.self {
		if err := s.meet(ctx, from); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		author, err := s.author(from)
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		member = author.Member
	}
	if err == nil {
		_, err = signed.Read(envelope, &signed.Expected{SessionID: s.id, From: member, Self: s.self})
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// NotAuthentic reports whether err, of a Failure or of Verify, says that an envelope is not one
// that its sender signed, for this room and recipient (FAULTS J05).
func NotAuthentic(err error) bool {
	return errors.Is(err, signed.ErrSignature) || errors.Is(err, signed.ErrCanonical) ||
		errors.Is(err, signed.ErrEnvelope) || errors.Is(err, signed.ErrContext)
}
