package relay

import (
	"errors"
	"sync/atomic"
	"time"
)

// refusedFor is how long a failed write of history counts when no other write follows:
// a node that is not ready may get no envelopes that could prove the fault gone.
const refusedFor = 10 * time.Second

// ErrHistory says that the last session message could not be stored.
var ErrHistory = errors.New("the last session message could not be stored in history")

// writes remembers how the last write ended. A database can answer every question and
// yet store nothing, on a full disk for example.
type writes struct{ failed atomic.Pointer[time.Time] } // nil: it was stored

func (w *writes) stored() {
	if w.failed.Load() != nil {
		w.failed.Store(nil)
	}
}

func (w *writes) refused(now time.Time) { w.failed.Store(&now) }

func (w *writes) failing(now time.Time) bool {
	failed := w.failed.Load()
	return failed != nil && now.Sub(*failed) < refusedFor
}

// Ready is nil while history takes session messages, as far as the last one can tell,
// else ErrHistory.
func (r *Relay) Ready() error {
	if r.history.failing(time.Now()) {
		return ErrHistory
	}
	return nil
}
