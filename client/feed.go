package client

import (
	"context"

	"github.com/peerrelay/peerrelay/wire"
)

// row is one row of an inbox, a deliver, board.update or room.event.
type row struct {
	frame wire.ServerFrame
	moves bool // the cursor may move to frame.StreamID once this row and those before were processed
}

// rowBatch is how many rows are processed together at most: those that are there already.
const rowBatch = 32

// pollRows is how many rows a poll takes (RELAY: "a bounded poll may stop after 100 replay rows").
const pollRows = 100

// page resumes after cursor and hands over up to limit replay rows, in batches and in order. It
// returns when the replay is complete, with whether more is retained behind it. gap is told of
// resync_required, before the rows. Live rows are left to a later resume. A relay without the
// replay marker is read as RELAY says: nothing is handed over before resume_complete.
func (c *Conn) page(ctx context.Context, cursor string, limit int, gap func(oldest string) error, rows func([]row) error) (more bool, err error) {
	panic("contract")
}

// follow resumes after cursor() and hands over rows, replayed and live, in batches as they are
// there, until the connection or ctx ends. Now and then it resumes again, so that what came
// live comes as replay too and the cursor moves. caughtUp is told of the first
// resume_complete. cursor is asked before each resume.
func (c *Conn) follow(ctx context.Context, cursor func() string, gap func(oldest string) error, caughtUp func() error, rows func([]row) error) error {
	panic("contract")
}

// SendAll sends a batch in its order and waits for all verdicts. It succeeds only when queued
// names every envelope for all of its recipients; a nack for one of them, or one without id,
// rejects the batch (*NackError), receipts of others complete nothing, and those that do not
// come in time are ErrNoVerdict. verdicts are those that came, by id, also with an error: what
// is queued stays queued.
func (c *Conn) SendAll(ctx context.Context, batch []Outgoing) (verdicts map[string]Verdict, err error) {
	panic("contract")
}

// Outgoing is an envelope of a batch.
type Outgoing struct {
	Envelope   []byte // sent exactly as it is
	Recipients int    // receipts that complete it; 0: the first one does
}
