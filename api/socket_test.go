package api_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
)

const checkEvery = 10 * time.Millisecond

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), api.SocketFile)
	listener, err := api.ListenSocket(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left in the folder")

	_, err = api.ListenSocket(path)
	require.ErrorIs(t, err, api.ErrSocketInUse, "a live one is not replaced")
	conn, err := api.DialSocket(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	require.NoError(t, listener.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSocketOfADeadProcessIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), api.SocketFile)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	_, err = os.Stat(path)
	require.NoError(t, err, "the file of the dead process is there")

	listener, err := api.ListenSocket(path)
	require.NoError(t, err)
	conn, err := api.DialSocket(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	// Whoever has taken the place meanwhile keeps it.
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, listener.Close())
	_, err = os.Stat(path)
	require.NoError(t, err)
}

func TestSocketNeverReplacesAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), api.SocketFile)
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err := api.ListenSocket(path)
	require.ErrorContains(t, err, "not a socket")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
}

func TestSocketInADeepFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	require.NoError(t, os.MkdirAll(folder, 0o700))
	path := filepath.Join(folder, api.SocketFile)
	require.Greater(t, len(path), 108)
	listener, err := api.ListenSocket(path)
	require.NoError(t, err)
	server := api.Server(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return api.DialSocket(ctx, path)
	}}}
	answer, err := client.Get("http://relay/")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	<-done
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FAULTS B08: a request head has a bound.
func TestServerRefusesEndlessHeaders(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := api.Server(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: relay\r\nX: " + strings.Repeat("x", 64<<10)))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "neither refused nor closed")
	if err == nil { // else: reset, with bytes of ours unread
		require.Contains(t, string(answer), "431")
	}
}
