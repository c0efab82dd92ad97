package api_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

const prekeysPath = "/v1/devices/me/prekeys"

// direct is an owner and an agent in a direct room.
func (s *stack) direct(t *testing.T) (owner, agent *testkit.Device) {
	t.Helper()
	owner, agent = s.device(t, "human", false), s.device(t, "agent", false)
	s.added(t, owner, s.opened(t, owner, `{"kind":"direct"}`).ID, agent, "agent")
	return owner, agent
}

func (s *stack) publish(t *testing.T, d *testkit.Device, prekeys testkit.Prekeys) (stock api.PrekeyStock) {
	t.Helper()
	answer := s.by(t, d, http.MethodPut, prekeysPath, testkit.EncodeJSON(t, prekeys))
	require.Equal(t, http.StatusOK, answer.status, answer.body)
	answer.decode(t, &stock)
	return stock
}

func (s *stack) stock(t *testing.T, d *testkit.Device) (stock api.PrekeyStock) {
	t.Helper()
	answer := s.by(t, d, http.MethodGet, prekeysPath, "")
	require.Equal(t, http.StatusOK, answer.status, answer.body)
	answer.decode(t, &stock)
	return stock
}

func (s *stack) takeBundle(t *testing.T, by, of *testkit.Device) response {
	t.Helper()
	return s.by(t, by, http.MethodGet, "/v1/devices/"+of.ID+"/prekey-bundle", "")
}

// STATE, "Session Establishment": what one device publishes, the other one gets, byte for
// byte, each one-time prekey once, and a bundle without one when there is none any more.
func TestPrekeyBundles(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent := s.direct(t)
	s.takeBundle(t, owner, agent).refused(t, 404, "not_found")
	require.Zero(t, s.stock(t, agent))
	prekeys := agent.Prekeys(t, 2)
	stock := api.PrekeyStock{SignedPrekeyID: 1, LastPrekeyID: 2, OneTimePrekeys: 2}
	require.Equal(t, stock, s.publish(t, agent, prekeys))
	require.Equal(t, stock, s.publish(t, agent, prekeys), "again")
	require.Equal(t, stock, s.stock(t, agent))

	want := api.PrekeyBundle{
		DeviceID: agent.ID, Fingerprint: agent.Keys.Fingerprint(),
		IdentityKey:        base64.StdEncoding.EncodeToString(agent.Keys.Identity[:]),
		AgreementKey:       base64.StdEncoding.EncodeToString(agent.Keys.Agreement[:]),
		AgreementSignature: base64.StdEncoding.EncodeToString(agent.Keys.AgreementSignature[:]),
		SignedPrekey:       api.SignedPrekey{ID: 1, Key: prekeys.Signed.Key, Signature: prekeys.Signed.Signature},
	}
	for i := range 4 {
		want.OneTimePrekey = nil
		if i < len(prekeys.OneTime) {
			want.OneTimePrekey = &api.OneTimePrekey{ID: int64(prekeys.OneTime[i].ID), Key: prekeys.OneTime[i].Key}
		}
		var got api.PrekeyBundle
		answer := s.takeBundle(t, owner, agent)
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		require.Equal(t, "no-store", answer.header.Get("Cache-Control"))
		answer.decode(t, &got)
		require.Equal(t, want, got)
		require.Equal(t, want.OneTimePrekey != nil, strings.Contains(answer.body, "one_time_prekey"), "absent, not null")
	}
	require.Equal(t, api.PrekeyStock{SignedPrekeyID: 1, LastPrekeyID: 2}, s.publish(t, agent, prekeys), "what was handed out stays away")

	next := agent.SignedPrekey(t, 2)
	s.publish(t, agent, testkit.Prekeys{Signed: next})
	var got api.PrekeyBundle
	s.takeBundle(t, owner, agent).decode(t, &got)
	require.Equal(t, api.SignedPrekey{ID: 2, Key: next.Key, Signature: next.Signature}, got.SignedPrekey)
	require.NotContains(t, s.log.String(), next.Key)
}

