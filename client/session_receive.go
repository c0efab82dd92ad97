package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/blake2b"
	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// Poll reads what the inbox has after the cursor, up to limit rows (at most 100; 0: 100), hands
// it over, and returns whether more waits. Items that were saved before and not taken, as the
// program was killed, come first. An item counts as taken when take returns nil; an error ends
// the Poll and is returned, and the item comes again. Where nothing more waits, it also sends
// what is Pending and what is due, such as requests for keys.
func (s *Session) Poll(ctx context.Context, limit int, take func(Item) error) (more bool, err error) {
	if err := s.startReading(); err != nil {
		return false, err
	}
	defer release(s.reading)
	if limit <= 0 || limit > pollRows {
		limit = pollRows
	}
	if err := s.handOver(take); err != nil {
		return false, err
	}
	cursor, err := s.cursor()
	if err != nil {
		return false, err
	}
	err = s.link.with(ctx, func(conn *Conn) error {
		more, err = conn.page(ctx, cursor, limit, s.gaps(ctx), func(batch []row) error { return s.rows(ctx, batch, take) })
		return err
	})
	if err == nil {
		err = s.handOver(take)
	}
	if err == nil && !more { // what waits to be done follows the whole backlog (FAULTS I04)
		err = s.tend(ctx, take)
	}
	return more, taken(err, "poll")
}

// tend does what is due and sends what waits, once.
func (s *Session) tend(ctx context.Context, take func(Item) error) error {
	_, late := s.due(ctx)
	if refusedRequest(late) {
		late = nil
	}
	_, err := s.flushAll(ctx, false)
	if err := errors.Join(late, err); err != nil {
		return err
	}
	return s.handOver(take) // what is due may have failed an envelope for good
}

// Listen is Poll that goes on: it follows the inbox and connects again when the connection is
// lost, until ctx ends (nil) or there is no point in trying.
func (s *Session) Listen(ctx context.Context, take func(Item) error) error {
	return s.ListenWith(ctx, ListenOptions{}, take)
}

// ListenOptions are told how it goes. Nil members are not.
type ListenOptions struct {
	CaughtUp func()                               // everything that was retained has been handed over
	Lost     func(err error, pause time.Duration) // the connection; the next attempt follows after the pause
}

// ListenWith is Listen, and tells how it goes.
func (s *Session) ListenWith(ctx context.Context, options ListenOptions, take func(Item) error) error {
	if err := s.startReading(); err != nil {
		return err
	}
	defer release(s.reading)
	if err := s.handOver(take); err != nil {
		return taken(err, "listen")
	}
	err := s.link.run(ctx, func(ctx context.Context, conn *Conn) error { return s.follow(ctx, conn, options, take) }, options.Lost)
	return taken(err, "listen")
}

