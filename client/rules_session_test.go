package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// offline is an agent in a room of alice's, behind a proxy, with a folder it can be opened from again.
type offline struct {
	*talk

	proxy *proxy
	dir   string
	room  string
	robot *client.Device
	alice *talker
}

func newOffline(t *testing.T, others ...*client.Device) *offline {
	t.Helper()
	o := &offline{talk: newTalk(t), dir: filepath.Join(t.TempDir(), "device")}
	o.proxy = newProxy(t, o.relay)
	o.robot = o.agentAt(t, o.proxy.URL, o.dir, client.DeviceOptions{})
	o.room = o.talk.room(t, client.NewRoom{}, append(others, o.robot)...)
	o.alice = open(t, o.admin, o.room)
	return o
}

// again ends the agent's program and starts another one.
func (o *offline) again(t *testing.T) *talker {
	t.Helper()
	require.NoError(t, o.robot.Close())
	var err error
	o.robot, err = client.OpenDevice(o.dir, client.DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.robot.Close() })
	return open(t, o.robot, o.room)
}

// leavePending stores a message whose verdict is not known, and that never reached the relay.
func (o *offline) leavePending(t *testing.T, bob *talker, id string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		_, kind := envelopeOf(message)
		if kind == "message" {
			giveUp()
		}
		return kind != "message", nil
	})
	_, err := bob.Send(ctx, client.Draft{ID: id, Text: id})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Equal(t, []string{id}, pending)
}

// envelopes counts what the agent sends from now on.
func (o *offline) envelopes() (sent chan string) {
	sent = make(chan string, 256)
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		if id, kind := envelopeOf(message); kind != "" {
			sent <- kind + " " + id
		}
		return true, nil
	})
	return sent
}

// listenSlowly listens, and looks at the first message for as long as anything that runs beside
// it would need. It reports when everything was read, and what was sent until then.
func listenSlowly(t *testing.T, bob *talker, sent chan string) (early []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	var first, last sync.Once
	take := func(item client.Item) error {
		if item.Message != nil {
			first.Do(func() {
				select {
				case what := <-sent:
					early = append(early, what)
				case <-time.After(300 * time.Millisecond):
				}
			})
		}
		return bob.take(item)
	}
	options := client.ListenOptions{CaughtUp: func() { last.Do(func() { close(caughtUp) }) }}
	go func() { ended <- bob.ListenWith(ctx, options, take) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	select {
	case <-caughtUp:
	case <-time.After(sessionPatience):
		t.Fatal("the backlog has no end")
	}
	return early
}

// FAULTS I04: what a program left to be done, and what is due, waits until the backlog was read:
// the room was rekeyed three times meanwhile, and every message of each generation is opened, in
// order. The stored message, of a generation that is over, is refused by the relay and reported;
// it is not sent under keys that its writer did not know.
func TestWhatIsPendingFollowsTheBacklog(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "here")
	var leavers []client.Participant
	for range 3 {
		p, err := o.admin.AddMember(t.Context(), o.room, o.device(t, client.KindAgent).ID(), client.RoleAgent)
		require.NoError(t, err)
		leavers = append(leavers, p)
	}
	o.leavePending(t, bob, "of-before")
	require.NoError(t, o.robot.Close())
	var want []string
	for generation := range 4 {
		if generation > 0 {
			require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, leavers[generation-1].ParticipantID))
		}
		for n := range 20 {
			text := fmt.Sprint(generation, ".", n)
			say(t, o.alice, text)
			want = append(want, text)
		}
	}
	sent := o.envelopes()
	bob = o.again(t)
	require.Empty(t, listenSlowly(t, bob, sent), "sent before the backlog was read")
	require.Equal(t, want, bob.texts())
	require.Equal(t, "message of-before", <-sent)
	require.Eventually(t, func() bool { return len(bob.failures()) == 1 }, sessionPatience, 5*time.Millisecond)
	require.Equal(t, "of-before", bob.failures()[0].ID)
	require.ErrorIs(t, bob.failures()[0].Err, &wire.Error{Code: wire.MLSRetired})
	say(t, bob, "of the new generation")
	o.alice.poll(t)
	require.Equal(t, []string{"here", "of the new generation"}, o.alice.texts())
}

