package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Floors are measured in processes of their own: what they leave behind (heap,
// goroutines, page cache of their files) must not be the generator's.

type floorPublishCommand struct {
	Sync        string        `default:"1s" enum:"1s,always"`
	Time        time.Duration `default:"5s"`
	Size        int           `default:"1024"`
	Outstanding int           `default:"256"`
}

type perSecondFloor struct {
	PerSecond float64 `json:"per_second"`
}

// Run measures JetStream alone.
func (c *floorPublishCommand) Run(ctx context.Context, con console) error {
	stream, err := startFloorStream(ctx, c.Sync == "always", c.Outstanding)
	if err != nil {
		return err
	}
	defer stream.close()
	rate, err := stream.publish(ctx, c.Size, c.Time)
	if err != nil {
		return err
	}
	return json.NewEncoder(con.out).Encode(perSecondFloor{rate})
}

type floorCommitCommand struct {
	Sync   string        `default:"1s" enum:"1s,always"`
	Size   int           `default:"1024"`
	Rounds int           `default:"500"`
	Pause  time.Duration `default:"4ms"`
}

type commitFloor struct {
	SumMillis    float64 `json:"sum_ms"`
	CommitMillis float64 `json:"commit_ms"`
	AckMillis    float64 `json:"ack_ms"`
}

// Run measures one commit and one acknowledgement.
func (c *floorCommitCommand) Run(ctx context.Context, con console) error {
	sum, commit, ack, err := commitLatency(ctx, c.Size, c.Rounds, c.Pause, c.Sync == "always")
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	return json.NewEncoder(con.out).Encode(commitFloor{ms(sum), ms(commit), ms(ack)})
}

type floorIdleCommand struct{}

// Run serves bare connections until its standard input ends.
func (c *floorIdleCommand) Run(ctx context.Context, con console) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends at once
	if err != nil {
		return err
	}
	private, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends at once
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("GET /debug/pprof/heap", pprof.Handler("heap"))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(private) }()
	defer server.Close()
	if err := json.NewEncoder(con.out).Encode(servingAddress{listener.Addr().String(), private.Addr().String()}); err != nil {
		return err
	}
	ctx, cancel := untilEnd(ctx, con.in)
	defer cancel()
	return serveIdleFloor(ctx, listener)
}

// child runs this program again and decodes the one object it prints.
func (b *bench) child(ctx context.Context, into any, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// The kernel ties the child's end to this thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, program, args...)
	command.SysProcAttr = childAttributes()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 20 * time.Second
	command.Env = append(os.Environ(), childVariable+"=1")
	if b.relay.own() {
		command.Env = append(command.Env, "TMPDIR="+b.relay.folder) // which is removed in any case
	}
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("measure the floor (%s): %w", args[0], err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("measure the floor (%s): %w", args[0], err)
	}
	return nil
}

// childVariable tells the test binary that it is started as this program.
const childVariable = "RELAYBENCH_CHILD"

// publishFloor measures what the machine's JetStream does without a relay.
func (b *bench) publishFloor(ctx context.Context, outstanding int) (float64, error) {
	var floor perSecondFloor
	err := b.child(ctx, &floor, "floor-publish", "--sync", b.Sync, "--time", b.Time.String(),
		"--size", strconv.Itoa(b.Size), "--outstanding", strconv.Itoa(outstanding))
	b.say("floor: %.0f publishes/s", floor.PerSecond)
	return floor.PerSecond, err
}
