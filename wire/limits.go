package wire

import "time"

// Version is the value of an envelope's "v" member.
const Version = 1

// Limits of the protocol (DESIGN section 6).
const (
	MaxMessage      = 65_536    // bytes of one whole WebSocket message; one more closes 1009
	MaxIDLength     = 128       // printable ASCII characters of an envelope id
	MaxDepth        = 32        // nesting of JSON objects and arrays
	MaxInteger      = 1<<53 - 1 // largest integer of any member
	MaxFileName     = 255       // Unicode code points
	MaxMIMEType     = 127       // Unicode code points
	MaxFileSize     = 700_000   // bytes declared in file.sizeBytes
	MaxResumeLimit  = 500       // rows of one resume
	MaxInboxRows    = 500       // rows an inbox retains
	MaxQueueFrames  = 256       // frames waiting to be written to one connection
	MaxQueueBytes   = 1 << 20   // bytes waiting to be written to one connection
	MaxGenerations  = 64        // generations whose seq one connection remembers
	MaxUnknownType  = 64        // bytes of an unknown frame's type that are echoed
	MaxPlaintext    = 1_060_000 // bytes of an envelope that the server made of a plaintext message
	HelloTimeout    = 10 * time.Second
	PingInterval    = 25 * time.Second
	InboxMaxAge     = 24 * time.Hour
	EnvelopesPerSec = 20 // per participant and node, burst of the same size
	RateForgiveness = 10 * time.Second
)
