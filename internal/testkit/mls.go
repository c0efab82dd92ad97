package testkit

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// MLSCommit is the body of POST /v1/rooms/{id}/commits.
type MLSCommit struct {
	Epoch     uint64   `json:"epoch"`
	Commit    string   `json:"commit"`
	GroupInfo string   `json:"group_info"`
	Welcome   string   `json:"welcome,omitempty"`
	Added     []string `json:"added,omitempty"`
	Removed   []string `json:"removed,omitempty"`
}

// MLSKeyPackage is one of POST /v1/devices/me/key-packages.
type MLSKeyPackage struct {
	KeyPackage string    `json:"key_package"`
	ExpiresAt  time.Time `json:"expires_at"`
	LastResort bool      `json:"last_resort,omitempty"`
}

// NewMLSCommit is a commit of a member in this epoch of the group, which is the room's less
// base: well-formed MLS messages with this text where a client's secrets are.
func NewMLSCommit(group string, epoch, base uint64, text string) MLSCommit {
	private := mlsMessage(2, opaque(group), number(epoch-base), "\x03", opaque(""), opaque(text), opaque(text))
	return MLSCommit{Epoch: epoch, Commit: private, GroupInfo: mlsGroupInfo(group, epoch-base+1, text)}
}

// NewExternalCommit is a commit by which its sender joins.
func NewExternalCommit(group string, epoch, base uint64, text string) MLSCommit {
	public := mlsMessage(1, opaque(group), number(epoch-base), "\x04", opaque(""), "\x03", text)
	return MLSCommit{Epoch: epoch, Commit: public, GroupInfo: mlsGroupInfo(group, epoch-base+1, text)}
}

// Adding is the commit with a welcome for these.
func (c MLSCommit) Adding(text string, participants ...string) MLSCommit {
	c.Welcome, c.Added = mlsMessage(3, "\x00\x03", opaque(""), opaque(text)), slices.Concat(c.Added, participants)
	return c
}

// Removing is the commit that removes these, too.
func (c MLSCommit) Removing(participants ...string) MLSCommit {
	c.Removed = slices.Concat(c.Removed, participants)
	return c
}

// NewMLSKeyPackage is a well-formed one, told from others by its text.
func NewMLSKeyPackage(text string) MLSKeyPackage {
	return MLSKeyPackage{KeyPackage: mlsMessage(5, "\x00\x01\x00\x03", text), ExpiresAt: time.Now().Add(24 * time.Hour)}
}

// PublishKeyPackages publishes key packages as the device.
func (s *Relay) PublishKeyPackages(t testing.TB, d *Device, packages ...MLSKeyPackage) Answer {
	t.Helper()
	return s.Public(t, http.MethodPost, "/v1/devices/me/key-packages", d.AccessToken, map[string]any{"key_packages": packages})
}

func mlsGroupInfo(group string, epoch uint64, text string) string {
	return mlsMessage(4, "\x00\x01\x00\x03", opaque(group), number(epoch), opaque(""), opaque(""), opaque(""), // context
		opaque(""), opaque(text), "\x00\x00\x00\x00", opaque(text))
}

// mlsMessage is an MLSMessage in base64.
func mlsMessage(format uint16, parts ...string) string {
	data := binary.BigEndian.AppendUint16([]byte{0, 1}, format)
	return base64.StdEncoding.EncodeToString(append(data, strings.Join(parts, "")...))
}

func number(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// opaque is a vector (RFC 9420 section 2.1.2).
func opaque(text string) string {
	switch n := len(text); {
	case n < 1<<6:
		return string([]byte{byte(n)}) + text
	case n < 1<<14:
		return string(binary.BigEndian.AppendUint16(nil, uint16(n)|1<<14)) + text
	default:
		return string(binary.BigEndian.AppendUint32(nil, uint32(n)|1<<31)) + text
	}
}
