package client

import "github.com/peerrelay/peerrelay/e2ee/content"

// Bounds of a Draft, in bytes.
const (
	MaxFile = content.MaxFile    // of a file's data
	MaxText = content.MaxPayload // of a text; one with many quotes or control characters has to be shorter
)

// ErrTooLarge reports a text or a file that is larger than a message may be.
var ErrTooLarge = content.ErrTooLarge
