package main

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one measurement under way: the relay, the way to its operator socket,
// and where to report.
type bench struct {
	settings
	con      console
	relay    *relay   // what participants connect to
	behind   []*relay // other nodes that serve them
	broker   *serving // their NATS server; nil: embedded
	operator *operator
	machine  machine
	profiles int // taken so far
}

// relays are all nodes.
func (b *bench) relays() []*relay { return append([]*relay{b.relay}, b.behind...) }

// limits are raised so far that only the machine limits the load.
var limits = []string{
	"--envelopes-per-second=1000000",
	"--participant-conns=64",
	"--tenant-conns=1000000",
	"--address-conns=100000",
	"--log-level=warn",
}

// newBench prepares a relay of its own with these flags; it is not started yet.
func newBench(s settings, con console, flags ...string) (*bench, error) {
	if s.Runs < 1 || s.Time <= 0 || s.Size < 1 {
		return nil, usageError{"--runs, --time and --size are positive"}
	}
	program, err := exec.LookPath(s.RelayBin)
	if err != nil {
		return nil, usageError{fmt.Sprintf("--relay-bin: %v (make build makes bin/relay)", err)}
	}
	all := append(append([]string{"--inbox-sync=" + s.Sync}, limits...), flags...)
	all = append(all, s.RelayFlag...)
	r, err := newRelay(program, all)
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, con: con, relay: r, operator: newOperator(r.data), machine: thisMachine()}
	b.machine.Sync, b.machine.Shards = s.Sync, flagValue(all, "--inbox-shards", "default")
	b.machine.Flags = strings.Join(append(append([]string(nil), flags...), s.RelayFlag...), " ")
	return b, nil
}

// openBench is newBench with the relay running, either its own or the target's.
func openBench(ctx context.Context, s settings, t target, con console) (*bench, error) {
	if t.URL == "" {
		b, err := newBench(s, con)
		if err != nil {
			return nil, err
		}
		if _, err := b.start(ctx); err != nil {
			b.close()
			return nil, err
		}
		return b, nil
	}
	address, err := url.Parse(t.URL)
	if err != nil || address.Scheme != "ws" || t.Data == "" {
		return nil, usageError{"--url is ws://127.0.0.1:PORT/v1/relay and goes with --data"}
	}
	b := &bench{settings: s, con: con, machine: thisMachine(), operator: newOperator(t.Data)}
	b.relay = &relay{name: "relay", data: t.Data, listen: address.Host, metrics: t.Metrics, pid: t.PID, client: newClient()}
	b.machine.Sync, b.machine.Shards = "as running", "as running"
	return b, nil
}

func flagValue(flags []string, name, otherwise string) string {
	for _, flag := range flags {
		if value, found := strings.CutPrefix(flag, name+"="); found {
			otherwise = value
		}
	}
	return otherwise
}

func (b *bench) start(ctx context.Context) (time.Duration, error) {
	took, err := b.relay.start(ctx)
	if err == nil {
		b.say("the relay is ready after %s (pid %d)", took.Round(time.Millisecond), b.relay.pid)
	}
	return took, err
}

func (b *bench) close() {
	b.operator.close()
	b.relay.remove()
}

func (b *bench) say(format string, values ...any) {
	if b.Verbose {
		b.con.notef(format, values...)
	}
}

// repeat measures as often as was asked for and prints the result.
func (b *bench) repeat(name, unit string, wanted *bar, once func() (sample, error)) error {
	runs := make([]sample, 0, b.Runs)
	for range b.Runs {
		s, err := once()
		if err != nil {
			return err
		}
		runs = append(runs, s)
	}
	return b.finish(name, unit, runs, wanted)
}

// finish prints the result. That it measured is success, whatever it measured.
func (b *bench) finish(name, unit string, runs []sample, wanted *bar) error {
	return summarize(name, unit, runs, wanted, b.machine).write(b.con.out, b.JSON)
}

// rooms makes rooms and says how long it took.
func (b *bench) rooms(ctx context.Context, count, size int) ([][]member, error) {
	began := time.Now()
	rooms, err := b.operator.rooms(ctx, count, size)
	if err == nil {
		b.say("%d rooms of %d participants made in %s", count, size, time.Since(began).Round(time.Millisecond))
	}
	return rooms, err
}

// usage is CPU time used so far.
type usage struct {
	at        time.Time
	parts     map[string]time.Duration // of the server: each relay by its name, postgresql, nats
	generator time.Duration            // this process
}

func (b *bench) usage() usage {
	var self unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &self)
	u := usage{
		at: time.Now(), parts: make(map[string]time.Duration),
		generator: time.Duration(self.Utime.Nano() + self.Stime.Nano()),
	}
	tree := readProcessTree()
	for _, r := range b.relays() {
		if r.pid != 0 { // 0: of somebody who did not say
			u.parts[r.name] += tree.used[r.pid]
			u.parts["postgresql"] += tree.usedBelow(r.pid)
		}
	}
	if b.broker != nil {
		u.parts["nats"] = tree.used[b.broker.pid]
	}
	return u
}

// since adds CPU per unit of work, in microseconds, to more: all of the server and each
// part of it.
func (u usage) since(before usage, units int, unit string, more map[string]float64) {
	if units == 0 {
		return
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(units) }
	var server time.Duration
	for name, used := range u.parts {
		part := used - before.parts[name]
		server += part
		if part > 0 {
			more[name+"_cpu_us_per_"+unit] = per(part)
		}
	}
	more["server_cpu_us_per_"+unit] = per(server)
	more["generator_cpu_us_per_"+unit] = per(u.generator - before.generator)
}

// childAttributes ties a child of this program to it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
