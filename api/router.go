package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// handler answers one request with a status and a value to encode, or with an error.
type handler func(r *http.Request) (status int, answer any, err error)

// router is net/http's pattern matching with answers of ours: refusals are JSON, and
// no path is redirected to another spelling of itself.
type router struct {
	api     *API
	guard   guard
	limits  *limiter // of requests at once; nil: none
	mux     *http.ServeMux
	methods map[string]map[string]*route // path pattern -> method -> route
}

// guard lets a request pass, with its caller in its context, or names the refusal.
type guard func(r *http.Request, to *route) (*http.Request, error)

func newRouter(a *API, guard guard, routes []route) *router {
	rt := &router{api: a, guard: guard, mux: http.NewServeMux(), methods: make(map[string]map[string]*route)}
	for i := range routes {
		rt.add(&routes[i])
	}
	return rt
}

func (rt *router) add(to *route) {
	methods := rt.methods[to.path]
	if methods == nil {
		methods = make(map[string]*route)
		rt.methods[to.path] = methods
		rt.mux.HandleFunc(to.path, func(w http.ResponseWriter, r *http.Request) { rt.serve(w, r, methods) })
	}
	if methods[to.method] != nil {
		panic("api: " + to.method + " " + to.path + " is there twice")
	}
	methods[to.method] = to
}

// nothingMayBeLoaded is for answers that a browser is not meant to show.
const nothingMayBeLoaded = "default-src 'none'; frame-ancestors 'none'"

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", nothingMayBeLoaded)
	_, pattern := rt.mux.Handler(r)
	if pattern == "" || path.Clean(r.URL.Path) != r.URL.Path || r.URL.RawPath != "" {
		rt.finish(w, r, nil, &visit{}, outcome{err: &wire.Error{Code: wire.NotFound, Detail: rt.missing(r.URL.EscapedPath())}})
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// missing tells whoever asks a node of another role where to go.
func (rt *router) missing(address string) string {
	_, hasRooms := rt.methods["/v1/rooms"]
	switch {
	case address == "/v1/relay":
		return "this node takes no WebSockets: connect to a node of role edge or all"
	case !hasRooms && strings.HasPrefix(address, "/v1/"):
		return "this node serves no API: ask the node of role api"
	}
	return "there is no such address"
}

// serve answers a request whose path is known.
func (rt *router) serve(w http.ResponseWriter, r *http.Request, methods map[string]*route) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	to := methods[method]
	if to == nil || to.noHead && r.Method == http.MethodHead {
		allow := allowedMethods(methods)
		w.Header().Set("Allow", allow)
		rt.finish(w, r, nil, &visit{}, outcome{err: &wire.Error{Code: wire.MethodNotAllowed, Detail: "allowed: " + allow}})
		return
	}
	v := &visit{limits: rt.limits}
	defer v.leave()
	rt.finish(w, r, to, v, rt.call(w, r, to, v))
}

// outcome is what became of a request.
type outcome struct {
	status int
	answer any
	err    error
	took   time.Duration
}

// call turns a panic into an answer: a fault in one request ends only that one.
func (rt *router) call(w http.ResponseWriter, r *http.Request, to *route, v *visit) (o outcome) {
	began := time.Now()
	defer func() {
		if value := recover(); value != nil {
			rt.api.log.ErrorContext(r.Context(), "request panicked",
				"method", r.Method, "pattern", r.Pattern, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			o = outcome{err: &wire.Error{Code: wire.Internal, Detail: "the server's log has the detail"}}
		}
		o.took = time.Since(began)
	}()
	if err := v.enter(to); err != nil {
		return outcome{err: err}
	}
	leave, err := rt.enterToRead(r, to)
	if err != nil {
		return outcome{err: err}
	}
	defer leave()
	if r, err = rt.guard(r, to); err != nil {
		return outcome{err: err}
	}
	if err := v.by(callerOf(r.Context()).counted()); err != nil {
		return outcome{err: err}
	}
	if err := to.checkQuery(r); err != nil {
		return outcome{err: err}
	}
	if err := limitBody(w, r, to); err != nil {
		return outcome{err: err}
	}
	o.status, o.answer, o.err = to.handler(r)
	return o
}

// largeBodyTime is the time that a body may take which may be larger than most, once
// its sender is known. The server's WriteTimeout, which is for the whole request, is longer.
const largeBodyTime = 30 * time.Second

// limitBody bounds the body of a request, and refuses one where none belongs. What
// declares itself larger is not read at all.
func limitBody(w http.ResponseWriter, r *http.Request, to *route) error {
	limit := to.bodyLimit()
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	if limit > defaultBody { // else the server's own time is enough; writers without deadlines need none
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(largeBodyTime))
	}
	if to.method == http.MethodGet || to.method == http.MethodDelete {
		return noBody(r)
	}
	return nil
}

// checkQuery refuses a query with members that the endpoint does not name. Health and
// reference take any: what asks for them may add some to get round a cache.
func (r *route) checkQuery(request *http.Request) error {
	if request.URL.RawQuery == "" || r.fixed() {
		return nil
	}
	known := make([]string, 0, len(r.doc.query))
	for _, p := range r.doc.query {
		known = append(known, p.name)
	}
	_, err := readQuery(request, known...)
	return err
}

func allowedMethods(methods map[string]*route) string {
	var list []string
	for method, to := range methods {
		list = append(list, method)
		if method == http.MethodGet && !to.noHead {
			list = append(list, http.MethodHead)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// finish writes the answer, and counts it.
func (rt *router) finish(w http.ResponseWriter, r *http.Request, to *route, v *visit, o outcome) {
	status, code := o.status, ""
	answer, err := encodeAnswer(o.answer)
	if err = cmp.Or(o.err, err); err == nil {
		err = v.holds(len(answer.body))
	}
	if err != nil {
		var body Error
		status, body = rt.refusal(w, r, err)
		answer, _ = encodeAnswer(body) // two strings
		code = body.Error
	}
	rt.api.metrics.observe(to, status, code, o.took)
	w.Header().Set("Content-Type", answer.contentType)
	if answer.policy != "" {
		w.Header().Set("Content-Security-Policy", answer.policy)
	}
	w.WriteHeader(status)
	if live, ok := o.answer.(liveAnswer); ok && err == nil {
		if r.Method != http.MethodHead {
			live(w)
		}
		return
	}
	_, _ = w.Write(answer.body) // the caller may have gone
}

// refusal is the answer that an error becomes. What is not a refusal is logged.
func (rt *router) refusal(w http.ResponseWriter, r *http.Request, err error) (int, Error) {
	status, body, foreign := errorAnswer(err)
	if foreign && !errors.Is(r.Context().Err(), context.Canceled) {
		rt.api.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "pattern", r.Pattern, "error", err)
	}
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="relay"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter(err)))
	}
	return status, body
}

// retryAfter is the time that a refusal names, in seconds and at least one.
func retryAfter(err error) int {
	var seconds int
	if later, ok := errors.AsType[*laterError](err); ok {
		seconds = int((later.wait + time.Second - 1) / time.Second)
	}
	return max(1, seconds)
}

// laterError is a refusal that will not be one in a while.
type laterError struct {
	refusal *wire.Error
	wait    time.Duration
}

func (e *laterError) Error() string { return e.refusal.Error() }

func (e *laterError) Unwrap() error { return e.refusal }
