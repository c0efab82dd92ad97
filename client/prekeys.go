package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

const (
	prekeysPath = "/v1/devices/me/prekeys"
	// refillRounds bounds uploads of one refill: one that was under way, one that conflicts with
	// what the relay has, and the one that is missing.
	refillRounds = 3
)

// RefillPrekeys publishes prekeys until the relay has enough of them, and renews the signed
// prekey when it is a week old: what others begin direct conversations with while this device
// is offline. It may be repeated, after an error too, and called from several goroutines at
// once, which then are one (FAULTS J10). It is for when the device has been approved, for the
// room event prekeys_low, and for when the device was away.
//
// What is published is in the key store before. Where the answer is lost, the next call sends
// the same again.
func (d *Device) RefillPrekeys(ctx context.Context) error {
	for {
		run, mine := d.refills.join()
		if mine {
			err := d.refillPrekeys(ctx)
			d.refills.end(run, err, ctx.Err() != nil)
			return step("publish prekeys", err)
		}
		select {
		case <-run.ended:
		case <-ctx.Done():
			return step("publish prekeys", ctx.Err())
		}
		if !run.gaveUp {
			return step("publish prekeys", run.err)
		}
	}
}

// refills lets one refill run at a time. The zero value is ready.
type refills struct {
	mu      sync.Mutex // guards the following field
	running *refill
}

// refill is one that runs, or ran.
type refill struct {
	ended  chan struct{} // closed at its end, when the other fields are set
	err    error
	gaveUp bool // its caller did: somebody else has to do it
}

// join returns the refill that runs, or a new one, which is the caller's to run and to end.
func (r *refills) join() (run *refill, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, false
	}
	r.running = &refill{ended: make(chan struct{})}
	return r.running, true
}

func (r *refills) end(run *refill, err error, gaveUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run.err, run.gaveUp = err, gaveUp && err != nil
	r.running = nil
	close(run.ended)
}

func (d *Device) refillPrekeys(ctx context.Context) error {
	stock, err := d.prekeyStock(ctx)
	for range refillRounds {
		var made *encryption.PrekeyUpload
		if err == nil {
			made, err = d.makePrekeys(stock)
		}
		if err != nil || made == nil {
			return err
		}
		stock, err = d.uploadPrekeys(ctx, made)
		refused, ok := errors.AsType[*APIError](err)
		if !ok || refused.Status != http.StatusConflict && refused.Status != http.StatusBadRequest {
			continue // not known to be refused for good
		}
		if err := d.store.Update(encryption.PrekeysRefused); err != nil {
			return err
		}
		if refused.Status == http.StatusConflict { // an old copy of the store: the next ids are higher
			stock, err = d.prekeyStock(ctx)
		}
	}
	return err
}

func (d *Device) makePrekeys(stock encryption.PrekeyStock) (made *encryption.PrekeyUpload, err error) {
	err = d.store.Update(func(tx *keystore.Tx) error {
		made, err = encryption.MakePrekeys(tx, d.keys.identity, stock, d.clock.Now())
		return err
	})
	return made, err
}

// uploadPrekeys publishes prekeys and returns what the relay has then.
func (d *Device) uploadPrekeys(ctx context.Context, made *encryption.PrekeyUpload) (encryption.PrekeyStock, error) {
	var body newPrekeys
	if s := made.Signed; s != nil {
		body.Signed = &prekey{ID: int64(s.ID), Key: s.Key[:], Signature: s.Signature[:]}
	}
	for i := range made.OneTime {
		body.OneTime = append(body.OneTime, prekey{ID: int64(made.OneTime[i].ID), Key: made.OneTime[i].Key[:]})
	}
	var answer prekeyStock
	if err := d.call(ctx, request{method: http.MethodPut, path: prekeysPath, body: body, answer: &answer}); err != nil {
		return encryption.PrekeyStock{}, err
	}
	err := d.store.Update(func(tx *keystore.Tx) error { return encryption.PrekeysPublished(tx, d.clock.Now()) })
	if err != nil {
		return encryption.PrekeyStock{}, err
	}
	return answer.read()
}