// follow reads and sends over one connection until it ends. What waits to be done, and what is
// due, follows the backlog: it was meant for the state at its end (FAULTS I04).
func (s *Session) follow(ctx context.Context, conn *Conn, options ListenOptions, take func(Item) error) error {
	group, ctx := errgroup.WithContext(ctx)
	read := make(chan struct{})
	group.Go(func() error {
		caughtUp := func() error {
			close(read)
			if options.CaughtUp != nil {
				options.CaughtUp()
			}
			return nil
		}
		cursor := func() string {
			at, err := s.cursor()
			if err != nil {
				return "0" // the next row says why
			}
			return at
		}
		return conn.follow(ctx, cursor, s.gaps(ctx), caughtUp, func(batch []row) error { return s.rows(ctx, batch, take) })
	})
	group.Go(func() error {
		select {
		case <-read:
			return s.maintain(ctx, take)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return group.Wait()
}

// Import takes an envelope that came by another way than the inbox, such as Device.History, as
// if it had come from there: it is verified, opened and handed over, once, or kept where its
// key is missing. The cursor stays.
func (s *Session) Import(ctx context.Context, envelope []byte, take func(Item) error) error {
	if err := s.startReading(); err != nil {
		return err
	}
	defer release(s.reading)
	digest := blake2b.Sum256(envelope)
	frame := wire.ServerFrame{Type: wire.ServerDeliver, Envelope: envelope, StreamID: "import/" + hex.EncodeToString(digest[:])}
	return taken(s.rows(ctx, []row{{frame: frame}}, take), "import")
}

func (s *Session) startReading() error {
	select {
	case <-s.reading:
		return nil
	default:
		return ErrReading
	}
}

// takeError is what take returned: no connection mends it.
type takeError struct{ cause error }

func (e *takeError) Error() string { return e.cause.Error() }
func (e *takeError) Unwrap() error { return e.cause }

// taken returns take's own error as it is.
func taken(err error, what string) error {
	if own, ok := errors.AsType[*takeError](err); ok {
		return own.cause
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// cursor is how far the participant's inbox has been processed: "0" before the first row.
func (s *Session) cursor() (at string, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		if at = string(tx.Get(keystore.Cursors, s.self)); at == "" {
			at = "0"
		}
		return nil
	})
	return at, err
}

// gaps saves that rows were dropped before this device came to read them. What the events among them
// said is looked up.
func (s *Session) gaps(ctx context.Context) func(oldest string) error {
	return func(oldest string) error {
		if err := s.lookUp(ctx); err != nil {
			return err
		}
		return s.store.Update(func(tx *keystore.Tx) error {
			return errors.Join(s.cipher.Missed(tx, s.snapshot()), saveItem(tx, s.id, &savedItem{Gap: &Gap{Oldest: oldest}}))
		})
	}
}

// rows processes rows together, saves what they brought and the cursor in one step, and hands
// it over.
func (s *Session) rows(ctx context.Context, batch []row, take func(Item) error) error {
	for i := range batch {
		if batch[i].frame.Type != wire.ServerDeliver {
			continue
		}
		if claims, err := signed.Claimed(batch[i].frame.Envelope); err == nil {
			if err := s.meet(ctx, claims.From); err != nil {
				return err
			}
		}
	}
	var n news
	err := s.store.Update(func(tx *keystore.Tx) error {
		n = news{}
		if wasBefore(tx, s.self) {
			return ErrLeft
		}
		room := s.snapshot()
		for i := range batch {
			if err := s.row(tx, room, &batch[i].frame, &n); err != nil {
				return err
			}
			if !batch[i].moves {
				continue
			}
			if err := tx.Put(keystore.Cursors, s.self, []byte(batch[i].frame.StreamID)); err != nil {
				return err
			}
		}
		if n.retry {
			return s.beginRetry(tx)
		}
		return nil
	})
	if err == nil {
		err = s.retryPending()
	}
	if err != nil {
		return final(err)
	}
	s.heard(&n)
	return final(s.handOver(take))
}

// news is what rows mean beside what they brought.
type news struct {
	changed bool // the room
	refill  bool // prekeys
	retry   bool // envelopes whose key was missing may open now
}

// heard acts on news after they were saved.
func (s *Session) heard(n *news) {
	if n.changed {
		s.outdate()
	}
	if n.refill {
		s.setRefill()
	}
	s.poke()
}

// poke lets maintain look what is to be sent.
func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Session) setRefill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill = true
}

func (s *Session) takeRefill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	refill := s.refill
	s.refill = false
	return refill
}

// row processes one row of the inbox.
func (s *Session) row(tx *keystore.Tx, room *encryption.Room, frame *wire.ServerFrame, n *news) error {
	switch frame.Type {
	case wire.ServerDeliver:
		return s.envelope(tx, room, frame, n)
	case wire.ServerRoomEvent:
		return s.event(tx, room, frame, n)
	case wire.ServerBoardUpdate:
		fresh, err := tx.MarkSeen(rowsSeen(s.id), "event/"+frame.EventID)
		if err != nil || !fresh {
			return err
		}
		return saveItem(tx, s.id, &savedItem{Board: &BoardHint{EventID: frame.EventID, CardID: frame.CardID, Revision: frame.Revision}})
	default: // newer than this client
		return nil
	}
}

