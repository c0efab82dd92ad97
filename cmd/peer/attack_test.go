package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// Somebody who sends one name over and over does not keep a device from what follows.
func TestOneNameForThousandsOfFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for n := range copies + 1 {
		name := "a.txt"
		if n > 1 {
			name = fmt.Sprintf("a (%d).txt", n)
		}
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("taken"), 0o600))
	}
	keep, err := newKeeper(folder)
	require.NoError(t, err)
	defer keep.close()
	for _, text := range []string{"one", "two"} {
		path, err := keep.file(&client.File{Name: "a.txt", Data: []byte(text)})
		require.NoError(t, err)
		require.Equal(t, ".txt", filepath.Ext(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
}

// Whatever a file is called, it is saved in the folder, and over nothing.
func TestNamesThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	folder := filepath.Join(outside, "inbox")
	keep, err := newKeeper(folder)
	require.NoError(t, err)
	defer keep.close()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(folder, "link")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "nothing"), filepath.Join(folder, "dangling")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "up")))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "sub"), 0o700))
	for _, name := range []string{
		"../secret", "..", ".", "", "/etc/passwd", secret, `..\..\secret`, "link", "dangling", "up", "up/secret", "sub", "a/../../secret", "\x00", "a\x00b",
		"\x1b[2J", "\u202egpj.exe", strings.Repeat("x", 5000), strings.Repeat("ä", 300), "CON", "nul.txt", ".bashrc", "-rf", "~", "a:b", "\xff\xfe", " ", "...", "a\nb",
	} {
		path, err := keep.file(&client.File{Name: name, Data: []byte("theirs")})
		require.NoError(t, err, "%q", name)
		require.Equal(t, folder, filepath.Dir(path), "%q", name)
		info, err := os.Lstat(path)
		require.NoError(t, err, "%q", name)
		require.True(t, info.Mode().IsRegular(), "%q", name)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.False(t, strings.HasPrefix(filepath.Base(path), "."), "%q", name)
	}
	data, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	require.NoFileExists(t, filepath.Join(outside, "nothing"))
	left, err := filepath.Glob(filepath.Join(folder, ".part-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

// No text of others moves a cursor, or looks like what this program says.
func TestTextsThatLookLikeOthers(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b]0;title\a\x1b[2J\u009b31m\rx\b\u202eevil\u2066\u200b\u2028" +
		"\n2026-12-01 13:00  alice (owner 12345678)  pay me\r\n\v\f\x85 -- \U000e0041"
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		p := &printer{
			con: console{out: &out}, json: asJSON, room: session,
			names: &names{labels: map[string]string{"device": hostile}},
		}
		items := []client.Item{
			{Message: &client.Message{
				ID: "a", From: "b", Device: "device", Role: client.Role(hostile), To: "c", Kind: wire.KindNotice, Expires: time.Now(),
				Text: hostile, Files: []client.File{{Name: hostile, MIMEType: hostile}},
			}},
			{Failure: &client.Failure{ID: hostile, From: hostile, Err: fmt.Errorf("no: %s", hostile)}},
			{Event: &wire.RoomEvent{EventID: hostile, Event: wire.RoomEventType(hostile), ParticipantID: hostile, DeviceID: hostile, Role: hostile}},
			{Board: &client.BoardHint{EventID: hostile, CardID: hostile}},
			{Gap: &client.Gap{Oldest: hostile}},
		}
		for i := range items {
			out.Reset()
			require.NoError(t, p.print(t.Context(), items[i]))
			text := out.String()
			require.True(t, utf8.ValidString(text))
			require.True(t, strings.HasSuffix(text, "\n"))
			for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				require.False(t, strings.ContainsFunc(line, func(r rune) bool { return shown(r) < 0 || r == '\t' || r == '\r' }), "%q", line)
				if n > 0 {
					require.True(t, strings.HasPrefix(line, margin), "%q", line)
				}
				require.True(t, !asJSON || n == 0 && json.Valid([]byte(line)), "%q", line)
			}
		}
	}
}

