package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// inhabited is a tenant with something of everything. What people choose is the same in
// each: ids of messages and notices, key ids, labels.
type inhabited struct {
	s     *testkit.Relay // whose operator acts in the tenant
	name  string
	admin *testkit.Device
	owner *testkit.Device
	agent *testkit.Device

	room                  string // of sender_keys, with everybody
	asOwner, asAgent      testkit.Participant
	asViewer, otherMember testkit.Participant

	ids  map[string][]string // by what they name: room, participant, device, ...
	sent map[string][]byte   // by id: what asAgent sent

	twins map[string]string
}

func (w *inhabited) add(what string, ids ...string) { w.ids[what] = append(w.ids[what], ids...) }

// inhabit makes a tenant and fills it.
func inhabit(t *testing.T, relay *testkit.Relay, name string) *inhabited {
	t.Helper()
	relay.Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": name}, nil)
	w := &inhabited{s: relay.In(name), name: name, ids: make(map[string][]string), sent: make(map[string][]byte), twins: make(map[string]string)}
	w.makeDevices(t)
	w.makeRooms(t)
	w.talk(t)
	w.writeBoard(t)
	w.add("invite", w.s.Invite(t, "agent", false).ID)
	return w
}

// makeDevices makes one in each state.
func (w *inhabited) makeDevices(t *testing.T) {
	t.Helper()
	w.admin = w.s.ActiveDevice(t, "human", true)
	w.owner, w.agent = w.s.ActiveDevice(t, "human", false), w.s.ActiveDevice(t, "agent", false)
	approved := w.s.Enroll(t, "agent", false)
	w.s.Approve(t, approved)
	suspended, revoked := w.s.ActiveDevice(t, "agent", false), w.s.ActiveDevice(t, "agent", false)
	moveDevice(t, w.s, suspended, "suspend")
	moveDevice(t, w.s, revoked, "revoke")
	for _, d := range []*testkit.Device{w.agent, w.owner, w.admin, w.s.Enroll(t, "agent", false), approved, suspended, revoked} {
		w.add("device", d.ID)
	}
}

// makeRooms makes one of each kind and scheme, and one that is archived.
func (w *inhabited) makeRooms(t *testing.T) {
	t.Helper()
	w.asOwner = opened(t, w.s, w.owner, testkit.RoomOptions{})
	w.room = w.asOwner.Room
	w.asAgent = added(t, w.s, w.owner, w.room, w.agent, "agent")
	w.asViewer, w.otherMember = w.s.Join(t, w.room, "viewer"), w.s.Join(t, w.room, "agent")
	former := w.s.Join(t, w.room, "agent")
	w.s.Remove(t, former)
	w.add("room", w.room)
	for _, p := range []testkit.Participant{w.asAgent, w.asOwner, w.asViewer, former} {
		w.add("participant", p.ID)
		w.add("credential", p.CredentialID)
	}
	for _, options := range []testkit.RoomOptions{{Scheme: "mls"}, {Scheme: "none"}, {Kind: "direct"}, {Scheme: "sender_keys"}} {
		owner := opened(t, w.s, w.owner, options)
		agent := added(t, w.s, w.owner, owner.Room, w.agent, "agent")
		w.add("room", owner.Room)
		w.add("participant", agent.ID)
		w.add("credential", agent.CredentialID)
	}
	archived := w.ids["room"][len(w.ids["room"])-1]
	w.s.Call(t, http.MethodPost, "/v1/rooms/"+archived+"/archive", nil, nil)
}

// talk leaves history, a notice, a trace and the rows of inboxes.
func (w *inhabited) talk(t *testing.T) {
	t.Helper()
	gen := generation(t, w.s, w.asAgent, 1)
	agent := connect(t, w.s, w.asAgent)
	agent.resume("$", 0)
	w.sent["m-1"] = under(gen, agent.envelope("message", w.room, "m-1"))
	w.sent["n-1"] = agent.fresh("n-1", gen)
	w.sent["p-1"] = agent.envelope("message", w.otherMember.ID, "p-1")
	agent.queued(w.sent["m-1"], 3)
	agent.queued(w.sent["n-1"], 3)
	agent.queued(w.sent["p-1"], 1)
	agent.leave()
	w.s.Call(t, http.MethodPut, "/v1/sessions/"+w.room+"/rules", map[string]any{"rule": "message.send", "participant_id": w.otherMember.ID, "allowed": false}, nil)
}

