// Package outbox brings the server's own rows from the outbox of the store into the
// inboxes: Board hints (RELAY, "Durable Board hints") and room events.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
)

// Config of Start. Outbox, Rosters and Inboxes are required.
type Config struct {
	Outbox  store.Outbox
	Rosters store.Rosters
	Inboxes inbox.Writer

	// Poll is the pause after which the outbox is looked at without a Wake: rows of other
	// nodes, and those whose lease has run out; default 1 s.
	Poll time.Duration
	// Lease is how long others leave claimed rows alone, and so how long one that could
	// not be published waits at first; default 5 s. A batch gets half of it.
	Lease time.Duration
	Batch int // rows of one claim; default 128
	Rooms int // rooms published at once; default 8

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nowhere
}

func (c Config) withDefaults() Config {
	setDefault(&c.Poll, time.Second)
	setDefault(&c.Lease, 5*time.Second)
	setDefault(&c.Batch, 128)
	setDefault(&c.Rooms, 8)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "outbox")
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func setDefault[T int | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

func (c Config) validate() error {
	if c.Outbox == nil || c.Rosters == nil || c.Inboxes == nil {
		return errors.New("outbox: an outbox, rosters and inboxes are required")
	}
	if c.Poll < 0 || c.Lease < 0 || c.Batch < 0 || c.Rooms < 0 {
		return errors.New("outbox: a limit is negative")
	}
	return nil
}

// Publisher brings rows from the outbox into the inboxes of those who are entitled to
// them at that moment: the current participants of the room, its author too, or the one
// of them whom the row is for, by a roster that is looked up after the rows were claimed.
// (The relay looks again before it replays one, and before it pushes a Board hint.) Rows
// of a room are written in the order of their positions. Nobody is entitled to the Board
// hints of an archived room, whose members still hear what happens in it. A row that
// nobody is entitled to is settled without being written.
//
// What could not be published stays in the outbox until its lease has run out, and the
// later rows of its room with it. A row is settled only after it was written, so that it
// may be written twice, each time with the same bytes, and is never lost. Rows of a kind
// that this program does not know are left to a newer one, which put them there.
type Publisher struct {
	cfg     Config
	metrics *metrics
	wake    chan struct{}
	closing chan struct{}
	close   sync.Once
	done    chan struct{}

	ctx    context.Context // of what is being published; ends when Close loses patience
	cancel context.CancelFunc
}

// Start starts one; Close ends it. Any number of nodes may have one each.
func Start(cfg Config) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("outbox: register metrics: %w", err)
	}
	p := &Publisher{
		cfg: cfg, metrics: metrics, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.run()
	return p, nil
}

// Wake says that something was committed that inboxes are told of. It never blocks.
func (p *Publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Close claims no more rows and waits for those that are being published; when ctx
// ends first they are left to the next publisher. It may be called again.
func (p *Publisher) Close(ctx context.Context) error {
	p.close.Do(func() { close(p.closing) })
	defer p.metrics.unregister()
	select {
	case <-p.done:
		p.cancel()
		return nil
	case <-ctx.Done():
	}
	p.cancel()
	<-p.done
	return fmt.Errorf("close outbox publisher: %w", ctx.Err())
}

// run publishes after each wake and each poll, as long as there is something.
func (p *Publisher) run() {
	defer close(p.done)
	poll := time.NewTicker(p.cfg.Poll)
	defer poll.Stop()
	for {
		for p.publishBatch() {
		}
		select {
		case <-p.closing:
			return
		case <-p.wake:
		case <-poll.C:
			p.count()
		}
	}
}

func (p *Publisher) isClosing() bool {
	select {
	case <-p.closing:
		return true
	default:
		return false
	}
}

// countMost bounds what counting the outbox costs.
const countMost = 10_000

func (p *Publisher) count() {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Lease)
	defer cancel()
	waiting, err := p.cfg.Outbox.WaitingRows(ctx, countMost)
	if err != nil {
		return // the claim that follows says so
	}
	p.metrics.pending.Set(float64(waiting))
}

// publishBatch claims and publishes some rows. It reports whether to go on at once:
// the outbox had more than a batch, and all of the batch was published.
func (p *Publisher) publishBatch() bool {
	if p.isClosing() {
		return false
	}
	// The lease began at the earliest now, so what is done by the end of this context is
	// done while nobody else has the rows.
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Lease/2)
	defer cancel()
	rows, err := p.cfg.Outbox.ClaimRows(ctx, p.cfg.Batch, p.cfg.Lease)
	if err != nil {
		p.report("claim", err)
		return false
	}
	if len(rows) == 0 {
		return false
	}
	published, err := p.publish(ctx, rows)
	if err != nil {
		p.report("publish", err)
	}
	p.metrics.add(rows, published)
	return p.settle(published) && len(published) == p.cfg.Batch
}

