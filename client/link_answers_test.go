package client_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// relayAnswer is what a relay answers to an envelope, or to a resume.
type relayAnswer struct {
	name     string
	resume   []string // instead of resume_complete
	envelope []string
	close    *client.CloseError

	rejects  wire.Code // the batch is refused with this code
	verdict  bool      // the batch is queued, or refused
	stops    bool      // the link ends
	rows     string    // what the reader got
	giveUp   bool      // the replay is not accepted
	leastOff time.Duration
}

func relayAnswers() (answers []relayAnswer) {
	for _, code := range wire.Codes() {
		if code.Frame != "nack" {
			continue
		}
		a := relayAnswer{name: "nack " + string(code.Code), envelope: []string{nack("m1", code.Code)}, rejects: code.Code, verdict: true}
		if code.Close != 0 {
			a.close = &client.CloseError{Code: code.Close, Reason: string(code.Code)}
			a.stops = !a.close.Retryable()
		}
		answers = append(answers, a)
	}
	for _, known := range wire.Closes() {
		a := relayAnswer{name: "close " + known.Reason, close: &client.CloseError{Code: known.Code, Reason: known.Reason}, stops: !known.Again}
		switch known.Code {
		case wire.CloseFrozen:
			a.leastOff = client.FrozenPause
		case wire.CloseQuota:
			a.leastOff = client.FullPause
		default:
		}
		answers = append(answers, a)
	}
	for _, code := range wire.Codes() {
		if code.Frame == "error" {
			answers = append(answers, relayAnswer{
				name: "error " + string(code.Code), envelope: []string{refusal(code.Code), queued("m1", other, 1)}, verdict: true,
			})
		}
	}
	return append(answers,
		relayAnswer{name: "nack of a later relay", envelope: []string{nack("m1", "a_later_reason")}, rejects: "a_later_reason", verdict: true},
		relayAnswer{name: "nack without id", envelope: []string{nack("", wire.InvalidEnvelope)}, rejects: wire.InvalidEnvelope, verdict: true},
		relayAnswer{name: "receipts of others", envelope: []string{queued("m0", other, 1), nack("m2", wire.Partial)}},
		relayAnswer{name: "no answer"},
		relayAnswer{name: "a later close", close: &client.CloseError{Code: 4999, Reason: "of a later relay"}},
		relayAnswer{
			name: "resync_required", resume: []string{`{"type":"resync_required","oldest_id":"7-9"}`, deliver(9, "true"), complete(1, false)},
			envelope: []string{queued("m1", other, 1)}, verdict: true, rows: "9*",
		},
		relayAnswer{
			name: "deliver without replay", resume: []string{deliver(5, ""), deliver(7, ""), complete(1, false)},
			envelope: []string{queued("m1", other, 1)}, verdict: true, rows: "5* 7",
		},
		relayAnswer{name: "error invalid_cursor", resume: []string{refusal(wire.InvalidCursor)}, stops: true, giveUp: true},
		relayAnswer{name: "error resume_in_progress", resume: []string{refusal(wire.ResumeInProgress), complete(0, false)}, giveUp: true},
		relayAnswer{name: "a replay that falls", resume: []string{deliver(9, "true"), deliver(8, "true"), complete(2, false)}, giveUp: true, rows: "9*"},
	)
}

// answering is a relay that gives one answer, always, and counts what it is sent.
type answering struct {
	mu    sync.Mutex
	conns int
	sent  []map[string]int // envelopes by id, of each connection
}

func (a *answering) script(answer relayAnswer) func(n int, p peer) {
	return func(n int, p peer) {
		a.mu.Lock()
		a.conns++
		for len(a.sent) <= n {
			a.sent = append(a.sent, make(map[string]int))
		}
		a.mu.Unlock()
		p.send(welcome)
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			var frame wire.ClientFrame
			_ = wire.ParseClient(got, &frame)
			switch {
			case frame.Type == wire.FrameResume && answer.resume == nil:
				p.send(complete(0, false))
			case frame.Type == wire.FrameResume:
				p.send(answer.resume...)
			case frame.Type == wire.FrameEnvelope:
				a.mu.Lock()
				a.sent[n][string(frame.Envelope.ID)]++
				a.mu.Unlock()
				p.send(answer.envelope...)
				if answer.close != nil {
					p.close(answer.close.Code, answer.close.Reason)
					return
				}
			default:
			}
		}
	}
}

