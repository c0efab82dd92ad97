package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	callTimeout = time.Minute // a change may wait for every node of a cluster
	maxAnswer   = 4 << 20

	statusTimeout = 5 * time.Second // for an answer that only makes a hint better
)

// client calls the operator's endpoints.
type client struct {
	http   *http.Client
	base   *url.URL
	token  string
	tenant string // its name; empty: the default one
	where  string // for people
}

// refusal is an error answer of the API.
type refusal struct {
	status int
	body   api.Error
}

func (r *refusal) Error() string {
	if r.body.Detail == "" {
		return "the relay answered " + orText(r.body.Error, http.StatusText(r.status))
	}
	return r.body.Detail + " (" + r.body.Error + ")"
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// dial makes the client that the flags ask for.
func dial(globals *Globals, con console) (*client, error) {
	if globals.Tenant != "" && !store.ValidTenantName(globals.Tenant) {
		return nil, usageError{fmt.Sprintf("--tenant %q is no name of a tenant", globals.Tenant)}
	}
	if globals.APIURL != "" {
		return dialURL(globals, con)
	}
	if globals.Token != "" || globals.TokenFile != "" {
		return nil, usageError{"a token goes with --api-url; the socket needs none"}
	}
	socket := filepath.Join(globals.Data, api.SocketFile)
	return &client{
		http: httpClient(&http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return api.DialSocket(ctx, socket) },
		}),
		base:   &url.URL{Scheme: "http", Host: "relay"},
		tenant: globals.Tenant,
		where:  socket,
	}, nil
}

func dialURL(globals *Globals, con console) (*client, error) {
	base, err := url.Parse(globals.APIURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.User != nil {
		return nil, usageError{"--api-url must be an http or https address"}
	}
	token, err := globals.token()
	if err != nil {
		return nil, err
	}
	if base.Scheme == "http" && !loopback(base.Hostname()) {
		con.notef("warning: the token goes to %s unencrypted; use https", base.Host)
	}
	return &client{http: httpClient(http.DefaultTransport), base: base, token: token, tenant: globals.Tenant, where: base.String()}, nil
}

func httpClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		Timeout:   callTimeout,
		// A redirect would carry the token to wherever it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// token returns the operator token, checked for its form.
func (g *Globals) token() (string, error) {
	token := g.Token
	if g.TokenFile != "" {
		file, err := os.Open(g.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		defer file.Close()
		text, err := io.ReadAll(io.LimitReader(file, 4096))
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return "", usageError{"--api-url needs a token: RELAY_TOKEN or --token-file"}
	}
	if _, ok := store.HashToken([]byte(token)); !ok {
		return "", usageError{"that is not an operator token"}
	}
	return token, nil
}

// call makes one request. body and answer may be nil.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	address := c.base.JoinPath(path)
	address.RawQuery = query.Encode()
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, address.String(), payload)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.tenant != "" {
		request.Header.Set("Relay-Tenant", c.tenant)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.unreachable(err)
	}
	defer c.http.CloseIdleConnections()
	defer response.Body.Close()
	return c.explain(readAnswer(response, answer))
}

// explain names the tenant that there is not: the answer names only the header.
func (c *client) explain(err error) error {
	refused, ok := errors.AsType[*refusal](err)
	if ok && c.tenant != "" && refused.body.Error == string(wire.NotFound) && refused.body.Detail == api.NoSuchTenant {
		return fmt.Errorf("there is no tenant %s; see relay tenant list", c.tenant)
	}
	return err
}

func readAnswer(response *http.Response, answer any) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode >= 300 {
		refused := &refusal{status: response.StatusCode}
		if json.Unmarshal(data, &refused.body) != nil {
			refused.body = api.Error{} // not this API: a proxy, or another program
		}
		return refused
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the answer is not understood; is there a relay at that address? %w", err)
	}
	return nil
}

// unreachable says what to do about a relay that does not answer.
func (c *client) unreachable(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; it may or may not have been done")
	case c.token != "":
		return fmt.Errorf("no relay answers at %s: %w", c.where, rootCause(err))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no relay is running on %s: start one with `relay serve --data %[1]s`, or name its folder with --data", filepath.Dir(c.where))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s belongs to another user: run this as the user the relay runs as", c.where)
	}
	return fmt.Errorf("the relay at %s does not answer: %w", c.where, rootCause(err))
}

// rootCause drops the request's method and address, which the caller did not type.
func rootCause(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// defaultRelayURL is where peer looks for a relay.
const defaultRelayURL = "ws://127.0.0.1:8787/v1/relay"

// relayURL is where the relay's clients connect, as far as this program can know: the
// host of --api-url, or where the relay says it listens. It is empty where the relay
// does not say, and for a node that has no front: its edges' addresses are not known here.
func (c *client) relayURL(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if c.token != "" {
		address := c.base.JoinPath("v1/relay")
		address.Scheme = "ws" + strings.TrimPrefix(address.Scheme, "http")
		return address.String()
	}
	if summary, err := node.ReadSummary(filepath.Dir(c.where)); err == nil && summary.Role == node.RoleAPI {
		return ""
	}
	var status api.Status
	if c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &status) != nil {
		return ""
	}
	return listenURL(status)
}

// localHost is where a listener of this machine is reached from here; empty for what is
// no address.
func localHost(listener string) string {
	listen, err := netip.ParseAddrPort(listener)
	if err != nil {
		return ""
	}
	if listen.Addr().IsUnspecified() { // all addresses of this machine
		listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listen.Port())
	}
	return listen.String()
}

func listenURL(status api.Status) string {
	host := localHost(status.Listen)
	if host == "" {
		return ""
	}
	scheme := "ws"
	if status.TLS {
		scheme = "wss"
	}
	return (&url.URL{Scheme: scheme, Host: host, Path: "/v1/relay"}).String()
}

// checkID refuses what cannot be an id before it becomes part of an address.
func checkID(flag, text string) error {
	if _, ok := wire.ParseUUID([]byte(text)); !ok {
		return usageError{fmt.Sprintf("--%s %q is not an id", flag, text)}
	}
	return nil
}
