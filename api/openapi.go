package api

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/peerrelay/peerrelay/wire"
)

// document is an OpenAPI 3.1 document, as far as ours needs it.
type document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       documentInfo                     `json:"info"`
	Servers    []documentServer                 `json:"servers"`
	Tags       []documentTag                    `json:"tags"`
	Paths      map[string]map[string]*described `json:"paths"` // path -> method in small letters
	Components components                       `json:"components"`

	operations []*described // in the order of the routes
}

type documentInfo struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

type documentServer struct {
	URL string `json:"url"`
}

type documentTag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type components struct {
	Schemas         map[string]*schema        `json:"schemas"`
	SecuritySchemes map[string]securityScheme `json:"securitySchemes"`
}

type securityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}

// described is one operation.
type described struct {
	OperationID string                 `json:"operationId"`
	Tags        []string               `json:"tags"`
	Summary     string                 `json:"summary"`
	Description string                 `json:"description,omitzero"`
	Parameters  []describedParameter   `json:"parameters,omitempty"`
	RequestBody *describedBody         `json:"requestBody,omitzero"`
	Responses   map[string]*response   `json:"responses"` // by status
	Security    []map[string][]string  `json:"security"`
	Refusals    map[string][]refusedAs `json:"-"` // by status

	route *route
}

type describedParameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Description string  `json:"description,omitzero"`
	Required    bool    `json:"required,omitzero"`
	Schema      *schema `json:"schema"`
	Example     string  `json:"example,omitzero"`
}

type describedBody struct {
	Required bool                  `json:"required"`
	Content  map[string]*mediaType `json:"content"`
}

type mediaType struct {
	Schema  *schema        `json:"schema"`
	Example jsontext.Value `json:"example,omitzero"`
}

type response struct {
	Description string                `json:"description"`
	Content     map[string]*mediaType `json:"content,omitempty"`
}

// tags are the groups of the reference, in order.
var tags = []documentTag{
	{"enrollment", "How a device comes in: an admin makes an invite, the device enrolls with it, an admin compares fingerprints and approves."},
	{"devices", "Devices and their states: `PENDING`, `APPROVED`, `ACTIVE`, `SUSPENDED`, `REVOKED`."},
	{"auth", "How a device signs in."},
	{"rooms", "Rooms and who is in them, for the operator."},
	{"mls", "The delivery service of rooms of scheme `mls` (RFC 9420, RFC 9750): it orders commits, and keeps key packages and welcomes."},
	{"participants", "What a participant has on the server, for the operator."},
	{"credentials", "What a participant connects and calls with, for the operator."},
	{"sessions", "A room as its participants see it. On the wire a room is called a session: its id is the `session_id` of envelopes."},
	{"board", "The Board of a room: cards and their events, sealed and signed by clients."},
	{"network", "The whole relay, for the operator."},
	{"tenants", "Those who share the relay, for the operator. Nobody sees anything of another tenant."},
	{"internal", "What edge nodes ask: with their service token, from a private address."},
	{"health", "For whoever runs the process."},
	{"reference", "This description."},
}

// accessNames are the security schemes, and who calls with them.
var accessNames = map[string]securityScheme{
	"operator":   {"http", "bearer", "The operator token, in `keys/operator.token` below the data folder. The operator's socket needs none."},
	"device":     {"http", "bearer", "The access token of a device, from `/v1/auth/token`."},
	"credential": {"http", "bearer", "A credential of a participant of the room in the address."},
	"service":    {"http", "bearer", "The service token of edge nodes, from a loopback or private address."},
}

// security names what opens an endpoint.
func (a access) security() []map[string][]string {
	one := func(name string) map[string][]string { return map[string][]string{name: {}} }
	switch a {
	case forOperator:
		return []map[string][]string{one("operator")}
	case forDevice:
		return []map[string][]string{one("device"), one("operator")}
	case forSession:
		return []map[string][]string{one("credential"), one("operator")}
	case forService:
		return []map[string][]string{one("service")}
	default:
		return []map[string][]string{}
	}
}

// Everything that is not JSON of ours has these.
const (
	mediaJSON   = "application/json"
	mediaHTML   = "text/html; charset=utf-8"
	mediaStream = "application/octet-stream"
	mediaEvents = "text/event-stream"
)

const introduction = "The HTTP API of a Peer Relay. Requests and answers are JSON; the relay stores envelopes, notices and Board " +
	"content as clients sealed them, and can read none of it. Envelopes themselves go over the WebSocket at `/v1/relay`.\n\n" +
	"A refusal is `{\"error\": code, \"detail\": text}`: programs decide by the code, people read the detail. Members of a request " +
	"are spelled exactly, and one there is not is refused; members of an answer may be more one day. Ids are UUIDs in small " +
	"letters. Tokens go into the header `Authorization: Bearer`, never into an address."

