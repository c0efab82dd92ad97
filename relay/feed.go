package relay

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// feed is how far one connection has followed its inbox. It is off until the first
// resume.
//
// Each row reaches a connection once per resume: a scan brings the rows up to the
// inbox's last sequence at that moment (floor), the live feed brings what follows.
// Until that sequence is known, and while a catch-up runs, live rows are held.
type feed struct {
	joined bool // counted in room.joined; guarded by room.joining

	mu          sync.Mutex // guards the following fields
	on          bool
	resuming    bool        // a resume has not been completed
	missed      bool        // live rows may have been lost; a catch-up is due and brings what follows, too
	incarnation uint64      // of the stream that floor and last belong to
	floor       uint64      // rows up to here come from a scan, never from the live feed
	last        uint64      // newest row that was pushed live
	recent      *recentRows // only where others write the same streams, from the first live row on
	held        *held       // not nil: live rows wait here
}

// held keeps the live rows that arrive while it is not known which of them a scan
// brings.
type held struct {
	rows  []heldRow
	bytes int
}

type heldRow struct {
	kind    inbox.RowKind
	id      wire.StreamID
	payload []byte
}

// add reports false when no more fits: the rows must then be caught up.
func (h *held) add(kind inbox.RowKind, id wire.StreamID, payload []byte) bool {
	if len(h.rows) >= wire.MaxQueueFrames/2 || h.bytes+len(payload) > wire.MaxQueueBytes/2 {
		return false
	}
	h.bytes += len(payload)
	h.rows = append(h.rows, heldRow{kind, id, bytes.Clone(payload)})
	return true
}

// Deliver pushes what was just stored to the connections it is for.
func (r *Relay) Deliver(live *inbox.Live) {
	rm := r.hub.room(live.Room)
	if rm == nil {
		return
	}
	if !r.cfg.Lease.Held() {
		// Who is still in the room is not known. The connections resume when it is.
		r.closeSessions(rm.sessions(everySession), wire.CloseGoingAway, wire.ReasonLink)
		return
	}
	entitled := rm.entitlement(live.Kind)
	frame := frameBuffers.get()
	defer frameBuffers.put(frame)
	delivered := 0
	rm.mu.Lock()
	for _, c := range live.Copies {
		i, found := findMember(rm.members, c.Participant)
		if !found {
			continue
		}
		if !entitled.known {
			// To look the roster up would hold the feed up: a catch-up does, and pushes this.
			for _, s := range rm.members[i].sessions {
				s.catchUp()
			}
			continue
		}
		if !entitled.to(c.Participant) {
			continue
		}
		for _, s := range rm.members[i].sessions {
			if s.feed.push(s, live.Kind, c.ID, live.Payload, frame) {
				delivered++
			}
		}
	}
	rm.mu.Unlock()
	r.metrics.liveRows.Add(float64(delivered))
	if delivered > 0 && !live.Received.IsZero() {
		r.metrics.observeDeliver(live.Received)
	}
}

// push sends a live row, holds it, or drops it because a scan brings it.
func (f *feed) push(s *session, kind inbox.RowKind, id wire.StreamID, payload []byte, frame *[]byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.on || f.missed:
		return false
	case f.held != nil:
		if !f.held.add(kind, id, payload) {
			f.missed = true
		}
		return false
	}
	return f.sendLocked(s, kind, id, payload, frame)
}

func (f *feed) sendLocked(s *session, kind inbox.RowKind, id wire.StreamID, payload []byte, frame *[]byte) bool {
	if id.Incarnation != f.incarnation {
		if id.Incarnation < f.incarnation {
			return false
		}
		f.beginLocked(id.Incarnation)
	}
	if id.Sequence <= f.floor {
		return false
	}
	f.last = max(f.last, id.Sequence)
	if s.relay.cfg.SharedInboxes {
		if f.recent == nil {
			f.recent = new(recentRows)
		}
		f.recent.add(id.Sequence, time.Now())
	}
	*frame = appendRow((*frame)[:0], kind, id, false, payload)
	return len(*frame) > 0 && s.send(*frame)
}

// beginLocked begins with a stream that was made anew.
func (f *feed) beginLocked(incarnation uint64) {
	f.incarnation, f.floor, f.last, f.recent = incarnation, 0, 0, nil
}

// releaseLocked says that a scan covers the rows up to floor, and pushes the held
// rows that follow it, unless a catch-up is due: one pushed now would hide those that
// were missed before it.
func (f *feed) releaseLocked(s *session, incarnation, floor uint64) {
	rows := f.held.rows
	f.held = nil
	if incarnation != f.incarnation {
		f.beginLocked(incarnation)
	}
	f.floor = max(f.floor, floor)
	if f.missed {
		return
	}
	frame := frameBuffers.get()
	defer frameBuffers.put(frame)
	for _, row := range rows {
		f.sendLocked(s, row.kind, row.id, row.payload, frame)
	}
}

// appendRow appends the frame that brings a row. It returns an empty frame for a row
// of the server's own that is not what the server writes.
func appendRow(dst []byte, kind inbox.RowKind, id wire.StreamID, replay bool, payload []byte) []byte {
	var err error
	switch kind {
	case inbox.RowBoardUpdate:
		dst, err = wire.AppendBoardUpdate(dst, id, replay, payload)
	case inbox.RowRoomEvent:
		dst, err = wire.AppendRoomEvent(dst, id, replay, payload)
	case inbox.RowEnvelope:
		dst = wire.AppendDeliver(dst, id, replay, payload)
	}
	if err != nil {
		return dst[:0]
	}
	return dst
}

// join makes live rows of the room reach this session.
func (f *feed) join(ctx context.Context, s *session) error {
	rm := s.room
	rm.joining.Lock()
	defer rm.joining.Unlock()
	if f.joined || s.isClosed() {
		return nil
	}
	if rm.joined == 0 {
		if err := s.relay.cfg.Inboxes.Join(ctx, rm.id); err != nil {
			return err
		}
	}
	rm.joined++
	f.joined = true
	return nil
}

// stop ends it, when the connection is gone.
func (f *feed) stop(s *session) {
	f.mu.Lock()
	f.on, f.held = false, nil
	f.mu.Unlock()
	rm := s.room
	rm.joining.Lock()
	defer rm.joining.Unlock()
	if !f.joined {
		return
	}
	f.joined = false
	if rm.joined--; rm.joined == 0 {
		s.relay.cfg.Inboxes.Leave(rm.id)
	}
}

// Missed makes every connection of the room (uuid.Nil: of this node) read its inbox
// from the last row it is sure of.
func (r *Relay) Missed(room uuid.UUID) {
	rooms := r.hub.allRooms()
	if room != uuid.Nil {
		rooms = rooms[:0]
		if rm := r.hub.room(room); rm != nil {
			rooms = append(rooms, rm)
		}
	}
	for _, rm := range rooms {
		for _, s := range rm.sessions(everySession) {
			s.catchUp()
		}
	}
}
