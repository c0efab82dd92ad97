-- +goose Up

-- The audit event message.private of every private message: who wrote to whom and when,
-- and what was declared about files. Nothing of the content. Traces are kept for ever:
-- no right to change or delete one is given to anybody.
CREATE TABLE message_traces (
    tenant_id    uuid        NOT NULL,
    room_id      uuid        NOT NULL,
    message_id   text COLLATE "C" NOT NULL,
    sender_id    uuid        NOT NULL,
    recipient_id uuid        NOT NULL,
    -- Rises within a room in the order of committing.
    position     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- Unix milliseconds, the sender's clock.
    ts           bigint      NOT NULL,
    -- True: files is what the sender wrote of them. False: the relay counted the bytes.
    declared     boolean     NOT NULL,
    -- [{"name", "mime_type", "size_bytes"}, ...]; NULL: none.
    files        jsonb,
    -- BLAKE2b-256 of the envelope: tells a resend from another message.
    digest       bytea       NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT message_traces_pk PRIMARY KEY (tenant_id, room_id, message_id),
    CONSTRAINT message_traces_message_id_ck
        CHECK (octet_length(message_id) BETWEEN 1 AND 128 AND message_id !~ '[^!-~]'),
    CONSTRAINT message_traces_ts_ck CHECK (ts BETWEEN 0 AND 9007199254740991),
    CONSTRAINT message_traces_digest_ck CHECK (octet_length(digest) = 32),
    CONSTRAINT message_traces_files_ck CHECK (
        CASE WHEN jsonb_typeof(files) = 'array'
             THEN jsonb_array_length(files) BETWEEN 1 AND CASE WHEN declared THEN 1 ELSE 64 END
             ELSE files IS NULL END)
);
CREATE INDEX message_traces_position_ix ON message_traces (tenant_id, room_id, position);

ALTER TABLE message_traces ENABLE ROW LEVEL SECURITY;
ALTER TABLE message_traces FORCE ROW LEVEL SECURITY;
CREATE POLICY message_traces_service ON message_traces FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- Traces are the owner's to read, while it is one.
CREATE POLICY message_traces_owner ON message_traces FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = message_traces.tenant_id AND p.room_id = message_traces.room_id
          AND p.device_id = relay_device() AND p.role = 'owner' AND p.left_at IS NULL));
-- Both ends must be current members of the room; as in session_history, this stands in
-- for foreign keys.
CREATE POLICY message_traces_append ON message_traces FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = message_traces.room_id AND p.left_at IS NULL
        FROM participants p
        WHERE p.tenant_id = message_traces.tenant_id AND p.id = message_traces.sender_id) AND (
        SELECT p.room_id = message_traces.room_id AND p.left_at IS NULL
        FROM participants p
        WHERE p.tenant_id = message_traces.tenant_id AND p.id = message_traces.recipient_id));

GRANT SELECT, INSERT (tenant_id, room_id, message_id, sender_id, recipient_id, ts, declared, files, digest)
    ON message_traces TO relay_service;
GRANT SELECT ON message_traces TO relay_device;

-- The MLS group of a room and the epoch it is in. A room without a row has no group
-- yet. Nobody may write here before commits are accepted.
CREATE TABLE mls_groups (
    tenant_id  uuid        NOT NULL,
    room_id    uuid        NOT NULL,
    epoch      bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT mls_groups_pk PRIMARY KEY (tenant_id, room_id),
    CONSTRAINT mls_groups_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT mls_groups_epoch_ck CHECK (epoch BETWEEN 0 AND 9007199254740991)
);

ALTER TABLE mls_groups ENABLE ROW LEVEL SECURITY;
ALTER TABLE mls_groups FORCE ROW LEVEL SECURITY;
CREATE POLICY mls_groups_service ON mls_groups FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
GRANT SELECT ON mls_groups TO relay_service;

-- scheme_takes says which session-addressed envelopes fit a room's scheme, by kind and
-- by the markers they carry. What is not listed does not fit. In a room of scheme none
-- a message may be plaintext, which must never be stored here.
-- +goose StatementBegin
CREATE FUNCTION scheme_takes(scheme text, kind text, kid boolean, enc boolean, hdr boolean)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE scheme
        WHEN 'sender_keys'    THEN NOT (enc OR hdr)
        WHEN 'mls'            THEN NOT (kid OR enc OR hdr) AND kind IN ('message', 'control')
        WHEN 'double_ratchet' THEN NOT (kid OR enc) AND kind IN ('message', 'control')
        WHEN 'none'           THEN NOT (kid OR enc OR hdr) AND kind = 'control'
        ELSE false
    END
$$;
-- +goose StatementEnd

-- mls_epoch is the epoch of a room's group, NULL where there is none. A subquery would
-- cost every statement its set-up; a function costs only those that ask, and this
-- language keeps its plan.
-- +goose StatementBegin
CREATE FUNCTION mls_epoch(tenant uuid, room uuid) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT g.epoch FROM mls_groups g WHERE g.tenant_id = tenant AND g.room_id = room);
END
$$;
-- +goose StatementEnd

-- Writers of a room wait for each other before they store. The time of the statement,
-- unlike that of the transaction, lies after the wait, and so rises with the position.
ALTER TABLE session_history ALTER COLUMN received_at SET DEFAULT statement_timestamp();

-- +goose Down
ALTER TABLE session_history ALTER COLUMN received_at SET DEFAULT now();
DROP FUNCTION mls_epoch(uuid, uuid);
DROP FUNCTION scheme_takes(text, text, boolean, boolean, boolean);
DROP TABLE mls_groups;
DROP TABLE message_traces;
