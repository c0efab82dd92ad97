package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABoardOfTwo(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	require.Equal(t, "There are no cards.\n", h.says(t, "robot", "", "board", "list").out)
	made := h.ok(t, "alice", "", "board", "create", "--room", h.room, "--kind", "question", "Which day?",
		"--details", "hostile "+hostileText[:40], "--option", "Monday, early", "--option", "Friday")
	card := text(t, made, "card_id")
	require.Empty(t, made["withheld"])
	require.Contains(t, h.says(t, "robot", "", "board", "list").out, "Which day?")
	h.says(t, "robot", "", "board", "comment", card, "Friday suits me")

	shown := h.says(t, "alice", "", "board", "show", card)
	requirePrintable(t, shown.out)
	require.Contains(t, shown.out, "Which day?, a question, open, revision ")
	require.Contains(t, shown.out, "    - Monday, early\n    - Friday\n")
	require.Contains(t, shown.out, "    Friday suits me\n")

	// Nothing is decided over what was not read.
	read := h.ok(t, "robot", "", "board", "show", "--room", h.room, card)
	require.Len(t, read["events"], 2)
	h.says(t, "alice", "", "board", "update", card, "Which day in May?", "--option", "Monday", "--option", "Friday")
	revision, err := json.Marshal(read["revision"])
	require.NoError(t, err)
	late := h.types(t, "robot", "", "board", "choose", "--room", h.room, card, "Friday", "--revision", string(revision), "--json")
	require.Equal(t, exitFailed, late.code)
	require.Equal(t, "conflict", errorLine(t, late).Error)
	h.says(t, "alice", "", "board", "choose", card, "Friday")
	h.says(t, "alice", "", "board", "approve", card, "--comment", "good")
	h.says(t, "alice", "", "board", "close", card)
	require.Contains(t, h.says(t, "robot", "", "board", "list").out, "closed")

	events := h.says(t, "robot", "", "board", "events", "--json").out
	require.Equal(t, 6, strings.Count(events, `"type":"board_event"`), events)
	require.NotContains(t, events, `"error"`)
	require.Empty(t, h.says(t, "robot", "", "board", "events", "--json").out, "each is printed once")
	require.Contains(t, h.says(t, "robot", "", "board", "events", "--all").out, "approval  approved\n    good\n")

	polled := printedLines(t, h.says(t, "robot", "", "poll", "--json").out)
	require.Len(t, ofType(polled, "board"), 6, "a hint for each")
	missing := h.types(t, "alice", "", "board", "show", "--room", h.room, session, "--json")
	require.Equal(t, "not_found", errorLine(t, missing).Error)
}
