package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/client"
)

// sendTimeout bounds one message, with the server being away in between.
const sendTimeout = 40 * time.Second

// person is somebody with a device of their own.
type person struct {
	name   string
	home   string
	device *client.Device
	ledger *ledger

	sessions map[string]*client.Session // by room
	stop     func() error               // ends listening
	sent     int
}

// enroll makes a device.
func enroll(ctx context.Context, s *server, folder, name string, kind client.DeviceKind, invite string, l *ledger) (*person, error) {
	p := &person{name: name, home: filepath.Join(folder, name), ledger: l, sessions: make(map[string]*client.Session)}
	device, err := client.EnrollDevice(ctx, p.home, client.Enrollment{RelayURL: s.url(), Invite: invite, Kind: kind, Label: name + "'s device"}, client.DeviceOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s enrolls: %w", name, err)
	}
	p.device = device
	return p, nil
}

// enter opens the room.
func (p *person) enter(ctx context.Context, room string) error {
	session, err := p.device.OpenSession(ctx, room)
	if err != nil {
		return fmt.Errorf("%s opens the room: %w", p.name, err)
	}
	p.sessions[room] = session
	return nil
}

// take reads one item.
func (p *person) take(item client.Item) error {
	switch {
	case item.Message != nil:
		p.ledger.reads(p.name, item.Message.Text)
	case item.Failure != nil:
		p.ledger.fails()
	}
	return nil
}

// listen follows all rooms, and returns when everything that waited was read.
func (p *person) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(p.sessions))
	ready := make(chan struct{}, len(p.sessions))
	for _, session := range p.sessions {
		options := client.ListenOptions{CaughtUp: func() {
			select {
			case ready <- struct{}{}:
			default:
			}
		}}
		go func() { ended <- session.ListenWith(ctx, options, p.take) }()
	}
	p.stop = func() error {
		cancel()
		p.stop = nil
		var all error
		for range p.sessions {
			all = errors.Join(all, <-ended)
		}
		return all
	}
	for range p.sessions {
		select {
		case <-ready:
		case err := <-ended:
			ended <- err
			return errors.Join(fmt.Errorf("%s listens: the session ended: %w", p.name, err), p.stop())
		}
	}
	return nil
}

// text is something that nobody has written before. All of it begins with mark.
func (p *person) text(about string) string {
	p.sent++
	return fmt.Sprintf("%s %s, message %d of %s", mark, about, p.sent, p.name)
}

// write sends a message, and sends it on when the server was away in between.
func (p *person) write(ctx context.Context, room, to, about string, readers ...string) (client.Sent, error) {
	text := p.text(about)
	p.ledger.wrote(text, readers...)
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	sent, err := p.sessions[room].Send(ctx, client.Draft{Text: text, To: to})
	if errors.Is(err, client.ErrNoVerdict) {
		return sent, p.flush(ctx, room)
	}
	if err != nil {
		return sent, fmt.Errorf("%s writes: %w", p.name, err)
	}
	return sent, nil
}

// flush waits until nothing is without a verdict any more: it goes out by itself with the next
// connection.
func (p *person) flush(ctx context.Context, room string) error {
	for {
		pending, err := p.sessions[room].Pending()
		if err != nil || len(pending) == 0 {
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf("%s: no verdict for %s", p.name, strings.Join(pending, ", "))
		}
	}
}
