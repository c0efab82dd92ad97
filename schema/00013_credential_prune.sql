-- +goose Up

-- Devices mint a credential for each room and day: those that ended long ago are deleted.
CREATE INDEX credentials_ended_ix ON credentials (tenant_id, (least(expires_at, revoked_at)));
GRANT DELETE ON credentials TO relay_service;

-- +goose Down
REVOKE DELETE ON credentials FROM relay_service;
DROP INDEX credentials_ended_ix;
