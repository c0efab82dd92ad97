package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// writeJSON prints a value as one line. What a terminal would not print is escaped: strings may
// be others' words.
func writeJSON(to io.Writer, value any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(to, escaped(line.String()))
	return err
}

// escaped is JSON with escapes for what is not printable: it can be in strings only.
func escaped(line string) string {
	if !strings.ContainsFunc(line, func(r rune) bool { return shown(r) < 0 }) {
		return line
	}
	var out strings.Builder
	for _, r := range line {
		switch {
		case shown(r) >= 0:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// messageLine is a message as it is printed with --json.
type messageLine struct {
	Type      string     `json:"type"` // message
	RoomID    string     `json:"room_id"`
	ID        string     `json:"id"`
	From      string     `json:"from"` // participant
	DeviceID  string     `json:"device_id"`
	Role      string     `json:"role"`
	To        string     `json:"to"` // this participant, or the room
	Private   bool       `json:"private"`
	Kind      string     `json:"kind"`
	SentAt    time.Time  `json:"sent_at"` // by the sender's clock
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
	StreamID  string     `json:"stream_id"`
	Text      string     `json:"text"`
	Files     []fileLine `json:"files"`
}

// fileLine is a file of a message.
type fileLine struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	SizeBytes int    `json:"size_bytes"`
	Path      string `json:"path,omitempty"` // where it was saved
}

type failedLine struct {
	Type     string `json:"type"` // failure
	RoomID   string `json:"room_id"`
	ID       string `json:"id"`
	From     string `json:"from"` // as the envelope says, unverified
	StreamID string `json:"stream_id"`
	Error    string `json:"error"`
	Detail   string `json:"detail"`
}

type eventLine struct {
	Type          string `json:"type"` // event
	RoomID        string `json:"room_id"`
	EventID       string `json:"event_id"`
	Event         string `json:"event"`
	Version       int64  `json:"version"`
	ParticipantID string `json:"participant_id,omitempty"`
	DeviceID      string `json:"device_id,omitempty"`
	Role          string `json:"role,omitempty"`
	Epoch         *int64 `json:"epoch,omitempty"`
	Remaining     *int64 `json:"remaining,omitempty"`
}

type boardLine struct {
	Type     string `json:"type"` // board
	RoomID   string `json:"room_id"`
	EventID  string `json:"event_id"`
	CardID   string `json:"card_id"`
	Revision uint64 `json:"revision"`
}

type gapLine struct {
	Type   string `json:"type"` // gap
	RoomID string `json:"room_id"`
	Oldest string `json:"oldest,omitempty"`
}

// printer prints what comes to a room, or to several, one item at a time.
type printer struct {
	con     console
	json    bool
	tagged  bool    // people are shown which room it is
	room    string  // of the item that is printed
	self    string  // this participant there
	keep    *keeper // of files; nil: they are named only
	names   *names
	printed int // messages
}

// print prints one item. A file is saved before its message is shown.
func (p *printer) print(ctx context.Context, item client.Item) error {
	switch {
	case item.Message != nil:
		return p.message(ctx, item.Message)
	case item.Failure != nil:
		return p.failure(item.Failure)
	case item.Event != nil:
		return p.event(ctx, item.Event)
	case item.Board != nil:
		return p.board(item.Board)
	case item.Gap != nil:
		return p.gap(item.Gap)
	}
	return nil
}

func (p *printer) message(ctx context.Context, m *client.Message) error {
	files := make([]fileLine, len(m.Files))
	for i := range m.Files {
		file := &m.Files[i]
		files[i] = fileLine{Name: file.Name, MIMEType: file.MIMEType, SizeBytes: len(file.Data)}
		if p.keep != nil {
			path, err := p.keep.file(file)
			if err != nil {
				return fmt.Errorf("save a file of message %s: %w", m.ID, err)
			}
			files[i].Path = path
		}
	}
	p.printed++
	if p.json {
		return writeJSON(p.con.out, messageLine{
			Type: "message", RoomID: p.room, ID: m.ID, From: m.From, DeviceID: m.Device, Role: string(m.Role), To: m.To, Private: m.Private(p.room),
			Kind: m.Kind.String(), SentAt: m.SentAt, ExpiresAt: m.Expires, StreamID: m.StreamID, Text: m.Text, Files: files,
		})
	}
	about := ""
	if m.Private(p.room) {
		about = ", privately"
	}
	if m.Kind == wire.KindNotice {
		about += ", a notice until " + m.Expires.Local().Format(minute)
	}
	body := textLines(m.Text)
	for i := range files {
		body = append(body, tellFile(&files[i]))
	}
	return p.entry(m.SentAt, p.names.of(ctx, string(m.Role), m.From, m.Device), about, body)
}

func tellFile(f *fileLine) string {
	text := fmt.Sprintf("[file %q, %s, %s", f.Name, f.MIMEType, size(f.SizeBytes))
	if f.Path == "" {
		return text + "; it is not kept: --files FOLDER saves files]"
	}
	return text + ", saved as " + f.Path + "]"
}

func (p *printer) failure(f *client.Failure) error {
	if p.json {
		return writeJSON(p.con.out, failedLine{
			Type: "failure", RoomID: p.room, ID: f.ID, From: f.From, StreamID: f.StreamID, Error: errorCode(f.Err), Detail: f.Err.Error(),
		})
	}
	return p.notice(fmt.Sprintf("a message that says it is from participant %s cannot be shown: %v", f.From, f.Err))
}

func (p *printer) event(ctx context.Context, e *wire.RoomEvent) error {
	if p.json {
		return writeJSON(p.con.out, eventLine{
			Type: "event", RoomID: p.room, EventID: e.EventID, Event: string(e.Event), Version: e.Version, ParticipantID: e.ParticipantID,
			DeviceID: e.DeviceID, Role: e.Role, Epoch: e.Epoch, Remaining: e.Remaining,
		})
	}
	return p.notice(p.tellEvent(ctx, e))
}

// tellEvent says what happened in the room, by the relay's word.
func (p *printer) tellEvent(ctx context.Context, e *wire.RoomEvent) string {
	who := "this device"
	if e.ParticipantID != p.self {
		who = p.names.of(ctx, e.Role, e.ParticipantID, e.DeviceID)
	}
	switch e.Event {
	case wire.RoomJoined:
		return who + " is in the room now, as " + e.Role
	case wire.MemberRemoved:
		return who + " is not in the room any more"
	case wire.DeviceLinked:
		return who + " asked that the encryption of this room begins anew; the owner writes first"
	case wire.RoomReset:
		return "all encryption of the room begins anew"
	case wire.ArchivedRoom:
		return "the room is archived: nothing can be sent to it any more"
	default:
	}
	for _, known := range wire.RoomEvents() {
		if known.Event == e.Event {
			return known.Text
		}
	}
	return describeEvent(e) // newer than this program
}

func (p *printer) board(b *client.BoardHint) error {
	if p.json {
		return writeJSON(p.con.out, boardLine{Type: "board", RoomID: p.room, EventID: b.EventID, CardID: b.CardID, Revision: b.Revision})
	}
	return p.notice(fmt.Sprintf("board: card %s has revision %d", b.CardID, b.Revision))
}

func (p *printer) gap(g *client.Gap) error {
	if p.json {
		return writeJSON(p.con.out, gapLine{Type: "gap", RoomID: p.room, Oldest: g.Oldest})
	}
	return p.notice("messages may be missing here: the relay no longer has all that came before")
}

// How times are shown, in the reader's time zone.
const (
	minute = "2006-01-02 15:04"
	margin = "    " // of all lines of an entry but the first one
)

// entry prints a message for people. Only its first line begins at the margin, so that no
// text looks like another message.
func (p *printer) entry(at time.Time, name, about string, body []string) error {
	var out strings.Builder
	out.WriteString(p.colour(dim, at.Local().Format(minute)+p.tag()) + "  " + p.colour(bold, clean(name)) + clean(about))
	for i, line := range body {
		if i == 0 {
			out.WriteString("  ")
		} else {
			out.WriteString("\n" + margin)
		}
		out.WriteString(clean(line))
	}
	out.WriteString("\n")
	_, err := io.WriteString(p.con.out, out.String())
	return err
}

// tag is the end of the room's id where there are several.
func (p *printer) tag() string {
	if !p.tagged {
		return ""
	}
	return "  [" + short(p.room) + "]"
}

// notice prints what no participant said.
func (p *printer) notice(text string) error {
	_, err := fmt.Fprintln(p.con.out, p.colour(dim, time.Now().Format(minute)+p.tag()+"  -- "+clean(text)))
	return err
}

// Colours of a terminal (ECMA-48, "Select graphic rendition").
const (
	bold = "1"
	dim  = "2"
)

func (p *printer) colour(code, text string) string {
	if !p.con.look.Colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// clean is one line of others' words as a terminal may get it.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return shown(r)
	}, text)
}

