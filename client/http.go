package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	callTimeout = time.Minute
	maxAnswer   = 8 << 20 // more than the relay sends at once
	maxDetail   = 512     // bytes of what a server says of a refusal
	maxPage     = 500     // rows
)

// errAnswer says nothing of what is in the answer: it may hold a token.
var errAnswer = errors.New("the answer is not understood; is there a relay at that address?")

// caller makes HTTP requests to one relay.
type caller struct {
	http    *http.Client
	base    *url.URL
	timeout time.Duration
}

// request is one request. answer is filled where it was answered with success.
type request struct {
	method string
	path   string
	query  url.Values
	body   any // nil: none
	answer any // nil: not looked at
}

// newCaller does not follow redirects: one would carry tokens to wherever it points.
func newCaller(relay string, options DeviceOptions) (*caller, error) {
	base, err := relayURL(relay)
	if err != nil {
		return nil, err
	}
	timeout := options.Timeout
	if timeout == 0 {
		timeout = callTimeout
	}
	return &caller{
		base: base, timeout: timeout,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				TLSClientConfig:     options.TLS,
				ForceAttemptHTTP2:   true,
				TLSHandshakeTimeout: 10 * time.Second,
				IdleConnTimeout:     time.Minute,
				MaxIdleConnsPerHost: 4,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// relayPath is where a relay answers WebSockets.
const relayPath = "/v1/relay"

// relayURL reads a relay's address. The one of its WebSocket means the same relay; a path
// before that is kept, for a relay behind a proxy.
func relayURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, ErrRelayURL
	}
	switch base.Scheme {
	case "ws":
		base.Scheme = "http"
	case "wss":
		base.Scheme = "https"
	case "http", "https":
	default:
		return nil, ErrRelayURL
	}
	base.Path = strings.TrimSuffix(strings.TrimSuffix(base.Path, relayPath), "/")
	return base, nil
}

func (c *caller) webSocketURL() string {
	address := *c.base.JoinPath(relayPath)
	address.Scheme = map[string]string{"http": "ws", "https": "wss"}[address.Scheme]
	return address.String()
}

// call makes a request, with a bearer token where one is given.
func (c *caller) call(ctx context.Context, token string, r request) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	made, err := c.build(ctx, token, r)
	if err != nil {
		return err
	}
	response, err := c.http.Do(made)
	if err != nil {
		return fmt.Errorf("ask the relay at %s: %w", c.base.Host, cause(ctx, err))
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the relay's answer: %w", cause(ctx, err))
	}
	switch {
	case response.StatusCode/100 != 2:
		return refusal(response, data)
	case r.answer != nil && json.Unmarshal(data, r.answer) != nil: // one that is cut is none either
		return errAnswer
	}
	return nil
}

// cause is what is wrong, without the address, which callers have.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func (c *caller) build(ctx context.Context, token string, r request) (*http.Request, error) {
	address := c.base.JoinPath(r.path)
	address.RawQuery = r.query.Encode()
	var payload io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	made, err := http.NewRequestWithContext(ctx, r.method, address.String(), payload)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if r.body != nil {
		made.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		made.Header.Set("Authorization", "Bearer "+token)
	}
	return made, nil
}

// refusal reads an answer that is no success.
func refusal(response *http.Response, data []byte) error {
	refused := &APIError{Status: response.StatusCode}
	var body struct {
		Error  string `json:"error"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &body) == nil { // else it is no relay: a proxy, or another program
		refused.Code, refused.Detail = wire.Code(oneLine(body.Error)), oneLine(body.Detail)
	}
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16); err == nil {
		refused.RetryAfter = time.Duration(seconds) * time.Second
	}
	return refused
}

// oneLine is text of a server as it may be shown: bounded, and without what moves a cursor.
func oneLine(text string) string {
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "")
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// checkIDs refuses what names nothing, before it becomes part of an address.
func checkIDs(ids ...string) error {
	if slices.ContainsFunc(ids, func(id string) bool { _, ok := wire.ParseUUID([]byte(id)); return !ok }) {
		return ErrID
	}
	return nil
}
