package api

import "net/http"

var (
	noSuchCard   = refusedAs{"not_found", "There is no such card in this room."}
	notForBoards = refusedAs{"forbidden", "A viewer, or the operator, who is no participant: they read."}
	largeSealed  = refusedAs{"too_large", "The content is larger than 65,536 bytes, or the signature than 1,024."}
)

const exampleSealed = "c2VhbGVkIGJ5IHRoZSBjbGllbnQ=" // "sealed by the client"

// boardRoutes are the Board's endpoints of a room.
func (a *API) boardRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/sessions/{id}/board/cards", access: forSession, handler: a.createCard, maxBody: maxBoardBody, doc: doc{
			tag:     "board",
			summary: "Make a card",
			who:     forSenders,
			description: "Its content is sealed and signed by the client; the relay reads nothing of it. Its first event, of type " +
				"`created`, takes the next sequence of the room. A hint `board.update` goes to each participant, but not for an idea.\n\n" +
				"With `event_id` and `card_id` of the client's making the same request may be sent again: the card is made once, and " +
				"the answer is 200 where an earlier request had made it.",
			request: NewBoardCard{}, status: http.StatusCreated, answer: BoardCommitted{},
			example: NewBoardCard{
				EventID: new("{event_id}"), CardID: new("{card_id}"), Kind: "task", Content: exampleSealed, Signature: exampleSealed,
			},
			refusals: []refusedAs{
				notForBoards,
				{"conflict", "An id is taken by another card or event."},
				{"room_archived", "The room is archived."},
				largeSealed,
			},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/board/cards", access: forSession, handler: a.listCards, doc: doc{
			tag:     "board",
			summary: "List the cards",
			description: "In the order in which they were made, each as its events have left it. A page ends after 4 MiB of content, " +
				"too; what says that more follow is `next_cursor`.",
			query:  listParameters("oldest"),
			status: http.StatusOK, answer: BoardCards{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/board/cards/{card_id}", access: forSession, handler: a.showCard, doc: doc{
			tag: "board", summary: "Show a card", status: http.StatusOK, answer: BoardCard{},
			refusals: []refusedAs{noSuchCard},
		}},
		{method: http.MethodPost, path: "/v1/sessions/{id}/board/cards/{card_id}/events", access: forSession, handler: a.addCardEvent, maxBody: maxBoardBody, doc: doc{
			tag:     "board",
			summary: "Change a card, or comment on it",
			who:     forSenders,
			description: "An event raises the card's revision by one, and names the `revision` it is based on: of several that are " +
				"based on the same one, exactly one is committed, and the others are told what the card is at. A comment has no " +
				"`revision` and fits any. `closed` is final, but for comments. `approval` is for owner and controller. An approval and " +
				"`closed` may leave `content` out; every event is signed.\n\nWith an `event_id` of the client's making the same request " +
				"may be sent again: it is committed once, and the answer is 200 where an earlier request had committed it.",
			request: NewBoardEvent{}, status: http.StatusCreated, answer: BoardCommitted{},
			example: NewBoardEvent{Type: "comment", Content: exampleSealed, Signature: exampleSealed},
			refusals: []refusedAs{
				noSuchCard,
				notForBoards,
				{"forbidden", "An approval by another than owner and controller."},
				{"conflict", "The card is at another revision (`detail` says which) or closed, or the event's id is taken."},
				{"room_archived", "The room is archived."},
				largeSealed,
			},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/board/events", access: forSession, handler: a.listCardEvents, doc: doc{
			tag:     "board",
			summary: "Read the events after a sequence",
			description: "In rising order, without gaps. Ask again with `after` = `next_after`: no event ever appears at or before a " +
				"sequence that was handed out, so nothing is missed, whatever happened to hints. A page ends after 4 MiB of content, " +
				"too; `more` says that there are more now.\n\nClients that say to be 0.2.31 or older get each comment as a card-only " +
				"event at the same sequence: `sequence`, `event_id`, `card_id`, `type` and `revision`.",
			query: []parameter{
				{"after", "The last sequence seen; default 0, which is before the first.", "0"},
				{"limit", "Rows of a page, 1 to 500; default 100.", "100"},
			},
			header: []parameter{{versionHeader, "The client's version, X.Y.Z; without it the current one.", "0.2.32"}},
			status: http.StatusOK, answer: BoardEvents{},
			refusals: []refusedAs{
				noSuchRoom,
				{"conflict", "`after` is beyond the room's last event: a cursor of another room, or from before a restored backup."},
			},
		}},
	}
}
