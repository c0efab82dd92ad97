package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// metadataShards records in every stream how many there are: a row's shard follows
// from its room id, so the number can never change afterwards.
const metadataShards = "relay_shards"

// smallestDuplicateWindow is the shortest the server accepts. Entries carry no
// message ids, so nothing is ever tracked in it.
const smallestDuplicateWindow = 100 * time.Millisecond

// streamConfig is the one declaration of the streams (DESIGN section 5).
func (c Config) streamConfig(shard int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               streamName(shard),
		Description:        "Peer Relay inboxes: one subject per recipient, inbox.<shard>.<room>.<participant>",
		Subjects:           []string{inboxPrefix + shardToken(shard) + ".>"},
		Storage:            jetstream.FileStorage,
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardOld,
		MaxMsgsPerSubject:  int64(c.MaxRows),
		MaxAge:             c.MaxAge,
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgSize:         -1,
		Replicas:           c.Replicas,
		Duplicates:         smallestDuplicateWindow,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{metadataShards: strconv.Itoa(c.Shards)},
	}
}

// declareStreams makes the streams be what streamConfig says and returns their
// state. It never deletes one and never changes one in a way that loses rows.
func (c Config) declareStreams(ctx context.Context, js jetstream.JetStream, known *tails) ([]*jetstream.StreamInfo, error) {
	existing, err := c.existingStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	if err := c.checkShardCount(existing); err != nil {
		return nil, err
	}
	infos := make([]*jetstream.StreamInfo, c.Shards)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for shard := range c.Shards {
		group.Go(func() error {
			info, exists := existing[shard]
			if !exists && len(existing) > 0 {
				c.Logger.ErrorContext(ctx, "inbox stream is missing and is made anew: clients will resync",
					"stream", streamName(shard))
			}
			var err error
			infos[shard], err = c.declareStream(ctx, js, shard, info, known)
			return err
		})
	}
	return infos, group.Wait()
}

// leaderWait bounds how long a start waits for servers that have not chosen a leader.
const leaderWait = time.Minute

// existingStreams is the first that is asked of JetStream. The servers of a cluster that
// were started a moment ago are still choosing a leader, which takes longer than one
// request may: until then nobody answers, or somebody says so.
func (c Config) existingStreams(ctx context.Context, js jetstream.JetStream) (map[int]*jetstream.StreamInfo, error) {
	waiting, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		existing, err := c.listStreams(waiting, js)
		if !leaderless(err) || waiting.Err() != nil {
			return existing, err
		}
		select {
		case <-waiting.Done():
			return nil, err
		case <-time.After(leaderPause):
		}
	}
}

const leaderPause = 200 * time.Millisecond

// leaderless reports an error of a cluster in which nobody leads.
func leaderless(err error) bool {
	var refused *jetstream.APIError
	const clusterNotAvailable = 10008 // JSClusterNotAvailErr of the server
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &refused) && refused.ErrorCode == clusterNotAvailable
}

func (c Config) listStreams(ctx context.Context, js jetstream.JetStream) (map[int]*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.WriteTimeout)
	defer cancel()
	existing := make(map[int]*jetstream.StreamInfo)
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		if shard, ours := shardOfStream(info.Config.Name); ours {
			existing[shard] = info
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return existing, nil
}

func (c Config) checkShardCount(existing map[int]*jetstream.StreamInfo) error {
	want := strconv.Itoa(c.Shards)
	for _, info := range existing {
		have, recorded := info.Config.Metadata[metadataShards]
		if !recorded {
			return fmt.Errorf("stream %s was not made by the relay (metadata %q is missing): rename or remove it, or use another NATS account",
				info.Config.Name, metadataShards)
		}
		if have != want {
			return fmt.Errorf("the inboxes were created with %s shards, not %s: the number cannot change; start with --inbox-shards %s", have, want, have)
		}
	}
	return nil
}

