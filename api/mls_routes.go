package api

import (
	"net/http"
	"time"
)

// Well-formed MLS messages of a group called "group" in its epoch 0, with nothing in them.
const (
	exampleKeyPackage = "AAEABQABAAM="
	exampleCommit     = "AAEAAgVncm91cAAAAAAAAAAAAwAAAA=="
	exampleGroupInfo  = "AAEABAABAAMFZ3JvdXAAAAAAAAAAAQAAAAAAAAAAAAA="
	exampleWelcome    = "AAEAAwADAAA="
)

const (
	forItself       = "the device itself"
	forGroupMembers = "devices that are in the room"
	forCommitters   = "devices that are in the room, but viewers"
)

var (
	mlsIsOff     = refusedAs{"mls_scheme_disabled", "This relay runs without MLS rooms."}
	operatorAsks = refusedAs{"forbidden", "The operator is in no group."}
)

// groupRoutes are the delivery service of MLS rooms (RFC 9750 section 5).
func (a *API) groupRoutes() []route {
	routes := append(a.keyPackageRoutes(), a.commitRoutes()...)
	for i := range routes {
		r := &routes[i]
		r.access, r.handler, r.doc.tag = forDevice, a.forGroups(r.handler), "mls"
		r.doc.refusals = append(r.doc.refusals, operatorAsks, mlsIsOff)
	}
	return routes
}

func (a *API) keyPackageRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/devices/me/key-packages", handler: a.addKeyPackages, maxBody: maxKeyPackagesBody, doc: doc{
			summary: "Publish key packages", who: forItself,
			description: "What others add this device to groups with. Each is handed out once; a last-resort one is, again and again, when " +
				"there is no other. The server reads nothing of them. 200 are kept at most. It may be repeated: what was published " +
				"before is left as it is.",
			request: NewKeyPackages{}, status: http.StatusOK, answer: KeyPackageStock{},
			example: NewKeyPackages{KeyPackages: []NewKeyPackage{{
				KeyPackage: exampleKeyPackage, ExpiresAt: time.UnixMilli(1790000000000).UTC().AddDate(0, 1, 0),
			}}},
			refusals: []refusedAs{
				{"too_large", "A key package has more than 16,384 bytes."},
				{"conflict", "There would be more than 200, or the device is neither `APPROVED` nor `ACTIVE`."},
				{"rate_limited", "More than 20 such requests in a second, or 4 under way."},
			},
		}},
		{method: http.MethodGet, path: "/v1/devices/me/key-packages", handler: a.countKeyPackages, doc: doc{
			summary: "Count the key packages that are left", who: forItself,
			status: http.StatusOK, answer: KeyPackageStock{},
		}},
		{method: http.MethodPost, path: "/v1/rooms/{id}/key-packages/claim", handler: a.claimKeyPackages, doc: doc{
			summary: "Get key packages of others in the room", who: forCommitters,
			description: "One for each, or none at all. They are handed out to nobody else, so asking again takes others. Who has " +
				"fewer than 10 left is told with a `key_packages_low` event.",
			request: KeyPackageClaim{}, status: http.StatusOK, answer: ClaimedKeyPackages{},
			example: KeyPackageClaim{ParticipantIDs: []string{"{other_id}"}},
			refusals: []refusedAs{
				{"not_found", "There is no such room, or one of them is not in it."},
				{"forbidden", "A viewer adds nobody."},
				{"conflict", "The room has another scheme."},
				{"room_archived", "The room is archived."},
				{"key_packages_exhausted", "`detail` names a participant who has none left; none was handed out."},
				{"rate_limited", "More than 60 claims and prekey bundles of this device, and then more than one in a second."},
			},
		}},
	}
}

