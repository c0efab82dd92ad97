package encryption

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

// Numbers and ages of a device's prekeys.
const (
	MaxPrekeyUpload = 100 // one-time prekeys that wait at the relay, and in one upload
	refillBelow     = MaxPrekeyUpload / 2

	signedPrekeyLife = 7 * 24 * time.Hour // then there is a new one
	// A first message may wait in an inbox for 24 hours, and its owner may have taken the
	// bundle some time before.
	signedPrekeyGrace = 48 * time.Hour
	maxSignedPrekeys  = 8

	// One-time prekeys are handed out in the order of their ids. Whoever took one may never write:
	// the oldest private keys go first.
	maxOneTimePrekeys = 1000
	maxPrekeyID       = 1<<31 - 1
	// maxPrekeysAhead is how far above all ids that the store knows of the relay may be: a store that
	// is an old copy has not made the newest ones. A higher one is not believed, as it would leave no
	// ids.
	maxPrekeysAhead = 1 << 20
)

// ErrPrekeys says that this device has no id left for a prekey.
var ErrPrekeys = errors.New("there is no id left for another prekey")

// PrekeyStock is what the relay has of this device's prekeys.
type PrekeyStock struct {
	SignedID uint32 // 0: none
	LastID   uint32 // highest id of a one-time prekey that was ever uploaded
	OneTime  int    // how many are not handed out
}

// PrekeyUpload is what is published, in one request. It has one of its parts, or both.
type PrekeyUpload struct {
	Signed  *ratchet.SignedPrekey
	OneTime []ratchet.OneTimePrekey
}

// Where prekeys are, in their bucket: under their ids in ten digits, and what is being
// published.
const (
	signedPrekeys  = "signed/"
	oneTimePrekeys = "one-time/"
	uploadKey      = "upload"
)

// lastOneTimeKey, in the bucket Device, is the highest id of a one-time prekey that was made: all of
// them may be used up.
const lastOneTimeKey = "last-one-time-prekey"

func prekeyKey(prefix string, id uint32) string { return fmt.Sprintf("%s%010d", prefix, id) }

// prekeyID is the id that a key ends in; 0 for none.
func prekeyID(prefix, key string) uint32 {
	id, err := strconv.ParseUint(strings.TrimPrefix(key, prefix), 10, 31)
	if err != nil {
		return 0
	}
	return uint32(id)
}

// storedPrekeys are the private keys for ratchet.Sessions.Open.
type storedPrekeys struct{ tx *keystore.Tx }

// SignedPrekey is the present one, or one of before that is still kept.
func (p storedPrekeys) SignedPrekey(id uint32) ([32]byte, bool) {
	s, ok := readSigned(p.tx, id)
	return s.private, ok
}

// OneTimePrekey is one that no session was begun with.
func (p storedPrekeys) OneTimePrekey(id uint32) ([32]byte, bool) {
	stored := p.tx.Get(keystore.Prekeys, prekeyKey(oneTimePrekeys, id))
	if len(stored) != 32 {
		return [32]byte{}, false
	}
	return [32]byte(stored), true
}

// deleteOneTimePrekey deletes a private key in the Update that saves what it opened
// (FAULTS J02).
func deleteOneTimePrekey(tx *keystore.Tx, id uint32) error {
	return tx.Delete(keystore.Prekeys, prekeyKey(oneTimePrekeys, id))
}

// signedPrekey is stored as created(8) replaced(8) private(32), in Unix milliseconds.
type signedPrekey struct {
	id       uint32
	created  time.Time
	replaced time.Time // when the one after it was published; zero: it was not
	private  [32]byte
}

func readSigned(tx *keystore.Tx, id uint32) (s signedPrekey, ok bool) {
	stored := tx.Get(keystore.Prekeys, prekeyKey(signedPrekeys, id))
	if len(stored) != 48 {
		return s, false
	}
	s = signedPrekey{id: id, created: time.UnixMilli(int64(binary.BigEndian.Uint64(stored))), private: [32]byte(stored[16:])}
	if replaced := binary.BigEndian.Uint64(stored[8:]); replaced != 0 {
		s.replaced = time.UnixMilli(int64(replaced))
	}
	return s, true
}

func (s *signedPrekey) save(tx *keystore.Tx) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.created.UnixMilli()))
	replaced := uint64(0)
	if !s.replaced.IsZero() {
		replaced = uint64(s.replaced.UnixMilli())
	}
	b = binary.BigEndian.AppendUint64(b, replaced)
	return tx.Put(keystore.Prekeys, prekeyKey(signedPrekeys, s.id), append(b, s.private[:]...))
}

