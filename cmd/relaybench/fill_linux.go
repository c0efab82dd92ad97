package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// fillBatch is how many rooms are filled at once.
const fillBatch = 1000

// fill sends rows messages to each room, from the member at the given place, while
// nobody else is connected: every other member then has as many rows waiting. It
// returns how long it took.
func (b *bench) fill(ctx context.Context, rooms [][]member, place, rows int) (time.Duration, error) {
	began := time.Now()
	for batch := range slices.Chunk(rooms, fillBatch) {
		if err := b.fillRooms(ctx, batch, place, rows); err != nil {
			return 0, fmt.Errorf("fill the inboxes: %w", err)
		}
	}
	took := time.Since(began)
	b.say("%d messages to %d rooms sent in %s", rows*len(rooms), len(rooms), took.Round(time.Millisecond))
	return took, nil
}

func (b *bench) fillRooms(ctx context.Context, rooms [][]member, place, rows int) error {
	load, err := b.newLoad(len(rooms[0]) - 1)
	if err != nil {
		return err
	}
	defer load.loop.close()
	for _, room := range rooms {
		if err := load.join(room[place], room[place].room, "message", b.Size); err != nil {
			return err
		}
	}
	if err := load.awaitResumed(ctx, len(rooms)); err != nil {
		return err
	}
	for _, s := range load.senders {
		s.last = firstSeq + uint64(rows)
	}
	load.start(0)
	err = load.run(ctx, 10*time.Minute, func() bool { return load.inFlight == 0 })
	if err == nil && load.counts.nacks > 0 {
		err = fmt.Errorf("%d envelopes were refused: %v", load.counts.nacks, load.counts.reasons)
	}
	return err
}
