package api

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

func (a *API) showInbox(r *http.Request) (int, any, error) {
	id, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	participant, err := a.cfg.Store.FindParticipant(op.ctx, op.tenant, id)
	if err != nil {
		return 0, nil, err
	}
	d, err := a.cfg.Inboxes.Describe(op.ctx, participant.Room, id)
	if err != nil {
		return 0, nil, err
	}
	answer := Inbox{
		ParticipantID: id.String(),
		RoomID:        participant.Room.String(),
		Stream:        d.Stream,
		Subject:       d.Subject,
		Messages:      d.Rows,
		Commands:      a.natsCommands(d.Stream, d.Subject, participant.Room),
	}
	if d.Oldest != 0 {
		answer.OldestID = streamID(d.Bounds, d.Oldest)
		answer.NewestID = streamID(d.Bounds, d.Newest)
	}
	return http.StatusOK, answer, nil
}

func streamID(b inbox.Bounds, sequence uint64) *string {
	text := wire.StreamID{Incarnation: b.Incarnation, Sequence: sequence}.String()
	return &text
}

// natsCommands are what an operator types to see the inbox with the nats program.
func (a *API) natsCommands(stream, subject string, room uuid.UUID) []string {
	words := []string{"nats"}
	for _, flag := range [][2]string{
		{"--context", a.cfg.NATSContext}, {"--server", a.cfg.NATSServers}, {"--creds", a.cfg.NATSCreds},
	} {
		if flag[1] != "" {
			words = append(words, flag[0], shellQuote(flag[1]))
		}
	}
	nats := strings.Join(words, " ") + " "
	return []string{
		nats + "stream view " + stream + " --subject " + subject,
		nats + "stream get " + stream + " --last-for " + subject,
		nats + "sub live." + room.String(),
	}
}

// shellQuote makes one word of a path.
func shellQuote(text string) string {
	plain := strings.IndexFunc(text, func(c rune) bool {
		return !strings.ContainsRune("/._-+:@", c) && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) < 0
	if plain && text != "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
