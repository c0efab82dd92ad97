package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// RoomRules implements store.Rules.
func (s *Store) RoomRules(ctx context.Context, tenant, room uuid.UUID) ([]store.RuleSetting, error) {
	var rows []sqlcgen.RuleListRow
	err := s.call(ctx, "list rules", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.RuleList(ctx, db, tenant, room)
		return err
	})
	if err == nil && len(rows) == 0 {
		err = s.requireRoom(ctx, tenant, room)
	}
	if err != nil {
		return nil, err
	}
	settings := make([]store.RuleSetting, len(rows))
	for i, row := range rows {
		settings[i] = store.RuleSetting{
			Tenant: tenant, Room: room, Rule: store.Rule(row.Rule), Participant: row.ParticipantID, Allowed: row.Allowed,
		}
	}
	return settings, nil
}

// SetRule implements store.Rules.
func (s *Store) SetRule(ctx context.Context, setting store.RuleSetting) error {
	if !setting.Rule.Valid() {
		return fmt.Errorf("set rule: rule %q: %w", setting.Rule, store.ErrInvalid)
	}
	who := asService(setting.Tenant).holdingRoom(setting.Tenant, setting.Room)
	return s.call(ctx, "set rule", who, func(ctx context.Context, db sqlcgen.DBTX) error {
		present, err := s.q.RuleSet(ctx, db, sqlcgen.RuleSetParams{
			TenantID: setting.Tenant, RoomID: setting.Room, Rule: string(setting.Rule),
			ParticipantID: setting.Participant, Allowed: setting.Allowed,
		})
		if err == nil && !present {
			err = fmt.Errorf("participant: %w", store.ErrNotFound)
		}
		return err
	})
}
