package inbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	warmWorkers = 2
	warmRows    = 1000 // per request
	warmBytes   = 4 << 20
)

// warm reads the newest rows of every stream back into memory, a few streams at a
// time. Until a stream's turn is over, its replays read the stream itself.
func (j *JetStream) warm(ctx context.Context, infos []*jetstream.StreamInfo) {
	shards := make(chan int)
	var workers sync.WaitGroup
	for range warmWorkers {
		workers.Go(func() {
			for shard := range shards {
				if err := j.committers[shard].warm(ctx, j.reader(), infos[shard].State); err != nil && ctx.Err() == nil {
					j.config.Logger.Warn("recent rows not read back", "stream", streamName(shard), "error", err)
				}
			}
		})
	}
	j.wait.Go(func() {
		defer close(j.warmed)
		defer workers.Wait()
		defer close(shards)
		for shard := range infos {
			select {
			case shards <- shard:
			case <-ctx.Done():
				return
			}
		}
	})
}

// warm reads the rows that were stored before this process began. The committer
// adds its own meanwhile, so the old ones are gathered apart and put before them.
func (c *committer) warm(ctx context.Context, js jetstream.JetStream, state jetstream.StreamState) error {
	if state.Msgs == 0 {
		return nil
	}
	average := max(state.Bytes/state.Msgs, 1)
	rows := uint64(c.recent.maxBytes)/average + 1
	next := max(state.FirstSeq, 1)
	if state.LastSeq >= rows {
		next = max(next, state.LastSeq-rows+1)
	}
	older := newRecent(c.recent.maxBytes, c.recent.maxRows, c.recent.maxAge)
	older.reset(next)
	rest := streamRange{js: js, stream: c.stream, next: next, last: state.LastSeq}
	for !rest.done() {
		rows, err := c.warmRows(ctx, &rest)
		if err != nil {
			return fmt.Errorf("read from %d: %w", rest.next, err)
		}
		for _, row := range rows {
			if room, participant, ours := parseSubject(row.Subject); ours {
				kind, _ := kindOf(kindHeader(row))
				older.addRow(row.Sequence, keyOf(room, participant), kind, row.Data, row.Time)
			}
		}
	}
	older.end(state.LastSeq + 1)
	c.recent.prepend(older)
	return nil
}

func (c *committer) warmRows(ctx context.Context, rest *streamRange) ([]*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.ReadTimeout)
	defer cancel()
	return rest.read(ctx, warmRows, warmBytes)
}
