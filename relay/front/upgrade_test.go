package front_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

func TestRefusedUpgrades(t *testing.T) {
	t.Parallel()
	change := func(from, to string) string {
		changed := strings.Replace(upgradeRequest, from, to, 1)
		require.NotEqual(t, upgradeRequest, changed)
		return changed
	}
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	tests := []struct {
		name    string
		request string
		status  int
		header  string
	}{
		{"post", change("GET", "POST"), http.StatusMethodNotAllowed, "Allow: GET"},
		{"http/1.0", change("HTTP/1.1", "HTTP/1.0"), http.StatusBadRequest, ""},
		{"plain request", "GET /v1/relay HTTP/1.1\r\nHost: our.host\r\n", http.StatusUpgradeRequired, "Upgrade: websocket"},
		{"other upgrade", change("websocket", "h2c"), http.StatusUpgradeRequired, "Upgrade: websocket"},
		{"upgrade is not a token", change("websocket", "websockets"), http.StatusUpgradeRequired, ""},
		{"no connection token", change("keep-alive, Upgrade", "keep-alive"), http.StatusUpgradeRequired, ""},
		{"version 8", change("Version: 13", "Version: 8"), http.StatusUpgradeRequired, "Sec-Websocket-Version: 13"},
		{"no version", change("Sec-WebSocket-Version: 13\r\n", ""), http.StatusUpgradeRequired, "Sec-Websocket-Version: 13"},
		{"two versions", upgradeRequest + "Sec-WebSocket-Version: 13\r\n", http.StatusUpgradeRequired, ""},
		{"no key", change("Sec-WebSocket-Key: "+key+"\r\n", ""), http.StatusBadRequest, ""},
		{"short key", change(key, "dGhlIHNhbXBsZSBub25j"), http.StatusBadRequest, ""},
		{"key not base64", change(key, "dGhlIHNhbXBsZSBub25j!!=="), http.StatusBadRequest, ""},
		{"two keys", upgradeRequest + "Sec-WebSocket-Key: " + key + "\r\n", http.StatusBadRequest, ""},
		{"body", upgradeRequest + "Content-Length: 2\r\n\r\nhi", http.StatusBadRequest, ""},
		{"chunked body", upgradeRequest + "Transfer-Encoding: chunked\r\n\r\n0\r\n", http.StatusBadRequest, ""},
		{"two lengths and a body", upgradeRequest + "Content-Length: 2\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: our.host\r\n", http.StatusBadRequest, ""},
		{"no host", change("Host: our.host\r\n", ""), http.StatusBadRequest, ""},
		{"long header line", upgradeRequest + "X: " + strings.Repeat("x", 100<<10), http.StatusRequestHeaderFieldsTooLarge, ""},
		{"10000 headers", upgradeRequest + strings.Repeat("X: x\r\n", 10_000), http.StatusRequestHeaderFieldsTooLarge, ""},
	}
	s := startServer(t, pathDefault, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := s.dialRaw(t)
			c.tryWrite([]byte(tt.request + "\r\n"))
			status, head := c.answer("")
			require.Equal(t, tt.status, status)
			require.Contains(t, head, tt.header)
			_, err := c.r.ReadByte()
			require.Error(t, err, "the connection is not used again")
		})
	}
}

// FAULTS A12.
func TestOrigins(t *testing.T) {
	t.Parallel()
	s := startServer(t, pathDefault, func(c *front.Config) {
		c.Origins = []string{"https://our.host", "https://Other.Host:8443", "http://local.host:80"}
	})
	tests := []struct {
		origins []string
		ok      bool
	}{
		{nil, true},
		{[]string{"https://our.host"}, true},
		{[]string{"https://other.host:8443"}, true},
		{[]string{"http://local.host"}, true},
		{[]string{"https://evil.example"}, false},
		{[]string{"null"}, false},
		{[]string{""}, false},
		{[]string{"https://our.host.evil.example"}, false},
		{[]string{"https://xour.host"}, false},
		{[]string{"http://our.host"}, false},
		{[]string{"https://our.host:8443"}, false},
		{[]string{"https://OUR.HOST"}, false},
		{[]string{"https://our.host/"}, false},
		{[]string{"https://our.host https://evil.example"}, false},
		{[]string{"https://our.host", "https://our.host"}, false},
		{[]string{"https://our.host", "https://evil.example"}, false},
	}
	for _, tt := range tests {
		request := upgradeRequest
		for _, origin := range tt.origins {
			request += "Origin: " + origin + "\r\n"
		}
		status, _ := s.dialRaw(t).answer(request + "\r\n")
		want := http.StatusForbidden
		if tt.ok {
			want = http.StatusSwitchingProtocols
		}
		require.Equal(t, want, status, "%q", tt.origins)
	}
}

// An offer of extensions or subprotocols is not taken up (FAULTS A06); the query
// string is nothing to the front.
func TestNothingIsNegotiated(t *testing.T) {
	t.Parallel()
	c := startServer(t, pathDefault, nil).dialRaw(t)
	request := strings.Replace(upgradeRequest, "/v1/relay", "/v1/relay?token=secret&direct=true", 1)
	c.write([]byte(request + "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n" +
		"Sec-WebSocket-Protocol: chat, superchat\r\n\r\n"))
	c.readUpgrade()
	c.write(withByte(text("x"), 0, 0xc1))
	c.requireClose(wire.CloseProtocolError, "")
}