// textLines are the lines of a text.
func textLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
}

// size is a number of bytes for people.
func size(bytes int) string {
	switch {
	case bytes < 1000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1_000_000)
}

// names are what participants are called.
type names struct {
	device *client.Device
	labels map[string]string // by device
	silent bool              // the relay tells this device no labels
}

func newNames(device *client.Device) *names {
	return &names{device: device, labels: map[string]string{device.ID(): device.Label()}}
}

// labelTimeout is how long a message waits for its sender's label.
const labelTimeout = 3 * time.Second

// of is how a participant is shown: with the label of its device, which is told to admins, and
// the end of its participant id, which is what --to takes and what differs.
func (n *names) of(ctx context.Context, role, participant, device string) string {
	tag := strings.TrimSpace(role + " " + short(participant))
	if role == "" {
		tag = "participant " + tag
	}
	if label := n.label(ctx, device); label != "" {
		return fmt.Sprintf("%s (%s)", label, tag)
	}
	return tag
}

func (n *names) label(ctx context.Context, device string) string {
	label, known := n.labels[device]
	if known || n.silent || device == "" { // an event may be about nobody
		return label
	}
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	info, err := n.device.DeviceInfo(ctx, device)
	if err != nil {
		n.silent = errors.Is(err, &wire.Error{Code: wire.Forbidden})
		return ""
	}
	n.labels[device] = info.Label
	return info.Label
}

// tagLength is how many characters of an id are shown: its end, since ids that were made at one
// time begin alike.
const tagLength = 8

func short(id string) string { return id[max(0, len(id)-tagLength):] }