// A method that answers without a body takes nothing, and says so.
func TestHeadTakesNoPrekey(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent := s.direct(t)
	s.publish(t, agent, agent.Prekeys(t, 2))
	path := "/v1/devices/" + agent.ID + "/prekey-bundle"
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		answer := s.by(t, owner, method, path, "")
		require.Equal(t, http.StatusMethodNotAllowed, answer.status, method)
		require.Equal(t, "GET", answer.header.Get("Allow"), method)
	}
	require.Equal(t, "GET, HEAD, PUT", s.by(t, owner, http.MethodPost, prekeysPath, "").header.Get("Allow"))
	require.Equal(t, 2, s.stock(t, agent).OneTimePrekeys)
}

// What is not as it should be is refused by name, and changes nothing (FAULTS BL-H10).
func TestPrekeysThatAreRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := newStack(t, func(c *api.Config) { // at another minute each time, so that no rate is reached
		c.Now = func() time.Time { return time.Unix(60*asked.Add(1), 0) }
	})
	d, other := s.device(t, "agent", false), s.device(t, "agent", false)
	before := s.publish(t, d, testkit.Prekeys{Signed: d.SignedPrekey(t, 5), OneTime: []testkit.Prekey{testkit.NewPrekey(t, 5)}})
	good, signed := testkit.NewPrekey(t, 6), d.SignedPrekey(t, 6)
	with := func(p testkit.Prekey, change func(*testkit.Prekey)) testkit.Prekey {
		change(&p)
		return p
	}
	resigned := with(*signed, func(p *testkit.Prekey) { p.ID = 7 })
	many := testkit.Prekeys{}
	for id := range uint32(store.MaxPrekeys + 1) {
		many.OneTime = append(many.OneTime, testkit.NewPrekey(t, 100+id))
	}
	one := func(p testkit.Prekey) testkit.Prekeys {
		return testkit.Prekeys{Signed: signed, OneTime: []testkit.Prekey{good, p}}
	}
	for name, c := range map[string]struct {
		body   any
		detail string
	}{
		"nothing":                     {`{}`, "missing"},
		"an empty list":               {`{"one_time_prekeys":[]}`, "missing"},
		"null":                        {`{"signed_prekey":null,"one_time_prekeys":[{"id":6,"key":"` + good.Key + `"}]}`, ""},
		"another member":              {`{"signed_prekey":{"id":6,"key":"` + signed.Key + `","signature":"` + signed.Signature + `","x":1}}`, ""},
		"signed by another device":    {testkit.Prekeys{Signed: other.SignedPrekey(t, 6)}, "signature"},
		"signed under another id":     {testkit.Prekeys{Signed: &resigned}, "signature"},
		"not signed":                  {testkit.Prekeys{Signed: &good}, "signature"},
		"a short signature":           {testkit.Prekeys{Signed: new(with(*signed, func(p *testkit.Prekey) { p.Signature = "AAAA" }))}, "signature"},
		"a short signed key":          {testkit.Prekeys{Signed: new(with(*signed, func(p *testkit.Prekey) { p.Key = "AAAA" }))}, "32 bytes"},
		"signed id 0":                 {testkit.Prekeys{Signed: d.SignedPrekey(t, 0)}, "id of signed_prekey"},
		"signed id 2^31":              {testkit.Prekeys{Signed: d.SignedPrekey(t, 1<<31)}, "id of signed_prekey"},
		"an id of 0":                  {one(testkit.NewPrekey(t, 0)), "id of one_time_prekeys"},
		"an id of 2^31":               {one(testkit.NewPrekey(t, 1<<31)), "id of one_time_prekeys"},
		"an id of -1":                 {`{"one_time_prekeys":[{"id":-1,"key":"` + good.Key + `"}]}`, "id of one_time_prekeys"},
		"an id of 2^32+6":             {`{"one_time_prekeys":[{"id":4294967302,"key":"` + good.Key + `"}]}`, "id of one_time_prekeys"},
		"an id of 6.5":                {`{"one_time_prekeys":[{"id":6.5,"key":"` + good.Key + `"}]}`, ""},
		"an id twice":                 {one(testkit.NewPrekey(t, 6)), "distinct"},
		"a key twice":                 {one(with(good, func(p *testkit.Prekey) { p.ID = 7 })), "distinct"},
		"a short key":                 {one(testkit.Prekey{ID: 7, Key: "AAAA"}), "32 bytes"},
		"base64 of the other letters": {one(testkit.Prekey{ID: 7, Key: strings.Repeat("_", 43) + "="}), "32 bytes"},
		"101 of them":                 {many, "at most 100"},
	} {
		body, isText := c.body.(string)
		if !isText {
			body = testkit.EncodeJSON(t, c.body)
		}
		answer := s.by(t, d, http.MethodPut, prekeysPath, body)
		answer.refused(t, 400, "malformed_request")
		require.Contains(t, answer.body, c.detail, name)
		require.NotContains(t, answer.body, good.Key, name)
		require.Equal(t, before, s.stock(t, d), name)
	}
	for _, key := range refusedX25519(t) {
		text := base64.StdEncoding.EncodeToString(key[:])
		for _, body := range []testkit.Prekeys{{Signed: d.SignedPrekeyOf(6, key)}, one(testkit.Prekey{ID: 7, Key: text})} {
			answer := s.by(t, d, http.MethodPut, prekeysPath, testkit.EncodeJSON(t, body))
			answer.refused(t, 400, "malformed_request")
			require.Contains(t, answer.body, "no X25519 key")
		}
	}
	for name, body := range map[string]testkit.Prekeys{
		"an older signed prekey":     {Signed: d.SignedPrekey(t, 4)},
		"another key of the same id": {Signed: d.SignedPrekey(t, 5)},
		"an id with another key":     {Signed: signed, OneTime: []testkit.Prekey{testkit.NewPrekey(t, 5), good}},
	} {
		s.by(t, d, http.MethodPut, prekeysPath, testkit.EncodeJSON(t, body)).refused(t, 409, "conflict")
		require.Equal(t, before, s.stock(t, d), name)
	}
}

