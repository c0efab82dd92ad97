package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

// openAPI is the served document, as far as its examples are performed.
type openAPI struct {
	Paths      map[string]map[string]*documented `json:"paths"`
	Components struct {
		Schemas map[string]*documentedSchema `json:"schemas"`
	} `json:"components"`
}

type documented struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name, In, Example string
	} `json:"parameters"`
	RequestBody *struct {
		Content map[string]struct {
			Example json.RawMessage `json:"example"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct {
			Schema *documentedSchema `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
	Security []map[string][]string `json:"security"`
}

type documentedSchema struct {
	Ref        string                       `json:"$ref"`
	Type       any                          `json:"type"`
	Properties map[string]*documentedSchema `json:"properties"`
	Required   []string                     `json:"required"`
	Items      *documentedSchema            `json:"items"`
	Additional json.RawMessage              `json:"additionalProperties"`
}

// The ids and times of the document's examples; the test puts real ones in their place.
const (
	exampleRoom        = "019ad2f0-5b1c-7c3e-9d41-6f2a8b7c0d1e"
	exampleParticipant = "019ad2f0-6a40-7d52-8e13-2b9c4f5a6d70"
	exampleOther       = "019ad2f0-7c02-7e19-b2d4-a8c6e0f13579"
	exampleDevice      = "019ad2f0-6a3f-7b21-a5c4-91d8e7f60b2a"
	exampleCredential  = "019ad2f0-6a41-7e08-b3f6-c05d1a2e3f48"
	exampleTenant      = "019ad2ee-1f00-7a90-8c55-d4e3f2a1b0c9"
	exampleInvite      = "019ad2ef-30aa-7d11-a8c4-5b6e7f809123"
	exampleTokenHash   = "a token's hash, which is 32 byte"
	exampleNow         = "1790000000000"
	exampleLater       = "1790003600000"
)

// before are the operations whose examples are performed first, so that there is
// something to show.
var before = map[string][]string{
	"getSessionsByIdHistory":                   {"postInternalHistory"},
	"getSessionsByIdTraces":                    {"postInternalTraces"},
	"getSessionsByIdNotices":                   {"postSessionsByIdSenderGenerations", "postInternalNotices"},
	"getSessionsByIdParticipants":              {"postSessionsByIdSenderGenerations"},
	"getSessionsByIdRules":                     {"putSessionsByIdRules"},
	"postInternalNotices":                      {"postSessionsByIdSenderGenerations"},
	"getSessionsByIdBoardCards":                {"postSessionsByIdBoardCards"},
	"getSessionsByIdBoardCardsByCardId":        {"postSessionsByIdBoardCards"},
	"getSessionsByIdBoardEvents":               {"postSessionsByIdBoardCards"},
	"postSessionsByIdBoardCardsByCardIdEvents": {"postSessionsByIdBoardCards"},
}

// devices are the operations on a device, and what makes one whose example they are.
var devices = map[string]func(*testing.T, *testkit.Relay) *testkit.Device{
	"postDevicesByIdApprove":   func(t *testing.T, s *testkit.Relay) *testkit.Device { return s.Enroll(t, "agent", false) },
	"postDevicesByIdSuspend":   activeDevice,
	"postDevicesByIdReinstate": suspendedDevice,
	"postDevicesByIdRevoke":    activeDevice,
	"getDevices":               activeDevice,
	"getDevicesById":           activeDevice,
	"postAuthChallenge":        activeDevice,
	"postAuthToken":            activeDevice,
	"putDevicesMeKeys":         activeDevice,
	"getEvents":                func(t *testing.T, s *testkit.Relay) *testkit.Device { return s.ActiveDevice(t, "human", true) },
	"postInvites":              func(t *testing.T, s *testkit.Relay) *testkit.Device { return s.ActiveDevice(t, "human", true) },
}

// asDevice are the operations that a device performs; in the others of devices the operator
// does.
var asDevice = []string{"putDevicesMeKeys", "getEvents", "postInvites", "putDevicesMePrekeys", "getDevicesMePrekeys", "getDevicesByIdPrekeyBundle"}

func activeDevice(t *testing.T, s *testkit.Relay) *testkit.Device {
	return s.ActiveDevice(t, "agent", false)
}

func suspendedDevice(t *testing.T, s *testkit.Relay) *testkit.Device {
	d := activeDevice(t, s)
	s.Call(t, http.MethodPost, "/v1/devices/"+d.ID+"/suspend", nil, nil)
	return d
}

// asAgent are the operations that an agent performs; in the others the owner does.
var asAgent = []string{"postSessionsByIdSenderGenerations"}

// examples is a relay with its document.
type examples struct {
	relay    *testkit.Relay
	client   *http.Client
	document openAPI
	check    validator.Validator
	operator string
	service  string
}

func startExamples(t *testing.T) *examples {
	t.Helper()
	e := &examples{relay: testkit.Start(t, testkit.MLS()), client: &http.Client{Timeout: patience}}
	t.Cleanup(e.client.CloseIdleConnections)
	e.operator, e.service = e.token(t, "operator"), e.token(t, "service")
	answer, err := e.client.Get(e.relay.URL() + "/openapi.json")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &e.document))
	parsed, err := libopenapi.NewDocument(text)
	require.NoError(t, err)
	var failures []error
	e.check, failures = validator.NewValidator(parsed)
	require.Empty(t, failures)
	return e
}

