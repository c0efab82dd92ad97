-- +goose Up

-- The Board of a room (RELAY, "Durable Board hints"): cards, and the events that change
-- them. What clients write is sealed and signed by them and opaque here. Nothing of it
-- is ever deleted: a client's cursor into the events stays good.

-- The last sequence of each room's Board. Whoever commits an event holds this row from
-- before it looks at anything until it has committed, so that the order of sequences is
-- the order of commits: no event ever appears at or before a sequence that was read.
CREATE TABLE board_sequences (
    tenant_id uuid   NOT NULL,
    room_id   uuid   NOT NULL,
    last      bigint NOT NULL DEFAULT 0,
    CONSTRAINT board_sequences_pk PRIMARY KEY (tenant_id, room_id),
    CONSTRAINT board_sequences_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT board_sequences_last_ck CHECK (last >= 0)
);

-- A card as its events have left it; what they said stands in them only.
CREATE TABLE board_cards (
    tenant_id uuid    NOT NULL,
    room_id   uuid    NOT NULL,
    -- Chosen by clients, and theirs only within the room.
    id        uuid    NOT NULL,
    kind      text    NOT NULL,
    -- Of its last event; each raises it by one.
    revision  bigint  NOT NULL DEFAULT 1,
    closed    boolean NOT NULL DEFAULT false,
    -- Sequences of its created event, of its newest created or updated event, whose
    -- content is the card's, and of its newest event.
    position  bigint  NOT NULL,
    content_position bigint NOT NULL,
    last_position    bigint NOT NULL,
    CONSTRAINT board_cards_pk PRIMARY KEY (tenant_id, room_id, id),
    CONSTRAINT board_cards_position_uq UNIQUE (tenant_id, room_id, position),
    CONSTRAINT board_cards_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT board_cards_kind_ck CHECK (kind IN ('idea', 'task', 'question', 'decision')),
    CONSTRAINT board_cards_revision_ck CHECK (revision > 0),
    CONSTRAINT board_cards_position_ck
        CHECK (position > 0 AND content_position >= position AND last_position >= content_position)
);

CREATE TABLE board_events (
    tenant_id  uuid        NOT NULL,
    room_id    uuid        NOT NULL,
    sequence   bigint      NOT NULL,
    -- Chosen by clients, and theirs only within the room.
    id         uuid        NOT NULL,
    card_id    uuid        NOT NULL,
    type       text        NOT NULL,
    revision   bigint      NOT NULL,
    author_id  uuid        NOT NULL,
    content    bytea       NOT NULL,
    signature  bytea       NOT NULL,
    -- Not now(): a transaction that waited for its turn began before it.
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT board_events_pk PRIMARY KEY (tenant_id, room_id, sequence),
    CONSTRAINT board_events_id_uq UNIQUE (tenant_id, room_id, id),
    CONSTRAINT board_events_card_uq UNIQUE (tenant_id, room_id, card_id, revision),
    CONSTRAINT board_events_card_fk FOREIGN KEY (tenant_id, room_id, card_id)
        REFERENCES board_cards (tenant_id, room_id, id),
    CONSTRAINT board_events_sequence_ck CHECK (sequence > 0),
    CONSTRAINT board_events_type_ck
        CHECK (type IN ('created', 'updated', 'comment', 'option_chosen', 'approval', 'closed')),
    CONSTRAINT board_events_revision_ck CHECK (revision > 0 AND (revision = 1) = (type = 'created')),
    CONSTRAINT board_events_content_ck CHECK (octet_length(content) <= 65536),
    CONSTRAINT board_events_signature_ck CHECK (octet_length(signature) BETWEEN 1 AND 1024)
);
-- Ciphertext: trying to compress it only costs time.
ALTER TABLE board_events ALTER COLUMN content SET STORAGE EXTERNAL;

-- Hints that are due and not published yet: ids only. A row commits with its event and
-- goes when the hint is in the inboxes.
CREATE TABLE board_outbox (
    tenant_id uuid   NOT NULL,
    room_id   uuid   NOT NULL,
    sequence  bigint NOT NULL,
    event_id  uuid   NOT NULL,
    card_id   uuid   NOT NULL,
    revision  bigint NOT NULL,
    -- Rises within a room as sequence does.
    position  bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- Until then a node is publishing it, or failed to.
    claimed_until timestamptz NOT NULL DEFAULT '-infinity',
    claims    integer NOT NULL DEFAULT 0,
    CONSTRAINT board_outbox_pk PRIMARY KEY (tenant_id, room_id, sequence),
    CONSTRAINT board_outbox_event_fk FOREIGN KEY (tenant_id, room_id, sequence)
        REFERENCES board_events (tenant_id, room_id, sequence),
    CONSTRAINT board_outbox_claims_ck CHECK (claims >= 0)
);
CREATE INDEX board_outbox_position_ix ON board_outbox (position);

ALTER TABLE board_sequences ENABLE ROW LEVEL SECURITY;
ALTER TABLE board_sequences FORCE ROW LEVEL SECURITY;
CREATE POLICY board_sequences_service ON board_sequences TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

ALTER TABLE board_cards ENABLE ROW LEVEL SECURITY;
ALTER TABLE board_cards FORCE ROW LEVEL SECURITY;
CREATE POLICY board_cards_service ON board_cards TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY board_cards_member ON board_cards FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = board_cards.tenant_id AND p.room_id = board_cards.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));

ALTER TABLE board_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE board_events FORCE ROW LEVEL SECURITY;
CREATE POLICY board_events_service ON board_events FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY board_events_member ON board_events FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = board_events.tenant_id AND p.room_id = board_events.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
-- Whoever writes, the author must be a current member of the room, in a role that may.
-- This stands in for a foreign key to participants, whose rows are never deleted.
CREATE POLICY board_events_append ON board_events FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = board_events.room_id AND p.left_at IS NULL AND p.role <> 'viewer'
           AND (board_events.type <> 'approval' OR p.role IN ('owner', 'controller'))
        FROM participants p
        WHERE p.tenant_id = board_events.tenant_id AND p.id = board_events.author_id));

-- The outbox is filled inside a tenant and emptied by relay.actor = 'maintenance' for
-- all tenants at once: whoever publishes must find the hints without knowing whose they
-- are, and finds ids only. That actor sees nothing else of the Board, and the service
-- of a tenant cannot read the outbox back.
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

-- Events cannot change, cards keep their id, kind and place, and times are the
-- database's.
GRANT SELECT, INSERT (tenant_id, room_id), UPDATE (last) ON board_sequences TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, id, kind, position, content_position, last_position),
    UPDATE (revision, closed, content_position, last_position) ON board_cards TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature)
    ON board_events TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, sequence, event_id, card_id, revision),
    UPDATE (claimed_until, claims), DELETE ON board_outbox TO relay_service;
GRANT SELECT ON board_cards, board_events TO relay_device;

-- +goose Down
DROP TABLE board_outbox;
DROP TABLE board_events;
DROP TABLE board_cards;
DROP TABLE board_sequences;
