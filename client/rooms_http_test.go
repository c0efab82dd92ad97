package client_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
)

// meddler is a real relay behind somebody who counts requests, and changes them and their
// answers as a test says.
type meddler struct {
	*testkit.Relay

	url string

	mu      sync.Mutex // guards the following fields
	asked   []string   // method and path
	request func(r *http.Request)
	answer  func(r *http.Request, body map[string]any)
	refuse  func(r *http.Request) int // with this status, without asking the relay; 0: ask
	lose    func(r *http.Request) bool
}

func newMeddler(t *testing.T) *meddler {
	t.Helper()
	m := &meddler{Relay: testkit.Shared(t)}
	target, err := url.Parse(m.URL())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.request != nil {
				m.request(r.Out)
			}
		},
		ModifyResponse: m.modify,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.asked = append(m.asked, r.Method+" "+r.URL.Path)
		status := 0
		if m.refuse != nil {
			status = m.refuse(r)
		}
		m.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
			answer(w, `{"error":"`+map[int]string{401: "unauthorized", 503: "unavailable"}[status]+`"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// modify lets answer change what the relay answered, and may lose it.
func (m *meddler) modify(response *http.Response) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lose != nil && m.lose(response.Request) {
		return io.ErrUnexpectedEOF
	}
	if m.answer == nil || response.StatusCode/100 != 2 {
		return nil
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var body map[string]any
	if json.Unmarshal(data, &body) == nil {
		m.answer(response.Request, body)
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	response.ContentLength = int64(len(data))
	response.Header.Del("Content-Length")
	return nil
}

func (m *meddler) set(change func(m *meddler)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// behave ends all meddling.
func (m *meddler) behave() {
	m.set(func(m *meddler) { m.request, m.answer, m.refuse, m.lose = nil, nil, nil, nil })
}

// count is how often a request was made whose method and path end so.
func (m *meddler) count(method, suffix string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, what := range m.asked {
		if strings.HasPrefix(what, method+" ") && strings.HasSuffix(what, suffix) {
			n++
		}
	}
	return n
}

// device enrolls an ACTIVE device that asks the meddler. Humans are admins.
func (m *meddler) device(t *testing.T, kind client.DeviceKind, clock clockwork.Clock) *client.Device {
	t.Helper()
	admin := kind == client.KindHuman
	d, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), "device"),
		client.Enrollment{RelayURL: m.url, Invite: m.Invite(t, string(kind), admin).Token, Kind: kind, Label: string(kind)},
		client.DeviceOptions{Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	if !admin {
		m.Call(t, http.MethodPost, "/v1/devices/"+d.ID()+"/approve", map[string]string{"fingerprint": d.Fingerprint()}, nil)
	}
	_, err = d.PublishKeys(t.Context())
	require.NoError(t, err)
	return d
}

// meeting is a room of an owner with an agent.
type meeting struct {
	*meddler

	owner, agent         *client.Device
	ownerID, agentID, id string // participants, room
}

func newMeeting(t *testing.T, room client.NewRoom) *meeting {
	t.Helper()
	m := &meeting{meddler: newMeddler(t)}
	m.owner, m.agent = m.device(t, client.KindHuman, nil), m.device(t, client.KindAgent, nil)
	made, err := m.owner.CreateRoom(t.Context(), room)
	require.NoError(t, err)
	m.id, m.ownerID = made.RoomID, made.ParticipantID
	m.agentID = m.add(t, m.agent, client.RoleAgent)
	return m
}

// add adds a device to the room.
func (m *meeting) add(t *testing.T, d *client.Device, role client.Role) string {
	t.Helper()
	added, err := m.owner.AddMember(t.Context(), m.id, d.ID(), role)
	require.NoError(t, err)
	return added.ParticipantID
}

// gather reads a list to its end.
func gather[T any](t *testing.T, rows func(yield func(T, error) bool)) (all []T) {
	t.Helper()
	for row, err := range rows {
		require.NoError(t, err)
		all = append(all, row)
	}
	return all
}

// failure reads a list until it fails, as it has to.
func failure[T any](t *testing.T, rows func(yield func(T, error) bool)) error {
	t.Helper()
	for _, err := range rows {
		if err != nil {
			return err
		}
	}
	require.Fail(t, "the list did not fail")
	return nil
}