// allSigned are the signed prekeys that are kept, the oldest first.
func allSigned(tx *keystore.Tx) (all []signedPrekey) {
	for key := range tx.All(keystore.Prekeys, signedPrekeys) {
		if s, ok := readSigned(tx, prekeyID(signedPrekeys, key)); ok {
			all = append(all, s)
		}
	}
	return all
}

// old reports whether a signed prekey is to be replaced. One from the future was made when the
// clock was wrong.
func (s *signedPrekey) old(now time.Time) bool {
	age := now.Sub(s.created)
	return age >= signedPrekeyLife || age < -signedPrekeyLife
}

func oneTimeIDs(tx *keystore.Tx) (ids []uint32) {
	for key := range tx.All(keystore.Prekeys, oneTimePrekeys) {
		if id := prekeyID(oneTimePrekeys, key); id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func lastOneTime(tx *keystore.Tx) uint32 {
	stored := tx.Get(keystore.Device, lastOneTimeKey)
	if len(stored) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(stored)
}

// upload is what is being published, stored as signed prekey's id(4), 0 for none, first
// one-time prekey's id(4) and their number(4).
type upload struct{ signed, first, count uint32 }

func readUpload(tx *keystore.Tx) (u upload, ok bool) {
	stored := tx.Get(keystore.Prekeys, uploadKey)
	if len(stored) != 12 {
		return u, false
	}
	return upload{binary.BigEndian.Uint32(stored), binary.BigEndian.Uint32(stored[4:]), binary.BigEndian.Uint32(stored[8:])}, true
}

func (u *upload) save(tx *keystore.Tx) error {
	b := binary.BigEndian.AppendUint32(nil, u.signed)
	b = binary.BigEndian.AppendUint32(b, u.first)
	return tx.Put(keystore.Prekeys, uploadKey, binary.BigEndian.AppendUint32(b, u.count))
}

// MakePrekeys returns what is to be published, nil for nothing: a signed prekey where the relay
// has none of this device or its own is a week old, and one-time prekeys up to MaxPrekeyUpload
// where less than half of that wait. stock is what the relay answered just now.
//
// The private keys are saved in this Update, before anything of them is published. Until
// PrekeysPublished or PrekeysRefused says what became of it, the same is returned again: the answer
// may have been lost (FAULTS J10). Ids rise above all that the store or the relay ever had, so
// that an old copy of the store uses none twice.
func MakePrekeys(tx *keystore.Tx, signer ed25519.PrivateKey, stock PrekeyStock, now time.Time) (*PrekeyUpload, error) {
	if err := expireSigned(tx, now); err != nil {
		return nil, err
	}
	if u, pending := readUpload(tx); pending {
		made, err := u.public(tx, signer)
		if err != nil || !made.empty() {
			return made, err
		}
	}
	u, err := makeUpload(tx, stock, now)
	if err != nil || u == (upload{}) {
		return nil, err
	}
	if err := u.save(tx); err != nil {
		return nil, err
	}
	return u.public(tx, signer)
}

func (u *PrekeyUpload) empty() bool { return u.Signed == nil && len(u.OneTime) == 0 }

// makeUpload makes what is missing.
func makeUpload(tx *keystore.Tx, stock PrekeyStock, now time.Time) (u upload, err error) {
	if u.signed, err = makeSigned(tx, stock.SignedID, now); err != nil {
		return upload{}, err
	}
	if stock.OneTime < refillBelow {
		u.first, u.count, err = makeOneTime(tx, stock.LastID, MaxPrekeyUpload-max(0, stock.OneTime))
	}
	return u, err
}

// makeSigned makes a signed prekey where there has to be another one, and returns its id.
func makeSigned(tx *keystore.Tx, published uint32, now time.Time) (id uint32, err error) {
	all := allSigned(tx)
	var newest signedPrekey
	if len(all) > 0 {
		newest = all[len(all)-1]
	}
	if newest.id != 0 && newest.id == published && !newest.old(now) {
		return 0, nil
	}
	switch {
	case max(newest.id, published) >= maxPrekeyID:
		return 0, ErrPrekeys
	case published > newest.id+maxPrekeysAhead:
		return 0, fmt.Errorf("signed prekey %d, after %d: %w", published, newest.id, keystore.ErrImplausible)
	}
	made := signedPrekey{id: max(newest.id, published) + 1, created: now}
	if made.private, err = newPrivateKey(); err != nil {
		return 0, err
	}
	for len(all) >= maxSignedPrekeys {
		if err := tx.Delete(keystore.Prekeys, prekeyKey(signedPrekeys, all[0].id)); err != nil {
			return 0, err
		}
		all = all[1:]
	}
	return made.id, made.save(tx)
}

// makeOneTime makes one-time prekeys, and returns the first one's id and their number.
func makeOneTime(tx *keystore.Tx, last uint32, count int) (first, made uint32, err error) {
	ids, known := oneTimeIDs(tx), lastOneTime(tx)
	if len(ids) > 0 {
		known = max(known, ids[len(ids)-1])
	}
	switch last = max(last, known); {
	case count > maxPrekeyID-int(last):
		return 0, 0, ErrPrekeys
	case last > known+maxPrekeysAhead:
		return 0, 0, fmt.Errorf("one-time prekey %d, after %d: %w", last, known, keystore.ErrImplausible)
	}
	first = last + 1
	for range count {
		last++
		private, err := newPrivateKey()
		if err != nil {
			return 0, 0, err
		}
		if err := tx.Put(keystore.Prekeys, prekeyKey(oneTimePrekeys, last), private[:]); err != nil {
			return 0, 0, err
		}
	}
	if err := tx.Put(keystore.Device, lastOneTimeKey, binary.BigEndian.AppendUint32(nil, last)); err != nil {
		return 0, 0, err
	}
	for _, id := range ids[:max(0, len(ids)+count-maxOneTimePrekeys)] {
		if err := deleteOneTimePrekey(tx, id); err != nil {
			return 0, 0, err
		}
	}
	return first, uint32(count), nil
}

// public are the public keys. They follow from the private ones, as the signature does, so that
// they are the same each time. A one-time prekey that was used meanwhile has been published.
func (u *upload) public(tx *keystore.Tx, signer ed25519.PrivateKey) (*PrekeyUpload, error) {
	made := &PrekeyUpload{}
	if u.signed != 0 {
		s, ok := readSigned(tx, u.signed)
		if !ok {
			return nil, fmt.Errorf("signed prekey: %w", ErrState)
		}
		key, err := publicKey(s.private)
		if err != nil {
			return nil, err
		}
		made.Signed = &ratchet.SignedPrekey{ID: u.signed, Key: key, Signature: identity.SignPrekey(signer, u.signed, key)}
	}
	for id := u.first; id-u.first < min(u.count, MaxPrekeyUpload); id++ {
		private, ok := storedPrekeys{tx}.OneTimePrekey(id)
		if !ok {
			continue
		}
		key, err := publicKey(private)
		if err != nil {
			return nil, err
		}
		made.OneTime = append(made.OneTime, ratchet.OneTimePrekey{ID: id, Key: key})
	}
	return made, nil
}

// PrekeysPublished says that the relay took what MakePrekeys returned. The signed prekeys before
// a new one are kept for first messages that are under way, for their grace time.
func PrekeysPublished(tx *keystore.Tx, now time.Time) error {
	u, pending := readUpload(tx)
	if !pending {
		return nil
	}
	if u.signed != 0 {
		if err := replaceSigned(tx, u.signed, now); err != nil {
			return err
		}
	}
	return tx.Delete(keystore.Prekeys, uploadKey)
}

// PrekeysRefused says that the relay will not take what MakePrekeys returned, as it conflicts with
// what it has (a store that is an old copy). Parts of it may be published: the private keys
// are kept, and the next ones have higher ids.
func PrekeysRefused(tx *keystore.Tx) error { return tx.Delete(keystore.Prekeys, uploadKey) }

// replaceSigned notes that the one with this id took the place of those before it.
func replaceSigned(tx *keystore.Tx, present uint32, now time.Time) error {
	for _, s := range allSigned(tx) {
		if s.id >= present || !s.replaced.IsZero() {
			continue
		}
		s.replaced = now
		if err := s.save(tx); err != nil {
			return err
		}
	}
	return nil
}

// expireSigned deletes the signed prekeys whose grace time is over.
func expireSigned(tx *keystore.Tx, now time.Time) error {
	for _, s := range allSigned(tx) {
		if s.replaced.IsZero() || now.Sub(s.replaced) < signedPrekeyGrace {
			continue
		}
		if err := tx.Delete(keystore.Prekeys, prekeyKey(signedPrekeys, s.id)); err != nil {
			return err
		}
	}
	return nil
}

func newPrivateKey() (key [32]byte, err error) {
	made, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return key, err
	}
	copy(key[:], made.Bytes())
	return key, nil
}

func publicKey(private [32]byte) (public [32]byte, err error) {
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return public, err
	}
	copy(public[:], key.PublicKey().Bytes())
	return public, nil
}
