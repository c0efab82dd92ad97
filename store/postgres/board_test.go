package postgres_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// boardRoom is a room with a participant of every role.
type boardRoom struct {
	s            *postgres.Store
	db           *owner
	tenant, room uuid.UUID
	members      map[store.Role]store.Participant
}

func newBoardRoom(t *testing.T, options ...func(*postgres.Config)) *boardRoom {
	t.Helper()
	url := pgtest.URL(t)
	b := &boardRoom{s: pgtest.Open(t, url, options...), db: newOwner(url)}
	b.tenant = subject(b.s, b.db).NewTenant(t)
	b.room, b.members = b.newRoom(t, b.tenant)
	return b
}

func (b *boardRoom) newRoom(t *testing.T, tenant uuid.UUID) (uuid.UUID, map[store.Role]store.Participant) {
	t.Helper()
	room, err := b.s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	members := map[store.Role]store.Participant{}
	for _, role := range []store.Role{store.RoleOwner, store.RoleController, store.RoleAgent, store.RoleViewer} {
		members[role], err = b.s.AddParticipant(t.Context(), store.NewParticipant{Tenant: tenant, Room: room.ID, Role: role})
		require.NoError(t, err)
	}
	b.db.quiet(t)
	return room.ID, members
}

// event is one of the room's agent, with new ids.
func (b *boardRoom) event(kind board.EventType, card uuid.UUID, revision int64) board.NewEvent {
	return board.NewEvent{
		Tenant: b.tenant, Room: b.room, Author: b.members[store.RoleAgent].ID, ID: uuid.New(), Card: card, Type: kind,
		Revision: revision, Content: []byte("sealed " + string(kind)), Signature: []byte("signed"),
	}
}

func (b *boardRoom) created(kind board.Kind) board.NewEvent {
	e := b.event(board.EventCreated, uuid.New(), 0)
	e.Kind = kind
	return e
}

func (b *boardRoom) commit(t *testing.T, e board.NewEvent) board.Event {
	t.Helper()
	event, committed, err := b.s.AppendBoardEvent(t.Context(), e)
	require.NoError(t, err)
	require.True(t, committed)
	return event
}

func (b *boardRoom) refuse(t *testing.T, e board.NewEvent, want error, why string) {
	t.Helper()
	require.ErrorIs(t, b.refusal(t, e, why), want, why)
}

// conflict is what a refused event is told of its card.
func (b *boardRoom) conflict(t *testing.T, e board.NewEvent, why string) board.ConflictError {
	t.Helper()
	var conflict *board.ConflictError
	err := b.refusal(t, e, why)
	require.ErrorAs(t, err, &conflict, why)
	require.ErrorIs(t, err, store.ErrConflict, why)
	return *conflict
}

func (b *boardRoom) refusal(t *testing.T, e board.NewEvent, why string) error {
	t.Helper()
	before := b.contents(t)
	event, committed, err := b.s.AppendBoardEvent(t.Context(), e)
	require.Error(t, err, why)
	require.False(t, committed, why)
	require.Zero(t, event, why)
	require.Equal(t, before, b.contents(t), "%s: a refused event changes nothing", why)
	return err
}

// contents is every row of every Board, as text, but for Boards that have no event yet.
func (b *boardRoom) contents(t *testing.T) []string {
	t.Helper()
	return strings.Split(query[string](t, b.db, `SELECT coalesce(string_agg(r, E'\n' ORDER BY r), '') FROM (
		SELECT s::text FROM board_sequences s WHERE last > 0 UNION ALL SELECT c::text FROM board_cards c
		UNION ALL SELECT e::text FROM board_events e UNION ALL SELECT o::text FROM outbox o) rows (r)`), "\n")
}

func (b *boardRoom) events(t *testing.T, after int64, limit int) []board.Event {
	t.Helper()
	events, _, err := b.s.BoardEvents(t.Context(), b.tenant, b.room, after, limit)
	require.NoError(t, err)
	return events
}

