// Command demo shows the main job of the relay in under a minute, with the real programs: an
// owner and two agents enroll, are approved by their fingerprints, and talk end-to-end
// encrypted in a room and 1:1; messages wait for who is offline, nothing is lost when the
// server is killed, a device that was revoked reads nothing of what follows, and nothing of it
// all is found on the server. It starts a relay in a temporary folder and prints what
// happens, line by line. Its exit code is 0 when all of that was so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// demoTimeout bounds the whole demo.
const demoTimeout = 3 * time.Minute

func main() {
	program := flag.String("relay", "bin/relay", "the relay program to start")
	keep := flag.Bool("keep", false, "keep the temporary folder")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	err := run(ctx, *program, *keep)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run owns the temporary folder and the server.
func run(ctx context.Context, program string, keep bool) (err error) {
	folder, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	if keep {
		fmt.Println("folder:", folder)
	} else {
		defer os.RemoveAll(folder)
	}
	relay, err := newServer(program, folder)
	if err != nil {
		return err
	}
	defer func() {
		relay.stop()
		if err != nil {
			relay.printLog(os.Stderr)
		}
	}()
	return newScenario(relay, folder).play(ctx)
}
