package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type reconnectCommand struct {
	settings
	Clients  int     `default:"2000" help:"Clients that come back at once."`
	Rows     int     `default:"50" help:"Rows each of them missed."`
	Members  int     `default:"10" help:"Clients in one room."`
	LiveRate float64 `default:"500" help:"Envelopes a second of the live traffic meanwhile."`
}

// Help is kong's long text of the command.
func (*reconnectCommand) Help() string {
	return `Clients that missed rows connect, say hello and resume all at once: once while the server runs, once right after a
restart. The figure is the lower of the two rates of rows, from the first connection until the last client has
everything. The bar also wants the p99 of live traffic under a second. Example: relaybench reconnect --clients 2000`
}

// Run measures.
func (c *reconnectCommand) Run(ctx context.Context, con console) error {
	if c.Clients < 1 || c.Clients > maxSockets-1000 || c.Rows < 1 || c.Members < 1 || c.LiveRate <= 0 {
		return usageError{fmt.Sprintf("--clients, --rows, --members and --live-rate are positive, and --clients below %d", maxSockets-1000)}
	}
	b, err := newBench(c.settings, con)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	// One more member in each room sends what the others miss.
	rooms, err := b.rooms(ctx, (c.Clients+c.Members-1)/c.Members, c.Members+1)
	if err != nil {
		return err
	}
	pairs, err := b.rooms(ctx, 16, 2)
	if err != nil {
		return err
	}
	run := &reconnectRun{command: c, bench: b, rooms: rooms, pairs: pairs, clients: newReturning(rooms, c.Clients)}
	var runs []sample
	for range c.Runs {
		s, err := run.once(ctx)
		if err != nil {
			return err
		}
		runs = append(runs, s)
	}
	return c.finish(b, runs)
}

func (c *reconnectCommand) finish(b *bench, runs []sample) error {
	r := summarize("reconnect", "rows/s", runs, &bar{value: 40_000}, b.machine)
	for _, name := range []string{"running_live_p99_ms", "restarted_live_p99_ms"} {
		p99 := middle(runs, func(s sample) *float64 { v := s.More[name]; return &v })
		r.OK = r.OK && p99 < 1000
	}
	return r.write(b.con.out, b.JSON)
}

type reconnectRun struct {
	command *reconnectCommand
	bench   *bench
	rooms   [][]member
	pairs   [][]member
	clients []*returning
}

// once measures both cases.
func (r *reconnectRun) once(ctx context.Context) (sample, error) {
	more := make(map[string]float64)
	lower := 0.0
	for _, name := range []string{"running", "restarted"} {
		if _, err := r.bench.fill(ctx, r.rooms, r.command.Members, r.command.Rows); err != nil {
			return sample{}, err
		}
		if name == "restarted" {
			r.bench.relay.stop()
			took, err := r.bench.start(ctx)
			if err != nil {
				return sample{}, err
			}
			more["restart_s"] = took.Seconds()
		}
		rate, err := r.storm(ctx, name, more)
		if err != nil {
			return sample{}, fmt.Errorf("%s: %w", name, err)
		}
		if lower == 0 || rate < lower {
			lower = rate
		}
	}
	return newSample(lower, 0, more), nil
}

// storm lets all clients come back at once, beside live traffic on a goroutine of
// its own, and returns rows a second.
func (r *reconnectRun) storm(ctx context.Context, name string, more map[string]float64) (float64, error) {
	live, err := r.startLive(ctx)
	if err != nil {
		return 0, err
	}
	defer live.loop.close()
	over := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- live.runUntil(ctx, over) }()

	back, stormErr := r.comeBack(ctx)
	close(over)
	if err := errors.Join(stormErr, <-ended); err != nil {
		return 0, err
	}
	wanted := len(r.clients) * r.command.Rows
	rate := float64(back.rows) / back.took.Seconds()
	more[name+"_rows_per_s"] = rate
	more[name+"_s"] = back.took.Seconds()
	more[name+"_client_p50_ms"], more[name+"_client_p99_ms"] = millis(back.each, 50), millis(back.each, 99)
	more[name+"_live_p50_ms"], more[name+"_live_p99_ms"] = millis(live.deliver, 50), millis(live.deliver, 99)
	more[name+"_live_nacks"] = float64(live.counts.nacks)
	r.bench.say("%s: %d rows in %.2f s, live p99 %.1f ms", name, back.rows, back.took.Seconds(), millis(live.deliver, 99))
	if back.rows != wanted {
		return 0, fmt.Errorf("%d rows were replayed instead of %d", back.rows, wanted)
	}
	return rate, nil
}