func (e *examples) token(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.relay.Data(), "keys", name+".token"))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// place is a room of its own for one example.
type place struct {
	owner, agent string            // credentials
	device       string            // access token
	real         *strings.Replacer // example values by real ones
}

func (e *examples) place(t *testing.T, id, scheme string) *place {
	t.Helper()
	room := e.relay.Room(t, testkit.RoomOptions{Scheme: scheme})
	owner, agent, other := e.relay.Join(t, room, "owner"), e.relay.Join(t, room, "agent"), e.relay.Join(t, room, "agent")
	credential, credentialID := e.relay.MintID(t, agent, "session", time.Hour)
	hash, ok := store.HashToken([]byte(credential))
	require.True(t, ok)
	p := &place{owner: owner.Credential, agent: credential}
	now := time.Now()
	values := e.device(t, p, id)
	p.real = strings.NewReplacer(append(values,
		exampleRoom, room, exampleParticipant, agent.ID, exampleOther, other.ID, exampleCredential, credentialID,
		exampleTenant, e.tenant(t, hash), exampleTokenHash, string(hash[:]),
		exampleNow, strconv.FormatInt(now.UnixMilli(), 10), exampleLater, strconv.FormatInt(now.Add(time.Hour).UnixMilli(), 10),
	)...)
	return p
}

// device makes what an operation on devices needs, and tells which values of the example
// stand for it.
func (e *examples) device(t *testing.T, p *place, id string) (values []string) {
	t.Helper()
	switch {
	case id == "postEnroll":
		for name, value := range testkit.NewDevice(t).Enrollment(t, e.relay.Invite(t, "agent", false).Token, "agent") {
			if name != "kind" && name != "label" {
				values = append(values, e.example(t, id, name), value)
			}
		}
	case id == "deleteInvitesById":
		values = append(values, exampleInvite, e.relay.Invite(t, "agent", false).ID)
	case strings.Contains(id, "Prekey"):
		return e.prekeys(t, p, id)
	case slices.Contains(groupOperations, id):
		return e.group(t, p, id)
	case devices[id] != nil:
		d := devices[id](t, e.relay)
		p.device = d.AccessToken
		values = append(values, exampleDevice, d.ID)
		if id == "postDevicesByIdApprove" {
			values = append(values, "K7QM-2XPD-9VWE-R4TN-BA3C", d.Keys.Fingerprint())
		}
		if id == "postAuthToken" {
			signed := e.relay.SignedNonce(t, d)
			values = append(values, e.example(t, id, "nonce"), signed["nonce"], e.example(t, id, "signature"), signed["signature"])
		}
	}
	return values
}

// example is one member of an operation's example.
func (e *examples) example(t *testing.T, id, member string) string {
	t.Helper()
	var values map[string]string
	_, _, o := e.find(t, id)
	require.NoError(t, json.Unmarshal(o.RequestBody.Content["application/json"].Example, &values))
	return values[member]
}

