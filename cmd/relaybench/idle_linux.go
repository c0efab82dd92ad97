package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type idleCommand struct {
	settings
	From    int           `default:"2000" help:"Connections at the first reading."`
	To      int           `default:"12000" help:"Connections at the second reading."`
	Members int           `default:"10" help:"Participants of a room; each has one connection."`
	Settle  time.Duration `default:"20s" help:"How long nothing happens before a reading."`
}

// Help is kong's long text of the command.
func (*idleCommand) Help() string {
	return `The slope of the server's resident memory between two numbers of authenticated, resumed connections, each of its own
participant. The floor is the same for bare WebSocket connections on epoll, hijacked from net/http. Example: relaybench idle --runs 1`
}

// Run measures.
func (c *idleCommand) Run(ctx context.Context, con console) error {
	switch {
	case c.From < 1 || c.To <= c.From || c.Members < 1:
		return usageError{"--from is less than --to, and --members is positive"}
	case c.To > maxSockets:
		return usageError{fmt.Sprintf("--to is at most %d: the connections of one process", maxSockets)}
	}
	var runs []sample
	var last *bench
	for range c.Runs {
		b, s, err := c.once(ctx, con)
		if err != nil {
			return err
		}
		runs, last = append(runs, s), b
	}
	return last.finish("idle", "KiB per connection", runs, &bar{value: 4, atMost: true})
}

// once measures the floor, then a relay that was started for this run: memory that
// an earlier run left behind would hide some of the slope.
func (c *idleCommand) once(ctx context.Context, con console) (*bench, sample, error) {
	b, err := newBench(c.settings, con)
	if err != nil {
		return nil, sample{}, err
	}
	defer b.close()
	floor, err := c.floor(ctx)
	if err != nil {
		return nil, sample{}, fmt.Errorf("measure the floor: %w", err)
	}
	b.say("floor: %.2f KiB per connection", floor)
	if _, err := b.start(ctx); err != nil {
		return nil, sample{}, err
	}
	rooms, err := b.rooms(ctx, (c.To+c.Members-1)/c.Members, c.Members)
	if err != nil {
		return nil, sample{}, err
	}
	var tokens []string
	for _, room := range rooms {
		for _, m := range room {
			tokens = append(tokens, m.token)
		}
	}
	l, err := newLoop(b.relay.listen)
	if err != nil {
		return nil, sample{}, err
	}
	defer l.close()
	idle := &idleConns{loop: l}
	var first, second idleReading
	for _, step := range []struct {
		count int
		into  *idleReading
	}{{c.From, &first}, {c.To, &second}} {
		if err := idle.openUpTo(ctx, tokens[:step.count]); err != nil {
			return nil, sample{}, err
		}
		if *step.into, err = c.read(ctx, b, idle); err != nil {
			return nil, sample{}, err
		}
		b.say("%d connections: %.0f KiB, %.0f goroutines", step.count, step.into.resident, step.into.goroutines)
	}
	return b, c.sample(floor, first, second), nil
}

// idleReading is the server at one number of connections.
type idleReading struct {
	resident, anonymous, heap, goroutines float64
}

func (c *idleCommand) read(ctx context.Context, b *bench, idle *idleConns) (idleReading, error) {
	if err := idle.wait(ctx, c.Settle); err != nil {
		return idleReading{}, err
	}
	status := fmt.Sprintf("/proc/%d/status", b.relay.pid)
	return idleReading{
		resident:   float64(procKiB(status, "VmRSS")),
		anonymous:  float64(procKiB(status, "RssAnon")),
		heap:       b.relay.metric(ctx, "go_memstats_heap_inuse_bytes") / 1024,
		goroutines: b.relay.goroutines(ctx),
	}, nil
}

func (c *idleCommand) sample(floor float64, first, second idleReading) sample {
	conns := float64(c.To - c.From)
	return newSample((second.resident-first.resident)/conns, floor, map[string]float64{
		"anonymous_kib":        (second.anonymous - first.anonymous) / conns,
		"heap_in_use_kib":      (second.heap - first.heap) / conns,
		"goroutines_at_first":  first.goroutines,
		"goroutines_at_second": second.goroutines,
		"resident_mib":         second.resident / 1024,
	})
}

// floor starts the bare server and takes the same two readings of it.
func (c *idleCommand) floor(ctx context.Context) (float64, error) {
	server, err := startServing(ctx, "floor-idle")
	if err != nil {
		return 0, err
	}
	defer server.stop()
	l, err := newLoop(server.address)
	if err != nil {
		return 0, err
	}
	defer l.close()
	idle := &idleConns{loop: l}
	var resident [2]float64
	for i, count := range []int{c.From, c.To} {
		if err := idle.openUpTo(ctx, make([]string, count)); err != nil {
			return 0, err
		}
		if err := idle.wait(ctx, c.Settle/2); err != nil {
			return 0, err
		}
		resident[i] = float64(procKiB(fmt.Sprintf("/proc/%d/status", server.pid), "VmRSS"))
	}
	return (resident[1] - resident[0]) / float64(c.To-c.From), nil
}

// idleConns are connections that do nothing but answer pings.
type idleConns struct {
	loop    *loop
	opened  int // dialled so far
	open    int
	failure error
}

// dialWindow is how many connections are being opened at once.
const dialWindow = 256

// openUpTo opens the connections that are not open yet; an empty token makes a
// bare one.
func (i *idleConns) openUpTo(ctx context.Context, tokens []string) error {
	for i.open < len(tokens) {
		for i.opened < len(tokens) && i.opened-i.open < dialWindow {
			if _, err := i.loop.dial(tokens[i.opened], i); err != nil {
				return err
			}
			i.opened++
		}
		if err := i.loop.poll(20 * time.Millisecond); err != nil {
			return err
		}
		if i.failure != nil || ctx.Err() != nil {
			return errors.Join(i.failure, ctx.Err())
		}
	}
	return nil
}

// wait lets time pass.
func (i *idleConns) wait(ctx context.Context, d time.Duration) error {
	err := i.loop.run(ctx, d, func() bool { return i.failure != nil })
	if i.failure != nil {
		return i.failure
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

func (i *idleConns) ready(c *conn) {
	if c.bare {
		i.open++
		return
	}
	c.resume("$")
}

func (i *idleConns) message(_ *conn, m *message) {
	if string(m.kind) == "resume_complete" {
		i.open++
	}
}

func (i *idleConns) closed(_ *conn, code int, cause error) {
	if i.failure == nil {
		i.failure = fmt.Errorf("connection %d ended with %d: %w", i.opened, code, cause)
	}
}