func (s *Session) event(tx *keystore.Tx, room *encryption.Room, frame *wire.ServerFrame, n *news) error {
	event := frame.RoomEvent
	if event == nil || event.RoomID != s.id {
		return nil
	}
	fresh, err := tx.MarkSeen(rowsSeen(s.id), "event/"+event.EventID)
	if err != nil || !fresh {
		return err
	}
	switch event.Event {
	case wire.PrekeysLow:
		n.refill = true
		return nil
	case wire.KeyPackagesLow:
		return nil
	default:
	}
	if err := notFarAhead(s.knownVersion(tx), event.Version); err != nil {
		return saveItem(tx, s.id, &savedItem{Failure: newFailure(event.EventID, "", frame.StreamID, err)})
	}
	n.changed = true
	if err := s.cipher.Event(tx, room, event); err != nil {
		return err
	}
	switch event.Event {
	case wire.DeviceLinked, wire.RoomReset, wire.MemberRemoved:
		if err := s.dropStale(tx, uint64(max(event.Version, 0))); err != nil {
			return err
		}
	default:
	}
	return saveItem(tx, s.id, &savedItem{Event: event})
}

// arrived is an envelope that came, or whose key came later.
type arrived struct {
	StreamID string `json:"stream_id"`
	Envelope []byte `json:"envelope"`
}

// envelope opens an envelope that was not seen yet.
func (s *Session) envelope(tx *keystore.Tx, room *encryption.Room, frame *wire.ServerFrame, n *news) error {
	a := &arrived{StreamID: frame.StreamID, Envelope: bytes.Clone(frame.Envelope)}
	claims, err := signed.Claimed(a.Envelope)
	if err != nil {
		return s.fail(tx, a, &claims, err)
	}
	if claims.From == s.self {
		own, err := s.ownEnvelope(a.Envelope)
		if err != nil {
			return nil //nolint:nilerr // it is nobody's message, and says nothing of the store
		}
		return s.noticeOwn(tx, own)
	}
	if tx.Seen(s.id, seenID(&claims)) {
		return nil
	}
	opened, err := s.open(tx, room, a, &claims)
	if errors.Is(err, encryption.ErrPending) {
		if opened != nil {
			if err := enqueue(tx, s.id, opened.Send); err != nil {
				return err
			}
		}
		return s.savePending(tx, a, &claims)
	}
	if err != nil {
		return s.fail(tx, a, &claims, err)
	}
	n.retry = n.retry || opened.Retry
	return s.save(tx, a, &claims, opened)
}

// seenID is what an envelope is remembered by: nobody can use up another one's id.
func seenID(c *signed.Claims) string { return c.From + "/" + c.ID }

// rowsSeen is where events, and rows that are not authentic, are remembered: apart from
// messages, whose ids they would push out if a relay sent enough of them. The id is all there
// is against the repeat of a private message, whose key does not change.
func rowsSeen(room string) string { return room + "/rows" }

// open verifies and decrypts an envelope.
func (s *Session) open(tx *keystore.Tx, room *encryption.Room, a *arrived, claims *signed.Claims) (*encryption.Opened, error) {
	from, err := s.author(claims.From)
	if err != nil {
		return nil, err
	}
	return s.cipher.Open(tx, room, &from, a.Envelope, s.clock.Now())
}