// RELAY, "Durable Board hints"; issue, "Board": cards, events, revisions.
func TestBoardCardsAreWhatTheirEventsLeft(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	for _, kind := range []board.Kind{board.KindIdea, board.KindTask, board.KindQuestion, board.KindDecision} {
		made := b.created(kind)
		created := b.commit(t, made)
		require.Equal(t, int64(1), created.Revision)
		require.Equal(t, kind, created.Kind)
		card, err := b.s.BoardCard(t.Context(), b.tenant, b.room, made.Card)
		require.NoError(t, err)
		require.Equal(t, board.Card{
			ID: made.Card, Kind: kind, Revision: 1, Author: made.Author, CreatedAt: created.CreatedAt, UpdatedAt: created.CreatedAt,
			Position: created.Sequence, Content: made.Content, Signature: made.Signature,
		}, card)

		updated := b.event(board.EventUpdated, made.Card, 1)
		updated.Author, updated.Content, updated.Signature = b.members[store.RoleOwner].ID, []byte{0, 255, 0}, []byte{0}
		require.Equal(t, int64(2), b.commit(t, updated).Revision)
		require.Equal(t, int64(3), b.commit(t, b.event(board.EventComment, made.Card, 0)).Revision, "a comment fits any revision")
		require.Equal(t, int64(4), b.commit(t, b.event(board.EventOptionChosen, made.Card, 3)).Revision)
		approval := b.event(board.EventApproval, made.Card, 4)
		approval.Author, approval.Content = b.members[store.RoleController].ID, nil
		require.Empty(t, b.commit(t, approval).Content, "the type says it all")
		closed := b.commit(t, b.event(board.EventClosed, made.Card, 5))
		card, err = b.s.BoardCard(t.Context(), b.tenant, b.room, made.Card)
		require.NoError(t, err)
		require.Equal(t, board.Card{
			ID: made.Card, Kind: kind, Revision: 6, Closed: true, Author: made.Author, CreatedAt: created.CreatedAt,
			UpdatedAt: closed.CreatedAt, Position: created.Sequence, Content: updated.Content, Signature: updated.Signature,
		}, card, "of the first event its author and place, of the newest created or updated its content")

		for _, change := range []board.EventType{board.EventUpdated, board.EventOptionChosen, board.EventClosed} {
			require.Equal(t, board.ConflictError{Revision: 6, Closed: true}, b.conflict(t, b.event(change, made.Card, 6), "closed is final"))
		}
		require.Equal(t, int64(7), b.commit(t, b.event(board.EventComment, made.Card, 0)).Revision, "but for comments")
	}
	all := b.events(t, 0, store.MaxPage)
	require.Len(t, all, 4*7)
	for i, e := range all {
		require.Equal(t, int64(i+1), e.Sequence, "without gaps, though events were refused in between")
		require.False(t, i > 0 && e.CreatedAt.Before(all[i-1].CreatedAt))
	}
}

