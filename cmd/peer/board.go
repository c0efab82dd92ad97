package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// boardCommands are what a device does with a room's Board.
type boardCommands struct {
	List    boardListCommand    `cmd:"" help:"List the cards of a room's Board."`
	Show    boardShowCommand    `cmd:"" help:"Show a card, and all that happened to it."`
	Events  boardEventsCommand  `cmd:"" help:"Print what happened on a room's Board since this was asked last."`
	Create  boardCreateCommand  `cmd:"" help:"Make a card."`
	Update  boardUpdateCommand  `cmd:"" help:"Write a card's content anew."`
	Comment boardCommentCommand `cmd:"" help:"Comment on a card."`
	Choose  boardChooseCommand  `cmd:"" help:"Choose one of a card's options."`
	Approve boardApproveCommand `cmd:"" help:"Approve a card."`
	Reject  boardRejectCommand  `cmd:"" help:"Reject a card."`
	Close   boardCloseCommand   `cmd:"" help:"Close a card for good."`
}

// onBoard runs do with the device, for a room that may exist.
func (c roomCommand) onBoard(con console, do func(d *client.Device) error) error {
	if err := c.checkRoom(); err != nil {
		return err
	}
	return c.as(con, do)
}

// cardLine is a card as it is printed with --json.
type cardLine struct {
	CardID        string               `json:"card_id"`
	Kind          string               `json:"kind"`
	Revision      uint64               `json:"revision"`
	Closed        bool                 `json:"closed"`
	Author        string               `json:"author"` // participant
	CreatedAt     time.Time            `json:"created_at"`
	UpdatedAt     time.Time            `json:"updated_at"`
	Content       *client.BoardContent `json:"content,omitempty"`
	ContentEvent  string               `json:"content_event,omitempty"`
	ContentAuthor string               `json:"content_author,omitempty"`
	Error         string               `json:"error,omitempty"` // why there is no content
	Detail        string               `json:"detail,omitempty"`
}

func newCardLine(card *client.Card) cardLine {
	line := cardLine{
		CardID: card.CardID, Kind: string(card.Kind), Revision: card.Revision, Closed: card.Closed, Author: card.Author,
		CreatedAt: card.CreatedAt, UpdatedAt: card.UpdatedAt,
		Content: card.Content, ContentEvent: card.ContentEvent, ContentAuthor: card.ContentAuthor,
	}
	if card.Err != nil {
		line.Error, line.Detail = errorCode(card.Err), card.Err.Error()
	}
	return line
}

// subject is a card's subject, or why it is not known.
func (c *cardLine) subject() string {
	if c.Content == nil {
		return "(" + c.Detail + ")"
	}
	return c.Content.Subject
}

func (c *cardLine) state() string {
	if c.Closed {
		return "closed"
	}
	return "open"
}

// boardEventLine is an event as it is printed with --json.
type boardEventLine struct {
	Type      string               `json:"type"` // board_event
	Sequence  uint64               `json:"sequence"`
	EventID   string               `json:"event_id"`
	CardID    string               `json:"card_id"`
	Kind      string               `json:"kind"`
	Event     string               `json:"event"`
	Revision  uint64               `json:"revision"`
	Author    string               `json:"author"` // participant
	CreatedAt time.Time            `json:"created_at"`
	Basis     string               `json:"basis,omitempty"`
	Content   *client.BoardContent `json:"content,omitempty"`
	Error     string               `json:"error,omitempty"` // why there is no content
	Detail    string               `json:"detail,omitempty"`
}

func newBoardEventLine(e *client.BoardEvent) boardEventLine {
	line := boardEventLine{
		Type: "board_event", Sequence: e.Sequence, EventID: e.EventID, CardID: e.CardID, Kind: string(e.Kind), Event: string(e.Type),
		Revision: e.Revision, Author: e.Author, CreatedAt: e.CreatedAt, Basis: e.Basis, Content: e.Content,
	}
	if e.Err != nil {
		line.Error, line.Detail = errorCode(e.Err), e.Err.Error()
	}
	return line
}

type boardListCommand struct{ roomCommand }

