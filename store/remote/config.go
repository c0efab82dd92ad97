package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/store"
)

// Config says where the API is. URL and Token are required.
type Config struct {
	// URL is the API's address, http or https, without user, query or path.
	URL string
	// Token is the service token, in its text form.
	Token string
	// Timeout bounds every call; default 10 s, which is longer than the API takes for one
	// that it fails. A message waits at most half of it to be sent.
	Timeout time.Duration
	// MaxConns bounds the connections to the API; default 32.
	MaxConns int
	// InFlight bounds the requests that carry messages at the same time, and as many again
	// traces; default 2, as many as the API commits at once. With more, fewer messages
	// share a request.
	InFlight int
	// Queue bounds the messages that wait to be sent, and the traces; default 4096. A call
	// waits for room in it.
	Queue  int
	Logger *slog.Logger // nil discards
	// Registerer gets the metrics; nil: they are counted and shown nowhere.
	Registerer prometheus.Registerer
	// Transport replaces the one that is made for URL; for tests.
	Transport http.RoundTripper
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.MaxConns == 0 {
		c.MaxConns = 32
	}
	if c.InFlight == 0 {
		c.InFlight = 2
	}
	if c.Queue == 0 {
		c.Queue = 4096
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "remote_store")
	return c
}

// validate returns the address without what may follow the host.
func (c Config) validate() (*url.URL, error) {
	address, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("the API's URL is no URL") // its text may hold a password
	}
	switch {
	case address.Scheme != "http" && address.Scheme != "https", address.Host == "", address.Opaque != "":
		return nil, errors.New("the API's URL must be http://host:port or https://host:port")
	case address.User != nil, address.RawQuery != "", address.Fragment != "", address.Path != "" && address.Path != "/":
		return nil, errors.New("the API's URL must have no user, path or query: http://host:port or https://host:port")
	}
	if _, ok := store.HashToken([]byte(c.Token)); !ok {
		return nil, errors.New("the service token is not 43 characters of base64url")
	}
	for name, value := range map[string]int64{
		"timeout": int64(c.Timeout), "max conns": int64(c.MaxConns), "in flight": int64(c.InFlight), "queue": int64(c.Queue),
	} {
		if value < 0 {
			return nil, fmt.Errorf("%s is negative", name)
		}
	}
	return &url.URL{Scheme: address.Scheme, Host: address.Host}, nil
}