func TestBoardRefusals(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	task := b.created(board.KindTask)
	b.refuse(t, b.event(board.EventComment, uuid.New(), 0), store.ErrNotFound, "no card")
	b.commit(t, task)
	changed := func(e board.NewEvent, change func(*board.NewEvent)) board.NewEvent {
		change(&e)
		return e
	}
	update := b.event(board.EventUpdated, task.Card, 1)
	for name, c := range map[string]struct {
		change func(*board.NewEvent)
		want   error
	}{
		"no such room":               {func(e *board.NewEvent) { e.Room = uuid.New() }, store.ErrNotFound},
		"room of another tenant":     {func(e *board.NewEvent) { e.Tenant = uuid.New() }, store.ErrNotFound},
		"no such card":               {func(e *board.NewEvent) { e.Card = uuid.New() }, store.ErrNotFound},
		"nobody":                     {func(e *board.NewEvent) { e.Author = uuid.Nil }, store.ErrNotFound},
		"somebody else":              {func(e *board.NewEvent) { e.Author = uuid.New() }, store.ErrNotFound},
		"older revision":             {func(e *board.NewEvent) { e.Revision = 2 }, store.ErrConflict},
		"revision of the far future": {func(e *board.NewEvent) { e.Revision = math.MaxInt64 }, store.ErrConflict},
		"taken event id":             {func(e *board.NewEvent) { e.ID = task.ID }, store.ErrConflict},
		"no revision":                {func(e *board.NewEvent) { e.Revision = 0 }, store.ErrInvalid},
		"negative revision":          {func(e *board.NewEvent) { e.Revision = -1 }, store.ErrInvalid},
		"comment on a revision":      {func(e *board.NewEvent) { e.Type = board.EventComment }, store.ErrInvalid},
		"created on a revision":      {func(e *board.NewEvent) { e.Type, e.Kind = board.EventCreated, board.KindTask }, store.ErrInvalid},
		"unknown type":               {func(e *board.NewEvent) { e.Type = "deleted" }, store.ErrInvalid},
		"no type":                    {func(e *board.NewEvent) { e.Type = "" }, store.ErrInvalid},
		"a kind for an update":       {func(e *board.NewEvent) { e.Kind = board.KindTask }, store.ErrInvalid},
		"no kind":                    {func(e *board.NewEvent) { e.Type, e.Revision = board.EventCreated, 0 }, store.ErrInvalid},
		"unknown kind":               {func(e *board.NewEvent) { e.Type, e.Revision, e.Kind = board.EventCreated, 0, "epic" }, store.ErrInvalid},
		"no event id":                {func(e *board.NewEvent) { e.ID = uuid.Nil }, store.ErrInvalid},
		"no card id":                 {func(e *board.NewEvent) { e.Card = uuid.Nil }, store.ErrInvalid},
		"no content":                 {func(e *board.NewEvent) { e.Content = nil }, store.ErrInvalid},
		"much content":               {func(e *board.NewEvent) { e.Content = make([]byte, board.MaxContent+1) }, store.ErrInvalid},
		"no signature":               {func(e *board.NewEvent) { e.Signature = nil }, store.ErrInvalid},
		"much signature":             {func(e *board.NewEvent) { e.Signature = make([]byte, board.MaxSignature+1) }, store.ErrInvalid},
	} {
		b.refuse(t, changed(update, c.change), c.want, name)
	}
	again := b.created(board.KindTask)
	again.Card = task.Card
	b.refuse(t, again, store.ErrConflict, "taken card id")
	full := update
	full.Content, full.Signature = make([]byte, board.MaxContent), make([]byte, board.MaxSignature)
	require.Equal(t, int64(2), b.commit(t, full).Revision, "the largest event")
	require.Equal(t, board.ConflictError{Revision: 2}, b.conflict(t, b.event(board.EventUpdated, task.Card, 1), "stale"), "says what the card is at")

	_, err := b.s.RemoveParticipant(t.Context(), b.tenant, b.room, b.members[store.RoleAgent].ID, uuid.Nil)
	require.NoError(t, err)
	b.refuse(t, b.event(board.EventComment, task.Card, 0), store.ErrNotFound, "a former member")
	b.refuse(t, full, store.ErrNotFound, "a former member's committed event")
	subject(b.s, b.db).SetRoomState(t, b.tenant, b.room, store.RoomActive) // as after the rekey
	subject(b.s, b.db).ArchiveRoom(t, b.tenant, b.room)
	comment := b.event(board.EventComment, task.Card, 0)
	comment.Author = b.members[store.RoleOwner].ID
	b.refuse(t, comment, store.ErrConflict, "an archived room")
	require.Len(t, b.events(t, 0, 10), 2, "an archived room is read")
}

