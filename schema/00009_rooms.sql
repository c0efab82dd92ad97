-- +goose Up
-- In a direct room the owner writes first (STATE, "Session Establishment"): until then,
-- and again after a new start, an agent's messages are refused.
ALTER TABLE rooms ADD COLUMN activated boolean NOT NULL DEFAULT false;
GRANT UPDATE (activated) ON rooms TO relay_service;

-- Generations are allocated without a gap, so that last_gen says which there are.
-- first_gen is the oldest whose messages are taken: somebody who left knows those before
-- it. 0 is every one, as long as nobody has left since this participant joined.
ALTER TABLE participants
    ADD COLUMN first_gen bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_gen  bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT participants_gens_ck CHECK (first_gen >= 0 AND last_gen >= 0);
-- Forced policies bind their owner too, who may be the one that migrates.
ALTER TABLE participants NO FORCE ROW LEVEL SECURITY;
ALTER TABLE sender_generations NO FORCE ROW LEVEL SECURITY;
UPDATE participants p SET last_gen = g.last
FROM (SELECT tenant_id, participant_id, max(gen) AS last FROM sender_generations GROUP BY 1, 2) g
WHERE p.tenant_id = g.tenant_id AND p.id = g.participant_id;
ALTER TABLE sender_generations FORCE ROW LEVEL SECURITY;
ALTER TABLE participants FORCE ROW LEVEL SECURITY;
GRANT UPDATE (first_gen, last_gen) ON participants TO relay_service;

-- What is due in inboxes and not written there yet: the server's own rows, Board hints
-- and room events. A row commits with the change that it tells of, and goes when it is
-- in the inboxes. It replaces board_outbox.
CREATE TABLE outbox (
    tenant_id uuid   NOT NULL,
    room_id   uuid   NOT NULL,
    -- Rises within a room in the order of committing, for rows of one kind.
    position  bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- The header Relay-Kind of the inbox row.
    kind      text   NOT NULL,
    -- NULL: whoever is in the room when it is written.
    participant_id uuid,
    -- Ids, numbers and names of the protocol, as small JSON; nothing that anybody chose.
    payload   bytea  NOT NULL,
    -- Until then a node is writing it, or failed to.
    claimed_until timestamptz NOT NULL DEFAULT '-infinity',
    claims    integer NOT NULL DEFAULT 0,
    CONSTRAINT outbox_pk PRIMARY KEY (tenant_id, room_id, position),
    CONSTRAINT outbox_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT outbox_kind_ck CHECK (kind IN ('board.update', 'room.event')),
    CONSTRAINT outbox_payload_ck CHECK (octet_length(payload) BETWEEN 2 AND 1024),
    CONSTRAINT outbox_claims_ck CHECK (claims >= 0)
);
CREATE INDEX outbox_position_ix ON outbox (position);

ALTER TABLE board_outbox NO FORCE ROW LEVEL SECURITY;
INSERT INTO outbox (tenant_id, room_id, kind, payload)
SELECT tenant_id, room_id, 'board.update',
       convert_to(format('{"event_id":"%s","card_id":"%s","revision":%s}', event_id, card_id, revision), 'UTF8')
FROM board_outbox ORDER BY position;
DROP TABLE board_outbox;

-- The outbox is filled inside a tenant and emptied by relay.actor = 'maintenance' for
-- all tenants at once: whoever publishes must find the rows without knowing whose they
-- are. That actor sees nothing else of rooms, and the service of a tenant cannot read the
-- outbox back.
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE outbox FORCE ROW LEVEL SECURITY;
CREATE POLICY outbox_append ON outbox FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY outbox_look ON outbox FOR SELECT TO relay_service
    USING (relay_actor() = 'maintenance');
CREATE POLICY outbox_claim ON outbox FOR UPDATE TO relay_service
    USING (relay_actor() = 'maintenance');
CREATE POLICY outbox_settle ON outbox FOR DELETE TO relay_service
    USING (relay_actor() = 'maintenance');
GRANT SELECT, INSERT (tenant_id, room_id, kind, participant_id, payload),
    UPDATE (claimed_until, claims), DELETE ON outbox TO relay_service;

-- +goose Down
CREATE TABLE board_outbox (
    tenant_id uuid   NOT NULL,
    room_id   uuid   NOT NULL,
    sequence  bigint NOT NULL,
    event_id  uuid   NOT NULL,
    card_id   uuid   NOT NULL,
    revision  bigint NOT NULL,
    position  bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    claimed_until timestamptz NOT NULL DEFAULT '-infinity',
    claims    integer NOT NULL DEFAULT 0,
    CONSTRAINT board_outbox_pk PRIMARY KEY (tenant_id, room_id, sequence),
    CONSTRAINT board_outbox_event_fk FOREIGN KEY (tenant_id, room_id, sequence)
        REFERENCES board_events (tenant_id, room_id, sequence),
    CONSTRAINT board_outbox_claims_ck CHECK (claims >= 0)
);
CREATE INDEX board_outbox_position_ix ON board_outbox (position);
ALTER TABLE board_outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE board_outbox FORCE ROW LEVEL SECURITY;
CREATE POLICY board_outbox_append ON board_outbox FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY board_outbox_look ON board_outbox FOR SELECT TO relay_service
    USING (relay_actor() = 'maintenance');
CREATE POLICY board_outbox_claim ON board_outbox FOR UPDATE TO relay_service
    USING (relay_actor() = 'maintenance');
CREATE POLICY board_outbox_settle ON board_outbox FOR DELETE TO relay_service
    USING (relay_actor() = 'maintenance');
GRANT SELECT, INSERT (tenant_id, room_id, sequence, event_id, card_id, revision),
    UPDATE (claimed_until, claims), DELETE ON board_outbox TO relay_service;
DROP TABLE outbox;
REVOKE UPDATE (first_gen, last_gen) ON participants FROM relay_service;
ALTER TABLE participants DROP COLUMN last_gen, DROP COLUMN first_gen;
REVOKE UPDATE (activated) ON rooms FROM relay_service;
ALTER TABLE rooms DROP COLUMN activated;
