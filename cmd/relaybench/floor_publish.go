package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/peerrelay/peerrelay/infra/natsd"
	"github.com/peerrelay/peerrelay/wire"
)

// floorStream is an embedded NATS as the relay runs it, with one file stream that is
// set up as an inbox stream is, and nothing in front of it.
type floorStream struct {
	folder string
	server *natsd.Server
	nc     *nats.Conn
	js     jetstream.JetStream
}

const (
	floorSubjects = 256              // subjects (in the relay: inboxes) the floor spreads over
	stallWait     = 10 * time.Second // for a free place among the outstanding ones
)

func startFloorStream(ctx context.Context, syncAlways bool, outstanding int) (_ *floorStream, err error) {
	f := new(floorStream)
	if f.folder, err = os.MkdirTemp("", "relaybench-floor-"); err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.server, err = natsd.Start(ctx, natsd.Config{Dir: f.folder, SyncAlways: syncAlways}); err != nil {
		return nil, err
	}
	if f.nc, err = f.server.InProcess(); err != nil {
		return nil, err
	}
	if f.js, err = jetstream.New(f.nc, jetstream.WithPublishAsyncMaxPending(outstanding)); err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	_, err = f.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "FLOOR", Subjects: []string{"floor.*"}, Storage: jetstream.FileStorage,
		MaxMsgsPerSubject: wire.MaxInboxRows, MaxAge: wire.InboxMaxAge, Discard: jetstream.DiscardOld,
		AllowDirect: true, AllowAtomicPublish: true,
	})
	if err != nil {
		return nil, fmt.Errorf("create the floor's stream: %w", err)
	}
	return f, nil
}

func (f *floorStream) close() {
	if f.nc != nil {
		f.nc.Close()
	}
	if f.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = f.server.Close(ctx)
	}
	_ = os.RemoveAll(f.folder)
}

func floorSubject(n int) string { return fmt.Sprintf("floor.%d", n%floorSubjects) }

// publish publishes messages of size bytes, each with an acknowledgement of its own
// and as many outstanding as the stream was started with, and returns how many were
// acknowledged in a second. The first quarter of the time does not count.
func (f *floorStream) publish(ctx context.Context, size int, seconds time.Duration) (float64, error) {
	body := text(1, size)
	subjects := make([]string, floorSubjects)
	for i := range subjects {
		subjects[i] = floorSubject(i)
	}
	if _, err := f.publishFor(ctx, subjects, body, seconds/4); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := f.publishFor(ctx, subjects, body, seconds)
	return float64(n) / time.Since(began).Seconds(), err
}

// publishFor returns when everything it published is acknowledged.
func (f *floorStream) publishFor(ctx context.Context, subjects []string, body []byte, d time.Duration) (int, error) {
	deadline := time.Now().Add(d)
	n := 0
	for n%64 != 0 || time.Now().Before(deadline) && ctx.Err() == nil {
		if _, err := f.js.PublishAsync(subjects[n%len(subjects)], body, jetstream.WithStallWait(stallWait)); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
		n++
	}
	select {
	case <-f.js.PublishAsyncComplete():
		return n, ctx.Err()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
