package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/internal/testkit/long"
	"github.com/peerrelay/peerrelay/wire"
)

// liar is a relay whose answers over HTTP are not what they should be.
type liar struct {
	*httptest.Server

	mu  sync.Mutex // guards the following field
	lie func(request *http.Request, status int, body []byte) (int, []byte)
}

// newLiar stands in front of a server.
func newLiar(t *testing.T, server string) *liar {
	t.Helper()
	target, err := url.Parse(server)
	require.NoError(t, err)
	l := &liar{}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.ModifyResponse = func(answer *http.Response) error {
		l.mu.Lock()
		lie := l.lie
		l.mu.Unlock()
		if lie == nil || answer.StatusCode == http.StatusSwitchingProtocols {
			return nil
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		answer.StatusCode, body = lie(answer.Request, answer.StatusCode, body)
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		answer.Header.Set("Content-Length", fmt.Sprint(len(body)))
		return nil
	}
	l.Server = httptest.NewServer(pass)
	t.Cleanup(l.Close)
	return l
}

func (l *liar) tell(lie func(request *http.Request, status int, body []byte) (int, []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lie = lie
}

// FAULTS J06: whatever waits for a key, the key that comes opens all of it: a large file whose
// first key was lost is more than one Update of the key store takes. It is tried in parts, each
// of which fits; the long tests have a file that would not fit as a whole.
func TestAFileWaitsForItsKey(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	p.onDown(func(message []byte) [][]byte {
		if bytes.Contains(message, []byte(`"kind":"senderkey"`)) {
			return nil
		}
		return [][]byte{message}
	})
	chunks := long.Times(2*client.RetryBatch+2, 210) // 210: as payloads, 9 MB
	data := bytes.Repeat([]byte("0123456789abcdef"), chunks*content.ChunkSize/16)
	_, err := alice.Send(t.Context(), client.Draft{File: &client.File{Name: "large", MIMEType: "x/y", Data: data}})
	require.NoError(t, err)
	bob.poll(t)
	require.Empty(t, bob.messages())
	p.onDown(nil)
	repeat(t, func() bool {
		alice.poll(t)
		bob.poll(t)
		return len(bob.messages()) == 1
	})
	require.Empty(t, bob.failures())
	require.True(t, bytes.Equal(data, bob.messages()[0].Files[0].Data))
}

// The relay says within a draft that its keys are over: what it stored before is not sent
// again, and what follows is sent once (STATE, "Message During Rekey").
func TestKeysEndWithinADraft(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, bob, "before")
	for _, id := range []string{"", "named"} {
		sent := 0
		p.onUp(func(message []byte) (bool, []byte) {
			id, kind := envelopeOf(message)
			if kind != "message" {
				return true, nil
			}
			if sent++; sent == 2 {
				return false, nackOf(id, wire.MLSRetired)
			}
			return true, nil
		})
		file := &client.File{Name: "a", MIMEType: "x/y", Data: make([]byte, 6*content.ChunkSize)}
		done, err := bob.Send(t.Context(), client.Draft{ID: id, Text: "with " + id, File: file})
		require.NoError(t, err)
		require.Len(t, done.IDs, 7)
		p.onUp(nil)
		pending, err := bob.Pending()
		require.NoError(t, err)
		require.Empty(t, pending)
		bob.poll(t)
		say(t, bob, "after "+id)
	}
	alice.poll(t)
	require.Equal(t, []string{"before", "with ", "", "after ", "with named", "", "after named"}, alice.texts())
	require.Empty(t, alice.failures())
	require.Empty(t, bob.failures())
}

// A key for somebody that the relay refuses is asked for by who lacks it. The message, which is
// stored, is not reported as refused: its writer would write it again.
func TestARefusedKeyIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	p.onUp(func(message []byte) (bool, []byte) {
		if id, kind := envelopeOf(message); kind == "senderkey" {
			return false, nackOf(id, wire.InvalidEnvelope)
		}
		return true, nil
	})
	say(t, bob, "once")
	p.onUp(nil)
	repeat(t, func() bool {
		alice.poll(t)
		bob.poll(t)
		return len(alice.texts()) > 0
	})
	require.Equal(t, []string{"once"}, alice.texts())
	require.Empty(t, alice.failures())
	require.Empty(t, bob.failures())
}

