package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Limits of one request that stores.
const (
	maxMessages      = 512
	maxMessagesBytes = 4 << 20 // of envelopes
	maxMessagesBody  = 6 << 20 // the same in base64, with what is around it
	maxTracesBody    = 2 << 20
	maxNoticeBody    = 128 << 10
)

// storeHistory answers for store.History. The messages of one request, and of all
// requests, share the commits behind the store.
func (a *API) storeHistory(r *http.Request) (int, any, error) {
	var body EnvelopeItems
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	total := 0
	for _, item := range body.Messages {
		total += len(item.Envelope)
	}
	if total > maxMessagesBytes {
		return 0, nil, &wire.Error{Code: wire.TooLarge, Detail: "the envelopes have together more than 4 MiB"}
	}
	return appendAll(a, r, body.Message, body.Messages, readMessage, a.cfg.Store.AppendMessage)
}

// storeTraces answers for store.TraceWriter.
func (a *API) storeTraces(r *http.Request) (int, any, error) {
	var body TraceItems
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	return appendAll(a, r, body.Message, body.Messages, readTrace, a.cfg.Store.AppendTrace)
}

// storeNotice answers for store.NoticeWriter.
func (a *API) storeNotice(r *http.Request) (int, any, error) {
	var body EnvelopeItem
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	e, fault := readEnvelope(body)
	if fault != nil {
		return 0, nil, &wire.Error{Code: wire.InvalidEnvelope, Detail: fault.Detail}
	}
	if e.Kind != wire.KindNotice {
		return 0, nil, &wire.Error{Code: wire.InvalidEnvelope, Detail: "the envelope is no notice"}
	}
	notice := store.Notice{
		Tenant: e.tenant, Room: e.room, Sender: e.sender, ID: string(e.ID), Gen: e.Gen, KID: string(e.KID),
		TS: e.TS, ExpiresAt: e.ExpiresAt, Bytes: body.Envelope,
	}
	if err := a.cfg.Store.AppendNotice(r.Context(), notice); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, Accepted{Accepted: true}, nil
}

func readMessage(item *EnvelopeItem) (store.Message, error) {
	e, fault := readEnvelope(*item)
	if fault != nil {
		return store.Message{}, fault
	}
	return store.Message{
		Tenant: e.tenant, Room: e.room, Sender: e.sender, ID: string(e.ID), Kind: e.Kind, Gen: e.Gen,
		KID: string(e.KID), Enc: string(e.Enc), Hdr: e.Members.Has(wire.MemberHdr), Bytes: item.Envelope,
	}, nil
}

// sentEnvelope is an envelope with the ids in it that name what it is for.
type sentEnvelope struct {
	wire.Envelope

	tenant, room, sender uuid.UUID
}

// readEnvelope reads the bytes as a relay reads a client's frame, so that what is stored
// of an envelope is what its bytes say, whatever the edge node made of them. Only
// envelopes that are addressed to their session are stored (RELAY: "Pairwise agent
// messages are never copied there"). The refusals are those of history.
func readEnvelope(item EnvelopeItem) (sentEnvelope, *wire.Error) {
	var frame wire.ClientFrame
	err := wire.ParseClient(item.Envelope, &frame)
	if err != nil || frame.Type != wire.FrameEnvelope {
		return sentEnvelope{}, &wire.Error{Code: wire.MalformedRequest, Detail: "the bytes are no envelope"}
	}
	e := sentEnvelope{Envelope: frame.Envelope}
	if fault := e.Check(); fault != nil {
		code := wire.MalformedRequest
		if e.OnlyFileInvalid() {
			code = wire.InvalidFilePart
		}
		return sentEnvelope{}, &wire.Error{Code: code, Detail: fault.Detail}
	}
	tenant, knownTenant := wire.ParseUUID([]byte(item.TenantID))
	room, knownRoom := wire.ParseUUID(e.SessionID)
	sender, knownSender := wire.ParseUUID(e.From)
	if !knownTenant || !knownRoom || !knownSender || string(e.To) != string(e.SessionID) {
		return sentEnvelope{}, &wire.Error{Code: wire.MalformedRequest, Detail: "the envelope is not from a participant to a session"}
	}
	e.tenant, e.room, e.sender = tenant, room, sender
	return e, nil
}

