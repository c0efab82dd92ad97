package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
)

// sighting is what this node knows of another node's lease.
type sighting struct {
	node     string
	revision uint64
	seen     time.Duration // when this revision had first been read here, on our clock
	ttl      time.Duration
}

// ended reports whether the holder must have stopped by now: it sent the renewal
// that made this revision before we read it. The margin covers clocks that run at
// slightly different speeds, and short pauses of a virtual machine.
func (s sighting) ended(now time.Duration) bool {
	return now > s.seen+s.ttl+s.ttl/10+50*time.Millisecond
}

// peers remembers the leases of other processes, so that one that died some time ago
// costs an announcement no waiting.
type peers struct {
	mu   sync.Mutex
	seen map[string]sighting // mu guards it
}

// note records a read of a lease and returns the earliest sighting of its revision.
func (p *peers) note(key string, s sighting) sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.seen[key]; ok && old.revision == s.revision {
		return old
	}
	p.seen[key] = s
	return s
}

func (p *peers) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, key)
}

// keepOnly drops what is no longer in the bucket.
func (p *peers) keepOnly(current map[string]sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.seen {
		if _, ok := current[key]; !ok {
			delete(p.seen, key)
		}
	}
}

// listPeers returns the leases of other processes as of now: every lease acquired
// before the call is in it, because the answer includes a write made in the call.
func (n *Node) listPeers(ctx context.Context) (map[string]sighting, error) {
	barrier, err := n.leases.PutString(ctx, barrierKey, n.cfg.NodeID)
	if err != nil {
		return nil, fmt.Errorf("write barrier: %w", err)
	}
	keys, err := n.leaseKeys(ctx, barrier)
	if err != nil {
		return nil, err
	}
	found := make(map[string]sighting)
	for _, key := range keys {
		s, state, err := n.readLease(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("read lease: %w", err)
		}
		if state == leaseOfOther {
			found[key] = s
		}
	}
	n.peers.keepOnly(found)
	return found, nil
}

// leaseKeys lists the bucket's keys from a state that includes the barrier.
func (n *Node) leaseKeys(ctx context.Context, barrier uint64) ([]string, error) {
	for {
		info, err := n.stream.Info(ctx, jetstream.WithSubjectFilter(leaseSubjects+">"))
		if err != nil {
			return nil, fmt.Errorf("list leases: %w", err)
		}
		if info.State.LastSeq >= barrier {
			keys := make([]string, 0, len(info.State.Subjects))
			for subject := range info.State.Subjects {
				if key := strings.TrimPrefix(subject, leaseSubjects); key != barrierKey {
					keys = append(keys, key)
				}
			}
			return keys, nil
		}
		// A deposed leader answered; the new one will.
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type leaseState int

const (
	leaseGone leaseState = iota
	leaseOurs
	leaseOfOther
)

// readLease reads one lease and remembers when its revision was first seen.
func (n *Node) readLease(ctx context.Context, key string) (sighting, leaseState, error) {
	entry, err := n.leases.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		n.peers.forget(key)
		return sighting{}, leaseGone, nil
	}
	if err != nil {
		return sighting{}, leaseGone, err
	}
	var value leaseValue
	if err := json.Unmarshal(entry.Value(), &value); err != nil {
		// Not of our making. It gets the longest TTL, then it is deleted.
		value = leaseValue{Node: "unreadable", TTL: maxTTL.Milliseconds()}
	}
	if value.Instance == n.instance {
		return sighting{}, leaseOurs, nil
	}
	ttl := min(max(time.Duration(value.TTL)*time.Millisecond, 0), maxTTL)
	s := sighting{node: value.Node, revision: entry.Revision(), seen: n.now(), ttl: ttl}
	return n.peers.note(key, s), leaseOfOther, nil
}

// endLease deletes a lease at the revision that has run out, and reports whether it
// is gone. A holder that renewed after all keeps it; one that comes back later finds
// it gone and must start afresh.
func (n *Node) endLease(ctx context.Context, key string, s sighting) (bool, error) {
	err := n.leases.Delete(ctx, key, jetstream.LastRevision(s.revision))
	switch {
	case err == nil:
		n.peers.forget(key)
		n.metrics.ended.Inc()
		n.log.Warn("ended the lease of a node that stopped renewing it", "lease", key, "holder", s.node)
		return true, nil
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return false, nil // renewed, or deleted by another; the next read tells
	default:
		return false, fmt.Errorf("end lease: %w", err)
	}
}

// reap ends leases whose holders are gone, so that announcements need not wait for
// them.
func (n *Node) reap(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := n.reapOnce(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("look for leases that ran out", "error", err)
		}
		timer.Reset(jitter(n.cfg.LeaseTTL))
	}
}

func (n *Node) reapOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.LeaseTTL)
	defer cancel()
	found, err := n.listPeers(ctx)
	if err != nil {
		return err
	}
	for key, s := range found {
		if !s.ended(n.now()) {
			continue
		}
		if _, err := n.endLease(ctx, key, s); err != nil {
			return err
		}
	}
	return nil
}

// dropOldLeases deletes what a previous process of the same name left behind.
func (n *Node) dropOldLeases(ctx context.Context) error {
	found, err := n.listPeers(ctx)
	if err != nil {
		return err
	}
	for key, s := range found {
		if s.node != n.cfg.NodeID {
			continue
		}
		if _, err := n.endLease(ctx, key, s); err != nil {
			return err
		}
	}
	return nil
}
