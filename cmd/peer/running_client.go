package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// stopping is how long a command in another process may take to end after Ctrl-C.
const stopping = 5 * time.Second

// caller is this side of a command that runs in the process which has the device open.
type caller struct {
	http *http.Client
	con  console
}

// handOver runs a command in the process that has the device open and takes guests. It is not
// done where there is none.
func handOver(ctx context.Context, dir string, args []string, con console) (code int, done bool) {
	path, ok := socketOf(dir)
	if !ok {
		return 0, false
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	c := &caller{http: &http.Client{Transport: transport}, con: con}
	code, err := c.run(ctx, args)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return 0, false
	}
	if err != nil {
		return exitCode(err, con), true
	}
	return code, true
}

// run runs a command over there, and returns its exit code.
func (c *caller) run(outer context.Context, args []string) (int, error) {
	caller, err := here()
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(order{Args: args, Caller: caller, Program: c.con.program, Look: c.con.look})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(outer)) // Ctrl-C is sent
	defer cancel()
	answer, err := c.post(ctx, "run", bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return 0, errGuests
	default:
		return 0, fmt.Errorf("the peer command that has this device open is of another version: it answers %s", answer.Status)
	}
	return c.follow(outer, ctx, cancel, json.NewDecoder(answer.Body))
}

func (c *caller) post(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://peer/v1/"+path, body)
	if err != nil {
		return nil, err
	}
	return c.http.Do(request)
}

// follow does what the reports say until the command has ended. Ctrl-C ends the outer context.
func (c *caller) follow(outer, ctx context.Context, cancel context.CancelFunc, reports *json.Decoder) (int, error) {
	var guest string
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			if outer.Err() != nil {
				return exitFailed, outer.Err()
			}
			return exitFailed, errHostEnded
		}
		var err error
		switch {
		case r.Code != nil:
			return *r.Code, nil
		case r.Guest != "" && guest == "":
			guest = r.Guest
			defer context.AfterFunc(outer, func() { c.stop(ctx, cancel, guest) })()
		case r.Input:
			go c.give(ctx, guest)
		case len(r.Err) > 0:
			_, err = c.con.err.Write(r.Err)
		default:
			_, err = c.con.out.Write(r.Out)
		}
		if err != nil {
			return exitFailed, err
		}
	}
}

// give sends standard input until its end, or the command's.
func (c *caller) give(ctx context.Context, guest string) {
	answer, err := c.post(ctx, "input/"+guest, io.NopCloser(c.con.in))
	if err == nil {
		_ = answer.Body.Close()
	}
}

// stop asks the command to end, and leaves it where it does not.
func (c *caller) stop(ctx context.Context, cancel context.CancelFunc, guest string) {
	ctx, done := context.WithTimeout(ctx, stopping)
	defer done()
	answer, err := c.post(ctx, "stop/"+guest, nil)
	if err == nil {
		_ = answer.Body.Close()
		<-ctx.Done()
	}
	cancel()
}