// Help is kong's long text of the command.
func (*boardListCommand) Help() string {
	return "Example:\n  peer board list --home alice --room ROOM_ID"
}

// Run lists them.
func (c *boardListCommand) Run(ctx context.Context, con console) error {
	return c.onBoard(con, func(d *client.Device) error {
		found := []cardLine{}
		for card, err := range d.Cards(ctx, c.Room, client.OldestFirst) {
			if err != nil {
				return err
			}
			found = append(found, newCardLine(&card))
		}
		return c.show(con, map[string]any{"cards": found}, func(w io.Writer) {
			if len(found) == 0 {
				fmt.Fprintln(w, "There are no cards.")
				return
			}
			table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "CARD\tKIND\tSTATE\tREVISION\tSUBJECT")
			for i := range found {
				f := &found[i]
				fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", f.CardID, clean(f.Kind), f.state(), f.Revision, clean(f.subject()))
			}
			_ = table.Flush() // into a buffer
		})
	})
}

// cardCommand is a command on one card.
type cardCommand struct {
	roomCommand
	Card string `arg:"" help:"The card's id (peer board list)."`
}

type boardShowCommand struct{ cardCommand }

// Help is kong's long text of the command.
func (*boardShowCommand) Help() string {
	return "Example:\n  peer board show --home alice --room ROOM_ID CARD_ID"
}

// shownCard is a card with its events.
type shownCard struct {
	cardLine

	Events []boardEventLine `json:"events"`
}

// Run shows it.
func (c *boardShowCommand) Run(ctx context.Context, con console) error {
	return c.onBoard(con, func(d *client.Device) error {
		card, err := d.Card(ctx, c.Room, c.Card)
		if err != nil {
			return err
		}
		all := shownCard{newCardLine(&card), []boardEventLine{}}
		for event, err := range d.BoardEvents(ctx, c.Room, card.Sequence-1) {
			if err != nil {
				return err
			}
			if event.CardID == card.CardID {
				all.Events = append(all.Events, newBoardEventLine(&event))
			}
		}
		return c.show(con, all, all.tell)
	})
}

func (s *shownCard) tell(w io.Writer) {
	fmt.Fprintf(w, "%s, a %s, %s, revision %d\n", clean(s.subject()), clean(s.Kind), s.state(), s.Revision)
	if s.Content != nil {
		for _, line := range textLines(s.Content.Details) {
			fmt.Fprintln(w, margin+clean(line))
		}
		for _, option := range s.Content.Options {
			fmt.Fprintln(w, margin+"- "+clean(option))
		}
	}
	fmt.Fprintln(w)
	for i := range s.Events {
		s.Events[i].tell(w)
	}
}

// tell prints an event. Only its first line begins at the margin.
func (e *boardEventLine) tell(w io.Writer) {
	fmt.Fprintf(w, "%s  participant %s  %s", e.CreatedAt.Local().Format(minute), short(e.Author), clean(e.Event))
	switch c := e.Content; {
	case c == nil && e.Detail != "":
		fmt.Fprintf(w, "  (%s)", clean(e.Detail))
	case c != nil:
		for _, word := range []string{c.Subject, c.Option, c.Approval} {
			if word != "" {
				fmt.Fprint(w, "  "+clean(word))
			}
		}
		fmt.Fprintln(w)
		for _, line := range append(textLines(c.Details), textLines(c.Comment)...) {
			fmt.Fprintln(w, margin+clean(line))
		}
		return
	}
	fmt.Fprintln(w)
}

type boardEventsCommand struct {
	roomCommand
	All bool `help:"From the first event on, and as if this was not asked."`
}

// Help is kong's long text of the command.
func (*boardEventsCommand) Help() string {
	return `Each event is printed once: what was printed is remembered. peer listen only hints at what is here. With --json each line is an
object of type board_event.

Example:
  peer board events --home robot --room ROOM_ID --json`
}

