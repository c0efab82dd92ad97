package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// guardSocket lets everything pass: whoever opened the socket is the operator.
func (a *API) guardSocket(r *http.Request, to *route) (*http.Request, error) {
	if to.access == forEverybody {
		return r, a.asNobody(r, to)
	}
	if tokenInURL(r) {
		return nil, unauthorized(to.access)
	}
	return a.asOperator(r, to)
}

// guardPublic asks for what the endpoint's access says. Who holds the operator's or
// the service token is known without a look-up, and is not counted.
func (a *API) guardPublic(r *http.Request, to *route) (*http.Request, error) {
	from := remoteAddress(r)
	if to.access == forEverybody {
		if err := a.limits.address(from); err != nil {
			return nil, err
		}
		return r, a.asNobody(r, to)
	}
	if tokenInURL(r) {
		return nil, a.limits.denied(from, unauthorized(to.access))
	}
	if to.access == forService {
		if err := a.authorizeService(r); err != nil {
			return nil, a.limits.denied(from, err)
		}
		return r, withoutTenant(r)
	}
	token, ok := bearer(r)
	if ok && a.isOperator(token) {
		return a.asOperator(r, to)
	}
	if err := a.limits.address(from); err != nil {
		return nil, err
	}
	if !ok || to.access == forOperator {
		return nil, a.limits.denied(from, unauthorized(to.access))
	}
	if to.access == forDevice {
		device, err := authenticate(a, r, from, token, to.access, a.cfg.Store.AuthenticateDevice)
		if err != nil {
			return nil, err
		}
		return withCaller(r, caller{tenant: device.Tenant, device: device, token: token}), withoutTenant(r)
	}
	identity, err := authenticate(a, r, from, token, to.access, a.cfg.Store.Authenticate)
	if err != nil {
		return nil, err
	}
	return a.asParticipant(r, identity, token)
}

// bearer reads the request's one token, in its one text form.
func bearer(r *http.Request) (store.TokenHash, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return store.TokenHash{}, false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	hash, ok := store.HashToken([]byte(token))
	return hash, ok && strings.EqualFold(scheme, "Bearer")
}

// tokenInURL reports a token in the query. It would be in somebody's log by now, so it
// must not be of use, and the request gets no access even if its header would do
// (FAULTS H05).
//
// It is looked for in the text, however that is divided: what net/url cannot read, a ";"
// for one, it leaves out. Only a message_id may look like a token, since senders choose
// them, as long as it is not the caller's own.
func tokenInURL(r *http.Request) bool {
	query := r.URL.RawQuery
	if query == "" {
		return false
	}
	if plain, err := url.QueryUnescape(query); err == nil {
		query = plain
	}
	own, _ := bearer(r)
	messageID := r.URL.Query().Get("message_id")
	for _, text := range strings.FieldsFunc(query, notOfToken) {
		if token, ok := store.HashToken([]byte(text)); ok && (text != messageID || token == own) {
			return true
		}
	}
	return false
}

// notOfToken reports a character that no token has.
func notOfToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// isOperator compares hashes, and in constant time, so nothing of the token shows.
func (a *API) isOperator(token store.TokenHash) bool {
	want := a.cfg.OperatorToken
	same := subtle.ConstantTimeCompare(token[:], want[:]) == 1
	return same && want != (store.TokenHash{})
}

// asOperator names the operator as the caller, and the tenant it acts in. Endpoints for the
// operator look the tenant up themselves, since some answer without a database.
func (a *API) asOperator(r *http.Request, to *route) (*http.Request, error) {
	if to.access == forService { // over the socket: its calls name their tenant themselves
		return withCaller(r, caller{operator: true}), withoutTenant(r)
	}
	name, err := namedTenant(r)
	if err != nil {
		return nil, err
	}
	who := caller{operator: true, tenantName: name}
	if to.access == forSession {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
		defer cancel()
		if who.tenant, err = a.tenantNamed(ctx, orDefault(name, store.DefaultTenantName)); err != nil {
			return nil, err
		}
	}
	return withCaller(r, who), nil
}

// asNobody is for endpoints that know no caller: what acts in a tenant finds it by what the
// body holds.
func (*API) asNobody(r *http.Request, to *route) error {
	if to.fixed() {
		return nil
	}
	return withoutTenant(r)
}

// authenticate looks the credential or access token up, each time anew: what was revoked
// gives no access from then on. One that was good before keeps its access while somebody
// else guesses from the same address.
func authenticate[T any](
	a *API, r *http.Request, from netip.Addr, token store.TokenHash, to access, lookUp func(context.Context, store.TokenHash) (T, error),
) (found T, err error) {
	known := a.limits.tokens.knows(token)
	spend := func() error { return a.limits.token(token) }
	before, after := func() error { return a.limits.mayTry(from) }, spend
	if known {
		before, after = spend, func() error { return nil }
	}
	if err := before(); err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()
	found, err = lookUp(ctx, token)
	if errors.Is(err, store.ErrUnauthenticated) {
		a.limits.tokens.forget(token)
		return found, a.limits.denied(from, unauthorized(to))
	}
	if err != nil {
		return found, err
	}
	return found, after()
}

// asParticipant names the credential's participant as the caller. It opens its own
// room, and any other does not exist for it.
func (*API) asParticipant(r *http.Request, identity store.Identity, token store.TokenHash) (*http.Request, error) {
	if err := withoutTenant(r); err != nil {
		return nil, err
	}
	room, err := pathID(r, "id")
	if err != nil {
		return nil, err
	}
	if room != identity.Room {
		return nil, store.ErrNotFound
	}
	if identity.Frozen {
		return nil, &wire.Error{Code: wire.Unavailable, Detail: "the network is frozen"}
	}
	return withCaller(r, caller{tenant: identity.Tenant, identity: identity, token: token}), nil
}

func withCaller(r *http.Request, who caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
}

// unauthorized is the same whatever is wrong with the token.
func unauthorized(to access) error {
	detail := "the operator token is needed: Authorization: Bearer"
	switch to {
	case forSession:
		detail = "a participant's credential is needed: Authorization: Bearer"
	case forDevice:
		detail = "a device's access token is needed: Authorization: Bearer"
	case forService:
		return errForbidden
	case forOperator, forEverybody:
	}
	return &wire.Error{Code: wire.Unauthorized, Detail: detail}
}
