package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

type talkCommand struct {
	settings
	Scheme string        `default:"sender_keys" enum:"sender_keys,pairwise,double_ratchet" help:"How messages are encrypted: for the room, privately in it, or 1:1."`
	Rounds int           `default:"100" help:"Messages of one run, one at a time."`
	Pause  time.Duration `default:"60ms" help:"Between two messages: a client keeps below 18 a second."`
}

// Help is kong's long text of the command.
func (*talkCommand) Help() string {
	return `Two devices that encrypt. The figure is the median time from Send to the message in the reader's hands: sealed, saved by the
sender, stored, delivered, verified, opened, and saved by the reader. The floor is the same envelope's way in clear, between two
connections that keep nothing. Example: relaybench talk --scheme double_ratchet`
}

// conversation is two devices in a room.
type conversation struct {
	writer, reader *client.Device
	room           client.Room
	from, to       *client.Session
	folder         string // of both devices: writer and reader
	close          func()
}

// Run measures.
func (c *talkCommand) Run(ctx context.Context, con console) error {
	if c.Rounds < 1 {
		return usageError{"--rounds is 1 or more"}
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	talk, err := b.converse(ctx, c.Scheme)
	if err != nil {
		return err
	}
	defer talk.close()
	arrived := make(chan time.Time, 1)
	listening, stop := context.WithCancel(ctx)
	ended, ready := make(chan error, 1), make(chan struct{}, 1)
	options := client.ListenOptions{CaughtUp: func() { ready <- struct{}{} }}
	go func() {
		ended <- talk.to.ListenWith(listening, options, func(item client.Item) error {
			if item.Message != nil {
				arrived <- time.Now()
			}
			if item.Failure != nil && !strings.HasPrefix(item.Failure.ID, floorID) { // the floor's are not signed
				return item.Failure.Err
			}
			return nil
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			con.notef("listen: %v", err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		return fmt.Errorf("listen: %w", err)
	}
	return b.repeat("talk", "ms send-to-shown, p50", nil, func() (sample, error) { return c.once(ctx, talk, arrived) })
}

func (c *talkCommand) once(ctx context.Context, talk *conversation, arrived <-chan time.Time) (sample, error) {
	floor, err := c.floor(ctx, talk)
	if err != nil {
		return sample{}, err
	}
	text, shown, queued := strings.Repeat("x", c.Size/2), newHistogram(), newHistogram()
	draft := client.Draft{Text: text}
	if c.Scheme == "pairwise" {
		draft.To = talk.to.Participant()
	}
	for range c.Rounds {
		began := time.Now()
		if _, err := talk.from.Send(ctx, draft); err != nil {
			return sample{}, err
		}
		record(queued, int64(time.Since(began)))
		select {
		case at := <-arrived:
			record(shown, int64(at.Sub(began)))
		case <-time.After(10 * time.Second):
			return sample{}, errors.New("a message did not arrive")
		}
		time.Sleep(c.Pause)
	}
	return newSample(millis(shown, 50), floor, map[string]float64{
		"shown_p99_ms": millis(shown, 99), "queued_p50_ms": millis(queued, 50), "queued_p99_ms": millis(queued, 99),
	}), nil
}

// floorID begins the ids of the floor's envelopes.
const floorID = "floor-"

// floor is the median of the way of an envelope that is not encrypted, in ms.
func (c *talkCommand) floor(ctx context.Context, talk *conversation) (float64, error) {
	one, err := connectTo(ctx, talk.writer, talk.room.RoomID)
	if err != nil {
		return 0, err
	}
	defer one.Close()
	two, err := connectTo(ctx, talk.reader, talk.room.RoomID)
	if err != nil {
		return 0, err
	}
	defer two.Close()
	if err := two.Resume(ctx, "$", 0); err != nil {
		return 0, err
	}
	for frame := (wire.ServerFrame{}); frame.Type != wire.ServerResumeComplete; {
		if frame, err = two.Receive(ctx); err != nil {
			return 0, err
		}
	}
	way := newHistogram()
	for round := range c.Rounds {
		id := fmt.Sprintf("%s%d-%d", floorID, time.Now().UnixNano(), round)
		envelope := fmt.Appendf(nil, `{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":"control","gen":0,"seq":%d,"ts":%d,"nonce":"","ct":%q}`,
			id, one.SessionID(), one.ParticipantID(), two.ParticipantID(), round+1, time.Now().UnixMilli(), strings.Repeat("x", c.Size/2))
		began := time.Now()
		if err := one.SendRaw(ctx, envelope); err != nil {
			return 0, err
		}
		for frame := (wire.ServerFrame{}); frame.Type != wire.ServerDeliver; {
			if frame, err = two.Receive(ctx); err != nil {
				return 0, err
			}
		}
		record(way, int64(time.Since(began)))
		time.Sleep(time.Millisecond)
	}
	return millis(way, 50), nil
}

func connectTo(ctx context.Context, d *client.Device, room string) (*client.Conn, error) {
	credential, err := d.MintCredential(ctx, room, 0)
	if err != nil {
		return nil, err
	}
	return d.Connect(ctx, credential)
}

// converse enrolls an owner and an agent, and lets them talk for the first time.
func (b *bench) converse(ctx context.Context, scheme string) (*conversation, error) {
	folder, err := os.MkdirTemp(b.relay.folder, "devices-")
	if err != nil {
		return nil, err
	}
	t := &conversation{folder: folder}
	t.close = func() {
		for _, d := range []*client.Device{t.writer, t.reader} {
			if d != nil {
				_ = d.Close() // the folder is removed with the relay's
			}
		}
	}
	if err := b.prepare(ctx, t, folder, scheme); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (b *bench) prepare(ctx context.Context, t *conversation, folder, scheme string) (err error) {
	if t.writer, err = b.sdkDevice(ctx, filepath.Join(folder, "writer"), client.KindHuman, true); err != nil {
		return err
	}
	if t.reader, err = b.sdkDevice(ctx, filepath.Join(folder, "reader"), client.KindAgent, false); err != nil {
		return err
	}
	kind := client.NewRoom{}
	if scheme == "double_ratchet" {
		kind.Kind = "direct"
	}
	if t.room, err = t.writer.CreateRoom(ctx, kind); err != nil {
		return err
	}
	if _, err := t.writer.AddMember(ctx, t.room.RoomID, t.reader.ID(), client.RoleAgent); err != nil {
		return err
	}
	if t.from, err = t.writer.OpenSession(ctx, t.room.RoomID); err != nil {
		return err
	}
	t.to, err = t.reader.OpenSession(ctx, t.room.RoomID)
	return err
}

// sdkDevice is an ACTIVE device of the Go client.
func (b *bench) sdkDevice(ctx context.Context, folder string, kind client.DeviceKind, admin bool) (*client.Device, error) {
	var invite api.Invite
	if err := b.operator.post(ctx, "/v1/invites", api.NewInvite{Kind: string(kind), Admin: admin}, &invite); err != nil {
		return nil, err
	}
	d, err := client.EnrollDevice(ctx, folder, client.Enrollment{
		RelayURL: "http://" + b.relay.listen, Invite: invite.Token, Kind: kind, Label: "bench",
	}, client.DeviceOptions{})
	if err != nil {
		return nil, err
	}
	if !admin {
		approve := "/v1/devices/" + d.ID() + "/approve"
		if err := b.operator.post(ctx, approve, api.Approval{Fingerprint: d.Fingerprint()}, nil); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if _, err := d.PublishKeys(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
