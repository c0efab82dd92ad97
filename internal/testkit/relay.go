// Package testkit runs a whole relay in the test's process, on the real parts: the
// managed PostgreSQL of the test run (a fresh database per relay), the embedded
// NATS in a temporary folder, real sockets. Tests drive it from outside: operators
// over its socket, clients over WebSocket.
package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

// patience bounds every wait; none of them measures time.
const patience = time.Minute

// Option changes the configuration of a relay under test.
type Option func(*node.Config)

// EnvelopesPerSecond sets what one participant may send.
func EnvelopesPerSecond(n int) Option { return func(c *node.Config) { c.EnvelopesPerSecond = n } }

// FramesPerSecond sets what one connection may send besides envelopes.
func FramesPerSecond(n int) Option { return func(c *node.Config) { c.FramesPerSecond = n } }

// TenantConns bounds the connections of the tenant.
func TenantConns(n int) Option { return func(c *node.Config) { c.TenantConns = n } }

// AllowDevelopment accepts development connections.
func AllowDevelopment() Option { return func(c *node.Config) { c.AllowDevelopment = true } }

// PingInterval sets the heartbeat.
func PingInterval(d time.Duration) Option { return func(c *node.Config) { c.PingInterval = d } }

// NATSURL uses an external NATS.
func NATSURL(url string) Option { return func(c *node.Config) { c.NATSURL = url } }

// Replicas sets how many copies each stream has in a cluster.
func Replicas(n int) Option { return func(c *node.Config) { c.InboxReplicas = n } }

// Role sets what the process runs.
func Role(role string) Option { return func(c *node.Config) { c.Role = role } }

// APIURL is where an edge finds the node that has the database.
func APIURL(url string) Option { return func(c *node.Config) { c.APIURL = url } }

// ServiceTokenFile is the file with the token that edges show the API.
func ServiceTokenFile(path string) Option { return func(c *node.Config) { c.ServiceTokenFile = path } }

// NATSContext is the file with the address and the credentials of an external NATS.
func NATSContext(path string) Option { return func(c *node.Config) { c.NATSContext = path } }

// NATSListen is where the embedded NATS listens.
func NATSListen(address string) Option { return func(c *node.Config) { c.NATSListen = address } }

// MLS lets MLS rooms take messages.
func MLS() Option { return func(c *node.Config) { c.MLS = true } }

// InboxSync sets when stored rows are on disk.
func InboxSync(sync string) Option { return func(c *node.Config) { c.InboxSync = sync } }

// RecentBytes sets the memory for the newest rows.
func RecentBytes(bytes int64) Option { return func(c *node.Config) { c.RecentBytes = bytes } }

// Data uses a data folder of the test's own.
func Data(dir string) Option { return func(c *node.Config) { c.Data = dir } }

// Database uses a database that several relays share.
func Database(url string) Option { return func(c *node.Config) { c.DatabaseURL = url } }

// NodeID names the node.
func NodeID(id string) Option { return func(c *node.Config) { c.NodeID = id } }

// ParticipantConns bounds the connections of one participant.
func ParticipantConns(n int) Option { return func(c *node.Config) { c.ParticipantConns = n } }

// AddressConns bounds the sockets of one address before hello.
func AddressConns(n int) Option { return func(c *node.Config) { c.AddressConns = n } }

// HelloTimeout is how long a socket may be open without a hello.
func HelloTimeout(d time.Duration) Option { return func(c *node.Config) { c.HelloTimeout = d } }

// MessageTimeout is how long one message may take to arrive.
func MessageTimeout(d time.Duration) Option { return func(c *node.Config) { c.MessageTimeout = d } }

// InboxAge sets how long rows are retained.
func InboxAge(d time.Duration) Option { return func(c *node.Config) { c.InboxAge = d } }

// InboxTimeout bounds one write into inboxes and one step of a replay.
func InboxTimeout(d time.Duration) Option { return func(c *node.Config) { c.InboxTimeout = d } }

// StoreTimeout bounds one call of the database or of the API.
func StoreTimeout(d time.Duration) Option { return func(c *node.Config) { c.StoreTimeout = d } }

// Logger is where the relay logs to, instead of the test's output.
func Logger(log *slog.Logger) Option { return func(c *node.Config) { c.Logger = log } }

// Relay is a relay under test, in the test's process or in one of its own.
type Relay struct {
	cfg      node.Config
	node     *node.Node // nil while stopped, or in a process of its own
	child    *child     // nil but in a process of its own
	apart    bool
	private  string // address of the metrics
	tenant   string // that the operator names; empty: none
	operator *http.Client
}

// Start runs a relay until the test ends.
func Start(t testing.TB, options ...Option) *Relay {
	t.Helper()
	return start(t, false, options)
}

// StartApart runs a relay in a process of its own, which can be killed. The test's
// TestMain has to begin with RunChild.
func StartApart(t testing.TB, options ...Option) *Relay {
	t.Helper()
	return start(t, true, options)
}