// startLive connects the pairs and starts their traffic.
func (r *reconnectRun) startLive(ctx context.Context) (*traffic, error) {
	live, err := r.bench.newLoad(1)
	if err != nil {
		return nil, err
	}
	for _, room := range r.pairs {
		for i, m := range room {
			if err := live.join(m, room[1-i].id, "control", r.bench.Size); err != nil {
				live.loop.close()
				return nil, err
			}
		}
	}
	if err := live.awaitResumed(ctx, 2*len(r.pairs)); err != nil {
		live.loop.close()
		return nil, err
	}
	live.start(r.command.LiveRate)
	return live, nil
}

// runUntil drives the traffic until over is closed, then waits for what is under
// way.
func (t *traffic) runUntil(ctx context.Context, over <-chan struct{}) error {
	err := t.run(ctx, 10*time.Minute, func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	if err != nil {
		return fmt.Errorf("live traffic: %w", err)
	}
	undelivered, err := t.settle(ctx)
	if err == nil && undelivered > 0 {
		err = fmt.Errorf("%d envelopes were not delivered", undelivered)
	}
	if err != nil {
		return fmt.Errorf("live traffic: %w", err)
	}
	return nil
}

// returning is a client that comes back again and again.
type returning struct {
	member
	cursor string
	crowd  *crowd
	rows   int
}

func newReturning(rooms [][]member, count int) []*returning {
	var clients []*returning
	for _, room := range rooms {
		for _, m := range room[:len(room)-1] {
			if len(clients) < count {
				clients = append(clients, &returning{member: m, cursor: "0"})
			}
		}
	}
	return clients
}

// crowd is one return of all clients.
type crowd struct {
	began    time.Time
	rows     int
	complete int
	each     *hdrhistogram.Histogram // from the first connection to a client's resume_complete
	failure  error
	took     time.Duration
}

// comeBack connects all clients at once and returns when the last one is complete.
func (r *reconnectRun) comeBack(ctx context.Context) (*crowd, error) {
	l, err := newLoop(r.bench.relay.listen)
	if err != nil {
		return nil, err
	}
	defer l.close()
	all := &crowd{began: time.Now(), each: newHistogram()}
	for _, client := range r.clients {
		client.crowd, client.rows = all, 0
		if _, err := l.dial(client.token, client); err != nil {
			return nil, err
		}
	}
	err = l.run(ctx, 2*time.Minute, func() bool { return all.failure != nil || all.complete == len(r.clients) })
	all.took = time.Since(all.began)
	if err := errors.Join(all.failure, err); err != nil {
		return nil, fmt.Errorf("%d of %d clients are complete: %w", all.complete, len(r.clients), err)
	}
	return all, nil
}

func (c *returning) ready(on *conn) { on.resume(c.cursor) }

func (c *returning) message(_ *conn, m *message) {
	switch string(m.kind) {
	case "deliver":
		if m.replay {
			c.rows++
			c.crowd.rows++
			c.cursor = string(m.streamID)
		}
	case "resume_complete":
		c.crowd.complete++
		record(c.crowd.each, int64(time.Since(c.crowd.began)))
	case "resync_required", "error":
		c.crowd.failure = fmt.Errorf("a client got %s %s", m.kind, m.reason)
	}
}

func (c *returning) closed(_ *conn, code int, cause error) {
	if c.crowd.failure == nil {
		c.crowd.failure = fmt.Errorf("a client's connection ended with %d: %w", code, cause)
	}
}
