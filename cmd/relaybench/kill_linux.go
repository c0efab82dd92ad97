package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

type killCommand struct {
	settings
	Rounds  int           `default:"20" help:"How often the server is killed."`
	Seed    uint64        `default:"1" help:"Decides when it is killed in each round."`
	Rooms   int           `default:"128" help:"Rooms of four; two members send to the room, two to each other."`
	Longest time.Duration `default:"1500ms" help:"Longest time under load before a kill; the shortest is a tenth."`
}

// killMembers is the size of a room here.
const killMembers = 4

// Help is kong's long text of the command.
func (*killCommand) Help() string {
	return `Under full load the server is killed with SIGKILL and started again; then every inbox is replayed and compared with every
receipt ever given: row present, bytes unchanged, stream id the same and never used twice. The figure is the number of
rows for which that is not so. Example: relaybench kill --rounds 20 --seed 7`
}

// Run measures.
func (c *killCommand) Run(ctx context.Context, con console) error {
	if c.Rounds < 1 || c.Rooms < 1 || c.Longest < 10*time.Millisecond {
		return usageError{"--rounds and --rooms are positive, --longest is 10ms or more"}
	}
	b, err := newBench(c.settings, con)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	rooms, err := b.rooms(ctx, c.Rooms, killMembers)
	if err != nil {
		return err
	}
	k := &killing{command: c, bench: b, rooms: rooms, random: rand.New(rand.NewPCG(c.Seed, 0)), sent: make(map[string][]*template)}
	k.account = newAccount(k.bytes)
	var runs []sample
	for round := range c.Rounds {
		s, err := k.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d of seed %d: %w", round+1, c.Seed, err)
		}
		runs = append(runs, s)
	}
	return k.finish(runs)
}

func (k *killing) finish(runs []sample) error {
	counts := k.account.counts
	r := summarize("kill", "queued rows missing, changed or with a reused id", runs, &bar{value: 0, atMost: true}, k.bench.machine)
	r.Figure = float64(counts.missing + counts.changed + counts.reused)
	r.OK = r.Figure == 0
	k.bench.con.notef("%d rounds (seed %d): %d rows queued, %d checks of rows as promised, %d missing, %d changed, %d ids reused, %d rows without a receipt",
		len(runs), k.command.Seed, counts.queued, counts.verified, counts.missing, counts.changed, counts.reused, counts.unasked)
	return r.write(k.bench.con.out, k.bench.JSON)
}

// killing is one run of all rounds.
type killing struct {
	command *killCommand
	bench   *bench
	rooms   [][]member
	random  *rand.Rand
	account *account
	sent    map[string][]*template // by tag: what each sender of a round sends
}

// bytes returns what was sent under an id, nil for an id nobody sent.
func (k *killing) bytes(id string) []byte {
	if len(id) != idLength {
		return nil
	}
	templates := k.sent[id[:tagLength]]
	sender, seq, ok := parseID([]byte(id), id[:tagLength])
	if !ok || sender >= len(templates) {
		return nil
	}
	return templates[sender].at(seq)
}

// round loads, kills, restarts and compares.
func (k *killing) round(ctx context.Context) (sample, error) {
	before := k.account.counts
	shortest := k.command.Longest / 10
	after := shortest + time.Duration(k.random.Int64N(int64(k.command.Longest-shortest)))
	unanswered, err := k.load(ctx, after)
	if err != nil {
		return sample{}, err
	}
	took, err := k.bench.start(ctx)
	if err != nil {
		return sample{}, err
	}
	if err := k.replay(ctx); err != nil {
		return sample{}, fmt.Errorf("replay after the restart: %w", err)
	}
	now := k.account.counts
	wrong := now.missing + now.changed + now.reused - before.missing - before.changed - before.reused
	k.bench.say("killed after %s: %d rows queued, %d unanswered envelopes, ready again in %s, %d rows wrong",
		after.Round(time.Millisecond), now.queued-before.queued, unanswered, took.Round(time.Millisecond), wrong)
	return newSample(float64(wrong), 0, map[string]float64{
		"killed_after_s": after.Seconds(), "restart_s": took.Seconds(), "unanswered": float64(unanswered),
		"queued": float64(now.queued - before.queued), "verified": float64(now.verified - before.verified),
		"without_receipt": float64(now.unasked - before.unasked),
	}), nil
}

