package api

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// tenantHeader is how the operator names the tenant that a call is for.
const tenantHeader = "Relay-Tenant"

// maxKnownTenants bounds what is remembered of tenants.
const maxKnownTenants = 1024

var errForeignHeader = malformed(tenantHeader + " is the operator's: other callers act in their own tenant")

// remembered is what never changes of tenants, as the store answered. Of more than
// maxKnownTenants it forgets, and asks again.
type remembered[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]V
}

func (c *remembered[K, V]) get(ctx context.Context, key K, ask func(context.Context, K) (V, error)) (V, error) {
	c.mu.Lock()
	value, ok := c.known[key]
	c.mu.Unlock()
	if ok {
		return value, nil
	}
	value, err := ask(ctx, key)
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxKnownTenants {
		c.known = make(map[K]V)
	}
	c.known[key] = value
	return value, nil
}

// defaultTenant asks the store once.
func (a *API) defaultTenant(ctx context.Context) (uuid.UUID, error) {
	return a.tenantNamed(ctx, store.DefaultTenantName)
}

// NoSuchTenant is the detail of the not_found that answers a header Relay-Tenant with the name of
// no tenant.
const NoSuchTenant = "there is no tenant of the name in " + tenantHeader

// tenantNamed finds a tenant, and makes none but the default one.
func (a *API) tenantNamed(ctx context.Context, name string) (uuid.UUID, error) {
	id, err := a.tenants.get(ctx, name, func(ctx context.Context, name string) (uuid.UUID, error) {
		if name == store.DefaultTenantName {
			return a.cfg.Store.DefaultTenant(ctx)
		}
		found, err := a.cfg.Store.TenantByName(ctx, name)
		return found.ID, err
	})
	if errors.Is(err, store.ErrNotFound) {
		return uuid.Nil, &wire.Error{Code: wire.NotFound, Detail: NoSuchTenant}
	}
	return id, err
}

// namedTenant reads the header that only the operator may send; without it the name is
// empty.
func namedTenant(r *http.Request) (string, error) {
	values := r.Header.Values(tenantHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !store.ValidTenantName(values[0]) {
		return "", malformed(tenantHeader + " must be there once, with " + tenantNameForm + ", or not at all")
	}
	return values[0], nil
}

const tenantNameForm = "a name of 1 to 64 small letters, digits, dots, dashes and underscores that begins with a letter or a digit"

// withoutTenant refuses the header where its sender is not the operator.
func withoutTenant(r *http.Request) error {
	if len(r.Header.Values(tenantHeader)) > 0 {
		return errForeignHeader
	}
	return nil
}

func (a *API) createTenant(r *http.Request) (int, any, error) {
	var body NewTenant
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	if !store.ValidTenantName(body.Name) {
		return 0, nil, malformed("name must be " + tenantNameForm)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), a.cfg.RequestTimeout)
	defer cancel()
	made, err := a.cfg.Store.CreateTenant(ctx, body.Name)
	if errors.Is(err, store.ErrConflict) {
		return 0, nil, &wire.Error{Code: wire.Conflict, Detail: "there is a tenant of that name"}
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, tenantAnswer(made), nil
}

func (a *API) listTenants(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor")
	if err != nil {
		return 0, nil, err
	}
	limit := defaultRows
	if text, given := query["limit"]; given {
		if limit, err = readLimit(text); err != nil {
			return 0, nil, err
		}
	}
	after := query["cursor"]
	if after != "" && !store.ValidTenantName(after) {
		return 0, nil, malformed("cursor is not one that this list has handed out")
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()
	tenants, more, err := a.cfg.Store.TenantPage(ctx, after, limit)
	if err != nil {
		return 0, nil, err
	}
	answer := Tenants{Tenants: make([]Tenant, 0, len(tenants))}
	for _, tenant := range tenants {
		answer.Tenants = append(answer.Tenants, tenantAnswer(tenant))
	}
	if more && len(tenants) > 0 {
		answer.NextCursor = tenants[len(tenants)-1].Name
	}
	return http.StatusOK, answer, nil
}

func tenantAnswer(t store.Tenant) Tenant {
	return Tenant{TenantID: t.ID.String(), Name: t.Name, Frozen: t.Frozen, CreatedAt: t.CreatedAt.UTC()}
}

func (a *API) tenantRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/tenants", access: forOperator, handler: a.createTenant, doc: doc{
			tag:     "tenants",
			summary: "Make a tenant",
			description: "It is empty, and for ever: a tenant never ends and keeps its name. Invites that the operator makes with its " +
				"name in `Relay-Tenant` bring its first devices in.",
			request: NewTenant{}, status: http.StatusCreated, answer: Tenant{},
			example: NewTenant{Name: "example"},
			refusals: []refusedAs{
				{"malformed_request", "The name is none: 1 to 64 small letters, digits, dots, dashes and underscores, of which the first is a letter or a digit."},
				{"conflict", "There is a tenant of that name."},
			},
		}},
		{method: http.MethodGet, path: "/v1/tenants", access: forOperator, handler: a.listTenants, doc: doc{
			tag: "tenants", summary: "List the tenants", description: "By name.",
			query: pageParameters(), status: http.StatusOK, answer: Tenants{},
		}},
	}
}

// tenantParameter describes the header of the endpoints that act in a tenant and that the
// operator may call.
func (r *route) tenantParameter() []parameter {
	if r.access == forEverybody || r.access == forService || r.doc.tag == "tenants" {
		return nil
	}
	return []parameter{{tenantHeader, "The tenant that the operator acts in, by name; `default` where there is none. Only the operator may send it.", ""}}
}
