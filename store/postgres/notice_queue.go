package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Bounds of the notices of one room.
const (
	noticeBatch   = 64    // share a commit
	noticeWaiters = 1_024 // wait for one
)

var errNoticesBusy = errors.New("too many notices of this room wait")

// noticeQueues lets the notices of one room share commits, since each commit holds the
// room until it is on disk. Whoever finds nobody writing in its room writes at once; what
// comes meanwhile waits, and when that is done, the first who waits writes for all who do.
// Other rooms' notices go their own way: a room that is held up holds up nobody else.
type noticeQueues struct {
	store *Store

	mu    sync.Mutex // guards the following
	rooms map[noticeRoom][]*pendingNotice
}

type noticeRoom struct{ tenant, room uuid.UUID }

// pendingNotice is a notice and its caller, who waits for either channel.
type pendingNotice struct {
	ask  sqlcgen.NoticeAppendParams
	done chan noticeAnswer     // has room for the one answer
	lead chan []*pendingNotice // has room for one: write these, of which this is the first
}

type noticeAnswer struct {
	verdict string
	err     error
}

func newNoticeQueues(s *Store) *noticeQueues {
	return &noticeQueues{store: s, rooms: make(map[noticeRoom][]*pendingNotice)}
}

// append returns the database's verdict. One whose context ends while it waits is not
// written; one that is being written waits for the outcome, which is bounded.
func (q *noticeQueues) append(ctx context.Context, ask sqlcgen.NoticeAppendParams) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, q.store.cfg.Timeout)
	defer cancel()
	p := &pendingNotice{ask: ask, done: make(chan noticeAnswer, 1), lead: make(chan []*pendingNotice, 1)}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := q.join(p); err != nil {
		return "", err
	}
	gaveUp := ctx.Done()
	for {
		select {
		case answer := <-p.done:
			return answer.verdict, answer.err
		case batch := <-p.lead:
			q.write(ctx, batch)
			q.handOver(p.room())
		case <-gaveUp:
			if q.leave(p) {
				return "", ctx.Err()
			}
			gaveUp = nil
		}
	}
}

func (p *pendingNotice) room() noticeRoom { return noticeRoom{p.ask.TenantID, p.ask.RoomID} }

// join makes p lead at once where nobody writes in its room.
func (q *noticeQueues) join(p *pendingNotice) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, busy := q.rooms[p.room()]
	switch {
	case !busy:
		q.rooms[p.room()] = nil
		p.lead <- []*pendingNotice{p}
	case len(waiting) >= noticeWaiters:
		return errNoticesBusy
	default:
		q.rooms[p.room()] = append(waiting, p)
	}
	return nil
}

// leave takes p back; false when somebody has taken it to write it, perhaps p itself.
func (q *noticeQueues) leave(p *pendingNotice) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.rooms[p.room()]
	for i := range waiting {
		if waiting[i] == p {
			q.rooms[p.room()] = append(waiting[:i:i], waiting[i+1:]...)
			return true
		}
	}
	return false
}

// handOver makes the first who waits write for all, or leaves the room to whoever comes.
func (q *noticeQueues) handOver(room noticeRoom) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.rooms[room]
	if len(waiting) == 0 {
		delete(q.rooms, room)
		return
	}
	n := min(len(waiting), noticeBatch)
	q.rooms[room] = waiting[n:]
	waiting[0].lead <- waiting[:n:n]
}

// write answers every notice of a batch, all of one room. Where the database blames a
// notice for the failure, each is tried alone. The leader's own end does not end it.
func (q *noticeQueues) write(ctx context.Context, batch []*pendingNotice) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.store.cfg.Timeout)
	defer cancel()
	verdicts, err := q.commit(ctx, batch)
	if len(batch) > 1 && blamesData(err) {
		for i := range batch {
			q.write(ctx, batch[i:i+1])
		}
		return
	}
	for i, p := range batch {
		if err != nil {
			p.done <- noticeAnswer{err: mapError(err)}
			continue
		}
		p.done <- noticeAnswer{verdict: verdicts[i]}
	}
}

// commit decides on the batch in one transaction and one round trip. The room is held
// first, so that each statement sees what was before it, those of the batch included.
func (q *noticeQueues) commit(ctx context.Context, batch []*pendingNotice) ([]string, error) {
	room := batch[0].room()
	verdicts := make([]string, len(batch))
	return verdicts, q.store.lend(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		sent := &pgx.Batch{}
		before := asService(room.tenant).holdingRoom(room.tenant, room.room).queue(sent)
		for _, p := range batch {
			queueNotice(sent, p.ask)
		}
		results := conn.SendBatch(ctx, sent)
		for range before {
			if _, err := results.Exec(); err != nil {
				return errors.Join(err, results.Close())
			}
		}
		for i := range verdicts {
			if err := results.QueryRow().Scan(&verdicts[i]); err != nil {
				return errors.Join(err, results.Close())
			}
		}
		return results.Close()
	})
}

// queueNotice's parameters are in the order of the generated method.
func queueNotice(batch *pgx.Batch, ask sqlcgen.NoticeAppendParams) {
	batch.Queue(sqlcgen.NoticeAppend, ask.Rights, ask.TenantID, ask.RoomID, ask.SenderID, ask.WellFormed, ask.Envelope,
		ask.Gen, ask.SentAt, ask.SkewSeconds, ask.ExpiresAt, ask.LifetimeSeconds, ask.Cap, ask.NoticeID, ask.KID)
}
