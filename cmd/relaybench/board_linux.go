package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/board"
)

type boardCommand struct {
	settings
	Rooms   int `default:"26" help:"Rooms; each has one card."`
	Members int `default:"10" help:"Participants of a room, all connected; all of them get each hint."`
	Writers int `default:"64" help:"Comments that are under way at once."`

	content string // of every event, base64
}

// Help is kong's long text of the command.
func (*boardCommand) Help() string {
	return `Members of rooms comment on their room's card through the API. An event counts when it is committed and its hints were
delivered. The floor is one PostgreSQL commit of three rows (the event, the room's sequence, the hint) for each event.
Example: relaybench board --writers 16`
}

// Run measures.
func (c *boardCommand) Run(ctx context.Context, con console) error {
	if c.Rooms < 1 || c.Members < 1 || c.Writers < 1 {
		return usageError{"--rooms, --members and --writers are positive"}
	}
	c.content = base64.StdEncoding.EncodeToString(text(2, c.Size))
	b, err := newBench(c.settings, con)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	rooms, err := b.rooms(ctx, c.Rooms, c.Members)
	if err != nil {
		return err
	}
	cards, err := c.cards(ctx, b, rooms)
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
	if err := load.awaitResumed(ctx, c.Rooms*c.Members); err != nil {
		return err
	}
	return b.repeat("board", "events/s", nil, func() (sample, error) { return c.once(ctx, b, load, cards) })
}

// card is where comments go.
type card struct {
	path    string
	members []member
}

// cards makes one card in each room.
func (c *boardCommand) cards(ctx context.Context, b *bench, rooms [][]member) ([]card, error) {
	all := newCallers(b.relay.listen, len(rooms))
	defer all.close()
	cards := make([]card, len(rooms))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setupWorkers)
	for i, room := range rooms {
		group.Go(func() error {
			path := "/v1/sessions/" + room[0].room + "/board/cards"
			var made api.BoardCommitted
			err := all[i].call(ctx, http.MethodPost, path, room[0].token,
				api.NewBoardCard{Kind: string(board.KindTask), Content: c.content, Signature: signature}, &made)
			cards[i] = card{path + "/" + made.CardID + "/events", room}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("make a card: %w", err)
	}
	return cards, nil
}

// signature of every event, base64.
var signature = base64.StdEncoding.EncodeToString(text(1, 64))

// once measures the floor, then comments while the hints come.
func (c *boardCommand) once(ctx context.Context, b *bench, load *traffic, cards []card) (sample, error) {
	var floor perSecondFloor
	err := load.meanwhile(ctx, func() error {
		return b.child(ctx, &floor, "floor-board", "--time", c.Time.String(), "--size", strconv.Itoa(c.Size),
			"--rooms", strconv.Itoa(c.Rooms), "--writers", strconv.Itoa(min(c.Writers, 16)))
	})
	if err != nil {
		return sample{}, err
	}
	b.say("floor: %.0f commits/s", floor.PerSecond)
	before := load.hints.Load()
	commented, hints, err := c.comment(ctx, b, load, cards)
	if err != nil {
		return sample{}, err
	}
	more := commented.more("event")
	more["committed_per_s"] = commented.perSecond
	more["hints_per_s"] = float64(hints) / commented.seconds
	due := before + int64(commented.all*c.Members)
	began := time.Now()
	err = load.run(ctx, 15*time.Second, func() bool { return load.hints.Load() >= due })
	if err != nil && err != context.DeadlineExceeded { //nolint:errorlint // run's own
		return sample{}, err
	}
	more["last_hint_after_ms"] = float64(time.Since(began)) / 1e6
	more["undelivered_hints"] = float64(due - load.hints.Load())
	figure := min(commented.perSecond, more["hints_per_s"]/float64(c.Members))
	b.say("%.0f events/s, %.0f hints/s", commented.perSecond, more["hints_per_s"])
	return newSample(figure, floor.PerSecond, more), nil
}

// comment counts comments and, in the same time, hints.
func (c *boardCommand) comment(ctx context.Context, b *bench, load *traffic, cards []card) (commented callsRate, hints int64, err error) {
	all := newCallers(b.relay.listen, c.Writers)
	defer all.close()
	comment := api.NewBoardEvent{Type: string(board.EventComment), Content: c.content, Signature: signature}
	profiled := func() error { return nil }
	err = load.meanwhile(ctx, func() (err error) {
		commented, err = b.inParallel(ctx, c.Writers, c.Time/4, c.Time, func(ctx context.Context, worker int) error {
			card := cards[rand.IntN(len(cards))]
			author := card.members[rand.IntN(len(card.members))]
			return all[worker].call(ctx, http.MethodPost, card.path, author.token, comment, nil)
		}, func() {
			profiled = b.profile(ctx)
			hints = -load.hints.Load()
		}, func() { hints += load.hints.Load() })
		return errors.Join(err, profiled())
	})
	return commented, hints, err
}
