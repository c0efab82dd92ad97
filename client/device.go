package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

// DeviceState is the state of a device (STATE, "Device Lifecycle States").
type DeviceState string

// States of a device.
const (
	DevicePending   DeviceState = "PENDING"
	DeviceApproved  DeviceState = "APPROVED"
	DeviceActive    DeviceState = "ACTIVE"
	DeviceSuspended DeviceState = "SUSPENDED"
	DeviceRevoked   DeviceState = "REVOKED"
)

// DeviceKind says who uses a device.
type DeviceKind string

// Kinds of devices.
const (
	KindAgent DeviceKind = "agent"
	KindHuman DeviceKind = "human"
)

// DeviceOptions are how a device talks to its relay. The zero value is good.
type DeviceOptions struct {
	// Timeout bounds each request; 0 means a minute, as a change may wait for every node of
	// a cluster.
	Timeout time.Duration
	// TLS is used for https addresses; nil means the system's roots.
	TLS *tls.Config
	// Secret opens the device's key store; the zero value means the key file in its folder,
	// which EnrollDevice makes.
	Secret keystore.Secret
	// Clock is that of pauses, repairs and time stamps; nil means the system's.
	Clock clockwork.Clock
}

// Device is a device that has enrolled: its keys, which it keeps in a folder, and what it
// does at its relay. Its methods may be called from several goroutines at once.
//
// Whatever the relay refuses is an *APIError. What is done on its behalf needs an access
// token: the device signs in by itself, keeps the token in its folder until it expires, and
// signs in again when the relay does not take it any more.
type Device struct {
	home folder
	self record
	keys keyPair
	api  *caller
	http DeviceOptions

	store *keystore.Store
	clock clockwork.Clock

	signing chan struct{} // holds one value while nobody signs in
	access  accessToken   // guarded by signing

	mu    sync.Mutex  // guards the following field
	state DeviceState // last known
}

// OpenDevice opens the folder of a device that has enrolled. It returns ErrNoDevice where
// there is none, and asks the relay nothing.
func OpenDevice(dir string, options DeviceOptions) (*Device, error) {
	home := folder(dir)
	self, err := home.device()
	if err != nil {
		return nil, err
	}
	return newDevice(home, self, options)
}

func newDevice(home folder, self record, options DeviceOptions) (*Device, error) {
	keys, err := self.keys()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", home.path(deviceFile), err)
	}
	api, err := newCaller(self.Relay, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", home.path(deviceFile), err)
	}
	d := &Device{home: home, self: self, keys: keys, api: api, http: options, state: self.State, signing: make(chan struct{}, 1)}
	d.access = home.access(d)
	d.signing <- struct{}{}
	return d, nil
}

// Close lets go of idle connections. The device may still be used.
func (d *Device) Close() error {
	d.api.http.CloseIdleConnections()
	return nil
}

// ID is the device's id.
func (d *Device) ID() string { return d.self.DeviceID }

// RelayURL is the relay's address, as in http://127.0.0.1:8787.
func (d *Device) RelayURL() string { return d.self.Relay }

// Kind is who uses the device.
func (d *Device) Kind() DeviceKind { return d.self.Kind }

// Label is what the device called itself when it enrolled.
func (d *Device) Label() string { return d.self.Label }

// LastState is the state the device was last known to be in, without asking the relay.
func (d *Device) LastState() DeviceState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Keys are its public keys.
func (d *Device) Keys() identity.Keys { return d.keys.public }

// Fingerprint is what people compare before they approve the device. It is made of the keys
// in its folder; what the relay says has no part in it.
func (d *Device) Fingerprint() string { return d.keys.public.Fingerprint() }

// Connect opens a WebSocket with a credential of MintCredential.
func (d *Device) Connect(ctx context.Context, credential Credential) (*Conn, error) {
	return Dial(ctx, d.api.webSocketURL(), Options{Token: credential.Token, TLS: d.http.TLS, Timeout: d.http.Timeout})
}

// call makes a request as the device. It signs in where it has no token, and once more when
// the token is refused: then nothing was done yet.
func (d *Device) call(ctx context.Context, r request) error {
	token, err := d.token(ctx, "")
	if err != nil {
		return err
	}
	err = d.api.call(ctx, token, r)
	if !unauthorized(err) {
		return err
	}
	again, err := d.token(ctx, token)
	if err != nil {
		return err
	}
	return d.api.call(ctx, again, r)
}