// Run prints them.
func (c *boardEventsCommand) Run(ctx context.Context, con console) error {
	return c.onBoard(con, func(d *client.Device) error {
		after, err := c.after(d)
		if err != nil {
			return err
		}
		for event, err := range d.BoardEvents(ctx, c.Room, after) {
			if errors.Is(err, client.ErrBoardCursor) && !c.All {
				err = errors.Join(err, d.ResetBoardCursor(c.Room))
			}
			if err != nil {
				return err
			}
			line := newBoardEventLine(&event)
			if err := c.print(con, &line); err != nil {
				return err
			}
			if c.All {
				continue
			}
			if err := d.MoveBoardCursor(c.Room, event); err != nil {
				return err
			}
		}
		return nil
	})
}

// after is the sequence of the last event that was printed.
func (c *boardEventsCommand) after(d *client.Device) (uint64, error) {
	if c.All {
		return 0, nil
	}
	return d.BoardCursor(c.Room)
}

func (c *boardEventsCommand) print(con console, line *boardEventLine) error {
	if c.JSON {
		return writeJSON(con.out, line)
	}
	return c.show(con, nil, func(w io.Writer) {
		fmt.Fprintf(w, "card %s: ", line.CardID)
		line.tell(w)
	})
}

// committedLine is an event of this device, as it is printed with --json.
type committedLine struct {
	CardID   string   `json:"card_id"`
	EventID  string   `json:"event_id"`
	Sequence uint64   `json:"sequence"`
	Revision uint64   `json:"revision"`
	Withheld []string `json:"withheld"` // participants who cannot read it
}

// committed tells what was done.
func (c roomCommand) committed(con console, made client.BoardCommit, what string) error {
	line := committedLine{
		CardID: made.CardID, EventID: made.EventID, Sequence: made.Sequence, Revision: made.Revision, Withheld: append([]string{}, made.Withheld...),
	}
	if len(made.Withheld) > 0 {
		con.notef("%s cannot read it: their devices have no keys, or others than before", counted(len(made.Withheld), "participant"))
	}
	return c.show(con, line, func(w io.Writer) {
		fmt.Fprintf(w, "Card %s is %s; it has revision %d.\n", line.CardID, what, line.Revision)
	})
}

// cardText is the flags of a card's content.
type cardText struct {
	Details string   `placeholder:"TEXT" help:"What there is to say beside the subject."`
	Option  []string `sep:"none" placeholder:"LABEL" help:"One of the options to choose from; may be repeated."`
}

func (t *cardText) content(subject string) client.BoardContent {
	return client.BoardContent{Subject: subject, Details: t.Details, Options: t.Option}
}

type boardCreateCommand struct {
	roomCommand
	cardText

	Kind    string `enum:"idea,task,question,decision" default:"task" help:"idea, task, question or decision."`
	Subject string `arg:"" help:"One line."`
}

// Help is kong's long text of the command.
func (*boardCreateCommand) Help() string {
	return `The content is sealed for everybody who is in the room now, and for nobody who comes later.

Example:
  peer board create --home alice --room ROOM_ID --kind question "Which day?" --option Monday --option Friday`
}

// Run makes it.
func (c *boardCreateCommand) Run(ctx context.Context, con console) error {
	return c.onBoard(con, func(d *client.Device) error {
		made, err := d.CreateCard(ctx, c.Room, client.CardKind(c.Kind), c.content(c.Subject))
		if err != nil {
			return err
		}
		return c.committed(con, made, "made")
	})
}

// changeCommand is a command that changes a card.
type changeCommand struct {
	cardCommand
	Revision uint64 `placeholder:"N" help:"The revision that this is about: where the card has another one, it is refused (conflict). By default the present one."`
}

