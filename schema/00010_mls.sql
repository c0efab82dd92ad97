-- +goose Up

-- The delivery service of MLS rooms (RFC 9750 section 5). What clients make is opaque
-- here: commits, welcomes, group infos and key packages are kept and handed out as bytes.

-- A room's epoch is its group's own plus base. Where a group is over, base takes the place
-- of an epoch: the room's epoch rises still, and the next group begins from it.
ALTER TABLE mls_groups
    ADD COLUMN base       bigint NOT NULL DEFAULT 0,
    ADD COLUMN group_id   bytea, -- NULL: there is no group
    ADD COLUMN group_info bytea,
    ADD CONSTRAINT mls_groups_base_ck CHECK (base BETWEEN 0 AND epoch),
    ADD CONSTRAINT mls_groups_group_id_ck CHECK (octet_length(group_id) BETWEEN 1 AND 255),
    ADD CONSTRAINT mls_groups_group_info_ck CHECK (octet_length(group_info) BETWEEN 1 AND 524288),
    ADD CONSTRAINT mls_groups_group_ck CHECK ((group_id IS NULL) = (group_info IS NULL));
ALTER TABLE mls_groups ALTER COLUMN group_info SET STORAGE EXTERNAL;

DROP POLICY mls_groups_service ON mls_groups;
CREATE POLICY mls_groups_service ON mls_groups TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY mls_groups_member ON mls_groups FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = mls_groups.tenant_id AND p.room_id = mls_groups.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));
GRANT INSERT (tenant_id, room_id, epoch, group_id, group_info),
    UPDATE (epoch, base, group_id, group_info, updated_at) ON mls_groups TO relay_service;
GRANT SELECT ON mls_groups TO relay_device;

-- No message fits a room without a group.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION mls_epoch(tenant uuid, room uuid) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT g.epoch FROM mls_groups g
            WHERE g.tenant_id = tenant AND g.room_id = room AND g.group_id IS NOT NULL);
END
$$;
-- +goose StatementEnd

ALTER TABLE participants
    -- The room's epoch from which it is in the group; NULL: it is not. It outlasts left_at,
    -- until a commit removes who left.
    ADD COLUMN mls_since     bigint,
    -- The epoch of its newest welcome; NULL: none.
    ADD COLUMN welcome_epoch bigint,
    ADD CONSTRAINT participants_mls_since_ck CHECK (mls_since > 0),
    ADD CONSTRAINT participants_welcome_epoch_ck CHECK (welcome_epoch > 0);
CREATE INDEX participants_mls_pending_ix ON participants (tenant_id, room_id)
    WHERE left_at IS NOT NULL AND mls_since IS NOT NULL;
GRANT UPDATE (mls_since, welcome_epoch) ON participants TO relay_service;

-- The ids of all groups that a room ever had: none is used again.
CREATE TABLE mls_group_ids (
    tenant_id uuid  NOT NULL,
    room_id   uuid  NOT NULL,
    group_id  bytea NOT NULL,
    CONSTRAINT mls_group_ids_pk PRIMARY KEY (tenant_id, room_id, group_id),
    CONSTRAINT mls_group_ids_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT mls_group_ids_group_id_ck CHECK (octet_length(group_id) BETWEEN 1 AND 255)
);

-- Accepted commits, the newest ones of each room.
CREATE TABLE mls_commits (
    tenant_id  uuid        NOT NULL,
    room_id    uuid        NOT NULL,
    -- That it made.
    epoch      bigint      NOT NULL,
    sender_id  uuid        NOT NULL,
    content    bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT mls_commits_pk PRIMARY KEY (tenant_id, room_id, epoch),
    CONSTRAINT mls_commits_sender_fk FOREIGN KEY (tenant_id, room_id, sender_id)
        REFERENCES participants (tenant_id, room_id, id),
    CONSTRAINT mls_commits_epoch_ck CHECK (epoch BETWEEN 1 AND 9007199254740991),
    CONSTRAINT mls_commits_content_ck CHECK (octet_length(content) BETWEEN 1 AND 131072)
);
ALTER TABLE mls_commits ALTER COLUMN content SET STORAGE EXTERNAL;

-- Welcomes, one for all whom a commit added, while participants.welcome_epoch of any of
-- them says so.
CREATE TABLE mls_welcomes (
    tenant_id uuid   NOT NULL,
    room_id   uuid   NOT NULL,
    epoch     bigint NOT NULL,
    content   bytea  NOT NULL,
    CONSTRAINT mls_welcomes_pk PRIMARY KEY (tenant_id, room_id, epoch),
    CONSTRAINT mls_welcomes_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT mls_welcomes_epoch_ck CHECK (epoch BETWEEN 1 AND 9007199254740991),
    CONSTRAINT mls_welcomes_content_ck CHECK (octet_length(content) BETWEEN 1 AND 524288)
);
ALTER TABLE mls_welcomes ALTER COLUMN content SET STORAGE EXTERNAL;

-- Who could not apply which commit. A report goes with its commit.
CREATE TABLE mls_commit_reports (
    tenant_id      uuid        NOT NULL,
    room_id        uuid        NOT NULL,
    epoch          bigint      NOT NULL,
    participant_id uuid        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT mls_commit_reports_pk PRIMARY KEY (tenant_id, room_id, epoch, participant_id),
    CONSTRAINT mls_commit_reports_commit_fk FOREIGN KEY (tenant_id, room_id, epoch)
        REFERENCES mls_commits (tenant_id, room_id, epoch) ON DELETE CASCADE,
    CONSTRAINT mls_commit_reports_participant_fk FOREIGN KEY (tenant_id, room_id, participant_id)
        REFERENCES participants (tenant_id, room_id, id)
);

