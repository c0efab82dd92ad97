package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	verdictTimeout = 10 * time.Second
	// sendEvery stays under the relay's limit of 20 envelopes a second.
	sendEvery = time.Second / 16
	bodySize  = 300 // bytes of what a real client would have encrypted
)

// participant is one member of the room and what it keeps on its own side: its
// credential, its cursor, and what it has sent without an answer so far.
type participant struct {
	name       string
	id         string
	credential string
	url        string
	room       string
	others     []string
	ledger     *ledger

	conn   *client.Conn
	cursor string // the last row of an ordered replay; a live push moves it nowhere
	seq    int    // rises over all connections: what is sent again keeps its own
	sent   int
	open   *outgoing // sent, and the connection broke before the verdict

	complete chan resumed  // one value for each resume_complete
	reading  chan struct{} // closed when the reader of conn has ended
}

type outgoing struct {
	id       string
	envelope []byte
}

// resumed is what a replay brought: all its rows, and those not seen before.
type resumed struct{ rows, fresh int }

// connect says hello and resumes from the cursor.
func (p *participant) connect(ctx context.Context) (resumed, error) {
	conn, err := client.Dial(ctx, p.url, client.Options{Token: p.credential})
	if err != nil {
		return resumed{}, fmt.Errorf("%s connects: %w", p.name, err)
	}
	p.conn = conn
	p.complete = make(chan resumed, 1)
	p.reading = make(chan struct{})
	go p.read(conn, p.complete, p.reading)
	return p.resume(ctx)
}

func (p *participant) resume(ctx context.Context) (resumed, error) {
	if err := p.conn.Resume(ctx, p.cursor, 0); err != nil {
		return resumed{}, fmt.Errorf("%s resumes: %w", p.name, err)
	}
	select {
	case result := <-p.complete:
		return result, nil
	case <-p.reading:
		return resumed{}, fmt.Errorf("%s resumes: the connection ended", p.name)
	case <-ctx.Done():
		return resumed{}, fmt.Errorf("%s resumes: %w", p.name, ctx.Err())
	}
}

// read takes what the relay sends until the connection ends.
func (p *participant) read(conn *client.Conn, complete chan<- resumed, done chan<- struct{}) {
	defer close(done)
	fresh := 0
	for {
		frame, err := conn.Receive(context.Background())
		if err != nil {
			return
		}
		switch frame.Type {
		case wire.ServerDeliver:
			replay := frame.Replay == wire.ReplayStored
			id, _ := client.EnvelopeID(frame.Envelope)
			if p.ledger.received(p.name, id, frame.Envelope, replay) && replay {
				fresh++
			}
			if replay {
				p.cursor = frame.StreamID
			}
		case wire.ServerResumeComplete:
			complete <- resumed{rows: frame.Replayed, fresh: fresh}
			fresh = 0
		default: // room events and the like are not what this is about
		}
	}
}

// disconnect replays once more, so that the cursor stands behind all that was seen,
// and says goodbye.
func (p *participant) disconnect(ctx context.Context) error {
	if _, err := p.resume(ctx); err != nil {
		return err
	}
	p.hangUp()
	return nil
}

// hangUp ends the connection and its reader, whatever state they are in.
func (p *participant) hangUp() {
	if p.conn == nil {
		return
	}
	_ = p.conn.Close() // the other side may be gone
	<-p.reading
	p.conn = nil
}

// send sends count envelopes to the room, slower than the rate limit. It stops early
// without an error when the connection breaks; p.open is then what had no verdict.
func (p *participant) send(ctx context.Context, count int) error {
	pace := time.NewTicker(sendEvery)
	defer pace.Stop()
	for range count {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		id := p.name + "-" + strconv.Itoa(p.sent+1)
		envelope, err := p.seal(id)
		if err != nil {
			return err
		}
		p.sent++
		if broken, err := p.submit(ctx, outgoing{id, envelope}); broken || err != nil {
			return err
		}
	}
	return nil
}

// resend finishes what a broken connection left open: the same bytes once more.
func (p *participant) resend(ctx context.Context) error {
	if p.open == nil {
		return nil
	}
	open := *p.open
	p.open = nil
	broken, err := p.submit(ctx, open)
	if broken {
		return fmt.Errorf("%s sends %s again: the connection broke", p.name, open.id)
	}
	return err
}

// submit sends one envelope and waits for its verdict.
func (p *participant) submit(ctx context.Context, out outgoing) (broken bool, err error) {
	p.ledger.sending(out.id, out.envelope, p.others)
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	verdict, err := p.conn.Send(ctx, out.envelope, len(p.others))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Errorf("%s got no verdict for %s", p.name, out.id)
	case err != nil: // the connection is gone; whether it was stored is not known
		p.open = &out
		return true, nil
	case verdict.Err() != nil:
		return false, fmt.Errorf("%s: %w", p.name, verdict.Err())
	}
	p.ledger.queued(out.id)
	return false, nil
}

// seal makes an envelope. Its body stands for a ciphertext: the relay cannot tell.
func (p *participant) seal(id string) ([]byte, error) {
	body := make([]byte, bodySize)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	p.seq++
	return json.Marshal(map[string]any{
		"v": wire.Version, "id": id, "session_id": p.room, "from": p.id, "to": p.room,
		"kind": wire.KindMessage.String(), "gen": 1, "seq": p.seq, "ts": time.Now().UnixMilli(),
		"nonce": base64.RawURLEncoding.EncodeToString(body[:24]),
		"ct":    base64.RawURLEncoding.EncodeToString(body),
		"sig":   base64.RawURLEncoding.EncodeToString(body[:64]),
	})
}
