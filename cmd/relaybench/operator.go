package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/api"
)

const (
	setupWorkers = 24 // operator requests that are under way at once
	pollEvery    = 5 * time.Millisecond
)

// operator makes rooms and participants over the relay's operator socket.
type operator struct {
	client *http.Client
}

func newOperator(data string) *operator {
	socket := filepath.Join(data, api.SocketFile)
	return &operator{client: &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialSocket(ctx, socket)
			},
			MaxIdleConnsPerHost: setupWorkers,
		},
	}}
}

// dialSocket waits for the socket: it may appear a moment after /readyz is true.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(pollEvery)
	}
}

func (o *operator) close() { o.client.CloseIdleConnections() }

// member is a participant and its credential.
type member struct {
	id, room, token string
}

// rooms makes count rooms of size agents each.
func (o *operator) rooms(ctx context.Context, count, size int) ([][]member, error) {
	rooms := make([][]member, count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setupWorkers)
	for i := range rooms {
		group.Go(func() (err error) {
			rooms[i], err = o.room(ctx, size)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("make %d rooms of %d: %w", count, size, err)
	}
	return rooms, nil
}

func (o *operator) room(ctx context.Context, size int) ([]member, error) {
	var room api.Room
	if err := o.post(ctx, "/v1/rooms", api.NewRoom{}, &room); err != nil {
		return nil, err
	}
	members := make([]member, size)
	for i := range members {
		var made api.Member
		if err := o.post(ctx, "/v1/rooms/"+room.ID+"/members", api.NewMember{Role: "agent"}, &made); err != nil {
			return nil, err
		}
		members[i] = member{id: made.ParticipantID, room: room.ID, token: made.Credential}
	}
	return members, nil
}

// post sends body, unless it is nil, and decodes the answer into into, unless that is nil.
func (o *operator) post(ctx context.Context, path string, body, into any) error {
	return o.call(ctx, http.MethodPost, path, body, into)
}

func (o *operator) call(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://relay"+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := o.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s: %s: %s", path, answer.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
