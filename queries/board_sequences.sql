-- name: BoardSequenceBegin :exec
-- Makes the row of a room's first event; nothing where there is one, or no room.
INSERT INTO board_sequences (tenant_id, room_id)
SELECT r.tenant_id, r.id FROM rooms r WHERE r.tenant_id = @tenant_id AND r.id = @room_id
ON CONFLICT DO NOTHING;

-- name: BoardSequenceLock :exec
-- Makes events of one room follow one another: held until the transaction ends. The
-- room, taken second, keeps its state and roster until then (every change of them takes
-- RoomLock); whoever waits for it meets at most one event at a time.
SELECT s.last FROM board_sequences s
JOIN rooms r ON r.tenant_id = s.tenant_id AND r.id = s.room_id
WHERE s.tenant_id = @tenant_id AND s.room_id = @room_id
FOR UPDATE OF s FOR KEY SHARE OF r;