// A participant's device never changes. A relay that shows another one of somebody who is known
// puts its own keys in the place of theirs.
func TestAParticipantKeepsItsDevice(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	l := newLiar(t, p.URL)
	dir := filepath.Join(t.TempDir(), "device")
	robot := w.agentAt(t, l.URL, dir, client.DeviceOptions{})
	mallory := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "it is me")
	bob.poll(t)
	require.Equal(t, []string{"it is me"}, bob.texts())
	elsewhere, err := w.admin.Room(t.Context(), w.room(t, client.NewRoom{}, mallory))
	require.NoError(t, err)
	other := elsewhere.Participants[slices.IndexFunc(elsewhere.Participants, func(p client.Participant) bool { return p.DeviceID == mallory.ID() })]
	l.tell(func(request *http.Request, status int, body []byte) (int, []byte) {
		if request.URL.Path != "/v1/rooms/"+room || request.Method != http.MethodGet {
			return status, body
		}
		var answer struct {
			client.Room

			Participants []map[string]any `json:"participants"`
		}
		require.NoError(t, json.Unmarshal(body, &answer))
		for _, m := range answer.Participants {
			if m["participant_id"] == alice.Participant() {
				m["device_id"], m["identity_key"] = mallory.ID(), other.IdentityKey
				m["agreement_key"], m["agreement_signature"] = other.AgreementKey, other.AgreementSignature
			}
		}
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		return status, text
	})
	for range 2 {
		again, err := robot.OpenSession(t.Context(), room)
		require.NoError(t, err)
		_, err = again.Send(t.Context(), client.Draft{Text: "a secret"})
		require.ErrorIs(t, err, client.ErrKeysChanged)
		_, err = again.Send(t.Context(), client.Draft{Text: "a secret", To: alice.Participant()})
		require.ErrorIs(t, err, client.ErrKeysChanged)
		require.NoError(t, robot.Close())
		robot, err = client.OpenDevice(dir, client.DeviceOptions{})
		require.NoError(t, err)
	}
	l.tell(nil)
	say(t, open(t, robot, room), "not to her")
	require.NoError(t, robot.Close())
}

// rows of a relay that sends events as it likes.
func lowEvent(room, id, at string) []byte {
	text, _ := json.Marshal(map[string]any{
		"type": "room.event", "stream_id": at, "replay": true,
		"event_id": id, "event": "prekeys_low", "room_id": room, "version": 1, "remaining": 3,
	})
	return text
}

// FAULTS J07: ids of messages are not forgotten for those of events and of rows that are none.
// A private message has no key that is used up, so that its id is all there is against a repeat.
func TestEventsDoNotMakeMessagesNew(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	_, err := alice.Send(t.Context(), client.Draft{Text: "pay once", To: bob.Participant()})
	require.NoError(t, err)
	var kept []byte
	p.onDown(func(message []byte) [][]byte {
		if bytes.Contains(message, []byte(`"deliver"`)) {
			kept = bytes.Clone(message)
		}
		return [][]byte{message}
	})
	bob.poll(t)
	require.Equal(t, []string{"pay once"}, bob.texts())
	var row map[string]any
	require.NoError(t, json.Unmarshal(kept, &row))
	at, _ := row["stream_id"].(string)
	ms, _, _ := strings.Cut(at, "-")
	flooded := false
	p.onDown(func(message []byte) (all [][]byte) {
		if flooded || !bytes.Contains(message, []byte(`"resume_complete"`)) {
			return [][]byte{message}
		}
		flooded = true
		for n := range keystore.MaxSeen + 10 {
			all = append(all, lowEvent(room, fmt.Sprintf("018f6b1e-7f2a-7c3d-9a10-%012x", n), fmt.Sprintf("%s-%d", ms, 1000+n)))
		}
		row["stream_id"] = ms + "-99999"
		again, _ := json.Marshal(row)
		return append(all, again, []byte(`{"type":"resume_complete","replayed":20011,"more":false,"last_id":"`+ms+`-99999"}`))
	})
	bob.listen(t) // a poll takes no more than it asked for
	require.True(t, flooded)
	require.Equal(t, []string{"pay once"}, bob.texts())
}

