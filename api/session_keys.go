package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// allocateGeneration publishes the caller's sender key and names its gen (RELAY,
// "Sender-key identity compatibility").
func (a *API) allocateGeneration(r *http.Request) (int, any, error) {
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	self, err := s.participant()
	if err != nil {
		return 0, nil, err
	}
	if self.Role == store.RoleViewer {
		return 0, nil, &wire.Error{Code: wire.Forbidden, Detail: "a viewer sends nothing and has no sender key"}
	}
	var body NewGeneration
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	wanted := store.NewGeneration{Tenant: s.tenant, Room: s.room, Participant: self.Participant}
	if err := body.read(&wanted); err != nil {
		return 0, nil, err
	}
	made, err := s.allocate(wanted)
	if errors.Is(err, store.ErrConflict) {
		return 0, nil, s.orArchived(&wire.Error{Code: wire.Conflict, Detail: "that kid was published with another session_key"})
	}
	if err != nil {
		return 0, nil, err
	}
	if made.Rekeyed {
		if err := s.announce(cluster.Change{Room: s.room, Version: made.RoomVersion}); err != nil {
			return 0, nil, err
		}
	}
	status := http.StatusCreated
	if made.Again {
		status = http.StatusOK
	}
	return status, Generation{Gen: made.Gen, KID: kidText(made.KID), AllocatedAt: made.AllocatedAt.UTC()}, nil
}

// allocate is over before anything is announced: an announcement waits for whoever entered.
func (s *sessionRequest) allocate(wanted store.NewGeneration) (store.Generation, error) {
	leave, err := s.enter()
	if err != nil {
		return store.Generation{}, err
	}
	defer leave()
	return s.api.cfg.Store.AllocateGeneration(s.ctx, wanted)
}

func (g *NewGeneration) read(into *store.NewGeneration) error {
	kid, err := base64.RawURLEncoding.Strict().DecodeString(g.KID)
	if err != nil || len(kid) != len(into.KID) || len(g.KID) != base64.RawURLEncoding.EncodedLen(len(into.KID)) {
		return malformed("kid must be 16 bytes in base64url, 22 characters")
	}
	copy(into.KID[:], kid)
	key, ok := decodeBase64(g.SessionKey)
	if !ok || len(key) == 0 || len(key) > store.MaxSessionKey {
		return malformed("session_key must be 1 to 1024 bytes in base64")
	}
	into.SessionKey = key
	return nil
}

func kidText(kid [16]byte) string { return base64.RawURLEncoding.EncodeToString(kid[:]) }

// decodeBase64 reads the one text form of standard, padded base64. The library skips
// line breaks.
func decodeBase64(text string) ([]byte, bool) {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	return data, err == nil && !strings.ContainsAny(text, "\r\n")
}
