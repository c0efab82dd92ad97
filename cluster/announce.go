package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// Announce puts a committed change in force on every node. It returns nil once
// Apply has returned on this node and every other live node has acknowledged the
// change or certainly lost its lease. On an error (ctx ended, NATS is away, Apply
// failed here) the change may not be in force everywhere: the caller says so, and
// announcing it again is harmless.
func (n *Node) Announce(ctx context.Context, c Change) error {
	if n.ctx.Err() != nil {
		return ErrClosed
	}
	started := time.Now()
	for _, part := range c.parts() {
		if err := n.announce(ctx, part); err != nil {
			n.metrics.announceFailed.Inc()
			return fmt.Errorf("announce change: %w", err)
		}
	}
	n.metrics.announceSeconds.Observe(time.Since(started).Seconds())
	return nil
}

func (n *Node) announce(ctx context.Context, c Change) error {
	message := control{Announcement: uuid.New(), Origin: n.instance, Change: c}
	data, err := encodeControl(&message)
	if err != nil {
		return err
	}
	applied := n.applyHere(ctx, &message)
	spread := n.spread(ctx, &message, data)
	var local error
	select {
	case local = <-applied:
	case <-ctx.Done():
		local = fmt.Errorf("apply here: %w", ctx.Err())
	case <-n.ctx.Done():
		local = ErrClosed
	}
	return errors.Join(local, spread)
}

// applyHere queues the change behind others of its room.
func (n *Node) applyHere(ctx context.Context, m *control) <-chan error {
	result := make(chan error, 1)
	accepted := n.work.submit(m.Change.scope(), m.Announcement, func() {
		if err := n.cfg.Applier.Apply(ctx, m.Change); err != nil {
			result <- fmt.Errorf("apply here: %w", err)
			return
		}
		result <- nil
	})
	if !accepted {
		result <- errors.New("apply here: too many changes wait")
	}
	return result
}

// spread tells the other nodes and waits for them.
func (n *Node) spread(ctx context.Context, m *control, data []byte) error {
	subject := controlSubject(&m.Change)
	waiting, err := n.listPeers(ctx)
	if err != nil {
		return err
	}
	if len(waiting) == 0 {
		// Nobody has to hear it; whoever watches control.> with the nats program does.
		return n.cfg.Conn.Publish(subject, data)
	}
	acks := make(chan *nats.Msg, 4*len(waiting)+16)
	inbox := n.cfg.Conn.NewRespInbox()
	sub, err := n.cfg.Conn.ChanSubscribe(inbox, acks)
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	repeat := time.NewTicker(n.cfg.Repeat)
	defer repeat.Stop()
	for {
		if err := n.cfg.Conn.PublishRequest(subject, inbox, data); err != nil {
			return fmt.Errorf("publish change: %w", err)
		}
		if n.collect(ctx, m, waiting, acks, repeat.C) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d nodes have not acknowledged it (%s): %w", len(waiting), names(waiting), err)
		}
		if n.ctx.Err() != nil {
			return ErrClosed
		}
		if err := n.dropEnded(ctx, waiting); err != nil {
			n.log.Debug("look at the leases that are waited for", "error", err)
		}
		if len(waiting) == 0 {
			return nil
		}
	}
}

// collect takes acknowledgements until all are there (true), or it is time to repeat.
func (n *Node) collect(ctx context.Context, m *control, waiting map[string]sighting, acks <-chan *nats.Msg, repeat <-chan time.Time) bool {
	for {
		select {
		case msg := <-acks:
			a, err := decodeAck(msg.Data)
			if err != nil || a.Announcement != m.Announcement {
				continue
			}
			delete(waiting, a.Lease)
			if len(waiting) == 0 {
				return true
			}
		case <-repeat:
			return false
		case <-ctx.Done():
			return false
		case <-n.ctx.Done():
			return false
		}
	}
}

// dropEnded removes leases that are gone or have certainly run out.
func (n *Node) dropEnded(ctx context.Context, waiting map[string]sighting) error {
	for key := range waiting {
		s, state, err := n.readLease(ctx, key)
		if err != nil {
			return err
		}
		if state == leaseGone {
			delete(waiting, key)
			continue
		}
		if !s.ended(n.now()) {
			continue
		}
		gone, err := n.endLease(ctx, key, s)
		if err != nil {
			return err
		}
		if gone {
			delete(waiting, key)
		}
	}
	return nil
}

func names(waiting map[string]sighting) string {
	var list []string
	for _, s := range waiting {
		list = append(list, s.node)
	}
	slices.Sort(list)
	if len(list) > 10 {
		list = append(list[:10], "...")
	}
	return strings.Join(list, ", ")
}