-- What devices are added to groups with (RFC 9420 section 10).
CREATE TABLE key_packages (
    tenant_id   uuid        NOT NULL,
    device_id   uuid        NOT NULL,
    -- BLAKE2b-256 of content: tells one that is uploaded again.
    ref         bytea       NOT NULL,
    -- NULL: it was handed out or, of last resort, replaced. The row stays until it expires,
    -- so that it is known when it is uploaded again.
    content     bytea,
    -- Handed out when there is no other, again and again.
    last_resort boolean     NOT NULL,
    expires_at  timestamptz NOT NULL,
    CONSTRAINT key_packages_pk PRIMARY KEY (tenant_id, device_id, ref),
    CONSTRAINT key_packages_device_fk FOREIGN KEY (tenant_id, device_id) REFERENCES devices (tenant_id, id),
    CONSTRAINT key_packages_ref_ck CHECK (octet_length(ref) = 32),
    CONSTRAINT key_packages_content_ck CHECK (octet_length(content) BETWEEN 1 AND 16384)
);
ALTER TABLE key_packages ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX key_packages_expires_at_ix ON key_packages (tenant_id, device_id, expires_at);
CREATE UNIQUE INDEX key_packages_last_resort_uq ON key_packages (tenant_id, device_id)
    WHERE last_resort AND content IS NOT NULL;

ALTER TABLE mls_group_ids ENABLE ROW LEVEL SECURITY;
ALTER TABLE mls_group_ids FORCE ROW LEVEL SECURITY;
CREATE POLICY mls_group_ids_service ON mls_group_ids TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

ALTER TABLE mls_commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE mls_commits FORCE ROW LEVEL SECURITY;
CREATE POLICY mls_commits_service ON mls_commits FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- Whoever writes, the sender must be a current member of the room, in a role that may.
CREATE POLICY mls_commits_append ON mls_commits FOR INSERT TO relay_service
    WITH CHECK (tenant_id = relay_tenant() AND relay_actor() = 'service' AND (
        SELECT p.room_id = mls_commits.room_id AND p.left_at IS NULL AND p.role <> 'viewer'
        FROM participants p
        WHERE p.tenant_id = mls_commits.tenant_id AND p.id = mls_commits.sender_id));
CREATE POLICY mls_commits_prune ON mls_commits FOR DELETE TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY mls_commits_member ON mls_commits FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = mls_commits.tenant_id AND p.room_id = mls_commits.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));

ALTER TABLE mls_welcomes ENABLE ROW LEVEL SECURITY;
ALTER TABLE mls_welcomes FORCE ROW LEVEL SECURITY;
CREATE POLICY mls_welcomes_service ON mls_welcomes TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- A welcome is for those whom it adds.
CREATE POLICY mls_welcomes_member ON mls_welcomes FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = mls_welcomes.tenant_id AND p.room_id = mls_welcomes.room_id
          AND p.welcome_epoch = mls_welcomes.epoch
          AND p.device_id = relay_device() AND p.left_at IS NULL));

ALTER TABLE mls_commit_reports ENABLE ROW LEVEL SECURITY;
ALTER TABLE mls_commit_reports FORCE ROW LEVEL SECURITY;
CREATE POLICY mls_commit_reports_service ON mls_commit_reports TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY mls_commit_reports_member ON mls_commit_reports FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = mls_commit_reports.tenant_id AND p.room_id = mls_commit_reports.room_id
          AND p.device_id = relay_device() AND p.left_at IS NULL));

ALTER TABLE key_packages ENABLE ROW LEVEL SECURITY;
ALTER TABLE key_packages FORCE ROW LEVEL SECURITY;
CREATE POLICY key_packages_service ON key_packages TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY key_packages_self ON key_packages FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND device_id = relay_device());

-- Commits and welcomes cannot change; a key package can only be spent.
GRANT SELECT, INSERT (tenant_id, room_id, group_id) ON mls_group_ids TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, epoch, sender_id, content), DELETE ON mls_commits TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, epoch, content), DELETE ON mls_welcomes TO relay_service;
GRANT SELECT, INSERT (tenant_id, room_id, epoch, participant_id) ON mls_commit_reports TO relay_service;
GRANT SELECT, INSERT (tenant_id, device_id, ref, content, last_resort, expires_at),
    UPDATE (content), DELETE ON key_packages TO relay_service;
GRANT SELECT ON mls_commits, mls_welcomes, mls_commit_reports, key_packages TO relay_device;

-- +goose Down
DROP TABLE key_packages;
DROP TABLE mls_commit_reports;
DROP TABLE mls_welcomes;
DROP TABLE mls_commits;
DROP TABLE mls_group_ids;
REVOKE UPDATE (mls_since, welcome_epoch) ON participants FROM relay_service;
ALTER TABLE participants DROP COLUMN welcome_epoch, DROP COLUMN mls_since;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION mls_epoch(tenant uuid, room uuid) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT g.epoch FROM mls_groups g WHERE g.tenant_id = tenant AND g.room_id = room);
END
$$;
-- +goose StatementEnd
REVOKE SELECT ON mls_groups FROM relay_device;
REVOKE INSERT (tenant_id, room_id, epoch, group_id, group_info),
    UPDATE (epoch, base, group_id, group_info, updated_at) ON mls_groups FROM relay_service;
DROP POLICY mls_groups_member ON mls_groups;
DROP POLICY mls_groups_service ON mls_groups;
CREATE POLICY mls_groups_service ON mls_groups FOR SELECT TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
ALTER TABLE mls_groups DROP COLUMN group_info, DROP COLUMN group_id, DROP COLUMN base;