func (w *inhabited) writeBoard(t *testing.T) {
	t.Helper()
	card := newCard(t, w.s, w.asOwner, "task")
	event := comment(t, w.s, w.asAgent, card.CardID)
	w.add("card", card.CardID)
	w.add("event", card.EventID, event.EventID)
}

// allOf is every row of the tenant, as the database's owner sees them. Left out are the
// challenges: whoever knows the id of a device may ask for one, as to sign in.
func allOf(t *testing.T, db *pgx.Conn, name string) map[string]string {
	t.Helper()
	rows := make(map[string]string)
	tables := askDatabase[string](t, db, `SELECT string_agg(relname, ' ') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'device_challenges'`)
	for table := range strings.FieldsSeq(tables) {
		var text string
		require.NoError(t, db.QueryRow(t.Context(), "SELECT coalesce(string_agg(to_jsonb(r)::text, ' ' ORDER BY to_jsonb(r)::text), '') FROM "+table+
			" r JOIN tenants t ON t.id = r.tenant_id WHERE t.name = $1", name).Scan(&text))
		rows[table] = text
	}
	return rows
}

// inboxesOf is what waits for each participant of the tenant.
func (w *inhabited) inboxesOf(t *testing.T) map[string]string {
	t.Helper()
	inboxes := make(map[string]string)
	for _, p := range []testkit.Participant{w.asAgent, w.asOwner, w.asViewer, w.otherMember} {
		var inbox map[string]any
		w.s.Call(t, http.MethodGet, "/v1/participants/"+p.ID+"/inbox", nil, &inbox)
		inboxes[p.ID] = testkit.EncodeJSON(t, inbox)
	}
	return inboxes
}

// twoTenants is a relay with two tenants that are at rest.
func twoTenants(t *testing.T) (a, b *inhabited, db *pgx.Conn) {
	t.Helper()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database), testkit.MLS())
	db = databaseOwner(t, database)
	a, b = inhabit(t, s, "alpha"), inhabit(t, s, "beta")
	require.Eventually(t, func() bool { return askDatabase[int64](t, db, "SELECT count(*) FROM outbox") == 0 }, patience, poll)
	return a, b, db
}

// newID is an id that nobody has.
func newID(t *testing.T) string {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id.String()
}

func operatorToken(t *testing.T, s *testkit.Relay) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Data(), "keys", "operator.token"))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// addresses are those that askAs has used.
var addresses atomic.Uint32

// askAs makes one request with these values of Relay-Tenant, from an address of its own, so
// that what an address may do in a second is no matter.
func askAs(t *testing.T, s *testkit.Relay, tenants []string, method, path, token string, body any) testkit.Answer {
	t.Helper()
	content := []byte{}
	if body != nil {
		content = []byte(testkit.EncodeJSON(t, body))
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, bytes.NewReader(content))
	require.NoError(t, err)
	request.Header[http.CanonicalHeaderKey("Relay-Tenant")] = tenants
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	n := addresses.Add(1)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1+byte(n>>16), byte(n>>8), byte(n))}}
	answer, err := (&http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}).RoundTrip(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return testkit.Answer{Status: answer.StatusCode, Header: answer.Header, Body: string(text)}
}

// Everything that people choose may be the same in two tenants; each has its own (FAULTS
// G06), and ids that the server makes are no continuation of each other.
func TestTheSameIDsInTwoTenants(t *testing.T) {
	t.Parallel()
	a, b, _ := twoTenants(t)
	for _, w := range []*inhabited{a, b} {
		require.Equal(t, string(w.sent["m-1"]), rawMessage(t, w.s, w.asAgent, "m-1"))
		notices := session[struct {
			Notices []json.RawMessage `json:"notices"`
		}](t, w.s, w.asOwner, http.MethodGet, "/notices", nil, http.StatusOK)
		require.Len(t, notices.Notices, 1)
		require.Len(t, boardEvents(t, w.s, w.asOwner), 2)
	}
	// The bits of an id that are no time and no version have nothing in common.
	for what := range a.ids {
		for i, id := range a.ids[what] {
			require.NotEqual(t, id[24:], b.ids[what][i][24:], what)
		}
	}
}

