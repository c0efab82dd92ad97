package api

// NewChallenge is the body of POST /v1/auth/challenge.
type NewChallenge struct {
	DeviceID string `json:"device_id" schema:"uuid"`
}

// Challenge answers POST /v1/auth/challenge.
type Challenge struct {
	Nonce string `json:"nonce"` // 32 bytes in base64url, 43 characters; valid once, for 60 s
}

// NewAccessToken is the body of POST /v1/auth/token.
type NewAccessToken struct {
	DeviceID  string `json:"device_id" schema:"uuid"`
	Nonce     string `json:"nonce"`
	Signature string `json:"signature"` // by the identity key over nonce and device id, 64 bytes in base64
}

// AccessToken answers POST /v1/auth/token.
type AccessToken struct {
	AccessToken string `json:"access_token"` // for the header Authorization: Bearer
	ExpiresIn   int    `json:"expires_in"`   // seconds
}