// Who may do what (issue, "Board": viewers read; owner and controller approve).
func TestBoardRoles(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	card := b.created(board.KindDecision)
	revision := b.commit(t, card).Revision
	for role, member := range b.members {
		for _, kind := range []board.EventType{
			board.EventCreated, board.EventUpdated, board.EventComment, board.EventOptionChosen, board.EventApproval,
		} {
			e := b.event(kind, card.Card, revision)
			e.Author = member.ID
			switch kind {
			case board.EventCreated:
				e.Card, e.Kind, e.Revision = uuid.New(), board.KindTask, 0
			case board.EventComment:
				e.Revision = 0
			default:
			}
			may := role != store.RoleViewer && (kind != board.EventApproval || role == store.RoleOwner || role == store.RoleController)
			if !may {
				b.refuse(t, e, store.ErrForbidden, string(role)+" "+string(kind))
				continue
			}
			if committed := b.commit(t, e); kind != board.EventCreated {
				revision = committed.Revision
			}
		}
	}
	closing := b.event(board.EventClosed, card.Card, revision)
	closing.Author = b.members[store.RoleViewer].ID
	b.refuse(t, closing, store.ErrForbidden, "viewer closed")
	closing.Author = b.members[store.RoleAgent].ID
	b.commit(t, closing)
}

// A lost answer can be asked for again: the same event commits once.
func TestBoardEventsAreCommittedOnce(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	first := b.commit(t, made)
	comment := b.event(board.EventComment, made.Card, 0)
	second := b.commit(t, comment)
	b.commit(t, b.event(board.EventClosed, made.Card, 2))

	before := b.contents(t)
	for want, e := range map[*board.Event]board.NewEvent{&first: made, &second: comment} {
		got, committed, err := b.s.AppendBoardEvent(t.Context(), e)
		require.NoError(t, err)
		require.False(t, committed)
		require.Equal(t, *want, got, "as it was committed, whatever has happened to the card since")
	}
	require.Equal(t, before, b.contents(t))
	for name, change := range map[string]func(*board.NewEvent){
		"author":    func(e *board.NewEvent) { e.Author = b.members[store.RoleOwner].ID },
		"card":      func(e *board.NewEvent) { e.Card = uuid.New() },
		"kind":      func(e *board.NewEvent) { e.Kind = board.KindIdea },
		"content":   func(e *board.NewEvent) { e.Content = []byte("other") },
		"signature": func(e *board.NewEvent) { e.Signature = []byte("other") },
		"type":      func(e *board.NewEvent) { e.Type, e.Kind = board.EventComment, "" },
	} {
		other := made
		change(&other)
		b.refuse(t, other, store.ErrConflict, "the same id with another "+name)
	}

	// All at once: one commits, the others learn of it.
	twin := b.event(board.EventComment, made.Card, 0)
	var committed [8]bool
	var events [8]board.Event
	var errs [8]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { events[i], committed[i], errs[i] = b.s.AppendBoardEvent(t.Context(), twin) })
	}
	wg.Wait()
	count := 0
	for i, err := range errs {
		require.NoError(t, err)
		require.Equal(t, events[0], events[i])
		if committed[i] {
			count++
		}
	}
	require.Equal(t, 1, count)
	require.Len(t, b.events(t, 0, 100), 4)
}