// What is frozen is the tenant that the operator names (RELAY, "network_frozen").
func TestFreezingIsOfOneTenant(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	for _, name := range []string{"alpha", "beta"} {
		s.Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": name}, nil)
	}
	alpha, beta := s.In("alpha"), s.In("beta")
	ofAlpha, ofBeta, ofDefault := room(t, alpha, "agent", "agent"), room(t, beta, "agent", "agent"), room(t, s, "agent", "agent")
	stopped := online(t, s, ofAlpha[0])
	goesOn, other := online(t, s, ofBeta[0]), online(t, s, ofBeta[1])
	usual := online(t, s, ofDefault[0])
	alpha.Freeze(t, true)
	stopped.closed(wire.CloseFrozen)
	alive(t, goesOn, other)
	alive(t, usual, online(t, s, ofDefault[1]))
	var status struct {
		Frozen bool `json:"frozen"`
	}
	for relay, frozen := range map[*testkit.Relay]bool{alpha: true, beta: false, s: false} {
		relay.Call(t, http.MethodGet, "/v1/freeze", nil, &status)
		require.Equal(t, frozen, status.Frozen)
		relay.Call(t, http.MethodGet, "/v1/status", nil, &status)
		require.Equal(t, frozen, status.Frozen)
	}
	alpha.Freeze(t, false)
	alive(t, online(t, s, ofAlpha[0]), online(t, s, ofAlpha[1]))
}

// Admins hear of the devices of their own tenant.
func TestEventsAreOfOneTenant(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	streams := make(map[string]*events)
	for _, name := range []string{"alpha", "beta"} {
		s.Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": name}, nil)
		streams[name] = follow(t, s, s.In(name).ActiveDevice(t, "human", true).AccessToken)
	}
	for _, name := range []string{"beta", "alpha", "beta"} {
		// The next one that the stream tells of, so that nothing of the other came before.
		streams[name].pending(t, s.In(name).Enroll(t, "agent", false))
	}
}

// Only the operator names a tenant, and one that there is; naming one makes none.
func TestWhoMayNameATenant(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := testkit.Start(t, testkit.Database(database))
	s.Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": "alpha"}, nil)
	require.ErrorContains(t, s.Try(t, http.MethodPost, "/v1/tenants", map[string]string{"name": "alpha"}), "409")
	for _, bad := range []string{"", "Alpha", "-x", "a b", strings.Repeat("x", 65), "ä"} {
		require.ErrorContains(t, s.Try(t, http.MethodPost, "/v1/tenants", map[string]string{"name": bad}), "malformed_request", "%q", bad)
	}
	alpha := s.In("alpha")
	device := alpha.ActiveDevice(t, "human", true)
	member := room(t, alpha, "agent", "owner")[1]

	call := func(method, path, token string, tenants ...string) testkit.Answer {
		return askAs(t, s, tenants, method, path, token, nil)
	}
	operator := operatorToken(t, s)
	call(http.MethodGet, "/v1/rooms/"+member.Room, operator, "alpha").Demand(t, http.StatusOK)
	call(http.MethodGet, "/v1/rooms/"+member.Room, operator).Refused(t, http.StatusNotFound, wire.NotFound)
	call(http.MethodGet, "/v1/rooms/"+member.Room, operator, "default").Refused(t, http.StatusNotFound, wire.NotFound)
	call(http.MethodGet, "/v1/sessions/"+member.Room+"/participants", operator, "alpha").Demand(t, http.StatusOK)
	for _, path := range []string{"/v1/rooms/" + member.Room, "/v1/sessions/" + member.Room + "/participants", "/v1/status", "/v1/devices", "/v1/events"} {
		answer := call(http.MethodGet, path, operator, "gamma")
		answer.Refused(t, http.StatusNotFound, wire.NotFound)
		require.Contains(t, answer.Body, "Relay-Tenant", path)
		call(http.MethodGet, path, operator, "Gamma").Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodGet, path, operator, "").Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodGet, path, operator, "alpha", "alpha").Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	}
	for _, name := range []string{"alpha", "default", "gamma", "?"} {
		call(http.MethodGet, "/v1/devices/"+device.ID, device.AccessToken, name).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodGet, "/v1/sessions/"+member.Room+"/participants", member.Credential, name).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodPost, "/v1/enroll", "", name).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodPost, "/v1/auth/challenge", "", name).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		call(http.MethodGet, "/v1/devices", "", name).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
		call(http.MethodGet, "/healthz", "", name).Demand(t, http.StatusOK)
	}
	require.Equal(t, "alpha default", askDatabase[string](t, databaseOwner(t, database), "SELECT string_agg(name, ' ' ORDER BY name) FROM tenants"))

	var list struct {
		Tenants []struct{ Name string }
		Next    string `json:"next_cursor"`
	}
	s.Public(t, http.MethodGet, "/v1/tenants?limit=1", operator, nil).Into(t, &list)
	require.Equal(t, "alpha", list.Tenants[0].Name)
	s.Public(t, http.MethodGet, "/v1/tenants?limit=1&cursor="+list.Next, operator, nil).Into(t, &list)
	require.Equal(t, "default", list.Tenants[0].Name)
	s.Public(t, http.MethodGet, "/v1/tenants", device.AccessToken, nil).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
}

