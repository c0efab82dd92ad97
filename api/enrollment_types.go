package api

import "time"

// NewInvite is the body of POST /v1/invites. Every member may be left out.
type NewInvite struct {
	Kind       string `json:"kind,omitzero" schema:"agent|human"`   // of the device: agent (default), or human, as an admin's has to be by default
	Admin      bool   `json:"admin,omitzero"`                       // the device is an admin, and needs no approval
	TTLSeconds *int64 `json:"ttl_seconds,omitzero" schema:"1..600"` // default and at most 10 minutes
}

// Invite answers POST /v1/invites.
type Invite struct {
	InviteID  string    `json:"invite_id" schema:"uuid"`
	Token     string    `json:"token"` // shown once, here
	Kind      string    `json:"kind" schema:"agent|human"`
	Admin     bool      `json:"admin"`
	ExpiresAt time.Time `json:"expires_at"` // by the database's clock
}

// RevokedInvite answers DELETE /v1/invites/{id}.
type RevokedInvite struct {
	InviteID string `json:"invite_id" schema:"uuid"`
}

// NewEnrollment is the body of POST /v1/enroll.
type NewEnrollment struct {
	Token              string `json:"token"`               // of the invite
	IdentityKey        string `json:"identity_key"`        // Ed25519, 32 bytes in base64
	AgreementKey       string `json:"agreement_key"`       // X25519, 32 bytes in base64
	AgreementSignature string `json:"agreement_signature"` // by the identity key over the agreement key, 64 bytes in base64
	Kind               string `json:"kind"`                // the invite's: agent or human
	Label              string `json:"label"`               // for people, at most 128 code points
	Proof              string `json:"proof"`               // by the identity key over token and keys, 64 bytes in base64
}

// Enrolled answers POST /v1/enroll.
type Enrolled struct {
	DeviceID    string `json:"device_id" schema:"uuid"`
	State       string `json:"state"`       // PENDING, or APPROVED with an admin's invite
	Fingerprint string `json:"fingerprint"` // the device computes it by itself, and shows that one
}
