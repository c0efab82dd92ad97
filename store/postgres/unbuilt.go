package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) AppendTrace(context.Context, store.Trace) (store.Appended, error) {
	return store.Appended{}, errUnbuilt
}

func (s *Store) TracePage(context.Context, uuid.UUID, uuid.UUID, store.Page) ([]store.StoredTrace, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) HistoryPage(context.Context, uuid.UUID, uuid.UUID, store.Page) ([]store.StoredMessage, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) HistoryMessage(context.Context, uuid.UUID, uuid.UUID, string) (store.StoredMessage, error) {
	return store.StoredMessage{}, errUnbuilt
}

func (s *Store) AppendNotice(context.Context, store.Notice) error { return errUnbuilt }

func (s *Store) NoticePage(context.Context, uuid.UUID, uuid.UUID, store.Page) ([]store.StoredNotice, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) RoomRules(context.Context, uuid.UUID, uuid.UUID) ([]store.RuleSetting, error) {
	return nil, errUnbuilt
}

func (s *Store) SetRule(context.Context, store.RuleSetting) error { return errUnbuilt }

func (s *Store) AllocateGeneration(context.Context, store.NewGeneration) (store.Generation, error) {
	return store.Generation{}, errUnbuilt
}

func (s *Store) CurrentGenerations(context.Context, uuid.UUID, uuid.UUID) ([]store.Generation, error) {
	return nil, errUnbuilt
}

func (s *Store) AppendBoardEvent(context.Context, board.NewEvent) (board.Event, bool, error) {
	return board.Event{}, false, errUnbuilt
}

func (s *Store) BoardCard(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (board.Card, error) {
	return board.Card{}, errUnbuilt
}

func (s *Store) BoardCards(context.Context, uuid.UUID, uuid.UUID, store.Page) ([]board.Card, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) BoardEvents(context.Context, uuid.UUID, uuid.UUID, int64, int) ([]board.Event, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) ClaimHints(context.Context, int, time.Duration) ([]board.Hint, error) {
	return nil, errUnbuilt
}

func (s *Store) SettleHints(context.Context, []board.Hint) error { return errUnbuilt }

var _ board.Store = (*Store)(nil)
