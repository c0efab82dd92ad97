-- +goose Up

-- The window of session-addressed envelopes, byte for byte as they were sent.
CREATE TABLE session_history (
    tenant_id   uuid        NOT NULL,
    room_id     uuid        NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    sender_id   uuid        NOT NULL,
    -- Rises within a room in the order of storing.
    position    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind        text        NOT NULL,
    gen         bigint      NOT NULL,
    -- bytea, since a key id may hold any character, NUL too.
    kid         bytea,
    envelope    bytea       NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT session_history_pk PRIMARY KEY (tenant_id, room_id, message_id),
    -- DESIGN section 6, "Envelope": 1 to 128 printable ASCII characters. (One pattern
    -- with the length in it would double the cost of an insert.)
    CONSTRAINT session_history_message_id_ck
        CHECK (octet_length(message_id) BETWEEN 1 AND 128 AND message_id !~ '[^!-~]'),
    CONSTRAINT session_history_kind_ck CHECK (kind IN ('message', 'senderkey', 'control', 'key_request')),
    CONSTRAINT session_history_gen_ck CHECK (gen BETWEEN 0 AND 9007199254740991),
    CONSTRAINT session_history_envelope_ck CHECK (octet_length(envelope) BETWEEN 1 AND 65536)
);
-- Envelopes are ciphertext: trying to compress them only costs time.
ALTER TABLE session_history ALTER COLUMN envelope SET STORAGE EXTERNAL;
CREATE INDEX session_history_position_ix ON session_history (tenant_id, room_id, position);

ALTER TABLE session_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE session_history FORCE ROW LEVEL SECURITY;
CREATE POLICY session_history_service ON session_history FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY session_history_member ON session_history FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = session_history.tenant_id AND p.room_id = session_history.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
-- Whoever writes, the sender must be a current member of the room. This stands in for
-- a foreign key to participants, whose rows are never deleted. (A scalar subquery on
-- the primary key, so that a row costs one look-up whatever the planner believes.)
CREATE POLICY session_history_append ON session_history FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = session_history.room_id AND p.left_at IS NULL
        FROM participants p
        WHERE p.tenant_id = session_history.tenant_id AND p.id = session_history.sender_id));
CREATE POLICY session_history_prune ON session_history FOR DELETE TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

GRANT SELECT, INSERT (tenant_id, room_id, message_id, sender_id, kind, gen, kid, envelope), DELETE
    ON session_history TO relay_service;
GRANT SELECT ON session_history TO relay_device;

-- +goose Down
DROP TABLE session_history;