//go:embed reference/comments.json
var commentsFile []byte

// describeAPI makes the document of the routes.
func describeAPI(routes []route, version string) (*document, error) {
	var comments map[string]string
	if err := json.Unmarshal(commentsFile, &comments); err != nil {
		return nil, fmt.Errorf("api: reference/comments.json: %w", err)
	}
	types := newSchemas(comments)
	if _, err := types.answer(Error{}); err != nil {
		return nil, err
	}
	d := &document{
		OpenAPI: "3.1.1",
		Info:    documentInfo{Title: "Peer Relay", Description: introduction, Version: version},
		Servers: []documentServer{{URL: "/"}},
		Paths:   make(map[string]map[string]*described),
	}
	used := make(map[string]bool)
	for i := range routes {
		operation, err := describeRoute(&routes[i], types)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", routes[i].name(), err)
		}
		methods := d.Paths[routes[i].path]
		if methods == nil {
			methods = make(map[string]*described)
			d.Paths[routes[i].path] = methods
		}
		methods[strings.ToLower(routes[i].method)] = operation
		d.operations = append(d.operations, operation)
		used[routes[i].doc.tag] = true
	}
	for _, tag := range tags {
		if used[tag.Name] {
			d.Tags = append(d.Tags, tag)
		}
		delete(used, tag.Name)
	}
	if len(used) > 0 {
		return nil, fmt.Errorf("api: groups without a text: %v", slices.Sorted(maps.Keys(used)))
	}
	d.Components = components{Schemas: types.byName, SecuritySchemes: accessNames}
	return d, nil
}

