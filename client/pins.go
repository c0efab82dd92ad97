package client

import (
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

// A pin is kept in the bucket Peers, whose bound is that of pins: who is met beyond it is not
// believed (keystore.ErrFull) and nobody is forgotten, as a relay could invent devices until
// one that was compared is. Its key is pinPrefix and the device's id, its value flags(1) and
// identity(32) agreement(32) signature(64), or without pinKeys the text of the fingerprint(24).
//
// Under participantPrefix and a participant's id is the id of its device, which never changes:
// a relay that named another one would put its own keys in the place of those that are pinned.
const (
	pinPrefix         = "device/"
	participantPrefix = "participant/"

	pinKeys     byte = 1 // the keys were seen
	pinVerified byte = 2 // a person compared the fingerprint

	pinWithKeys        = 1 + 32 + 32 + 64
	pinWithFingerprint = 1 + 24
)

// pin is what is remembered of another device.
type pin struct {
	Keys        identity.Keys // zero until they were seen: nothing verifies with them
	Fingerprint string        // of Keys, or what a person compared before they were seen
	Verified    bool          // a person compared the fingerprint, with this device
}

// errPin says nothing of what is stored.
var errPin = errors.New("what is remembered of a device is damaged")

// ErrUnknownPeer reports a device of which this one remembers nothing.
var ErrUnknownPeer = errors.New("nothing is remembered of that device yet")

// seen reports whether the keys are known, and not the fingerprint alone.
func (p *pin) seen() bool { return p.Keys != identity.Keys{} }

// pinDevice remembers the keys of a device the first time they are seen, and returns what is
// remembered. It returns ErrKeysChanged, and keeps what there was, when they are others than
// those, or not those whose fingerprint a person compared; and identity.ErrKeys for keys that are
// not accepted. The signature of the first keys stays, as it is no part of what they are.
func pinDevice(tx *keystore.Tx, device string, keys identity.Keys) (pin, error) {
	known, found, err := loadPin(tx, device)
	if err != nil {
		return pin{}, err
	}
	if found && known.seen() {
		return known, known.equal(&keys)
	}
	if err := keys.Check(); err != nil {
		return pin{}, err
	}
	if found && !identity.EqualFingerprints(known.Fingerprint, keys.Fingerprint()) {
		return pin{}, fmt.Errorf("%w: their fingerprint is not the one that was compared", ErrKeysChanged)
	}
	fresh := pin{Keys: keys, Fingerprint: keys.Fingerprint(), Verified: known.Verified}
	return fresh, fresh.save(tx, device)
}

// pinParticipant remembers which device a participant is the first time it is seen, and returns
// ErrKeysChanged when it is another one than that.
func pinParticipant(tx *keystore.Tx, participant, device string) error {
	switch known := string(tx.Get(keystore.Peers, participantPrefix+participant)); known {
	case device:
		return nil
	case "":
		return tx.Put(keystore.Peers, participantPrefix+participant, []byte(device))
	default:
		return fmt.Errorf("%w: they are of another device", ErrKeysChanged)
	}
}

// equal returns nil for the keys of the pin.
func (p *pin) equal(keys *identity.Keys) error {
	if p.Keys.Identity != keys.Identity || p.Keys.Agreement != keys.Agreement {
		return ErrKeysChanged
	}
	if p.Keys.AgreementSignature == keys.AgreementSignature {
		return nil
	}
	return keys.Check() // another signature, of which there may be several
}

// pinnedDevice returns what is remembered of a device. What cannot be read is a pin without
// keys, so that nobody is taken for new.
func pinnedDevice(tx *keystore.Tx, device string) (pin, bool) {
	known, found, err := loadPin(tx, device)
	return known, found || err != nil
}

// verifyDevice remembers keys whose fingerprint a person compared. Its errors are those of
// pinDevice: a device never changes its keys.
func verifyDevice(tx *keystore.Tx, device string, keys identity.Keys) error {
	known, err := pinDevice(tx, device, keys)
	if err != nil {
		return err
	}
	known.Verified = true
	return known.save(tx, device)
}

// verifyFingerprint is verifyDevice where the keys may not have been seen yet: the first ones
// will have to have this fingerprint.
func verifyFingerprint(tx *keystore.Tx, device, fingerprint string) error {
	text, err := identity.ParseFingerprint(fingerprint)
	if err != nil {
		return err
	}
	known, found, err := loadPin(tx, device)
	switch {
	case err != nil:
		return err
	case !found:
		known = pin{Fingerprint: text}
	case known.Fingerprint != text:
		return fmt.Errorf("%w: their fingerprint was %s", ErrKeysChanged, known.Fingerprint)
	}
	known.Verified = true
	return known.save(tx, device)
}

func (p *pin) save(tx *keystore.Tx, device string) error {
	value := []byte{0}
	if p.Verified {
		value[0] |= pinVerified
	}
	if p.seen() {
		value[0] |= pinKeys
		value = append(value, p.Keys.Identity[:]...)
		value = append(value, p.Keys.Agreement[:]...)
		value = append(value, p.Keys.AgreementSignature[:]...)
	} else {
		value = append(value, p.Fingerprint...)
	}
	return tx.Put(keystore.Peers, pinPrefix+device, value)
}

func loadPin(tx *keystore.Tx, device string) (p pin, found bool, err error) {
	if err := checkIDs(device); err != nil {
		return pin{}, false, fmt.Errorf("device %q: %w", device, err)
	}
	value := tx.Get(keystore.Peers, pinPrefix+device)
	if value == nil {
		return pin{}, false, nil
	}
	p, err = parsePin(value)
	return p, err == nil, err
}

func parsePin(value []byte) (p pin, err error) {
	switch {
	case len(value) == pinWithKeys && value[0]&^pinVerified == pinKeys:
		copy(p.Keys.Identity[:], value[1:])
		copy(p.Keys.Agreement[:], value[33:])
		copy(p.Keys.AgreementSignature[:], value[65:])
		p.Fingerprint = p.Keys.Fingerprint()
	case len(value) == pinWithFingerprint && value[0] == pinVerified:
		if p.Fingerprint, err = identity.ParseFingerprint(string(value[1:])); err != nil {
			return pin{}, errPin
		}
	default:
		return pin{}, errPin
	}
	p.Verified = value[0]&pinVerified != 0
	return p, nil
}

// Peer is what this device remembers of another one.
type Peer struct {
	DeviceID    string `json:"device_id"`
	Fingerprint string `json:"fingerprint"`
	Compared    bool   `json:"compared"` // a person compared it, with this device
}

// Peer returns what this device remembers of another one, or ErrUnknownPeer. It asks the relay
// nothing.
func (d *Device) Peer(device string) (Peer, error) {
	var known pin
	err := d.store.View(func(tx *keystore.Tx) error {
		var found bool
		var err error
		if known, found, err = loadPin(tx, device); err == nil && !found {
			err = fmt.Errorf("device %s: %w", device, ErrUnknownPeer)
		}
		return err
	})
	return Peer{DeviceID: device, Fingerprint: known.Fingerprint, Compared: known.Verified}, err
}

// ComparePeer remembers that a person compared the fingerprint of a device: the one that the
// device itself shows. It returns ErrFingerprint for a text that is none, and where the device
// is remembered with another one. It asks the relay nothing.
func (d *Device) ComparePeer(device, fingerprint string) (Peer, error) {
	err := d.store.Update(func(tx *keystore.Tx) error { return verifyFingerprint(tx, device, fingerprint) })
	if errors.Is(err, identity.ErrFingerprint) || errors.Is(err, ErrKeysChanged) {
		err = fmt.Errorf("%w: %w", ErrFingerprint, err)
	}
	if err != nil {
		return Peer{}, err
	}
	return d.Peer(device)
}
