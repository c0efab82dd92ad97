package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// newTag tells the envelopes of one run from all others.
func newTag() string { return fmt.Sprintf("%0*x", tagLength, rand.Uint32()) }

type pairwiseCommand struct {
	settings
	target
	Senders int     `default:"256" help:"Participants who send, each with one envelope without a verdict."`
	Rate    float64 `placeholder:"N" help:"Envelopes a second of all senders together, instead of a closed loop."`
	Kind    string  `default:"control" enum:"control,senderkey,key_request" help:"Kind of the envelopes."`
}

// Help is kong's long text of the command.
func (*pairwiseCommand) Help() string {
	return `Pairs of agents send to each other. An envelope counts when it is stored, its verdict has come and it was delivered. The
floor is raw pipelined JetStream publishes with an acknowledgement each. Example: relaybench pairwise --senders 256`
}

// Run measures.
func (c *pairwiseCommand) Run(ctx context.Context, con console) error {
	b, err := openBench(ctx, c.settings, c.target, con)
	if err != nil {
		return err
	}
	defer b.close()
	rooms, err := b.rooms(ctx, (c.Senders+1)/2, 2)
	if err != nil {
		return err
	}
	load, err := b.newLoad(1)
	if err != nil {
		return err
	}
	defer load.loop.close()
	if err := joinPairs(load, rooms, c.Kind, c.Size); err != nil {
		return err
	}
	runs, err := b.throughput(ctx, load, 2*len(rooms), c.Rate, 1)
	if err != nil {
		return err
	}
	return b.finish("pairwise", "envelopes/s", runs, &bar{value: 0.35, ofRatio: true})
}

// joinPairs connects everybody; each sends to the other one of its room.
func joinPairs(load *traffic, rooms [][]member, kind string, size int) error {
	for _, room := range rooms {
		for i, m := range room {
			if err := load.join(m, room[1-i].id, kind, size); err != nil {
				return err
			}
		}
	}
	return nil
}

type roomCommand struct {
	settings
	target
	Senders int     `default:"256" help:"Participants who send, each with one envelope without a verdict."`
	Members int     `default:"10" help:"Participants of a room."`
	Rate    float64 `placeholder:"N" help:"Envelopes a second of all senders together, instead of a closed loop."`
}

// Help is kong's long text of the command.
func (*roomCommand) Help() string {
	return `Members of rooms send to their room. An inbox write counts when its envelope's history and all its inboxes are
acknowledged and it was delivered. The floor is raw pipelined JetStream publishes. Example: relaybench room --members 10`
}

// Run measures.
func (c *roomCommand) Run(ctx context.Context, con console) error {
	if c.Members < 2 {
		return usageError{"--members is 2 or more"}
	}
	b, err := openBench(ctx, c.settings, c.target, con)
	if err != nil {
		return err
	}
	defer b.close()
	rooms, err := b.rooms(ctx, (c.Senders+c.Members-1)/c.Members, c.Members)
	if err != nil {
		return err
	}
	load, err := b.newLoad(c.Members - 1)
	if err != nil {
		return err
	}
	defer load.loop.close()
	if err := joinRooms(load, rooms, c.Senders, c.Size); err != nil {
		return err
	}
	runs, err := b.throughput(ctx, load, len(rooms)*c.Members, c.Rate, c.Members-1)
	if err != nil {
		return err
	}
	return b.finish("room", "inbox writes/s", runs, &bar{value: 0.5, ofRatio: true})
}

// joinRooms connects everybody; the first so many send messages to their rooms, spread
// over all of them.
func joinRooms(load *traffic, rooms [][]member, senders, size int) error {
	return joinRoomsWith(load, rooms, senders, "message", size)
}