// refusedX25519 are the keys that no implementation may take (identity/testdata).
func refusedX25519(t *testing.T) (keys [][32]byte) {
	t.Helper()
	text, err := os.ReadFile("../identity/testdata/vectors.json")
	require.NoError(t, err)
	var vectors struct {
		Refused []struct {
			Key string `json:"key"`
		} `json:"refused_agreement_keys"`
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	for _, refused := range vectors.Refused {
		raw, err := hex.DecodeString(refused.Key)
		require.NoError(t, err)
		keys = append(keys, [32]byte(raw))
	}
	require.NotEmpty(t, keys)
	return keys
}

// Who shares no room with a device, is suspended, or is no device at all takes nothing.
func TestWhoTakesPrekeys(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent := s.direct(t)
	stranger, admin := s.device(t, "agent", false), s.device(t, "human", true)
	s.publish(t, agent, agent.Prekeys(t, 5))
	path := "/v1/devices/" + agent.ID + "/prekey-bundle"
	for name, d := range map[string]*testkit.Device{"a stranger": stranger, "an admin": admin, "itself": agent} {
		answer := s.takeBundle(t, d, agent)
		answer.refused(t, 404, "not_found")
		require.Equal(t, s.by(t, d, http.MethodGet, "/v1/devices/"+uuid.NewString()+"/prekey-bundle", "").body, answer.body, name)
	}
	s.by(t, owner, http.MethodGet, "/v1/devices/me/prekey-bundle", "").refused(t, 404, "not_found")
	s.by(t, owner, http.MethodGet, path+"?x=1", "").refused(t, 400, "malformed_request")
	for _, request := range [][2]string{{http.MethodGet, path}, {http.MethodGet, prekeysPath}, {http.MethodPut, prekeysPath}} {
		body := ""
		if request[0] == http.MethodPut {
			body = testkit.EncodeJSON(t, agent.Prekeys(t, 1))
		}
		s.send(t, request[0], request[1], body).refused(t, 403, "forbidden")
		send(t, s.public, request[0], request[1], body).refused(t, 401, "unauthorized")
	}

	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, "/v1/devices/"+agent.ID+"/suspend", "").status)
	s.takeBundle(t, owner, agent).refused(t, 404, "not_found")
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, "/v1/devices/"+agent.ID+"/reinstate", "").status)
	require.Equal(t, 5, s.stock(t, agent).OneTimePrekeys)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, "/v1/devices/"+owner.ID+"/suspend", "").status)
	s.takeBundle(t, owner, agent).refused(t, 401, "unauthorized")
}