// save stores what an envelope brought.
func (s *Session) save(tx *keystore.Tx, a *arrived, claims *signed.Claims, opened *encryption.Opened) error {
	if _, err := tx.MarkSeen(s.id, seenID(claims)); err != nil {
		return err
	}
	if err := enqueue(tx, s.id, opened.Send); err != nil || opened.Payload == nil {
		return err
	}
	from, _ := s.author(claims.From) // it was opened as that one's
	m := &savedMessage{
		ID: claims.ID, From: claims.From, Device: from.Device, Role: from.Role, To: claims.To, Kind: opened.Kind,
		TS: opened.TS, Expires: opened.ExpiresAt, StreamID: a.StreamID, Payload: opened.Payload,
	}
	if c := chunk(opened.Payload); c != nil {
		file, whole, err := s.saveChunk(tx, m, c)
		if failed(err) {
			return saveItem(tx, s.id, &savedItem{Failure: newFailure(claims.ID, claims.From, a.StreamID, err)})
		}
		if err != nil || !whole {
			return err
		}
		m.Payload, m.File = nil, file
	}
	return saveItem(tx, s.id, &savedItem{Message: m})
}

// fail reports an envelope once. One that is authentic is never looked at again; of one that
// is not only this row is, since its id may be another one's.
func (s *Session) fail(tx *keystore.Tx, a *arrived, claims *signed.Claims, cause error) error {
	if !failed(cause) {
		return cause
	}
	room, mark := rowsSeen(s.id), "row/"+a.StreamID
	if errors.Is(cause, encryption.ErrLost) {
		room, mark = s.id, seenID(claims)
	}
	fresh, err := tx.MarkSeen(room, mark)
	if err != nil || !fresh {
		return err
	}
	return saveItem(tx, s.id, &savedItem{Failure: newFailure(claims.ID, claims.From, a.StreamID, cause)})
}

// savePending keeps an authentic envelope whose key is asked for.
func (s *Session) savePending(tx *keystore.Tx, a *arrived, claims *signed.Claims) error {
	if _, err := tx.MarkSeen(s.id, seenID(claims)); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := makeRoomPending(tx, s.id, len(text)); err != nil {
		return err
	}
	n, err := number(tx, s.id)
	if err != nil {
		return err
	}
	return tx.Put(keystore.Messages, fmt.Sprintf("%s%016x/%s/%d", pendingPrefix(s.id), n, claims.From, len(text)), text)
}

func pendingPrefix(room string) string { return pendingPart + room + "/" }

// makeRoomPending makes room for one more envelope, of so many bytes.
func makeRoomPending(tx *keystore.Tx, room string, more int) error {
	return makeRoom(tx, allPending(tx),
		bound{func(s *share) bool { return s.room == room }, one, maxPending - 1},
		bound{everything, one, maxPendingAll - 1},
		bound{everything, bytesOf, maxPendingBytes - more})
}

// allPending are those of all rooms. What there is to know of each its name says.
func allPending(tx *keystore.Tx) (all []share) {
	for _, key := range tx.Keys(keystore.Messages, pendingPart) {
		parts := strings.Split(strings.TrimPrefix(key, pendingPart), "/")
		if len(parts) != 4 {
			continue
		}
		p := share{key: key, room: parts[0], from: parts[2]}
		p.age, _ = strconv.ParseUint(parts[1], 16, 64)
		p.size, _ = strconv.Atoi(parts[3])
		p.giveUp = func(tx *keystore.Tx) error { return giveUpPending(tx, p.room, p.key, "too many wait for a key") }
		all = append(all, p)
	}
	return all
}

// giveUpPending forgets an envelope that waits for its key, and reports it.
func giveUpPending(tx *keystore.Tx, room, key, why string) error {
	var kept arrived
	if err := stored(tx.Get(keystore.Messages, key), &kept); err != nil {
		return err
	}
	lost, _ := signed.Claimed(kept.Envelope)
	failure := newFailure(lost.ID, lost.From, kept.StreamID, fmt.Errorf("%w: %s", encryption.ErrLost, why))
	return errors.Join(tx.Delete(keystore.Messages, key), saveItem(tx, room, &savedItem{Failure: failure}))
}

