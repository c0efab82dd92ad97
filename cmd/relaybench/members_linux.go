package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

type membersCommand struct {
	settings
	Members int `default:"200" help:"Participants of the room, all connected; all of them are told of each change."`
}

// Help is kong's long text of the command.
func (*membersCommand) Help() string {
	return `A device is added to a large room and removed again, one change after the other. A change counts when it is in force on every
node and answered; every member is told of it. The floor is one PostgreSQL commit of three rows, one after the other.
Example: relaybench members --members 400`
}

// Run measures.
func (c *membersCommand) Run(ctx context.Context, con console) error {
	if c.Members < 1 || c.Members >= store.MaxParticipants {
		return usageError{"--members is 1 to " + strconv.Itoa(store.MaxParticipants-1)}
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	rooms, err := b.rooms(ctx, 1, c.Members)
	if err != nil {
		return err
	}
	guest, err := b.localDevice(ctx)
	if err != nil {
		return err
	}
	load, err := b.newLoad(c.Members)
	if err != nil {
		return err
	}
	defer load.loop.close()
	if err := joinRooms(load, rooms, 0, c.Size); err != nil {
		return err
	}
	if err := load.awaitResumed(ctx, c.Members); err != nil {
		return err
	}
	return b.repeat("members", "changes/s", nil, func() (sample, error) { return c.once(ctx, b, load, rooms[0][0].room, guest) })
}

// localDevice makes an ACTIVE device, in a room of its own.
func (b *bench) localDevice(ctx context.Context) (string, error) {
	var room api.Room
	if err := b.operator.post(ctx, "/v1/rooms", api.NewRoom{}, &room); err != nil {
		return "", err
	}
	var made api.Member
	err := b.operator.post(ctx, "/v1/rooms/"+room.ID+"/members", api.NewMember{Role: string(store.RoleAgent)}, &made)
	return made.DeviceID, err
}

func (c *membersCommand) once(ctx context.Context, b *bench, load *traffic, room, guest string) (sample, error) {
	var floor perSecondFloor
	err := load.meanwhile(ctx, func() error {
		return b.child(ctx, &floor, "floor-board", "--time", c.Time.String(), "--size", "256", "--writers", "1")
	})
	if err != nil {
		return sample{}, err
	}
	events := load.roomEvents.Load()
	var changed callsRate
	err = load.meanwhile(ctx, func() (err error) {
		profiled := func() error { return nil }
		changed, err = b.inParallel(ctx, 1, c.Time/4, c.Time, func(ctx context.Context, _ int) error {
			return c.addAndRemove(ctx, b, room, guest)
		}, func() { profiled = b.profile(ctx) }, nil)
		return errors.Join(err, profiled())
	})
	if err != nil {
		return sample{}, err
	}
	more := changed.more("pair")
	// Of each pair a room_joined, a member_removed and a rekey_required.
	due := events + int64(changed.all)*int64(c.Members)*3
	began := time.Now()
	err = load.run(ctx, 15*time.Second, func() bool { return load.roomEvents.Load() >= due })
	if err != nil && err != context.DeadlineExceeded { //nolint:errorlint // run's own
		return sample{}, err
	}
	more["last_event_after_ms"] = float64(time.Since(began)) / 1e6
	more["undelivered_events"] = float64(due - load.roomEvents.Load())
	return newSample(2*changed.perSecond, floor.PerSecond, more), nil
}

func (*membersCommand) addAndRemove(ctx context.Context, b *bench, room, guest string) error {
	path := "/v1/rooms/" + room + "/members"
	var made api.Member
	if err := b.operator.post(ctx, path, api.NewMember{Role: string(store.RoleAgent), DeviceID: guest}, &made); err != nil {
		return err
	}
	return b.operator.call(ctx, http.MethodDelete, path+"/"+made.ParticipantID, nil, nil)
}
