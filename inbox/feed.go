package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	feedDispatchers = 4
	feedQueue       = 8192 // live messages waiting per dispatcher
	// feedSweep is how often subscriptions are checked for dropped messages. A drop
	// is also reported by the client, but only the first one of a series.
	feedSweep   = time.Second
	joinTimeout = 5 * time.Second
)

// feed is the live feed. Where this process is the only writer, all live messages
// are its own, and its committers hand them over: through NATS, four goroutines in turn would have to
// wake up for each. Elsewhere every joined room has a subscription, which has no goroutine:
// messages go to a few dispatchers by room, so that each room keeps its order.
type feed struct {
	conn    *nats.Conn
	sink    Sink
	metrics *metrics
	logger  *slog.Logger
	own     bool // all live messages are this process'

	mu    sync.RWMutex                     // guards the following field
	rooms map[uuid.UUID]*nats.Subscription // those that are joined; nil where own

	dispatchers []*dispatcher
	overflowed  atomic.Bool // own messages were dropped, and the sink was not told yet
	reconnected chan struct{}
	dropped     chan struct{}
	closing     context.Context
	stop        context.CancelFunc
	wait        sync.WaitGroup
}

type dispatcher struct {
	messages chan *nats.Msg
	own      chan *Live
	missed   chan uuid.UUID
}

func newFeed(config Config, m *metrics) *feed {
	f := &feed{
		sink: config.Sink, metrics: m, logger: config.Logger, own: config.Mode == Embedded,
		rooms:       make(map[uuid.UUID]*nats.Subscription),
		reconnected: make(chan struct{}, 1), dropped: make(chan struct{}, 1),
	}
	f.closing, f.stop = context.WithCancel(context.Background())
	count := feedDispatchers
	if f.own {
		count = 1 // which is busy enough to be awake
	}
	for range count {
		d := &dispatcher{missed: make(chan uuid.UUID)}
		if f.own {
			d.own = make(chan *Live, feedQueue)
		} else {
			d.messages = make(chan *nats.Msg, feedQueue)
		}
		f.dispatchers = append(f.dispatchers, d)
	}
	return f
}

// options makes the connection report whatever may lose live messages.
func (f *feed) options() []nats.Option {
	return []nats.Option{
		nats.ReconnectHandler(func(*nats.Conn) { signal(f.reconnected) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			f.logger.Warn("live feed", "error", err)
			signal(f.dropped)
		}),
	}
}

func (f *feed) start(conn *nats.Conn) {
	f.conn = conn
	for _, d := range f.dispatchers {
		f.wait.Go(func() { f.dispatch(d) })
	}
	f.wait.Go(f.watch)
}

// handOver takes a message that was stored, where the feed's messages are its own. It does not
// block: what nobody can take in time, the readers of the inboxes find. From then until the sink
// is told, nothing is taken: a row that came before would hide the dropped one, as connections
// read on from the newest that they had.
func (f *feed) handOver(m *Message, ids []wire.StreamID, announce []bool) {
	if !f.own || f.overflowed.Load() || !f.joined(m.Room) {
		return
	}
	live := &Live{Room: m.Room, Kind: m.Kind, Payload: bytes.Clone(m.Payload), Received: m.Received}
	live.Copies = make([]Copy, 0, len(ids))
	for i, id := range ids {
		if announce == nil || announce[i] {
			live.Copies = append(live.Copies, Copy{Participant: m.To[i], ID: id})
		}
	}
	select {
	case f.dispatcherOf(m.Room).own <- live:
	default:
		f.overflowed.Store(true)
		signal(f.dropped)
	}
}

// close ends the feed; the connection must be closed already, or be closed next.
func (f *feed) close() {
	f.stop()
	f.wait.Wait()
}

func (f *feed) dispatcherOf(room uuid.UUID) *dispatcher {
	return f.dispatchers[int(room[15])%len(f.dispatchers)]
}