func joinRoomsWith(load *traffic, rooms [][]member, senders int, kind string, size int) error {
	for place := range rooms[0] {
		for _, room := range rooms {
			to := ""
			if len(load.senders) < senders {
				to = room[place].room
			}
			if err := load.join(room[place], to, kind, size); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) newLoad(recipients int) (*traffic, error) {
	l, err := newLoop(b.relay.listen)
	if err != nil {
		return nil, err
	}
	return newTraffic(l, newTag(), recipients), nil
}

// fresh connects participants anew, measures, and disconnects them, so that nobody waits
// while something else is measured.
func (b *bench) fresh(ctx context.Context, recipients int, join func(*traffic) error,
	measure func(*traffic) (float64, map[string]float64, error),
) (float64, map[string]float64, error) {
	load, err := b.newLoad(recipients)
	if err != nil {
		return 0, nil, err
	}
	defer load.loop.close()
	if err := join(load); err != nil {
		return 0, nil, err
	}
	if err := load.awaitResumed(ctx, len(load.loop.conns)); err != nil {
		return 0, nil, err
	}
	return measure(load)
}

// roomMessages measures messages to rooms of these members; weight as of throughput.
func (b *bench) roomMessages(ctx context.Context, rooms [][]member, senders, weight int) (float64, map[string]float64, error) {
	return b.fresh(ctx, len(rooms[0])-1,
		func(load *traffic) error { return joinRooms(load, rooms, senders, b.Size) },
		func(load *traffic) (float64, map[string]float64, error) { return b.measure(ctx, load, 0, weight) })
}

// withFloor is a run whose floor is a relay's too: what is known of it is kept.
func withFloor(figure float64, more map[string]float64, floor float64, moreOfFloor map[string]float64) sample {
	for name, value := range moreOfFloor {
		more["floor_"+name] = value
	}
	return newSample(figure, floor, more)
}

// throughput measures floor and load in turn. weight is how many units of the
// figure one envelope is.
func (b *bench) throughput(ctx context.Context, load *traffic, conns int, rate float64, weight int) ([]sample, error) {
	if err := load.awaitResumed(ctx, conns); err != nil {
		return nil, err
	}
	var runs []sample
	for range b.Runs {
		var floor float64
		err := load.meanwhile(ctx, func() (err error) {
			floor, err = b.publishFloor(ctx, 256)
			return err
		})
		if err != nil {
			return nil, err
		}
		figure, more, err := b.measure(ctx, load, rate, weight)
		if err != nil {
			return nil, err
		}
		runs = append(runs, newSample(figure, floor, more))
	}
	return runs, nil
}

// measure warms up, measures for b.Time and waits for what is under way.
func (b *bench) measure(ctx context.Context, load *traffic, rate float64, weight int) (float64, map[string]float64, error) {
	return b.measureWhile(ctx, load, rate, weight,
		func() error { return load.drive(ctx, b.Time/4) },
		func() error { return load.drive(ctx, b.Time) })
}

// measureWhile counts what happens while work runs, once warmUp has.
func (b *bench) measureWhile(ctx context.Context, load *traffic, rate float64, weight int, warmUp, work func() error,
) (float64, map[string]float64, error) {
	if err := load.drive(ctx, 50*time.Millisecond); err != nil {
		return 0, nil, err
	}
	load.reset()
	groups := b.groups(ctx)
	load.start(rate)
	if err := warmUp(); err != nil {
		return 0, nil, err
	}
	warm := load.counts
	load.ack, load.deliver = newHistogram(), newHistogram()
	profiled := b.profile(ctx)
	before := b.usage()
	if err := work(); err != nil {
		return 0, nil, err
	}
	after, counted := b.usage(), load.counts
	if b.Profile != "" { // the load goes on until the profiles are complete
		if err := load.meanwhile(ctx, profiled); err != nil {
			return 0, nil, err
		}
	}
	more := load.latencies()
	undelivered, err := load.settle(ctx)
	if err != nil {
		return 0, nil, err
	}
	verdicts, deliveries := counted.verdicts-warm.verdicts, counted.deliveries-warm.deliveries
	envelopes := min(float64(verdicts), float64(deliveries)/float64(load.recipients))
	after.since(before, verdicts, "envelope", more)
	more["rows_per_inbox_group"] = b.groups(ctx).rowsSince(groups)
	more["nacks"], more["undelivered"] = float64(load.counts.nacks), float64(undelivered)
	if rate > 0 {
		more["late"] = float64(counted.late - warm.late)
	}
	figure := envelopes * float64(weight) / after.at.Sub(before.at).Seconds()
	more["envelopes_per_s"] = figure / float64(weight)
	b.say("%.0f/s, %.1f µs of server and %.1f µs of generator CPU an envelope, nacks %v", figure,
		more["server_cpu_us_per_envelope"], more["generator_cpu_us_per_envelope"], load.counts.reasons)
	return figure, more, nil
}

// groups is what the relay has written to inboxes so far, with one acknowledgement for
// each group.
type groups struct{ rows, count float64 }

func (b *bench) groups(ctx context.Context) groups {
	return groups{b.relay.metric(ctx, "relay_inbox_group_rows_sum"), b.relay.metric(ctx, "relay_inbox_group_rows_count")}
}

// rowsSince is the mean size of the groups since before, 0 when there were none.
func (g groups) rowsSince(before groups) float64 {
	if g.count <= before.count {
		return 0
	}
	return (g.rows - before.rows) / (g.count - before.count)
}

func (t *traffic) latencies() map[string]float64 {
	return map[string]float64{
		"ack_p50_ms": millis(t.ack, 50), "ack_p99_ms": millis(t.ack, 99),
		"deliver_p50_ms": millis(t.deliver, 50), "deliver_p99_ms": millis(t.deliver, 99),
	}
}
