package remote

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	maxEnvelope = wire.MaxMessage
	// maxTraceBytes bounds a trace in JSON: ids, and a file's name and type with every
	// code point escaped.
	maxTraceBytes = 4 << 10
)

var (
	errMalformed       = &wire.Error{Code: wire.MalformedRequest, Detail: "this shape is not stored"}
	errInvalidEnvelope = &wire.Error{Code: wire.InvalidEnvelope, Detail: "notices do not have this size"}
)

// checkTrace refuses what no envelope's trace has, so that a trace never costs others
// their shared request.
func checkTrace(t *store.Trace) error {
	if !t.Declared || len(t.Files) > 1 || len(t.MessageID) > wire.MaxIDLength {
		return errMalformed
	}
	for _, f := range t.Files {
		if len(f.Name) > 4*wire.MaxFileName || len(f.MIMEType) > 4*wire.MaxMIMEType {
			return errMalformed
		}
	}
	return nil
}

// sendMessages is one request to the history endpoint.
func (s *Store) sendMessages(ctx context.Context, items []*item[store.Message]) {
	size := 64
	for _, i := range items {
		size += 100 + base64.StdEncoding.EncodedLen(len(i.value.Bytes))
	}
	sendAll(ctx, s, callHistory, items, slices.Grow([]byte(nil), size), appendMessage)
}

// sendTraces is one request to the traces endpoint.
func (s *Store) sendTraces(ctx context.Context, items []*item[store.Trace]) {
	sendAll(ctx, s, callTraces, items, slices.Grow([]byte(nil), 64+512*len(items)), appendTrace)
}

// sendAll sends the items and gives each its outcome.
func sendAll[T any](ctx context.Context, s *Store, to call, items []*item[T], body []byte, write func([]byte, *T) []byte) {
	s.metrics.items.WithLabelValues(to.name).Observe(float64(len(items)))
	if len(items) == 1 {
		body = write(append(body, `{"message":`...), &items[0].value)
	} else {
		body = append(body, `{"messages":[`...)
		for n, i := range items {
			if n > 0 {
				body = append(body, ',')
			}
			body = write(body, &i.value)
		}
		body = append(body, ']')
	}
	answer, err := s.exchange(ctx, to, append(body, '}'))
	tell := func(i *item[T], o outcome) {
		s.metrics.appended(to.name, o)
		i.done <- o
	}
	if err != nil {
		for _, i := range items {
			tell(i, outcome{err: err})
		}
		return
	}
	if len(items) == 1 {
		tell(items[0], to.stored(answer))
		return
	}
	for n, o := range to.storedEach(answer, len(items)) {
		tell(items[n], o)
	}
}

// sendNotice is one request to the notices endpoint.
func (s *Store) sendNotice(ctx context.Context, n *store.Notice) error {
	body := appendItem(make([]byte, 0, 100+base64.StdEncoding.EncodedLen(len(n.Bytes))), n.Tenant, n.Bytes)
	answer, err := s.exchange(ctx, callNotices, body)
	if err == nil {
		err = callNotices.accepted(answer)
	}
	s.metrics.appended(callNotices.name, outcome{err: err})
	return err
}

func appendMessage(body []byte, m *store.Message) []byte { return appendItem(body, m.Tenant, m.Bytes) }

func appendItem(body []byte, tenant uuid.UUID, envelope []byte) []byte {
	body = append(body, `{"tenant_id":"`...)
	body = wire.AppendUUID(body, wire.UUID(tenant))
	body = append(body, `","envelope":"`...)
	body = base64.StdEncoding.AppendEncode(body, envelope)
	return append(body, `"}`...)
}

func appendTrace(body []byte, t *store.Trace) []byte {
	for _, member := range [...]struct {
		name string
		id   uuid.UUID
	}{{`{"tenant_id":"`, t.Tenant}, {`","room_id":"`, t.Room}, {`","from":"`, t.From}, {`","to":"`, t.To}} {
		body = wire.AppendUUID(append(body, member.name...), wire.UUID(member.id))
	}
	body = appendText(append(body, `","message_id":`...), t.MessageID)
	body = strconv.AppendUint(append(body, `,"ts":`...), t.TS, 10)
	for _, f := range t.Files { // at most one
		body = appendText(append(body, `,"file":{"name":`...), f.Name)
		body = appendText(append(body, `,"mime_type":`...), f.MIMEType)
		body = strconv.AppendUint(append(body, `,"size_bytes":`...), f.SizeBytes, 10)
		body = append(body, '}')
	}
	body = base64.StdEncoding.AppendEncode(append(body, `,"digest":"`...), t.Digest[:])
	return append(body, `"}`...)
}

// appendText appends a JSON string. What is not UTF-8 gets replacement characters, which
// the store refuses as it would refuse the text.
func appendText(body []byte, text string) []byte {
	quoted, _ := jsontext.AppendQuote(body, text) // it appends whatever it says
	return quoted
}

type storedAnswer struct {
	Duplicate *bool `json:"duplicate"`
}

// stored reads the answer to one item that went alone: 201 for a new one, 200 for one
// that was stored before, and the body says the same.
func (c call) stored(a answer) outcome {
	if a.status != http.StatusOK && a.status != http.StatusCreated {
		return outcome{err: c.refusal(a.status, a.body)}
	}
	var body storedAnswer
	err := json.Unmarshal(a.body, &body)
	if err != nil || body.Duplicate == nil || *body.Duplicate != (a.status == http.StatusOK) {
		return outcome{err: c.unexpected("its body")}
	}
	return outcome{appended: store.Appended{Duplicate: *body.Duplicate}}
}

// storedEach reads the answer to n items. A refusal of the request as a whole is none
// of its items.
func (c call) storedEach(a answer, n int) []outcome {
	outcomes := make([]outcome, n)
	var body struct {
		Answers []jsontext.Value `json:"answers"`
	}
	var err error
	switch {
	case a.status != http.StatusOK:
		err = c.unexpected("status " + strconv.Itoa(a.status) + " for several items")
	case json.Unmarshal(a.body, &body) != nil || len(body.Answers) != n:
		err = c.unexpected("not an answer for each item")
	}
	for i := range outcomes {
		if err != nil {
			outcomes[i].err = err
			continue
		}
		outcomes[i] = c.storedItem(body.Answers[i])
	}
	return outcomes
}

func (c call) storedItem(text []byte) outcome {
	var item struct {
		Status int     `json:"status"`
		Error  *string `json:"error"`
	}
	switch err := json.Unmarshal(text, &item); {
	case err != nil:
		return outcome{err: c.unexpected("an item's answer")}
	case item.Status == http.StatusCreated && item.Error == nil:
		return outcome{}
	case item.Status == http.StatusOK && item.Error == nil:
		return outcome{appended: store.Appended{Duplicate: true}}
	}
	return outcome{err: c.refusal(item.Status, text)}
}

// accepted reads the answer to a notice.
func (c call) accepted(a answer) error {
	if a.status != http.StatusCreated {
		return c.refusal(a.status, a.body)
	}
	var body struct {
		Accepted *bool `json:"accepted"`
	}
	if err := json.Unmarshal(a.body, &body); err != nil || body.Accepted == nil || !*body.Accepted {
		return c.unexpected("its body")
	}
	return nil
}
