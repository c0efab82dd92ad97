package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Member returns a participant of a room, also one that has left it (LeftAt), with the keys of
// its device as the relay has them: see Participant.Keys. Somebody who never was in the room,
// or had left before this device joined, is wire.NotFound.
func (d *Device) Member(ctx context.Context, room, participant string) (Participant, error) {
	if err := checkIDs(participant); err != nil {
		return Participant{}, fmt.Errorf("participant %q: %w", participant, err)
	}
	var found Participant
	err := d.inSession(ctx, room, "/participants/"+participant, request{method: http.MethodGet, answer: &found})
	if err == nil && (found.ParticipantID != participant || checkIDs(found.DeviceID) != nil) {
		err = errAnswer // somebody else's keys
	}
	if err != nil {
		return Participant{}, step("look at the participant", err)
	}
	found.RoomID = room
	return found, nil
}

// SenderGeneration is the newest sender key that a participant has published.
type SenderGeneration struct {
	ParticipantID string
	Gen           uint64 // from 1; 0: it has published none
	KID           string // in base64url; empty with Gen 0
	SessionKey    []byte // public; at most 1,024 bytes
}

// maxMembers is how many participants a room has at most.
const maxMembers = 500

// SenderGenerations returns the newest sender key of each participant of the room, in the
// order of joining (RELAY, "Sender-key identity compatibility"). What it says is the relay's
// word.
func (d *Device) SenderGenerations(ctx context.Context, room string) ([]SenderGeneration, error) {
	type row struct {
		ParticipantID string `json:"participant_id"`
		Generation    struct {
			Gen        uint64 `json:"gen"`
			KID        string `json:"kid"`
			SessionKey []byte `json:"session_key"`
		} `json:"generation"`
	}
	rows := pages(func(cursor string) ([]row, string, error) {
		var page struct {
			Participants []row  `json:"participants"`
			NextCursor   string `json:"next_cursor"`
		}
		err := d.inSession(ctx, room, "/participants", request{method: http.MethodGet, query: pageQuery(cursor), answer: &page})
		return page.Participants, page.NextCursor, err
	})
	var found []SenderGeneration
	for p, err := range rows {
		if err == nil && (checkIDs(p.ParticipantID) != nil || len(found) == maxMembers) {
			err = errAnswer
		}
		if err != nil {
			return nil, step("list the sender generations", err)
		}
		found = append(found, SenderGeneration{p.ParticipantID, p.Generation.Gen, p.Generation.KID, p.Generation.SessionKey})
	}
	return found, nil
}

// NewestGeneration returns the highest gen that was allocated to a participant of the room, or
// 0 where there is none, or no such participant.
func (d *Device) NewestGeneration(ctx context.Context, room, participant string) (uint64, error) {
	all, err := d.SenderGenerations(ctx, room)
	for _, g := range all {
		if g.ParticipantID == participant {
			return g.Gen, err
		}
	}
	return 0, err
}

// Connected says whether a participant is connected.
type Connected struct {
	ParticipantID string    `json:"participant_id"`
	Online        bool      `json:"online"`
	Node          string    `json:"node,omitzero"`
	Since         time.Time `json:"since,omitzero"`   // connected without a gap since
	RTTMillis     int64     `json:"rtt_ms,omitzero"`  // 0: not known yet
	SeenAt        time.Time `json:"seen_at,omitzero"` // when its node last said so
}

// Presence is who is connected, as the relay's nodes have said at AsOf, by the relay's clock.
type Presence struct {
	AsOf         time.Time
	Lease        time.Duration // a node that dies is believed for so long after SeenAt
	Participants []Connected   // everybody in the room, in the order of joining
}

// Presence returns who is connected. Where it cannot be looked up the refusal is
// wire.Unavailable: nobody is ever told to be offline for that.
func (d *Device) Presence(ctx context.Context, room string) (Presence, error) {
	var presence Presence
	rows := pages(func(cursor string) ([]Connected, string, error) {
		var page struct {
			AsOf         time.Time   `json:"as_of"`
			LeaseSeconds int64       `json:"lease_seconds"`
			Presence     []Connected `json:"presence"`
			NextCursor   string      `json:"next_cursor"`
		}
		err := d.inSession(ctx, room, "/presence", request{method: http.MethodGet, query: pageQuery(cursor), answer: &page})
		if presence.AsOf.IsZero() || page.AsOf.Before(presence.AsOf) { // the oldest word of all pages
			presence.AsOf = page.AsOf
		}
		presence.Lease = time.Duration(min(max(page.LeaseSeconds, 0), int64(24*time.Hour/time.Second))) * time.Second
		return page.Presence, page.NextCursor, err
	})
	for p, err := range rows {
		if err == nil && (checkIDs(p.ParticipantID) != nil || len(presence.Participants) == maxMembers) {
			err = errAnswer
		}
		if err != nil {
			return Presence{}, step("look who is connected", err)
		}
		presence.Participants = append(presence.Participants, p)
	}
	return presence, nil
}
