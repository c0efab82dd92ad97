package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// maxLine bounds one line of input. It is more than the relay accepts, so that
// its refusal of oversize messages can be seen.
const maxLine = 1 << 20

type rawSendCommand struct {
	connection
	File       string        `arg:"" optional:"" default:"-" help:"File of envelopes, one JSON object a line, sent byte for byte; - is standard input."`
	Count      int           `placeholder:"N" help:"Send N test envelopes instead of a file."`
	To         string        `default:"room" help:"Recipient of test envelopes: a participant id, or room."`
	Kind       string        `default:"message" enum:"message,notice,senderkey,control,key_request" help:"Kind of test envelopes."`
	Size       int           `default:"1024" help:"Size of a whole test envelope in bytes."`
	Gen        *uint64       `placeholder:"GEN" help:"Generation of test envelopes; without it 0, or a new one where the room's keys of before are retired."`
	Rate       float64       `default:"18" help:"Envelopes per second, 0 for no pacing; the relay allows 20."`
	Recipients int           `placeholder:"N" help:"Receipts to wait for per envelope to the room; 0 waits for the first and takes what follows at once."`
	Timeout    time.Duration `default:"10s" help:"How long to wait for verdicts after the last envelope."`
	JSON       bool          `help:"One JSON object per verdict."`
}

// Help is kong's long text of the command.
func (*rawSendCommand) Help() string {
	return `Prints one line for each verdict: a receipt per recipient, or one refusal. Exit code 1 says that an envelope was
refused or got no answer.

Where somebody left a room of sender keys, or it was reset, test envelopes are sent under a new generation, which is allocated
with a random key. Envelopes of a file are sent as they are: theirs has to be allocated first.

Examples:
  peer raw send --credential-file alice.cred --count 10 --to room --json
  peer raw send --home alice --room ROOM_ID --count 3
  peer raw send --credential-file alice.cred envelopes.jsonl`
}

// line is one verdict as it is printed.
type line struct {
	Verdict  string    `json:"verdict"` // queued, nack or none
	ID       string    `json:"id"`      // empty when the relay could not read it
	To       string    `json:"to,omitempty"`
	StreamID string    `json:"stream_id,omitempty"`
	Reason   wire.Code `json:"reason,omitempty"`
}

// Run sends everything, then waits for what is still unanswered.
func (c *rawSendCommand) Run(ctx context.Context, con console) error {
	if c.Count < 0 || c.Rate < 0 || c.Recipients < 0 {
		return usageError{"--count, --rate and --recipients are not negative"}
	}
	if c.Count > 0 && c.File != "-" {
		return usageError{"--count makes test envelopes: it does not go with a file"}
	}
	if c.Count > 0 {
		if err := checkSize(c.Size); err != nil {
			return err
		}
	}
	next, closeInput, err := c.input(con)
	if err != nil {
		return err
	}
	defer closeInput()
	dialer, err := c.dialer(con)
	if err != nil {
		return err
	}
	defer dialer.close()
	room, err := c.once(ctx, con, dialer, next)
	if !errors.Is(err, errNoGeneration) {
		return err
	}
	made, err := dialer.allocate(ctx, room)
	if err == nil {
		con.notef("somebody left the room, or it was reset: sending under new generation %d", made.Gen)
	} else {
		con.notef("%v", err) // and the refusals are what is printed
	}
	c.Gen = &made.Gen
	_, err = c.once(ctx, con, dialer, c.testEnvelopes())
	return err
}

// errNoGeneration says that the generation of the first envelope was refused, and nothing sent.
var errNoGeneration = errors.New("the room takes nothing under the generation of before")

// once sends everything over one connection, and names its room.
func (c *rawSendCommand) once(ctx context.Context, con console, dialer *dialer, next source) (room string, err error) {
	conn, err := dialer.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.SessionID(), newSending(c, conn, con).run(ctx, next)
}

// source returns the next envelope, io.EOF after the last one.
type source func(conn *client.Conn) ([]byte, error)

func (c *rawSendCommand) input(con console) (source, func(), error) {
	if c.Count > 0 {
		return c.testEnvelopes(), func() {}, nil
	}
	if c.File == "-" {
		if c.CredentialFile == "-" {
			return nil, nil, usageError{"the credential and the envelopes cannot both come from standard input"}
		}
		if interactive(con.in) {
			con.notef("reading envelopes from standard input, one JSON object a line; Ctrl-D ends it")
		}
		return lines(con.in), func() {}, nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, nil, fmt.Errorf("open the envelopes: %w", err)
	}
	return lines(file), func() { _ = file.Close() }, nil
}

