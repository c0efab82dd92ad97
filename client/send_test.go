package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

func queued(id, to string, sequence int) string {
	return fmt.Sprintf(`{"type":"queued","id":%q,"stream_id":"7-%d","to":%q}`, id, sequence, to)
}

func envelope(id string) string { return fmt.Sprintf(`{"v":1,"id":%q}`, id) }

// sent is the outcome of a Send on another goroutine.
type sent struct {
	verdict client.Verdict
	err     error
}

func sendAside(t *testing.T, conn *client.Conn, envelope string, recipients int) <-chan sent {
	t.Helper()
	out := make(chan sent, 1)
	go func() {
		verdict, err := conn.Send(t.Context(), []byte(envelope), recipients)
		out <- sent{verdict, err}
	}()
	return out
}

func TestSendWaitsForEveryRecipientOfItsOwnEnvelope(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.send(queued("another", participant, 1), queued("m1", participant, 2), queued("m1", other, 3))
		p.gone()
	})
	verdict, err := conn.Send(t.Context(), []byte(envelope("m1")), 2)
	require.NoError(t, err)
	require.NoError(t, verdict.Err())
	require.Equal(t, client.Verdict{ID: "m1", Queued: []client.Receipt{
		{To: participant, StreamID: "7-2"}, {To: other, StreamID: "7-3"},
	}}, verdict)
	require.Equal(t, "another", receive(t, conn).ID, "an unrelated receipt completes nothing")
}

func TestSendIsCompleteWithTheFirstReceiptWhenRecipientsAreNotKnown(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		for i := range 400 { // more than Receive's queue holds
			id := fmt.Sprintf("m%d", i)
			p.expect(envelope(id))
			p.send(queued(id, participant, 2), queued(id, other, 3))
		}
		p.send(`{"type":"resume_complete","replayed":0}`)
		p.gone()
	})
	for i := range 400 {
		verdict, err := conn.Send(t.Context(), []byte(envelope(fmt.Sprintf("m%d", i))), 0)
		require.NoError(t, err)
		require.Equal(t, []client.Receipt{{To: participant, StreamID: "7-2"}}, verdict.Queued)
	}
	require.Equal(t, wire.ServerResumeComplete, receive(t, conn).Type, "the other receipts are dropped")
}

func TestNackNamesItsEnvelope(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.send(`{"type":"nack","id":"m0","reason":"partial"}`, `{"type":"nack","id":"m1","reason":"a_later_reason"}`)
		p.gone()
	})
	verdict, err := conn.Send(t.Context(), []byte(envelope("m1")), 3)
	require.NoError(t, err)
	var nack *client.NackError
	require.ErrorAs(t, verdict.Err(), &nack)
	require.Equal(t, client.NackError{ID: "m1", Reason: "a_later_reason"}, *nack)
	require.Equal(t, "m0", receive(t, conn).ID)
}

func TestNackWithoutIDRejectsAllThatWait(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		for range 2 {
			p.read()
		}
		p.send(`{"type":"nack","reason":"invalid_envelope"}`, `{"type":"nack","reason":"invalid_envelope"}`)
		p.gone()
	})
	first, second := sendAside(t, conn, envelope("m1"), 1), sendAside(t, conn, envelope("m2"), 0)
	for _, out := range []sent{<-first, <-second} {
		require.NoError(t, out.err)
		require.Equal(t, wire.InvalidEnvelope, out.verdict.Reason)
		require.Empty(t, out.verdict.Queued)
	}
	require.Equal(t, wire.ServerNack, receive(t, conn).Type, "with nothing waiting it is shown")
}

func TestMissingReceiptsTimeOut(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.send(queued("m1", participant, 2))
		p.gone()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := conn.Send(ctx, []byte(envelope("m1")), 2)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCloseEndsASend(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		p.send(`{"type":"nack","id":"m1","reason":"wrong_sender"}`)
		p.expect(envelope("m2"))
		p.close(wire.ClosePolicy, string(wire.WrongSender))
	})
	verdict, err := conn.Send(t.Context(), []byte(envelope("m1")), 1)
	require.NoError(t, err)
	require.Equal(t, wire.WrongSender, verdict.Reason)

	_, err = conn.Send(t.Context(), []byte(envelope("m2")), 1)
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, string(wire.WrongSender), closed.Reason)
}

func TestSendRefusesWhatItCouldNotCorrelate(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{})
	conn := greeted(t, func(p peer) {
		p.expect(envelope("m1"))
		close(waiting)
		p.gone()
	})
	for _, unreadable := range []string{`{"v":1}`, `{"id":7}`, `[1]`, `{"id":""}`, `{"ID":"a"}`} {
		_, err := conn.Send(t.Context(), []byte(unreadable), 1)
		require.ErrorIs(t, err, client.ErrNoID, unreadable)
	}
	first := sendAside(t, conn, envelope("m1"), 1)
	<-waiting
	_, err := conn.Send(t.Context(), []byte(envelope("m1")), 1)
	require.ErrorIs(t, err, client.ErrDuplicateID)
	require.NoError(t, conn.Close())
	require.ErrorIs(t, (<-first).err, client.ErrClosed)
}