// load sends under full load for d, then kills the server. What the sockets still
// hold is read: those receipts were given.
func (k *killing) load(ctx context.Context, d time.Duration) (unanswered int, err error) {
	load, err := k.bench.newLoad(0)
	if err != nil {
		return 0, err
	}
	defer load.loop.close()
	if err := k.join(load); err != nil {
		return 0, err
	}
	if err := load.awaitResumed(ctx, len(k.rooms)*killMembers); err != nil {
		return 0, err
	}
	for _, s := range load.senders {
		k.sent[load.tag] = append(k.sent[load.tag], s.template.clone())
	}
	load.start(0)
	if err := load.drive(ctx, d); err != nil {
		return 0, err
	}
	load.stopped = true
	if err := k.bench.relay.kill(); err != nil {
		return 0, err
	}
	err = load.loop.run(ctx, 10*time.Second, func() bool { return len(load.loop.conns) == 0 })
	if err != nil {
		return 0, fmt.Errorf("connections outlive the server: %w", err)
	}
	if load.counts.nacks > 0 {
		return 0, fmt.Errorf("%d envelopes were refused: %v", load.counts.nacks, load.counts.reasons)
	}
	return load.inFlight, nil
}

// join connects everybody: the first two members of a room send to the room, the
// others to each other.
func (k *killing) join(load *traffic) error {
	for _, room := range k.rooms {
		for place, m := range room {
			to, kind, recipients := m.room, "message", len(room)-1
			if place >= 2 {
				to, kind, recipients = room[5-place].id, "control", 1
			}
			if err := load.join(m, to, kind, k.bench.Size); err != nil {
				return err
			}
			s := load.senders[len(load.senders)-1]
			s.recipients = recipients
			s.onQueued = func(_ uint64, got *message) {
				k.account.promise(m.room, string(got.to), string(got.streamID), string(got.id))
			}
			s.party.row = func(got *message) {
				k.account.claim(m.room, m.id, string(got.streamID), string(envelopeID(got.envelope)))
			}
		}
	}
	return nil
}

// replay asks every inbox for all it has.
func (k *killing) replay(ctx context.Context) error {
	l, err := newLoop(k.bench.relay.listen)
	if err != nil {
		return err
	}
	defer l.close()
	all := &auditing{account: k.account}
	for _, room := range k.rooms {
		for _, m := range room {
			if _, err := l.dial(m.token, &auditor{all: all, member: m}); err != nil {
				return err
			}
		}
	}
	want := len(k.rooms) * killMembers
	err = l.run(ctx, 2*time.Minute, func() bool { return all.failure != nil || all.complete == want })
	if err := errors.Join(all.failure, err); err != nil {
		return fmt.Errorf("%d of %d inboxes are complete: %w", all.complete, want, err)
	}
	return nil
}

type auditing struct {
	account  *account
	complete int
	failure  error
}

// auditor collects one inbox.
type auditor struct {
	all *auditing
	member
	rows   []replayedRow
	events int // room events, of which no account is kept
}

func (a *auditor) ready(c *conn) { c.resume("0") }

func (a *auditor) message(c *conn, m *message) {
	switch string(m.kind) {
	case "deliver":
		if m.replay {
			a.rows = append(a.rows, replayedRow{string(m.streamID), bytes.Clone(m.envelope)})
		}
	case "room.event":
		if m.replay {
			a.events++
		}
	case "resume_complete":
		if came := len(a.rows) + a.events; m.replayed != came {
			a.all.failure = fmt.Errorf("resume_complete says %d rows and %d came", m.replayed, came)
		}
		a.all.account.check(a.room, a.id, a.rows)
		a.all.complete++
		a.rows = nil
		c.abort()
	case "resync_required", "error":
		a.all.failure = fmt.Errorf("a replay got %s %s", m.kind, m.reason)
	}
}

func (a *auditor) closed(_ *conn, code int, cause error) {
	if a.all.failure == nil {
		a.all.failure = fmt.Errorf("a connection ended with %d: %w", code, cause)
	}
}
