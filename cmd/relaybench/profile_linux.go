package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// profile begins to take a CPU profile of each relay process, as long as one
// measurement takes. The function it returns waits for them, and then takes the heaps.
// Without --profile both do nothing.
func (b *bench) profile(ctx context.Context) func() error {
	if b.Profile == "" {
		return func() error { return nil }
	}
	b.profiles++
	seconds := max(1, int(b.Time/time.Second))
	group, groupCtx := errgroup.WithContext(ctx)
	for _, r := range b.relays() {
		group.Go(func() error {
			return r.saveProfile(groupCtx, fmt.Sprintf("profile?seconds=%d", seconds), b.profileFile(r, "cpu"))
		})
	}
	return func() error {
		if err := group.Wait(); err != nil {
			return fmt.Errorf("take a profile: %w", err)
		}
		for _, r := range b.relays() {
			if err := r.saveProfile(ctx, "heap", b.profileFile(r, "heap")); err != nil {
				return fmt.Errorf("take a profile: %w", err)
			}
		}
		return nil
	}
}

// profileFile numbers the measurements in their order, floors that have a relay
// included.
func (b *bench) profileFile(r *relay, kind string) string {
	return filepath.Join(b.Profile, fmt.Sprintf("%02d-%s-%s.pprof", b.profiles, r.name, kind))
}

// saveProfile writes what the metrics listener answers for a profile into a file.
func (r *relay) saveProfile(ctx context.Context, what, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metrics+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return err
	}
	// Not r.client: a profile takes as long as a measurement.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", what, answer.Status)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, answer.Body); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
