package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

func batchOf(recipients int, ids ...string) (batch []client.Outgoing) {
	for _, id := range ids {
		batch = append(batch, client.Outgoing{Envelope: []byte(envelope(id)), Recipients: recipients})
	}
	return batch
}

// clocked is greeted with a clock of the test.
func clocked(t *testing.T, script func(p peer)) (*client.Conn, *clockwork.FakeClock) {
	t.Helper()
	clock := clockwork.NewFakeClock()
	url := serve(t, func(p peer) {
		p.expect(`{"type":"hello","token":"secret","direct":false}`)
		p.send(welcome)
		script(p)
	})
	conn, err := client.Dial(t.Context(), url, client.Options{Token: "secret", Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, clock
}

func nack(id string, reason wire.Code) string {
	if id == "" {
		return fmt.Sprintf(`{"type":"nack","reason":%q}`, reason)
	}
	return fmt.Sprintf(`{"type":"nack","id":%q,"reason":%q}`, id, reason)
}

func TestABatchIsCompleteWhenQueuedNamesEveryEnvelopeForEveryRecipient(t *testing.T) {
	t.Parallel()
	last := make(chan struct{})
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.expect(envelope("m2"))
		p.send(queued("another", participant, 1), queued("m2", participant, 2), queued("m1", participant, 3),
			queued("m1", participant, 3), // says nothing of the other recipient
			queued("m2", other, 4))
		<-last
		p.send(queued("m1", other, 5))
		p.gone()
	})
	done := make(chan error, 1)
	var verdicts map[string]client.Verdict
	go func() {
		var err error
		verdicts, err = conn.SendAll(t.Context(), batchOf(2, "m1", "m2"))
		done <- err
	}()
	require.Equal(t, "another", receive(t, conn).ID, "an unrelated receipt completes nothing")
	select {
	case err := <-done:
		t.Fatalf("complete without the last receipt: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(last)
	require.NoError(t, <-done)
	require.Equal(t, map[string]client.Verdict{
		"m1": {ID: "m1", Queued: []client.Receipt{{To: participant, StreamID: "7-3"}, {To: other, StreamID: "7-5"}}},
		"m2": {ID: "m2", Queued: []client.Receipt{{To: participant, StreamID: "7-2"}, {To: other, StreamID: "7-4"}}},
	}, verdicts)
	none, err := conn.SendAll(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// A nack for an envelope of the batch rejects it; what was queued stays queued.
func TestANackRejectsTheBatch(t *testing.T) {
	t.Parallel()
	for _, reason := range []wire.Code{wire.HistoryConflict, wire.Partial, "a_later_reason"} {
		conn := greeted(t, func(p peer) {
			p.expect(envelope("m1"))
			p.expect(envelope("m2"))
			p.expect(envelope("m3"))
			p.send(queued("m1", participant, 1), nack("m2", reason), queued("m3", participant, 2))
			p.gone()
		})
		verdicts, err := conn.SendAll(t.Context(), batchOf(1, "m1", "m2", "m3"))
		var refused *client.NackError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, client.NackError{ID: "m2", Reason: reason}, *refused)
		require.ErrorIs(t, err, &wire.Error{Code: reason})
		require.Len(t, verdicts, 3)
		require.NoError(t, verdictErr(verdicts, "m1"))
		require.NoError(t, verdictErr(verdicts, "m3"), "it was waited for")
	}
}

func verdictErr(verdicts map[string]client.Verdict, id string) error {
	verdict := verdicts[id]
	return verdict.Err()
}

func TestANackWithoutIDRejectsTheWholeBatch(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.expect(envelope("m2"))
		p.send(queued("m1", participant, 1), nack("", wire.InvalidEnvelope))
		p.gone()
	})
	verdicts, err := conn.SendAll(t.Context(), batchOf(1, "m1", "m2"))
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidEnvelope})
	require.NoError(t, verdictErr(verdicts, "m1"))
	require.Error(t, verdictErr(verdicts, "m2"))
}