// settle has time of its own: what took the batch's time was published nonetheless.
func (p *Publisher) settle(published []store.OutboxRow) bool {
	if len(published) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Lease/2)
	defer cancel()
	if err := p.cfg.Outbox.SettleRows(ctx, published); err != nil {
		p.report("settle", err)
		return false
	}
	return true
}

// publish publishes the rows, several rooms at once. It returns those to settle and
// the first error, which stands for all in the log.
func (p *Publisher) publish(ctx context.Context, rows []store.OutboxRow) (published []store.OutboxRow, first error) {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
	)
	free := make(chan struct{}, p.cfg.Rooms)
	for _, room := range byRoom(rows) {
		free <- struct{}{} // every call of a worker ends with ctx
		workers.Go(func() {
			defer func() { <-free }()
			done, err := p.publishRoom(ctx, room)
			mu.Lock()
			defer mu.Unlock()
			published = append(published, room[:done]...)
			if first == nil {
				first = err
			}
		})
	}
	workers.Wait()
	return published, first
}

// byRoom splits rows, which are in order within a room, into those of each.
func byRoom(rows []store.OutboxRow) [][]store.OutboxRow {
	var rooms [][]store.OutboxRow
	index := make(map[uuid.UUID]int)
	for _, row := range rows {
		i, known := index[row.Room]
		if !known {
			i = len(rooms)
			index[row.Room] = i
			rooms = append(rooms, nil)
		}
		rooms[i] = append(rooms[i], row)
	}
	return rooms
}

// publishRoom writes the rows of one room and returns how many are done with.
func (p *Publisher) publishRoom(ctx context.Context, rows []store.OutboxRow) (done int, err error) {
	if p.isClosing() {
		return 0, nil
	}
	roster, err := p.cfg.Rosters.Roster(ctx, rows[0].Tenant, rows[0].Room)
	if errors.Is(err, store.ErrNotFound) {
		return len(rows), nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up roster: %w", err)
	}
	for i := range rows {
		if p.isClosing() {
			return i, nil
		}
		if err := p.write(ctx, &rows[i], roster); err != nil {
			return i, err
		}
	}
	return len(rows), nil
}

func (p *Publisher) write(ctx context.Context, row *store.OutboxRow, roster store.Roster) error {
	kind, known := kindOf(row.Kind)
	if !known {
		return fmt.Errorf("%q: %w", row.Kind, errUnknownKind)
	}
	to := recipients(kind, row.To, roster)
	if len(to) == 0 {
		return nil
	}
	_, err := p.cfg.Inboxes.Write(ctx, inbox.Message{
		Room: row.Room, To: to, Kind: kind, Payload: row.Payload, Received: time.Now(),
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", row.Kind, err)
	}
	return nil
}

// errUnknownKind keeps a row from being written as something else. Only a newer node can
// have put it there, while both run.
var errUnknownKind = errors.New("a kind of row that this program does not know")

// kinds are those of rows that the server writes of its own.
var kinds = [...]inbox.RowKind{inbox.RowBoardUpdate, inbox.RowRoomEvent}

func kindOf(name string) (kind inbox.RowKind, known bool) {
	for _, kind := range kinds {
		if name == kind.String() {
			return kind, true
		}
	}
	return 0, false
}

// recipients are those who are in the room, or the one of them whom the row is for
// (uuid.Nil: all). An archived room has no Board to look at.
func recipients(kind inbox.RowKind, only uuid.UUID, roster store.Roster) []uuid.UUID {
	if kind == inbox.RowBoardUpdate && roster.Room.State == store.RoomArchived {
		return nil
	}
	to := make([]uuid.UUID, 0, len(roster.Participants))
	for _, participant := range roster.Participants {
		if only == uuid.Nil || only == participant.ID {
			to = append(to, participant.ID)
		}
	}
	return to
}

// report logs what failed, unless it is the end that Close made.
func (p *Publisher) report(step string, err error) {
	if p.ctx.Err() != nil {
		return
	}
	p.cfg.Logger.WarnContext(p.ctx, "rows of the server's own are delayed", "step", step, "error", err)
}
