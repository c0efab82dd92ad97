package api

// SignedPrekey is a device's medium-term key (X3DH, "signed prekey").
type SignedPrekey struct {
	ID        int64  `json:"id" schema:"1..2147483647"` // rises with each new one
	Key       string `json:"key"`                       // X25519; base64 of 32 bytes
	Signature string `json:"signature"`                 // by the identity key, over the id and the key; base64 of 64 bytes
}

// OneTimePrekey is a key that is handed out once (X3DH, "one-time prekey").
type OneTimePrekey struct {
	ID  int64  `json:"id" schema:"1..2147483647"` // rises with each new one
	Key string `json:"key"`                       // X25519; base64 of 32 bytes
}

// NewPrekeys is the body of PUT /v1/devices/me/prekeys. It has one of its members, or both.
type NewPrekeys struct {
	SignedPrekey   *SignedPrekey   `json:"signed_prekey,omitzero"`     // replaces the one before
	OneTimePrekeys []OneTimePrekey `json:"one_time_prekeys,omitempty"` // at most 100
}

// PrekeyStock answers what publishes prekeys.
type PrekeyStock struct {
	SignedPrekeyID int64 `json:"signed_prekey_id"` // 0: there is none, and nobody can begin a session with the device
	LastPrekeyID   int64 `json:"last_prekey_id"`   // highest id of a one-time prekey that was ever uploaded; new ones have to be above it
	OneTimePrekeys int   `json:"one_time_prekeys"` // how many are not handed out
}

// PrekeyBundle is what a session with a device is begun with (X3DH). Whoever begins one
// checks all of it first: the fingerprint, both signatures, and the keys.
type PrekeyBundle struct {
	DeviceID           string         `json:"device_id" schema:"uuid"`
	IdentityKey        string         `json:"identity_key"`        // Ed25519; base64
	AgreementKey       string         `json:"agreement_key"`       // X25519; base64
	AgreementSignature string         `json:"agreement_signature"` // by the identity key, over the agreement key; base64
	Fingerprint        string         `json:"fingerprint"`         // of both keys
	SignedPrekey       SignedPrekey   `json:"signed_prekey"`
	OneTimePrekey      *OneTimePrekey `json:"one_time_prekey,omitzero"` // absent: all are handed out, and the session is begun without one
}
