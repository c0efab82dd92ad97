package postgres_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// proxy stands between the store and PostgreSQL and can swallow the server's answers.
type proxy struct {
	url   string
	mute  atomic.Bool
	mu    sync.Mutex
	conns []net.Conn
}

// newProxy listens on a socket beside the one of the database's URL.
func newProxy(t *testing.T, database string) *proxy {
	t.Helper()
	target, err := url.Parse(database)
	require.NoError(t, err)
	query := target.Query()
	socket := filepath.Join(query.Get("host"), ".s.PGSQL."+query.Get("port"))
	dir, err := os.MkdirTemp("", "pgproxy-") //nolint:usetesting // t.TempDir is too long a path for a socket
	require.NoError(t, err)
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
	query.Set("host", dir)
	query.Set("port", "5432")
	target.RawQuery = query.Encode()
	p := &proxy{url: target.String()}
	var pumps sync.WaitGroup
	pumps.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			pumps.Go(func() { _, _ = io.Copy(server, client); server.Close() })
			pumps.Go(func() { p.answers(client, server) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		pumps.Wait()
		os.RemoveAll(dir)
	})
	return p
}

func (p *proxy) answers(client, server net.Conn) {
	defer client.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if p.mute.Load() {
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut closes every connection that is open now.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// The commit happened and its answer was lost: the outcome is unknown to the caller,
// and the same bytes again are the same message.
func TestLostCommitAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	s := pgtest.Open(t, p.url)
	r := newResident(t, s, db, 1)

	lose := func(t *testing.T, committed func() bool, call func() error) {
		t.Helper()
		result := make(chan error, 1)
		require.NoError(t, s.Ping(t.Context())) // the pool asks one that was idle for long first, and waits
		p.mute.Store(true)
		go func() { result <- call() }()
		require.Eventually(t, committed, patience, time.Millisecond)
		p.cut()
		requireUnknown(t, <-result)
		p.mute.Store(false)
		p.cut() // what the pool opened meanwhile would wait for its answer until the time is up
	}

	m := text(r, "lost", "x")
	lose(t, func() bool { rows, _ := kept(t, db, r); return rows == 2 }, func() error {
		_, err := s.AppendMessage(t.Context(), m)
		return err
	})
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, patience, time.Millisecond)
	got, err := s.AppendMessage(t.Context(), m)
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	rows, _ := kept(t, db, r)
	require.Equal(t, 2, rows)

	members := func() int {
		return query[int](t, db, "SELECT count(*) FROM participants WHERE room_id = $1 AND left_at IS NULL", r.member.Room)
	}
	impatient := pgtest.Open(t, p.url, func(c *postgres.Config) { c.Timeout = time.Second })
	removal := func(s store.Store) error {
		_, err := s.RemoveParticipant(t.Context(), r.tenant, r.member.Room, r.member.ID, uuid.Nil)
		return err
	}
	// A transaction of several round trips never reaches its commit without answers.
	p.mute.Store(true)
	result := make(chan error, 1)
	go func() { result <- removal(impatient) }()
	requireUnknown(t, <-result)
	p.mute.Store(false)
	p.cut()
	require.Equal(t, 1, members())
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, patience, time.Millisecond)
	require.NoError(t, removal(s))
	require.ErrorIs(t, removal(s), store.ErrNotFound)
}

// The database goes away under load and comes back: calls fail meanwhile, none hangs,
// and what was answered is stored.
func TestConnectionsCutUnderLoad(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	s := pgtest.Open(t, p.url, func(c *postgres.Config) { c.Timeout = 2 * time.Second })
	r := newResident(t, s, db, 1)
	stop := make(chan struct{})
	var stored sync.Map
	var senders sync.WaitGroup
	for sender := range 8 {
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				m := text(r, string(rune('a'+sender))+"-"+time.Duration(i).String(), "x")
				if _, err := s.AppendMessage(t.Context(), m); err == nil {
					stored.Store(m.ID, true)
				}
			}
		})
	}
	for range 20 {
		before, _ := kept(t, db, r)
		require.Eventually(t, func() bool { rows, _ := kept(t, db, r); return rows > before }, patience, time.Millisecond)
		p.cut()
	}
	close(stop)
	senders.Wait()
	stored.Range(func(id, _ any) bool {
		got, err := s.AppendMessage(t.Context(), text(r, fmt.Sprint(id), "x"))
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		return true
	})
}
