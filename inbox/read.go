package inbox

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/peerrelay/peerrelay/wire"
)

// readBytes is about how much payload one Read returns.
const readBytes = 256 << 10

// Read implements Reader. Rows that memory knows are complete from come from
// there; older ones are read from the stream up to where memory begins.
func (j *JetStream) Read(ctx context.Context, room, participant uuid.UUID, after, upto uint64, limit int) ([]Row, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, j.config.ReadTimeout)
	defer cancel()
	r := replay{
		inboxes: j, committer: j.committerOf(room), key: keyOf(room, participant),
		subject: string(appendSubject(nil, j.committerOf(room).token, room, participant)),
		after:   after, upto: upto, limit: max(limit, 1), bytes: readBytes,
	}
	if err := r.run(ctx); err != nil {
		return nil, false, fmt.Errorf("read inbox: %w", err)
	}
	source := sourceMemory
	if r.streamed {
		source = sourceStream
	}
	j.metrics.recentReads.WithLabelValues(source).Inc()
	return r.rows, r.more, nil
}

// replay is one Read under way.
type replay struct {
	inboxes   *JetStream
	committer *committer
	key       inboxKey
	subject   string

	after, upto uint64 // what is still to be read
	limit       int    // rows
	bytes       int

	rows     []Row
	more     bool
	streamed bool
}

func (r *replay) full() bool { return len(r.rows) >= r.limit || len(r.rows) > 0 && r.bytes <= 0 }

func (r *replay) run(ctx context.Context) error {
	for r.after < r.upto {
		boundary := r.upto
		if r.committer.recent != nil {
			low := r.fromMemory()
			if low == 0 {
				return nil
			}
			boundary = min(r.upto, low-1)
		}
		r.streamed = true
		if err := r.fromStream(ctx, boundary); err != nil {
			return err
		}
		if r.more || r.full() && r.after >= r.upto {
			return nil
		}
	}
	return nil
}

// fromMemory finishes the read, or returns where memory begins.
func (r *replay) fromMemory() (low uint64) {
	incarnation, now := r.committer.incarnation.Load(), r.inboxes.config.Now()
	limit, size := r.limit-len(r.rows), r.bytes
	if r.full() {
		limit, size = 1, 1 // only to learn whether anything follows
	}
	rows, more, low := r.committer.recent.read(r.key, incarnation, r.after, r.upto, limit, size, now)
	if low > 0 {
		return low
	}
	if r.full() {
		r.more = len(rows) > 0
		return 0
	}
	r.inboxes.metrics.replayRows.WithLabelValues(sourceMemory).Add(float64(len(rows)))
	if r.rows == nil {
		r.rows = rows
	} else {
		r.rows = append(r.rows, rows...)
	}
	r.more = more
	return 0
}

// fromStream reads rows up to boundary, until the limit.
func (r *replay) fromStream(ctx context.Context, boundary uint64) error {
	rest := streamRange{js: r.inboxes.reader(), stream: r.committer.stream, subject: r.subject, next: r.after + 1, last: boundary}
	for !rest.done() {
		if r.full() {
			r.more = true
			return nil
		}
		rows, err := rest.read(ctx, r.limit-len(r.rows), r.bytes)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r.take(row)
		}
	}
	r.after = boundary
	return nil
}

// take adds a row, unless it has expired and only waits to be dropped (FAULTS C03).
func (r *replay) take(row *jetstream.RawStreamMsg) {
	r.after = row.Sequence
	if r.inboxes.expired(row.Time) {
		return
	}
	kind, _ := kindOf(kindHeader(row))
	r.rows = append(r.rows, Row{
		ID:   wire.StreamID{Incarnation: r.committer.incarnation.Load(), Sequence: row.Sequence},
		Kind: kind, Payload: row.Data,
	})
	r.bytes -= len(row.Data)
	r.inboxes.metrics.replayRows.WithLabelValues(sourceStream).Inc()
}

func (j *JetStream) expired(at time.Time) bool { return j.config.Now().Sub(at) > j.config.MaxAge }

// kindHeader is the row's Relay-Kind; rows without one are envelopes.
func kindHeader(row *jetstream.RawStreamMsg) string {
	if name := row.Header.Get(headerKind); name != "" {
		return name
	}
	return kindNames[RowEnvelope]
}

// find looks for a payload among the rows of one inbox with after < sequence <= upto.
func (j *JetStream) find(ctx context.Context, m *Message, recipient int, after, upto uint64) (wire.StreamID, bool, error) {
	for more := true; more && after < upto; {
		var rows []Row
		var err error
		rows, more, err = j.Read(ctx, m.Room, m.To[recipient], after, upto, 500)
		if err != nil {
			return wire.StreamID{}, false, err
		}
		for _, row := range rows {
			if row.Kind == m.Kind && bytes.Equal(row.Payload, m.Payload) {
				return row.ID, true, nil
			}
			after = row.ID.Sequence
		}
	}
	return wire.StreamID{}, false, nil
}
