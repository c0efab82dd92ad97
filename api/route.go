package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

// access says who may call an endpoint.
type access int

const (
	forOperator access = iota // the operator's socket or token
	forDevice                 // the operator, or a device that has signed in
	forSession                // the operator, or a valid credential of the room named in the path
	forService                // the service token of edge nodes, from a private address
	forEverybody
)

// caller is who calls: the operator, the device that has signed in, or the participant
// whose credential it is.
type caller struct {
	tenant     uuid.UUID
	tenantName string // that the operator names; empty for the default one
	operator   bool
	device     store.Device    // zero for others than devices
	identity   store.Identity  // zero for others than participants
	token      store.TokenHash // of the device or of identity's credential
}

// admin reports whether the caller may manage devices: the operator, or an ACTIVE admin.
func (c caller) admin() bool {
	return c.operator || c.device.Admin && c.device.State == store.DeviceActive
}

// counted is whose requests at once are counted together; zero for the operator.
func (c caller) counted() uuid.UUID {
	if c.device.ID != uuid.Nil {
		return c.device.ID
	}
	return c.identity.Participant
}

type callerKey struct{}

// callerOf returns who calls, as the router has found out: for forSession whole, for
// forOperator and the operator's calls of forDevice without the tenant (see begin), zero for
// the rest.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// route is one method of one path, and all that the OpenAPI document says of it.
type route struct {
	method  string
	path    string // pattern of net/http
	access  access
	handler handler
	maxBody int64 // bytes; 0: 16 KiB
	noHead  bool  // a GET that takes something: HEAD, whose answer has no place for it, is refused
	doc     doc
}

// name is how logs, metrics and the reference call a route.
func (r *route) name() string { return r.method + " " + r.path }

// fixed reports an endpoint that tells everybody the same: health and reference.
func (r *route) fixed() bool { return r.access == forEverybody && r.doc.request == nil }

func (r *route) bodyLimit() int64 {
	if r.maxBody == 0 {
		return defaultBody
	}
	return r.maxBody
}

// doc is what people read. Types stand for their JSON Schema.
type doc struct {
	tag         string // group on the page: enrollment, rooms, sessions, board, internal, health
	summary     string // one line
	who         string // may call, where it is not all whom access lets in
	description string // Markdown; limits, order, what may be repeated
	query       []parameter
	header      []parameter
	request     any         // value of the body's type, nil: no body
	status      int         // of success
	answer      any         // value of the type of the answer's body, nil: not JSON
	raw         []string    // media types of rawAnswer, where there are such answers
	refusals    []refusedAs // beside those every endpoint has
	example     any         // value of the request's type, as one would send it
}

type parameter struct {
	name        string
	description string
	example     string
}

// refusedAs is a code of wire.Codes that this endpoint answers, and when.
type refusedAs struct {
	code string
	when string
}

// liveAnswer writes an answer for as long as it has something to tell. Its status and
// headers have gone out.
type liveAnswer func(w http.ResponseWriter)

// rawAnswer is an answer that is bytes already.
type rawAnswer struct {
	contentType string
	body        []byte
	policy      string // Content-Security-Policy; empty: nothing may be loaded, which is right for all but pages
}