// readTrace takes the traces of envelopes, which declare at most one file; those of the
// plaintext path are written by the API itself.
func readTrace(item *TraceItem) (store.Trace, error) {
	trace := store.Trace{MessageID: item.MessageID, TS: item.TS, Declared: true}
	for _, id := range [...]struct {
		into *uuid.UUID
		text string
	}{{&trace.Tenant, item.TenantID}, {&trace.Room, item.RoomID}, {&trace.From, item.From}, {&trace.To, item.To}} {
		parsed, ok := wire.ParseUUID([]byte(id.text))
		if !ok {
			return store.Trace{}, malformed("tenant_id, room_id, from and to must be ids")
		}
		*id.into = parsed
	}
	if copy(trace.Digest[:], item.Digest) != len(item.Digest) || len(item.Digest) != len(trace.Digest) {
		return store.Trace{}, malformed("digest must be 32 bytes in base64")
	}
	if item.File != nil {
		trace.Files = []store.FileHeader{{Name: item.File.Name, MIMEType: item.File.MIMEType, SizeBytes: item.File.SizeBytes}}
	}
	return trace, nil
}

// appendAll answers a request that holds one item, or several.
func appendAll[T, V any](a *API, r *http.Request, one *T, many []T,
	read func(*T) (V, error), add func(context.Context, V) (store.Appended, error),
) (int, any, error) {
	switch {
	case one != nil && many == nil:
		value, err := read(one)
		if err != nil {
			return 0, nil, err
		}
		appended, err := add(r.Context(), value)
		if err != nil {
			return 0, nil, err
		}
		return storedStatus(appended), Stored{Duplicate: appended.Duplicate}, nil
	case one != nil, len(many) == 0, len(many) > maxMessages:
		return 0, nil, malformed("the body must have one message, or 1 to 512 messages")
	}
	return http.StatusOK, Answers{Answers: appendEach(a, r.Context(), many, read, add)}, nil
}

func storedStatus(appended store.Appended) int {
	if appended.Duplicate {
		return http.StatusOK
	}
	return http.StatusCreated
}

// appendEach adds all items at once, so that they wait for their commits together. They
// are read one after the other: that needs more stack than a goroutine begins with.
func appendEach[T, V any](a *API, ctx context.Context, items []T, //nolint:revive // methods have no type parameters
	read func(*T) (V, error), add func(context.Context, V) (store.Appended, error),
) []Answer {
	answers, failures := make([]Answer, len(items)), make([]error, len(items))
	var running sync.WaitGroup
	for i := range items {
		value, err := read(&items[i])
		if err != nil {
			answers[i], failures[i] = itemAnswer(store.Appended{}, err)
			continue
		}
		running.Go(func() {
			defer func() {
				if panicked := recover(); panicked != nil {
					a.log.ErrorContext(ctx, "item of a request panicked", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
					answers[i] = Answer{Status: http.StatusInternalServerError, Error: string(wire.Internal)}
				}
			}()
			answers[i], failures[i] = itemAnswer(add(ctx, value))
		})
	}
	running.Wait()
	failed := slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	if len(failed) > 0 && ctx.Err() == nil {
		a.log.ErrorContext(ctx, "items of a request failed", "failed", len(failed), "of", len(items), "first_error", failed[0])
	}
	return answers
}

// itemAnswer returns the item's answer, and the error of one that was not refused but
// failed.
func itemAnswer(appended store.Appended, err error) (answer Answer, failure error) {
	if err == nil {
		return Answer{Status: storedStatus(appended)}, nil
	}
	status, body, foreign := errorAnswer(err)
	if foreign {
		failure = err
	}
	return Answer{Status: status, Error: body.Error}, failure
}
