package client

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Keys in the store's bucket Device.
const (
	recordKey = "record"
	accessKey = "access-token"
)

// Files of an older version, which kept a device in the clear. They are read once.
const (
	olderFile  = "device.json"
	olderToken = "access-token.json"
	maxOlder   = 64 << 10
)

const recordVersion = 1

// record is who the device is: JSON in the store.
type record struct {
	Version      int         `json:"version"`
	Relay        string      `json:"relay"`
	DeviceID     string      `json:"device_id,omitzero"` // absent until the relay has answered
	Kind         DeviceKind  `json:"kind"`
	Label        string      `json:"label"`
	State        DeviceState `json:"state,omitzero"` // last known
	IdentityKey  []byte      `json:"identity_key"`   // seed of the Ed25519 key, 32 bytes
	AgreementKey []byte      `json:"agreement_key"`  // X25519, 32 bytes
}

// keyPair is what a record's keys are good for.
type keyPair struct {
	identity  ed25519.PrivateKey
	agreement *ecdh.PrivateKey
	public    identity.Keys
}

// newKeys makes the keys of a new device.
func (r *record) newKeys() error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make the identity key: %w", err)
	}
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make the agreement key: %w", err)
	}
	r.IdentityKey, r.AgreementKey = private.Seed(), agreement.Bytes()
	return nil
}

// Errors of what is stored; they say nothing of it.
var (
	errRecord        = errors.New("the device in it is damaged")
	errRecordVersion = errors.New("the device in it is of another version of this program")
)

func (r *record) keys() (keyPair, error) {
	if len(r.IdentityKey) != ed25519.SeedSize {
		return keyPair{}, errRecord
	}
	agreement, err := ecdh.X25519().NewPrivateKey(r.AgreementKey)
	if err != nil {
		return keyPair{}, errRecord
	}
	k := keyPair{identity: ed25519.NewKeyFromSeed(r.IdentityKey), agreement: agreement}
	copy(k.public.Identity[:], k.identity[ed25519.SeedSize:])
	copy(k.public.Agreement[:], agreement.PublicKey().Bytes())
	k.public.AgreementSignature = identity.SignAgreement(k.identity, k.public.Agreement)
	return k, nil
}

// parseRecord accepts a whole device, and one whose relay has not answered yet.
func parseRecord(text []byte) (record, error) {
	var self record
	if json.Unmarshal(text, &self) != nil {
		return record{}, errRecord // without what is in it
	}
	if self.Version != recordVersion {
		return record{}, errRecordVersion
	}
	if self.DeviceID == "" {
		return self, nil
	}
	if _, ok := wire.ParseUUID([]byte(self.DeviceID)); !ok {
		return record{}, errRecord
	}
	if _, err := relayURL(self.Relay); err != nil {
		return record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	_, err := self.keys()
	return self, err
}

// recordOf is the zero record where the store has none.
func recordOf(tx *keystore.Tx) (record, error) {
	text := tx.Get(keystore.Device, recordKey)
	if text == nil {
		return record{}, nil
	}
	return parseRecord(text)
}

func putRecord(tx *keystore.Tx, self *record) error {
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	return tx.Put(keystore.Device, recordKey, text)
}

func loadRecord(store *keystore.Store) (self record, err error) {
	err = store.View(func(tx *keystore.Tx) error {
		self, err = recordOf(tx)
		return err
	})
	return self, err
}

func saveRecord(store *keystore.Store, self *record) error {
	err := store.Update(func(tx *keystore.Tx) error { return putRecord(tx, self) })
	return step("save the device", err)
}

// changeRecord changes what is saved.
func (d *Device) changeRecord(change func(self *record)) error {
	err := d.store.Update(func(tx *keystore.Tx) error {
		self, err := recordOf(tx)
		if err != nil {
			return err
		}
		change(&self)
		return putRecord(tx, &self)
	})
	return step("save the device", err)
}

// accessToken is a token until it expires, for one device at one relay.
type accessToken struct {
	Token     string    `json:"access_token"`
	ExpiresAt time.Time `json:"expires_at"`
	DeviceID  string    `json:"device_id"`
	Relay     string    `json:"relay"`
}

// loadAccess reads the kept token. Without one that fits, the device signs in.
func (d *Device) loadAccess() (kept accessToken) {
	_ = d.store.View(func(tx *keystore.Tx) error {
		return json.Unmarshal(tx.Get(keystore.Device, accessKey), &kept)
	})
	if kept.DeviceID != d.self.DeviceID || kept.Relay != d.self.Relay {
		return accessToken{}
	}
	return kept
}

func (d *Device) saveAccess(access accessToken) error {
	text, err := json.Marshal(access)
	if err != nil {
		return err
	}
	return d.store.Update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, accessKey, text) })
}

// older reads the device of an older version. It is the zero record where there is none.
func (f folder) older() (record, error) {
	path := f.path(olderFile)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	defer file.Close()
	if err := private(path, fileMode); err != nil {
		return record{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOlder))
	if err != nil {
		return record{}, fmt.Errorf("read %s: %w", path, err)
	}
	self, err := parseRecord(text)
	if err != nil {
		return record{}, fmt.Errorf("%s: %w", path, err)
	}
	return self, nil
}
