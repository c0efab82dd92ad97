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
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Files in a device's folder.
const (
	deviceFile = "device.json"
	accessFile = "access-token.json"

	recordVersion = 1
	maxFile       = 64 << 10
)

// Modes of the folder and of the files in it: they are the owner's alone.
const (
	folderMode = 0o700
	fileMode   = 0o600
	others     = 0o077
)

// folder keeps a device. Each file is replaced as a whole: a reader, also one after a
// crash, sees what was there before or what was put there.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// record is device.json: everything that makes a device, and all there is to back up.
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

// errKeyFile says nothing of what is in the file.
var errKeyFile = errors.New("the keys in it are damaged")

func (r *record) keys() (keyPair, error) {
	if len(r.IdentityKey) != ed25519.SeedSize {
		return keyPair{}, errKeyFile
	}
	agreement, err := ecdh.X25519().NewPrivateKey(r.AgreementKey)
	if err != nil {
		return keyPair{}, errKeyFile
	}
	k := keyPair{identity: ed25519.NewKeyFromSeed(r.IdentityKey), agreement: agreement}
	copy(k.public.Identity[:], k.identity[ed25519.SeedSize:])
	copy(k.public.Agreement[:], agreement.PublicKey().Bytes())
	k.public.AgreementSignature = identity.SignAgreement(k.identity, k.public.Agreement)
	return k, nil
}

// make makes the folder, or accepts one that only its owner can look into.
func (f folder) make() error {
	if err := os.MkdirAll(string(f), folderMode); err != nil {
		return fmt.Errorf("make the device's folder: %w", err)
	}
	return private(string(f), folderMode)
}

// private refuses what others on the machine can read or write.
func private(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&others != 0 {
		return fmt.Errorf("%s is open to others on this machine: chmod %o %[1]s", path, mode)
	}
	return nil
}

// device reads who enrolled here.
func (f folder) device() (record, error) {
	var self record
	switch err := f.read(deviceFile, &self); {
	case errors.Is(err, fs.ErrNotExist):
		return record{}, fmt.Errorf("%s: %w", string(f), ErrNoDevice)
	case err != nil:
		return record{}, err
	case self.Version != recordVersion:
		return record{}, fmt.Errorf("%s is of another version of this program", f.path(deviceFile))
	case self.DeviceID == "":
		return record{}, fmt.Errorf("%s: %w", string(f), ErrNoDevice)
	}
	if _, ok := wire.ParseUUID([]byte(self.DeviceID)); !ok {
		return record{}, fmt.Errorf("the device id in %s is damaged", f.path(deviceFile))
	}
	return self, nil
}

// accessToken is a token until it expires, for one device at one relay.
type accessToken struct {
	Token     string    `json:"access_token"`
	ExpiresAt time.Time `json:"expires_at"`
	DeviceID  string    `json:"device_id"`
	Relay     string    `json:"relay"`
}

// access reads the kept token. Without one that fits, the device signs in.
func (f folder) access(d *Device) accessToken {
	var kept accessToken
	if f.read(accessFile, &kept) != nil || kept.DeviceID != d.self.DeviceID || kept.Relay != d.self.Relay {
		return accessToken{}
	}
	return kept
}

func (f folder) read(name string, into any) error {
	path := f.path(name)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := private(path, fileMode); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if json.Unmarshal(data, into) != nil {
		return fmt.Errorf("%s is damaged", path) // without what is in it
	}
	return nil
}

// write replaces a file: it is on disk before it has its name.
func (f folder) write(name string, value any) error {
	data, err := json.Marshal(value, jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path(name), err)
	}
	if err := f.replace(name, append(data, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", f.path(name), err)
	}
	return nil
}

func (f folder) replace(name string, data []byte) error {
	file, err := os.CreateTemp(string(f), "."+name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // where it has not been renamed
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(file.Name(), f.path(name)); err != nil {
		return err
	}
	return f.sync()
}

// sync makes the names in the folder last; not every system can.
func (f folder) sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(string(f))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