// FAULTS I04 where nobody left meanwhile: what was pending is sent, once, and a Poll that leaves
// rows behind does not send it either.
func TestPendingMessagesAreSentOnceTheBacklogWasRead(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	o.leavePending(t, bob, "of-before")
	for n := range 6 {
		say(t, o.alice, fmt.Sprint(n))
	}
	sent := o.envelopes()
	bob = o.again(t)
	for more := true; more; {
		var err error
		more, err = bob.Poll(t.Context(), 4, bob.take)
		require.NoError(t, err)
		require.Equal(t, !more, len(sent) > 0, "pending messages follow the backlog")
	}
	require.Len(t, bob.texts(), 6)
	bob.poll(t)
	o.alice.poll(t)
	require.Equal(t, []string{"of-before"}, o.alice.texts())
}

// FAULTS I04: what was pending for a room that this device is not in any more is not sent.
func TestNothingIsSentForARoomThatIsGone(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	o.leavePending(t, bob, "of-before")
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, bob.Participant()))
	sent := o.envelopes()
	require.NoError(t, o.robot.Close())
	robot, err := client.OpenDevice(o.dir, client.DeviceOptions{})
	require.NoError(t, err)
	defer robot.Close()
	_, err = robot.OpenSession(t.Context(), o.room)
	require.Error(t, err)
	require.False(t, client.Retryable(err))
	require.Empty(t, sent)
}

// FAULTS I08, RELAY "Clients deduplicate by event_id": events of a room and Board hints that come
// again, live, as replay and after a restart, are one item each, and change keys once.
func TestRepeatedEventsAreOne(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	other := o.device(t, client.KindAgent)
	p, err := o.admin.AddMember(t.Context(), o.room, other.ID(), client.RoleAgent)
	require.NoError(t, err)
	bob := open(t, o.robot, o.room)
	say(t, bob, "before")
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, p.ParticipantID))
	hint := `{"type":"board.update","stream_id":"9-%d","event_id":"01980000-0000-7000-8000-0000000000aa",` +
		`"card_id":"01980000-0000-7000-8000-0000000000bb","revision":7,"replay":false}`
	var mu sync.Mutex
	var kept [][]byte
	o.proxy.onDown(func(message []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		live := bytes.Replace(message, []byte(`"replay":true`), []byte(`"replay":false`), 1)
		switch {
		case bytes.Contains(message, []byte(`"room.event"`)):
			kept = append(kept, live)
			return [][]byte{message, live}
		case bytes.Contains(message, []byte(`"resume_complete"`)):
			again := [][]byte{fmt.Appendf(nil, hint, 1), fmt.Appendf(nil, hint, 2), fmt.Appendf(nil, hint, 3), message}
			for _, event := range kept {
				again = append(again, event, bytes.Replace(event, []byte(`"stream_id":"`), []byte(`"stream_id":"9`), 1))
			}
			return append(again, fmt.Appendf(nil, hint, 4))
		default:
			return [][]byte{message}
		}
	})
	count := make(map[string]int)
	counted := func(bob *talker) {
		bob.mu.Lock()
		defer bob.mu.Unlock()
		for _, item := range bob.items {
			switch {
			case item.Event != nil:
				count[string(item.Event.Event)+" "+item.Event.EventID]++
			case item.Board != nil:
				count["board "+item.Board.EventID]++
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bob.Listen(ctx, bob.take) }()
	bob.awaitItems(t, func(i client.Item) bool { return i.Event != nil && i.Event.Event == wire.MemberRemoved })
	bob.awaitItems(t, func(i client.Item) bool { return i.Board != nil })
	first := say(t, bob, "one")
	second := say(t, bob, "two")
	cancel()
	require.NoError(t, <-ended)
	counted(bob)
	bob = o.again(t)
	bob.listen(t)
	third := say(t, bob, "three")
	o.alice.poll(t)
	require.Equal(t, []string{"before", "one", "two", "three"}, o.alice.texts())
	counted(bob)
	require.Contains(t, count, "board 01980000-0000-7000-8000-0000000000aa")
	for event, times := range count {
		require.Equal(t, 1, times, event)
	}
	require.Greater(t, len(count), 2)
	gens := make(map[uint64]bool)
	for row, err := range o.admin.History(t.Context(), o.room, client.OldestFirst) {
		require.NoError(t, err)
		var e struct {
			ID  string `json:"id"`
			Gen uint64 `json:"gen"`
		}
		require.NoError(t, json.Unmarshal(row.Envelope, &e))
		if e.ID == first.IDs[0] || e.ID == second.IDs[0] || e.ID == third.IDs[0] {
			gens[e.Gen] = true
		}
	}
	require.Len(t, gens, 1, "events that come again are no reason for new keys")
}

func (r *talker) awaitItems(t *testing.T, is func(client.Item) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.items, is)
	}, sessionPatience, 5*time.Millisecond)
}

