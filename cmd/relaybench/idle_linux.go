package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

type idleCommand struct {
	settings
	From     int           `default:"2000" help:"Connections at the first reading."`
	To       int           `default:"12000" help:"Connections at the last reading."`
	Readings int           `default:"11" help:"How many readings, at numbers of connections that are as far apart."`
	Members  int           `default:"10" help:"Participants of a room; each has one connection."`
	Settle   time.Duration `default:"5s" help:"How long nothing happens before a reading."`
	Quiet    time.Duration `default:"40s" help:"How long the heap may not have become smaller before the first one: what making rooms left behind is dropped by timers."`
}

// Help is kong's long text of the command.
func (*idleCommand) Help() string {
	return `What each authenticated, resumed connection of its own participant adds to the server's anonymous resident memory: the slope
of a line through several readings, each after the server has collected its garbage. A run whose readings are on no line,
or where the kernel and the Go runtime disagree, is invalid, and says why.
The floor is the same for bare WebSocket connections on epoll, hijacked from net/http. Example: relaybench idle --runs 1`
}

// Run measures.
func (c *idleCommand) Run(ctx context.Context, con console) error {
	switch {
	case c.From < 1 || c.To <= c.From || c.Members < 1:
		return usageError{"--from is less than --to, and --members is positive"}
	case c.Readings < 3 || c.Readings > c.To-c.From:
		return usageError{"--readings is 3 or more: two points are always on a line"}
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

// once measures the floor, then a relay that was started for this run.
func (c *idleCommand) once(ctx context.Context, con console) (*bench, sample, error) {
	b, err := newBench(c.settings, con)
	if err != nil {
		return nil, sample{}, err
	}
	defer b.close()
	floor, err := c.floor(ctx, b)
	if err != nil {
		return nil, sample{}, fmt.Errorf("measure the floor: %w", err)
	}
	b.say("floor: %.2f KiB per connection", floor.held.slope)
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
	found, err := c.measure(ctx, b, tokens, b.relay.listen, b.relay.metrics, b.relay.pid)
	if err != nil {
		return nil, sample{}, err
	}
	s := newSample(found.held.slope, floor.held.slope, found.more())
	s.Invalid = found.invalid()
	if why := floor.invalid(); why != "" && s.Invalid == "" {
		s.Invalid = "the floor: " + why
	}
	return b, s, nil
}

// floor is the same of the bare server.
func (c *idleCommand) floor(ctx context.Context, b *bench) (idleLines, error) {
	server, err := startServing(ctx, "floor-idle")
	if err != nil {
		return idleLines{}, err
	}
	defer server.stop()
	return c.measure(ctx, b, make([]string, c.To), server.address, server.profiles, server.pid)
}

// measure opens connections to a server, an empty token makes a bare one, and reads its memory
// on the way.
func (c *idleCommand) measure(ctx context.Context, b *bench, tokens []string, listen, metrics string, pid int) (idleLines, error) {
	l, err := newLoop(listen)
	if err != nil {
		return idleLines{}, err
	}
	defer l.close()
	idle := &idleConns{loop: l}
	var counts []float64
	var readings []memory
	for n := range c.Readings {
		count := c.From + n*(c.To-c.From)/(c.Readings-1)
		if err := idle.openUpTo(ctx, tokens[:count]); err != nil {
			return idleLines{}, err
		}
		if err := idle.wait(ctx, c.Settle); err != nil {
			return idleLines{}, err
		}
		read := func() (m memory, err error) {
			err = idle.meanwhile(ctx, func() (err error) {
				m, err = readMemory(ctx, b.relay.client, metrics, pid)
				return err
			})
			return m, err
		}
		if n == 0 {
			if err := c.warm(ctx, idle, read); err != nil {
				return idleLines{}, err
			}
		}
		m, err := read()
		if err != nil {
			return idleLines{}, err
		}
		b.say("%d connections: anonymous %.0f KiB, resident %.0f; heap in use %.0f, free %.0f, stacks %.0f, runtime %.0f; %.0f goroutines",
			count, m.anonymous, m.resident, m.heap, m.free, m.stacks, m.runtime, m.goroutines)
		counts, readings = append(counts, float64(count)), append(readings, m)
	}
	return newIdleLines(counts, readings), nil
}

// maxWarm bounds how long the heap may go on becoming smaller.
const maxWarm = 5 * time.Minute

// warm waits until what is not of the connections has been let go of: JetStream, for one, keeps the
// blocks that it has just written to for half a minute, 8 MiB each.
func (c *idleCommand) warm(ctx context.Context, idle *idleConns, read func() (memory, error)) error {
	const less = 512 // KiB
	began := time.Now()
	lowest, since := math.MaxFloat64, began
	for time.Since(since) < c.Quiet {
		if time.Since(began) > maxWarm {
			return fmt.Errorf("the server's heap is still becoming smaller after %s", maxWarm)
		}
		m, err := read()
		if err != nil {
			return err
		}
		if m.heap < lowest-less {
			lowest, since = m.heap, time.Now()
		}
		if err := idle.wait(ctx, min(5*time.Second, c.Quiet/4)); err != nil {
			return err
		}
	}
	return nil
}

// idleLines are how each kind of memory grows, in KiB per connection.
type idleLines struct {
	held, used, resident, shared, heap, stacks, kernel line
	first, last                                        memory
}

func newIdleLines(counts []float64, readings []memory) idleLines {
	of := func(value func(m *memory) float64) line {
		values := make([]float64, len(readings))
		for i := range readings {
			values[i] = value(&readings[i])
		}
		return fit(counts, values)
	}
	return idleLines{
		held: of(func(m *memory) float64 { return m.anonymous }), used: of((*memory).used),
		resident: of(func(m *memory) float64 { return m.resident }), shared: of(func(m *memory) float64 { return m.shared }),
		heap: of(func(m *memory) float64 { return m.heap }), stacks: of(func(m *memory) float64 { return m.stacks }),
		kernel: of(func(m *memory) float64 { return m.kernel }),
		first:  readings[0], last: readings[len(readings)-1],
	}
}

// Bounds of a valid run. The kernel counts whole pages and the runtime what is in them, so both
// never agree quite.
const (
	maxDeviation    = 0.2 // of the slope
	maxDisagreement = 0.3 // of the larger one
)

// invalid says why the readings show nothing; empty: they do.
func (l *idleLines) invalid() string {
	held, used := l.held.slope, l.used.slope
	switch {
	case held <= 0 || used <= 0:
		return fmt.Sprintf("memory did not grow with connections: resident %.2f, in use %.2f KiB per connection", held, used)
	case l.held.deviation > maxDeviation*held:
		return fmt.Sprintf("the readings are on no line: %.2f KiB per connection, give or take %.2f", held, l.held.deviation)
	case math.Abs(held-used) > maxDisagreement*max(held, used):
		return fmt.Sprintf("the kernel says %.2f KiB per connection, the Go runtime %.2f", held, used)
	default:
		return ""
	}
}

func (l *idleLines) more() map[string]float64 {
	return map[string]float64{
		"deviation_kib":          l.held.deviation,
		"used_kib":               l.used.slope, // by the runtime's own account
		"heap_in_use_kib":        l.heap.slope,
		"stacks_kib":             l.stacks.slope,
		"resident_kib":           l.resident.slope, // with what is kept for later
		"proportional_kib":       l.shared.slope,
		"kernel_both_ends_kib":   l.kernel.slope,
		"goroutines_at_first":    l.first.goroutines,
		"goroutines_at_last":     l.last.goroutines,
		"resident_at_first_mib":  l.first.resident / 1024,
		"resident_at_last_mib":   l.last.resident / 1024,
		"free_heap_at_first_mib": l.first.free / 1024,
		"free_heap_at_last_mib":  l.last.free / 1024,
	}
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

// meanwhile keeps the connections alive while work runs.
func (i *idleConns) meanwhile(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			return errors.Join(err, i.failure)
		default:
		}
		if err := i.wait(ctx, 20*time.Millisecond); err != nil {
			return errors.Join(err, <-done)
		}
	}
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
