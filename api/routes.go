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
		a.prekeyRoutes(),
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

// Who may call the endpoints of rooms.
const (
	forMembers  = "devices that are in the room, admin devices, and the operator"
	forManagers = "the room's owners, admin devices, and the operator"
)

var notManager = refusedAs{"forbidden", "A member asks who is neither an owner nor an admin."}

func (a *API) roomRoutes() []route {
	list := pageParameters()
	list[0].description = "Rows of a page, 1 to 500; default 100."
	return []route{
		{method: http.MethodPost, path: roomsPath, access: forDevice, handler: a.changingRoom(a.createRoom), doc: doc{
			tag:     "rooms",
			summary: "Make a room",
			who:     "`ACTIVE` human devices, and the operator",
			description: "Its kind, encryption scheme and policy of private messages never change. The device that makes a room is its " +
				"owner: `participant_id` is who it is there. The operator makes an empty one, which is `CREATED` until its first member is " +
				"added. Asking twice makes two rooms.",
			request: NewRoom{}, status: http.StatusCreated, answer: Room{},
			example: NewRoom{Kind: "group", Scheme: "sender_keys", PrivateMessages: "allowed"},
			refusals: []refusedAs{
				{"malformed_request", "A kind, scheme or policy there is not, or the double ratchet outside a direct room."},
				{"forbidden", "The device is an agent's, or not `ACTIVE`."},
				{"conflict", "The device has made 10,000 rooms that are not archived."},
			},
		}},
		{method: http.MethodGet, path: roomsPath, access: forDevice, handler: a.listRooms, doc: doc{
			tag: "rooms", summary: "List the rooms that the device is in",
			description: "The operator gets all of them. In the order of their making, without who is in them.",
			query:       list, status: http.StatusOK, answer: Rooms{},
		}},
		{method: http.MethodGet, path: "/v1/rooms/{id}", access: forDevice, handler: a.showRoom, doc: doc{
			tag: "rooms", summary: "Show a room and who is in it", who: forMembers,
			description: "Each participant with the public keys that its device enrolled with. What they are worth is for the reader to " +
				"check: `agreement_signature`, and the fingerprint that the device shows.",
			status: http.StatusOK, answer: Room{},
			refusals: []refusedAs{noSuchRoom},
		}},
		a.addMemberRoute(),
		a.removeMemberRoute(),
		{method: http.MethodPost, path: "/v1/rooms/{id}/archive", access: forDevice, handler: a.changingRoom(a.archiveRoom), doc: doc{
			tag: "rooms", summary: "Archive a room", who: forManagers,
			description: "For ever: nothing is stored in it from the answer on (`room_archived`), and its members may read on. It may be repeated.",
			status:      http.StatusOK, answer: Room{},
			refusals: []refusedAs{noSuchRoom, notManager, {"conflict", "Nobody was ever in the room."}, notAnnounced},
		}},
		{method: http.MethodPost, path: "/v1/rooms/{id}/reset", access: forDevice, handler: a.changingRoom(a.resetRoom), doc: doc{
			tag: "rooms", summary: "Begin a room's encryption anew", who: forManagers + "; with the double ratchet every member",
			description: "The keys of before are retired: sender generations are allocated anew, an MLS room waits for a commit that makes a " +
				"new group, and in a direct room the owner writes first again. Who is in the room stays as it is. Each request is a reset.",
			status: http.StatusOK, answer: Room{},
			refusals: []refusedAs{
				noSuchRoom,
				{"forbidden", "A member asks who is neither an owner nor an admin; with the double ratchet every member may."},
				{"conflict", "The room is archived or not encrypted, or nobody was ever in it."},
				{"unavailable", "It is committed, but not known to be in force on every node yet. Sending it again is another reset, which does no harm."},
			},
		}},
	}
}

func (a *API) addMemberRoute() route {
	return route{method: http.MethodPost, path: "/v1/rooms/{id}/members", access: forDevice, handler: a.changingRoom(a.addMember), doc: doc{
		tag:     "rooms",
		summary: "Add a participant",
		who:     forManagers,
		description: "A device names the `device_id` of an `ACTIVE` one, which mints its credentials itself. For the operator the answer has a " +
			"first credential, which is never shown again, and without `device_id` a new local device is made that is `ACTIVE` already. " +
			"Everybody in the room is told (`room_joined`). A `warning` says that it is done, but that not every node knows it yet.",
		request: NewMember{}, status: http.StatusCreated, answer: Member{},
		example: NewMember{Role: "agent"},
		refusals: []refusedAs{
			{"not_found", "There is no such room or device."},
			notManager,
			{"conflict", "The room is archived or has no place for that role, or the device is not `ACTIVE`, is of a kind that the role is not " +
				"for, or is a member already."},
		},
	}}
}

func (a *API) removeMemberRoute() route {
	return route{method: http.MethodDelete, path: "/v1/rooms/{id}/members/{participant_id}", access: forDevice, handler: a.changingRoom(a.removeMember), doc: doc{
		tag:     "rooms",
		summary: "Remove a participant, or leave",
		who:     forManagers + "; the device itself, to leave",
		description: "Answered when every live node has put it in force: from then on nothing is accepted from the participant or " +
			"delivered to it, and its connections are closed (4403). Those who stay are told (`member_removed`), and where the room is encrypted " +
			"that they need new keys (`rekey_required`). It may be repeated.",
		status: http.StatusOK, answer: Removed{},
		refusals: []refusedAs{
			{"not_found", "There is no such room, or the participant never was in it."},
			notManager,
			notAnnounced,
		},
	}}
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
				{"conflict", "The device is not `ACTIVE`."},
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
				{"conflict", "The device is not `ACTIVE`."},
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
		{method: http.MethodDelete, path: "/v1/credentials/{id}", access: forDevice, handler: a.revokeOne, doc: doc{
			tag: "credentials", summary: "Revoke one credential", who: "the device that it is for, and the operator",
			description: "Answered when its connections are closed on every live node. It may be repeated.",
			status:      http.StatusOK, answer: Revoked{},
			refusals: []refusedAs{{"not_found", "There never was such a credential, or it is not for this device."}, notAnnounced},
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
