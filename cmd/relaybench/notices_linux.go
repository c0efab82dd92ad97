package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

const (
	noticeKind     = "notice"
	noticeLifetime = time.Hour // longer than any run: all of them count against the cap
)

type noticesCommand struct {
	settings
	Senders int `default:"256" help:"Participants who send at once, each with one notice without a verdict."`
	Members int `default:"10" help:"Participants of a room."`
	Notices int `default:"20000" help:"Notices of one run. Each participant sends 20, the most that may be unexpired."`
}

// Help is kong's long text of the command.
func (*noticesCommand) Help() string {
	return `Members of rooms send notices to their room, as many as each may, then others take their places. A notice counts when it
was accepted, all inboxes are acknowledged and it was delivered. The floor is messages to the same rooms.
Example: relaybench notices --notices 40000`
}

// Run measures.
func (c *noticesCommand) Run(ctx context.Context, con console) error {
	if c.Members < 2 || c.Senders < 1 || c.Notices < 4*c.Senders {
		return usageError{"--members is 2 or more, --senders positive, --notices at least four times --senders"}
	}
	perRoom := c.Members * store.NoticeCap
	roomsOfRun := (c.Notices + perRoom - 1) / perRoom
	if roomsOfRun*c.Members > maxSockets {
		return usageError{fmt.Sprintf("--notices is at most %d: the connections of one process", maxSockets*store.NoticeCap)}
	}
	b, err := newBench(c.settings, con)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	rooms, err := b.rooms(ctx, c.Runs*roomsOfRun, c.Members)
	if err != nil {
		return err
	}
	if err := b.generations(ctx, rooms); err != nil {
		return err
	}
	var runs []sample
	for run := range c.Runs {
		s, err := c.once(ctx, b, rooms[run*roomsOfRun:(run+1)*roomsOfRun])
		if err != nil {
			return err
		}
		runs = append(runs, s)
	}
	return b.finish("notices", "notices/s", runs, nil)
}

// once measures in rooms whose members have not sent any.
func (c *noticesCommand) once(ctx context.Context, b *bench, rooms [][]member) (sample, error) {
	floor, moreOfFloor, err := b.roomMessages(ctx, rooms, c.Senders, 1)
	if err != nil {
		return sample{}, err
	}
	all := len(rooms) * c.Members
	figure, more, err := b.fresh(ctx, c.Members-1,
		func(load *traffic) error { return joinRoomsWith(load, rooms, all, noticeKind, c.Size) },
		func(load *traffic) (float64, map[string]float64, error) {
			load.inTurns(c.Senders, store.NoticeCap)
			until := func(verdicts int) func() error {
				return func() error {
					return load.run(ctx, time.Minute, func() bool { return load.counts.verdicts+load.counts.nacks >= verdicts })
				}
			}
			// While the last ones send there are fewer than there should be.
			return b.measureWhile(ctx, load, 0, 1, until(all*store.NoticeCap/5), until(all*store.NoticeCap-c.Senders))
		})
	if err != nil {
		return sample{}, err
	}
	return withFloor(figure, more, floor, moreOfFloor), nil
}

// generations allocates everybody's first gen, which envelopes name.
func (b *bench) generations(ctx context.Context, rooms [][]member) error {
	began := time.Now()
	callers := newCallers(b.relay.listen, setupWorkers)
	defer callers.close()
	group, ctx := errgroup.WithContext(ctx)
	free := make(chan *caller, setupWorkers)
	for _, c := range callers {
		free <- c
	}
	group.SetLimit(setupWorkers)
	for _, room := range rooms {
		for _, m := range room {
			group.Go(func() error {
				c := <-free
				defer func() { free <- c }()
				return c.allocate(ctx, m)
			})
		}
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("allocate generations: %w", err)
	}
	b.say("generations allocated in %s", time.Since(began).Round(time.Millisecond))
	return nil
}

var errNotFirst = errors.New("a participant's first generation is not 1")

func (c *caller) allocate(ctx context.Context, m member) error {
	var made api.Generation
	err := c.call(ctx, http.MethodPost, "/v1/sessions/"+m.room+"/sender-generations", m.token, api.NewGeneration{
		KID:        base64.RawURLEncoding.EncodeToString(text(1, 16)),
		SessionKey: base64.StdEncoding.EncodeToString(text(1, 32)),
	}, &made)
	if err == nil && made.Gen != 1 {
		err = errNotFirst
	}
	return err
}