// interactive reports whether in is most likely a terminal, where nothing comes
// before somebody types it.
func interactive(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

func (c *rawSendCommand) testEnvelopes() source {
	made, gen := 0, uint64(0)
	if c.Gen != nil {
		gen = *c.Gen
	}
	return func(conn *client.Conn) ([]byte, error) {
		if made == c.Count {
			return nil, io.EOF
		}
		made++
		return newEnvelope(conn.SessionID(), conn.ParticipantID(), recipient(c.To, conn), c.Kind,
			gen, uint64(made), c.Size, time.Now())
	}
}

// lines splits the input at line feeds; empty lines are left out, and nothing
// else is changed.
func lines(in io.Reader) source {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	scanner.Split(splitLines)
	return func(*client.Conn) ([]byte, error) {
		for scanner.Scan() {
			if len(bytes.TrimSpace(scanner.Bytes())) > 0 {
				return bytes.Clone(scanner.Bytes()), nil
			}
		}
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("read the envelopes: %w", err)
		}
		return nil, io.EOF
	}
}

// splitLines is bufio.ScanLines without its removal of carriage returns.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// sending is one run of peer raw send.
type sending struct {
	command *rawSendCommand
	conn    *client.Conn
	con     console
	pace    *rate.Limiter

	sent     map[string]bool // ids of this run
	receipts client.Receipts
	unnamed  int // lines sent whose id could not be read and that were not refused yet
	total    int
	refused  int
}

func newSending(c *rawSendCommand, conn *client.Conn, con console) *sending {
	limit := rate.Inf
	if c.Rate > 0 {
		limit = rate.Limit(c.Rate)
	}
	return &sending{
		command: c, conn: conn, con: con,
		pace: rate.NewLimiter(limit, 1),
		sent: make(map[string]bool),
	}
}

func (s *sending) run(ctx context.Context, next source) error {
	err := s.sendAll(ctx, next)
	if err == nil {
		err = s.drain(ctx)
	}
	if errors.Is(err, errNoGeneration) {
		return err
	}
	return s.finish(err)
}

func (s *sending) sendAll(ctx context.Context, next source) error {
	for {
		envelope, err := next(s.conn)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.readWhilePacing(ctx); err != nil {
			return err
		}
		if err := s.send(ctx, envelope); err != nil {
			return err
		}
		if s.first() && s.command.Count > 1 { // alone, it is waited for at the end
			if err := s.answered(ctx); err != nil {
				return err
			}
		}
	}
}

// first reports whether one test envelope was sent, under a generation that nobody named: where
// it is refused all of them are made anew under another one.
func (s *sending) first() bool {
	return s.total == 1 && s.command.Count > 0 && s.command.Gen == nil
}

// noGeneration reports whether a refusal is one that a new generation mends.
func noGeneration(reason wire.Code) bool {
	return reason == wire.MLSRetired || reason == wire.MLSUnknown
}

