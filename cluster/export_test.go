package cluster

import "context"

// EndLeaseAt ends another node's lease as if this revision of it had run out.
func (n *Node) EndLeaseAt(ctx context.Context, key string, revision uint64) (bool, error) {
	return n.endLease(ctx, key, sighting{revision: revision})
}

// HeldLease is the lease that the node holds right now; empty when it holds none.
func HeldLease(n *Node) string {
	if !n.Held() {
		return ""
	}
	if key := n.leaseKey.Load(); key != nil {
		return *key
	}
	return ""
}