func describeRoute(r *route, types *schemas) (*described, error) {
	o := &described{
		OperationID: operationID(r),
		Tags:        []string{r.doc.tag},
		Summary:     r.doc.summary,
		Description: r.doc.description,
		Responses:   make(map[string]*response),
		Security:    r.access.security(),
		Refusals:    make(map[string][]refusedAs),
		route:       r,
	}
	o.describeParameters()
	if err := o.describeRequest(types); err != nil {
		return nil, err
	}
	if err := o.describeAnswer(types); err != nil {
		return nil, err
	}
	return o, o.describeRefusals()
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// operationID is the method with the words of the path: stable as long as the address is.
func operationID(r *route) string {
	var id strings.Builder
	id.WriteString(strings.ToLower(r.method))
	for segment := range strings.FieldsFuncSeq(r.path, func(c rune) bool { return strings.ContainsRune("/-._", c) }) {
		if name, isParameter := strings.CutPrefix(segment, "{"); isParameter {
			segment = "by_" + strings.TrimSuffix(name, "}")
		}
		segment = strings.TrimSuffix(segment, "}")
		for word := range strings.SplitSeq(segment, "_") {
			if word != "" && word != "v1" {
				id.WriteString(strings.ToUpper(word[:1]) + word[1:])
			}
		}
	}
	return id.String()
}

func (o *described) describeParameters() {
	for _, match := range pathParameter.FindAllStringSubmatchIndex(o.route.path, -1) {
		name := o.route.path[match[2]:match[3]]
		what := pathExample(o.route.path[:match[0]], name)
		parameter := describedParameter{
			Name: name, In: "path", Required: true, Schema: &schema{Type: "string"},
			Description: describePath(what),
			Example:     examples[what],
		}
		if _, ok := wire.ParseUUID([]byte(parameter.Example)); ok {
			parameter.Schema.Format = "uuid"
		}
		o.Parameters = append(o.Parameters, parameter)
	}
	for _, p := range o.route.doc.query {
		o.Parameters = append(o.Parameters, describedParameter{
			Name: p.name, In: "query", Description: p.description, Schema: &schema{Type: "string"}, Example: fillExamples(p.example),
		})
	}
	for _, p := range slices.Concat(o.route.doc.header, o.route.tenantParameter()) {
		o.Parameters = append(o.Parameters, describedParameter{
			Name: p.name, In: "header", Description: p.description, Schema: &schema{Type: "string"}, Example: fillExamples(p.example),
		})
	}
}

func (o *described) describeRequest(types *schemas) error {
	doc := o.route.doc
	if doc.request == nil {
		return nil
	}
	body, err := types.request(doc.request)
	if err != nil {
		return err
	}
	media := &mediaType{Schema: body}
	if doc.example != nil {
		if media.Example, err = exampleText(doc.example); err != nil {
			return err
		}
	}
	o.RequestBody = &describedBody{Required: true, Content: map[string]*mediaType{mediaJSON: media}}
	return nil
}

func (o *described) describeAnswer(types *schemas) error {
	doc := o.route.doc
	success := &response{Description: doc.summary, Content: make(map[string]*mediaType)}
	if doc.answer != nil {
		body, err := types.answer(doc.answer)
		if err != nil {
			return err
		}
		success.Content[mediaJSON] = &mediaType{Schema: body}
	}
	for _, media := range doc.raw {
		success.Content[media] = &mediaType{Schema: &schema{}}
	}
	o.Responses[o.success()] = success
	return nil
}

// success is the status of an answer that is no refusal.
func (o *described) success() string { return strconv.Itoa(o.route.doc.status) }

// refusals are all that a route may answer: its own, and what every one like it does.
func (r *route) refusals() []refusedAs {
	list := slices.Clone(r.doc.refusals)
	add := func(code wire.Code, when string) { list = append(list, refusedAs{string(code), when}) }
	if r.access == forEverybody {
		if r.doc.request != nil {
			add(wire.TooLarge, "The body is larger than "+strconv.FormatInt(r.bodyLimit(), 10)+" bytes.")
			add(wire.Unavailable, "It could not be done now, or whether it was done is not known; `Retry-After` says when to come back.")
		}
		add(wire.RateLimited, "Too many requests from this address.")
		return list
	}
	if r.doc.request != nil {
		add(wire.MalformedRequest, "The body is not one JSON object as described.")
		add(wire.TooLarge, "The body is larger than "+strconv.FormatInt(r.bodyLimit(), 10)+" bytes.")
	} else {
		add(wire.MalformedRequest, "The query is not as described, or there is a body.")
	}
	if strings.Contains(r.path, "{") {
		add(wire.NotFound, "An id in the address is not one, or names nothing that this caller may see.")
	}
	switch r.access {
	case forService:
		add(wire.Forbidden, "Not the service token, or not from a private address.")
	case forSession:
		add(wire.Unauthorized, "No token, or one that is not valid now.")
		add(wire.Unavailable, "The network is frozen.")
	case forDevice:
		add(wire.Unauthorized, "No token, or one that is not valid now: expired, or of a device that is neither `APPROVED` nor `ACTIVE`.")
	case forOperator, forEverybody:
		add(wire.Unauthorized, "No token, or not the operator's.")
	}
	add(wire.RateLimited, "Too many requests of this token or address; `Retry-After` says when to come back.")
	add(wire.Unavailable, "It could not be done now, or whether it was done is not known; `Retry-After` says when to come back.")
	add(wire.Internal, "A fault of the server; its log has the detail.")
	return list
}

func (o *described) describeRefusals() error {
	for _, refusal := range o.route.refusals() {
		info, known := wire.Lookup(wire.Code(refusal.code))
		if !known || info.Status == 0 {
			return fmt.Errorf("api: %q is no code of an HTTP answer", refusal.code)
		}
		status := strconv.Itoa(info.Status)
		o.Refusals[status] = append(o.Refusals[status], refusal)
	}
	for status, refusals := range o.Refusals {
		if o.Responses[status] == nil {
			o.Responses[status] = refusalResponse(refusals)
		}
	}
	return nil
}

// refusalResponse describes the refusals of one status, with the codes there are.
func refusalResponse(refusals []refusedAs) *response {
	codes := &schema{Type: "string", Description: "One of these, by which programs decide."}
	var text []string
	for _, refusal := range refusals {
		if !slices.Contains(codes.Enum, refusal.code) {
			codes.Enum = append(codes.Enum, refusal.code)
		}
		text = append(text, "`"+refusal.code+"`: "+refusal.when)
	}
	body := &schema{
		Type: "object", Required: []string{"error"},
		Properties: map[string]*schema{
			"error":  codes,
			"detail": {Type: "string", Description: "For people."},
		},
	}
	return &response{Description: strings.Join(text, "\n\n"), Content: map[string]*mediaType{mediaJSON: {Schema: body}}}
}

// examples are what the names in braces of an example stand for.
var examples = map[string]string{ //nolint:gosec // none is a secret of anybody
	"room_id":             "019ad2f0-5b1c-7c3e-9d41-6f2a8b7c0d1e",
	"participant_id":      "019ad2f0-6a40-7d52-8e13-2b9c4f5a6d70",
	"other_id":            "019ad2f0-7c02-7e19-b2d4-a8c6e0f13579", // another participant
	"device_id":           "019ad2f0-6a3f-7b21-a5c4-91d8e7f60b2a",
	"invite_id":           "019ad2ef-30aa-7d11-a8c4-5b6e7f809123",
	"invite_token":        "fW6Zb0lPzC3u9yTq1oJxVdKmR2sNhG7aEwYt4cLiB8U",
	"nonce":               "q3R8sT1vW5xYz7aBcDeFgHiJkLmNoPqRsTuVwXyZ012",
	"identity_key":        "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
	"agreement_key":       "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
	"agreement_signature": "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==",
	"proof":               "kqAJqfDUyriHFtNGHCsmjIKe2eWDnx8mZqEUqGPCxQ4jbvmFW3mJYhcdUXbgKP8GfTsPkdIMLXYzjLBKbYF3CQ==",
	"fingerprint":         "K7QM-2XPD-9VWE-R4TN-BA3C",
	"credential_id":       "019ad2f0-6a41-7e08-b3f6-c05d1a2e3f48",
	"tenant_id":           "019ad2ee-1f00-7a90-8c55-d4e3f2a1b0c9",
	"card_id":             "019ad2f1-0c11-7f64-9a27-5e6d7c8b9a01",
	"epoch":               "1",
	"event_id":            "019ad2f1-0c12-7034-8b68-3f4e5d6c7b82",
	"message_id":          "m-1",
	"token_hash":          "a token's hash, which is 32 byte",
	"now_ms":              "1790000000000",
	"later_ms":            "1790003600000",
}

// exampleText is an example as one would send it. Names in braces are filled in within
// base64, too.
func exampleText(example any) (jsontext.Value, error) {
	text, err := json.Marshal(example)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(fillValue(value), json.Deterministic(true))
}

func fillValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = fillValue(member)
		}
	case []any:
		for i, item := range value {
			value[i] = fillValue(item)
		}
	case string:
		if raw, err := base64.StdEncoding.DecodeString(value); err == nil && pathParameter.Match(raw) {
			return base64.StdEncoding.EncodeToString([]byte(fillExamples(string(raw))))
		}
		return fillExamples(value)
	}
	return value
}

