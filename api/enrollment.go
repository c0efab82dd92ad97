package api

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// errEnrollment is the one refusal of an enrollment (STATE, "Failure cases"; FAULTS H04).
var errEnrollment = &wire.Error{Code: wire.EnrollmentRefused, Detail: "the device is not enrolled: ask for a new invite"}

func (a *API) createInvite(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if !who.admin() {
		return 0, nil, errNoAdmin
	}
	var body NewInvite
	if err := decodeGiven(r, &body); err != nil {
		return 0, nil, err
	}
	invite, err := body.read()
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	invite.CreatedBy = who.device.ID
	made, token, err := op.invite(invite)
	if errors.Is(err, store.ErrConflict) {
		return 0, nil, &wire.Error{Code: wire.Conflict, Detail: "too many invites can be used right now: revoke some, or wait until they expire"}
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, inviteAnswer(made, token), nil
}

// invite makes a token, stores its hash, and is the only place that shows the token.
func (op *operation) invite(invite store.NewInvite) (made store.Invite, token string, err error) {
	token, invite.Token = store.NewToken()
	invite.Tenant = op.tenant
	made, err = op.api.cfg.Store.CreateInvite(op.ctx, invite)
	return made, token, err
}

func (n *NewInvite) read() (store.NewInvite, error) {
	usual := store.DeviceAgent
	if n.Admin {
		usual = store.DeviceHuman
	}
	invite := store.NewInvite{Kind: store.DeviceKind(orDefault(n.Kind, string(usual))), Admin: n.Admin, TTL: store.MaxInviteTTL}
	if !knownKind(invite.Kind) {
		return invite, malformed("kind must be agent or human")
	}
	if n.TTLSeconds != nil {
		if *n.TTLSeconds < 1 || *n.TTLSeconds > int64(store.MaxInviteTTL/time.Second) {
			return invite, malformed("ttl_seconds must be 1 to 600 (10 minutes)")
		}
		invite.TTL = time.Duration(*n.TTLSeconds) * time.Second
	}
	return invite, nil
}

// knownKind reports one of the kinds of devices.
func knownKind(kind store.DeviceKind) bool {
	return kind == store.DeviceAgent || kind == store.DeviceHuman
}

func (a *API) revokeInvite(r *http.Request) (int, any, error) {
	if !callerOf(r.Context()).admin() {
		return 0, nil, errNoAdmin
	}
	id, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	switch err := a.cfg.Store.RevokeInvite(op.ctx, op.tenant, id); {
	case errors.Is(err, store.ErrNotFound):
		return 0, nil, &wire.Error{Code: wire.NotFound, Detail: "there is no such invite"}
	case errors.Is(err, store.ErrConflict):
		return 0, nil, &wire.Error{Code: wire.Conflict, Detail: "a device has enrolled with it: suspend or revoke the device"}
	case err != nil:
		return 0, nil, err
	}
	return http.StatusOK, RevokedInvite{InviteID: id.String()}, nil
}

// enroll makes a device of an invite and keys. Whatever is wrong, the answer is the same,
// and so is the work: one check of keys, one of a proof, one request to the store
// (FAULTS H04).
func (a *API) enroll(r *http.Request) (int, any, error) {
	if err := a.limitEnrollment(r); err != nil {
		return 0, nil, err
	}
	var body NewEnrollment
	wellFormed := decode(r, &body) == nil
	s := body.read()
	proved := a.proved(&s)
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	switch {
	case !proved:
		return 0, nil, op.enrollmentFailed(s.hash)
	case !wellFormed || !s.complete: // not the fault of a proof, and not counted as one
		_, nobodys := store.NewToken()
		return 0, nil, op.enrollmentFailed(nobodys)
	}
	made, err := a.cfg.Store.Enroll(op.ctx, store.Enrollment{
		Token: s.hash, Kind: store.DeviceKind(body.Kind), Label: body.Label, Keys: store.DeviceKeys(s.keys), Fingerprint: s.keys.Fingerprint(),
	})
	if errors.Is(err, store.ErrUnauthenticated) || errors.Is(err, store.ErrForbidden) || refused(err) {
		return 0, nil, errEnrollment
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, Enrolled{DeviceID: made.ID.String(), State: string(made.State), Fingerprint: made.Fingerprint}, nil
}

// proved checks keys and proof. In place of keys that are not accepted come others, so
// that a signature is verified all the same.
func (a *API) proved(s *submission) bool {
	keys, accepted := s.keys, s.keys.Check() == nil
	if !accepted {
		keys = a.standIn
	}
	return identity.VerifyEnrollment(s.token, &keys, s.proof) && accepted
}

func (op *operation) enrollmentFailed(token store.TokenHash) error {
	if err := op.api.cfg.Store.ProofFailed(op.ctx, token); err != nil && !refused(err) && !errors.Is(err, store.ErrUnauthenticated) {
		return err
	}
	return errEnrollment
}

// limitEnrollment bounds what one address may try; the operator's socket is not bound.
func (a *API) limitEnrollment(r *http.Request) error {
	from := remoteAddress(r)
	if !from.IsValid() {
		return nil // a unix socket
	}
	return a.limits.mayEnroll(from)
}

// submission is an enrollment as read. Where the body has no token of the right form, one
// that nobody has takes its place, so that the same is asked of the store.
type submission struct {
	complete bool // every member is what it should be
	token    [32]byte
	hash     store.TokenHash
	keys     identity.Keys
	proof    [64]byte
}

func (n *NewEnrollment) read() (s submission) {
	text := []byte(n.Token)
	hash, ok := store.HashToken(text)
	if !ok {
		var nobodys string
		nobodys, hash = store.NewToken()
		text = []byte(nobodys)
	}
	s.hash = hash
	raw, _ := base64.RawURLEncoding.DecodeString(string(text)) // HashToken has read it
	copy(s.token[:], raw)
	parts := []bool{
		ok,
		readBytes(n.IdentityKey, s.keys.Identity[:]),
		readBytes(n.AgreementKey, s.keys.Agreement[:]),
		readBytes(n.AgreementSignature, s.keys.AgreementSignature[:]),
		readBytes(n.Proof, s.proof[:]),
		knownKind(store.DeviceKind(n.Kind)),
		goodLabel(n.Label),
	}
	s.complete = true
	for _, good := range parts {
		s.complete = s.complete && good
	}
	return s
}

// readBytes reads base64 of exactly so many bytes.
func readBytes(text string, into []byte) bool {
	data, ok := decodeBase64(text)
	if !ok || len(data) != len(into) {
		return false
	}
	copy(into, data)
	return true
}

// joiner holds emoji of several characters together.
const joiner = '\u200d'

// goodLabel takes what people can read on one line: no control characters, and something.
func goodLabel(label string) bool {
	if label == "" || utf8.RuneCountInString(label) > store.MaxDeviceLabel {
		return false
	}
	for _, c := range label {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) && c != joiner || c == '\u2028' || c == '\u2029' {
			return false
		}
	}
	return true
}

// OwnerInvite makes the invite of the first admin. It reports false where the tenant has an
// admin already.
func (a *API) OwnerInvite(ctx context.Context) (invite Invite, made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	tenant, err := a.defaultTenant(ctx)
	if err != nil {
		return Invite{}, false, err
	}
	if has, err := a.cfg.Store.HasAdmin(ctx, tenant); has || err != nil {
		return Invite{}, false, err
	}
	op := &operation{api: a, tenant: tenant, ctx: ctx}
	stored, token, err := op.invite(store.NewInvite{Kind: store.DeviceHuman, Admin: true, TTL: store.MaxInviteTTL})
	if err != nil {
		return Invite{}, false, err
	}
	return inviteAnswer(stored, token), true, nil
}

func inviteAnswer(made store.Invite, token string) Invite {
	return Invite{
		InviteID: made.ID.String(), Token: token, Kind: string(made.Kind), Admin: made.Admin, ExpiresAt: made.ExpiresAt.UTC(),
	}
}

// newStandIn makes keys that are accepted and that nobody has.
func newStandIn() (keys identity.Keys) {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // crypto/rand does not fail
	agreement, _ := ecdh.X25519().GenerateKey(rand.Reader)
	copy(keys.Identity[:], public)
	copy(keys.Agreement[:], agreement.PublicKey().Bytes())
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	return keys
}

var noAdminAsks = refusedAs{"forbidden", "Neither an `ACTIVE` admin device nor the operator asks."}

func (a *API) enrollmentRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/invites", access: forDevice, handler: a.createInvite, doc: doc{
			tag:     "enrollment",
			summary: "Make an invite",
			who:     forAdmins,
			description: "One device enrolls with it, within 10 minutes. Its token is shown in this answer and never again; the server " +
				"keeps its hash. A device with an invite of `admin` is an admin, and `APPROVED` at once.",
			request: NewInvite{}, status: http.StatusCreated, answer: Invite{},
			example:  NewInvite{Kind: "agent"},
			refusals: []refusedAs{noAdminAsks, {"conflict", "There are 100 invites that can be used."}},
		}},
		{method: http.MethodDelete, path: "/v1/invites/{id}", access: forDevice, handler: a.revokeInvite, doc: doc{
			tag:         "enrollment",
			summary:     "Revoke an invite",
			who:         forAdmins,
			description: "After the answer nobody enrolls with it. It may be repeated.",
			status:      http.StatusOK, answer: RevokedInvite{},
			refusals: []refusedAs{noAdminAsks, {"conflict", "A device has enrolled with it."}},
		}},
		{method: http.MethodPost, path: "/v1/enroll", access: forEverybody, handler: a.enroll, doc: doc{
			tag:     "enrollment",
			summary: "Enroll a device",
			who:     "everybody with an invite",
			description: "With the invite's token, the public keys of the device, and the proof that it has the private one " +
				"(docs/api.md says what is signed). The device is `PENDING` until an admin has approved it.\n\nWhatever is wrong, the " +
				"refusal is the same one, and the invite stays as it was; ten wrong proofs revoke it.",
			request: NewEnrollment{}, status: http.StatusCreated, answer: Enrolled{},
			example: NewEnrollment{
				Token: "{invite_token}", IdentityKey: "{identity_key}", AgreementKey: "{agreement_key}",
				AgreementSignature: "{agreement_signature}", Kind: "agent", Label: "build server", Proof: "{proof}",
			},
			refusals: []refusedAs{
				{string(wire.EnrollmentRefused), "The token is unknown, used, expired or revoked, or for another kind of device; or a key, the proof or the body is not as it should be."},
				{"malformed_request", "There is a query."},
			},
		}},
	}
}
