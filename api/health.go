package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// checkAge is how long an answer is given again.
const checkAge = 100 * time.Millisecond

// health asks the parts of the process, not more often than it is worth: /readyz is
// open to everybody.
type health struct {
	checks map[string]func() error

	mu     sync.Mutex // guards the following, and is held while the parts are asked
	asked  time.Time
	result []Check // in order of name
}

func (h *health) results() []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.result == nil || time.Since(h.asked) > checkAge {
		h.result = h.ask()
		h.asked = time.Now()
	}
	return h.result
}

func (h *health) ask() []Check {
	names := slices.Sorted(maps.Keys(h.checks))
	results := make([]Check, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		results[i] = Check{Name: name, OK: true}
		wg.Go(func() {
			if err := h.checks[name](); err != nil {
				results[i].OK, results[i].Detail = false, err.Error()
			}
		})
	}
	wg.Wait()
	return results
}

// healthz answers as long as the process does.
func (a *API) healthz(*http.Request) (int, any, error) {
	return http.StatusOK, Health{OK: true}, nil
}

// readyz is 200 while everything can be stored and delivered.
func (a *API) readyz(*http.Request) (int, any, error) {
	answer := Health{OK: true}
	for _, check := range a.health.results() {
		if !check.OK {
			answer.OK = false
			answer.Degraded = append(answer.Degraded, check.Name)
		}
	}
	if !answer.OK {
		return http.StatusServiceUnavailable, answer, nil
	}
	return http.StatusOK, answer, nil
}

func (a *API) showStatus(r *http.Request) (int, any, error) {
	status := Status{
		Version: a.cfg.Version,
		NodeID:  a.cfg.NodeID,
		Listen:  a.cfg.Listen,
		TLS:     a.cfg.TLS,
		Started: a.started.UTC(),
		Now:     a.cfg.Now().UTC(),
		Ready:   true,
		Checks:  a.health.results(),
	}
	for _, check := range status.Checks {
		status.Ready = status.Ready && check.OK
	}
	// A part that is broken must not keep the rest from being told.
	op, err := a.begin(r)
	if _, noSuchTenant := errors.AsType[*wire.Error](err); noSuchTenant {
		return 0, nil, err
	}
	if err == nil {
		defer op.cancel()
		status.Frozen, _ = a.cfg.Store.Frozen(op.ctx, op.tenant)
	}
	return http.StatusOK, status, nil
}
