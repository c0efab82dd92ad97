package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Bounds implements Reader. Where this process is the only writer, memory knows the
// newest row, and mostly the oldest one as well; the stream is asked only for what
// is older than memory.
func (j *JetStream) Bounds(ctx context.Context, room, participant uuid.UUID) (Bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, j.config.ReadTimeout)
	defer cancel()
	c := j.committerOf(room)
	var b Bounds
	var err error
	subject := string(appendSubject(nil, c.token, room, participant))
	if c.recent != nil {
		b, err = j.boundsOfOwn(ctx, c, keyOf(room, participant), subject)
	} else {
		b, err = j.boundsOfShared(ctx, c, subject)
	}
	if err != nil {
		return Bounds{}, fmt.Errorf("inbox bounds: %w", err)
	}
	return b, nil
}

func (j *JetStream) boundsOfOwn(ctx context.Context, c *committer, key inboxKey, subject string) (Bounds, error) {
	b := Bounds{Incarnation: c.incarnation.Load(), StreamLast: c.committed.Load()}
	known := c.recent.bounds(key, j.config.Now())
	b.Oldest, b.Newest, b.StreamFirst = known.oldest, known.newest, 1
	complete := known.rows == j.config.MaxRows || known.low <= c.streamFirst.Load()
	if known.rows > 0 && complete {
		return b, nil
	}
	if known.rows > 0 {
		oldest, err := j.oldest(ctx, c, subject)
		if err == nil && oldest != 0 && oldest < b.Oldest {
			b.Oldest = oldest
		}
		return b, err
	}
	if complete { // the inbox is empty
		err := j.streamBounds(ctx, c, &b)
		return b, err
	}
	return j.boundsOfShared(ctx, c, subject)
}

// boundsOfShared asks the leader for everything, again where a row came or went
// between the questions. A newest row that stays unreadable is no empty inbox.
func (j *JetStream) boundsOfShared(ctx context.Context, c *committer, subject string) (Bounds, error) {
	for range boundsTries {
		b, err := j.boundsOnce(ctx, c, subject)
		if err != nil || (b.Oldest == 0) == (b.Newest == 0) {
			return b, err
		}
	}
	return Bounds{}, errors.New("the newest or the oldest row cannot be read")
}

// boundsTries is more than rows come and go between questions.
const boundsTries = 10

func (j *JetStream) boundsOnce(ctx context.Context, c *committer, subject string) (Bounds, error) {
	var b Bounds
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		b.Oldest, err = j.oldest(ctx, c, subject)
		return err
	})
	group.Go(func() (err error) {
		b.Newest, err = j.newest(ctx, c, subject)
		return err
	})
	group.Go(func() error { return j.streamBounds(ctx, c, &b) })
	if err := group.Wait(); err != nil {
		return Bounds{}, err
	}
	b.StreamLast = max(b.StreamLast, b.Newest)
	if b.Incarnation != c.incarnation.Load() {
		c.nudge()
	}
	return b, nil
}

// streamBounds asks the leader for the stream's part of the bounds.
func (j *JetStream) streamBounds(ctx context.Context, c *committer, b *Bounds) error {
	stream, err := j.reader().Stream(ctx, c.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.nudge()
	}
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	b.Incarnation, b.StreamLast = incarnationOf(info), info.State.LastSeq
	b.StreamFirst = max(info.State.FirstSeq, 1)
	if info.State.Msgs == 0 {
		b.StreamFirst = info.State.LastSeq + 1
	}
	return nil
}

func (j *JetStream) oldest(ctx context.Context, c *committer, subject string) (uint64, error) {
	since := j.config.Now().Add(-j.config.MaxAge)
	row, err := leaderGet(ctx, j.reader().Conn(), c.stream, messageRequest{StartTime: &since, NextFor: subject})
	if err != nil || row == nil {
		return 0, err
	}
	return row.Sequence, nil
}

func (j *JetStream) newest(ctx context.Context, c *committer, subject string) (uint64, error) {
	row, err := leaderGet(ctx, j.reader().Conn(), c.stream, messageRequest{LastFor: subject})
	if err != nil || row == nil || j.expired(row.Time) {
		return 0, err
	}
	return row.Sequence, nil
}

// Description is what an operator is told about one inbox.
type Description struct {
	Stream  string
	Subject string
	Bounds
}

// Describe asks the leader about one inbox, with the number of its rows.
func (j *JetStream) Describe(ctx context.Context, room, participant uuid.UUID) (Description, error) {
	ctx, cancel := context.WithTimeout(ctx, j.config.ReadTimeout)
	defer cancel()
	c := j.committerOf(room)
	d := Description{Stream: c.stream, Subject: string(appendSubject(nil, c.token, room, participant))}
	var err error
	if d.Bounds, err = j.boundsOfShared(ctx, c, d.Subject); err != nil {
		return Description{}, fmt.Errorf("describe inbox: %w", err)
	}
	stream, err := j.reader().Stream(ctx, c.stream)
	if err != nil {
		return Description{}, fmt.Errorf("describe inbox: %w", err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(d.Subject))
	if err != nil {
		return Description{}, fmt.Errorf("describe inbox: %w", err)
	}
	d.Rows = info.State.Subjects[d.Subject]
	return d, nil
}
