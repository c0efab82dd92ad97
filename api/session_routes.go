package api

import (
	"net/http"

	"github.com/peerrelay/peerrelay/wire"
)

var (
	notInForce = refusedAs{"unavailable", "This node may not accept anything right now."}
	notOwner   = refusedAs{"forbidden", "Neither the room's owner nor the operator asks."}
)

// listParameters are those of the lists that are in the order of storing.
func listParameters(order string) []parameter {
	return []parameter{
		{"limit", "Rows of a page, 1 to 500; default 100. A page ends early where its envelopes have 4 MiB.", "100"},
		{"cursor", "`next_cursor` of the page before, with the same `order`; opaque.", ""},
		{"order", "`oldest` or `newest` first; default `" + order + "`.", order},
	}
}

// sessionRoutes are RELAY's endpoints of a room, for its participants and the operator.
func (a *API) sessionRoutes() []route {
	routes := append(a.historyRoutes(), a.rosterRoutes()...)
	return append(routes, a.noticeRoutes()...)
}

func (a *API) historyRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/sessions/{id}/history", access: forSession, handler: a.listHistory, doc: doc{
			tag:     "sessions",
			summary: "Read the room's history",
			description: "The window of session-addressed envelopes, each exactly as it was sent. A participant sees nothing that was " +
				"stored before it joined. With `message_id` the answer is that one row alone, and with `Accept: application/octet-stream` " +
				"the envelope itself.",
			query: append(listParameters("oldest"), parameter{"message_id", "One message; no other member of the query then.", ""}),
			header: []parameter{
				{"Accept", "`application/octet-stream` with `message_id`: the envelope's bytes instead of JSON.", "application/json"},
			},
			status: http.StatusOK, answer: History{}, raw: []string{octetStream},
			refusals: []refusedAs{noSuchRoom, {"not_found", "The window does not hold that message, or not for this participant."}},
		}},
		{method: http.MethodPost, path: "/v1/sessions/{id}/messages", access: forSession, handler: a.sendPlain, maxBody: maxPlainBody, doc: doc{
			tag:     "sessions",
			summary: "Send a plaintext message in a room without encryption",
			who:     forSenders,
			description: "For rooms of scheme `none` only. The server makes one envelope (`enc` is `none`, `parts` as here, `data` in " +
				"base64) and writes it into the inbox of `to`, or of everybody else. The content is in inboxes only: there is no " +
				"history of it. Between two agents the room's policy applies, and an audit event `message.private` is committed " +
				"before anything is written.\n\nWith `id` and `ts` the request may be repeated: the same request makes the same bytes, " +
				"which are written only where they are missing, as long as inboxes retain them. Without them each request is a message of its own.\n\n" +
				"A file has 1 to 255 code points of name, 1 to 127 of type, no control characters in them, and at most 700,000 bytes. " +
				"20 messages in a second, 4 at once.",
			request: NewPlainMessage{}, status: http.StatusCreated, answer: Sent{},
			example: NewPlainMessage{Parts: []Part{{Type: "text", Text: new("The build is green.")}}},
			refusals: []refusedAs{
				noSuchRoom,
				{"forbidden", "The operator is no participant."},
				{"read_only", "A viewer may not send."},
				{"rate_limited", "More than 20 messages of this participant in a second, or 4 under way."},
				{"invalid_file_part", "A file's name, type, size or data is not as described."},
				{"too_large", "The message is too large for so many recipients."},
				{"e2ee_scheme_mismatch", "The room is encrypted."},
				{"not_a_member", "`to` is nobody else in the room."},
				{"no_recipients", "Nobody else is in the room."},
				{"private_refused", "The room refuses private messages between agents."},
				{"history_conflict", "`id` is that of another message."},
				{"room_archived", "The room is archived."},
				{"unavailable", "It was delivered to nobody; the same request with `id` and `ts` completes it."},
			},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/traces", access: forSession, handler: a.listTraces, doc: doc{
			tag:     "sessions",
			summary: "Read the audit of private messages",
			who:     forOwner,
			description: "One event per private message between agents, without its content, for the room's owner. `declared` says that " +
				"a file is what the sender declared, which may be untrue, and no declaration is not \"no file\"; `false`, that its bytes were counted.",
			query:  listParameters("newest"),
			status: http.StatusOK, answer: Traces{},
			refusals: []refusedAs{noSuchRoom, notOwner},
		}},
	}
}

