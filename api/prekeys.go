package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// errOnlyDevice refuses the operator, who has no keys.
var errOnlyDevice = &wire.Error{Code: wire.Forbidden, Detail: "only a device may do this, with its access token"}

// publishPrekeys replaces the signed prekey and adds one-time prekeys. It may be repeated.
func (a *API) publishPrekeys(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if who.operator {
		return 0, nil, errOnlyDevice
	}
	done, err := a.senders.begin(who.device.ID) // checking 100 keys takes some milliseconds
	if err != nil {
		return 0, nil, err
	}
	defer done()
	var body NewPrekeys
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	signed, oneTime, err := body.read(&who.device)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	stock, err := a.cfg.Store.PublishPrekeys(op.ctx, op.tenant, who.device.ID, signed, oneTime)
	switch {
	case errors.Is(err, store.ErrInvalid):
		return 0, nil, malformed("one_time_prekeys must have distinct ids and distinct keys")
	case errors.Is(err, store.ErrConflict):
		return 0, nil, &wire.Error{Code: wire.Conflict, Detail: "an id is used with another key, a key is used under another id, signed_prekey is older than the one there is, " +
			"or the device would have more than " + strconv.Itoa(store.MaxPrekeys) + " one-time prekeys"}
	case err != nil:
		return 0, nil, err
	}
	return http.StatusOK, prekeyStockAnswer(stock), nil
}

// read checks the keys, which peers check again, and the signature, which must be the
// device's.
func (n *NewPrekeys) read(device *store.Device) (signed *store.SignedPrekey, oneTime []store.OneTimePrekey, err error) {
	if n.SignedPrekey == nil && len(n.OneTimePrekeys) == 0 {
		return nil, nil, malformed("signed_prekey or one_time_prekeys is missing")
	}
	if len(n.OneTimePrekeys) > store.MaxPrekeys {
		return nil, nil, malformed("one_time_prekeys must be at most " + strconv.Itoa(store.MaxPrekeys))
	}
	if n.SignedPrekey != nil {
		if signed, err = n.SignedPrekey.read(device); err != nil {
			return nil, nil, err
		}
	}
	for i := range n.OneTimePrekeys {
		given := &n.OneTimePrekeys[i]
		p := store.OneTimePrekey{}
		if p.ID, p.Key, err = readPrekey(given.ID, given.Key, "one_time_prekeys"); err != nil {
			return nil, nil, err
		}
		oneTime = append(oneTime, p)
	}
	return signed, oneTime, nil
}

func (p *SignedPrekey) read(device *store.Device) (*store.SignedPrekey, error) {
	var signed store.SignedPrekey
	var err error
	if signed.ID, signed.Key, err = readPrekey(p.ID, p.Key, "signed_prekey"); err != nil {
		return nil, err
	}
	if !readBytes(p.Signature, signed.Signature[:]) || device.Keys == nil ||
		!identity.VerifyPrekey(device.Keys.Identity, signed.ID, signed.Key, signed.Signature) {
		return nil, malformed("signature of signed_prekey is not the device's over this id and key")
	}
	return &signed, nil
}

// readPrekey takes a key that gives a secret, and no other (FAULTS BL-H10).
func readPrekey(id int64, text, member string) (uint32, [32]byte, error) {
	var key [32]byte
	switch {
	case id < 1 || id > store.MaxPrekeyID:
		return 0, key, malformed("id of " + member + " must be 1 to " + strconv.Itoa(store.MaxPrekeyID))
	case !readBytes(text, key[:]):
		return 0, key, malformed("key of " + member + " must be base64 of 32 bytes")
	case identity.CheckAgreement(key) != nil:
		return 0, key, malformed("key of " + member + " is no X25519 key: not canonical, or of small order")
	}
	return uint32(id), key, nil
}

