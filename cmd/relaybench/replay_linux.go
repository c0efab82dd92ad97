package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/peerrelay/peerrelay/inbox"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type replayCommand struct {
	settings
	Shards      []int `default:"8,16,32,64" help:"Numbers of shards to measure, each with a relay of its own."`
	Inboxes     int   `default:"20000" help:"Inboxes."`
	Rows        int   `default:"100" help:"Rows of each inbox, 6 to 500."`
	Readers     int   `default:"16" help:"Replays under way at once."`
	RecentBytes int   `default:"-1" help:"The relay's --recent-bytes; -1 reads everything from the streams."`
	Quick       bool  `help:"A tenth of the inboxes, a fifth of the rows."`
}

// Members of one room in this measurement; one more sends.
const replayMembers = 10

// Help is kong's long text of the command.
func (*replayCommand) Help() string {
	return `For each number of shards: envelopes a second in rooms of 10, then whole-inbox replays and replays of the newest 5 rows.
The figure is whole-inbox replays a second with the relay's default number of shards, or the last in the list.
Example: relaybench replay --quick --shards 16,32`
}

// Run measures.
func (c *replayCommand) Run(ctx context.Context, con console) error {
	if c.Quick {
		c.Inboxes, c.Rows = c.Inboxes/10, max(c.Rows/5, 6)
	}
	if c.Inboxes < replayMembers || c.Rows < 6 || c.Rows > 500 || c.Readers < 1 || len(c.Shards) == 0 {
		return usageError{"--inboxes is 10 or more, --rows 6 to 500, --readers positive"}
	}
	var runs []sample
	var machine machine
	for _, shards := range c.Shards {
		s, on, err := c.once(ctx, con, shards)
		if err != nil {
			return fmt.Errorf("%d shards: %w", shards, err)
		}
		runs, machine = append(runs, s), on
	}
	chosen := runs[len(runs)-1]
	if at := slices.Index(c.Shards, inbox.DefaultShards); at >= 0 {
		chosen = runs[at]
	}
	machine.Shards = fmt.Sprint(c.Shards)
	r := summarize("replay", "whole-inbox replays/s", runs, nil, machine)
	r.Figure = chosen.Figure
	if c.JSON {
		return r.write(con.out, true)
	}
	return printShards(con.out, r)
}

// printShards writes one line per number of shards: a spread over them says
// nothing.
func printShards(out io.Writer, r result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := r.extras()
	fmt.Fprintf(table, "shards\t%s\t", r.Unit)
	for _, name := range columns {
		if name != "shards" {
			fmt.Fprintf(table, "%s\t", name)
		}
	}
	for _, run := range r.Runs {
		fmt.Fprintf(table, "\n%.0f\t%s\t", run.More["shards"], number(run.Figure))
		for _, name := range columns {
			if name != "shards" {
				fmt.Fprintf(table, "%s\t", number(run.More[name]))
			}
		}
	}
	fmt.Fprintf(table, "\n%s\n", r.Machine)
	return table.Flush()
}

func (c *replayCommand) once(ctx context.Context, con console, shards int) (sample, machine, error) {
	b, err := newBench(c.settings, con, fmt.Sprintf("--inbox-shards=%d", shards), fmt.Sprintf("--recent-bytes=%d", c.RecentBytes))
	if err != nil {
		return sample{}, machine{}, err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return sample{}, machine{}, err
	}
	rooms, err := b.rooms(ctx, c.Inboxes/replayMembers, replayMembers+1)
	if err != nil {
		return sample{}, machine{}, err
	}
	took, err := b.fill(ctx, rooms, replayMembers, c.Rows)
	if err != nil {
		return sample{}, machine{}, err
	}
	more := map[string]float64{
		"shards":              float64(shards),
		"fill_writes_per_s":   float64(len(rooms)*c.Rows*replayMembers) / took.Seconds(),
		"fill_messages_per_s": float64(len(rooms)*c.Rows) / took.Seconds(),
		"resident_mib":        float64(b.relay.residentKiB()) / 1024,
	}
	figure, err := c.replays(ctx, b, rooms, more)
	if err != nil {
		return sample{}, machine{}, err
	}
	if err := c.envelopes(ctx, b, rooms, more); err != nil {
		return sample{}, machine{}, err
	}
	b.say("%d shards: %v", shards, more)
	return newSample(figure, 0, more), b.machine, nil
}

// envelopes measures a saturated load in some of the filled rooms.
func (c *replayCommand) envelopes(ctx context.Context, b *bench, rooms [][]member, more map[string]float64) error {
	busy := rooms[:min(len(rooms), 256)]
	load, err := b.newLoad(replayMembers)
	if err != nil {
		return err
	}
	defer load.loop.close()
	if err := joinRooms(load, busy, min(256, len(busy)*(replayMembers+1)), c.Size); err != nil {
		return err
	}
	if err := load.awaitResumed(ctx, len(busy)*(replayMembers+1)); err != nil {
		return err
	}
	writes, _, err := b.measure(ctx, load, 0, replayMembers)
	more["writes_per_s"] = writes
	more["envelopes_per_s"] = writes / replayMembers
	return err
}

// maxReaders is how many inboxes are read; each needs a connection.
const maxReaders = 8000

