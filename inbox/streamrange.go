package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// streamRange is a part of a stream that is read in order: the rows of one subject,
// or of all, from next to last.
type streamRange struct {
	js      jetstream.JetStream
	stream  string
	subject string // "" for all
	next    uint64
	last    uint64
}

func (s *streamRange) done() bool { return s.next > s.last }

// read returns the next rows, at most so many and about so many bytes but at least
// one unless the range is done, which only the stream's leader can say: the copy
// that answers may be a follower, or a mirror, that lags behind (FAULTS C09).
func (s *streamRange) read(ctx context.Context, rows, size int) ([]*jetstream.RawStreamMsg, error) {
	batch, err := getBatch(ctx, s.js, s.stream, s.subject, s.next, rows, size)
	if err != nil {
		return nil, err
	}
	for i, row := range batch.rows {
		if row.Sequence > s.last {
			s.next = s.last + 1
			return batch.rows[:i], nil
		}
		s.next = row.Sequence + 1
	}
	if !batch.ended || s.done() {
		return batch.rows, nil
	}
	filter := s.subject
	if filter == "" {
		filter = ">"
	}
	row, err := leaderGet(ctx, s.js.Conn(), s.stream, messageRequest{Sequence: s.next, NextFor: filter})
	switch {
	case err != nil:
		return nil, err
	case row == nil || row.Sequence > s.last:
		s.next = s.last + 1
		return batch.rows, nil
	case len(batch.rows) < rows:
		s.next = row.Sequence + 1
		batch.rows = append(batch.rows, row)
	}
	return batch.rows, nil
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
		if row.Header.Get(jetstream.StreamHeader) != stream {
			b.ended = true // a mirror answers, which may lack any row: ask the leader
			return b, nil
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
			Subject  string    `json:"subject"`
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
	row := &jetstream.RawStreamMsg{Subject: answer.Message.Subject, Sequence: answer.Message.Sequence, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		if row.Header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, fmt.Errorf("ask leader: header: %w", err)
		}
	}
	return row, nil
}