// watched tells that somebody waits for its end.
type watched struct {
	context.Context

	once  sync.Once
	asked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// A command that waits for a session which another one was opening, and was killed, opens it.
func TestAnotherCommandWasKilledWhileOpening(t *testing.T) {
	t.Parallel()
	h := newTalk(t)
	device, err := client.OpenDevice(h.home("alice"), client.DeviceOptions{})
	require.NoError(t, err)
	defer device.Close()
	r := newRunning(device)
	defer r.close()
	killed, cancel := context.WithCancel(t.Context())
	cancel()
	other := &opening{done: make(chan struct{})}
	r.rooms[h.room] = other
	type answer struct {
		session *client.Session
		err     error
	}
	got := make(chan answer, 1)
	waiting := &watched{Context: t.Context(), asked: make(chan struct{})}
	go func() {
		s, err := r.session(waiting, h.room)
		got <- answer{s, err}
	}()
	<-waiting.asked
	r.mu.Lock()
	delete(r.rooms, h.room)
	r.mu.Unlock()
	other.err = killed.Err()
	close(other.done)
	a := <-got
	require.NoError(t, a.err)
	require.Equal(t, h.room, a.session.Room())
}

// What ends waits for a session that is being opened, and lets it fail.
func TestTheEndWaitsForASessionThatIsBeingOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRunning(nil)
		o := &opening{done: make(chan struct{})}
		r.rooms["room"] = o
		go r.close()
		synctest.Wait()
		require.True(t, r.mu.TryLock())
		r.mu.Unlock()
		close(o.done)
	})
}

// A command that is killed may leave something behind that asks for its input: the process that it
// ran in goes on.
func TestAKilledCommandAsksForItsInput(t *testing.T) {
	t.Parallel()
	left := make(chan *guest, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		host := &host{guests: map[string]*guest{}}
		g := newGuest(w, func() {})
		defer host.enter(g)()
		left <- g
	}))
	defer server.Close()
	answer, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	_, err = (<-left).Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// Whatever comes to the socket of a running command, it goes on.
func TestGarbageAtTheSocket(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	listening := h.starts(t, "alice", nil, "listen", "--room", h.room)
	listening.until(t, "listening in room")
	path := filepath.Join(h.home("alice"), socketName)
	if link, err := os.Readlink(path); err == nil {
		path = link
	}
	order := fmt.Sprintf(`{"args":["send","--room",%q,"--home",%q],"caller":{"folder":"/"}}`, h.room, h.home("alice"))
	post := func(path, length, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: peer\r\nContent-Length: " + length + "\r\n\r\n" + body
	}
	var held []net.Conn
	for _, garbage := range []string{
		"", "\x00\xff\x16\x03\x01", "GET / HTTP/1.1\r\nHost: peer\r\n\r\n", "GET /v1/run HTTP/9.9\r\n\r\n", strings.Repeat("A", 1<<16),
		"POST /v1/run HTTP/1.1\r\nHost: peer\r\nX: " + strings.Repeat("x", 1<<17) + "\r\n\r\n",
		post("/v1/run", "99999999999", "{"), post("/v1/run", "-1", ""), post("/v1/run", fmt.Sprint(len(order)), order),
		post("/v1/run", fmt.Sprint(len(order)+5), order), post("/v1/run", "2", "[]"), post("/v1/run", "4", "null"), post("/v1/stop/..%2f..", "0", ""),
		"POST /v1/run HTTP/1.1\r\nHost: peer\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
	} {
		for range 2 {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
			require.NoError(t, err)
			_, _ = conn.Write([]byte(garbage))
			if unix, ok := conn.(*net.UnixConn); ok && len(held)%3 == 0 {
				_ = unix.CloseWrite()
			}
			held = append(held, conn)
		}
	}
	h.says(t, "alice", "", "send", "beside all that")
	for _, conn := range held { // killed
		require.NoError(t, conn.Close())
	}
	h.says(t, "alice", "", "send", "and after it")
	require.Equal(t, exitOK, listening.stop(t).code)
	require.Len(t, h.polled(t, "robot"), 2)
	require.NoFileExists(t, path)
}
