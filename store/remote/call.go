package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Bounds of answers.
const (
	maxRefusal = 4 << 10 // bytes of a refusal's body (RELAY)
	maxAnswer  = 1 << 20 // of any other's
)

// call is one endpoint, and the refusals it may answer.
type call struct {
	name     string // in errors and metrics
	method   string
	path     string
	query    string
	status   int // of success
	refusals map[wire.Code]error
}

// The refusals of an endpoint: each passes only with the status of wire.Codes. An error
// of the table is what it means; nil: a *wire.Error with the code.
var (
	callAuthenticate = call{
		name: "authenticate", method: http.MethodPost, path: "/internal/v1/authenticate", status: http.StatusOK,
		refusals: map[wire.Code]error{wire.Unauthorized: store.ErrUnauthenticated},
	}
	callCredentials = call{name: "valid_credentials", method: http.MethodPost, path: "/internal/v1/credentials/valid", status: http.StatusOK}
	callRoster      = call{
		name: "roster", method: http.MethodGet, status: http.StatusOK,
		refusals: map[wire.Code]error{wire.NotFound: store.ErrNotFound},
	}
	callVersions = call{name: "room_versions", method: http.MethodPost, path: "/internal/v1/rooms/versions", status: http.StatusOK}
	callHistory  = call{
		name: "history", method: http.MethodPost, path: "/internal/v1/history",
		refusals: map[wire.Code]error{
			// RELAY, "When the API refuses the store".
			wire.MLSSchemeDisabled: nil, wire.SchemeMismatch: nil, wire.MLSRetired: nil, wire.MLSRemovalPending: nil,
			wire.MLSUnknown: nil, wire.HistoryConflict: nil, wire.MalformedRequest: nil, wire.InvalidFilePart: nil,
			wire.NotActivated: nil, wire.RoomIsArchived: nil,

			wire.NotFound: store.ErrNotFound, wire.Conflict: store.ErrConflict,
		},
	}
	callTraces = call{
		name: "traces", method: http.MethodPost, path: "/internal/v1/traces",
		refusals: map[wire.Code]error{
			wire.PrivateRefused: nil, wire.HistoryConflict: nil, wire.MalformedRequest: nil, wire.RoomIsArchived: nil,

			wire.NotFound: store.ErrNotFound, wire.Conflict: store.ErrConflict,
		},
	}
	callNotices = call{
		name: "notices", method: http.MethodPost, path: "/internal/v1/notices",
		refusals: map[wire.Code]error{
			wire.NoticeNotPermitted: nil, wire.InvalidEnvelope: nil, wire.NoticeStale: nil, wire.NoticeCap: nil,
			wire.NoticeIDConflict: nil, wire.NoticeInvalidGen: nil, wire.NoticeDuplicate: nil,
			wire.RoomIsArchived: nil,

			wire.NotFound: store.ErrNotFound, wire.Conflict: store.ErrConflict,
		},
	}
	callPing = call{
		name: "ping", method: http.MethodGet, path: "/internal/v1/ping", status: http.StatusOK,
		refusals: map[wire.Code]error{wire.Forbidden: store.ErrForbidden},
	}
)

// unexpected is the error of an answer that this call does not have. It says nothing of
// what was in it.
func (c call) unexpected(what string) error {
	return fmt.Errorf("%s: the API's answer is not understood: %s", c.name, what)
}

// errAPIUnavailable is the API saying that it does not know either. It is no refusal.
var errAPIUnavailable = errors.New("the API answers that it is unavailable: see its log")

// answer is an HTTP answer, read whole.
type answer struct {
	status int
	body   []byte
}

// exchange sends a request and reads its answer. An error after which nothing can have
// been stored is not told from one after which it may be.
func (s *Store) exchange(ctx context.Context, to call, body []byte) (answer, error) {
	began := time.Now()
	a, err := s.roundTrip(ctx, to, body)
	s.metrics.called(to.name, time.Since(began), err)
	s.notice(ctx, to, err)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", to.name, err)
	}
	return a, nil
}

