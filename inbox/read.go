package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

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
	js := r.inboxes.reader()
	for r.after < boundary {
		if r.full() {
			r.more = true
			return nil
		}
		batch, err := getBatch(ctx, js, r.committer.stream, r.subject, r.after+1, r.limit-len(r.rows), r.bytes)
		if err != nil {
			return err
		}
		for _, row := range batch.rows {
			if row.Sequence > boundary {
				r.after = boundary
				return nil
			}
			r.take(row)
		}
		if !batch.ended || r.after >= boundary {
			continue
		}
		// The copy that answered has no more. The leader knows whether that is all:
		// it may be a follower that lags behind.
		row, err := leaderGet(ctx, js.Conn(), r.committer.stream, messageRequest{Sequence: r.after + 1, NextFor: r.subject})
		if err != nil {
			return err
		}
		if row == nil || row.Sequence > boundary {
			r.after = boundary
			return nil
		}
		r.take(row)
	}
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

// batch is the answer to one batch of direct gets.
type batch struct {
	rows  []*jetstream.RawStreamMsg // without a gap
	ended bool                      // the copy that answered has no more rows
}

// getBatch reads rows of a stream from a sequence on, of one subject or of all. An
// answer that broke off is returned as far as it came: every row names the one
// before it, so a gap cannot go unseen, and only "no more rows" ends a replay
// (FAULTS C08).
func getBatch(ctx context.Context, js jetstream.JetStream, stream, subject string, from uint64, rows, size int) (batch, error) {
	options := []jetstreamext.GetBatchOpt{jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchMaxBytes(max(size, 1))}
	if subject != "" {
		options = append(options, jetstreamext.GetBatchSubject(subject))
	}
	messages, err := jetstreamext.GetBatch(ctx, js, stream, rows, options...)
	if err != nil {
		return batch{}, fmt.Errorf("direct get: %w", err)
	}
	var b batch
	previous, pending := "0", ""
	for row, err := range messages {
		if errors.Is(err, jetstreamext.ErrNoMessages) && len(b.rows) == 0 {
			return batch{ended: true}, nil
		}
		if err != nil {
			return batch{}, fmt.Errorf("direct get: %w", err)
		}
		if row.Header.Get("Nats-Last-Sequence") != previous {
			break
		}
		previous, pending = row.Header.Get(jetstream.SequenceHeader), row.Header.Get("Nats-Num-Pending")
		b.rows = append(b.rows, row)
	}
	if len(b.rows) == 0 {
		if err := ctx.Err(); err != nil {
			return batch{}, fmt.Errorf("direct get: %w", err)
		}
		return batch{}, errors.New("direct get: no answer")
	}
	b.ended = pending == "0"
	return b, nil
}

// messageRequest asks the leader for one message ($JS.API.STREAM.MSG.GET).
type messageRequest struct {
	Sequence  uint64     `json:"seq,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	LastFor   string     `json:"last_by_subj,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

// leaderGet asks the leader of a stream for one message; nil when there is none.
func leaderGet(ctx context.Context, conn *nats.Conn, stream string, request messageRequest) (*jetstream.RawStreamMsg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, fmt.Errorf("ask leader: %w", err)
	}
	var answer struct {
		Message *struct {
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("ask leader: %w", err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, fmt.Errorf("ask leader: %w", answer.Error)
	case answer.Message == nil:
		return nil, errors.New("ask leader: empty answer")
	}
	row := &jetstream.RawStreamMsg{Sequence: answer.Message.Sequence, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		if row.Header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, fmt.Errorf("ask leader: header: %w", err)
		}
	}
	return row, nil
}

// directGet asks whichever copy of the stream for one message; nil when it has none.
func directGet(ctx context.Context, conn *nats.Conn, stream string, request messageRequest) (*jetstream.RawStreamMsg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	msg, err := conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, body)
	if err != nil {
		return nil, fmt.Errorf("direct get: %w", err)
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
	case "404":
		return nil, nil
	default:
		return nil, fmt.Errorf("direct get: status %s", status)
	}
	sequence, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("direct get: sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return nil, fmt.Errorf("direct get: time: %w", err)
	}
	return &jetstream.RawStreamMsg{Sequence: sequence, Data: msg.Data, Header: msg.Header, Time: at}, nil
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