func (a *API) rosterRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/sessions/{id}/participants", access: forSession, handler: a.listParticipants, doc: doc{
			tag: "sessions", summary: "List who is in a room",
			description: "In order of joining, each with the newest session key it has published.",
			query:       pageParameters(),
			status:      http.StatusOK, answer: Participants{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/participants/{participant_id}", access: forSession, handler: a.showParticipant, doc: doc{
			tag: "sessions", summary: "Show who is, or was, in a room",
			description: "With the public keys of its device, so that messages of somebody who has left meanwhile can be verified. " +
				"A participant sees nobody who had left before it joined.",
			status: http.StatusOK, answer: RoomMember{},
			refusals: []refusedAs{noSuchRoom, {"not_found", "Nobody of that id was in the room, or not since the caller joined."}},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/presence", access: forSession, handler: a.listPresence, doc: doc{
			tag: "sessions", summary: "Show who is connected",
			description: "In order of joining. It is what nodes have said, at `as_of`: a node that dies is believed for `lease_seconds`. " +
				"What cannot be looked up is refused, never told as offline.",
			query:  pageParameters(),
			status: http.StatusOK, answer: Presences{},
			refusals: []refusedAs{noSuchRoom, {"unavailable", "Presence could not be looked up."}},
		}},
		{method: http.MethodPost, path: "/v1/sessions/{id}/sender-generations", access: forSession, handler: a.allocateGeneration, doc: doc{
			tag:     "sessions",
			summary: "Publish a sender key and get its generation",
			who:     forSenders,
			description: "Before a sender key is distributed, its sender publishes the session key that belongs to it, under a random `kid`. " +
				"The next `gen` of this participant in this room is allocated to it. It may be repeated: a `kid` that was published " +
				"before with the same key answers 200 with the same `gen`. After somebody has left the room, or a reset, the generations " +
				"of before are retired: the first one that nobody else has to follow makes a `REKEYING` room `ACTIVE`.",
			request: NewGeneration{}, status: http.StatusCreated, answer: Generation{},
			example: NewGeneration{KID: "AAECAwQFBgcICQoLDA0ODw", SessionKey: "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="},
			refusals: []refusedAs{
				noSuchRoom, notInForce,
				{"forbidden", "A viewer, or the operator, has no sender key."},
				{"conflict", "That `kid` was published with another key."},
				{"room_archived", "The room is archived."},
			},
		}},
	}
}

func (a *API) noticeRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/sessions/{id}/notices", access: forSession, handler: a.listNotices, doc: doc{
			tag: "sessions", summary: "Read the room's notices",
			description: "Those that were accepted, expired ones too, each exactly as it was sent. A participant sees nothing from before it joined.",
			query:       listParameters("oldest"),
			status:      http.StatusOK, answer: Notices{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodGet, path: "/v1/sessions/{id}/rules", access: forSession, handler: a.listRules, doc: doc{
			tag: "sessions", summary: "Show the room's rules",
			description: "What the owner has set. A right about which nothing is set is given.",
			status:      http.StatusOK, answer: Rules{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodPut, path: "/v1/sessions/{id}/rules", access: forSession, handler: a.setRule, doc: doc{
			tag:     "sessions",
			summary: "Give or take a right of agents",
			who:     forOwner,
			description: "`message.send` and `session.alert.emit`, which notices need both of; of one participant, or of whoever has no " +
				"row of their own. In force for everything that is stored after the answer. It may be repeated.",
			request: NewRule{}, status: http.StatusOK, answer: RuleRow{},
			example: NewRule{Rule: "session.alert.emit", Allowed: new(false)},
			refusals: []refusedAs{
				noSuchRoom, notOwner, notInForce,
				{string(wire.NotFound), "`participant_id` is nobody in the room."},
			},
		}},
	}
}
