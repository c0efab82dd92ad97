package inbox

import (
	"context"

	"github.com/google/uuid"
	dto "github.com/prometheus/client_model/go"

	"github.com/peerrelay/peerrelay/wire"
)

// Warmed is closed when the newest rows of all streams are back in memory.
func (j *JetStream) Warmed() <-chan struct{} { return j.warmed }

// ShardOf is the number of a room's stream.
func (j *JetStream) ShardOf(room uuid.UUID) int { return shardOf(room, len(j.committers)) }

// Low is the low-water sequence of a room's shard.
func (j *JetStream) Low(room uuid.UUID) uint64 {
	r := j.committerOf(room).recent
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.low
}

// SetDepth sets how many groups of a shard may be in flight. Before any write.
func (j *JetStream) SetDepth(depth int) {
	for _, c := range j.committers {
		c.depth = depth
	}
}

// RecentBytes is the memory of all recent rows.
func (j *JetStream) RecentBytes() int64 { return int64(j.recentBytes()) }

// FlushFeed returns once everything the server had to send to the feed is received.
func (j *JetStream) FlushFeed() error { return j.feed.conn.Flush() }

// OrphansRemoved counts removed rows of refused messages.
func (j *JetStream) OrphansRemoved() float64 {
	var m dto.Metric
	if err := j.metrics.orphansRemoved.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// CompleteWithStaleSearch is a Complete whose search found rows before the shard
// failed and removed them.
func (j *JetStream) CompleteWithStaleSearch(ctx context.Context, m Message) ([]wire.StreamID, error) {
	p := newPending(m, j.config.Now())
	p.complete = true
	for i := range m.To {
		p.found(i, wire.StreamID{Incarnation: 1, Sequence: 1})
	}
	p.failures = j.committerOf(m.Room).failures.Load() - 1
	return j.submit(ctx, p)
}
