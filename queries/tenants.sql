-- name: TenantByName :one
SELECT id FROM tenants WHERE name = @name;

-- name: TenantCreate :execrows
INSERT INTO tenants (id, name) VALUES (@id, @name) ON CONFLICT DO NOTHING;

-- name: TenantSetFrozen :execrows
UPDATE tenants SET frozen = @frozen WHERE id = @id;

-- name: TenantFrozen :one
SELECT frozen FROM tenants WHERE id = @id;

-- name: TenantPage :many
-- Seen by relay.actor = 'maintenance' only.
SELECT id FROM tenants WHERE id > @after ORDER BY id LIMIT @page;

-- name: TenantHold :one
-- Makes what is counted per tenant follow one another; references to the tenant don't wait.
SELECT id FROM tenants WHERE id = @id FOR NO KEY UPDATE;