// StartAPI runs an API node, without a front.
func StartAPI(t testing.TB, options ...Option) *Relay {
	t.Helper()
	return Start(t, append(slices.Clone(options), Role(node.RoleAPI))...)
}

// StartEdge runs an edge of that API node, in the test's process. The NATS is the API
// node's own unless an option names another.
func StartEdge(t testing.TB, of *Relay, options ...Option) *Relay {
	t.Helper()
	return start(t, false, of.edge(options))
}

// StartEdgeApart is StartEdge in a process of its own, which can be killed.
func StartEdgeApart(t testing.TB, of *Relay, options ...Option) *Relay {
	t.Helper()
	return start(t, true, of.edge(options))
}

// edge puts what an edge of this API node needs before the options of the test.
func (s *Relay) edge(options []Option) []Option {
	all := []Option{
		Role(node.RoleEdge), APIURL("http://" + s.Addr()),
		ServiceTokenFile(filepath.Join(s.cfg.Data, "keys", "service.token")),
	}
	if s.cfg.NATSURL == "" {
		all = append(all, NATSContext(filepath.Join(s.cfg.Data, "nats", "edge.json")))
	} else {
		all = append(all, NATSURL(s.cfg.NATSURL), Replicas(s.cfg.InboxReplicas))
	}
	return append(all, options...)
}

func start(t testing.TB, apart bool, options []Option) *Relay {
	t.Helper()
	cfg := node.Config{
		Version:       "test",
		Listen:        port.Address(t),
		MetricsListen: port.Address(t),
		InboxShards:   4,
		RecentBytes:   8 << 20,
		Logger:        slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, option := range options {
		option(&cfg)
	}
	if cfg.Data == "" {
		cfg.Data = t.TempDir()
	}
	if cfg.DatabaseURL == "" && cfg.Role != node.RoleEdge {
		cfg.DatabaseURL = pgtest.URL(t)
	}
	s := &Relay{cfg: cfg, apart: apart}
	s.StartAgain(t)
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// StartAgain starts a stopped relay on its data.
func (s *Relay) StartAgain(t testing.TB) {
	t.Helper()
	require.NoError(t, s.TryStart(t))
}

// TryStart is StartAgain for data that a relay may refuse.
func (s *Relay) TryStart(t testing.TB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
	defer cancel()
	// The same port again, so that URLs stay true.
	if s.apart {
		s.child = startChild(t, childRelay, s.cfg, nil)
		s.cfg.Listen, s.private = s.child.ready.Listen, s.child.ready.Metrics
	} else {
		var err error
		if s.node, err = node.Start(ctx, s.cfg); err != nil {
			return err
		}
		s.cfg.Listen, s.private = s.node.Addr().String(), s.node.MetricsAddr().String()
	}
	socket := filepath.Join(s.cfg.Data, "relay.sock")
	s.operator = &http.Client{
		Timeout: patience,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}},
	}
	return nil
}

// Stop shuts the relay down in order. Stopping a stopped one does nothing.
func (s *Relay) Stop(t testing.TB) {
	t.Helper()
	if s.child != nil {
		s.operator.CloseIdleConnections()
		s.child.terminate(t)
		s.child = nil
	}
	if s.node == nil {
		return
	}
	s.operator.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	require.NoError(t, s.node.Close(ctx))
	s.node = nil
}

// Kill ends the process of a relay of StartApart with SIGKILL.
func (s *Relay) Kill() {
	s.operator.CloseIdleConnections()
	s.child.kill()
	s.child = nil
}

// Restart stops and starts.
func (s *Relay) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.StartAgain(t)
}

// RestartWithout removes a part of the data folder in between.
func (s *Relay) RestartWithout(t testing.TB, path string) {
	t.Helper()
	s.Stop(t)
	target := filepath.Join(s.cfg.Data, path)
	_, err := os.Stat(target)
	require.NoError(t, err, "what is removed was there")
	require.NoError(t, os.RemoveAll(target))
	s.StartAgain(t)
}

// Addr is the public listener's address.
func (s *Relay) Addr() string { return s.cfg.Listen }

// RelayURL is the WebSocket's URL.
func (s *Relay) RelayURL() string { return "ws://" + s.Addr() + "/v1/relay" }

// URL is the HTTP address of the public listener.
func (s *Relay) URL() string { return "http://" + s.Addr() }

// PrivateURL is where metrics and profiles are.
func (s *Relay) PrivateURL() string { return "http://" + s.private }

// Data is the data folder.
func (s *Relay) Data() string { return s.cfg.Data }

// ContextFile is the nats command line's context.
func (s *Relay) ContextFile() string { return s.node.ContextFile() }