// A device signs in wherever it is; one that there is not gets a challenge as well, and the
// same refusal.
func TestSigningInTellsNothingOfTenants(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	s.Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": "alpha"}, nil)
	known := s.In("alpha").ActiveDevice(t, "agent", false)
	require.NotEmpty(t, known.AccessToken)
	pending, unknown := s.In("alpha").Enroll(t, "agent", false), testkit.NewDevice(t)
	unknown.ID = newID(t)
	stranger := *known
	stranger.Private = testkit.NewDevice(t).Private
	var first testkit.Answer
	for i, d := range []*testkit.Device{unknown, pending, &stranger} {
		answer := s.Public(t, http.MethodPost, "/v1/auth/token", "", s.SignedNonce(t, d))
		answer.Refused(t, http.StatusUnauthorized, wire.Unauthorized)
		answer.Header.Del("Date")
		if i == 0 {
			first = answer
		}
		require.Equal(t, first, answer)
	}
}

// Frames: what is of B is what there is not (RELAY: not_a_member, wrong_sender).
func TestFramesWithIDsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	a, b, db := twoTenants(t)
	before, inboxes := allOf(t, db, b.name), b.inboxesOf(t)
	for _, kind := range []string{"message", "control", "senderkey", "key_request", "notice"} {
		for place, theirs := range map[string]map[string][]string{
			"session_id":        {"room": b.ids["room"]},
			"from":              {"participant": b.ids["participant"]},
			"to":                {"participant": b.ids["participant"], "room": b.ids["room"]},
			"session_id and to": {"room": b.ids["room"]},
		} {
			otherwise := frameAnswers(t, a, kind, place, newID(t))
			for _, ids := range theirs {
				for _, id := range ids {
					require.Equal(t, otherwise, frameAnswers(t, a, kind, place, id), "%s: %s", kind, place)
				}
			}
		}
	}
	require.Equal(t, before, allOf(t, db, b.name))
	require.Equal(t, inboxes, b.inboxesOf(t))
}

// frameAnswers is all that a new socket of A's agent gets for an envelope with the id in
// some places.
func frameAnswers(t *testing.T, a *inhabited, kind, place, id string) (answers []string) {
	t.Helper()
	members := map[string]string{"session_id": a.room, "from": a.asAgent.ID, "to": a.otherMember.ID}
	for name := range strings.SplitSeq(place, " and ") {
		members[name] = id
	}
	socket := a.s.RawDial(t)
	socket.Send(t, fmt.Sprintf(`{"type":"hello","token":%q}`, a.asAgent.Credential))
	socket.Until(t, wire.ServerWelcome)
	socket.Send(t, fmt.Sprintf(`{"v":1,"id":"x","session_id":%q,"from":%q,"to":%q,"kind":%q,"gen":1,"seq":1,"ts":1,"nonce":"bm9uY2U=","ct":"QQ==","sig":"c2ln","expires_at":9000000000000}`,
		members["session_id"], members["from"], members["to"], kind))
	socket.Send(t, `{"type":"mark"}`)
	for {
		frame, closed := socket.Next(t)
		switch {
		case closed != 0:
			return append(answers, fmt.Sprint("closed ", closed))
		case frame.Type == wire.ServerError && frame.FrameType == "mark":
			return append(answers, "open")
		case frame.Type == wire.ServerNack || frame.Type == wire.ServerQueued || frame.Type == wire.ServerError:
			answers = append(answers, strings.ReplaceAll(string(frame.Raw), id, "ID"))
		}
	}
}

