package api

import "time"

// Device is a device as admins and it itself see it.
type Device struct {
	DeviceID    string     `json:"device_id" schema:"uuid"`
	Kind        string     `json:"kind" schema:"agent|human"`
	Label       string     `json:"label"` // what it called itself when it enrolled
	State       string     `json:"state" schema:"PENDING|APPROVED|ACTIVE|SUSPENDED|REVOKED"`
	Admin       bool       `json:"admin"`
	Fingerprint string     `json:"fingerprint"` // empty for a device that the operator made, which has no keys
	CreatedAt   time.Time  `json:"created_at"`
	ApprovedAt  *time.Time `json:"approved_at,omitzero"`
	RevokedAt   *time.Time `json:"revoked_at,omitzero"`
}

// Devices answers GET /v1/devices.
type Devices struct {
	Devices    []Device `json:"devices"`
	NextCursor string   `json:"next_cursor,omitzero"` // absent on the last page
}

// Approval is the body of POST /v1/devices/{id}/approve.
type Approval struct {
	Fingerprint string `json:"fingerprint"` // as the device itself shows it; spaces, dashes and case do not matter
}

// PublishedDeviceKeys is the body of PUT /v1/devices/me/keys. Both members may be left out.
type PublishedDeviceKeys struct {
	AgreementKey       string `json:"agreement_key,omitzero"`       // base64; the one it enrolled with
	AgreementSignature string `json:"agreement_signature,omitzero"` // base64; the one it enrolled with
}

// PendingDevice is what the event device_pending of GET /v1/events tells.
type PendingDevice struct {
	DeviceID    string    `json:"device_id" schema:"uuid"`
	Kind        string    `json:"kind" schema:"agent|human"`
	Label       string    `json:"label"`
	Fingerprint string    `json:"fingerprint"`
	CreatedAt   time.Time `json:"created_at"`
}