func (a *answering) check(t *testing.T, conns int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Equal(t, conns, a.conns)
	for _, sent := range a.sent {
		for id, times := range sent {
			require.Equal(t, 1, times, "envelope %s on one connection", id)
		}
	}
}

// FAULTS K03: whatever a relay answers, the client does not send an envelope again over the
// same connection, connects again only after a pause that is bounded and grows, and not at all
// where that would end the same way.
func TestAClientDoesNotLoopOnWhatARelayAnswers(t *testing.T) {
	t.Parallel()
	for _, answer := range relayAnswers() {
		t.Run(answer.name, func(t *testing.T) {
			t.Parallel()
			var relay answering
			clock := clockwork.NewFakeClock()
			link := client.NewLink(dialer(serveAll(t, relay.script(answer))), client.Retryable, clock)
			b := &stubborn{t: t, link: link, clock: clock, answer: answer, reader: newReader(t, "7-4"), lost: make(pauses)}
			b.rounds(&relay)
		})
	}
}

// stubborn is a program that listens and sends the same envelope again and again.
type stubborn struct {
	t      *testing.T
	link   client.Link
	clock  *clockwork.FakeClock
	answer relayAnswer
	reader *reader
	lost   pauses
	caught chan struct{}
}

func (b *stubborn) use(ctx context.Context, conn *client.Conn) error {
	return conn.Follow(ctx, func() string { return b.reader.cursor }, b.reader.gap, func() error {
		b.caught <- struct{}{}
		return nil
	}, b.reader.take)
}

func (b *stubborn) rounds(relay *answering) {
	t := b.t
	b.caught = make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.link.Run(ctx, b.use, b.lost.lost) }()

	const rounds = 5
	bound := client.FirstPause
	for round := 1; ; round++ {
		if !b.answer.giveUp {
			<-b.caught
			b.sendTwice()
		}
		if b.answer.stops {
			err := <-ended
			if b.answer.close != nil {
				require.Equal(t, b.answer.close, err)
			}
			require.Error(t, err)
			relay.check(t, 1)
			break
		}
		if b.answer.close == nil && !b.answer.giveUp {
			relay.check(t, 1) // the connection stays
			break
		}
		end := <-b.lost
		require.LessOrEqual(t, end.length, max(bound, 2*b.answer.leastOff))
		require.GreaterOrEqual(t, end.length, b.answer.leastOff)
		relay.check(t, round)
		if round == rounds {
			break
		}
		elapse(t, b.clock, end.length)
		bound *= 2
	}
	cancel()
	if !b.answer.stops {
		require.NoError(t, <-ended)
	}
	if b.answer.rows != "" {
		require.Equal(t, list(b.answer.rows), b.reader.rows[:len(list(b.answer.rows))])
	}
}

// sendTwice sends an envelope over the connection that is there, and once more.
func (b *stubborn) sendTwice() {
	t := b.t
	var running atomic.Pointer[client.Conn]
	done := make(chan error, 1)
	send := func() {
		done <- b.link.With(t.Context(), func(conn *client.Conn) error {
			running.Store(conn)
			verdicts, err := conn.SendAll(t.Context(), batchOf(1, "m1"))
			require.Equal(t, b.answer.verdict, len(verdicts) == 1)
			return err
		})
	}
	go send()
	check := func(err error) {
		switch {
		case b.answer.rejects != "":
			var refused *client.NackError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, b.answer.rejects, refused.Reason)
		case b.answer.verdict:
			require.NoError(t, err)
		default:
			require.ErrorIs(t, err, client.ErrNoVerdict)
		}
	}
	if b.answer.verdict || b.answer.close != nil {
		check(<-done)
	} else {
		until(t, b.clock, client.ReceiptTimeout, done, check)
	}
	if b.answer.rejects == wire.RateLimited {
		return // the program's to send again, after a pause
	}
	_, err := running.Load().SendAll(t.Context(), batchOf(1, "m1"))
	require.ErrorIs(t, err, client.ErrResend)
}