// describedOperation is an operation of the OpenAPI document, as far as the hostile tenant
// reads it.
type describedOperation struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name, In, Example string
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]struct {
			Schema  describedSchema `json:"schema"`
			Example json.RawMessage `json:"example"`
		} `json:"content"`
	} `json:"requestBody"`
}

type describedSchema struct {
	Ref        string                     `json:"$ref"`
	Format     string                     `json:"format"`
	Properties map[string]describedSchema `json:"properties"`
	Items      *describedSchema           `json:"items"`
}

type describedAPI struct {
	Paths      map[string]map[string]describedOperation `json:"paths"`
	Components struct {
		Schemas map[string]describedSchema `json:"schemas"`
	} `json:"components"`
}

// named says what the members of requests name that hold ids. One that is missing here
// fails the test.
var named = map[string]string{
	"room_id": "room", "session_id": "room", "room_ids": "room",
	"participant_id": "participant", "participant_ids": "participant", "added": "participant", "removed": "participant",
	"from": "participant", "to": "participant", "sender_id": "participant",
	"device_id": "device", "credential_id": "credential", "credential_ids": "credential",
	"invite_id": "invite", "card_id": "card", "event_id": "event", "tenant_id": "tenant",
}

// namesNothing are the path parameters that are no ids, with a value.
var namesNothing = map[string]string{"epoch": "1"}

// place is where an operation takes an id.
type place struct {
	in   string // path, query, or body
	name string // of the parameter or member
	what string // of named
	list bool   // the member is a list of ids
}

// hostileCall is one operation with its places.
type hostileCall struct {
	method, path string
	places       []place
	query        map[string]string
	body         map[string]any // nil: none
	lookedUp     bool           // somebody was neither refused for what it is nor for what it wrote
}

// hostileCalls are all operations of the served document.
func hostileCalls(t *testing.T, s *testkit.Relay) (calls []hostileCall) {
	t.Helper()
	var document describedAPI
	s.Public(t, http.MethodGet, "/openapi.json", "", nil).Into(t, &document)
	for path, methods := range document.Paths {
		for method, o := range methods {
			c := hostileCall{method: strings.ToUpper(method), path: path, query: make(map[string]string)}
			c.addParameters(t, o)
			if content, ok := o.RequestBody.Content["application/json"]; ok {
				c.body = make(map[string]any)
				if content.Example != nil {
					require.NoError(t, json.Unmarshal(content.Example, &c.body), o.OperationID)
				}
				c.addMembers(t, &document, content.Schema)
			}
			calls = append(calls, c)
		}
	}
	require.Greater(t, len(calls), 40)
	return calls
}

// refusesAlways are the paths that refuse a wrong id as they refuse everything
// (TestSigningInTellsNothingOfTenants).
var refusesAlways = map[string]bool{"/v1/auth/token": true}

// takesIDs reports a place for more than a cursor, which may be refused for its form.
func (c *hostileCall) takesIDs() bool {
	return slices.ContainsFunc(c.places, func(p place) bool { return p.what != "cursor" })
}

func (c *hostileCall) addParameters(t *testing.T, o describedOperation) {
	t.Helper()
	for _, p := range o.Parameters {
		switch {
		case p.In == "path" && namesNothing[p.Name] != "":
			c.path = strings.ReplaceAll(c.path, "{"+p.Name+"}", namesNothing[p.Name])
		case p.In == "path":
			what := strings.TrimSuffix(p.Name, "_id")
			if p.Name == "id" {
				before, _, _ := strings.Cut(c.path, "/{id}")
				what = strings.TrimSuffix(before[strings.LastIndex(before, "/")+1:], "s")
			}
			if what == "session" {
				what = "room"
			}
			c.places = append(c.places, place{in: "path", name: p.Name, what: what})
		case p.In == "query" && p.Name == "cursor":
			c.places = append(c.places, place{in: "query", name: p.Name, what: "cursor"})
		case p.In == "query" && named[p.Name] != "":
			c.places = append(c.places, place{in: "query", name: p.Name, what: named[p.Name]})
		case p.In == "query":
			require.False(t, strings.HasSuffix(p.Name, "_id") && p.Name != "message_id", "%s %s: what does %s name?", c.method, c.path, p.Name)
			if p.Example != "" {
				c.query[p.Name] = p.Example
			}
		}
	}
}

