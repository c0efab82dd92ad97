package relay

import (
	"errors"
	"log/slog"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	pageRows   = 64       // rows read at once
	drainBytes = 16 << 10 // a page is read when fewer bytes than this wait to be written
)

// resume starts a replay. It runs beside the connection's messages, so that
// envelopes can be sent meanwhile.
func (s *session) resume(lastID []byte, limit int) {
	cursor, err := wire.ParseCursor(lastID)
	if err != nil {
		s.sendError(wire.InvalidCursor, "", err.Error())
		return
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if s.feed.resuming {
		s.sendError(wire.ResumeInProgress, "", "the resume before this one has not completed")
		return
	}
	s.feed.resuming = true
	s.relay.replays.run(func() { s.beginReplay(cursor, limit) })
}

// replay is one scan of an inbox: of a resume, or of a catch-up.
type replay struct {
	session     *session
	incarnation uint64
	after, upto uint64
	limit       int  // rows, 0 for no limit
	rows        int  // sent so far
	live        bool // a catch-up: rows go out as live ones
}

// beginReplay joins the live feed first, then asks for the inbox's last sequence:
// what is stored later arrives live, what was stored before is scanned.
func (s *session) beginReplay(cursor wire.Cursor, limit int) {
	if err := s.feed.join(s.relay.ctx, s); err != nil {
		s.lostLink("join the live feed", err)
		return
	}
	s.feed.mu.Lock()
	if s.isClosed() {
		s.feed.mu.Unlock()
		return
	}
	s.feed.on = true
	if s.feed.held == nil {
		s.feed.held = new(held)
	}
	s.feed.mu.Unlock()

	bounds, err := s.relay.cfg.Inboxes.Bounds(s.relay.ctx, s.room.id, s.identity.Participant)
	if err != nil {
		s.lostLink("read the inbox's bounds", err)
		return
	}
	scan := &replay{session: s, incarnation: bounds.Incarnation, upto: bounds.Newest, limit: limit}
	switch gap := scan.start(cursor, bounds); {
	case gap && bounds.Newest == 0:
		s.send(wire.AppendResyncRequired(nil, nil))
	case gap:
		oldest := wire.StreamID{Incarnation: bounds.Incarnation, Sequence: bounds.Oldest}
		s.send(wire.AppendResyncRequired(nil, &oldest))
	}
	s.feed.mu.Lock()
	if s.feed.held != nil {
		s.feed.releaseLocked(s, bounds.Incarnation, bounds.Newest)
	}
	s.feed.mu.Unlock()
	scan.step()
}

// start sets where the scan begins and reports whether rows may be missing between
// the cursor and what is retained (DESIGN section 6, "Resuming").
func (p *replay) start(cursor wire.Cursor, bounds inbox.Bounds) (gap bool) {
	switch cursor.Kind {
	case wire.CursorNew:
		p.after = p.upto
		return false
	case wire.CursorAll:
		return false
	case wire.CursorAt:
	}
	at := cursor.ID.Sequence
	switch {
	case cursor.ID.Incarnation != bounds.Incarnation, at > bounds.StreamLast:
		return true
	case bounds.Newest == 0:
		return at+1 < bounds.StreamFirst
	case at < bounds.Oldest:
		return true
	}
	p.after = at
	return false
}

// step sends one page and comes again when the connection has written most of it.
func (p *replay) step() {
	s := p.session
	if s.isClosed() {
		return
	}
	if p.after >= p.upto {
		p.complete(false)
		return
	}
	page := pageRows
	if p.limit > 0 {
		page = min(page, p.limit-p.rows)
	}
	rows, more, err := s.relay.cfg.Inboxes.Read(s.relay.ctx, s.room.id, s.identity.Participant, p.after, p.upto, page)
	if err != nil {
		s.lostLink("replay the inbox", err)
		return
	}
	if err := p.send(rows); err != nil {
		s.lostLink("replay the inbox", err)
		return
	}
	switch {
	case !more || len(rows) == 0:
		p.complete(false)
	case p.limit > 0 && p.rows >= p.limit:
		p.complete(true)
	default:
		s.conn.Flush()
		s.conn.WhenDrained(drainBytes, func() { s.relay.replays.run(p.step) })
	}
}

var errRecreated = errors.New("the stream was made anew meanwhile")

func (p *replay) send(rows []inbox.Row) error {
	s := p.session
	frame := frameBuffers.get()
	defer frameBuffers.put(frame)
	for _, row := range rows {
		if row.ID.Incarnation != p.incarnation {
			return errRecreated
		}
		entitled, err := s.entitled(row.Kind)
		if err != nil {
			return err
		}
		p.after = row.ID.Sequence
		if !entitled {
			continue
		}
		if p.live && s.feed.pushed(row.ID.Sequence) {
			continue
		}
		*frame = appendRow((*frame)[:0], row.Kind, row.ID, !p.live, row.Payload)
		if len(*frame) == 0 {
			continue
		}
		p.rows++
		if s.isClosed() || !s.conn.Queue(*frame) {
			break
		}
	}
	s.relay.metrics.replayed(p.live, len(rows))
	return nil
}

// complete ends the scan. The answer goes out under the lock, so that a next resume
// cannot begin before it.
func (p *replay) complete(more bool) {
	s := p.session
	f := &s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.live {
		s.conn.Flush()
		if f.held != nil {
			f.releaseLocked(s, p.incarnation, p.upto)
		}
	} else {
		f.resuming = false
		s.send(wire.AppendResumeComplete(nil, p.rows, more))
	}
	if f.missed {
		f.missed = false
		s.catchUpLocked()
	}
}

// catchUp pushes what the live feed may have lost. While a scan runs it is only
// noted.
func (s *session) catchUp() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.catchUpLocked()
}

func (s *session) catchUpLocked() {
	f := &s.feed
	switch {
	case !f.on || s.isClosed():
		return
	case f.resuming || f.held != nil:
		f.missed = true
		return
	}
	f.held = new(held)
	s.relay.metrics.catchUps.Inc()
	s.relay.replays.run(s.beginCatchUp)
}

func (s *session) beginCatchUp() {
	bounds, err := s.relay.cfg.Inboxes.Bounds(s.relay.ctx, s.room.id, s.identity.Participant)
	if err != nil {
		s.lostLink("catch up", err)
		return
	}
	scan := &replay{session: s, incarnation: bounds.Incarnation, upto: bounds.Newest, live: true}
	s.feed.mu.Lock()
	if s.feed.incarnation == bounds.Incarnation {
		scan.after = s.feed.sureLocked(s.relay.cfg.SharedInboxes)
	}
	s.feed.mu.Unlock()
	scan.step()
}

// sureLocked is the sequence up to which this connection has certainly had every
// row. With one writer live rows come in order; with several, an announcement can
// be lost or late behind newer ones.
func (f *feed) sureLocked(shared bool) uint64 {
	switch {
	case !shared:
		return max(f.floor, f.last)
	case f.recent == nil:
		return f.floor
	}
	return max(f.floor, f.recent.evicted)
}

// pushed reports whether a row that a catch-up found has reached this connection live.
func (f *feed) pushed(sequence uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recent != nil && f.recent.has(sequence)
}

// lostLink closes a connection whose inbox cannot be read, so that the client
// resumes; a replay that cannot be finished is never called complete.
func (s *session) lostLink(step string, err error) {
	if s.isClosed() {
		return
	}
	s.relay.log.warn("connection closed for want of its inbox", slog.String("step", step),
		slog.Any("participant_id", s.identity.Participant), slog.Any("error", err))
	s.close(wire.CloseGoingAway, wire.ReasonLink)
}
