package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

// Bounds of GET /v1/events.
const (
	maxListeners      = 64
	maxListenersOfOne = 4 // of one device, and of all operators as one
	maxPendingTold    = 5000
	pollEvents        = time.Second
	heartbeatEvents   = 15 * time.Second
	eventWriteTime    = 10 * time.Second // for one event to be taken by a slow reader
)

// eventHub asks the store what is new while somebody listens, once for all of them.
type eventHub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	stop      context.CancelFunc // of the poller; nil while nobody listens
	closed    chan struct{}
	once      sync.Once
}

// listener is one stream.
type listener struct {
	device uuid.UUID     // zero: the operator
	latest chan snapshot // of one place: only the newest is of use
}

// snapshot is which devices wait now. failed: it could not be looked up.
type snapshot struct {
	devices []store.Device
	failed  bool
}

func newEventHub() *eventHub {
	return &eventHub{listeners: make(map[*listener]struct{}), closed: make(chan struct{})}
}

// close ends all streams, and lets none begin.
func (h *eventHub) close() { h.once.Do(func() { close(h.closed) }) }

func (h *eventHub) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// join adds a stream, and starts the poller with the first one.
func (h *eventHub) join(device uuid.UUID, poll func(context.Context) snapshot) (*listener, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := 0
	for l := range h.listeners {
		if l.device == device {
			mine++
		}
	}
	if h.isClosed() || len(h.listeners) >= maxListeners || mine >= maxListenersOfOne {
		return nil, false
	}
	l := &listener{device: device, latest: make(chan snapshot, 1)}
	h.listeners[l] = struct{}{}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go h.run(ctx, poll)
	}
	return l, true
}

// leave removes a stream, and stops the poller with the last one.
func (h *eventHub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	if len(h.listeners) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *eventHub) run(ctx context.Context, poll func(context.Context) snapshot) {
	ticker := time.NewTicker(pollEvents)
	defer ticker.Stop()
	for {
		s := poll(ctx)
		if ctx.Err() != nil {
			return
		}
		h.publish(s)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (h *eventHub) publish(s snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		select {
		case <-l.latest: // one that was not looked at
		default:
		}
		l.latest <- s // there is a place: only publish fills it
	}
}

// pendingDevices looks up which devices wait for approval.
func (a *API) pendingDevices(ctx context.Context) snapshot {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	tenant, err := a.defaultTenant(ctx)
	if err != nil {
		return snapshot{failed: true}
	}
	var found []store.Device
	var after uuid.UUID
	for more := true; more && len(found) < maxPendingTold; {
		var page []store.Device
		if page, more, err = a.cfg.Store.DevicePage(ctx, tenant, store.DevicePending, after, store.MaxPage); err != nil {
			if ctx.Err() == nil {
				a.log.WarnContext(ctx, "devices that wait could not be looked up", "error", err)
			}
			return snapshot{failed: true}
		}
		if len(page) == 0 {
			break
		}
		found, after = append(found, page...), page[len(page)-1].ID
	}
	return snapshot{devices: found}
}

// followEvents tells admins of devices that wait (STATE, "Notify new device pending").
func (a *API) followEvents(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if !who.admin() {
		return 0, nil, errNoAdmin
	}
	if r.Method == http.MethodHead {
		return http.StatusOK, liveAnswer(func(http.ResponseWriter) {}), nil
	}
	l, ok := a.events.join(who.device.ID, a.pendingDevices)
	if !ok {
		return 0, nil, unavailable("too many follow the events already, or the server stops")
	}
	return http.StatusOK, liveAnswer(func(w http.ResponseWriter) {
		defer a.events.leave(l)
		s := eventStream{
			api: a, who: who, to: w, control: http.NewResponseController(w), told: make(map[uuid.UUID]bool),
		}
		s.follow(r.Context(), l)
	}), nil
}

// eventStream is one answer to GET /v1/events.
type eventStream struct {
	api     *API
	who     caller
	to      http.ResponseWriter
	control *http.ResponseController
	told    map[uuid.UUID]bool // devices that wait and were told of
}

var errEnded = errors.New("the stream has ended")

func (s *eventStream) follow(ctx context.Context, l *listener) {
	// The server's time for a whole request has no meaning here; each write has its own.
	_ = s.control.SetReadDeadline(time.Time{})
	heartbeat := time.NewTicker(heartbeatEvents)
	defer heartbeat.Stop()
	err := s.write([]byte(": events\n\n"))
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.api.events.closed:
			return
		case <-heartbeat.C:
			err = s.write([]byte(":\n\n"))
		case now := <-l.latest:
			err = s.tell(ctx, now)
		}
	}
}

// tell writes what is new, to somebody who still is an admin.
func (s *eventStream) tell(ctx context.Context, now snapshot) error {
	if now.failed || !s.stillAdmin(ctx) {
		return errEnded // the client asks again, and is told why
	}
	var out bytes.Buffer
	waiting := make(map[uuid.UUID]bool, len(now.devices))
	for i := range now.devices {
		d := &now.devices[i]
		waiting[d.ID] = true
		if s.told[d.ID] {
			continue
		}
		data, err := json.Marshal(PendingDevice{
			DeviceID: d.ID.String(), Kind: string(d.Kind), Label: d.Label, Fingerprint: d.Fingerprint, CreatedAt: d.CreatedAt.UTC(),
		}, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode an event: %w", err)
		}
		fmt.Fprintf(&out, "event: device_pending\nid: %s\ndata: %s\n\n", d.ID, data)
	}
	s.told = waiting
	if out.Len() == 0 {
		return nil
	}
	return s.write(out.Bytes())
}

// stillAdmin asks anew: who was suspended or revoked, or whose token has expired, is told
// nothing more.
func (s *eventStream) stillAdmin(ctx context.Context) bool {
	if s.who.operator {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.api.cfg.RequestTimeout)
	defer cancel()
	device, err := s.api.cfg.Store.AuthenticateDevice(ctx, s.who.token)
	return err == nil && caller{device: device}.admin()
}

func (s *eventStream) write(data []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(eventWriteTime))
	if _, err := s.to.Write(data); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}