// addMembers finds the ids among the members of a body, also those that its example leaves
// out.
func (c *hostileCall) addMembers(t *testing.T, document *describedAPI, schema describedSchema) {
	t.Helper()
	if name, ok := strings.CutPrefix(schema.Ref, "#/components/schemas/"); ok {
		schema = document.Components.Schemas[name]
	}
	for name, member := range schema.Properties {
		list := member.Items != nil && member.Items.Format == "uuid"
		if member.Format != "uuid" && !list && named[name] == "" {
			continue
		}
		require.NotEmpty(t, named[name], "%s %s: what does %s name?", c.method, c.path, name)
		c.places = append(c.places, place{in: "body", name: name, what: named[name], list: list || member.Items != nil})
	}
}

// hostileCaller is somebody of A.
type hostileCaller struct {
	name, token string
	operator    bool
}

// theirs is what a place is filled with: ids of somebody, by what they name.
type theirs map[string]string

// call makes the request with these ids, and returns what came, without the ids.
func (c *hostileCall) call(t *testing.T, a *inhabited, by hostileCaller, fill theirs, only int, own theirs) string {
	t.Helper()
	path, query := c.path, make([]string, 0, len(c.query))
	for name, value := range c.query {
		query = append(query, name+"="+value)
	}
	body := make(map[string]any, len(c.body))
	maps.Copy(body, c.body)
	used := make([]string, 0, len(c.places))
	for i, p := range c.places {
		id := fill[p.what]
		if only >= 0 && i != only {
			id = own[p.what]
		}
		switch {
		case id == "": // a cursor, which A's own calls need not have
		case p.in == "path":
			path = strings.ReplaceAll(path, "{"+p.name+"}", id)
		case p.in == "query":
			query = append(query, p.name+"="+id)
		case p.list:
			body[p.name] = []string{id}
		case only < 0 || i == only || c.body[p.name] != nil:
			body[p.name] = id
		}
		if only < 0 || i == only {
			used = append(used, id)
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	var content any
	if c.body != nil {
		content = body
	}
	return seen(t, a, by, c.method, path, content, used)
}

// seen is one answer, whole but for its date and the ids that were asked for.
func seen(t *testing.T, a *inhabited, by hostileCaller, method, path string, body any, used []string) string {
	t.Helper()
	var tenants []string
	if by.operator {
		tenants = []string{a.name}
	}
	answer := askAs(t, a.s, tenants, method, path, by.token, body)
	for answer.Status == http.StatusTooManyRequests { // a matter of how fast one asks, not of what
		pause(t, poll*10)
		answer = askAs(t, a.s, tenants, method, path, by.token, body)
	}
	answer.Header.Del("Date")
	text := answer.Body
	for _, id := range used {
		if id != "" {
			text = strings.ReplaceAll(text, id, "ID")
		}
	}
	if method != http.MethodGet && answer.Status/100 == 2 {
		var made any
		require.NoError(t, json.Unmarshal([]byte(text), &made))
		text = testkit.EncodeJSON(t, form(made))
		answer.Header.Del("Content-Length") // times end with as many digits as they need
	}
	return fmt.Sprint(answer.Status, answer.Header, text)
}

// form is what two answers have in common that made something twice: all but the values,
// and with the id that was asked for.
func form(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = form(member)
		}
	case []any:
		for i, item := range value {
			value[i] = form(item)
		}
	case string:
		if value != "ID" {
			return "text"
		}
	case float64:
		return 0
	}
	return value
}

