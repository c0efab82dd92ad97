package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

type floorBoardCommand struct {
	Time    time.Duration `default:"5s"`
	Size    int           `default:"1024"`
	Rooms   int           `default:"26"`
	Writers int           `default:"16"`
}

// Run measures commits of what a Board event cannot do without: its row, the room's
// sequence, and the hint that waits, in one statement on an otherwise idle server set up
// as the relay's.
func (c *floorBoardCommand) Run(ctx context.Context, con console) error {
	folder, err := os.MkdirTemp("", "relaybench-floor-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer os.RemoveAll(folder)
	database, err := pgd.Start(ctx, pgd.Config{Dir: folder})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = database.Close(closing)
	}()
	rate, err := c.measure(ctx, database.URL())
	if err != nil {
		return err
	}
	return json.NewEncoder(con.out).Encode(perSecondFloor{rate})
}

const boardFloorTables = `
CREATE TABLE sequences (room integer PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE events (room integer, sequence bigint, body bytea NOT NULL, PRIMARY KEY (room, sequence));
CREATE TABLE outbox (room integer, sequence bigint, PRIMARY KEY (room, sequence));`

const boardFloorEvent = `
WITH counted AS (UPDATE sequences SET last = last + 1 WHERE room = $1 RETURNING last),
written AS (INSERT INTO events SELECT $1, last, $2 FROM counted)
INSERT INTO outbox SELECT $1, last FROM counted`

func (c *floorBoardCommand) measure(ctx context.Context, url string) (float64, error) {
	conns := make([]*pgx.Conn, c.Writers)
	for i := range conns {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		conns[i] = conn
	}
	if _, err := conns[0].Exec(ctx, boardFloorTables); err != nil {
		return 0, fmt.Errorf("create the floor's tables: %w", err)
	}
	if _, err := conns[0].Exec(ctx, "INSERT INTO sequences SELECT n, 0 FROM generate_series(0, $1 - 1) n", c.Rooms); err != nil {
		return 0, fmt.Errorf("fill the floor's tables: %w", err)
	}
	body := text(3, c.Size)
	turns := make([]int, c.Writers)
	b := &bench{relay: new(relay)} // no relay: its use is not counted
	rate, err := b.inParallel(ctx, c.Writers, c.Time/4, c.Time, func(ctx context.Context, worker int) error {
		turns[worker]++
		done, err := conns[worker].Exec(ctx, boardFloorEvent, (worker+turns[worker]*c.Writers)%c.Rooms, body)
		if err == nil && done.RowsAffected() != 1 {
			return errors.New("an event was not written")
		}
		return err
	}, nil, nil)
	return rate.perSecond, err
}
