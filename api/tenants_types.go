package api

import "time"

// NewTenant is the body of POST /v1/tenants.
type NewTenant struct {
	Name string `json:"name"` // 1 to 64 small letters, digits, dots, dashes and underscores, the first a letter or a digit
}

// Tenant is one of those who share the relay.
type Tenant struct {
	TenantID  string    `json:"tenant_id" schema:"uuid"`
	Name      string    `json:"name"`
	Frozen    bool      `json:"frozen"` // see PUT /v1/freeze
	CreatedAt time.Time `json:"created_at"`
}

// Tenants answers GET /v1/tenants.
type Tenants struct {
	Tenants    []Tenant `json:"tenants"`
	NextCursor string   `json:"next_cursor,omitzero"` // absent on the last page
}