// tenant asks whose a credential is.
func (e *examples) tenant(t *testing.T, hash store.TokenHash) string {
	t.Helper()
	body := fmt.Sprintf(`{"token_hash":%q}`, base64.StdEncoding.EncodeToString(hash[:]))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.relay.URL()+"/internal/v1/authenticate", strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+e.service)
	answer, err := e.client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var identity struct {
		TenantID string `json:"tenant_id"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&identity))
	return identity.TenantID
}

// fill puts real values into an example, within base64 too.
func (p *place) fill(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = p.fill(member)
		}
	case []any:
		for i, item := range value {
			value[i] = p.fill(item)
		}
	case string:
		if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
			if filled := p.real.Replace(string(raw)); filled != string(raw) {
				return base64.StdEncoding.EncodeToString([]byte(filled))
			}
		}
		return p.real.Replace(value)
	}
	return value
}

func (e *examples) find(t *testing.T, id string) (method, path string, o *documented) {
	t.Helper()
	for path, methods := range e.document.Paths {
		for method, o := range methods {
			if o.OperationID == id {
				return strings.ToUpper(method), path, o
			}
		}
	}
	require.Fail(t, "there is no such operation", id)
	return "", "", nil
}

// perform sends an operation's example, and demands what the document says of the answer.
func (e *examples) perform(t *testing.T, p *place, id string) (answered any) {
	t.Helper()
	method, path, o := e.find(t, id)
	request := e.request(t, p, method, path, o)
	answer, err := e.client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body := e.read(t, answer)
	status := success(t, o)
	require.Equal(t, status, strconv.Itoa(answer.StatusCode), "%s %s: %s", method, request.URL, body)

	media := answer.Header.Get("Content-Type")
	content, described := o.Responses[status].Content[media]
	require.True(t, described, "%s is described", media)
	if !strings.HasPrefix(media, "application/json") || content.Schema == nil || content.Schema.Ref == "" {
		return nil
	}
	require.NoError(t, json.Unmarshal(body, &answered))
	e.exact(t, id, content.Schema, answered)

	again := e.request(t, p, method, path, o)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	valid, wrong := e.check.ValidateHttpRequestResponse(again, answer)
	for _, w := range wrong {
		t.Log(w.Error(), w.SchemaValidationErrors)
	}
	require.True(t, valid, "%s: %s", id, body)
	return answered
}

// read returns an answer's body, of one that does not end what comes first.
func (*examples) read(t *testing.T, answer *http.Response) []byte {
	t.Helper()
	if answer.Header.Get("Content-Type") == "text/event-stream" {
		first := make([]byte, 1)
		_, err := io.ReadFull(answer.Body, first)
		require.NoError(t, err)
		return first
	}
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return body
}

// showsRows reports a list that is not empty; an answer without a list shows enough.
func showsRows(answer any) bool {
	object, ok := answer.(map[string]any)
	if !ok {
		return false
	}
	lists := 0
	for _, member := range object {
		if list, ok := member.([]any); ok && len(list) > 0 {
			return true
		} else if ok {
			lists++
		}
	}
	return lists == 0
}

func success(t *testing.T, o *documented) string {
	t.Helper()
	at := slices.IndexFunc(slices.Sorted(maps.Keys(o.Responses)), func(status string) bool { return strings.HasPrefix(status, "2") })
	require.Zero(t, at, "%s has one status of success", o.OperationID)
	return slices.Sorted(maps.Keys(o.Responses))[0]
}

func (e *examples) request(t *testing.T, p *place, method, path string, o *documented) *http.Request {
	t.Helper()
	headers, query := make(http.Header), make([]string, 0, 4)
	for _, parameter := range o.Parameters {
		value := p.real.Replace(parameter.Example)
		switch {
		case value == "":
			require.NotEqual(t, "path", parameter.In)
		case parameter.In == "path":
			path = strings.Replace(path, "{"+parameter.Name+"}", value, 1)
		case parameter.In == "query":
			query = append(query, parameter.Name+"="+value)
		default:
			headers.Set(parameter.Name, value)
		}
	}
	var body io.Reader = http.NoBody
	if o.RequestBody != nil {
		var example any
		require.NoError(t, json.Unmarshal(o.RequestBody.Content["application/json"].Example, &example), "%s has an example", o.OperationID)
		text, err := json.Marshal(p.fill(example))
		require.NoError(t, err)
		body = bytes.NewReader(text)
		headers.Set("Content-Type", "application/json")
	}
	address := e.relay.URL() + path
	if len(query) > 0 {
		address += "?" + strings.Join(query, "&")
	}
	request, err := http.NewRequestWithContext(t.Context(), method, address, body)
	require.NoError(t, err)
	request.Header = headers
	if len(o.Security) > 0 {
		request.Header.Set("Authorization", "Bearer "+e.bearer(t, p, o))
	}
	return request
}

func (e *examples) bearer(t *testing.T, p *place, o *documented) string {
	t.Helper()
	for name := range o.Security[0] {
		switch {
		case name == "operator", name == "device" && !slices.Contains(slices.Concat(asDevice, groupOperations), o.OperationID):
			return e.operator
		case name == "device":
			return p.device
		case name == "service":
			return e.service
		case slices.Contains(asAgent, o.OperationID):
			return p.agent
		}
	}
	return p.owner
}

// exact demands that an answer has exactly the members that the schema names.
func (e *examples) exact(t *testing.T, where string, schema *documentedSchema, value any) {
	t.Helper()
	if name, ok := strings.CutPrefix(schema.Ref, "#/components/schemas/"); ok {
		schema = e.document.Components.Schemas[name]
		where += " (" + name + ")"
	}
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			property := schema.Properties[name]
			if property == nil {
				require.NotEmpty(t, schema.Additional, "%s: %s is described", where, name)
				require.NotEqual(t, "false", string(schema.Additional), "%s: %s is described", where, name)
				continue
			}
			e.exact(t, where+"."+name, property, member)
		}
		for _, name := range schema.Required {
			require.Contains(t, value, name, where)
		}
	case []any:
		require.NotNil(t, schema.Items, where)
		for _, item := range value {
			e.exact(t, where+"[]", schema.Items, item)
		}
	}
}

// Every endpoint's example does what the document says.
func TestExamplesDoWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	e := startExamples(t)
	var ids []string
	for _, methods := range e.document.Paths {
		for _, o := range methods {
			ids = append(ids, o.OperationID)
		}
	}
	slices.Sort(ids)
	require.NotEmpty(t, ids)
	for first := range before {
		require.Contains(t, ids, first, "nothing is prepared for what there is not")
	}
	for _, id := range ids {
		t.Run(id, func(t *testing.T) {
			scheme := "sender_keys"
			if id == "postSessionsByIdMessages" {
				scheme = "none"
			}
			p := e.place(t, id, scheme)
			for _, first := range before[id] {
				e.perform(t, p, first)
			}
			answer := e.perform(t, p, id)
			require.True(t, before[id] == nil || showsRows(answer), "what was prepared is shown")
		})
	}
}
