package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

// BenchmarkAppendMessage stores 1 KiB messages of 512 concurrent senders on a server
// with the settings of production, flushes to disk included.
func BenchmarkAppendMessage(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	for _, flushers := range []int{1, 2, 3, 4} {
		b.Run(fmt.Sprintf("flushers=%d", flushers), func(b *testing.B) {
			s := pgtest.Open(b, server.URL(), func(c *postgres.Config) {
				c.MaxConns, c.History.Flushers, c.Logger = 10, flushers, nil
			})
			benchmarkAppend(b, s)
		})
	}
}

func benchmarkAppend(b *testing.B, s *postgres.Store) {
	const senders, perRoom = 512, 8
	var messages []store.Message
	tenant, err := s.DefaultTenant(b.Context())
	require.NoError(b, err)
	for range senders / perRoom {
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
	for i := range messages {
		wg.Go(func() {
			m := messages[i]
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				m.ID = "0192f3c4-0000-7000-8000-" + strconv.FormatInt(k, 10)
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
