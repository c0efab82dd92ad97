package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// leaseValue is what a lease says of its holder. The key is the lease epoch: a
// random id, new each time a node gets a lease, so a lease is never taken over.
type leaseValue struct {
	Node     string    `json:"node"`
	Instance string    `json:"instance"` // the process
	TTL      int64     `json:"ttl_ms"`
	Since    time.Time `json:"since"` // for people; nobody computes with it
}

// keeper owns this node's lease; only its goroutine touches it once run began.
type keeper struct {
	node     *Node
	key      string
	revision uint64
	value    []byte
	failed   bool // the last renewal failed, and was logged
}

// run renews until ctx ends.
func (k *keeper) run(ctx context.Context) {
	status := k.node.status
	timer := time.NewTimer(k.node.cfg.RenewEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-status:
			if !open {
				status = nil // the connection is closed for good: the lease runs out
				continue
			}
			k.node.log.Info("connection to NATS is back; looking everything up again")
			select {
			case k.node.resync <- struct{}{}:
			default: // one waits already
			}
		case <-timer.C:
		}
		k.step(ctx)
		timer.Reset(k.pause())
	}
}

// pause is the time to the next renewal, or to the end of the lease.
func (k *keeper) pause() time.Duration {
	left := time.Duration(k.node.until.Load()) - k.node.now()
	if k.key == "" || left <= 0 {
		return k.node.cfg.RenewEvery
	}
	return min(k.node.cfg.RenewEvery, left)
}

// step renews the lease, notices its loss, and asks for a new one.
func (k *keeper) step(ctx context.Context) {
	if k.key != "" && !k.node.Held() {
		k.lose("it could not be renewed in time")
	}
	if k.key != "" {
		k.renew(ctx)
		return
	}
	if err := k.acquire(ctx); err != nil && ctx.Err() == nil {
		k.logFailure("acquire", err)
	}
}

// renew extends the lease to the time of sending plus the TTL. The write carries the
// revision it expects: where another node ended this lease, it fails.
func (k *keeper) renew(ctx context.Context) {
	n := k.node
	sent := n.now()
	left := time.Duration(n.until.Load()) - sent
	attempt, cancel := context.WithTimeout(ctx, min(left, max(2*n.cfg.RenewEvery, n.cfg.LeaseTTL/3)))
	defer cancel()
	revision, err := n.leases.Update(attempt, k.key, k.value, k.revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) && k.reread(attempt) {
		sent = n.now()
		revision, err = n.leases.Update(attempt, k.key, k.value, k.revision)
	}
	switch {
	case k.key == "" || ctx.Err() != nil:
		return
	case err != nil:
		k.logFailure("renew", err)
	default:
		k.revision = revision
		k.extend(sent)
	}
	if !n.Held() {
		k.lose("it could not be renewed in time")
	}
}

func (k *keeper) extend(sent time.Duration) {
	if k.node.ctx.Err() != nil {
		return
	}
	k.node.until.Store(int64(sent + k.node.cfg.LeaseTTL))
	if k.node.ctx.Err() != nil { // Close came in between
		k.node.until.Store(0)
	}
	if k.failed {
		k.failed = false
		k.node.log.Info("lease is renewed again")
	}
}

// reread tells a renewal of ours whose acknowledgement was lost from a lease that
// another node ended, and reports whether the lease is still there to be renewed.
func (k *keeper) reread(ctx context.Context) bool {
	entry, err := k.node.leases.Get(ctx, k.key)
	switch {
	case err == nil:
		k.revision = entry.Revision()
		return true
	case errors.Is(err, jetstream.ErrKeyNotFound):
		k.lose("another node ended it")
	default:
		k.logFailure("read", err)
	}
	return false
}

// lose stops the node: Held is false before the Applier is told.
func (k *keeper) lose(why string) {
	n := k.node
	if n.ctx.Err() != nil {
		return
	}
	n.until.Store(0)
	n.leaseKey.Store(nil)
	n.metrics.lost.Inc()
	n.log.Error("lease is lost; this node accepts and delivers nothing until it has a new one", "lease", k.key, "reason", why)
	k.deleteLater(k.key)
	k.key = ""
	n.cfg.Applier.LeaseLost()
}

// deleteLater removes a lease that is no longer used, as soon as NATS takes the
// message, so that nobody waits for it. Nothing depends on it.
func (k *keeper) deleteLater(key string) {
	marker := nats.NewMsg(leaseSubjects + key)
	marker.Header.Set("KV-Operation", "DEL")
	if err := k.node.cfg.Conn.PublishMsg(marker); err != nil {
		k.node.log.Debug("delete lost lease", "error", err)
	}
}

// acquire gets a lease under a new key. Everything cached is dropped before Held
// turns true, since changes were not waited for meanwhile.
func (k *keeper) acquire(ctx context.Context) error {
	n := k.node
	attempt, cancel := context.WithTimeout(ctx, n.cfg.LeaseTTL)
	defer cancel()
	key := uuid.NewString()
	value, err := json.Marshal(leaseValue{
		Node: n.cfg.NodeID, Instance: n.instance,
		TTL: n.cfg.LeaseTTL.Milliseconds(), Since: time.Now().UTC().Truncate(time.Millisecond),
	})
	if err != nil {
		return err
	}
	sent := n.now()
	revision, err := n.leases.Create(attempt, key, value)
	if err != nil {
		k.deleteLater(key) // it may have been stored, or still be on its way
		return err
	}
	k.key, k.revision, k.value = key, revision, value
	n.leaseKey.Store(&key)
	n.cfg.Applier.Resync()
	if n.now()-sent > n.cfg.RenewEvery { // that took long
		sent = n.now()
		if k.revision, err = n.leases.Update(attempt, key, value, revision); err != nil {
			k.deleteLater(key)
			k.key = ""
			n.leaseKey.Store(nil)
			return err
		}
	}
	k.extend(sent)
	n.log.Info("lease acquired", "lease", key)
	return nil
}

// resyncs tells the Applier that changes or rows may have been missed, apart from the
// renewals, which must not wait for it.
func (n *Node) resyncs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.resync:
			n.cfg.Applier.Resync()
		case <-n.lost:
			n.cfg.Applier.PeerLost()
		}
	}
}

// logFailure logs the first failure of a row of failures.
func (k *keeper) logFailure(step string, err error) {
	if k.failed {
		return
	}
	k.failed = true
	k.node.log.Warn("no word from the bucket of leases", "step", step, "error", err)
}

// jitter spreads periodic work of many nodes.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
