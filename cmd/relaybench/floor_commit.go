package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

// commitLatency is what one room message can't do without: one commit in
// PostgreSQL, then one acknowledgement of JetStream, each alone on an idle server
// set up as the relay's. It returns the medians of both and of their sum.
func commitLatency(ctx context.Context, size, rounds int, pause time.Duration, syncAlways bool) (sum, commit, ack time.Duration, err error) {
	folder, err := os.MkdirTemp("", "relaybench-floor-")
	if err != nil {
		return 0, 0, 0, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer os.RemoveAll(folder)
	database, err := pgd.Start(ctx, pgd.Config{Dir: folder})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = database.Close(closing)
	}()
	stream, err := startFloorStream(ctx, syncAlways, 1)
	if err != nil {
		return 0, 0, 0, err
	}
	defer stream.close()
	pg, err := pgx.Connect(ctx, database.URL())
	if err != nil {
		return 0, 0, 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = pg.Close(context.WithoutCancel(ctx)) }()
	if _, err := pg.Exec(ctx, "CREATE TABLE floor (id bigint PRIMARY KEY, body bytea NOT NULL)"); err != nil {
		return 0, 0, 0, fmt.Errorf("create the floor's table: %w", err)
	}
	return commitRounds(ctx, pg, stream, text(2, size), rounds, pause)
}

func commitRounds(ctx context.Context, pg *pgx.Conn, stream *floorStream, body []byte, rounds int, pause time.Duration,
) (sum, commit, ack time.Duration, err error) {
	sums, commits, acks := newHistogram(), newHistogram(), newHistogram()
	warm := rounds / 5
	for round := range warm + rounds {
		began := time.Now()
		if _, err := pg.Exec(ctx, "INSERT INTO floor (id, body) VALUES ($1, $2)", round, body); err != nil {
			return 0, 0, 0, fmt.Errorf("insert: %w", err)
		}
		committed := time.Now()
		if _, err := stream.js.Publish(ctx, floorSubject(round), body); err != nil {
			return 0, 0, 0, fmt.Errorf("publish: %w", err)
		}
		acknowledged := time.Now()
		if round >= warm {
			record(commits, committed.Sub(began).Nanoseconds())
			record(acks, acknowledged.Sub(committed).Nanoseconds())
			record(sums, acknowledged.Sub(began).Nanoseconds())
		}
		time.Sleep(pause)
		if ctx.Err() != nil {
			return 0, 0, 0, ctx.Err()
		}
	}
	return time.Duration(sums.ValueAtPercentile(50)), time.Duration(commits.ValueAtPercentile(50)),
		time.Duration(acks.ValueAtPercentile(50)), nil
}
