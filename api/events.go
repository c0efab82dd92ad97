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
	maxListeners      = 64   // of one tenant
	maxListenersOfAll = 1024 // of all tenants
	maxListenersOfOne = 4    // of one device, and of all operators as one
	maxPendingTold    = 5000
	pollEvents        = time.Second
	heartbeatEvents   = 15 * time.Second
	eventWriteTime    = 10 * time.Second // for one event to be taken by a slow reader
)

// eventHub asks the store what is new while somebody listens, once for all of a tenant.
type eventHub struct {
	poll func(ctx context.Context, tenant uuid.UUID) snapshot

	mu     sync.Mutex
	feeds  map[uuid.UUID]*eventFeed // by tenant; only while somebody listens
	joined int                      // listeners of all feeds
	closed chan struct{}
	once   sync.Once
}

// eventFeed is what one tenant is told.
type eventFeed struct {
	listeners map[*listener]struct{}
	stop      context.CancelFunc // of the poller
}

// listener is one stream.
type listener struct {
	tenant uuid.UUID
	device uuid.UUID     // zero: the operator
	latest chan snapshot // of one place: only the newest is of use
}

// snapshot is which devices wait now. failed: it could not be looked up.
type snapshot struct {
	devices []store.Device
	failed  bool
}

func newEventHub(poll func(ctx context.Context, tenant uuid.UUID) snapshot) *eventHub {
	return &eventHub{poll: poll, feeds: make(map[uuid.UUID]*eventFeed), closed: make(chan struct{})}
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

// join adds a stream, and starts the tenant's poller with its first one.
func (h *eventHub) join(tenant, device uuid.UUID) (*listener, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isClosed() || h.full(h.feeds[tenant], device) {
		return nil, false
	}
	l := &listener{tenant: tenant, device: device, latest: make(chan snapshot, 1)}
	feed := h.feeds[tenant]
	if feed == nil {
		ctx, cancel := context.WithCancel(context.Background())
		feed = &eventFeed{listeners: make(map[*listener]struct{}), stop: cancel}
		h.feeds[tenant] = feed
		go h.run(ctx, tenant, feed)
	}
	feed.listeners[l] = struct{}{}
	h.joined++
	return l, true
}

// full reports that the feed, which may be nil, has no place for one more of the device.
func (h *eventHub) full(feed *eventFeed, device uuid.UUID) bool {
	if h.joined >= maxListenersOfAll {
		return true
	}
	if feed == nil {
		return false
	}
	mine := 0
	for l := range feed.listeners {
		if l.device == device {
			mine++
		}
	}
	return len(feed.listeners) >= maxListeners || mine >= maxListenersOfOne
}

// leave removes a stream, and stops the tenant's poller with its last one.
func (h *eventHub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	feed := h.feeds[l.tenant]
	delete(feed.listeners, l)
	h.joined--
	if len(feed.listeners) == 0 {
		feed.stop()
		delete(h.feeds, l.tenant)
	}
}

func (h *eventHub) run(ctx context.Context, tenant uuid.UUID, feed *eventFeed) {
	ticker := time.NewTicker(pollEvents)
	defer ticker.Stop()
	for {
		s := h.poll(ctx, tenant)
		if ctx.Err() != nil {
			return
		}
		h.publish(feed, s)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (h *eventHub) publish(feed *eventFeed, s snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range feed.listeners {
		select {
		case <-l.latest: // one that was not looked at
		default:
		}
		l.latest <- s // there is a place: only publish fills it
	}
}

// pendingDevices looks up which devices of the tenant wait for approval.
func (a *API) pendingDevices(ctx context.Context, tenant uuid.UUID) snapshot {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	var found []store.Device
	var after uuid.UUID
	for more := true; more && len(found) < maxPendingTold; {
		page, next, err := a.cfg.Store.DevicePage(ctx, tenant, store.DevicePending, after, store.MaxPage)
		if err != nil {
			if ctx.Err() == nil {
				a.log.WarnContext(ctx, "devices that wait could not be looked up", "error", err)
			}
			return snapshot{failed: true}
		}
		if more = next; len(page) == 0 {
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
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	op.cancel() // only its tenant is of use
	l, ok := a.events.join(op.tenant, who.device.ID)
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