func (a *API) commitRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/rooms/{id}/commits", handler: a.changingRoom(a.acceptCommit), maxBody: maxCommitBody, doc: doc{
			summary: "Commit to the room's group", who: forCommitters,
			description: "The first commit of an epoch is accepted, with its group info and its welcome, all or nothing; the room is in the next epoch then, " +
				"and its members are told with `commit` and `welcome` events. Everybody else gets `epoch_conflict` with the epoch that the room is in, " +
				"fetches the commits since, and commits anew. Where the room has no group, a commit of the group's epoch 0 makes it.\n\n" +
				"The server reads the group id, the epoch and the kind of the messages, and cannot tell whether members can apply them. " +
				"`added` and `removed` are the committer's word. The answer comes when the new epoch is in force on every live node. The same request " +
				"may be sent again: it is answered with the epoch that it made.",
			request: NewCommit{}, status: http.StatusCreated, answer: AcceptedCommit{},
			example: NewCommit{
				Epoch: new(uint64(0)), Commit: exampleCommit, GroupInfo: exampleGroupInfo, Welcome: exampleWelcome, Added: []string{"{other_id}"},
			},
			refusals: []refusedAs{
				{"malformed_request", "A message is not what it should be, or they do not belong together."},
				{"not_found", "There is no such room, one of `added` is not in it, or one of `removed` never was."},
				{"forbidden", "A viewer, or who is not in the group and does not join it by this commit."},
				{"epoch_conflict", "The room is in the epoch that `epoch` names."},
				{"room_archived", "The room is archived."},
				{"conflict", "The room has another scheme, the commit is of another group or of an epoch that does not follow, or one of `added` is in the group already."},
				{"too_large", "A message is larger than described."},
				{"rate_limited", "More than 20 such requests in a second, or 4 under way."},
				notAnnounced,
			},
		}},
		{method: http.MethodGet, path: "/v1/rooms/{id}/commits", handler: a.listCommits, doc: doc{
			summary: "Read the commits after an epoch", who: forGroupMembers,
			description: "In the order in which they are applied, without gaps. A page ends after about 4 MiB of commits, too. The newest 1,000 are kept.",
			query: []parameter{
				{"after_epoch", "The room's epoch that the caller is in; default 0.", "0"},
				{"limit", "Rows of a page, 1 to 500; default 100.", "100"},
			},
			status: http.StatusOK, answer: Commits{},
			refusals: []refusedAs{
				noSuchRoom,
				{"epoch_conflict", "The commit that follows is not kept any more, or the room was reset since: join anew, by a welcome or an external commit."},
			},
		}},
		{method: http.MethodPost, path: "/v1/rooms/{id}/commits/{epoch}/report", handler: a.changingRoom(a.reportCommit), doc: doc{
			summary: "Report a commit that cannot be applied", who: forGroupMembers,
			description: "The commit that made this epoch. Everybody in the room is told with a `commit_reported` event; nothing else changes, and an owner may reset " +
				"the room. It may be repeated, and counts once for each participant since it joined the group: it can apply none that follow either.",
			status: http.StatusOK, answer: ReportedCommit{},
			refusals: []refusedAs{
				{"not_found", "There is no such room, or that commit is not kept."},
				{"room_archived", "The room is archived."},
			},
		}},
		{method: http.MethodGet, path: "/v1/rooms/{id}/group-info", handler: a.showGroupInfo, doc: doc{
			summary: "Show the room's group", who: forGroupMembers,
			description: "Its epoch, who is in it, and the newest group info, with which one may join by an external commit. Where there is no group, " +
				"or none since a reset, `epoch` is the one to make it in.",
			status: http.StatusOK, answer: GroupInfo{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodGet, path: "/v1/rooms/{id}/welcome", handler: a.showWelcome, doc: doc{
			summary: "Fetch the welcome for this device", who: forGroupMembers,
			description: "The newest. It stays until another commit adds or removes the participant, or it joins by one of its own; until a reset, and " +
				"the end of the membership. Who has joined with it already leaves it.",
			status: http.StatusOK, answer: Welcome{},
			refusals: []refusedAs{
				{"not_found", "There is no such room, or no welcome for this device in it."},
			},
		}},
	}
}