func (a *API) showPrekeyStock(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if who.operator {
		return 0, nil, errOnlyDevice
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	stock, err := a.cfg.Store.PrekeyStock(op.ctx, op.tenant, who.device.ID)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, prekeyStockAnswer(stock), nil
}

func prekeyStockAnswer(stock store.PrekeyStock) PrekeyStock {
	return PrekeyStock{SignedPrekeyID: int64(stock.SignedID), LastPrekeyID: int64(stock.LastID), OneTimePrekeys: stock.OneTime}
}

// takePrekeyBundle hands out a one-time prekey, which is gone then, also where the answer
// is lost. It is never repeated.
func (a *API) takePrekeyBundle(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if who.operator {
		return 0, nil, errOnlyDevice
	}
	id, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	if err := a.limits.bundle(who.device.ID); err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	bundle, err := a.cfg.Store.TakePrekeyBundle(op.ctx, op.tenant, id, who.device.ID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil, &wire.Error{Code: wire.NotFound, Detail: "there is no such device in a room of yours, or it has published no signed prekey"}
	}
	if err != nil {
		return 0, nil, err
	}
	a.wakeOutbox() // a device that has few left is told
	return http.StatusOK, bundleAnswer(&bundle), nil
}

func bundleAnswer(b *store.PrekeyBundle) PrekeyBundle {
	text := base64.StdEncoding.EncodeToString
	keys := b.Device.Keys
	answer := PrekeyBundle{
		DeviceID: b.Device.ID.String(), Fingerprint: b.Device.Fingerprint,
		IdentityKey: text(keys.Identity[:]), AgreementKey: text(keys.Agreement[:]), AgreementSignature: text(keys.AgreementSignature[:]),
		SignedPrekey: SignedPrekey{ID: int64(b.Signed.ID), Key: text(b.Signed.Key[:]), Signature: text(b.Signed.Signature[:])},
	}
	if b.OneTime != nil {
		answer.OneTimePrekey = &OneTimePrekey{ID: int64(b.OneTime.ID), Key: text(b.OneTime.Key[:])}
	}
	return answer
}

func (a *API) prekeyRoutes() []route {
	noDevice := refusedAs{"forbidden", "The operator is no device."}
	return []route{
		{method: http.MethodPut, path: "/v1/devices/me/prekeys", access: forDevice, handler: a.publishPrekeys, doc: doc{
			tag: "devices", summary: "Publish prekeys", who: "the device itself, `APPROVED` or `ACTIVE`",
			description: "What others begin a session with while the device is offline (X3DH). A signed prekey replaces the one before; one-time " +
				"prekeys are added, up to 100 that are not handed out. Ids of both rise, and what is not above `last_prekey_id` was uploaded " +
				"before and is left out, so it may be repeated. Keep the private key of a signed prekey for a while after it was replaced.",
			request: NewPrekeys{}, status: http.StatusOK, answer: PrekeyStock{},
			example: NewPrekeys{
				SignedPrekey:   &SignedPrekey{ID: 1, Key: "{signed_prekey}", Signature: "{signed_prekey_signature}"},
				OneTimePrekeys: []OneTimePrekey{{ID: 1, Key: "{one_time_prekey}"}},
			},
			refusals: []refusedAs{
				noDevice,
				{"malformed_request", "A key is no X25519 key (not canonical, or of small order), the signature is not the device's, or an id or a key is there twice."},
				{"conflict", "An id is used with another key, a key under another id, the signed prekey is older than the one there is, or there would be more than 100 one-time prekeys."},
			},
		}},
		{method: http.MethodGet, path: "/v1/devices/me/prekeys", access: forDevice, handler: a.showPrekeyStock, doc: doc{
			tag: "devices", summary: "How many prekeys are left?", who: "the device itself",
			status: http.StatusOK, answer: PrekeyStock{}, refusals: []refusedAs{noDevice},
		}},
		{method: http.MethodGet, path: "/v1/devices/{id}/prekey-bundle", access: forDevice, handler: a.takePrekeyBundle, noHead: true, doc: doc{
			tag: "devices", summary: "Take a prekey bundle", who: "`ACTIVE` devices that share a room with the device",
			description: "Hands out the device's keys, its signed prekey and one one-time prekey, which nobody else gets: each request takes one, also " +
				"where its answer is lost. Without `one_time_prekey` all are handed out, and the session is begun without one (X3DH, section 3.3). The " +
				"device is told by the room event `prekeys_low` when fewer than 10 are left, and when none is.\n\nCheck what comes before it " +
				"is used: the fingerprint, both signatures, and each key. A device takes at most 60 at once, and then one a second. `HEAD` is refused.",
			status: http.StatusOK, answer: PrekeyBundle{},
			refusals: []refusedAs{
				noDevice,
				{"not_found", "The device is not `ACTIVE`, in no room of the caller's (an archived one does not count), the caller itself, or without a signed prekey."},
			},
		}},
	}
}