// replays measures both kinds and returns whole replays a second.
func (c *replayCommand) replays(ctx context.Context, b *bench, rooms [][]member, more map[string]float64) (float64, error) {
	l, err := newLoop(b.relay.listen)
	if err != nil {
		return 0, err
	}
	defer l.close()
	r := &replaying{loop: l, rows: c.Rows}
	for _, at := range rand.Perm(len(rooms) * replayMembers)[:min(maxReaders, len(rooms)*replayMembers)] {
		r.tokens = append(r.tokens, rooms[at/replayMembers][at%replayMembers].token)
	}
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	whole, err := r.measure(ctx, c.Time, c.Readers, func(*reader) string { return "0" })
	if err != nil {
		return 0, fmt.Errorf("whole inboxes: %w", err)
	}
	more["whole_p50_ms"], more["whole_p99_ms"] = millis(r.each, 50), millis(r.each, 99)
	more["whole_rows_per_s"] = whole * float64(c.Rows)
	r.readers = slices.DeleteFunc(r.readers, func(reader *reader) bool { return reader.nearEnd == "" })
	newest, err := r.measure(ctx, c.Time, c.Readers, func(reader *reader) string { return reader.nearEnd })
	if err != nil {
		return 0, fmt.Errorf("newest rows: %w", err)
	}
	more["newest_5_replays_per_s"] = newest
	more["newest_5_p50_ms"], more["newest_5_p99_ms"] = millis(r.each, 50), millis(r.each, 99)
	return whole, nil
}

// replaying asks for replays on connections that are open already.
type replaying struct {
	loop     *loop
	rows     int // of a whole inbox
	tokens   []string
	readers  []*reader
	ready    int
	underway int
	done     int
	wanted   int // rows of one replay
	each     *hdrhistogram.Histogram
	failure  error
	next     func() // starts another replay
}

// reader is one inbox.
type reader struct {
	all     *replaying
	conn    *conn
	began   time.Time
	busy    bool
	rows    int
	nearEnd string // the row that has five after it
}

const newestRows = 5

// open connects all readers and lets them join the live feed.
func (r *replaying) open(ctx context.Context) error {
	for r.ready < len(r.tokens) {
		for len(r.readers) < len(r.tokens) && len(r.readers)-r.ready < dialWindow {
			reader := &reader{all: r}
			conn, err := r.loop.dial(r.tokens[len(r.readers)], reader)
			if err != nil {
				return err
			}
			reader.conn = conn
			r.readers = append(r.readers, reader)
		}
		if err := r.loop.poll(20 * time.Millisecond); err != nil {
			return err
		}
		if r.failure != nil || ctx.Err() != nil {
			return errors.Join(r.failure, ctx.Err())
		}
	}
	return nil
}

// measure keeps so many replays under way for d and returns how many completed in
// a second.
func (r *replaying) measure(ctx context.Context, d time.Duration, at int, cursor func(*reader) string) (float64, error) {
	if len(r.readers) < 2*at {
		return 0, fmt.Errorf("%d inboxes are too few for %d readers", len(r.readers), at)
	}
	r.each, r.done = newHistogram(), 0
	r.next = func() {
		reader := r.readers[rand.IntN(len(r.readers))]
		for reader.busy {
			reader = r.readers[rand.IntN(len(r.readers))]
		}
		position := cursor(reader)
		r.wanted = r.rows
		if position != "0" {
			r.wanted = newestRows
		}
		reader.busy, reader.rows, reader.began = true, 0, time.Now()
		r.underway++
		reader.conn.resume(position)
	}
	began := time.Now()
	for range at {
		r.next()
	}
	err := r.loop.run(ctx, d, func() bool { return r.failure != nil })
	rate := float64(r.done) / time.Since(began).Seconds()
	if r.failure != nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return 0, errors.Join(r.failure, ctx.Err())
	}
	r.next = func() {}
	if err := r.loop.run(ctx, time.Minute, func() bool { return r.failure != nil || r.underway == 0 }); err != nil {
		return 0, fmt.Errorf("wait for the last replays: %w", err)
	}
	return rate, r.failure
}

func (d *reader) ready(c *conn) { c.resume("$") }

func (d *reader) message(_ *conn, m *message) {
	r := d.all
	switch string(m.kind) {
	case "deliver":
		if !m.replay {
			return
		}
		d.rows++
		if r.wanted == r.rows && d.rows == r.rows-newestRows {
			d.nearEnd = string(m.streamID)
		}
	case "resume_complete":
		if !d.busy {
			r.ready++
			return
		}
		d.busy = false
		r.underway--
		r.done++
		record(r.each, int64(time.Since(d.began)))
		if d.rows != r.wanted {
			r.failure = fmt.Errorf("a replay brought %d rows instead of %d", d.rows, r.wanted)
			return
		}
		r.next()
	case "resync_required", "error":
		r.failure = fmt.Errorf("a replay got %s %s", m.kind, m.reason)
	}
}

func (d *reader) closed(_ *conn, code int, cause error) {
	if d.all.failure == nil {
		d.all.failure = fmt.Errorf("a reader's connection ended with %d: %w", code, cause)
	}
}