func (c Config) declareStream(ctx context.Context, js jetstream.JetStream, shard int, info *jetstream.StreamInfo, known *tails) (*jetstream.StreamInfo, error) {
	want := c.streamConfig(shard)
	if info == nil {
		stream, err := js.CreateStream(ctx, want)
		if err != nil {
			return nil, fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		return stream.CachedInfo(), nil
	}
	have := info.Config
	if err := incompatible(have, want); err != nil {
		return nil, fmt.Errorf("stream %s cannot be used: %w; it is left as it is", want.Name, err)
	}
	info, err := c.renewIfShort(ctx, js, info, known.lastKnown(want.Name, c.SyncAlways))
	if err != nil {
		return nil, err
	}
	have = info.Config
	if !outdated(have, want) {
		return info, nil
	}
	c.Logger.WarnContext(ctx, "inbox stream has another configuration and is updated", "stream", want.Name)
	stream, err := js.UpdateStream(ctx, updated(have, want))
	if err != nil {
		return nil, fmt.Errorf("update stream %s: %w", want.Name, err)
	}
	return stream.CachedInfo(), nil
}

// incompatible names the first difference that cannot be changed without losing
// rows or promises.
func incompatible(have, want jetstream.StreamConfig) error {
	switch {
	case have.Storage != want.Storage:
		return fmt.Errorf("its storage is %v, must be %v", have.Storage, want.Storage)
	case !slices.Equal(have.Subjects, want.Subjects):
		return fmt.Errorf("its subjects are %v, must be %v", have.Subjects, want.Subjects)
	case have.Retention != want.Retention:
		return fmt.Errorf("its retention is %v, must be %v", have.Retention, want.Retention)
	case have.Discard != want.Discard:
		return fmt.Errorf("its discard policy is %v, must be %v", have.Discard, want.Discard)
	case have.Sealed || have.NoAck || have.Mirror != nil || len(have.Sources) > 0 || have.SubjectTransform != nil:
		return errors.New("it is sealed, unacknowledged, a mirror, has sources or a subject transform")
	case have.MaxMsgs > 0 || have.MaxBytes > 0 || have.MaxMsgSize > 0:
		return errors.New("it limits messages, bytes or message size, must not")
	case have.MaxMsgsPerSubject <= 0 || have.MaxMsgsPerSubject > want.MaxMsgsPerSubject:
		return fmt.Errorf("it keeps %d messages per subject, must be %d (lowering it drops rows: nats stream edit %s --max-msgs-per-subject=%d)",
			have.MaxMsgsPerSubject, want.MaxMsgsPerSubject, want.Name, want.MaxMsgsPerSubject)
	case have.MaxAge == 0 || have.MaxAge > want.MaxAge:
		return fmt.Errorf("its maximum age is %v, must be %v (lowering it drops rows: nats stream edit %s --max-age=%v)",
			have.MaxAge, want.MaxAge, want.Name, want.MaxAge)
	case have.Replicas > want.Replicas:
		return fmt.Errorf("it has %d replicas, configured are %d (start with --nats-replicas %d)", have.Replicas, want.Replicas, have.Replicas)
	}
	return nil
}

// outdated reports a difference that an update can mend.
func outdated(have, want jetstream.StreamConfig) bool {
	return have.MaxMsgsPerSubject != want.MaxMsgsPerSubject || have.MaxAge != want.MaxAge ||
		have.Replicas != want.Replicas || have.Duplicates != want.Duplicates ||
		!have.AllowDirect || !have.AllowAtomicPublish
}

// updated keeps what people may have set for themselves: placement, compression,
// description, metadata of their own.
func updated(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	have.MaxMsgsPerSubject, have.MaxAge = want.MaxMsgsPerSubject, want.MaxAge
	have.Replicas, have.Duplicates = want.Replicas, want.Duplicates
	have.AllowDirect, have.AllowAtomicPublish = true, true
	return have
}