// What stands behind a refused envelope and was not written yet is not written.
func TestNothingIsSentBehindARefusal(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 4)
	refused := make(chan struct{})
	conn := greeted(t, func(p peer) {
		defer close(seen)
		p.ws.SetReadLimit(-1)
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			id, _ := client.EnvelopeID(got)
			seen <- id
			if id == "m1" {
				p.send(nack("m1", wire.WrongSender), `{"type":"x"}`)
				<-refused // meanwhile m2 waits for room in the sockets' buffers
				continue
			}
			if p.ws.Write(p.ctx, websocket.MessageText, []byte(queued(id, participant, 2))) != nil {
				return
			}
		}
	})
	batch := append(batchOf(1, "m1"), client.Outgoing{Envelope: []byte(`{"id":"m2","ct":"` + strings.Repeat("x", 5<<20) + `"}`)})
	go func() {
		_, _ = conn.Receive(t.Context()) // what came behind the nack
		close(refused)
	}()
	verdicts, err := conn.SendAll(t.Context(), append(batch, batchOf(1, "m3")...))
	require.ErrorIs(t, err, &wire.Error{Code: wire.WrongSender})
	require.NoError(t, verdictErr(verdicts, "m2"))
	require.NoError(t, conn.Close())
	var got []string
	for id := range seen {
		got = append(got, id)
	}
	require.Equal(t, list("m1 m2")[:len(verdicts)], got, "what was written was waited for, and m3 was not")
}

func TestAbsentReceiptsTimeOut(t *testing.T) {
	t.Parallel()
	conn, clock := clocked(t, func(p peer) {
		p.expect(envelope("m1"))
		p.expect(envelope("m2"))
		p.send(queued("m2", participant, 1), queued("m1", participant, 2))
		p.gone()
	})
	done := make(chan error, 1)
	var verdicts map[string]client.Verdict
	go func() {
		var err error
		verdicts, err = conn.SendAll(t.Context(), []client.Outgoing{batchOf(2, "m1")[0], batchOf(1, "m2")[0]})
		done <- err
	}()
	until(t, clock, client.ReceiptTimeout, done, func(err error) {
		require.ErrorIs(t, err, client.ErrNoVerdict)
		require.NotContains(t, verdicts, "m1", "one of its two receipts came")
	})
}

// until lets time pass until there is a result. Without that it would never come.
func until(t *testing.T, clock *clockwork.FakeClock, step time.Duration, done <-chan error, check func(err error)) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("it ended before the time was over: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	for began := time.Now(); time.Since(began) < patience; {
		clock.Advance(step)
		select {
		case err := <-done:
			check(err)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("it does not end")
}

func TestTheEndOfAConnectionIsNoVerdict(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.expect(envelope("m2"))
		p.send(queued("m1", participant, 1))
		p.close(wire.CloseGoingAway, wire.ReasonShutdown)
	})
	verdicts, err := conn.SendAll(t.Context(), batchOf(1, "m1", "m2"))
	require.ErrorIs(t, err, client.ErrNoVerdict)
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, wire.CloseGoingAway, closed.Code)
	require.Len(t, verdicts, 1)
	_, err = conn.SendAll(t.Context(), batchOf(1, "m3"))
	require.ErrorIs(t, err, client.ErrNoVerdict)
	require.ErrorAs(t, err, &closed)
}

func TestTheEndOfAContextIsNoVerdict(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		close(got)
		p.expect(envelope("m2"))
		p.send(queued("m1", participant, 1), queued("m2", participant, 1))
		p.gone()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-got
		cancel()
	}()
	_, err := conn.SendAll(ctx, batchOf(1, "m1"))
	require.ErrorIs(t, err, client.ErrNoVerdict)
	require.ErrorIs(t, err, context.Canceled)
	_, err = conn.SendAll(t.Context(), batchOf(1, "m2"))
	require.NoError(t, err, "the connection is not harmed")
}