// retryKey is where it is stored that the envelopes which wait for a key are to be tried again,
// and behind which of them that goes on.
func retryKey(room string) string { return room + "/retry" }

// beginRetry has all of them tried again, from the first one.
func (s *Session) beginRetry(tx *keystore.Tx) error {
	return tx.Put(keystore.Rooms, retryKey(s.id), []byte(pendingPrefix(s.id)))
}

// retryPending opens the envelopes whose key has come, and fails those whose key will not, where
// beginRetry said so: a part of them in each Update, as one has room for no more.
func (s *Session) retryPending() error {
	for more := true; more; {
		err := s.store.Update(func(tx *keystore.Tx) (err error) {
			more, err = s.retryPart(tx, s.snapshot())
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) retryPart(tx *keystore.Tx, room *encryption.Room) (more bool, err error) {
	behind := string(tx.Get(keystore.Rooms, retryKey(s.id)))
	if behind == "" {
		return false, nil
	}
	tried := 0
	for key, text := range tx.All(keystore.Messages, pendingPrefix(s.id)) {
		if key <= behind {
			continue
		}
		if tried++; tried > retryBatch {
			return true, nil
		}
		var kept arrived
		if err := stored(text, &kept); err != nil {
			return false, err
		}
		if err := s.retry(tx, room, key, &kept); err != nil {
			return false, err
		}
		if err := tx.Put(keystore.Rooms, retryKey(s.id), []byte(key)); err != nil {
			return false, err
		}
	}
	return false, tx.Delete(keystore.Rooms, retryKey(s.id))
}

func (s *Session) retry(tx *keystore.Tx, room *encryption.Room, key string, a *arrived) error {
	claims, err := signed.Claimed(a.Envelope)
	if err != nil {
		return err
	}
	opened, err := s.open(tx, room, a, &claims)
	if errors.Is(err, encryption.ErrPending) {
		if opened != nil {
			return enqueue(tx, s.id, opened.Send)
		}
		return nil
	}
	if err != nil && !failed(err) {
		return err
	}
	if deleted := tx.Delete(keystore.Messages, key); deleted != nil {
		return deleted
	}
	if err != nil {
		return saveItem(tx, s.id, &savedItem{Failure: newFailure(claims.ID, claims.From, a.StreamID, err)})
	}
	return s.save(tx, a, &claims, opened)
}

// handOver gives what is saved to take, in its order and one after the other, and forgets what
// it took.
func (s *Session) handOver(take func(Item) error) error {
	s.handing.Lock()
	defer s.handing.Unlock()
	for {
		keys, err := s.saved()
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			item, err := s.load(key)
			if err != nil {
				return err
			}
			if err := take(item); err != nil {
				return &takeError{err}
			}
			if err := s.drop(key); err != nil {
				return err
			}
		}
	}
}

// saved are the names of the items that are saved now, in their order.
func (s *Session) saved() (keys []string, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		keys = tx.Keys(keystore.Messages, s.id+itemPart)
		return nil
	})
	return keys, err
}

func (s *Session) load(key string) (item Item, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		var saved savedItem
		if err := stored(tx.Get(keystore.Messages, key), &saved); err != nil {
			return err
		}
		item, err = s.item(tx, &saved)
		return err
	})
	return item, err
}

// drop forgets an item that was taken, with the file that came with it.
func (s *Session) drop(key string) error {
	return s.store.Update(func(tx *keystore.Tx) error {
		var saved savedItem
		if err := stored(tx.Get(keystore.Messages, key), &saved); err != nil {
			return err
		}
		if m := saved.Message; m != nil && m.File != "" {
			if err := dropFile(tx, s.id, m.From, m.File); err != nil {
				return err
			}
		}
		if err := tx.Delete(keystore.Messages, key); err != nil || !wasBefore(tx, s.self) {
			return err
		}
		return s.device.forgetLeft(tx, s.id)
	})
}
