package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/peerrelay/peerrelay/wire"
)

// handler answers one request with a status and a value to encode, or with an error.
type handler func(r *http.Request) (status int, answer any, err error)

// authorizer lets a request pass (nil) or names the refusal.
type authorizer func(r *http.Request) error

func allowed(*http.Request) error { return nil }

type endpoint struct {
	handler handler
	open    bool // for everybody
}

// router is net/http's pattern matching with answers of ours: refusals are JSON, and
// no path is redirected to another spelling of itself.
type router struct {
	log       *slog.Logger
	authorize authorizer
	mux       *http.ServeMux
	methods   map[string]map[string]endpoint // path pattern -> method -> endpoint
}

func newRouter(log *slog.Logger, authorize authorizer) *router {
	return &router{log: log, authorize: authorize, mux: http.NewServeMux(), methods: make(map[string]map[string]endpoint)}
}

func (rt *router) handle(pattern string, h handler) { rt.add(pattern, endpoint{handler: h}) }

func (rt *router) open(pattern string, h handler) { rt.add(pattern, endpoint{handler: h, open: true}) }

func (rt *router) add(pattern string, e endpoint) {
	method, pathPattern, _ := strings.Cut(pattern, " ")
	if rt.methods[pathPattern] == nil {
		rt.methods[pathPattern] = make(map[string]endpoint)
		rt.mux.HandleFunc(pathPattern, func(w http.ResponseWriter, r *http.Request) {
			rt.serve(w, r, rt.methods[pathPattern])
		})
	}
	rt.methods[pathPattern][method] = e
}

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, pattern := rt.mux.Handler(r)
	if pattern == "" || path.Clean(r.URL.Path) != r.URL.Path || r.URL.RawPath != "" {
		rt.refuse(w, r, &wire.Error{Code: wire.NotFound, Detail: "there is no such address"})
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// serve answers a request whose path is known.
func (rt *router) serve(w http.ResponseWriter, r *http.Request, methods map[string]endpoint) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	e, known := methods[method]
	if !known {
		allow := allowedMethods(methods)
		w.Header().Set("Allow", allow)
		rt.refuse(w, r, &wire.Error{Code: wire.MethodNotAllowed, Detail: "allowed: " + allow})
		return
	}
	if !e.open {
		if err := rt.authorize(r); err != nil {
			rt.refuse(w, r, err)
			return
		}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	status, answer, err := rt.call(e.handler, r)
	if err != nil {
		rt.refuse(w, r, err)
		return
	}
	writeJSON(w, status, answer)
}

// call turns a panic into an answer: a fault in one request ends only that one.
func (rt *router) call(h handler, r *http.Request) (status int, answer any, err error) {
	defer func() {
		if value := recover(); value != nil {
			rt.log.ErrorContext(r.Context(), "request panicked", "method", r.Method, "pattern", r.Pattern, "panic", fmt.Sprint(value))
			err = &wire.Error{Code: wire.Internal, Detail: "the server's log has the detail"}
		}
	}()
	return h(r)
}

func allowedMethods(methods map[string]endpoint) string {
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

func (rt *router) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, body, foreign := errorAnswer(err)
	if foreign && r.Context().Err() != context.Canceled {
		rt.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "pattern", r.Pattern, "error", err)
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="relay"`)
	}
	writeJSON(w, status, body)
}