// fillExamples puts example values in place of names in braces.
func fillExamples(text string) string {
	return pathParameter.ReplaceAllStringFunc(text, func(match string) string {
		if value, ok := examples[match[1:len(match)-1]]; ok {
			return value
		}
		return match
	})
}

// pathExample names what a parameter of a path is an id of: {id} is of what stands
// before it.
func pathExample(before, name string) string {
	if name != "id" {
		return name
	}
	switch segments := strings.Split(strings.TrimSuffix(before, "/"), "/"); segments[len(segments)-1] {
	case "rooms", "sessions":
		return "room_id"
	default:
		return strings.TrimSuffix(segments[len(segments)-1], "s") + "_id"
	}
}

// describePath says what a parameter of a path is.
func describePath(what string) string {
	if what == "epoch" {
		return "The epoch of the room, a number."
	}
	return "The " + strings.ReplaceAll(strings.TrimSuffix(what, "_id"), "_", " ") + "'s id."
}

// examplePath is a path with its examples filled in.
func examplePath(path string) string {
	filled := path
	for _, match := range pathParameter.FindAllStringSubmatchIndex(path, -1) {
		name := path[match[2]:match[3]]
		filled = strings.Replace(filled, "{"+name+"}", examples[pathExample(path[:match[0]], name)], 1)
	}
	return filled
}

// reference holds what is served of the document, made once.
type reference struct {
	openAPI []byte
	page    []byte
	policy  string // Content-Security-Policy of the page
}

func newReference(routes []route, version string) (*reference, error) {
	d, err := describeAPI(routes, version)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(d, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("api: OpenAPI document: %w", err)
	}
	page, policy, err := renderPage(d)
	if err != nil {
		return nil, fmt.Errorf("api: reference page: %w", err)
	}
	return &reference{openAPI: append(text, '\n'), page: page, policy: policy}, nil
}

func (a *API) referenceRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/openapi.json", access: forEverybody, handler: a.showOpenAPI, doc: doc{
			tag: "reference", summary: "Fetch the OpenAPI 3.1 document",
			status: http.StatusOK, raw: []string{mediaJSON},
		}},
		{method: http.MethodGet, path: "/docs", access: forEverybody, handler: a.showPage, doc: doc{
			tag: "reference", summary: "Read the reference", description: "For people; of the same data.",
			status: http.StatusOK, raw: []string{mediaHTML},
		}},
	}
}

func (a *API) showOpenAPI(*http.Request) (int, any, error) {
	r, err := a.reference()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, rawAnswer{contentType: mediaJSON, body: r.openAPI}, nil
}

func (a *API) showPage(*http.Request) (int, any, error) {
	r, err := a.reference()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, rawAnswer{contentType: mediaHTML, body: r.page, policy: r.policy}, nil
}