// FAULTS K03 through a session: a refusal that nobody knows, and one without id, refuse the send
// and are not repeated; an error frame changes nothing; the connection serves on.
func TestRefusalsThatASessionDoesNotKnow(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	bob.listen(t)
	say(t, bob, "before")
	for _, answer := range []struct {
		name, frame string
		code        wire.Code
		queued      bool
	}{
		{"a nack of a later relay", `{"type":"nack","id":"ID","reason":"a_later_reason"}`, "a_later_reason", false},
		{"a nack without id", `{"type":"nack","reason":"invalid_envelope"}`, wire.InvalidEnvelope, false},
		{"an error frame", `{"type":"error","reason":"unknown_frame","frame_type":"x","detail":"y"}`, "", true},
		{"a nack of another one's", `{"type":"nack","id":"another","reason":"partial"}`, "", true},
	} {
		times := 0
		o.proxy.onUp(func(message []byte) (bool, []byte) {
			id, kind := envelopeOf(message)
			if kind != "message" {
				return true, nil
			}
			times++
			return answer.queued, []byte(strings.Replace(answer.frame, "ID", id, 1))
		})
		_, err := bob.Send(t.Context(), client.Draft{Text: answer.name})
		if answer.queued {
			require.NoError(t, err, answer.name)
		} else {
			var refused *client.NackError
			require.ErrorAs(t, err, &refused, answer.name)
			require.Equal(t, answer.code, refused.Reason)
		}
		pending, err := bob.Pending()
		require.NoError(t, err)
		require.Empty(t, pending, answer.name)
		o.proxy.onUp(nil)
		say(t, bob, "after "+answer.name)
		require.Equal(t, 1, times, answer.name)
	}
	o.alice.poll(t)
	require.Equal(t, []string{
		"before", "after a nack of a later relay", "after a nack without id", "an error frame", "after an error frame",
		"a nack of another one's", "after a nack of another one's",
	}, o.alice.texts())
}

// RELAY "A client meeting an older relay without the marker", FAULTS K03: a session shows what
// comes without it, once, and goes on from there after a restart.
func TestASessionWithARelayWithoutTheMarker(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	var resumes []string
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		var frame struct{ Type, LastID string }
		var named map[string]any
		if json.Unmarshal(message, &named) == nil && named["type"] == "resume" {
			frame.LastID, _ = named["last_id"].(string)
			resumes = append(resumes, frame.LastID)
		}
		return true, nil
	})
	var newest string
	o.proxy.onDown(func(message []byte) [][]byte {
		var named map[string]any
		if json.Unmarshal(message, &named) == nil && named["replay"] == true {
			newest, _ = named["stream_id"].(string)
		}
		return [][]byte{bytes.Replace(bytes.Replace(message, []byte(`"replay":true,`), nil, 1), []byte(`"replay":false,`), nil, 1)}
	})
	say(t, o.alice, "one")
	say(t, o.alice, "two")
	bob.poll(t)
	require.Equal(t, []string{"one", "two"}, bob.texts())
	seen := newest
	require.NotEmpty(t, seen)
	bob = o.again(t)
	say(t, o.alice, "three")
	bob.poll(t)
	require.Equal(t, []string{"three"}, bob.texts())
	require.Contains(t, resumes, seen)
	require.Equal(t, "0", resumes[0])
}

