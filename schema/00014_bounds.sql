-- +goose Up

-- What grew with each use has a bound. Rows of before are deleted when the next ones come.

-- A participant keeps its newest sender generations: which there were is last_gen.
CREATE POLICY sender_generations_prune ON sender_generations FOR DELETE TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
GRANT DELETE ON sender_generations TO relay_service;

-- A room keeps the ids of its newest groups. The room's epoch that a group began in only
-- rises; of groups before this version it is not known.
ALTER TABLE mls_group_ids
    ADD COLUMN began bigint NOT NULL DEFAULT -1;
CREATE INDEX mls_group_ids_began_ix ON mls_group_ids (tenant_id, room_id, began);
GRANT INSERT (began), DELETE ON mls_group_ids TO relay_service;

-- A device has so many rooms that it made and that are not archived. NULL: the operator
-- made it, or it is of before this version.
ALTER TABLE rooms
    ADD COLUMN made_by uuid,
    ADD CONSTRAINT rooms_made_by_fk FOREIGN KEY (tenant_id, made_by) REFERENCES devices (tenant_id, id);
CREATE INDEX rooms_open_of_maker_ix ON rooms (tenant_id, made_by) WHERE state <> 'ARCHIVED';
GRANT INSERT (made_by) ON rooms TO relay_service;

-- +goose Down
DROP INDEX rooms_open_of_maker_ix;
ALTER TABLE rooms DROP COLUMN made_by;
REVOKE INSERT (began), DELETE ON mls_group_ids FROM relay_service;
ALTER TABLE mls_group_ids DROP COLUMN began;
REVOKE DELETE ON sender_generations FROM relay_service;
DROP POLICY sender_generations_prune ON sender_generations;