// notice logs that the API went away, and that it is back, a few times a second at most.
func (s *Store) notice(ctx context.Context, to call, err error) {
	if errors.Is(err, context.Canceled) { // the caller's own doing
		return
	}
	away := err != nil
	if s.away.Swap(away) == away || !s.logs.Allow() {
		return
	}
	if away {
		s.cfg.Logger.WarnContext(ctx, "the API does not answer", "call", to.name, "error", err)
		return
	}
	s.cfg.Logger.InfoContext(ctx, "the API answers again", "call", to.name)
}

// noticeRefusal logs once that the API lets this node in no more, or again: nothing but
// the operator ends that.
func (s *Store) noticeRefusal(ctx context.Context, refused bool) {
	if s.barred.Swap(refused) == refused {
		return
	}
	if refused {
		s.cfg.Logger.ErrorContext(ctx, barred)
		return
	}
	s.cfg.Logger.InfoContext(ctx, "the API no longer refuses this node")
}

func (s *Store) roundTrip(ctx context.Context, to call, body []byte) (answer, error) {
	target := &url.URL{Scheme: s.base.Scheme, Host: s.base.Host, Path: to.path, RawQuery: to.query}
	request := (&http.Request{
		Method: to.method, URL: target, Host: target.Host, Header: http.Header{"Authorization": {s.bearer}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		request.Header["Content-Type"] = []string{"application/json"}
		request.ContentLength = int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	// The transport itself follows no redirect, and sends a request again only when
	// nothing of it was written, or when it is a GET.
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return answer{}, fmt.Errorf("ask the API: %w", withCause(ctx, err))
	}
	defer response.Body.Close()
	limit := maxAnswer
	if response.StatusCode >= http.StatusMultipleChoices {
		limit = maxRefusal
	}
	text, err := readAll(response, limit)
	if err != nil {
		return answer{}, fmt.Errorf("read the API's answer: %w", withCause(ctx, err))
	}
	return answer{response.StatusCode, text}, nil
}

// withCause names the context's end where that is what happened.
func withCause(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

var errLongAnswer = errors.New("it is longer than answers are")

// readAll reads the body to its end, which is not after limit bytes.
func readAll(response *http.Response, limit int) ([]byte, error) {
	if response.ContentLength > int64(limit) {
		return nil, errLongAnswer
	}
	if n := response.ContentLength; n >= 0 {
		text := make([]byte, n)
		_, err := io.ReadFull(response.Body, text)
		return text, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	if err == nil && len(text) > limit {
		err = errLongAnswer
	}
	return text, err
}

// complete is an answer that can tell whether all of it is there.
type complete interface{ complete() bool }

// read takes the answer of a call that looks something up.
func (c call) read(a answer, into complete) error {
	if a.status != c.status {
		return c.refusal(a.status, a.body)
	}
	if err := json.Unmarshal(a.body, into); err != nil || !into.complete() {
		return c.unexpected("its body")
	}
	return nil
}

// refusal reads the answer of a request, or of one item of it, that was not fulfilled.
// Only a refusal of this call with exactly its status is one (RELAY); everything else is
// an error that stands for not knowing.
func (c call) refusal(status int, body []byte) error {
	if len(body) > maxRefusal {
		return c.unexpected("a long refusal")
	}
	var refused struct {
		Error *string `json:"error"`
	}
	// Unmarshal takes one value with unique names in valid UTF-8, and white space around
	// it, and nothing else. What is no object has no such member.
	if err := json.Unmarshal(body, &refused); err != nil || refused.Error == nil {
		return c.unexpected(fmt.Sprintf("status %d without an error code", status))
	}
	code := wire.Code(*refused.Error)
	meaning, listed := c.refusals[code]
	info, known := wire.Lookup(code)
	switch {
	case !listed && code == wire.Unavailable && status == info.Status:
		return fmt.Errorf("%s: %w", c.name, errAPIUnavailable)
	case !listed || !known:
		return c.unexpected(fmt.Sprintf("status %d with a code that this call does not have", status))
	case info.Status != status:
		return c.unexpected(fmt.Sprintf("%s under status %d", code, status))
	case meaning != nil:
		return fmt.Errorf("%s: %w", c.name, meaning)
	}
	return &wire.Error{Code: code}
}