// FAULTS J10 through a session: ten messages at once after somebody left are sent under one new
// generation, and messages of the former one that arrive late are still opened.
func TestTenSendsAreOneGeneration(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	other, err := o.admin.AddMember(t.Context(), o.room, o.device(t, client.KindAgent).ID(), client.RoleAgent)
	require.NoError(t, err)
	bob := open(t, o.robot, o.room)
	say(t, bob, "of the former key")
	o.alice.poll(t)
	late := say(t, o.alice, "late")
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, other.ParticipantID))
	var all sync.WaitGroup
	var failed atomic.Int64
	for n := range 10 {
		all.Go(func() {
			if _, err := bob.Send(t.Context(), client.Draft{Text: fmt.Sprint("at once ", n)}); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	require.Zero(t, failed.Load())
	say(t, o.alice, "of the next key")
	gens := make(map[string]map[uint64]bool)
	var kept []byte
	for row, err := range o.admin.History(t.Context(), o.room, client.OldestFirst) {
		require.NoError(t, err)
		var e struct {
			ID   string `json:"id"`
			From string `json:"from"`
			Gen  uint64 `json:"gen"`
		}
		require.NoError(t, json.Unmarshal(row.Envelope, &e))
		if gens[e.From] == nil {
			gens[e.From] = make(map[uint64]bool)
		}
		gens[e.From][e.Gen] = true
		if e.ID == late.IDs[0] {
			kept = row.Envelope
		}
	}
	require.Len(t, gens[bob.Participant()], 2, "before and after")
	o.proxy.onDown(func(message []byte) [][]byte {
		if bytes.Contains(message, []byte(late.IDs[0])) {
			return nil
		}
		return [][]byte{message}
	})
	bob.poll(t)
	require.Equal(t, []string{"of the next key"}, bob.texts())
	require.NoError(t, bob.Import(t.Context(), kept, bob.take))
	require.Equal(t, []string{"of the next key", "late"}, bob.texts())
	require.Empty(t, bob.failures())
	o.alice.poll(t)
	require.Len(t, o.alice.texts(), 11)
}

// RELAY, Client 0.2.9: session-addressed messages have sender-key encryption, also for viewers:
// they get the keys, read, and send nothing, not even where a key is missing.
func TestViewersGetSenderKeysAndRead(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	viewer := o.device(t, client.KindAgent)
	_, err := o.admin.AddMember(t.Context(), o.room, viewer.ID(), client.RoleViewer)
	require.NoError(t, err)
	bob, watcher := open(t, o.robot, o.room), open(t, viewer, o.room)
	o.alice.poll(t) // she hears of the viewer, who cannot ask for keys
	say(t, o.alice, "one")
	say(t, bob, "two")
	file := make([]byte, 100_000)
	_, _ = rand.Read(file)
	_, err = bob.Send(t.Context(), client.Draft{File: &client.File{Name: "a.bin", MIMEType: "application/octet-stream", Data: file}})
	require.NoError(t, err)
	watcher.poll(t)
	require.Len(t, watcher.messages(), 3)
	require.Equal(t, []string{"one", "two", ""}, watcher.texts())
	require.True(t, bytes.Equal(file, watcher.messages()[2].Files[0].Data))
	_, err = watcher.Send(t.Context(), client.Draft{Text: "x"})
	require.Error(t, err)
	require.Error(t, errors.Unwrap(err))
	watcher.poll(t) // its connection was not closed for what it sent
	require.Empty(t, watcher.failures())
}