func TestPreAuthLimit(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		registry := prometheus.NewRegistry()
		s := startServer(t, p, func(c *front.Config) { c.Limits.PreAuthPerAddr, c.Registerer = 3, registry })
		var clients []*client
		for range 3 {
			clients = append(clients, s.dial(t))
		}
		status, head := s.dialRaw(t).answer(upgradeRequest + "\r\n")
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Contains(t, head, "Retry-After: 1")

		clients[0].write(text("auth"))
		clients[0].requireText("auth")
		clients = append(clients, s.dial(t))
		status, _ = s.dialRaw(t).answer(upgradeRequest + "\r\n")
		require.Equal(t, http.StatusTooManyRequests, status)

		require.NoError(t, clients[1].Close())
		require.Eventually(t, func() bool {
			status, _ := s.dialRaw(t).answer(upgradeRequest + "\r\n")
			return status == http.StatusSwitchingProtocols
		}, patience, 10*time.Millisecond)
	})
}

// Over the node's limit a client is told 1013, and a flood of them a plain 503.
func TestNodeLimit(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.Conns = 2 })
		first := s.dial(t)
		s.dial(t)
		for range 3 {
			c := s.dial(t)
			c.requireClose(wire.CloseQuota, wire.ReasonQuota)
			require.NoError(t, c.Close())
		}
		var refused []*client
		for range 100 {
			c := s.dialRaw(t)
			c.write([]byte(upgradeRequest + "\r\n"))
			refused = append(refused, c)
		}
		plain := 0
		for _, c := range refused {
			if status, _ := c.answer(""); status == http.StatusServiceUnavailable {
				plain++
			}
		}
		require.NotZero(t, plain)
		first.write(text("still here"))
		first.requireText("still here")
		require.NoError(t, first.Close())
		require.Eventually(t, func() bool {
			c := s.dialRaw(t)
			defer c.Close()
			if status, _ := c.answer(upgradeRequest + "\r\n"); status != http.StatusSwitchingProtocols {
				return false
			}
			c.write(text("let in"))
			f, err := c.tryRead()
			return err == nil && f.Header.OpCode == ws.OpText
		}, patience, 10*time.Millisecond)
	})
}

// Requests that never end are cut by the http.Server's absolute limits (FAULTS B08),
// and hold up nobody.
func TestSlowUpgradeHeaders(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	s := startServerWith(t, pathDefault, timeout, nil)
	var dribbling sync.WaitGroup
	for range 100 {
		c := s.dialRaw(t)
		dribbling.Go(func() {
			ticks := time.NewTicker(timeout / 10)
			defer ticks.Stop()
			for _, b := range []byte(upgradeRequest) { // takes many times longer
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				<-ticks.C
			}
			t.Error("a dribbled request was not cut")
		})
	}
	c := s.dial(t)
	c.write(text("healthy"))
	c.requireText("healthy")
	dribbling.Wait()
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]front.Config{
		"no handler":      {},
		"negative limit":  {Handler: &echo{}, Limits: front.Limits{Workers: -1}},
		"negative time":   {Handler: &echo{}, Limits: front.Limits{HelloTimeout: -1}},
		"origin has path": {Handler: &echo{}, Origins: []string{"https://our.host/app"}},
		"origin is a *":   {Handler: &echo{}, Origins: []string{"*"}},
		"origin no host":  {Handler: &echo{}, Origins: []string{"https://"}},
	} {
		_, err := front.New(config)
		require.Error(t, err, name)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := startServer(t, pathDefault, func(c *front.Config) { c.Registerer = registry })
	a, b := s.dial(t), s.dial(t)
	a.write(text("auth"))
	a.requireText("auth")
	b.write(frame(ws.OpBinary, true, nil))
	b.requireClose(wire.CloseUnsupportedData, "")
	require.NoError(t, b.Close())
	status, _ := s.dialRaw(t).answer(strings.Replace(upgradeRequest, "GET", "PUT", 1) + "\r\n")
	require.Equal(t, http.StatusMethodNotAllowed, status)

	want := `
# HELP relay_front_accepted_total Upgraded connections.
# TYPE relay_front_accepted_total counter
relay_front_accepted_total 2
# HELP relay_front_connections Open connections.
# TYPE relay_front_connections gauge
relay_front_connections{state="authenticated"} 1
relay_front_connections{state="pre_auth"} 0
# HELP relay_front_queue_overflows_total Connections closed because their write queue was full.
# TYPE relay_front_queue_overflows_total counter
relay_front_queue_overflows_total 0
# HELP relay_front_frames_total WebSocket frames.
# TYPE relay_front_frames_total counter
relay_front_frames_total{direction="in"} 2
relay_front_frames_total{direction="out"} 2
`
	require.Eventually(t, func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader(want), "relay_front_accepted_total", "relay_front_connections",
			"relay_front_queue_overflows_total", "relay_front_frames_total") == nil
	}, patience, 10*time.Millisecond)
	families, err := registry.Gather()
	require.NoError(t, err)
	labels := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "relay_front_closes_total" || family.GetName() == "relay_front_refused_total" {
			for _, m := range family.GetMetric() {
				labels[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, 1.0, labels["1003"])
	require.Equal(t, 1.0, labels["method"])
	require.Contains(t, labels, "4403", "labels exist from the start")
	require.Contains(t, labels, "pre_auth_limit")
}
