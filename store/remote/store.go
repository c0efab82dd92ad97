package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/store"
)

// ErrClosed reports a call on a closed Store; nothing was sent.
var ErrClosed = errors.New("the store is closed")

// maxIDs is how many ids the API looks up in one request.
const maxIDs = 1000

// Store asks an API. It implements store.Edge.
type Store struct {
	cfg       Config
	base      *url.URL
	bearer    string // value of the Authorization header
	transport http.RoundTripper
	lookUps   chan struct{} // bounds them, so that messages always find a connection
	metrics   *metrics
	messages  *batcher[store.Message]
	traces    *batcher[store.Trace]

	away   atomic.Bool   // the last request got no answer
	barred atomic.Bool   // the API refused the service token
	logs   *rate.Limiter // lines about that
}

var _ store.Edge = (*Store)(nil)

// Open makes a Store. It does not ask the API anything: an edge node starts, and starts
// to work, whenever the API does.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	base, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("remote store: %w", err)
	}
	s := &Store{
		cfg: cfg, base: base, bearer: "Bearer " + cfg.Token, transport: cfg.Transport,
		lookUps: make(chan struct{}, max(1, cfg.MaxConns/2)), logs: rate.NewLimiter(rate.Every(time.Second/2), 4),
	}
	if s.transport == nil {
		s.transport = newTransport(cfg)
	}
	s.messages = newBatcher(cfg, s.sendMessages, func(m *store.Message) int { return len(m.Bytes) })
	s.traces = newBatcher(cfg, s.sendTraces, func(*store.Trace) int { return maxTraceBytes })
	if s.metrics, err = newMetrics(cfg.Registerer, s); err != nil {
		return nil, fmt.Errorf("remote store: %w", err)
	}
	s.messages.start()
	s.traces.start()
	return s, nil
}

// newTransport connects to the API itself: no proxy of the environment, nothing
// decompressed, and bounds for whatever it may answer.
func newTransport(cfg Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: cfg.Timeout / 2, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.Timeout / 2,
		DisableCompression:     true,
		MaxConnsPerHost:        cfg.MaxConns,
		MaxIdleConnsPerHost:    cfg.MaxConns,
		IdleConnTimeout:        30 * time.Second, // before the API's, which is a minute
		MaxResponseHeaderBytes: 16 << 10,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        64 << 10,
		Protocols:              protocols,
	}
}

// Close sends what waits and ends: within the timeout of a call.
func (s *Store) Close() {
	s.messages.close()
	s.traces.close()
	if t, ok := s.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
	s.metrics.unregister()
}

// Authenticate implements store.Credentials.
func (s *Store) Authenticate(ctx context.Context, token store.TokenHash) (store.Identity, error) {
	var found identity
	err := s.lookUp(ctx, callAuthenticate, tokenCheck{token[:]}, &found)
	if errors.Is(err, store.ErrUnauthenticated) {
		return store.Identity{}, store.ErrUnauthenticated // the same words whatever the cause
	}
	if err != nil {
		return store.Identity{}, err
	}
	return found.identity()
}

