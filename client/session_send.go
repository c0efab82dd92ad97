package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// removalPause is how long sends to an MLS room fail here after the relay said that a removal
// is pending (RELAY, "Client response to a pending removal").
const removalPause = 600_000 * time.Millisecond

const (
	sendAttempts = 3           // connections that an envelope without a verdict is sent on by one Send
	sealAttempts = 3           // times that a draft is sealed where the relay has to be asked first
	sendGroup    = 8           // payloads of a file that are sealed and sent together
	resendPause  = time.Second // before what the relay was too busy for is sent again
)

// Send encrypts a draft, saves it, sends it, and returns when it is stored for everybody it is
// for. What waits from before goes out first.
//
// A refusal is a *NackError (errors.Is finds the *wire.Error of its code), ErrRemovalPending
// among them; it is for the whole draft, of which parts may be stored. Where the relay could not
// store an envelope now (unavailable, partial), or ErrNoVerdict where nothing came in time, it
// is kept and sent again as it is: see Pending; but a notice, which is never sent again. Other errors changed nothing: ErrNotMember,
// ErrKeysChanged, encryption.ErrNotActivated, encryption.ErrKind, content.ErrTooLarge.
func (s *Session) Send(ctx context.Context, draft Draft) (Sent, error) {
	drafts, err := s.drafts(&draft)
	if err != nil {
		return Sent{}, fmt.Errorf("send: %w", err)
	}
	if err := s.removalPending(); err != nil {
		return Sent{}, fmt.Errorf("send: %w", err)
	}
	if err := acquire(ctx, s.sending); err != nil {
		return Sent{}, fmt.Errorf("send: %w", err)
	}
	defer release(s.sending)
	sent := Sent{Already: draft.ID != ""}
	for len(drafts) > 0 {
		group := drafts[:min(sendGroup, len(drafts))]
		drafts = drafts[len(group):]
		recipients, err := s.sendOnce(ctx, group, draft.ID != "")
		if err != nil {
			return sent, fmt.Errorf("send: %w", err)
		}
		if recipients != nil {
			sent.Recipients, sent.Already = recipients, false
		}
		for i := range group {
			sent.IDs = append(sent.IDs, group[i].ID)
		}
		if draft.Progress != nil {
			draft.Progress(len(sent.IDs), len(sent.IDs)+len(drafts))
		}
	}
	return sent, nil
}

// sendOnce sends drafts, but for those whose id says that they were sent, or wait to be.
func (s *Session) sendOnce(ctx context.Context, drafts []encryption.Draft, named bool) (recipients []string, err error) {
	open := make([]*encryption.Draft, len(drafts))
	for i := range drafts {
		open[i] = &drafts[i]
	}
	if !named {
		return s.sendGroup(ctx, open, false)
	}
	waits, open, err := s.unsent(open)
	if err == nil && len(waits) > 0 {
		_, err = s.deliver(ctx, waits)
	}
	if err != nil || len(open) == 0 {
		return nil, err
	}
	return s.sendGroup(ctx, open, true)
}

// unsent leaves out drafts that were sent, and tells those that wait, sealed, from the others.
func (s *Session) unsent(drafts []*encryption.Draft) (waits []encryption.Sealed, open []*encryption.Draft, err error) {
	err = s.store.View(func(tx *keystore.Tx) error {
		all, err := enqueued(tx, s.id)
		for _, draft := range drafts {
			at := slices.IndexFunc(all, func(w waiting) bool { return w.ID == draft.ID })
			switch {
			case at >= 0:
				waits = append(waits, all[at].sealed())
			case !tx.Seen(s.id, sentID(draft.ID)):
				open = append(open, draft)
			}
		}
		return err
	})
	return waits, open, err
}

// sentID is what an own envelope that was queued is remembered by.
func sentID(id string) string { return "sent/" + id }

// removalPending refuses while the pause after the relay's refusal lasts. That does not renew
// it.
func (s *Session) removalPending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.Now().Before(s.paused) {
		return ErrRemovalPending
	}
	return nil
}

