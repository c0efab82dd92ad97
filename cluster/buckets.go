package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the key-value buckets; `nats kv ls nodes` shows the live nodes.
const (
	LeaseBucket    = "nodes"
	PresenceBucket = "presence"
)

// PresenceTTL is how long an entry of presence lives after it was written: a node that
// dies without a word has its participants present for that long.
const PresenceTTL = 90 * time.Second

const (
	maxTTL          = time.Minute      // of a lease
	leaseMaxAge     = 10 * time.Minute // after which dead leases and delete markers vanish
	leaseSubjects   = "$KV." + LeaseBucket + "."
	presencePrefix  = "$KV." + PresenceBucket + "."
	presenceStream  = "KV_" + PresenceBucket
	barrierKey      = "barrier" // written before the leases are listed; never a lease
	bucketValueSize = 1024
)

// bucketConfigs are the two buckets as the streams they are. They are not made with
// CreateKeyValue because leases must be read from the leader: direct gets are
// answered by any replica, late ones included.
func (c Config) bucketConfigs() (leases, presence jetstream.StreamConfig) {
	bucket := func(name, description string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name:              "KV_" + name,
			Description:       description,
			Subjects:          []string{"$KV." + name + ".>"},
			MaxMsgsPerSubject: 1,
			MaxMsgs:           -1,
			MaxBytes:          -1,
			MaxConsumers:      -1,
			MaxMsgSize:        bucketValueSize,
			Discard:           jetstream.DiscardNew,
			AllowRollup:       true,
			DenyDelete:        true,
			Replicas:          c.Replicas,
		}
	}
	leases = bucket(LeaseBucket, "leases of the relay's live nodes")
	leases.MaxAge = leaseMaxAge
	leases.Storage = c.LeaseStorage
	leases.Duplicates = time.Minute
	presence = bucket(PresenceBucket, "which participant is connected to which node")
	presence.MaxAge = PresenceTTL
	presence.Storage = jetstream.MemoryStorage
	presence.AllowDirect = true
	presence.Duplicates = time.Second // nothing here carries a message id
	return leases, presence
}

func (n *Node) openBuckets(ctx context.Context) error {
	leases, presence := n.cfg.bucketConfigs()
	stream, err := n.js.CreateOrUpdateStream(ctx, leases)
	if err != nil {
		return bucketError(LeaseBucket, err)
	}
	n.stream = stream
	if n.leases, err = n.js.KeyValue(ctx, LeaseBucket); err != nil {
		return bucketError(LeaseBucket, err)
	}
	if _, err := n.js.CreateOrUpdateStream(ctx, presence); err != nil {
		return bucketError(PresenceBucket, err)
	}
	return nil
}

func bucketError(name string, err error) error {
	if _, refused := errors.AsType[*jetstream.APIError](err); refused {
		return fmt.Errorf("bucket %q exists with other settings, or this server does not accept ours (see `nats stream info KV_%s`): %w", name, name, err)
	}
	return fmt.Errorf("open bucket %q: %w", name, err)
}
