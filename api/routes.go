package api

import (
	"net/http"
	"slices"
)

// routes are all endpoints of the API, in the order of the reference.
func (a *API) routes() []route {
	return slices.Concat(
		a.enrollmentRoutes(),
		a.deviceRoutes(),
		a.authRoutes(),
		a.roomRoutes(),
		a.groupRoutes(),
		a.participantRoutes(),
		a.sessionRoutes(),
		a.boardRoutes(),
		a.credentialRoutes(),
		a.networkRoutes(),
		a.tenantRoutes(),
		a.internalRoutes(),
		a.healthRoutes(),
		a.referenceRoutes(),
	)
}

var (
	noSuchRoom        = refusedAs{"not_found", "There is no such room."}
	noSuchParticipant = refusedAs{"not_found", "There is no such participant, or it was removed."}
	notAnnounced      = refusedAs{"unavailable", "It is committed, but not known to be in force on every node yet: send the same request again."}
)

// pageParameters are those of every list.
func pageParameters() []parameter {
	return []parameter{
		{"limit", "Rows of a page, 1 to 500; default 500.", "100"},
		{"cursor", "`next_cursor` of the page before; opaque.", ""},
	}
}

func (a *API) roomRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/rooms", access: forOperator, handler: a.createRoom, doc: doc{
			tag:     "rooms",
			summary: "Make a room",
			description: "Its kind, encryption scheme and policy of private messages never change. A room is `CREATED` until its " +
				"first member is added. Asking twice makes two rooms.",
			request: NewRoom{}, status: http.StatusCreated, answer: Room{},
			example:  NewRoom{Kind: "group", Scheme: "sender_keys", PrivateMessages: "allowed"},
			refusals: []refusedAs{{"malformed_request", "A kind, scheme or policy there is not, or the double ratchet outside a direct room."}},
		}},
		{method: http.MethodGet, path: "/v1/rooms/{id}", access: forOperator, handler: a.showRoom, doc: doc{
			tag: "rooms", summary: "Show a room", status: http.StatusOK, answer: Room{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodPost, path: "/v1/rooms/{id}/members", access: forOperator, handler: a.addMember, doc: doc{
			tag:     "rooms",
			summary: "Add a participant, with a first credential",
			description: "Without `device_id` a new local device is made that is `ACTIVE` already. The credential is shown in this " +
				"answer and never again. A `warning` says that it is done, but that not every node knows it yet. Asking twice adds two.",
			request: NewMember{}, status: http.StatusCreated, answer: Member{},
			example: NewMember{Role: "agent"},
			refusals: []refusedAs{
				{"not_found", "There is no such room or device."},
				{"conflict", "The room is archived or has no place for that role, or the device is not `ACTIVE` or is a member already."},
			},
		}},
		{method: http.MethodDelete, path: "/v1/rooms/{id}/members/{participant_id}", access: forOperator, handler: a.removeMember, doc: doc{
			tag:     "rooms",
			summary: "Remove a participant",
			description: "Answered when every live node has put it in force: from then on nothing is accepted from the participant or " +
				"delivered to it, and its connections are closed. It may be repeated.",
			status: http.StatusOK, answer: Removed{},
			refusals: []refusedAs{
				{"not_found", "There is no such room, or the participant never was in it."},
				{"conflict", "The room is archived."},
				notAnnounced,
			},
		}},
	}
}

func (a *API) participantRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/participants/{id}/inbox", access: forOperator, handler: a.showInbox, doc: doc{
			tag:         "participants",
			summary:     "Show where a participant's inbox is, and how full",
			description: "With the commands of the `nats` program that show its rows. What the rows hold is encrypted.",
			status:      http.StatusOK, answer: Inbox{},
			refusals: []refusedAs{noSuchParticipant},
		}},
	}
}

