package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// generationVerdicts says what the answers of the query GenerationAllocate mean.
var generationVerdicts = map[string]error{
	"new":       nil,
	"known":     nil,
	"archived":  fmt.Errorf("room is archived: %w", store.ErrConflict),
	"viewer":    fmt.Errorf("a viewer has no sender keys: %w", store.ErrForbidden),
	"other_key": fmt.Errorf("the kid stands for another key: %w", store.ErrConflict),
}

// AllocateGeneration implements store.Generations. The allocations in one room follow one
// another, and so do they and its changes.
func (s *Store) AllocateGeneration(ctx context.Context, g store.NewGeneration) (store.Generation, error) {
	if len(g.SessionKey) == 0 || len(g.SessionKey) > store.MaxSessionKey {
		return store.Generation{}, fmt.Errorf("allocate generation: session key of %d bytes: %w", len(g.SessionKey), store.ErrInvalid)
	}
	var row sqlcgen.GenerationAllocateRow
	who := asService(g.Tenant).holdingRoom(g.Tenant, g.Room)
	err := s.call(ctx, "allocate generation", who, func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.GenerationAllocate(ctx, db, sqlcgen.GenerationAllocateParams{
			TenantID: g.Tenant, RoomID: g.Room, ParticipantID: g.Participant, KID: g.KID[:], SessionKey: g.SessionKey,
			Kept: store.KeptGenerations,
		})
		return err
	})
	if err != nil {
		return store.Generation{}, err
	}
	refusal, known := generationVerdicts[row.Verdict]
	if !known {
		refusal = errors.New("the database answered " + row.Verdict)
	}
	if refusal != nil {
		return store.Generation{}, fmt.Errorf("allocate generation: %w", refusal)
	}
	return store.Generation{
		Participant: g.Participant, Gen: uint64(row.Gen), KID: g.KID, SessionKey: bytes.Clone(g.SessionKey),
		AllocatedAt: row.AllocatedAt.UTC(), Again: row.Verdict == "known",
		Rekeyed: row.Rekeyed > 0, RoomVersion: row.Rekeyed,
	}, nil
}

// CurrentGenerations implements store.Generations.
func (s *Store) CurrentGenerations(ctx context.Context, tenant, room uuid.UUID) ([]store.Generation, error) {
	var rows []sqlcgen.GenerationsCurrentRow
	err := s.call(ctx, "list generations", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.GenerationsCurrent(ctx, db, tenant, room)
		return err
	})
	if err == nil && len(rows) == 0 {
		err = s.requireRoom(ctx, tenant, room)
	}
	if err != nil {
		return nil, err
	}
	generations := make([]store.Generation, len(rows))
	for i, row := range rows {
		generations[i] = store.Generation{
			Participant: row.ParticipantID, Gen: uint64(row.Gen), SessionKey: row.SessionKey, AllocatedAt: row.AllocatedAt.UTC(),
		}
		copy(generations[i].KID[:], row.KID)
	}
	return generations, nil
}
