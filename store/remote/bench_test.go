package remote_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/store/remote"
	"github.com/peerrelay/peerrelay/wire"
)

// BenchmarkAppendMessage compares messages of 1 KiB that go straight to PostgreSQL, on
// a server with the settings of production, with the same over HTTP.
func BenchmarkAppendMessage(b *testing.B) {
	server, err := pgd.Start(b.Context(), pgd.Config{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Close(context.WithoutCancel(b.Context()))) })
	require.NoError(b, schema.Up(b.Context(), server.URL()))
	s := pgtest.Open(b, server.URL(), func(cfg *postgres.Config) { cfg.MaxConns, cfg.Logger = 10, nil })
	api := serve(b, s)
	for _, senders := range []int{1, 256} {
		b.Run(fmt.Sprintf("postgres/senders=%d", senders), func(b *testing.B) { benchmarkAppend(b, s, s, senders) })
		for _, inFlight := range []int{1, 2, 4, 8} {
			edge := open(b, api, func(cfg *remote.Config) { cfg.InFlight = inFlight })
			b.Run(fmt.Sprintf("remote/senders=%d/inflight=%d", senders, inFlight), func(b *testing.B) { benchmarkAppend(b, s, edge, senders) })
			if senders == 1 {
				break
			}
		}
	}
}

func benchmarkAppend(b *testing.B, s *postgres.Store, h store.History, senders int) {
	const perRoom = 8
	tenant, err := s.DefaultTenant(b.Context())
	require.NoError(b, err)
	var members []store.Participant
	for range max(1, senders/perRoom) {
		room, err := s.CreateRoom(b.Context(), store.NewRoom{
			Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
		})
		require.NoError(b, err)
		for range perRoom {
			p, err := s.AddParticipant(b.Context(), store.NewParticipant{Tenant: tenant, Room: room.ID, Role: store.RoleAgent})
			require.NoError(b, err)
			members = append(members, p)
		}
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range senders {
		wg.Go(func() {
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				if _, err := h.AppendMessage(b.Context(), kibibyte(members[i], uuid.Must(uuid.NewV7()).String())); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "envelopes/s")
}

// kibibyte is a message of 1 KiB.
func kibibyte(p store.Participant, id string) store.Message {
	m := envelopeOf(p, id, "")
	return envelopeOf(p, id, strings.Repeat("x", 1024-len(m.Bytes)))
}

// envelopeOf is a message of p to its room.
func envelopeOf(p store.Participant, id, ct string) store.Message {
	return store.Message{
		Tenant: p.Tenant, Room: p.Room, Sender: p.ID, ID: id, Kind: wire.KindMessage, Gen: 1,
		Bytes: fmt.Appendf(nil, `{"v":1,"id":"%s","session_id":"%s","from":"%s","to":"%s","kind":"message","gen":1,"seq":1,"ts":1700000000000,"nonce":"AAAA","ct":"%s"}`,
			id, p.Room, p.ID, p.Room, ct),
	}
}
