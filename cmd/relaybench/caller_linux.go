package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// caller calls the API over one connection, from a loopback address of its own: limits
// are per address.
type caller struct {
	base   string
	client *http.Client
	body   bytes.Buffer // of the last answer
}

type callers []*caller

func newCallers(listen string, count int) callers {
	all := make(callers, count)
	for i := range all {
		host := i + 256
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 2, byte(host>>8), byte(host))}}
		all[i] = &caller{base: "http://" + listen, client: &http.Client{
			Timeout:   time.Minute,
			Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 1, DisableCompression: true},
		}}
	}
	return all
}

func (all callers) close() {
	for _, c := range all {
		c.client.CloseIdleConnections()
	}
}

// call sends body, unless it is nil, and decodes the answer into into, unless that is nil.
func (c *caller) call(ctx context.Context, method, path, token string, body, into any) error {
	var encoded io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		encoded = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, encoded)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	c.body.Reset()
	if _, err := c.body.ReadFrom(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return newCallError(path, answer.Status, c.body.Bytes())
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(c.body.Bytes(), into)
}

// callError is a call that was not fulfilled.
type callError struct {
	path, status, body string
	code               string // as the API says, or empty
}

func newCallError(path, status string, body []byte) *callError {
	var said struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &said) // a proxy's page has no code
	return &callError{path, status, string(bytes.TrimSpace(body)), said.Error}
}

func (e *callError) Error() string { return fmt.Sprintf("%s: %s: %.200s", e.path, e.status, e.body) }
