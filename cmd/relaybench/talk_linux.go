package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

type talkCommand struct {
	settings
	holding
	Scheme string        `default:"sender_keys" enum:"sender_keys,pairwise,double_ratchet" help:"How messages are encrypted: for the room, privately in it, or 1:1."`
	Rounds int           `default:"100" help:"Messages of one run, one at a time."`
	Pause  time.Duration `default:"60ms" help:"Between two messages: a client keeps below 18 a second."`
}

// Help is kong's long text of the command.
func (*talkCommand) Help() string {
	return `Two devices that encrypt. The figure is the median time from Send to the message in the reader's hands: sealed, saved by the
sender, stored, delivered, verified, opened, and saved by the reader. The floor is the same envelope's way in clear, between two
connections that keep nothing. With --rooms both devices' stores also hold what devices in so many rooms have. Example:
relaybench talk --scheme double_ratchet`
}

// conversation is two devices in a room.
type conversation struct {
	writer, reader *client.Device
	room           client.Room
	from, to       *client.Session
	folder         string  // of both devices: writer and reader
	holds          float64 // KiB of each one's store beside this room; 0 where there is nothing
	close          func()
}

// Run measures.
func (c *talkCommand) Run(ctx context.Context, con console) error {
	if c.Rounds < 1 {
		return usageError{"--rounds is 1 or more"}
	}
	if err := c.check(); err != nil {
		return err
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	talk, err := b.converse(ctx, c.Scheme, &c.holding)
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
	return b.repeat("talk", "ms send-to-shown, p50", nil, func() (sample, error) { return c.once(ctx, b, talk, arrived) })
}

func (c *talkCommand) once(ctx context.Context, b *bench, talk *conversation, arrived <-chan time.Time) (sample, error) {
	floor, err := c.floor(ctx, talk)
	if err != nil {
		return sample{}, err
	}
	text, shown, queued := strings.Repeat("x", c.Size/2), newHistogram(), newHistogram()
	draft := client.Draft{Text: text}
	if c.Scheme == "pairwise" {
		draft.To = talk.to.Participant()
	}
	used, written := b.usage().generator, writtenBytes()
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
	rounds := float64(c.Rounds)
	return newSample(millis(shown, 50), floor, map[string]float64{
		"shown_p99_ms": millis(shown, 99), "queued_p50_ms": millis(queued, 50), "queued_p99_ms": millis(queued, 99),
		"devices_cpu_us_per_message": float64((b.usage().generator - used).Microseconds()) / rounds,
		"written_kib_per_message":    float64(writtenBytes()-written) / 1024 / rounds, // by both, to files and sockets
		"store_kib":                  talk.holds,
	}), nil
}

// writtenBytes is what this process has written so far.
func writtenBytes() int64 {
	written, _ := strconv.ParseInt(procField("/proc/self/io", "wchar"), 10, 64)
	return written
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
func (b *bench) converse(ctx context.Context, scheme string, more *holding) (*conversation, error) {
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
	if err := b.prepare(ctx, t, scheme, more); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (b *bench) prepare(ctx context.Context, t *conversation, scheme string, more *holding) (err error) {
	if t.writer, err = b.sdkDevice(ctx, filepath.Join(t.folder, "writer"), client.KindHuman, true); err != nil {
		return err
	}
	if t.reader, err = b.sdkDevice(ctx, filepath.Join(t.folder, "reader"), client.KindAgent, false); err != nil {
		return err
	}
	for name, d := range map[string]**client.Device{"writer": &t.writer, "reader": &t.reader} {
		if more.Rooms == 0 {
			break
		}
		if *d, err = t.fill(*d, filepath.Join(t.folder, name), more); err != nil {
			return err
		}
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

// fill adds to a device's store, and opens the device again.
func (t *conversation) fill(d *client.Device, folder string, more *holding) (_ *client.Device, err error) {
	if err := d.Close(); err != nil {
		return nil, err
	}
	if t.holds, err = more.fill(folder); err != nil {
		return nil, err
	}
	return client.OpenDevice(folder, client.DeviceOptions{})
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
