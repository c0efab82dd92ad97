package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

type inboxesCommand struct {
	settings
	Many int `default:"100000" help:"Inboxes with rows."`
	Few  int `default:"1000" help:"Inboxes of the relay it is compared with."`
	Rows int `default:"4" help:"Messages that two members of each room send."`
	Busy int `default:"100" help:"Rooms that are busy when the cost is measured."`
}

// Help is kong's long text of the command.
func (*inboxesCommand) Help() string {
	return `Two relays, one with very many inboxes that hold rows, one with few. The figure is the time from the start of the first
one's process until it is ready; the bar also wants its cost per envelope, under the same load, within 1.3 times that of
the second. Example: relaybench inboxes --many 20000 --runs 1`
}

const (
	inboxMembers = 10 // of a room
	costBar      = 1.3
)

// Run measures.
func (c *inboxesCommand) Run(ctx context.Context, con console) error {
	if c.Few < inboxMembers || c.Many < c.Few || c.Rows < 1 || c.Busy < 1 {
		return usageError{"--few is 10 or more, --many not less, --rows and --busy positive"}
	}
	few, err := c.prepare(ctx, con, c.Few)
	if err != nil {
		return err
	}
	defer few.close()
	many, err := c.prepare(ctx, con, c.Many)
	if err != nil {
		return err
	}
	defer many.close()
	var runs []sample
	for range c.Runs {
		s, err := c.once(ctx, few, many)
		if err != nil {
			return err
		}
		runs = append(runs, s)
	}
	r := summarize("inboxes", "s from start to ready", runs, &bar{value: 10, atMost: true}, many.machine)
	r.OK = r.OK && middle(runs, func(s sample) *float64 { v := s.More["cost_ratio"]; return &v }) <= costBar
	return r.write(con.out, c.JSON)
}

// filled is a relay with inboxes that hold rows.
type filled struct {
	*bench
	rooms [][]member
}

func (c *inboxesCommand) prepare(ctx context.Context, con console, inboxes int) (_ *filled, err error) {
	b, err := newBench(c.settings, con)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if _, err := b.start(ctx); err != nil {
		return nil, err
	}
	f := &filled{bench: b}
	if f.rooms, err = b.rooms(ctx, inboxes/inboxMembers, inboxMembers); err != nil {
		return nil, err
	}
	for place := range 2 { // so that the senders' inboxes hold rows, too
		if _, err := b.fill(ctx, f.rooms, place, c.Rows); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// once measures the same load on both, then restarts the one with many inboxes:
// first as an operator would, then after a kill.
func (c *inboxesCommand) once(ctx context.Context, few, many *filled) (sample, error) {
	more := make(map[string]float64)
	fewCost, err := c.load(ctx, few, "few", more)
	if err != nil {
		return sample{}, err
	}
	manyCost, err := c.load(ctx, many, "many", more)
	if err != nil {
		return sample{}, err
	}
	more["cost_ratio"] = manyCost / fewCost
	more["cpu_ratio"] = more["many_server_cpu_us_per_envelope"] / more["few_server_cpu_us_per_envelope"]
	more["many_resident_mib"] = float64(many.relay.residentKiB()) / 1024
	more["few_resident_mib"] = float64(few.relay.residentKiB()) / 1024

	stopping := time.Now()
	many.relay.stop()
	more["stop_s"] = time.Since(stopping).Seconds()
	took, err := many.start(ctx)
	if err != nil {
		return sample{}, err
	}
	if err := many.relay.kill(); err != nil {
		return sample{}, err
	}
	afterKill, err := many.start(ctx)
	if err != nil {
		return sample{}, err
	}
	more["start_after_kill_s"] = afterKill.Seconds()
	return newSample(took.Seconds(), 0, more), nil
}

// load saturates some rooms and returns microseconds per envelope.
func (c *inboxesCommand) load(ctx context.Context, f *filled, name string, more map[string]float64) (float64, error) {
	busy := make([][]member, 0, c.Busy)
	for _, at := range rand.Perm(len(f.rooms))[:min(c.Busy, len(f.rooms))] {
		busy = append(busy, f.rooms[at])
	}
	load, err := f.newLoad(inboxMembers - 1)
	if err != nil {
		return 0, err
	}
	defer load.loop.close()
	if err := joinRooms(load, busy, 256, f.Size); err != nil {
		return 0, err
	}
	if err := load.awaitResumed(ctx, len(busy)*inboxMembers); err != nil {
		return 0, err
	}
	rate, measured, err := f.measure(ctx, load, 0, 1)
	if err != nil {
		return 0, fmt.Errorf("load on %s inboxes: %w", name, err)
	}
	more[name+"_envelopes_per_s"] = rate
	for _, key := range []string{"server_cpu_us_per_envelope", "deliver_p50_ms", "deliver_p99_ms"} {
		more[name+"_"+key] = measured[key]
	}
	if rate == 0 {
		return 0, fmt.Errorf("no envelope was queued in %s: measure for longer with --time", c.Time)
	}
	return 1e6 / rate, nil
}