// change changes the card as it is, or as it was at --revision.
func (c *changeCommand) change(ctx context.Context, con console, event client.BoardEventType, content client.BoardContent, what string) error {
	return c.onBoard(con, func(d *client.Device) error {
		card, err := d.Card(ctx, c.Room, c.Card)
		if err != nil {
			return err
		}
		if c.Revision != 0 && c.Revision != card.Revision {
			return &wire.Error{Code: wire.Conflict, Detail: fmt.Sprintf("the card has revision %d now: look at it again", card.Revision)}
		}
		if on := card.Content; on != nil && content.Option != "" && len(on.Options) > 0 && !slices.Contains(on.Options, content.Option) {
			return usageError{fmt.Sprintf("the card has no option %q: it has %q", content.Option, on.Options)}
		}
		change := client.BoardChange{CardID: card.CardID, Type: event, Revision: card.Revision, Content: content}
		if event == "approval" {
			if card.Err != nil {
				return fmt.Errorf("what is on the card cannot be read: %w", card.Err)
			}
			change.Basis = card.ContentEvent
		}
		made, err := d.ChangeCard(ctx, c.Room, change)
		if err != nil {
			return err
		}
		return c.committed(con, made, what)
	})
}

type boardUpdateCommand struct {
	changeCommand
	cardText

	Subject string `arg:"" help:"One line."`
}

// Help is kong's long text of the command.
func (*boardUpdateCommand) Help() string {
	return `What is not named is not on the card any more.

Example:
  peer board update --home alice --room ROOM_ID CARD_ID "Which day in May?" --option Monday --revision 3`
}

// Run writes it anew.
func (c *boardUpdateCommand) Run(ctx context.Context, con console) error {
	return c.change(ctx, con, "updated", c.content(c.Subject), "changed")
}

type boardCommentCommand struct {
	cardCommand
	Text string `arg:"" help:"What to say."`
}

// Help is kong's long text of the command.
func (*boardCommentCommand) Help() string {
	return "Example:\n  peer board comment --home robot --room ROOM_ID CARD_ID \"Friday suits me\""
}

// Run comments.
func (c *boardCommentCommand) Run(ctx context.Context, con console) error {
	return c.onBoard(con, func(d *client.Device) error {
		made, err := d.ChangeCard(ctx, c.Room, client.BoardChange{CardID: c.Card, Type: "comment", Content: client.BoardContent{Comment: c.Text}})
		if err != nil {
			return err
		}
		return c.committed(con, made, "commented on")
	})
}

type boardChooseCommand struct {
	changeCommand
	Option  string `arg:"" help:"The option's label."`
	Comment string `placeholder:"TEXT" help:"What to say about it."`
}

// Help is kong's long text of the command.
func (*boardChooseCommand) Help() string {
	return "Example:\n  peer board choose --home alice --room ROOM_ID CARD_ID Friday"
}

// Run chooses.
func (c *boardChooseCommand) Run(ctx context.Context, con console) error {
	return c.change(ctx, con, "option_chosen", client.BoardContent{Option: c.Option, Comment: c.Comment}, "decided")
}

// verdictCommand is the flags of an approval.
type verdictCommand struct {
	changeCommand
	Comment string `placeholder:"TEXT" help:"What to say about it."`
}

type boardApproveCommand struct{ verdictCommand }

// Help is kong's long text of the command.
func (*boardApproveCommand) Help() string {
	return `With --revision, nothing is approved that was not read.

Example:
  peer board approve --home alice --room ROOM_ID CARD_ID --revision 2`
}

// Run approves.
func (c *boardApproveCommand) Run(ctx context.Context, con console) error {
	return c.change(ctx, con, "approval", client.BoardContent{Approval: client.Approved, Comment: c.Comment}, "approved")
}

type boardRejectCommand struct{ verdictCommand }

// Help is kong's long text of the command.
func (*boardRejectCommand) Help() string {
	return "Example:\n  peer board reject --home alice --room ROOM_ID CARD_ID --comment \"too dear\""
}

// Run rejects.
func (c *boardRejectCommand) Run(ctx context.Context, con console) error {
	return c.change(ctx, con, "approval", client.BoardContent{Approval: client.Rejected, Comment: c.Comment}, "rejected")
}

type boardCloseCommand struct{ verdictCommand }

// Help is kong's long text of the command.
func (*boardCloseCommand) Help() string {
	return "Example:\n  peer board close --home alice --room ROOM_ID CARD_ID"
}

// Run closes.
func (c *boardCloseCommand) Run(ctx context.Context, con console) error {
	return c.change(ctx, con, "closed", client.BoardContent{Comment: c.Comment}, "closed")
}