// FAULTS G06: ids are chosen by clients, so those of two tenants or rooms may be the same.
func TestBoardIDsBelongToTheRoom(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	mine := b.created(board.KindTask)
	b.commit(t, mine)
	before := b.contents(t)

	twins := []board.NewEvent{mine, mine}
	for i, tenant := range []uuid.UUID{subject(b.s, b.db).NewTenant(t), b.tenant} {
		room, members := b.newRoom(t, tenant)
		twins[i].Tenant, twins[i].Room, twins[i].Author, twins[i].Content = tenant, room, members[store.RoleOwner].ID, []byte{byte(i)}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(twins))
	for i, twin := range twins {
		wg.Go(func() {
			if _, committed, err := b.s.AppendBoardEvent(t.Context(), twin); err != nil || !committed {
				errs[i] = fmt.Errorf("%v %w", committed, err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Subset(t, b.contents(t), before, "the first one's rows are as they were")
	for _, twin := range append(twins, mine) {
		card, err := b.s.BoardCard(t.Context(), twin.Tenant, twin.Room, twin.Card)
		require.NoError(t, err)
		require.Equal(t, twin.Content, card.Content)
		events, more, err := b.s.BoardEvents(t.Context(), twin.Tenant, twin.Room, 0, 10)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, events, 1)
		require.Equal(t, int64(1), events[0].Sequence, "each room counts for itself")
	}
	_, err := b.s.BoardCard(t.Context(), twins[0].Tenant, b.room, mine.Card)
	require.ErrorIs(t, err, store.ErrNotFound, "a room of another tenant")
	_, _, err = b.s.BoardEvents(t.Context(), twins[0].Tenant, b.room, 0, 10)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// Exactly one of concurrent changes of a card wins each revision.
func TestBoardRevisionsAreWonOnce(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	b.commit(t, made)
	const writers, rounds = 20, 3
	for revision := int64(1); revision <= rounds; revision++ {
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for i := range errs {
			update := b.event(board.EventUpdated, made.Card, revision)
			wg.Go(func() { _, _, errs[i] = b.s.AppendBoardEvent(t.Context(), update) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			var conflict *board.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, revision+1, conflict.Revision)
		}
		require.Equal(t, 1, won, "revision %d", revision)
	}
	require.Len(t, b.events(t, 0, 100), 1+rounds)
}

// A cursor can be trusted while many write: whatever a reader has seen, nothing appears
// before it later, and nothing is missing.
func TestBoardSequenceUnderConcurrentWriters(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t, func(c *postgres.Config) { c.MaxConns = 8 })
	made := b.created(board.KindTask)
	b.commit(t, made)
	const writers, each = 8, 20
	var wg sync.WaitGroup
	errs := make(chan error, writers*each)
	for range writers {
		wg.Go(func() {
			for range each {
				_, _, err := b.s.AppendBoardEvent(t.Context(), b.event(board.EventComment, made.Card, 0))
				errs <- err
			}
		})
	}
	var seen []int64
	for after := int64(0); len(seen) < 1+writers*each; {
		allDone := len(errs) == writers*each // before the page: it then holds all there is
		events := b.events(t, after, 7)
		for _, e := range events {
			seen = append(seen, e.Sequence)
			after = e.Sequence
			require.Equal(t, e.Sequence, e.Revision, "of the one card")
		}
		if len(events) == 0 && allDone {
			break
		}
	}
	require.Len(t, seen, len(b.events(t, 0, store.MaxPage)), "an event appeared behind the cursor")
	wg.Wait()
	for range writers * each {
		require.NoError(t, <-errs)
	}
	for i, sequence := range seen {
		require.Equal(t, int64(i+1), sequence)
	}
}

// One commit is held open while another waits: the reader sees neither, and then both
// in the order of their sequences.
func TestBoardCommitsInTheOrderOfSequences(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	b.commit(t, made)
	held := b.event(board.EventComment, made.Card, 0)
	waits := b.event(board.EventComment, made.Card, 0)

	service := newOwner(pgtest.As(t, b.db.url, schema.ServiceRole)).connect(t)
	tx, err := service.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	row, err := postgres.AppendBoardEventIn(t.Context(), tx, held)
	require.NoError(t, err)
	require.Equal(t, "commit", row.Verdict)
	require.Equal(t, int64(2), row.Sequence)

	type result struct {
		event board.Event
		err   error
	}
	done := make(chan result, 1)
	go func() {
		event, _, err := b.s.AppendBoardEvent(t.Context(), waits)
		done <- result{event, err}
	}()
	require.Eventually(t, func() bool { return b.lockWaiters(t) == 1 }, patience, 5*time.Millisecond)
	require.Len(t, b.events(t, 0, 10), 1, "neither the held event nor the one behind it")
	require.Empty(t, b.events(t, 1, 10))
	select {
	case r := <-done:
		require.Fail(t, "the second event did not wait", "%v", r)
	default:
	}

	// Another room's Board goes on meanwhile.
	room, members := b.newRoom(t, b.tenant)
	other := b.created(board.KindTask)
	other.Room, other.Author = room, members[store.RoleAgent].ID
	b.commit(t, other)

	require.NoError(t, tx.Commit(t.Context()))
	second := <-done
	require.NoError(t, second.err)
	require.Equal(t, int64(3), second.event.Sequence)
	require.Equal(t, int64(3), second.event.Revision, "it saw what it waited for")
	after := b.events(t, 1, 10)
	require.Equal(t, []uuid.UUID{held.ID, waits.ID}, []uuid.UUID{after[0].ID, after[1].ID})
}

func (b *boardRoom) lockWaiters(t *testing.T) int {
	return query[int](t, b.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// A removal that was answered is in force for every event that commits after it, and
// waits for one that is being committed.
func TestBoardEventsAndRemovalsFollowOneAnother(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	b.commit(t, made)
	agent := b.members[store.RoleAgent].ID

	service := newOwner(pgtest.As(t, b.db.url, schema.ServiceRole)).connect(t)
	tx, err := service.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = postgres.AppendBoardEventIn(t.Context(), tx, b.event(board.EventComment, made.Card, 0))
	require.NoError(t, err)
	removed := make(chan error, 1)
	go func() {
		_, err := b.s.RemoveParticipant(t.Context(), b.tenant, b.room, agent, uuid.Nil)
		removed <- err
	}()
	require.Eventually(t, func() bool { return b.lockWaiters(t) == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-removed)
	require.Len(t, b.events(t, 0, 10), 2)
	b.refuse(t, b.event(board.EventComment, made.Card, 0), store.ErrNotFound, "removed")

	// The other way round: an event that comes while its author is being removed.
	removing := b.db.connect(t)
	tx, err = removing.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM rooms WHERE id = $1 FOR UPDATE", b.room)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "UPDATE participants SET left_at = now() WHERE id = $1", b.members[store.RoleOwner].ID)
	require.NoError(t, err)
	late := b.event(board.EventComment, made.Card, 0)
	late.Author = b.members[store.RoleOwner].ID
	refused := make(chan error, 1)
	go func() {
		_, _, err := b.s.AppendBoardEvent(t.Context(), late)
		refused <- err
	}()
	require.Eventually(t, func() bool { return b.lockWaiters(t) == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, <-refused, store.ErrNotFound)
}

// FAULTS D10: pages in both directions hold each row once, whatever the limit, also
// where all have the same time.
func TestBoardPages(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	const rows = 250
	agent := b.members[store.RoleAgent].ID
	b.db.exec(t, `WITH s AS (INSERT INTO board_sequences VALUES ($1, $2, $4)), c AS (
			INSERT INTO board_cards (tenant_id, room_id, id, kind, position, content_position, last_position)
			SELECT $1, $2, gen_random_uuid(), 'task', n, n, n FROM generate_series(1, $4::int) n RETURNING id, position)
		INSERT INTO board_events (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature, created_at)
		SELECT $1, $2, position, gen_random_uuid(), id, 'created', 1, $3, 'x', 'x', now() FROM c`, b.tenant, b.room, agent, rows)
	for _, limit := range []int{1, 2, 100, 250, 499, 500} {
		var sequences, cards, newest []int64
		for after, more := int64(0), true; more; after = sequences[len(sequences)-1] {
			var events []board.Event
			var err error
			events, more, err = b.s.BoardEvents(t.Context(), b.tenant, b.room, after, limit)
			require.NoError(t, err)
			require.Len(t, events, min(limit, rows-len(sequences)))
			for _, e := range events {
				sequences = append(sequences, e.Sequence)
			}
		}
		walk := func(page store.Page) (positions []int64) {
			for more := true; more; page.From = positions[len(positions)-1] {
				var cards []board.Card
				var err error
				cards, more, err = b.s.BoardCards(t.Context(), b.tenant, b.room, page)
				require.NoError(t, err)
				for _, c := range cards {
					positions = append(positions, c.Position)
				}
			}
			return positions
		}
		cards, newest = walk(store.Page{Limit: limit}), walk(store.Page{Limit: limit, Newest: true})
		slices.Reverse(newest)
		require.Len(t, sequences, rows)
		require.Equal(t, sequences, cards)
		require.Equal(t, sequences, newest)
		require.True(t, slices.IsSorted(sequences))
		require.Len(t, slices.Compact(sequences), rows)
	}
}

// FAULTS G07: a card without comments, an empty Board, bad limits.
func TestBoardEdgesOfPages(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	events, more, err := b.s.BoardEvents(t.Context(), b.tenant, b.room, 0, 10)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, events)
	cards, more, err := b.s.BoardCards(t.Context(), b.tenant, b.room, store.Page{Limit: 10})
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, cards)
	_, err = b.s.BoardCard(t.Context(), b.tenant, b.room, uuid.New())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = b.s.BoardEvents(t.Context(), b.tenant, uuid.New(), 0, 10)
	require.ErrorIs(t, err, store.ErrNotFound, "no such room")
	_, _, err = b.s.BoardCards(t.Context(), b.tenant, uuid.New(), store.Page{Limit: 10})
	require.ErrorIs(t, err, store.ErrNotFound)

	for _, limit := range []int{0, -1, 501, 1 << 31, math.MinInt} {
		_, _, err := b.s.BoardEvents(t.Context(), b.tenant, b.room, 0, limit)
		require.ErrorIs(t, err, store.ErrInvalid)
		_, _, err = b.s.BoardCards(t.Context(), b.tenant, b.room, store.Page{Limit: limit})
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, _, err = b.s.BoardEvents(t.Context(), b.tenant, b.room, -1, 10)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, _, err = b.s.BoardCards(t.Context(), b.tenant, b.room, store.Page{From: -1, Limit: 10, Newest: true})
	require.ErrorIs(t, err, store.ErrInvalid)
	_, _, err = b.s.BoardCards(t.Context(), b.tenant, b.room, store.Page{Limit: 10, Since: time.Now()})
	require.ErrorIs(t, err, store.ErrInvalid, "cards are not left out by time")
	events, more, err = b.s.BoardEvents(t.Context(), b.tenant, b.room, math.MaxInt64, 10)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, events)
}

// What a page holds in memory is bounded by its content too.
func TestBoardPagesEndByBytes(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	const rows = 70 // of 64 KiB: more than board.PageBytes
	for range rows {
		e := b.created(board.KindTask)
		e.Content = bytes.Repeat([]byte{7}, board.MaxContent)
		b.commit(t, e)
	}
	const first = board.PageBytes / board.MaxContent
	events, more, err := b.s.BoardEvents(t.Context(), b.tenant, b.room, 0, store.MaxPage)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, events, first)
	events, more, err = b.s.BoardEvents(t.Context(), b.tenant, b.room, first, store.MaxPage)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, events, rows-first)
	for _, newest := range []bool{false, true} {
		cards, more, err := b.s.BoardCards(t.Context(), b.tenant, b.room, store.Page{Limit: rows, Newest: newest})
		require.NoError(t, err)
		require.True(t, more)
		require.Len(t, cards, first)
	}
}

// boardTables are the Board's and the outbox, in the order in which rows can be inserted.
var boardTables = []string{"board_sequences", "board_cards", "board_events", "outbox"}

// boardRow inserts the table's row of a room's first event.
func boardRow(table string, tenant, room, card, author uuid.UUID) string {
	return strings.NewReplacer("TENANT", tenant.String(), "ROOM", room.String(), "CARD", card.String(), "AUTHOR", author.String()).Replace(map[string]string{
		"board_sequences": "INSERT INTO board_sequences (tenant_id, room_id) VALUES ('TENANT', 'ROOM')",
		"board_cards": `INSERT INTO board_cards (tenant_id, room_id, id, kind, position, content_position, last_position)
			VALUES ('TENANT', 'ROOM', 'CARD', 'task', 1, 1, 1)`,
		"board_events": `INSERT INTO board_events (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature)
			VALUES ('TENANT', 'ROOM', 1, 'CARD', 'CARD', 'created', 1, 'AUTHOR', 'x', 'x')`,
		"outbox": `INSERT INTO outbox (tenant_id, room_id, kind, participant_id, payload)
			VALUES ('TENANT', 'ROOM', 'room.event', 'AUTHOR', '{}')`,
	}[table])
}

// The policies on their own: who writes must be a member whose role may, and a device
// reads the Boards of its rooms only.
func TestBoardPolicies(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	b.commit(t, made)
	tenant := subject(b.s, b.db).NewTenant(t)
	otherRoom, others := b.newRoom(t, tenant)
	service := newOwner(pgtest.As(t, b.db.url, schema.ServiceRole)).connect(t)
	counts := func(settings map[string]string) map[string]int {
		found := map[string]int{}
		inTransaction(t, service, settings, func(tx pgx.Tx) {
			for _, table := range boardTables {
				var may bool
				require.NoError(t, tx.QueryRow(t.Context(), "SELECT has_table_privilege($1, 'SELECT')", table).Scan(&may))
				if !may {
					continue
				}
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				if n > 0 {
					found[table] = n
				}
			}
		})
		return found
	}
	mine := map[string]string{"relay.tenant": b.tenant.String(), "relay.actor": "service"}
	require.Equal(t, map[string]int{"board_sequences": 1, "board_cards": 1, "board_events": 1}, counts(mine), "the outbox is not read back")
	require.Equal(t, map[string]int{"outbox": 1}, counts(map[string]string{"relay.actor": "maintenance"}), "ids and nothing else")
	require.Empty(t, counts(map[string]string{"relay.tenant": tenant.String(), "relay.actor": "service"}))
	require.Empty(t, counts(map[string]string{"relay.actor": "service"}))
	require.Empty(t, counts(nil))
	require.Equal(t, map[string]int{"board_cards": 1, "board_events": 1}, counts(asDevice(b.tenant, b.members[store.RoleViewer].Device)))
	require.Empty(t, counts(asDevice(b.tenant, others[store.RoleAgent].Device)))
	require.Empty(t, counts(asDevice(tenant, b.members[store.RoleViewer].Device)))
	_, err := b.s.RemoveParticipant(t.Context(), b.tenant, b.room, b.members[store.RoleViewer].ID, uuid.Nil)
	require.NoError(t, err)
	require.Empty(t, counts(asDevice(b.tenant, b.members[store.RoleViewer].Device)), "a former member")

	insert := func(room, author uuid.UUID, kind string) string {
		return fmt.Sprintf(`INSERT INTO board_events (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature)
			VALUES ('%s', '%s', 9, gen_random_uuid(), '%s', '%s', 2, '%s', 'x', 'x')`, b.tenant, room, made.Card, kind, author)
	}
	for name, statement := range map[string]string{
		"viewer":                   insert(b.room, b.members[store.RoleViewer].ID, "comment"),
		"agent approves":           insert(b.room, b.members[store.RoleAgent].ID, "approval"),
		"member of another tenant": insert(b.room, others[store.RoleOwner].ID, "comment"),
		"another room":             insert(otherRoom, b.members[store.RoleOwner].ID, "comment"),
	} {
		inTransaction(t, service, mine, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), statement)
			require.ErrorContains(t, err, "row-level security", name)
		})
	}
	for _, statement := range []string{
		"UPDATE board_events SET content = 'y'", "DELETE FROM board_events", "DELETE FROM board_cards",
		"DELETE FROM board_sequences", "UPDATE board_cards SET kind = 'idea'", "UPDATE outbox SET payload = '{}'", "UPDATE outbox SET kind = 'room.event'",
	} {
		inTransaction(t, service, mine, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), statement)
			require.ErrorContains(t, err, "permission denied", statement)
		})
	}
}