// drafts are the envelopes that a draft is made of.
func (s *Session) drafts(d *Draft) ([]encryption.Draft, error) {
	to, kind, expires := d.To, wire.KindMessage, uint64(0)
	if to == "" {
		to = s.id
	}
	if !d.Expires.IsZero() {
		kind, expires = wire.KindNotice, uint64(max(d.Expires.UnixMilli(), 0))
	}
	parts, err := d.parts()
	if err != nil {
		return nil, err
	}
	var drafts []encryption.Draft
	for n, group := range parts {
		payload, err := content.Encode(group...)
		if err != nil {
			return nil, err
		}
		id, err := d.id(n)
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, encryption.Draft{
			ID: id, Kind: kind, To: to, Payload: payload, File: declared(group), TS: uint64(s.clock.Now().UnixMilli()), ExpiresAt: expires,
		})
	}
	if kind == wire.KindNotice && (len(drafts) != 1 || d.File != nil) {
		return nil, fmt.Errorf("%w: a notice is one text", content.ErrTooLarge)
	}
	return drafts, nil
}

const maxDraftID = 96

// id is that of the draft's envelope n. Those behind the first one are drawn from the draft's, so
// that they are no id that another draft may have.
func (d *Draft) id(n int) (string, error) {
	switch {
	case d.ID == "":
		return rand.Text(), nil
	case len(d.ID) > maxDraftID || !wire.ValidID([]byte(d.ID)):
		return "", fmt.Errorf("%w: the ID of a draft is 1 to %d printable ASCII characters", ErrID, maxDraftID)
	case n == 0:
		return d.ID, nil
	default:
		drawn := blake2b.Sum256(fmt.Appendf(nil, "part/%d/%s", n, d.ID))
		return base64.RawURLEncoding.EncodeToString(drawn[:]), nil
	}
}

