package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Presence tells who is connected where; a cluster.Node does.
type Presence interface {
	Lookup(ctx context.Context, participants []uuid.UUID) ([]cluster.Presence, error)
}

// Admission keeps what is accepted over HTTP in step with the changes of rooms (DESIGN
// section 6, "Freshness"); a relay.Relay does.
type Admission interface {
	// Enter begins work that looks up who may do what and acts on it: a change of the
	// room is not in force, and so not answered, before leave was called. It fails while
	// this node may not accept.
	Enter(room uuid.UUID) (leave func(), err error)
}

// sessionRequest is one request to an endpoint of a room, by the operator or by one of
// the room's participants.
type sessionRequest struct {
	*operation
	who  caller
	room uuid.UUID
}

func (a *API) beginSession(r *http.Request) (*sessionRequest, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return nil, err
	}
	return &sessionRequest{operation: op, who: callerOf(r.Context()), room: room}, nil
}

// since is the moment from which on the caller sees what was stored: a participant sees
// nothing that was stored before it joined.
func (s *sessionRequest) since() (time.Time, error) {
	if s.who.operator {
		return time.Time{}, nil
	}
	self, err := s.api.cfg.Store.FindParticipant(s.ctx, s.tenant, s.who.identity.Participant)
	return self.JoinedAt, err
}

// enter is called before a participant's request has an effect. The credential was valid
// when the request came; a body may have come slowly since, and a revocation been
// answered. From here to leave no change is.
func (s *sessionRequest) enter() (leave func(), err error) {
	s.renew() // the body was read
	if s.who.operator {
		return func() {}, nil
	}
	if s.api.cfg.Admission == nil {
		return nil, unavailable("this process does not follow the changes of rooms")
	}
	leave, err = s.api.cfg.Admission.Enter(s.room)
	if err != nil {
		return nil, unavailable("this node may not accept anything right now")
	}
	if err := s.stillAllowed(); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enterToRead is called before the credential or access token of a request that only reads
// of a room is looked up. Until leave no change of the room is answered, so nothing is read
// with a credential after its revocation was, or by a device after it was suspended, however
// long the read takes.
func (rt *router) enterToRead(r *http.Request, to *route) (leave func(), err error) {
	token, _ := bearer(r)
	admission := rt.api.cfg.Admission
	fromOutside := rt.limits != nil && !rt.api.isOperator(token) // on the socket everybody is the operator
	room, reads := to.readsRoom(r)
	if !reads || !fromOutside || admission == nil {
		return func() {}, nil
	}
	leave, err = admission.Enter(room)
	if err != nil {
		return nil, unavailable("this node may not deliver anything right now")
	}
	return leave, nil
}

// readsRoom names the room that a request reads. For the list of rooms it is none, which
// waits for what is changed in all rooms at once, as when a device is suspended.
func (r *route) readsRoom(request *http.Request) (room uuid.UUID, reads bool) {
	if r.method != http.MethodGet || r.access != forSession && !strings.HasPrefix(r.path, roomsPath) {
		return uuid.Nil, false
	}
	if r.path == roomsPath {
		return uuid.Nil, true
	}
	return wire.ParseUUID([]byte(request.PathValue("id")))
}

const roomsPath = "/v1/rooms"

func (s *sessionRequest) stillAllowed() error {
	now, err := s.api.cfg.Store.Authenticate(s.ctx, s.who.token)
	switch {
	case errors.Is(err, store.ErrUnauthenticated):
		return unauthorized(forSession)
	case err != nil:
		return err
	case now.Frozen:
		return unavailable("the network is frozen")
	}
	return nil
}

// participant returns whose credential it is; the operator is none.
func (s *sessionRequest) participant() (store.Identity, error) {
	if s.who.operator {
		return store.Identity{}, &wire.Error{Code: wire.Forbidden, Detail: "only a participant may do this, with its credential"}
	}
	return s.who.identity, nil
}

// orArchived is a conflict, which in a room that is archived now has this for a reason.
func (s *sessionRequest) orArchived(conflict error) error {
	room, err := s.api.cfg.Store.FindRoom(s.ctx, s.tenant, s.room)
	if err == nil && room.State == store.RoomArchived {
		return &wire.Error{Code: wire.RoomIsArchived}
	}
	return conflict
}

// ownerOrOperator refuses everybody else.
func (s *sessionRequest) ownerOrOperator() error {
	if !s.who.operator && s.who.identity.Role != store.RoleOwner {
		return &wire.Error{Code: wire.Forbidden, Detail: "only the room's owner may do this"}
	}
	return nil
}

// decodeNoNull is decode for bodies in which a member that is left out means "everybody":
// null, which a careless client writes for what it does not know, is refused.
func decodeNoNull(r *http.Request, into any) error {
	return decodeWithout(r, into, "no member of the body may be null", func(token jsontext.Token) bool {
		return token.Kind() == jsontext.Null.Kind()
	})
}

// decodeGiven is decodeNoNull for bodies whose members have a default, which may be for
// good: an empty string, which a script writes for a variable that it never set, is no
// request for the default.
func decodeGiven(r *http.Request, into any) error {
	return decodeWithout(r, into, "no member of the body may be null or empty; leave it out for the default", func(token jsontext.Token) bool {
		return token.Kind() == jsontext.Null.Kind() || token.Kind() == '"' && token.String() == ""
	})
}

// decodeWithout is decode for bodies in which some tokens are refused.
func decodeWithout(r *http.Request, into any, refusal string, refused func(jsontext.Token) bool) error {
	data, err := readBody(r)
	if err != nil {
		return err
	}
	tokens := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		token, err := tokens.ReadToken()
		if err != nil {
			break // the end, or what decode refuses
		}
		if refused(token) {
			return malformed(refusal)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return decode(r, into)
}

func unavailable(detail string) error { return &wire.Error{Code: wire.Unavailable, Detail: detail} }
