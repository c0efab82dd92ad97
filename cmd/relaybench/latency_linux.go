package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

type latencyCommand struct {
	settings
	target
	Members int           `default:"10" help:"Participants of the room; the others all receive."`
	Rounds  int           `default:"500" help:"Envelopes of one run, one at a time."`
	Pause   time.Duration `default:"4ms" help:"Between an envelope's last delivery and the next one."`
}

// Help is kong's long text of the command.
func (*latencyCommand) Help() string {
	return `One member of a room sends one message at a time. The figure is the median time from sending to each delivery. The
floor is the median of one commit in PostgreSQL and one acknowledgement of JetStream, after one another, on servers set
up as the relay's. Example: relaybench latency --members 2`
}

// Run measures.
func (c *latencyCommand) Run(ctx context.Context, con console) error {
	if c.Members < 2 || c.Rounds < 1 {
		return usageError{"--members is 2 or more, --rounds 1 or more"}
	}
	b, err := openBench(ctx, c.settings, c.target, con)
	if err != nil {
		return err
	}
	defer b.close()
	rooms, err := b.rooms(ctx, 1, c.Members)
	if err != nil {
		return err
	}
	load, err := b.newLoad(c.Members - 1)
	if err != nil {
		return err
	}
	defer load.loop.close()
	if err := joinRooms(load, rooms, 1, c.Size); err != nil {
		return err
	}
	if err := load.awaitResumed(ctx, c.Members); err != nil {
		return err
	}
	return b.repeat("latency", "ms send-to-deliver, p50", &bar{value: 2, ofRatio: true, atMost: true}, func() (sample, error) { return c.once(ctx, b, load) })
}

func (c *latencyCommand) once(ctx context.Context, b *bench, load *traffic) (sample, error) {
	var floor commitFloor
	err := load.meanwhile(ctx, func() error {
		return b.child(ctx, &floor, "floor-commit", "--sync", c.Sync, "--size", strconv.Itoa(c.Size),
			"--rounds", strconv.Itoa(c.Rounds), "--pause", c.Pause.String())
	})
	if err != nil {
		return sample{}, err
	}
	warm := c.Rounds / 5
	for round := range warm + c.Rounds {
		if round == warm {
			load.reset()
		}
		if err := c.round(ctx, load); err != nil {
			return sample{}, err
		}
	}
	more := load.latencies()
	more["floor_commit_ms"], more["floor_ack_ms"] = floor.CommitMillis, floor.AckMillis
	b.say("p50 %.3f ms; floor %.3f ms", more["deliver_p50_ms"], floor.SumMillis)
	return newSample(more["deliver_p50_ms"], floor.SumMillis, more), nil
}

// round sends one envelope and waits for its verdict and all deliveries.
func (c *latencyCommand) round(ctx context.Context, load *traffic) error {
	load.stopped = true // no next one by itself
	verdicts, deliveries := load.counts.verdicts+1, load.counts.deliveries+load.recipients
	load.senders[0].send(load.now())
	err := load.run(ctx, 10*time.Second, func() bool {
		return load.counts.nacks > 0 || load.counts.verdicts >= verdicts && load.counts.deliveries >= deliveries
	})
	if err != nil {
		return fmt.Errorf("wait for one message: %w", err)
	}
	if load.counts.nacks > 0 {
		return fmt.Errorf("the message was refused: %v", load.counts.reasons)
	}
	time.Sleep(c.Pause)
	return nil
}