// The hostile tenant: every operation of the API, as everybody of A, with ids of B in every
// place, is answered as with ids that nobody has; and nothing of B has changed.
func TestHostileTenantOverHTTP(t *testing.T) {
	t.Parallel()
	a, b, db := twoTenants(t)
	before, inboxes := allOf(t, db, b.name), b.inboxesOf(t)
	own := theirs{"tenant": askDatabase[string](t, db, "SELECT id::text FROM tenants WHERE name = 'alpha'")}
	for what, ids := range a.ids {
		own[what] = ids[0]
	}
	b.add("tenant", askDatabase[string](t, db, "SELECT id::text FROM tenants WHERE name = 'beta'"))
	for _, ids := range [][]string{b.ids["device"][:1], b.ids["room"][:1]} {
		b.add("cursor", cursorOf(t, ids[0]))
	}
	callers := []hostileCaller{
		{name: "operator", token: operatorToken(t, a.s), operator: true},
		{name: "admin", token: a.admin.AccessToken},
		{name: "owner's device", token: a.owner.AccessToken},
		{name: "agent's device", token: a.agent.AccessToken},
		{name: "owner", token: a.asOwner.Credential},
		{name: "agent", token: a.asAgent.Credential},
		{name: "viewer", token: a.asViewer.Credential},
		{name: "nobody"},
	}
	for _, c := range hostileCalls(t, a.s) {
		for _, by := range callers {
			c.compare(t, a, b, by, own)
		}
		// Else nothing was compared: an example or a caller is missing here.
		if !c.lookedUp && c.takesIDs() && !refusesAlways[c.path] && !strings.HasPrefix(c.path, "/internal/") {
			t.Errorf("%s %s: no id was ever looked up", c.method, c.path)
		}
	}
	require.Equal(t, before, allOf(t, db, b.name))
	require.Equal(t, inboxes, b.inboxesOf(t))
}

// cursorOf is a cursor that names the last row by its id.
func cursorOf(t *testing.T, id string) string {
	t.Helper()
	parsed, ok := wire.ParseUUID([]byte(id))
	require.True(t, ok)
	return base64.RawURLEncoding.EncodeToString(parsed[:])
}

// compare makes the call with each id of B in each place, and in all of them at once.
func (c *hostileCall) compare(t *testing.T, a, b *inhabited, by hostileCaller, own theirs) {
	t.Helper()
	places := []int{-1}
	for i := range c.places {
		places = append(places, i)
	}
	if len(c.places) == 0 {
		c.showsNothingOf(t, a, b, by)
		return
	}
	for _, only := range places {
		refused := false
		for _, fill := range c.fillings(t, b, only) {
			if refused { // who is nobody here need not try them all
				break
			}
			nobodys := make(theirs, len(fill))
			for what, id := range fill {
				nobodys[what] = b.twin(t, what, id)
			}
			otherwise := c.call(t, a, by, nobodys, only, own)
			require.Equal(t, otherwise, c.call(t, a, by, fill, only, own), "%s %s as %s, with %v", c.method, c.path, by.name, fill)
			refused = strings.HasPrefix(otherwise, "401")
			c.lookedUp = c.lookedUp || !refused && !strings.HasPrefix(otherwise, "400") && !strings.HasPrefix(otherwise, "403")
		}
	}
}

// twin is an id that nobody has, always the same for the same one: where A may choose an id,
// it has chosen this one as often.
func (w *inhabited) twin(t *testing.T, what, id string) string {
	t.Helper()
	if w.twins[id] == "" {
		w.twins[id] = newID(t)
		if what == "cursor" {
			w.twins[id] = cursorOf(t, newID(t))
		}
	}
	return w.twins[id]
}

// fillings are the ids of B to try, one of each kind at a time.
func (c *hostileCall) fillings(t *testing.T, b *inhabited, only int) (all []theirs) {
	t.Helper()
	for n := 0; ; n++ {
		fill, fresh := make(theirs), false
		for i, p := range c.places {
			ids := b.ids[p.what]
			require.NotEmpty(t, ids, "%s %s: B has no %s", c.method, c.path, p.what)
			fill[p.what] = ids[min(n, len(ids)-1)]
			fresh = fresh || n < len(ids) && (only < 0 || i == only)
		}
		if !fresh {
			return all
		}
		all = append(all, fill)
	}
}

// showsNothingOf makes a call that names nothing: of B is nothing in its answer.
func (c *hostileCall) showsNothingOf(t *testing.T, a, b *inhabited, by hostileCaller) {
	t.Helper()
	if c.path == "/v1/events" || c.path == "/v1/tenants" && by.operator {
		return // TestEventsAreOfOneTenant; the operator's own, who may list tenants
	}
	answer := c.call(t, a, by, nil, -1, nil)
	for what, ids := range b.ids {
		for _, id := range ids {
			require.NotContains(t, answer, id, "%s %s as %s shows a %s of B", c.method, c.path, by.name, what)
		}
	}
	require.NotContains(t, answer, b.name)
}
