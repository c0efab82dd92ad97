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
	messages := benchmarkMessages(b, s, senders, 8)
	benchmarkSenders(b, senders, func(sender int, id string) error {
		m := messages[sender]
		m.ID = id
		_, err := s.AppendMessage(b.Context(), m)
		return err
	})
}

// benchmarkMessages returns a message of each of perRoom members of as many rooms as it
// takes for senders.
func benchmarkMessages(b *testing.B, s *postgres.Store, senders, perRoom int) (messages []store.Message) {
	b.Helper()
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
	return messages
}

// benchmarkSenders has senders append b.N rows of new ids between them.
func benchmarkSenders(b *testing.B, senders int, add func(sender int, id string) error) {
	b.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range senders {
		wg.Go(func() {
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				if err := add(i, uuid.Must(uuid.NewV7()).String()); err != nil {
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

// BenchmarkAppendTrace stores traces with one file, of pairs in rooms of eight, and as
// many sent by two nodes as by one.
func BenchmarkAppendTrace(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	quiet := func(cfg *postgres.Config) { cfg.MaxConns, cfg.Logger = 10, nil }
	for _, c := range []struct{ senders, nodes int }{{1, 1}, {512, 1}, {512, 2}} {
		b.Run(fmt.Sprintf("senders=%d/nodes=%d", c.senders, c.nodes), func(b *testing.B) {
			nodes := make([]*postgres.Store, c.nodes)
			for i := range nodes {
				nodes[i] = pgtest.Open(b, server.URL(), quiet)
			}
			pairs := benchmarkMessages(b, nodes[0], max(c.senders, 2), 8)
			benchmarkSenders(b, c.senders, func(sender int, id string) error {
				from, to := &pairs[sender], &pairs[sender^1]
				_, err := nodes[sender%c.nodes].AppendTrace(b.Context(), store.Trace{
					Tenant: from.Tenant, Room: from.Room, MessageID: id, From: from.Sender, To: to.Sender, TS: 1, Declared: true,
					Files: []store.FileHeader{{Name: "picture.png", MIMEType: "image/png", SizeBytes: 1000}},
				})
				return err
			})
		})
	}
}

// BenchmarkTwoNodes stores messages in the same rooms through two nodes, which wait for
// each other's commits in a room.
func BenchmarkTwoNodes(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	var nodes [2]*postgres.Store
	for i := range nodes {
		nodes[i] = pgtest.Open(b, server.URL(), func(cfg *postgres.Config) { cfg.MaxConns, cfg.Logger = 10, nil })
	}
	for _, perRoom := range []int{1, 8, 512} {
		messages := benchmarkMessages(b, nodes[0], 512, min(perRoom, store.MaxParticipants))
		b.Run(fmt.Sprintf("senders=512/perRoom=%d", perRoom), func(b *testing.B) {
			benchmarkSenders(b, 512, func(sender int, id string) error {
				m := messages[sender%len(messages)]
				m.ID = id
				_, err := nodes[sender%2].AppendMessage(b.Context(), m)
				return err
			})
		})
	}
}

// BenchmarkHistoryPage reads pages of 100 messages of 1 KiB from the middle of 10,000.
func BenchmarkHistoryPage(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	s := pgtest.Open(b, server.URL(), func(cfg *postgres.Config) { cfg.MaxConns, cfg.Logger = 10, nil })
	m := benchmarkMessages(b, s, 1, 1)[0]
	owner, err := pgx.Connect(b.Context(), server.URL())
	require.NoError(b, err)
	_, err = owner.Exec(b.Context(), `INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, envelope)
		SELECT $1, $2, 'm-' || n, $3, 'message', 0, $4 FROM generate_series(1, 10000) n`, m.Tenant, m.Room, m.Sender, m.Bytes)
	require.NoError(b, err)
	require.NoError(b, owner.Close(b.Context()))
	b.ReportAllocs()
	for b.Loop() {
		rows, more, err := s.HistoryPage(b.Context(), m.Tenant, m.Room, store.Page{From: 5_000, Limit: 100})
		require.NoError(b, err)
		require.True(b, more)
		require.Len(b, rows, 100)
	}
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
