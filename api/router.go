package api

import (
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

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, pattern := rt.mux.Handler(r)
	if pattern == "" || path.Clean(r.URL.Path) != r.URL.Path || r.URL.RawPath != "" {
		rt.finish(w, r, nil, outcome{err: &wire.Error{Code: wire.NotFound, Detail: "there is no such address"}})
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// serve answers a request whose path is known.
func (rt *router) serve(w http.ResponseWriter, r *http.Request, methods map[string]*route) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	to := methods[method]
	if to == nil {
		allow := allowedMethods(methods)
		w.Header().Set("Allow", allow)
		rt.finish(w, r, nil, outcome{err: &wire.Error{Code: wire.MethodNotAllowed, Detail: "allowed: " + allow}})
		return
	}
	rt.finish(w, r, to, rt.call(w, r, to))
}

// outcome is what became of a request.
type outcome struct {
	status int
	answer any
	err    error
	took   time.Duration
}

// call turns a panic into an answer: a fault in one request ends only that one.
func (rt *router) call(w http.ResponseWriter, r *http.Request, to *route) (o outcome) {
	began := time.Now()
	defer func() {
		if value := recover(); value != nil {
			rt.api.log.ErrorContext(r.Context(), "request panicked",
				"method", r.Method, "pattern", r.Pattern, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			o = outcome{err: &wire.Error{Code: wire.Internal, Detail: "the server's log has the detail"}}
		}
		o.took = time.Since(began)
	}()
	r, err := rt.guard(r, to)
	if err != nil {
		return outcome{err: err}
	}
	if err := limitBody(w, r, to); err != nil {
		return outcome{err: err}
	}
	o.status, o.answer, o.err = to.handler(r)
	return o
}

// limitBody bounds the body of a request, and refuses one where none belongs. What
// declares itself larger is not read at all.
func limitBody(w http.ResponseWriter, r *http.Request, to *route) error {
	limit := to.bodyLimit()
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	if to.method == http.MethodGet || to.method == http.MethodDelete {
		return noBody(r)
	}
	return nil
}

func allowedMethods(methods map[string]*route) string {
	var list []string
	for method := range methods {
		list = append(list, method)
		if method == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// finish writes the answer.
func (rt *router) finish(w http.ResponseWriter, r *http.Request, to *route, o outcome) {
	if o.err != nil {
		rt.refuse(w, r, o.err)
		return
	}
	if raw, ok := o.answer.(rawAnswer); ok {
		w.Header().Set("Content-Type", raw.contentType)
		w.WriteHeader(o.status)
		_, _ = w.Write(raw.body) // the caller may have gone
		return
	}
	writeJSON(w, o.status, o.answer)
}

func (rt *router) refuse(w http.ResponseWriter, r *http.Request, err error) {
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
	writeJSON(w, status, body)
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