// readWhilePacing prints verdicts until the next envelope may go out.
func (s *sending) readWhilePacing(ctx context.Context) error {
	reservation := s.pace.Reserve()
	until, cancel := context.WithTimeout(ctx, reservation.Delay())
	defer cancel()
	err := s.readUntil(until, func() bool { return false })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

// send writes one line. A line whose id cannot be read goes alone: its refusal
// will not name it, and would otherwise count for all that wait.
func (s *sending) send(ctx context.Context, envelope []byte) error {
	id, ok := client.EnvelopeID(envelope)
	if !ok || s.sent[id] {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	s.total++
	if !ok {
		s.unnamed++
		if err := s.conn.SendRaw(ctx, envelope); err != nil {
			return err
		}
		return s.drain(ctx)
	}
	s.sent[id] = true
	if err := s.receipts.Expect(id, s.command.Recipients); err != nil {
		return fmt.Errorf("envelope %q: %w", id, err)
	}
	return s.conn.SendRaw(ctx, envelope)
}

// settle is how long the other receipts of an envelope may take after its first
// one. The relay writes them together.
const settle = 250 * time.Millisecond

// drain reads until nothing is unanswered, or for the command's time-out, and what else comes at
// once.
func (s *sending) drain(ctx context.Context) error {
	if s.open() == 0 {
		return nil
	}
	if err := s.answered(ctx); err != nil || s.open() > 0 || s.command.Recipients > 0 {
		return err
	}
	rest, cancelRest := context.WithTimeout(ctx, settle)
	defer cancelRest()
	return ignoreTimeout(ctx, s.readUntil(rest, func() bool { return false }))
}

// answered reads until nothing is unanswered, or for the command's time-out.
func (s *sending) answered(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.command.Timeout)
	defer cancel()
	return ignoreTimeout(ctx, s.readUntil(waiting, func() bool { return s.open() == 0 }))
}

func (s *sending) open() int { return s.receipts.Waiting() + s.unnamed }

// ignoreTimeout keeps the errors that are not the end of an inner wait.
func ignoreTimeout(outer context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && outer.Err() == nil {
		return nil
	}
	return err
}

func (s *sending) readUntil(ctx context.Context, enough func() bool) error {
	for !enough() {
		frame, err := s.conn.Receive(ctx)
		if err != nil {
			return err
		}
		if err := s.frame(frame); err != nil {
			return err
		}
	}
	return nil
}

func (s *sending) frame(frame wire.ServerFrame) error {
	switch frame.Type {
	case wire.ServerQueued:
		return s.queued(frame)
	case wire.ServerNack:
		return s.nacked(frame)
	case wire.ServerError:
		s.con.notef("the relay reports %s: %s", frame.Reason, frame.Detail)
		if s.unnamed > 0 { // the line was a control frame, not an envelope
			s.unnamed--
			s.refused++
			return s.print(line{Verdict: "nack", Reason: frame.Reason})
		}
	default:
	}
	return nil
}

func (s *sending) queued(frame wire.ServerFrame) error {
	if !s.sent[frame.ID] {
		return nil // not ours: it completes nothing
	}
	receipt := client.Receipt{To: frame.To, StreamID: frame.StreamID}
	s.receipts.Queued(frame.ID, receipt)
	return s.print(line{Verdict: "queued", ID: frame.ID, To: receipt.To, StreamID: receipt.StreamID})
}

func (s *sending) nacked(frame wire.ServerFrame) error {
	if frame.ID == "" && s.unnamed > 0 {
		s.unnamed--
		s.refused++
		return s.print(line{Verdict: "nack", Reason: frame.Reason})
	}
	if s.first() && noGeneration(frame.Reason) {
		return errNoGeneration
	}
	for _, verdict := range s.receipts.Nacked(frame.ID, frame.Reason) {
		s.refused++
		if err := s.print(line{Verdict: "nack", ID: verdict.ID, Reason: verdict.Reason}); err != nil {
			return err
		}
	}
	return nil
}

// finish prints what got no answer and says how it went.
func (s *sending) finish(cause error) error {
	unanswered := s.open()
	for id := range s.sent {
		if s.receipts.Forget(id) {
			if err := s.print(line{Verdict: "none", ID: id}); err != nil {
				return err
			}
		}
	}
	for ; s.unnamed > 0; s.unnamed-- {
		if err := s.print(line{Verdict: "none"}); err != nil {
			return err
		}
	}
	if cause == nil && s.refused+unanswered > 0 {
		return fmt.Errorf("%d sent, %d refused, %d without an answer", s.total, s.refused, unanswered)
	}
	if _, wrong := errors.AsType[usageError](cause); wrong {
		return cause
	}
	if cause != nil {
		return fmt.Errorf("%d sent, %d refused, %d without an answer: %w", s.total, s.refused, unanswered, cause)
	}
	if !s.command.JSON {
		s.con.notef("%d sent, all queued", s.total)
	}
	return nil
}

func (s *sending) print(l line) error {
	if s.command.JSON {
		return json.NewEncoder(s.con.out).Encode(l)
	}
	var err error
	switch l.Verdict {
	case "queued":
		_, err = fmt.Fprintf(s.con.out, "queued  %s  for %s as %s\n", l.ID, l.To, l.StreamID)
	case "nack":
		_, err = fmt.Fprintf(s.con.out, "refused %s  %s%s\n", orUnnamed(l.ID), l.Reason, explain(l.Reason))
	default:
		_, err = fmt.Fprintf(s.con.out, "no answer for %s\n", orUnnamed(l.ID))
	}
	return err
}

func orUnnamed(id string) string {
	if id == "" {
		return "(no id)"
	}
	return id
}

// explain adds what the protocol's table says of a code.
func explain(code wire.Code) string {
	if info, ok := wire.Lookup(code); ok {
		return ": " + info.Text
	}
	return ""
}