func (f *feed) dispatch(d *dispatcher) {
	var live Live
	for {
		select {
		case msg := <-d.messages:
			room, ok := liveRoom(msg.Subject)
			if !ok {
				continue
			}
			switch {
			case string(msg.Data) == liveMissed:
				f.metrics.missed.Inc()
				f.sink.Missed(room)
			case parseLive(&live, msg.Data):
				live.Room = room
				f.sink.Deliver(&live)
			}
		case own := <-d.own:
			f.sink.Deliver(own)
		case room := <-d.missed:
			f.settle(d)
			f.metrics.missed.Inc()
			f.sink.Missed(room)
		case <-f.closing.Done():
			return
		}
	}
}

// settle delivers what was handed over before a drop, and lets messages be handed over again:
// each that was not is stored, so that who is told now finds it.
func (f *feed) settle(d *dispatcher) {
	for range len(d.own) {
		f.sink.Deliver(<-d.own)
	}
	f.overflowed.Store(false)
}

func (f *feed) joined(room uuid.UUID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, joined := f.rooms[room]
	return joined
}

// watch turns whatever may have lost messages into calls of Missed, each made after
// the loss, so that reading the inbox then brings what was lost.
func (f *feed) watch() {
	dropped := make(map[*nats.Subscription]int)
	ticker := time.NewTicker(feedSweep)
	defer ticker.Stop()
	for {
		select {
		case <-f.reconnected:
			// Only once the server has the subscriptions again, nothing more is lost.
			if flush(f.closing, f.conn, joinTimeout) == nil {
				f.missedAll()
			} else if f.conn.IsConnected() {
				signal(f.reconnected)
			}
		case <-f.dropped:
		case <-ticker.C:
		case <-f.closing.Done():
			return
		}
		f.sweep(dropped)
	}
}

func (f *feed) missed(d *dispatcher, room uuid.UUID) {
	select {
	case d.missed <- room:
	case <-f.closing.Done():
	}
}

func (f *feed) missedAll() { f.missed(f.dispatchers[0], uuid.Nil) }

func (f *feed) sweep(dropped map[*nats.Subscription]int) {
	if f.own {
		if f.overflowed.Load() {
			f.missedAll()
		}
		return
	}
	var rooms []uuid.UUID
	f.mu.RLock()
	for room, subscription := range f.rooms {
		if grown(dropped, subscription) {
			rooms = append(rooms, room)
		}
	}
	f.mu.RUnlock()
	for subscription := range dropped {
		if !subscription.IsValid() {
			delete(dropped, subscription)
		}
	}
	for _, room := range rooms {
		f.missed(f.dispatcherOf(room), room)
	}
}

func grown(dropped map[*nats.Subscription]int, subscription *nats.Subscription) bool {
	n, err := subscription.Dropped()
	if err != nil || n == dropped[subscription] {
		return false
	}
	dropped[subscription] = n
	return true
}

var errNotJoined = errors.New("live feed not joined")

// join implements Feed.
func (f *feed) join(ctx context.Context, room uuid.UUID) error {
	if f.own {
		f.mu.Lock()
		f.rooms[room] = nil
		f.mu.Unlock()
		return nil
	}
	subscription, err := f.conn.ChanSubscribe(liveSubject(room), f.dispatcherOf(room).messages)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotJoined, err)
	}
	if err := flush(ctx, f.conn, joinTimeout); err != nil {
		_ = subscription.Unsubscribe()
		return fmt.Errorf("%w: %w", errNotJoined, err)
	}
	f.mu.Lock()
	before := f.rooms[room]
	f.rooms[room] = subscription
	f.mu.Unlock()
	if before != nil {
		_ = before.Unsubscribe()
	}
	return nil
}

// leave implements Feed.
func (f *feed) leave(room uuid.UUID) {
	f.mu.Lock()
	subscription := f.rooms[room]
	delete(f.rooms, room)
	f.mu.Unlock()
	if subscription != nil {
		_ = subscription.Unsubscribe() // an error means that the connection is closed
	}
}