func (a *API) credentialRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/rooms/{id}/credentials", access: forDevice, handler: a.mintInRoom, doc: doc{
			tag:     "credentials",
			summary: "Mint a credential for a participant of a room",
			who:     "a device that is in the room, for itself, and the operator",
			description: "The credential is shown in this answer and never again; the server keeps its hash. Earlier ones stay valid. " +
				"A device leaves `participant_id` out, and gets credentials of kind `session` only.",
			request: NewCredential{}, status: http.StatusCreated, answer: Credential{},
			example: NewCredential{ParticipantID: "{participant_id}", Kind: "session"},
			refusals: []refusedAs{
				{"not_found", "There is no such room, or the participant is not in it."},
				{"conflict", "The room is archived, or the device is not `ACTIVE`."},
			},
		}},
		{method: http.MethodPost, path: "/v1/participants/{id}/credentials", access: forOperator, handler: a.mintForParticipant, doc: doc{
			tag:         "credentials",
			summary:     "Mint a credential for a participant",
			description: "As the one above, without naming the room. `participant_id` is left out: it is in the address.",
			request:     NewCredential{}, status: http.StatusCreated, answer: Credential{},
			example: NewCredential{Kind: "session"},
			refusals: []refusedAs{
				noSuchParticipant,
				{"conflict", "The room is archived, or the device is not `ACTIVE`."},
			},
		}},
		{method: http.MethodDelete, path: "/v1/participants/{id}/credentials", access: forOperator, handler: a.revokeAll, doc: doc{
			tag:     "credentials",
			summary: "Revoke all credentials of a participant",
			description: "Answered when its connections are closed on every live node. The participant stays in the room. It may be " +
				"repeated: `revoked` counts what this request revoked.",
			status: http.StatusOK, answer: Revoked{},
			refusals: []refusedAs{{"not_found", "There never was such a participant."}, notAnnounced},
		}},
		{method: http.MethodDelete, path: "/v1/credentials/{id}", access: forOperator, handler: a.revokeOne, doc: doc{
			tag:         "credentials",
			summary:     "Revoke one credential",
			description: "Answered when its connections are closed on every live node. It may be repeated.",
			status:      http.StatusOK, answer: Revoked{},
			refusals: []refusedAs{{"not_found", "There never was such a credential."}, notAnnounced},
		}},
	}
}

func (a *API) networkRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/freeze", access: forOperator, handler: a.showFreeze, doc: doc{
			tag: "network", summary: "Is the network frozen?", status: http.StatusOK, answer: Freeze{},
		}},
		{method: http.MethodPut, path: "/v1/freeze", access: forOperator, handler: a.setFreeze, doc: doc{
			tag:     "network",
			summary: "Freeze or thaw the network",
			description: "Frozen, no connection of the tenant stays open (close 1012) and no credential of it gives access; the operator's endpoints go on. " +
				"Answered when it is in force on every live node. It may be repeated.",
			request: Freeze{}, status: http.StatusOK, answer: Freeze{},
			example:  Freeze{Frozen: false},
			refusals: []refusedAs{notAnnounced},
		}},
		{method: http.MethodGet, path: "/v1/status", access: forOperator, handler: a.showStatus, doc: doc{
			tag: "network", summary: "Show this process, and each part of it",
			description: "Answers while parts of it are broken, too.",
			status:      http.StatusOK, answer: Status{},
		}},
	}
}

func (a *API) healthRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/healthz", access: forEverybody, handler: a.healthz, doc: doc{
			tag: "health", summary: "Does the process answer?", status: http.StatusOK, answer: Health{},
		}},
		{method: http.MethodGet, path: "/readyz", access: forEverybody, handler: a.readyz, doc: doc{
			tag:     "health",
			summary: "Can everything be stored and delivered?",
			description: "503 with the names of the parts that fail in `degraded` while it can not; the body is the same type. Asked at " +
				"most ten times a second, whoever asks.",
			status: http.StatusOK, answer: Health{},
		}},
	}
}
