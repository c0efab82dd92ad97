package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// MaxTenantName bounds the name of a tenant, in bytes.
const MaxTenantName = 64

// DefaultTenantName is the tenant that operators act in where they name none.
const DefaultTenantName = "default"

// Tenant is one of those who share a relay: nobody sees devices, rooms or anything else of
// another one.
type Tenant struct {
	ID        uuid.UUID
	Name      string
	Frozen    bool
	CreatedAt time.Time
}

// ValidTenantName reports 1 to MaxTenantName small letters of ASCII, digits, dots, dashes
// and underscores, of which the first is a letter or a digit.
func ValidTenantName(name string) bool {
	if name == "" || len(name) > MaxTenantName {
		return false
	}
	for i, c := range []byte(name) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// Tenants keeps which tenants there are. A tenant never ends, and keeps its name.
type Tenants interface {
	// CreateTenant: ErrInvalid for what is no ValidTenantName, ErrConflict for a name that
	// is taken.
	CreateTenant(ctx context.Context, name string) (Tenant, error)
	// TenantByName: ErrNotFound, also for the default tenant before its first use. Nothing is
	// made by asking.
	TenantByName(ctx context.Context, name string) (Tenant, error)
	// TenantPage lists at most limit tenants (1 to MaxPage, else ErrInvalid) by name, those
	// after a name (empty: from the first), and says whether more follow.
	TenantPage(ctx context.Context, after string, limit int) (tenants []Tenant, more bool, err error)
	// CursorKey is what positions are hidden with from the people of the tenant, always the
	// same one: ErrNotFound for the tenant.
	CursorKey(ctx context.Context, tenant uuid.UUID) ([16]byte, error)
}
