-- +goose Up

-- A device's id is in one tenant only, since signing in names the device alone. Ids are
-- made by the server, so that a violation tells nobody anything.
ALTER TABLE devices ADD CONSTRAINT devices_id_uq UNIQUE (id);

-- relay.sign_in: the device that somebody says to be. It shows the row of that device, as
-- relay.token does of a credential, before a tenant is known.
-- +goose StatementBegin
CREATE FUNCTION relay_sign_in() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('relay.sign_in', true), '')::uuid $$;
-- +goose StatementEnd
CREATE POLICY devices_sign_in ON devices FOR SELECT TO relay_service
    USING (id = relay_sign_in());

-- The name is part of a header and of command lines.
ALTER TABLE tenants DROP CONSTRAINT tenants_name_ck;
ALTER TABLE tenants ADD CONSTRAINT tenants_name_ck CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,63}$');

-- Positions in lists rise over all tenants. Cursors hide them under this key, since who
-- could read them could count what others store.
ALTER TABLE tenants
    ADD COLUMN cursor_key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    ADD CONSTRAINT tenants_cursor_key_ck CHECK (octet_length(cursor_key) = 16);

-- +goose Down
ALTER TABLE tenants DROP COLUMN cursor_key;
ALTER TABLE tenants DROP CONSTRAINT tenants_name_ck;
ALTER TABLE tenants ADD CONSTRAINT tenants_name_ck CHECK (char_length(name) BETWEEN 1 AND 64);
DROP POLICY devices_sign_in ON devices;
DROP FUNCTION relay_sign_in();
ALTER TABLE devices DROP CONSTRAINT devices_id_uq;