// What the relay refuses of what is due, such as a reset of a direct room, ends neither Listen nor
// what waits to be sent.
func TestARefusedRepairEndsNothing(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	l := newLiar(t, w.relay.URL())
	robot := w.agentAt(t, l.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "hello")
	bob.poll(t)
	require.NoError(t, robot.Store().Update(func(tx *keystore.Tx) error {
		return tx.Put(keystore.Sessions, "ratchet/"+room, []byte("damaged"))
	}))
	var refused atomic.Int64
	l.tell(func(request *http.Request, status int, body []byte) (int, []byte) {
		if strings.HasSuffix(request.URL.Path, "/reset") {
			refused.Add(1)
			return http.StatusConflict, []byte(`{"error":"room_archived","detail":"no"}`)
		}
		return status, body
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- bob.Listen(ctx, bob.take) }()
	require.Eventually(t, func() bool { return refused.Load() > 0 }, sessionPatience, time.Millisecond)
	select {
	case err := <-ended:
		t.Fatalf("Listen ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	require.NoError(t, <-ended)
	require.LessOrEqual(t, refused.Load(), int64(2))
	bob.poll(t)
	_, err := bob.Send(t.Context(), client.Draft{Text: "x"})
	require.Error(t, err)
}

// A device that is closed ends what its sessions do.
func TestAClosedDeviceEndsListen(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	s := open(t, robot, w.room(t, client.NewRoom{}, robot))
	var once sync.Once
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	options := client.ListenOptions{CaughtUp: func() { once.Do(func() { close(caughtUp) }) }}
	go func() { ended <- s.ListenWith(t.Context(), options, s.take) }()
	<-caughtUp
	require.NoError(t, robot.Close())
	p.cut()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, keystore.ErrClosed)
	case <-time.After(sessionPatience):
		t.Fatal("it goes on")
	}
}

// An id of one draft is never that of a part of another one.
func TestIDsOfDraftsAreApart(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	file := &client.File{Name: "a", MIMEType: "x/y", Data: []byte("small")}
	_, err := alice.Send(t.Context(), client.Draft{ID: "job", Text: "one", File: file})
	require.NoError(t, err)
	sent, err := alice.Send(t.Context(), client.Draft{ID: "job.1", Text: "two"})
	require.NoError(t, err)
	require.False(t, sent.Already)
	bob.poll(t)
	require.Equal(t, []string{"one", "", "two"}, bob.texts())
}

// begun is a file without its last chunk.
func begun(t *testing.T, data []byte) (file, last []*content.Chunk) {
	t.Helper()
	parts, err := content.Split(&content.File{Name: "a", MIMEType: "x/y", Data: data})
	require.NoError(t, err)
	for _, part := range parts {
		c, ok := part.(*content.Chunk)
		require.True(t, ok)
		file = append(file, c)
	}
	return file[:len(file)-1], file[len(file)-1:]
}

// Files that never come whole, of however many senders in however many rooms, leave room for
// everything else, and those of who sends less stay.
func TestFilesThatNeverComeWhole(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room, other := w.room(t, client.NewRoom{}, robot), w.room(t, client.NewRoom{}, robot)
	alice, bob, elsewhere := open(t, w.admin, room), open(t, robot, room), open(t, robot, other)
	data := make([]byte, client.MaxFile)
	small, last := begun(t, data[:10*content.ChunkSize])
	require.NoError(t, bob.Chunks(alice.Participant(), small...))
	for n := range 9 {
		s := bob
		if n%2 == 0 {
			s = elsewhere
		}
		file, _ := begun(t, data)
		from := fmt.Sprintf("018f6b1e-7f2a-7c3d-9a10-%012x", n/3)
		for part := range slices.Chunk(file, 100) {
			require.NoError(t, s.Chunks(from, part...))
		}
	}
	bytes, kept := 0, 0
	require.NoError(t, robot.Store().View(func(tx *keystore.Tx) error {
		for key, value := range tx.All(keystore.Messages, "") {
			bytes += len(value)
			if strings.Contains(key, "chunk/"+alice.Participant()) {
				kept++
			}
		}
		return nil
	}))
	require.Less(t, bytes, client.MaxArrivingBytes+1<<20)
	require.Greater(t, bytes, client.MaxArrivingBytes-client.MaxFile*3/2)
	require.Equal(t, len(small), kept)
	require.NoError(t, bob.Chunks(alice.Participant(), last...))
	say(t, alice, "still here")
	for _, s := range []*talker{bob, elsewhere} {
		s.poll(t)
		require.NotEmpty(t, s.failures(), "what is given up is told")
		require.ErrorIs(t, s.failures()[0].Err, content.ErrFile)
	}
	require.Equal(t, []string{"still here"}, bob.texts())
}

// A member that sends messages whose key nobody has takes the place of its own, not of others',
// and fills no store, in however many rooms.
func TestWhatWaitsForKeysOfOthers(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	bob := open(t, robot, w.room(t, client.NewRoom{}, robot))
	elsewhere := open(t, robot, w.room(t, client.NewRoom{}, robot))
	const few, flood, more = "018f6b1e-7f2a-7c3d-9a10-000000000001", "018f6b1e-7f2a-7c3d-9a10-000000000002", "018f6b1e-7f2a-7c3d-9a10-000000000003"
	require.NoError(t, bob.KeepPending(few, 3, 100))
	require.NoError(t, bob.KeepPending(flood, client.MaxPending+20, 100))
	for from, want := range map[string]int{few: 3, flood: client.MaxPending - 3} {
		n, _, err := bob.PendingOf(from)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.NoError(t, robot.Store().View(func(tx *keystore.Tx) error {
		require.Len(t, tx.Keys(keystore.Messages, bob.Room()+"/item/"), 23, "what is given up is told")
		return nil
	}))
	require.NoError(t, elsewhere.KeepPending(more, 100, 4*wire.MaxMessage))
	_, bytes, err := bob.PendingOf(more)
	require.NoError(t, err)
	require.Less(t, bytes, client.MaxPendingBytes)
	require.Greater(t, bytes, client.MaxPendingBytes/2)
	for from, want := range map[string]int{few: 3, flood: client.MaxPending - 3} {
		n, _, err := bob.PendingOf(from)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// A relay that is always too busy for what waits keeps nobody from reading.
func TestARelayThatIsAlwaysTooBusy(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, bob, "before")
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.onUp(func(message []byte) (bool, []byte) {
		if id, kind := envelopeOf(message); kind == "message" {
			p.afterAnswer(giveUp)
			return false, nackOf(id, wire.RateLimited)
		}
		return true, nil
	})
	_, err := bob.Send(ctx, client.Draft{Text: "late", ID: "late"})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	say(t, alice, "read this")
	frames := p.frames.Load()
	_, err = bob.Poll(t.Context(), 0, bob.take)
	require.ErrorIs(t, err, client.ErrNoVerdict)
	require.ErrorIs(t, err, &wire.Error{Code: wire.RateLimited})
	require.Less(t, p.frames.Load()-frames, int64(20))
	require.Equal(t, []string{"read this"}, bob.texts())
	p.onUp(nil)
	bob.poll(t)
	alice.poll(t)
	require.Equal(t, []string{"before", "late"}, alice.texts())
}

// Sends that are given up at any point, over connections that are cut at any point, beside a
// Listen: each message is shown once at most, those that were reported as sent are, and the
// session goes on.
func TestGivenUpAtAnyPoint(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	bob.listen(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var sent []string
	for n := range 4 {
		wait.Go(func() {
			for m := range 12 {
				text := fmt.Sprintf("%d.%d", n, m)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(60))*time.Millisecond)
				_, err := bob.Send(ctx, client.Draft{Text: text})
				cancel()
				if err == nil {
					mu.Lock()
					sent = append(sent, text)
					mu.Unlock()
				}
				if m%4 == n {
					p.cut()
				}
			}
		})
	}
	wait.Wait()
	repeat(t, func() bool {
		_, err := bob.Send(t.Context(), client.Draft{Text: "last", ID: "last"})
		pending, pendingErr := bob.Pending()
		return err == nil && pendingErr == nil && len(pending) == 0
	})
	repeat(t, func() bool {
		alice.poll(t)
		return slices.Contains(alice.texts(), "last")
	})
	got := alice.texts()
	slices.Sort(got)
	require.Equal(t, slices.Compact(slices.Clone(got)), got, "each once")
	require.Subset(t, got, sent)
	require.Empty(t, alice.failures())
	require.Empty(t, bob.failures())
}
