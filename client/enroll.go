package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

// Enrollment is what a device enrolls with.
type Enrollment struct {
	RelayURL string     // the relay's address; that of its WebSocket means the same relay
	Invite   string     // the token of an invite; never logged, never in an error
	Kind     DeviceKind // the invite's
	Label    string     // for people, at most 128 code points
}

// EnrollDevice makes the keys of a new device, enrolls it and keeps it in a folder, which
// is made (mode 0700) or has to be the caller's alone. The device is PENDING until an admin
// has compared its Fingerprint and approved it; with an admin's invite it is APPROVED. Its key
// store opens with DeviceOptions.Secret, or without one with a key file, which is made in the folder.
//
// The keys are on disk before the relay is asked. Where no answer comes it is not known
// whether the device enrolled: it is then no device of this folder, and another invite is
// needed for another attempt, which makes new keys. The invite is not kept. It returns ErrEnrolled
// where a device has enrolled in the folder, and ErrInvite for a text that is no token.
func EnrollDevice(ctx context.Context, dir string, e Enrollment, options DeviceOptions) (*Device, error) {
	token, ok := decodeToken(e.Invite)
	if !ok {
		return nil, ErrInvite
	}
	base, err := relayURL(e.RelayURL)
	if err != nil {
		return nil, err
	}
	self := record{Version: recordVersion, Relay: base.String(), Kind: e.Kind, Label: e.Label}
	if err := self.newKeys(); err != nil {
		return nil, err
	}
	home := folder(dir)
	store, err := home.vacant(options.Secret)
	if err != nil {
		return nil, err
	}
	d, err := home.keep(store, self, options)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := d.enroll(ctx, e.Invite, token); err != nil {
		if _, refused := errors.AsType[*APIError](err); refused {
			d.discard()
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// vacant makes the folder and a key store in it, and refuses a folder that has a device. The
// store of an enrollment that was not finished is used again.
func (f folder) vacant(given keystore.Secret) (*keystore.Store, error) {
	if err := f.make(); err != nil {
		return nil, err
	}
	older, err := f.older()
	if err != nil {
		return nil, err
	}
	if older.DeviceID != "" {
		return nil, fmt.Errorf("%s: %w", string(f), ErrEnrolled)
	}
	store, err := f.store(given, true, func() {})
	if errors.Is(err, ErrPassphrase) || errors.Is(err, keystore.ErrWrongSecret) {
		return nil, fmt.Errorf("there are keys in the folder already, of a device or of an enrollment that was not finished: %w", err)
	}
	if err != nil {
		return nil, err
	}
	self, err := loadRecord(store)
	if err == nil && self.DeviceID != "" {
		err = fmt.Errorf("%s: %w", string(f), ErrEnrolled)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// keep saves a device that has not enrolled yet.
func (f folder) keep(store *keystore.Store, self record, options DeviceOptions) (*Device, error) {
	d, err := newDevice(f, store, self, options)
	if err != nil {
		return nil, err
	}
	if err := saveRecord(store, &self); err != nil {
		return nil, err
	}
	return d, f.tidy(func() {})
}

// discard removes the keys of nobody, so that the next attempt may have another secret. The
// key file, which opens nothing now, serves that attempt.
func (d *Device) discard() {
	if d.store.Compact() == nil { // then closing it writes nothing
		_ = os.Remove(d.home.path(keysFile))
	}
}

func (d *Device) enroll(ctx context.Context, invite string, token [32]byte) error {
	keys := d.keys.public
	proof := identity.SignEnrollment(d.keys.identity, token, &keys)
	var enrolled struct {
		DeviceID    string      `json:"device_id"`
		State       DeviceState `json:"state"`
		Fingerprint string      `json:"fingerprint"`
	}
	err := d.api.call(ctx, "", request{
		method: http.MethodPost, path: "/v1/enroll", answer: &enrolled,
		body: map[string]string{
			"token": invite, "kind": string(d.self.Kind), "label": d.self.Label,
			"identity_key":        base64.StdEncoding.EncodeToString(keys.Identity[:]),
			"agreement_key":       base64.StdEncoding.EncodeToString(keys.Agreement[:]),
			"agreement_signature": base64.StdEncoding.EncodeToString(keys.AgreementSignature[:]),
			"proof":               base64.StdEncoding.EncodeToString(proof[:]),
		},
	})
	if err != nil {
		return fmt.Errorf("enroll: %w", err)
	}
	if checkIDs(enrolled.DeviceID) != nil {
		return fmt.Errorf("enroll: %w", errAnswer)
	}
	if !identity.EqualFingerprints(enrolled.Fingerprint, keys.Fingerprint()) {
		return fmt.Errorf("enroll: %w", ErrFingerprint) // it has other keys for this device than we have
	}
	d.self.DeviceID, d.self.State, d.state = enrolled.DeviceID, enrolled.State, enrolled.State
	return saveRecord(d.store, &d.self)
}

// IsInvite reports whether a text has the form of an invite's token.
func IsInvite(text string) bool {
	_, ok := decodeToken(text)
	return ok
}

// PublishKeys starts the device's key exchange: APPROVED becomes ACTIVE, and an agent's prekeys are
// published, with which others begin direct conversations while it is away. It may be repeated.
func (d *Device) PublishKeys(ctx context.Context) (DeviceInfo, error) {
	keys := d.keys.public
	var active DeviceInfo
	err := d.call(ctx, request{
		method: http.MethodPut, path: "/v1/devices/me/keys", answer: &active,
		body: map[string]string{
			"agreement_key":       base64.StdEncoding.EncodeToString(keys.Agreement[:]),
			"agreement_signature": base64.StdEncoding.EncodeToString(keys.AgreementSignature[:]),
		},
	})
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("publish the keys: %w", err)
	}
	if err := d.noteState(active.State); err != nil || d.self.Kind != KindAgent {
		return active, err
	}
	return active, d.RefillPrekeys(ctx)
}

// noteState remembers a state for those who ask without the relay.
func (d *Device) noteState(state DeviceState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == state {
		return nil
	}
	d.state = state
	return d.changeRecord(func(self *record) { self.State = state })
}
