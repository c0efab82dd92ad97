package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

// BenchmarkAppendMessage stores 1 KiB messages of one sender and of 512 at once on a
// server with the settings of production, flushes to disk included.
func BenchmarkAppendMessage(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	for _, c := range []struct{ senders, flushers int }{{1, 2}, {512, 1}, {512, 2}, {512, 3}, {512, 4}} {
		b.Run(fmt.Sprintf("senders=%d/flushers=%d", c.senders, c.flushers), func(b *testing.B) {
			s := pgtest.Open(b, server.URL(), func(cfg *postgres.Config) {
				cfg.MaxConns, cfg.History.Flushers, cfg.Logger = 10, c.flushers, nil
			})
			benchmarkAppend(b, s, c.senders)
		})
	}
}

func benchmarkAppend(b *testing.B, s *postgres.Store, senders int) {
	const perRoom = 8
	var messages []store.Message
	tenant, err := s.DefaultTenant(b.Context())
	require.NoError(b, err)
	for range max(1, senders/perRoom) {
		room, err := s.CreateRoom(b.Context(), store.NewRoom{
			Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
		})
		require.NoError(b, err)
		for range perRoom {
			p, err := s.AddParticipant(b.Context(), store.NewParticipant{Tenant: tenant, Room: room.ID, Role: store.RoleAgent})
			require.NoError(b, err)
			messages = append(messages, store.Message{
				Tenant: tenant, Room: room.ID, Sender: p.ID, Kind: wire.KindMessage, KID: "key-1",
				Bytes: bytes.Repeat([]byte{byte(len(messages))}, 1024),
			})
		}
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range senders {
		wg.Go(func() {
			m := messages[i]
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				m.ID = uuid.Must(uuid.NewV7()).String()
				if _, err := s.AppendMessage(b.Context(), m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkBareCommit is the floor of one sender: a row of 1 KiB into a table without
// policies or indexes, by a connection of its own.
func BenchmarkBareCommit(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	conn, err := pgx.Connect(b.Context(), server.URL())
	require.NoError(b, err)
	_, err = conn.Exec(b.Context(), "CREATE TABLE bare (row bytea)")
	require.NoError(b, err)
	row := bytes.Repeat([]byte{'x'}, 1024)
	b.ReportAllocs()
	for b.Loop() {
		_, err := conn.Exec(b.Context(), "INSERT INTO bare VALUES ($1)", row)
		require.NoError(b, err)
	}
	require.NoError(b, conn.Close(b.Context()))
}
