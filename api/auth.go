package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// accessTTL is how long a device stays signed in.
const accessTTL = time.Hour

var errSignIn = &wire.Error{Code: wire.Unauthorized, Detail: "the device is not signed in: ask for a new nonce, and sign it with the identity key"}

// challenge gives a nonce to whoever asks, so that nobody learns which devices exist.
func (a *API) challenge(r *http.Request) (int, any, error) {
	var body NewChallenge
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	device, err := bodyID(body.DeviceID, "device_id")
	if err != nil {
		return 0, nil, err
	}
	if err := a.mayTry(r); err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	nonce, hash := store.NewToken()
	if err := a.cfg.Store.NewChallenge(op.ctx, op.tenant, device, hash); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Challenge{Nonce: nonce}, nil
}

// signIn gives an access token for a signed nonce. Whatever is wrong, the answer is the
// same one.
func (a *API) signIn(r *http.Request) (int, any, error) {
	var body NewAccessToken
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	if err := a.mayTry(r); err != nil {
		return 0, nil, err
	}
	s := body.read()
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	token, hash := store.NewToken()
	verified := false
	_, err = a.cfg.Store.SignIn(op.ctx, op.tenant, s.device, s.hash, hash, accessTTL, func(key [32]byte) bool {
		verified = true
		return identity.VerifySignIn(key, s.nonce, s.device, s.signature) && s.complete
	})
	if !verified { // no such device, or none that may: it takes as long
		identity.VerifySignIn(a.standIn.Identity, s.nonce, s.device, s.signature)
	}
	if errors.Is(err, store.ErrUnauthenticated) || refused(err) {
		return 0, nil, a.deniedSignIn(r)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, AccessToken{AccessToken: token, ExpiresIn: int(accessTTL / time.Second)}, nil
}

// mayTry and deniedSignIn count failures of an address, as of any token.
func (a *API) mayTry(r *http.Request) error {
	if from := remoteAddress(r); from.IsValid() {
		return a.limits.mayTry(from)
	}
	return nil
}

func (a *API) deniedSignIn(r *http.Request) error {
	if from := remoteAddress(r); from.IsValid() {
		return a.limits.denied(from, errSignIn)
	}
	return errSignIn
}

// signedNonce is a sign-in as read. What is not of the right form is replaced by what
// nobody has, and the store is asked all the same.
type signedNonce struct {
	complete  bool
	device    uuid.UUID
	nonce     [32]byte
	hash      store.TokenHash
	signature [64]byte
}

func (n *NewAccessToken) read() (s signedNonce) {
	device, goodID := wire.ParseUUID([]byte(n.DeviceID))
	if !goodID {
		device = uuid.New()
	}
	text := n.Nonce
	hash, goodNonce := store.HashToken([]byte(text))
	if !goodNonce {
		text, hash = store.NewToken()
	}
	s.device, s.hash = device, hash
	raw, _ := base64.RawURLEncoding.DecodeString(text) // HashToken has read it
	copy(s.nonce[:], raw)
	goodSignature := readBytes(n.Signature, s.signature[:])
	s.complete = goodID && goodNonce && goodSignature
	return s
}

func (a *API) authRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/auth/challenge", access: forEverybody, handler: a.challenge, doc: doc{
			tag: "auth", summary: "Get a nonce to sign in with", who: "everybody",
			description: "It is for this device, once, for 60 s. A device there is not gets one, too.",
			request:     NewChallenge{}, status: http.StatusOK, answer: Challenge{}, example: NewChallenge{DeviceID: "{device_id}"},
			refusals: []refusedAs{{"malformed_request", "The body is not one JSON object as described, or there is a query."}},
		}},
		{method: http.MethodPost, path: "/v1/auth/token", access: forEverybody, handler: a.signIn, doc: doc{
			tag: "auth", summary: "Sign in", who: "a device that is `APPROVED` or `ACTIVE`",
			description: "The signature is by the identity key over the nonce and the device's id (docs/api.md says how). The access token " +
				"is valid for an hour, or until the device is suspended or revoked.",
			request: NewAccessToken{}, status: http.StatusOK, answer: AccessToken{},
			example: NewAccessToken{DeviceID: "{device_id}", Nonce: "{nonce}", Signature: "{proof}"},
			refusals: []refusedAs{
				{"malformed_request", "The body is not one JSON object as described, or there is a query."},
				{string(wire.Unauthorized), "The nonce, the signature or the device is not as it should be."},
			},
		}},
	}
}
