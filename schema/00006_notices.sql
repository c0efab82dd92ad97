-- +goose Up

-- What a room's owner took from its agents or gave back. Without a row a right is held.
CREATE TABLE room_rules (
    tenant_id      uuid        NOT NULL,
    room_id        uuid        NOT NULL,
    rule           text COLLATE "C" NOT NULL,
    -- Whom it is for; the nil uuid: everybody for whom nothing of their own is set.
    participant_id uuid        NOT NULL,
    allowed        boolean     NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT room_rules_pk PRIMARY KEY (tenant_id, room_id, rule, participant_id),
    CONSTRAINT room_rules_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT room_rules_rule_ck CHECK (rule IN ('message.send', 'session.alert.emit'))
);

ALTER TABLE room_rules ENABLE ROW LEVEL SECURITY;
ALTER TABLE room_rules FORCE ROW LEVEL SECURITY;
CREATE POLICY room_rules_service ON room_rules FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY room_rules_member ON room_rules FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = room_rules.tenant_id AND p.room_id = room_rules.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
CREATE POLICY room_rules_set ON room_rules FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        participant_id = '00000000-0000-0000-0000-000000000000' OR (
            SELECT p.room_id = room_rules.room_id AND p.left_at IS NULL
            FROM participants p
            WHERE p.tenant_id = room_rules.tenant_id AND p.id = room_rules.participant_id)));
CREATE POLICY room_rules_change ON room_rules FOR UPDATE TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

GRANT SELECT, INSERT (tenant_id, room_id, rule, participant_id, allowed), UPDATE (allowed, updated_at)
    ON room_rules TO relay_service;
GRANT SELECT ON room_rules TO relay_device;

-- The public parts of sender keys, each under the gen it was given (RELAY, "Sender-key
-- identity compatibility"). Never changed and never deleted: a notice may name any.
CREATE TABLE sender_generations (
    tenant_id      uuid        NOT NULL,
    room_id        uuid        NOT NULL,
    participant_id uuid        NOT NULL,
    gen            bigint      NOT NULL,
    kid            bytea       NOT NULL,
    session_key    bytea       NOT NULL,
    allocated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sender_generations_pk PRIMARY KEY (tenant_id, room_id, participant_id, gen),
    CONSTRAINT sender_generations_kid_uq UNIQUE (tenant_id, room_id, participant_id, kid),
    CONSTRAINT sender_generations_gen_ck CHECK (gen BETWEEN 1 AND 9007199254740991),
    CONSTRAINT sender_generations_kid_ck CHECK (octet_length(kid) = 16),
    CONSTRAINT sender_generations_session_key_ck CHECK (octet_length(session_key) BETWEEN 1 AND 1024)
);

ALTER TABLE sender_generations ENABLE ROW LEVEL SECURITY;
ALTER TABLE sender_generations FORCE ROW LEVEL SECURITY;
CREATE POLICY sender_generations_service ON sender_generations FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY sender_generations_member ON sender_generations FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = sender_generations.tenant_id AND p.room_id = sender_generations.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
-- In place of a foreign key to participants, as for session_history; a viewer has no keys.
CREATE POLICY sender_generations_allocate ON sender_generations FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = sender_generations.room_id AND p.left_at IS NULL AND p.role <> 'viewer'
        FROM participants p
        WHERE p.tenant_id = sender_generations.tenant_id AND p.id = sender_generations.participant_id));

GRANT SELECT, INSERT (tenant_id, room_id, participant_id, gen, kid, session_key)
    ON sender_generations TO relay_service;
GRANT SELECT ON sender_generations TO relay_device;

-- Accepted notices, byte for byte as they were sent.
CREATE TABLE notices (
    tenant_id   uuid        NOT NULL,
    room_id     uuid        NOT NULL,
    notice_id   text COLLATE "C" NOT NULL,
    sender_id   uuid        NOT NULL,
    -- Rises within a room in the order of committing: whoever stores a notice holds the room.
    position    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    gen         bigint      NOT NULL,
    kid         bytea, -- as in session_history
    ts          timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    envelope    bytea       NOT NULL,
    -- The clock after the room was held, and so in the order of positions.
    accepted_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT notices_pk PRIMARY KEY (tenant_id, room_id, notice_id),
    CONSTRAINT notices_notice_id_ck
        CHECK (octet_length(notice_id) BETWEEN 1 AND 128 AND notice_id !~ '[^!-~]'),
    CONSTRAINT notices_gen_ck CHECK (gen BETWEEN 1 AND 9007199254740991),
    CONSTRAINT notices_expires_at_ck CHECK (expires_at > ts),
    CONSTRAINT notices_envelope_ck CHECK (octet_length(envelope) BETWEEN 1 AND 65536)
);
ALTER TABLE notices ALTER COLUMN envelope SET STORAGE EXTERNAL;
CREATE INDEX notices_position_ix ON notices (tenant_id, room_id, position);
CREATE INDEX notices_sender_ix ON notices (tenant_id, room_id, sender_id, expires_at);
CREATE INDEX notices_expires_at_ix ON notices (tenant_id, expires_at);

ALTER TABLE notices ENABLE ROW LEVEL SECURITY;
ALTER TABLE notices FORCE ROW LEVEL SECURITY;
CREATE POLICY notices_service ON notices FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY notices_member ON notices FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = notices.tenant_id AND p.room_id = notices.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
-- Whoever writes, the sender must be an agent who is a current member of the room (RELAY).
CREATE POLICY notices_append ON notices FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = notices.room_id AND p.left_at IS NULL AND p.role = 'agent'
        FROM participants p
        WHERE p.tenant_id = notices.tenant_id AND p.id = notices.sender_id));
CREATE POLICY notices_prune ON notices FOR DELETE TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

GRANT SELECT, INSERT (tenant_id, room_id, notice_id, sender_id, gen, kid, ts, expires_at, envelope), DELETE
    ON notices TO relay_service;
GRANT SELECT ON notices TO relay_device;

-- +goose Down
DROP TABLE notices;
DROP TABLE sender_generations;
DROP TABLE room_rules;
