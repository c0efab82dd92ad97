package relay

import (
	"sync"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
)

// outsideFlight is what is under way for rooms without a connection of this node, over
// HTTP. A change waits for it as it does for envelopes in flight. Rooms share locks, so
// that there is a bounded number of them.
type outsideFlight [64]sync.RWMutex

func (f *outsideFlight) of(room uuid.UUID) *sync.RWMutex { return &f[int(room[15])%len(f)] }

// Enter says that work for a room begins which must not outlast a change of the room:
// it looks up who may do what, and acts on that. A change that is applied meanwhile
// waits until leave was called, which must be soon and exactly once. It fails while this
// node may not accept (ErrNotHeld).
func (r *Relay) Enter(room uuid.UUID) (leave func(), err error) {
	lock := r.outside.of(room)
	lock.RLock()
	if !r.cfg.Lease.Held() {
		lock.RUnlock()
		return nil, cluster.ErrNotHeld
	}
	return lock.RUnlock, nil
}

// land returns when everything that entered before has left.
func (f *outsideFlight) land(c cluster.Change) {
	wait := func(lock *sync.RWMutex) {
		lock.Lock()
		lock.Unlock() //nolint:staticcheck // waiting is all it is for
	}
	if c.Room != uuid.Nil {
		wait(f.of(c.Room))
		return
	}
	for i := range f {
		wait(&f[i])
	}
}
