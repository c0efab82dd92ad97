package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/schema"
)

// migrateTimeout bounds all of it, a first initialisation included.
const migrateTimeout = 10 * time.Minute

// MigrateCmd brings a database up to date.
type MigrateCmd struct {
	DatabaseURL string `env:"RELAY_DATABASE_URL" placeholder:"URL" help:"The external PostgreSQL; default: the managed one in --data, which no server may be using."`
}

// Help is shown by relay migrate --help.
func (*MigrateCmd) Help() string {
	return `Example:

  RELAY_DATABASE_URL='postgres://relay@db/relay' relay migrate

The URL's user must own the database. Others on this machine can read command lines: put a password into the
environment.`
}

// Run migrates.
func (c *MigrateCmd) Run(ctx context.Context, globals *Globals, con console) (err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	url := c.DatabaseURL
	if url == "" {
		database, end, err := startManaged(ctx, globals.Data)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		url = database.URL()
	}
	if err := schema.Up(ctx, url); err != nil {
		return fmt.Errorf("migrate: %w", node.ExplainDatabase(err))
	}
	latest, err := schema.Latest()
	if err != nil {
		return err
	}
	answer := struct {
		Version int64 `json:"version"`
	}{latest}
	return show(globals, con, answer, func(w io.Writer) {
		fmt.Fprintf(w, "The database is at version %d.\n", answer.Version)
		if c.DatabaseURL == "" || os.Getenv("RELAY_DATABASE_URL") != "" { // else the URL would be missing
			next(w, globals, con, "serve")
		}
	})
}

// startManaged runs the managed PostgreSQL of a data folder that no relay is using.
func startManaged(ctx context.Context, data string) (_ *pgd.Server, end func() error, err error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := pgd.Lock(data)
	if errors.Is(err, pgd.ErrLocked) {
		return nil, nil, fmt.Errorf("%w; the server migrates by itself when it starts", err)
	}
	if err != nil {
		return nil, nil, err
	}
	database, err := pgd.Start(ctx, pgd.Config{Dir: data, Roles: []string{schema.ServiceRole}})
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return database, func() error {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return errors.Join(database.Close(closing), lock.Unlock())
	}, nil
}