// ValidCredentials implements store.Credentials.
func (s *Store) ValidCredentials(ctx context.Context, tenant uuid.UUID, ids []uuid.UUID) ([]uuid.UUID, error) {
	var valid []uuid.UUID
	err := eachPart(ids, func(part []uuid.UUID) error {
		var answer validCredentials
		if err := s.lookUp(ctx, callCredentials, credentialsCheck{tenant, part}, &answer); err != nil {
			return err
		}
		for _, id := range *answer.Valid {
			if err := asked(part, uuid.UUID(id)); err != nil {
				return err
			}
			valid = append(valid, uuid.UUID(id))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return valid, nil
}

// RoomVersions implements store.Versions.
func (s *Store) RoomVersions(ctx context.Context, tenant uuid.UUID, rooms []uuid.UUID) (map[uuid.UUID]int64, error) {
	versions := make(map[uuid.UUID]int64, len(rooms))
	err := eachPart(rooms, func(part []uuid.UUID) error {
		var answer roomVersions
		if err := s.lookUp(ctx, callVersions, roomsCheck{tenant, part}, &answer); err != nil {
			return err
		}
		for id, version := range *answer.Versions {
			if err := asked(part, uuid.UUID(id)); err != nil {
				return err
			}
			versions[uuid.UUID(id)] = version
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

// Roster implements store.Rosters.
func (s *Store) Roster(ctx context.Context, tenant, room uuid.UUID) (store.Roster, error) {
	to := callRoster
	to.path = "/internal/v1/sessions/" + room.String() + "/roster"
	to.query = "tenant_id=" + tenant.String()
	var found roster
	if err := s.lookUp(ctx, to, nil, &found); err != nil {
		return store.Roster{}, err
	}
	return found.roster(tenant, room)
}

const barred = "the API refuses this node: its service token is not the API node's, or its address is not private"

var errBarred = errors.New(barred)

// Ping implements store.Edge: it reports whether the API answers and its store does.
func (s *Store) Ping(ctx context.Context) error {
	var answer pong
	err := s.lookUp(ctx, callPing, nil, &answer)
	switch {
	case errors.Is(err, store.ErrForbidden):
		s.noticeRefusal(ctx, true)
		return errBarred
	case err != nil:
		return err
	}
	s.noticeRefusal(ctx, false)
	if !*answer.OK {
		return callPing.unexpected("it answers that it is not well")
	}
	return nil
}

// AppendMessage implements store.History. What is stored is what the message's bytes
// say: the API reads them again.
func (s *Store) AppendMessage(ctx context.Context, m store.Message) (store.Appended, error) {
	if len(m.Bytes) == 0 || len(m.Bytes) > maxEnvelope {
		return store.Appended{}, fmt.Errorf("append message: %w", errMalformed)
	}
	o := s.messages.append(ctx, m)
	if o.err != nil {
		return store.Appended{}, fmt.Errorf("append message: %w", o.err)
	}
	return o.appended, nil
}

// AppendTrace implements store.TraceWriter, for the traces of envelopes.
func (s *Store) AppendTrace(ctx context.Context, t store.Trace) (store.Appended, error) {
	if err := checkTrace(&t); err != nil {
		return store.Appended{}, fmt.Errorf("append trace: %w", err)
	}
	o := s.traces.append(ctx, t)
	if o.err != nil {
		return store.Appended{}, fmt.Errorf("append trace: %w", o.err)
	}
	return o.appended, nil
}

// AppendNotice implements store.NoticeWriter. A notice is a request of its own.
func (s *Store) AppendNotice(ctx context.Context, n store.Notice) error {
	if len(n.Bytes) == 0 || len(n.Bytes) > maxEnvelope {
		return fmt.Errorf("append notice: %w", errInvalidEnvelope)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.sendNotice(ctx, &n); err != nil {
		return fmt.Errorf("append notice: %w", err)
	}
	return nil
}

// lookUp makes a call that changes nothing. into is checked to be complete.
func (s *Store) lookUp(ctx context.Context, to call, body any, into complete) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	select {
	case s.lookUps <- struct{}{}:
		defer func() { <-s.lookUps }()
	case <-ctx.Done():
		return fmt.Errorf("%s: wait for a connection: %w", to.name, ctx.Err())
	}
	request, err := encodeBody(body)
	if err != nil {
		return fmt.Errorf("%s: %w", to.name, err)
	}
	answer, err := s.exchange(ctx, to, request)
	if err == nil {
		err = to.read(answer, into)
	}
	return err
}

// eachPart calls do for parts that the API takes.
func eachPart(ids []uuid.UUID, do func([]uuid.UUID) error) error {
	for len(ids) > 0 {
		n := min(len(ids), maxIDs)
		if err := do(ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}