// Ready returns the status of /readyz.
func (s *Relay) Ready(t testing.TB) int {
	t.Helper()
	response, err := http.Get("http://" + s.Addr() + "/readyz")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// RoomOptions of a room; empty means the defaults of relay room create.
type RoomOptions struct {
	Kind            string `json:"kind,omitempty"`
	Scheme          string `json:"scheme,omitempty"`
	PrivateMessages string `json:"private_messages,omitempty"`
}

// Participant is a participant with a credential.
type Participant struct {
	Room         string
	ID           string
	Credential   string
	CredentialID string
}

// In is the same relay, whose operator acts in another tenant. It does not outlive a restart.
func (s *Relay) In(tenant string) *Relay {
	in := *s
	in.tenant = tenant
	return &in
}

// Room creates a room and returns its id.
func (s *Relay) Room(t testing.TB, options RoomOptions) string {
	t.Helper()
	var answer struct {
		RoomID string `json:"room_id"`
	}
	s.Call(t, http.MethodPost, "/v1/rooms", options, &answer)
	return answer.RoomID
}

// Join adds a participant with a new device.
func (s *Relay) Join(t testing.TB, room, role string) Participant {
	t.Helper()
	var answer struct {
		ParticipantID string `json:"participant_id"`
		Credential    string `json:"credential"`
		CredentialID  string `json:"credential_id"`
	}
	s.Call(t, http.MethodPost, "/v1/rooms/"+room+"/members", map[string]string{"role": role}, &answer)
	return Participant{Room: room, ID: answer.ParticipantID, Credential: answer.Credential, CredentialID: answer.CredentialID}
}

// Told waits until the room events of everything done so far are in the inboxes, so that
// none comes between what a test does next. The relay must have its database's URL: an
// edge has none.
func (s *Relay) Told(t testing.TB, room string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.cfg.DatabaseURL)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		var waiting bool
		require.NoError(t, conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outbox WHERE room_id = $1)", room).Scan(&waiting), "room events were not written")
		if !waiting {
			return
		}
		<-again.C
	}
}

// TryJoin is Join for a participant that may be refused.
func (s *Relay) TryJoin(t testing.TB, room, role string) error {
	t.Helper()
	return s.call(t.Context(), http.MethodPost, "/v1/rooms/"+room+"/members", map[string]string{"role": role}, nil)
}

// Remove ends a membership.
func (s *Relay) Remove(t testing.TB, p Participant) {
	t.Helper()
	s.Call(t, http.MethodDelete, "/v1/rooms/"+p.Room+"/members/"+p.ID, nil, nil)
}

// Mint makes another credential of a participant.
func (s *Relay) Mint(t testing.TB, p Participant, kind string, ttl time.Duration) string {
	t.Helper()
	credential, _ := s.MintID(t, p, kind, ttl)
	return credential
}

// MintID is Mint with the credential's id.
func (s *Relay) MintID(t testing.TB, p Participant, kind string, ttl time.Duration) (credential, id string) {
	t.Helper()
	var answer struct {
		Credential   string `json:"credential"`
		CredentialID string `json:"credential_id"`
	}
	s.Call(t, http.MethodPost, "/v1/rooms/"+p.Room+"/credentials", map[string]any{
		"participant_id": p.ID, "kind": kind, "ttl_seconds": int(ttl.Seconds()),
	}, &answer)
	return answer.Credential, answer.CredentialID
}

// RevokeCredential revokes one credential.
func (s *Relay) RevokeCredential(t testing.TB, id string) {
	t.Helper()
	s.Call(t, http.MethodDelete, "/v1/credentials/"+id, nil, nil)
}

// RevokeParticipant revokes all credentials of a participant.
func (s *Relay) RevokeParticipant(t testing.TB, p Participant) {
	t.Helper()
	s.Call(t, http.MethodDelete, "/v1/participants/"+p.ID+"/credentials", nil, nil)
}

// Freeze freezes or thaws the network.
func (s *Relay) Freeze(t testing.TB, frozen bool) {
	t.Helper()
	s.Call(t, http.MethodPut, "/v1/freeze", map[string]bool{"frozen": frozen}, nil)
}

// Call makes one operator request that must succeed.
func (s *Relay) Call(t testing.TB, method, path string, body, answer any) {
	t.Helper()
	require.NoError(t, s.call(context.WithoutCancel(t.Context()), method, path, body, answer))
}

func (s *Relay) call(ctx context.Context, method, path string, body, answer any) error {
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://relay"+path, &payload)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if s.tenant != "" {
		request.Header.Set("Relay-Tenant", s.tenant)
	}
	response, err := s.operator.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		var refused bytes.Buffer
		_, _ = refused.ReadFrom(response.Body)
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, strings.TrimSpace(refused.String()))
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// Metric returns the sum of a counter or gauge over the series that have all of
// these label values.
func (s *Relay) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	total := 0.0
	for _, m := range s.metrics(t)[name].GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

func (s *Relay) metrics(t testing.TB) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + s.private + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	return families
}

func hasLabels(m *dto.Metric, values []string) bool {
	return !slices.ContainsFunc(values, func(value string) bool {
		return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
	})
}
