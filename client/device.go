package client

import (
	"context"
	"crypto/tls"
	"errors"
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
	// which EnrollDevice makes. There is none with another secret.
	Secret keystore.Secret
	// Clock is that of pauses, repairs and time stamps; nil means the system's.
	Clock clockwork.Clock
}

// ErrPassphrase reports a device whose keys need a passphrase (DeviceOptions.Secret), where none
// was given.
var ErrPassphrase = errors.New("the device's keys are under a passphrase, which was not given")

// Device is a device that has enrolled: its keys, which it keeps in a folder, and what it
// does at its relay. Its methods may be called from several goroutines at once.
//
// The folder has mode 0700. In it are the key store, which holds all there is of the device
// (package client/keystore), and, where no passphrase opens it, the key file.
//
// Whatever the relay refuses is an *APIError. What is done on its behalf needs an access
// token: the device signs in by itself, keeps the token in its key store until it expires, and
// signs in again when the relay does not take it any more.
type Device struct {
	home folder
	self record // as it was opened; state and SetRelayURL change what is saved
	keys keyPair
	api  *caller
	http DeviceOptions

	store *keystore.Store
	clock clockwork.Clock

	signing chan struct{} // holds one value while nobody signs in
	access  accessToken   // guarded by signing

	credentials credentials // of its rooms
	refills     refills     // of its prekeys
	sessions    sessions    // that are open

	mu    sync.Mutex  // guards the following field
	state DeviceState // last known
}

// OpenDevice opens the folder of a device that has enrolled, and its key store, which no other
// process can open until Close. It asks the relay nothing. Errors: ErrNoDevice where there is
// none, ErrPassphrase, and those of keystore.Open: keystore.ErrWrongSecret, keystore.ErrInUse,
// keystore.ErrDamaged, keystore.ErrPermissions and others.
//
// A device of an older version, which kept its keys unencrypted in device.json, is taken over:
// its file is removed when the key store that DeviceOptions.Secret opens is on disk. Whenever
// that is interrupted, the next OpenDevice goes on with it.
func OpenDevice(dir string, options DeviceOptions) (*Device, error) {
	return openDevice(dir, options, func() {})
}

func openDevice(dir string, options DeviceOptions, pause func()) (*Device, error) {
	home := folder(dir)
	store, self, err := home.device(options.Secret, pause)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(home, store, self, options)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return d, nil
}

func newDevice(home folder, store *keystore.Store, self record, options DeviceOptions) (*Device, error) {
	keys, err := self.keys()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", home.path(keysFile), err)
	}
	api, err := newCaller(self.Relay, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", home.path(keysFile), err)
	}
	d := &Device{
		home: home, self: self, keys: keys, api: api, http: options, store: store, clock: options.Clock,
		state: self.State, signing: free(),
	}
	if d.clock == nil {
		d.clock = clockwork.NewRealClock()
	}
	d.http.Secret = keystore.Secret{} // it was needed once
	d.access = d.loadAccess()
	return d, nil
}

// Close closes the key store, so that others can open the device, and lets go of idle
// connections. Closing again is no error.
func (d *Device) Close() error {
	d.api.http.CloseIdleConnections()
	if err := d.store.Close(); !errors.Is(err, keystore.ErrClosed) {
		return err
	}
	return nil
}

// ChangeSecret makes another secret the one that opens the device: the zero value stands for
// the key file in its folder, which is made where there is none, and which is removed for a
// passphrase. Copies of the folder that were made before still open with what opened them.
func (d *Device) ChangeSecret(secret keystore.Secret) (err error) {
	if secret.IsZero() {
		if secret, err = d.home.ownKeyFile(); err != nil {
			return err
		}
	}
	if err := d.store.ChangeSecret(secret); err != nil {
		return err
	}
	return d.home.tidy(func() {})
}

// SetRelayURL says that the relay, the same one, is at another address. It counts from the next
// OpenDevice on, and asks no relay anything. It returns ErrRelayURL for what is no address.
func (d *Device) SetRelayURL(relay string) error {
	base, err := relayURL(relay)
	if err != nil {
		return err
	}
	return d.changeRecord(func(self *record) { self.Relay = base.String() })
}

// ID is the device's id.
func (d *Device) ID() string { return d.self.DeviceID }

// RelayURL is the relay's address that the device was opened with, as in http://127.0.0.1:8787.
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
