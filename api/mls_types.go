package api

import "time"

// NewKeyPackages is the body of POST /v1/devices/me/key-packages.
type NewKeyPackages struct {
	KeyPackages []NewKeyPackage `json:"key_packages"` // 1 to 100
}

// NewKeyPackage is one of NewKeyPackages.
type NewKeyPackage struct {
	KeyPackage string    `json:"key_package"`          // base64; an MLSMessage with a KeyPackage, at most 16,384 bytes
	ExpiresAt  time.Time `json:"expires_at"`           // not handed out from then on; at most 90 days from now
	LastResort bool      `json:"last_resort,omitzero"` // handed out when there is no other, again and again; replaces the one before
}

// KeyPackageStock answers what concerns a device's key packages.
type KeyPackageStock struct {
	Available  int  `json:"available"`   // to be handed out once, and not expired
	LastResort bool `json:"last_resort"` // there is one
}

// KeyPackageClaim is the body of POST /v1/rooms/{id}/key-packages/claim.
type KeyPackageClaim struct {
	ParticipantIDs []string `json:"participant_ids"` // 1 to 100 others in the room, each once
}

// ClaimedKeyPackages answers POST /v1/rooms/{id}/key-packages/claim.
type ClaimedKeyPackages struct {
	KeyPackages []ClaimedKeyPackage `json:"key_packages"` // one for each participant
}

// ClaimedKeyPackage is one of ClaimedKeyPackages.
type ClaimedKeyPackage struct {
	ParticipantID string `json:"participant_id" schema:"uuid"`
	DeviceID      string `json:"device_id" schema:"uuid"`
	KeyPackage    []byte `json:"key_package"` // base64, as it was uploaded
	LastResort    bool   `json:"last_resort"` // others may get the same
}

// NewCommit is the body of POST /v1/rooms/{id}/commits.
type NewCommit struct {
	Epoch     *uint64  `json:"epoch" schema:"0..9007199254740991"` // of the room, that the commit was made in
	Commit    string   `json:"commit"`                             // base64; an MLSMessage with a commit, at most 131,072 bytes
	GroupInfo string   `json:"group_info"`                         // base64; an MLSMessage with the GroupInfo of the epoch that the commit makes, at most 524,288 bytes
	Welcome   string   `json:"welcome,omitzero"`                   // base64; an MLSMessage with the Welcome for all of added, at most 524,288 bytes
	Added     []string `json:"added,omitempty"`                    // participants that the commit adds, at most 100
	Removed   []string `json:"removed,omitempty"`                  // participants that it removes, at most 500; those who have left the room, too
}

// AcceptedCommit answers POST /v1/rooms/{id}/commits.
type AcceptedCommit struct {
	Epoch uint64 `json:"epoch"` // of the room, that the commit made
}

// Commit is one row of Commits.
type Commit struct {
	Epoch     uint64    `json:"epoch"`                // of the room, that it made
	Sender    string    `json:"sender" schema:"uuid"` // participant
	Commit    []byte    `json:"commit"`               // base64, as it was sent
	CreatedAt time.Time `json:"created_at"`
}

// Commits answers GET /v1/rooms/{id}/commits.
type Commits struct {
	Commits []Commit `json:"commits"` // in the order of their epochs
	More    bool     `json:"more"`    // there are more now
}

// GroupInfo answers GET /v1/rooms/{id}/group-info.
type GroupInfo struct {
	Epoch           uint64   `json:"epoch"`               // of the room, and the gen of messages
	BaseEpoch       uint64   `json:"base_epoch"`          // the room's epoch is the group's own plus this
	GroupID         []byte   `json:"group_id,omitzero"`   // base64; absent like group_info where there is no group
	GroupInfo       []byte   `json:"group_info,omitzero"` // base64; the newest, as it was sent
	Members         []string `json:"members"`             // participants that are in the group, those with a pending removal too
	PendingRemovals []string `json:"pending_removals"`    // participants who have left the room: the next commit has to remove them
}

// Welcome answers GET /v1/rooms/{id}/welcome.
type Welcome struct {
	Epoch   uint64 `json:"epoch"`   // of the room, that one joins in
	Welcome []byte `json:"welcome"` // base64, as it was sent
}

// ReportedCommit answers POST /v1/rooms/{id}/commits/{epoch}/report.
type ReportedCommit struct {
	Epoch uint64 `json:"epoch"` // that the commit made
}
