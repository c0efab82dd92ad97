-- name: TenantByName :one
SELECT id, name, frozen, created_at FROM tenants WHERE name = @name;

-- name: TenantCreate :execrows
INSERT INTO tenants (id, name) VALUES (@id, @name) ON CONFLICT DO NOTHING;

-- name: TenantSetFrozen :execrows
UPDATE tenants SET frozen = @frozen WHERE id = @id;

-- name: TenantFrozen :one
SELECT frozen FROM tenants WHERE id = @id;

-- name: TenantCursorKey :one
SELECT cursor_key FROM tenants WHERE id = @id;

-- name: TenantPage :many
-- Seen by relay.actor = 'maintenance' only.
SELECT id FROM tenants WHERE id > @after ORDER BY id LIMIT @page;

-- name: TenantsByName :many
-- Seen by relay.actor = 'maintenance' only.
SELECT id, name, frozen, created_at FROM tenants
WHERE name COLLATE "C" > @after ORDER BY name COLLATE "C" LIMIT @page;

-- name: TenantHold :one
-- Makes what is counted per tenant follow one another; references to the tenant do not wait.
SELECT id FROM tenants WHERE id = @id FOR NO KEY UPDATE;