// parts are the payloads of a draft: a text, then what its file is split into.
func (d *Draft) parts() ([][]content.Part, error) {
	var all [][]content.Part
	if d.Text != "" {
		all = append(all, []content.Part{content.Text(d.Text)})
	}
	if d.File != nil {
		split, err := content.Split(&content.File{Name: d.File.Name, MIMEType: d.File.MIMEType, Data: d.File.Data})
		if err != nil {
			return nil, err
		}
		for _, part := range split {
			if c, ok := part.(*content.Chunk); ok && d.ID != "" { // the rest may be sent by a later process
				named := blake2b.Sum256([]byte("file/" + d.ID))
				copy(c.FileID[:], named[:])
			}
			all = append(all, []content.Part{part})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is no text and no file", content.ErrContent)
	}
	return all, nil
}

// declared is the clear header of a payload with a file (RELAY, "file: {name, mimeType,
// sizeBytes}"). A size that is more than a header may say is left out with it: no header is
// not "no file".
func declared(parts []content.Part) *signed.File {
	for _, part := range parts {
		file := signed.File{}
		switch p := part.(type) {
		case *content.File:
			file = signed.File{Name: p.Name, MIMEType: p.MIMEType, SizeBytes: uint64(len(p.Data))}
		case *content.Chunk:
			file = signed.File{Name: p.Name, MIMEType: p.MIMEType, SizeBytes: uint64(p.Size)}
		default:
			continue
		}
		if file.SizeBytes <= wire.MaxFileSize {
			return &file
		}
	}
	return nil
}

// sendGroup seals and sends drafts, and seals those once more that were not sent where the relay
// says that the keys of before are over (STATE, "Message During Rekey").
func (s *Session) sendGroup(ctx context.Context, open []*encryption.Draft, named bool) (recipients []string, err error) {
	var waits []encryption.Sealed
	for again := range 2 {
		var sealed []encryption.Sealed
		if len(open) > 0 {
			if sealed, recipients, err = s.seal(ctx, open); err != nil {
				return nil, err
			}
		}
		resealable, err := s.deliver(ctx, append(waits, sealed...))
		if errors.Is(err, &wire.Error{Code: wire.NotActivated}) { // the room was reset, and this device has not heard of it
			s.outdate()
			err = fmt.Errorf("%w: %w", encryption.ErrNotActivated, err)
		}
		if !resealable || again > 0 {
			return recipients, err
		}
		if waits, open, err = s.unsent(open); err != nil {
			return nil, err
		}
		for _, draft := range open {
			if !named { // the relay stored nothing under the id
				draft.ID = rand.Text()
			}
		}
		s.outdate()
	}
	return nil, ErrNoVerdict // not reached
}

// seal encrypts drafts and saves what is to be sent.
func (s *Session) seal(ctx context.Context, drafts []*encryption.Draft) (sealed []encryption.Sealed, recipients []string, err error) {
	for range sealAttempts {
		room, err := s.current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if recipients, err = s.recipients(room, drafts[0].To); err != nil {
			return nil, nil, err
		}
		if err := s.prepare(ctx, room, false); err != nil {
			return nil, nil, err
		}
		err = s.store.Update(func(tx *keystore.Tx) error {
			sealed = nil
			for _, draft := range drafts {
				part, err := s.cipher.Seal(tx, room, draft)
				if err != nil {
					return err
				}
				sealed = append(sealed, part...)
			}
			if err := s.dropStale(tx, sealed[0].Gen); err != nil {
				return err
			}
			return enqueue(tx, s.id, sealed)
		})
		if !errors.Is(err, encryption.ErrPrepare) {
			return sealed, recipients, err
		}
		if err := s.prepare(ctx, room, true); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, encryption.ErrPrepare
}

// prepare asks the relay for what sealing needs: always before the first message since the
// store was opened, so that an old copy of it is noticed, and then where it is needed.
func (s *Session) prepare(ctx context.Context, room *encryption.Room, needed bool) error {
	s.mu.Lock()
	first := !s.prepared
	s.mu.Unlock()
	if !needed && !first {
		return nil
	}
	if first {
		if err := s.noticeOldCopy(ctx); err != nil {
			return err
		}
	}
	err := s.cipher.Prepare(ctx, sessionRelay{s}, s.store, room, s.clock.Now())
	if err == nil {
		s.mu.Lock()
		s.prepared = true
		s.mu.Unlock()
	}
	return err
}

// recipients are who a message to to is for. Nothing is encrypted for a room where the relay
// shows other keys of somebody than before.
func (s *Session) recipients(room *encryption.Room, to string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err, changed := s.changed[to]; changed {
		return nil, err
	}
	if to != s.id {
		for _, m := range room.Members {
			if m.ID() == to {
				return []string{to}, nil
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrNotMember, to)
	}
	for _, p := range s.known.Participants {
		if err, changed := s.changed[p.ParticipantID]; changed {
			return nil, err
		}
	}
	var all []string
	for _, m := range room.Members {
		all = append(all, m.ID())
	}
	return all, nil
}

// deliver sends what waits until each of sealed has a verdict. It reports whether the drafts
// may be sealed anew, with the refusal that says so.
func (s *Session) deliver(ctx context.Context, sealed []encryption.Sealed) (resealable bool, err error) {
	f := s.newFlush(sealed)
	for attempt := range sendAttempts {
		f.apart = attempt > 0 // the same connection does not take an envelope twice
		if attempt > 0 {
			if err := sleep(ctx, s.clock, resendPause); err != nil {
				break
			}
		}
		err = f.run(ctx)
		if f.refused != nil {
			if err := f.withdraw(); err != nil {
				return false, err
			}
			s.poke() // it may be kept
			return f.again, f.refused
		}
		if f.complete() {
			return false, nil
		}
		if ctx.Err() != nil || err != nil && !s.login.retryable(err) {
			break
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	s.poke() // what is left goes out by itself
	return false, noVerdict(err)
}

func noVerdict(cause error) error {
	if cause == nil || errors.Is(cause, ErrNoVerdict) {
		return ErrNoVerdict
	}
	return fmt.Errorf("%w: %w", ErrNoVerdict, cause)
}

// Pending are the ids of envelopes whose verdict is not known: they go out again, as they are,
// with the next connection of Poll, Listen or Send.
func (s *Session) Pending() ([]string, error) {
	all, err := s.outbox()
	var ids []string
	for i := range all {
		if all[i].content() {
			ids = append(ids, all[i].ID)
		}
	}
	return ids, err
}

// Forget drops an envelope that is Pending. The relay may have it all the same.
func (s *Session) Forget(id string) error {
	return s.store.Update(func(tx *keystore.Tx) error {
		all, err := enqueued(tx, s.id)
		for i := range all {
			if err == nil && all[i].ID == id {
				err = dequeue(tx, s.id, &all[i])
			}
		}
		return err
	})
}