func (d *Device) prekeyStock(ctx context.Context) (encryption.PrekeyStock, error) {
	var answer prekeyStock
	if err := d.call(ctx, request{method: http.MethodGet, path: prekeysPath, answer: &answer}); err != nil {
		return encryption.PrekeyStock{}, err
	}
	return answer.read()
}

// newPrekeys is the body of an upload.
type newPrekeys struct {
	Signed  *prekey  `json:"signed_prekey,omitzero"`
	OneTime []prekey `json:"one_time_prekeys,omitempty"`
}

// prekey is a signed prekey, or, without signature, a one-time prekey.
type prekey struct {
	ID        int64  `json:"id"`
	Key       []byte `json:"key"`
	Signature []byte `json:"signature,omitempty"`
}

// read demands sizes, and leaves everything else to ratchet.Bundle.Check.
func (p *prekey) read(signature int) (id uint32, key [32]byte, err error) {
	if p.ID < 0 || p.ID > math.MaxUint32 || len(p.Key) != len(key) || len(p.Signature) != signature {
		return 0, key, errAnswer
	}
	return uint32(p.ID), [32]byte(p.Key), nil
}

// prekeyStock is what the relay has of this device's prekeys.
type prekeyStock struct {
	SignedID int64 `json:"signed_prekey_id"`
	LastID   int64 `json:"last_prekey_id"`
	OneTime  int   `json:"one_time_prekeys"`
}

func (s *prekeyStock) read() (encryption.PrekeyStock, error) {
	if min(s.SignedID, s.LastID, int64(s.OneTime)) < 0 || max(s.SignedID, s.LastID) > math.MaxInt32 {
		return encryption.PrekeyStock{}, errAnswer
	}
	return encryption.PrekeyStock{SignedID: uint32(s.SignedID), LastID: uint32(s.LastID), OneTime: s.OneTime}, nil
}

// prekeyBundle is what the relay hands out of another device.
type prekeyBundle struct {
	DeviceID  string  `json:"device_id"`
	Identity  []byte  `json:"identity_key"`
	Agreement []byte  `json:"agreement_key"`
	Signature []byte  `json:"agreement_signature"`
	Signed    prekey  `json:"signed_prekey"`
	OneTime   *prekey `json:"one_time_prekey"`
}

// takeBundle takes the prekey bundle of a device, unchecked: each call uses up a one-time prekey.
// wire.NotFound: the device shares no room with this one, or has published nothing.
func (d *Device) takeBundle(ctx context.Context, device string) (ratchet.Bundle, error) {
	if err := checkIDs(device); err != nil {
		return ratchet.Bundle{}, fmt.Errorf("device %q: %w", device, err)
	}
	var answer prekeyBundle
	err := d.call(ctx, request{method: http.MethodGet, path: "/v1/devices/" + device + "/prekey-bundle", answer: &answer})
	if err != nil {
		return ratchet.Bundle{}, step("take a prekey bundle", err)
	}
	bundle, err := answer.read(device)
	return bundle, step("take a prekey bundle", err)
}

func (b *prekeyBundle) read(device string) (bundle ratchet.Bundle, err error) {
	var keys identity.Keys
	if b.DeviceID != device || len(b.Identity) != len(keys.Identity) || len(b.Agreement) != len(keys.Agreement) ||
		len(b.Signature) != len(keys.AgreementSignature) {
		return bundle, errAnswer
	}
	copy(keys.Identity[:], b.Identity)
	copy(keys.Agreement[:], b.Agreement)
	copy(keys.AgreementSignature[:], b.Signature)
	bundle.Keys = keys
	if bundle.Signed.ID, bundle.Signed.Key, err = b.Signed.read(len(bundle.Signed.Signature)); err != nil {
		return ratchet.Bundle{}, err
	}
	copy(bundle.Signed.Signature[:], b.Signed.Signature)
	if b.OneTime == nil {
		return bundle, nil
	}
	bundle.OneTime = &ratchet.OneTimePrekey{}
	if bundle.OneTime.ID, bundle.OneTime.Key, err = b.OneTime.read(0); err != nil {
		return ratchet.Bundle{}, err
	}
	return bundle, nil
}