// A device may publish before it is ACTIVE, and nobody gets it until then.
func TestPrekeysOfAnApprovedDevice(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	agent := s.Enroll(t, "agent", false)
	s.Approve(t, agent)
	s.SignIn(t, agent)
	var stock api.PrekeyStock
	s.Public(t, http.MethodPut, prekeysPath, agent.AccessToken, agent.Prekeys(t, 3)).Into(t, &stock)
	require.Equal(t, api.PrekeyStock{SignedPrekeyID: 1, LastPrekeyID: 3, OneTimePrekeys: 3}, stock)
	other := s.ActiveDevice(t, "human", false)
	s.Public(t, http.MethodPut, prekeysPath, other.AccessToken, other.Prekeys(t, 3)).Into(t, &stock)
	s.Public(t, http.MethodGet, "/v1/devices/"+other.ID+"/prekey-bundle", agent.AccessToken, nil).Refused(t, 404, "not_found")
}

// 50 requests at once get 40 prekeys, each once, through the whole of the API; one device
// gets no more than it may.
func TestPrekeysAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	// They wait for each other, on a slow machine for long.
	s := newStack(t, func(c *api.Config) { c.RequestTimeout = patience })
	owner, agent := s.direct(t)
	takers := []*testkit.Device{owner}
	room := s.opened(t, owner, `{}`).ID
	s.added(t, owner, room, agent, "agent")
	for range 4 {
		taker := s.device(t, "agent", false)
		s.added(t, owner, room, taker, "agent")
		takers = append(takers, taker)
	}
	prekeys := agent.Prekeys(t, 40)
	s.publish(t, agent, prekeys)
	var (
		mu    sync.Mutex
		taken = make(map[api.OneTimePrekey]int)
		none  int
		all   sync.WaitGroup
	)
	for i := range 50 {
		all.Go(func() {
			answer := s.takeBundle(t, takers[i%len(takers)], agent)
			var bundle api.PrekeyBundle
			mu.Lock()
			defer mu.Unlock()
			if err := json.Unmarshal([]byte(answer.body), &bundle); err != nil || answer.status != http.StatusOK {
				t.Errorf("%d %s", answer.status, answer.body)
				return
			}
			if bundle.OneTimePrekey == nil {
				none++
				return
			}
			taken[*bundle.OneTimePrekey]++
		})
	}
	all.Wait()
	require.Equal(t, 10, none)
	require.Len(t, taken, 40)
	for _, p := range prekeys.OneTime {
		require.Equal(t, 1, taken[api.OneTimePrekey{ID: int64(p.ID), Key: p.Key}], fmt.Sprint(p.ID))
	}
}

// prekeys makes what an operation on prekeys needs: a direct room of the caller and a device
// that has published some.
func (e *examples) prekeys(t *testing.T, p *place, id string) (values []string) {
	t.Helper()
	owner, agent := e.relay.ActiveDevice(t, "human", false), e.relay.ActiveDevice(t, "agent", false)
	p.device = owner.AccessToken
	if id == "getDevicesByIdPrekeyBundle" {
		var room api.Room
		e.relay.Public(t, http.MethodPost, "/v1/rooms", owner.AccessToken, map[string]string{"kind": "direct"}).Into(t, &room)
		e.relay.Public(t, http.MethodPost, "/v1/rooms/"+room.ID+"/members", owner.AccessToken,
			map[string]string{"device_id": agent.ID, "role": "agent"}).Demand(t, http.StatusCreated)
		e.relay.Public(t, http.MethodPut, prekeysPath, agent.AccessToken, agent.Prekeys(t, 1)).Demand(t, http.StatusOK)
	}
	signed := owner.SignedPrekey(t, 1)
	return []string{
		exampleDevice, agent.ID,
		"{signed_prekey}", signed.Key, "{signed_prekey_signature}", signed.Signature, "{one_time_prekey}", testkit.NewPrekey(t, 1).Key,
	}
}
