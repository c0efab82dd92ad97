package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// profiled is where a process of the server serves its profiles.
type profiled struct{ name, address string }

func (b *bench) profiled() []profiled {
	var all []profiled
	for _, r := range b.relays() {
		all = append(all, profiled{r.name, r.metrics})
	}
	if b.broker != nil {
		all = append(all, profiled{"nats", b.broker.profiles})
	}
	return all
}

// profile begins to take a CPU profile of each process, as long as one measurement
// takes. The function it returns waits for them, and then takes the heaps. Without
// --profile both do nothing.
func (b *bench) profile(ctx context.Context) func() error {
	if b.Profile == "" {
		return func() error { return nil }
	}
	b.profiles++
	seconds := max(1, int(b.Time/time.Second))
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range b.profiled() {
		group.Go(func() error {
			return p.save(groupCtx, fmt.Sprintf("profile?seconds=%d", seconds), b.profileFile(p.name, "cpu"))
		})
	}
	return func() error {
		if err := group.Wait(); err != nil {
			return fmt.Errorf("take a profile: %w", err)
		}
		for _, p := range b.profiled() {
			if err := p.save(ctx, "heap", b.profileFile(p.name, "heap")); err != nil {
				return fmt.Errorf("take a profile: %w", err)
			}
		}
		return nil
	}
}

// profileFile numbers the measurements of one server in their order, floors that it is
// part of included.
func (b *bench) profileFile(name, kind string) string {
	return filepath.Join(b.Profile, fmt.Sprintf("%02d-%s-%s.pprof", b.profiles, name, kind))
}

// save writes one profile into a file.
func (p profiled) save(ctx context.Context, what, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return err
	}
	// Not the relay's client: a profile takes as long as a measurement.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", what, p.name, answer.Status)
	}
	return writeAll(file, answer.Body)
}

func writeAll(path string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
