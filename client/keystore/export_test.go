package keystore

import (
	"bytes"
	"crypto/sha256"
)

// What tests need beside the exported names.

type (
	Disk = disk
	File = file
	Cost = struct {
		Passes, Memory uint32
		Threads        uint8
	}
	Limits = struct {
		Bytes, Rooms, Seen, SeenTotal int
		Slack                         int64
	}
)

const Sector = sector

var (
	ParseHeader = func(b []byte) ([]byte, error) {
		h, err := parseHeader(b)
		if err != nil {
			return nil, err
		}
		return h.marshal(), nil
	}
	ApplyBody  = func(b []byte) error { return newState(standardLimits).apply(b) }
	SystemDisk = Disk(systemDisk{})
)

func with(d Disk, l *Limits) settings {
	s := standard()
	if d != nil {
		s.disk = d
	}
	if l != nil {
		s.limits = limits{bytes: l.Bytes, rooms: l.Rooms, seen: l.Seen, seenTotal: l.SeenTotal, slack: l.Slack}
	}
	return s
}

func CreateWith(path string, secret Secret, d Disk, l *Limits) (*Store, error) {
	return create(path, secret, with(d, l))
}

func OpenWith(path string, secret Secret, d Disk, l *Limits) (*Store, error) {
	return open(path, secret, with(d, l))
}

// DeriveKey is the key that a passphrase gives, without the bounds of passphrases.
func DeriveKey(passphrase []byte, salt [16]byte, c Cost) ([32]byte, error) {
	h := &header{kind: kindPassphrase, salt: salt, cost: cost{passes: c.Passes, memory: c.Memory, threads: c.Threads}}
	if err := h.cost.check(); err != nil {
		return [32]byte{}, err
	}
	return Secret{kind: kindPassphrase, text: passphrase}.key(h)
}

// CheckCost says whether a header with this cost is accepted.
func CheckCost(c Cost) error {
	h := &header{kind: kindPassphrase, cost: cost{passes: c.Passes, memory: c.Memory, threads: c.Threads}}
	_, err := parseHeader(h.marshal())
	return err
}

// WithSum makes a header of some bytes, with the hash that belongs to it.
func WithSum(b []byte) []byte {
	b = append(bytes.Clone(b), make([]byte, sector)...)[:sumAt]
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}
