package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/peerrelay/peerrelay/client"
)

type firstCommand struct {
	settings
	holding
	PeerBin string `default:"bin/peer" placeholder:"FILE" help:"The peer program to start."`
	Starts  int    `default:"10" help:"How often it is started in one run."`
}

// Help is kong's long text of the command.
func (*firstCommand) Help() string {
	return `A message waits for an agent's device. The figure is the median time from starting peer to its first line of output, in which
the message is decrypted. The floor is the time in which the same program prints its help. With --rooms the device's
store also holds what one in so many rooms has. Example: relaybench first --rooms 100`
}

// Run measures.
func (c *firstCommand) Run(ctx context.Context, con console) error {
	program, err := exec.LookPath(c.PeerBin)
	if err != nil || c.Starts < 1 {
		return usageError{fmt.Sprintf("--peer-bin is a program, and --starts is positive (%v)", err)}
	}
	if err := c.check(); err != nil {
		return err
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	talk, err := b.converse(ctx, "sender_keys", &c.holding)
	if err != nil {
		return err
	}
	defer talk.close()
	home, room := filepath.Join(talk.folder, "reader"), talk.room.RoomID
	if err := talk.reader.Close(); err != nil { // its key store is the program's now
		return err
	}
	return b.repeat("first", "ms start-to-shown, p50", &bar{value: 300, atMost: true}, func() (sample, error) {
		shown, floor := newHistogram(), newHistogram()
		for range c.Starts {
			if _, err := talk.from.Send(ctx, client.Draft{Text: "the first message"}); err != nil {
				return sample{}, err
			}
			took, err := firstLine(ctx, program, "poll", "--home", home, "--room", room, "--json")
			if err != nil {
				return sample{}, err
			}
			record(shown, int64(took))
			if took, err = firstLine(ctx, program, "--help"); err != nil {
				return sample{}, err
			}
			record(floor, int64(took))
		}
		return newSample(millis(shown, 50), millis(floor, 50), map[string]float64{"shown_p99_ms": millis(shown, 99)}), nil
	})
}

// firstLine runs a program to its end, and says when the first line of its output came that is
// a message, where there are any.
func firstLine(ctx context.Context, program string, args ...string) (time.Duration, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began, took := time.Now(), time.Duration(0)
	if err := command.Start(); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if took == 0 && (args[0] == "--help" || strings.Contains(lines.Text(), "the first message")) {
			took = time.Since(began)
		}
	}
	if err := command.Wait(); err != nil {
		return 0, err
	}
	if took == 0 {
		return 0, errors.New("peer printed no message")
	}
	return took, nil
}
