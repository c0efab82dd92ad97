package api

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// defaultBody bounds a request whose route names no bound of its own.
const defaultBody = 16 << 10

// decode reads a request body: exactly one JSON object whose member names are
// spelled exactly, known and unique, in valid UTF-8 (FAULTS F01, F03, F04, E10).
func decode(r *http.Request, into any) error {
	if kind := r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			return malformed("the body must be application/json")
		}
	}
	data, err := readBody(r)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return malformed("a JSON object is missing")
	}
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return malformed(describe(err))
	}
	if first := firstByte(data); first != '{' {
		return malformed("the body must be one JSON object")
	}
	return nil
}

// readBody reads a whole body, which the router has bounded.
func readBody(r *http.Request) ([]byte, error) {
	var data bytes.Buffer
	if size := r.ContentLength; size > 0 {
		data.Grow(int(size) + bytes.MinRead)
	}
	_, err := data.ReadFrom(r.Body)
	if over, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(over.Limit)
	}
	if err != nil {
		return nil, malformed("the body could not be read")
	}
	return data.Bytes(), nil
}

func tooLarge(limit int64) error {
	return &wire.Error{Code: wire.TooLarge, Detail: "the body is larger than " + strconv.FormatInt(limit, 10) + " bytes"}
}

// describe tells where a body is wrong without echoing what the caller sent.
func describe(err error) string {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(semantic.Err, json.ErrUnknownName) {
			return "the body has a member that this request does not take"
		}
		return "a member of the body has the wrong type"
	}
	return "the body is not one valid JSON object with unique member names"
}

func firstByte(data []byte) byte {
	for _, c := range data {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// noBody refuses a body where none belongs. It waits for none: what a caller holds back
// of a body must not lie between the look-up of its credential and what it then reads.
func noBody(r *http.Request) error {
	if r.ContentLength != 0 { // -1: one that may come
		return malformed("this request takes no body")
	}
	return nil
}

// pathID reads an id of the path. Anything but the one text form names nothing.
func pathID(r *http.Request, name string) (uuid.UUID, error) {
	id, ok := wire.ParseUUID([]byte(r.PathValue(name)))
	if !ok {
		return uuid.Nil, &wire.Error{Code: wire.NotFound, Detail: "the " + name + " in the address is not an id"}
	}
	return id, nil
}

// bodyID reads an id of the body.
func bodyID(text, member string) (uuid.UUID, error) {
	id, ok := wire.ParseUUID([]byte(text))
	if !ok {
		return uuid.Nil, malformed(member + " must be an id")
	}
	return id, nil
}

func malformed(detail string) error {
	return &wire.Error{Code: wire.MalformedRequest, Detail: detail}
}

// encodeAnswer returns what is written of an answer, which may be bytes already.
func encodeAnswer(value any) (answer rawAnswer, err error) {
	if raw, ok := value.(rawAnswer); ok {
		return raw, nil
	}
	if _, ok := value.(liveAnswer); ok {
		return rawAnswer{contentType: mediaEvents}, nil
	}
	data, err := json.Marshal(value, json.Deterministic(true))
	if err != nil { // our own types: a fault of this program
		err = &wire.Error{Code: wire.Internal, Detail: "the answer could not be written"}
	}
	return rawAnswer{contentType: mediaJSON, body: append(data, '\n')}, err
}

// errorAnswer maps an error to its answer. foreign reports one that is not a refusal
// but a failure: its text is logged, not sent.
func errorAnswer(err error) (status int, body Error, foreign bool) {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		refusal, foreign = refusalOf(err)
	}
	info, known := wire.Lookup(refusal.Code)
	if !known || info.Status == 0 {
		return http.StatusInternalServerError, Error{Error: string(wire.Internal)}, true
	}
	body = Error{Error: string(refusal.Code), Detail: refusal.Detail}
	if refusal.Code == wire.RoomIsArchived && body.Detail == "" {
		body.Detail = "the room is archived: nothing is stored in it any more"
	}
	if late, ok := errors.AsType[*store.EpochError](err); ok {
		body.Epoch = &late.Current
	}
	return info.Status, body, foreign
}

func refusalOf(err error) (refusal *wire.Error, foreign bool) {
	_, late := errors.AsType[*store.EpochError](err)
	exhausted, isExhausted := errors.AsType[*store.ExhaustedError](err)
	switch {
	case late:
		return &wire.Error{Code: wire.EpochConflict, Detail: "the room is in another epoch: fetch what came since, and begin anew"}, false
	case isExhausted:
		return &wire.Error{Code: wire.KeyPackagesExhausted, Detail: exhausted.Error()}, false
	case errors.Is(err, store.ErrNotFound):
		return &wire.Error{Code: wire.NotFound, Detail: "there is no such room, participant, device or credential"}, false
	case errors.Is(err, store.ErrConflict):
		return &wire.Error{Code: wire.Conflict, Detail: reasonOf(err, "the state of the room or device does not allow this")}, false
	case errors.Is(err, store.ErrForbidden):
		return &wire.Error{Code: wire.Forbidden, Detail: reasonOf(err, "not allowed in this role")}, false
	case errors.Is(err, store.ErrInvalid):
		return &wire.Error{Code: wire.MalformedRequest, Detail: "a value is not one of those allowed"}, false
	case errors.Is(err, context.DeadlineExceeded):
		return &wire.Error{Code: wire.Unavailable, Detail: "it took too long; it may or may not have been done"}, true
	}
	return &wire.Error{Code: wire.Unavailable, Detail: "it may or may not have been done"}, true
}

// reasonOf is the reason of a refusal, where it has one that is for callers.
func reasonOf(err error, otherwise string) string {
	if reasoned, ok := errors.AsType[*store.RefusalError](err); ok {
		return reasoned.Reason
	}
	return otherwise
}

// refused reports whether the store said no, as against not knowing.
func refused(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid) ||
		errors.Is(err, store.ErrForbidden) || errors.Is(err, &wire.Error{Code: wire.RoomIsArchived})
}