// An envelope goes out once over one connection, whatever became of it (RELAY, "they must go
// out on a NEW connection").
func TestNoEnvelopeIsSentTwiceOverOneConnection(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.expect(envelope("m2"))
		p.send(queued("m1", participant, 1), nack("m2", wire.Partial))
		p.expect(envelope("m3"))
		p.send(queued("m3", participant, 1))
		p.gone()
	})
	_, err := conn.SendAll(t.Context(), batchOf(1, "m1", "m2"))
	require.ErrorIs(t, err, &wire.Error{Code: wire.Partial})
	for _, again := range []string{"m1", "m2"} {
		_, err = conn.SendAll(t.Context(), batchOf(1, "m4", again))
		require.ErrorIs(t, err, client.ErrResend)
	}
	_, err = conn.SendAll(t.Context(), batchOf(1, "m3", "m3"))
	require.ErrorIs(t, err, client.ErrDuplicateID)
	_, err = conn.SendAll(t.Context(), append(batchOf(1, "m3"), client.Outgoing{Envelope: []byte(`{"v":1}`)}))
	require.ErrorIs(t, err, client.ErrNoID)
	_, err = conn.SendAll(t.Context(), batchOf(1, "m3"))
	require.NoError(t, err, "a batch that was not sent left nothing behind")
}

// The relay has not looked at what it was too busy for; a program may send it once more.
func TestWhatTheRelayWasTooBusyForMayBeSentAgain(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.send(nack("m1", wire.RateLimited))
		p.expect(envelope("m1"))
		p.send(queued("m1", participant, 1))
		p.gone()
	})
	_, err := conn.SendAll(t.Context(), batchOf(1, "m1"))
	require.ErrorIs(t, err, &wire.Error{Code: wire.RateLimited})
	_, err = conn.SendAll(t.Context(), batchOf(1, "m1"))
	require.NoError(t, err)
	_, err = conn.SendAll(t.Context(), batchOf(1, "m1"))
	require.ErrorIs(t, err, client.ErrResend)
}

// Rows that nobody receives do not stand before receipts, whether they came before the send
// or after it.
func TestReceiptsComeThroughAConnectionThatNobodyReceivesFrom(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		came := make(chan struct{})
		conn := greeted(t, func(p peer) {
			rows := func() {
				for i := range 3 * client.ReceiveQueue {
					if p.ws.Write(p.ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"deliver","stream_id":"7-%d","replay":false,"envelope":{}}`, i)) != nil {
						return
					}
				}
			}
			if before {
				rows()
				close(came)
			}
			p.expect(envelope("m1"))
			if !before {
				rows()
			}
			p.send(queued("m1", participant, 1), queued("m1", other, 1))
			p.gone()
		})
		if before {
			<-came
		}
		_, err := conn.SendAll(t.Context(), batchOf(2, "m1"))
		require.NoError(t, err)
		for i := range client.ReceiveQueue {
			require.Equal(t, fmt.Sprintf("7-%d", i), receive(t, conn).StreamID)
		}
		_, err = conn.Receive(t.Context())
		require.ErrorIs(t, err, client.ErrOverrun, "what was dropped is not passed over in silence")
		require.True(t, client.Retryable(err))
	}
}

func TestARelayThatSaysNothingIsTakenForDead(t *testing.T) {
	t.Parallel()
	url := serve(t, func(p peer) {
		p.read()
		p.send(welcome)
		for range 4 { // pings keep it alive
			time.Sleep(150 * time.Millisecond) //nolint:forbidigo // the relay's silence is the test
			p.send(`{"type":"ping","id":"1"}`)
			p.read()
		}
		p.gone()
	})
	began := time.Now()
	conn, err := client.Dial(t.Context(), url, client.Options{Token: "secret", Silence: 500 * time.Millisecond})
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Receive(t.Context())
	require.ErrorIs(t, err, client.ErrSilent)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.True(t, client.Retryable(err))
}
