package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// revokeBar is for everything: the answer, every socket closed, every room in REKEYING.
const revokeBar = 2000 // ms

type revokeCommand struct {
	settings
	Rooms int `default:"1000" help:"Rooms that the device is in, with a connection in each."`
}

// Help is kong's long text of the command.
func (*revokeCommand) Help() string {
	return `A device that is in many encrypted rooms, and connected in each, is revoked. The figure is the time until the answer, until
its last socket was closed with 4403 and until every room is REKEYING, whichever is last.
Example: relaybench revoke --rooms 200`
}

// Run measures.
func (c *revokeCommand) Run(ctx context.Context, con console) error {
	if c.Rooms < 1 || c.Rooms > maxSockets {
		return usageError{fmt.Sprintf("--rooms is 1 to %d", maxSockets)}
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	return b.repeat("revoke", "ms", &bar{value: revokeBar, atMost: true}, func() (sample, error) { return c.once(ctx, b) })
}

func (c *revokeCommand) once(ctx context.Context, b *bench) (sample, error) {
	device, err := b.localDevice(ctx)
	if err != nil {
		return sample{}, err
	}
	members, err := c.join(ctx, b, device)
	if err != nil {
		return sample{}, err
	}
	conns, err := connect(ctx, b, members)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	b.say("%d rooms joined and connected", len(members))
	profiled := b.profile(ctx)
	began := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- awaitRevoked(ctx, conns) }()
	if err := b.operator.post(ctx, "/v1/devices/"+device+"/revoke", nil, nil); err != nil {
		return sample{}, err
	}
	answered := time.Since(began)
	if err := <-closed; err != nil {
		return sample{}, err
	}
	allClosed := time.Since(began)
	if err := profiled(); err != nil {
		return sample{}, err
	}
	// By the answer it is committed, so looking takes no part of the time.
	if err := c.rekeying(ctx, b, members); err != nil {
		return sample{}, err
	}
	more := map[string]float64{"answered_ms": float64(answered) / 1e6, "closed_ms": float64(allClosed) / 1e6}
	return newSample(max(more["answered_ms"], more["closed_ms"]), 0, more), nil
}

// join makes rooms with the device and one other member in each.
func (c *revokeCommand) join(ctx context.Context, b *bench, device string) ([]member, error) {
	members := make([]member, c.Rooms)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setupWorkers)
	for i := range members {
		group.Go(func() error {
			others, err := b.operator.room(ctx, 1)
			if err != nil {
				return err
			}
			var made api.Member
			err = b.operator.post(ctx, "/v1/rooms/"+others[0].room+"/members", api.NewMember{Role: string(store.RoleAgent), DeviceID: device}, &made)
			members[i] = member{id: made.ParticipantID, room: others[0].room, token: made.Credential}
			return err
		})
	}
	return members, group.Wait()
}

func connect(ctx context.Context, b *bench, members []member) ([]*client.Conn, error) {
	conns := make([]*client.Conn, len(members))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setupWorkers)
	for i, m := range members {
		group.Go(func() (err error) {
			conns[i], err = client.Dial(ctx, "ws://"+b.relay.listen+"/v1/relay", client.Options{Token: m.token})
			if err != nil {
				return err
			}
			return conns[i].Resume(ctx, "$", 0)
		})
	}
	return conns, group.Wait()
}

// awaitRevoked returns when every connection was closed with 4403.
func awaitRevoked(ctx context.Context, conns []*client.Conn) error {
	var group errgroup.Group
	for _, conn := range conns {
		group.Go(func() error {
			for {
				_, err := conn.Receive(ctx)
				if err == nil {
					continue
				}
				if closed, ok := errors.AsType[*client.CloseError](err); ok && closed.Code == wire.CloseAuth {
					return nil
				}
				return fmt.Errorf("instead of 4403: %w", err)
			}
		})
	}
	return group.Wait()
}

func (*revokeCommand) rekeying(ctx context.Context, b *bench, members []member) error {
	for _, m := range members {
		var room api.Room
		if err := b.operator.call(ctx, "GET", "/v1/rooms/"+m.room, nil, &room); err != nil {
			return err
		}
		if room.State != string(store.RoomRekeying) {
			return fmt.Errorf("room %s is %s", m.room, room.State)
		}
	}
	return nil
}
