package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// guardSocket lets everything pass: whoever opened the socket is the operator.
func (a *API) guardSocket(r *http.Request, to *route) (*http.Request, error) {
	if to.access == forEverybody {
		return r, nil
	}
	if tokenInURL(r) {
		return nil, unauthorized(to.access)
	}
	return a.asOperator(r, to)
}

// guardPublic asks for what the endpoint's access says.
func (a *API) guardPublic(r *http.Request, to *route) (*http.Request, error) {
	if to.access == forEverybody {
		return r, nil
	}
	if tokenInURL(r) {
		return nil, unauthorized(to.access)
	}
	if to.access == forService {
		return r, a.authorizeService(r)
	}
	token, ok := bearer(r)
	if !ok {
		return nil, unauthorized(to.access)
	}
	if a.isOperator(token) {
		return a.asOperator(r, to)
	}
	if to.access != forSession {
		return nil, unauthorized(to.access)
	}
	return a.asParticipant(r, to, token)
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
func tokenInURL(r *http.Request) bool {
	if r.URL.RawQuery == "" {
		return false
	}
	for name, values := range r.URL.Query() {
		for _, value := range append(values, name) {
			if _, ok := store.HashToken([]byte(value)); ok {
				return true
			}
		}
	}
	return false
}

// isOperator compares hashes, and in constant time, so nothing of the token shows.
func (a *API) isOperator(token store.TokenHash) bool {
	want := a.cfg.OperatorToken
	same := subtle.ConstantTimeCompare(token[:], want[:]) == 1
	return same && want != (store.TokenHash{})
}

// asOperator names the operator as the caller. Endpoints for the operator find the
// tenant themselves, since some answer without a database.
func (a *API) asOperator(r *http.Request, to *route) (*http.Request, error) {
	who := caller{operator: true}
	if to.access == forSession {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
		defer cancel()
		tenant, err := a.defaultTenant(ctx)
		if err != nil {
			return nil, err
		}
		who.tenant = tenant
	}
	return withCaller(r, who), nil
}

// asParticipant looks the credential up, each time anew: what was revoked gives no
// access from then on. It opens its own room, and any other does not exist for it.
func (a *API) asParticipant(r *http.Request, to *route, token store.TokenHash) (*http.Request, error) {
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()
	identity, err := a.cfg.Store.Authenticate(ctx, token)
	if errors.Is(err, store.ErrUnauthenticated) {
		return nil, unauthorized(to.access)
	}
	if err != nil {
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
	return withCaller(r, caller{tenant: identity.Tenant, identity: identity}), nil
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
	case forService:
		detail = "the service token is needed: Authorization: Bearer"
	case forOperator, forEverybody:
	}
	return &wire.Error{Code: wire.Unauthorized, Detail: detail}
}
