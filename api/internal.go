package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Limits of what edge nodes may ask at once.
const (
	maxInternalRequests = 256      // at work
	maxInternalBytes    = 64 << 20 // of their bodies
	maxInternalIDs      = 1000     // of one look-up
	maxLookUpBody       = 64 << 10
	internalRetry       = time.Second
)

// internalLimits bounds what all edge nodes together make this process hold.
type internalLimits struct {
	requests *semaphore.Weighted
	bytes    *semaphore.Weighted
}

func newInternalLimits() internalLimits {
	return internalLimits{semaphore.NewWeighted(maxInternalRequests), semaphore.NewWeighted(maxInternalBytes)}
}

var errForbidden = &wire.Error{Code: wire.Forbidden, Detail: "this is for edge nodes with their service token, from a private address"}

// authorizeService lets an edge node pass: it holds the service token and asks from a
// loopback, private or link-local address, and not through a proxy, which would lend
// its own address to everybody. Whatever is wrong, the refusal is the same.
func (a *API) authorizeService(r *http.Request) error {
	want := a.cfg.ServiceToken
	given, ok := bearer(r)
	same := subtle.ConstantTimeCompare(given[:], want[:]) == 1
	if !ok || !same || want == (store.TokenHash{}) || !nearby(r) || forwarded(r) {
		return errForbidden
	}
	return nil
}

func nearby(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := from.Addr().Unmap()
	return address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast()
}

// forwarded reports a request that shows that it came through a proxy: by what proxies
// add, or by HTTP/1.0, which some speak and no edge node does.
func forwarded(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(proxyHeaders[:], name) {
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

var proxyHeaders = [...]string{"Forwarded", "Via", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}

// bounded runs h while the limits have room for it, and not longer than a request may
// take.
func (a *API) bounded(h handler) handler {
	return func(r *http.Request) (int, any, error) {
		size := r.ContentLength
		if size < 0 {
			size = maxMessagesBody // not declared: the most the router lets through
		}
		if !a.internal.requests.TryAcquire(1) {
			return 0, nil, errBusy
		}
		defer a.internal.requests.Release(1)
		if !a.internal.bytes.TryAcquire(size) {
			return 0, nil, errBusy
		}
		defer a.internal.bytes.Release(size)
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
		defer cancel()
		return h(r.WithContext(ctx))
	}
}

var errBusy = &laterError{&wire.Error{Code: wire.Unavailable, Detail: "too many requests of edge nodes are at work; nothing was done"}, internalRetry}

// internalRoutes are what edge nodes ask instead of a database (DESIGN section 2).
// store/remote is their client.
func (a *API) internalRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/internal/v1/authenticate", access: forService, handler: a.bounded(a.checkToken), doc: doc{
			tag: "internal", summary: "Say what a credential proves",
			description: "Asked for each `hello`. The token stays with the edge node, which sends its hash.",
			request:     TokenCheck{}, status: http.StatusOK, answer: Identity{},
			example:  TokenCheck{TokenHash: []byte("{token_hash}")},
			refusals: []refusedAs{{"unauthorized", "Unknown, expired, revoked, or of a device that is not active; not said which."}},
		}},
		{method: http.MethodPost, path: "/internal/v1/credentials/valid", access: forService, maxBody: maxLookUpBody, handler: a.bounded(a.checkCredentials), doc: doc{
			tag: "internal", summary: "Say which of many credentials are valid now",
			request: CredentialsCheck{}, status: http.StatusOK, answer: ValidCredentials{},
			example: CredentialsCheck{TenantID: "{tenant_id}", CredentialIDs: []string{"{credential_id}"}},
		}},
		{method: http.MethodGet, path: "/internal/v1/sessions/{id}/roster", access: forService, handler: a.bounded(a.showRoster), doc: doc{
			tag: "internal", summary: "Show a room with its current participants", description: "All of them, from one snapshot.",
			query:  []parameter{{"tenant_id", "The tenant the room belongs to.", "{tenant_id}"}},
			status: http.StatusOK, answer: Roster{},
			refusals: []refusedAs{noSuchRoom},
		}},
		{method: http.MethodPost, path: "/internal/v1/rooms/versions", access: forService, maxBody: maxLookUpBody, handler: a.bounded(a.checkRooms), doc: doc{
			tag: "internal", summary: "Show the versions of many rooms",
			description: "A version rises with every change of the room or its roster. Rooms that do not exist are left out.",
			request:     RoomsCheck{}, status: http.StatusOK, answer: RoomVersions{},
			example: RoomsCheck{TenantID: "{tenant_id}", RoomIDs: []string{"{room_id}"}},
		}},
		{method: http.MethodPost, path: "/internal/v1/history", access: forService, maxBody: maxMessagesBody, handler: a.bounded(a.storeHistory), doc: doc{
			tag: "internal", summary: "Store session-addressed envelopes in history",
			description: "One in `message`, answered 201, or 200 when the same bytes were stored before; or up to 512 with together at most " +
				"4 MiB in `messages`, answered 200 with an answer for each, in their order. The same request may be repeated.",
			request: EnvelopeItems{}, status: http.StatusCreated, answer: Stored{},
			example: EnvelopeItems{Message: &exampleEnvelope},
			refusals: slices.Concat(historyRefusals, []refusedAs{
				{"not_found", "There is no such room, or the sender is not a current participant of it."},
			}),
		}},
		{method: http.MethodPost, path: "/internal/v1/traces", access: forService, maxBody: maxTracesBody, handler: a.bounded(a.storeTraces), doc: doc{
			tag: "internal", summary: "Commit the traces of private messages",
			description: "Asked before a private message is delivered. One in `message`, or up to 512 in `messages`, answered as history does. " +
				"The same request may be repeated.",
			request: TraceItems{}, status: http.StatusCreated, answer: Stored{},
			example: TraceItems{Message: &exampleTrace},
			refusals: []refusedAs{
				{"private_refused", "The room refuses private messages."},
				{"history_conflict", "The message id is taken."},
				{"malformed_request", "Traces do not take this shape."},
				{"not_found", "There is no such room, or the sender or recipient is not a current participant of it."},
				{"room_archived", "The room is archived."},
			},
		}},
		{method: http.MethodPost, path: "/internal/v1/notices", access: forService, maxBody: maxNoticeBody, handler: a.bounded(a.storeNotice), doc: doc{
			tag: "internal", summary: "Store a notice",
			description: "Answered 201 once for each id. Each refusal proves that this request stored nothing; after any other failure the " +
				"notice may be stored, and it must not be sent again.",
			request: EnvelopeItem{}, status: http.StatusCreated, answer: Accepted{},
			example: exampleNotice,
			refusals: []refusedAs{
				{"notice_not_permitted", "The sender is no agent, or the room's rules do not allow it."},
				{"invalid_envelope", "Notices do not have this shape."},
				{"notice_duplicate", "The same notice was accepted before."},
				{"notice_id_conflict", "The id is taken by another notice."},
				{"notice_invalid_generation", "The sender never allocated that `gen`."},
				{"notice_stale", "`ts` or `expires_at` is out of bounds."},
				{"notice_cap", "20 notices of the sender have not expired yet."},
				{"not_found", "There is no such room, or the sender is not a current participant of it."},
				{"room_archived", "The room is archived."},
			},
		}},
		{method: http.MethodGet, path: "/internal/v1/ping", access: forService, handler: a.bounded(a.ping), doc: doc{
			tag: "internal", summary: "Say whether the store answers", status: http.StatusOK, answer: Pong{},
		}},
	}
}

// Examples; the names in braces stand for ids and times.
var (
	exampleEnvelope = EnvelopeItem{TenantID: "{tenant_id}", Envelope: []byte(`{"v":1,"id":"{message_id}","session_id":"{room_id}",` +
		`"from":"{participant_id}","to":"{room_id}","kind":"message","gen":1,"seq":1,"ts":{now_ms},"nonce":"AAAAAAAAAAAAAAAA","ct":"c2VhbGVk"}`)}
	exampleNotice = EnvelopeItem{TenantID: "{tenant_id}", Envelope: []byte(`{"v":1,"id":"{message_id}","session_id":"{room_id}",` +
		`"from":"{participant_id}","to":"{room_id}","kind":"notice","gen":1,"seq":1,"ts":{now_ms},"expires_at":{later_ms},` +
		`"nonce":"AAAAAAAAAAAAAAAA","ct":"c2VhbGVk"}`)}
	exampleTrace = TraceItem{
		TenantID: "{tenant_id}", RoomID: "{room_id}", MessageID: "{message_id}", From: "{participant_id}", To: "{other_id}",
		TS: 1_790_000_000_000, Digest: make([]byte, 32),
	}

	// historyRefusals are the typed refusals of RELAY ("When the API refuses the store").
	historyRefusals = []refusedAs{
		{"mls_scheme_disabled", "MLS rooms are switched off."},
		{"e2ee_scheme_mismatch", "The envelope does not match the room's scheme."},
		{"mls_generation_retired", "`gen` is before the room's epoch, or a sender key of before somebody left."},
		{"mls_removal_pending", "A removal from the room waits for its commit."},
		{"mls_generation_unknown", "`gen` is after the room's epoch, or the room has no group."},
		{"history_conflict", "The id is stored with other content or another sender."},
		{"malformed_request", "History does not take this shape."},
		{"invalid_file_part", "The file header is invalid."},
		{"not_activated", "The owner of a direct room has not written first."},
		{"room_archived", "The room is archived."},
	}
)

// checkToken answers for store.Credentials.Authenticate. The token itself stays with the
// edge node.
func (a *API) checkToken(r *http.Request) (int, any, error) {
	var body TokenCheck
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	hash := store.TokenHash{}
	if copy(hash[:], body.TokenHash) != len(hash) || len(body.TokenHash) != len(hash) {
		return 0, nil, malformed("token_hash must be 32 bytes in base64")
	}
	found, err := a.cfg.Store.Authenticate(r.Context(), hash)
	if errors.Is(err, store.ErrUnauthenticated) {
		return 0, nil, &wire.Error{Code: wire.Unauthorized, Detail: "the credential is not valid now"}
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Identity{
		TenantID: found.Tenant.String(), RoomID: found.Room.String(), ParticipantID: found.Participant.String(),
		DeviceID: found.Device.String(), CredentialID: found.Credential.String(),
		Role: string(found.Role), Kind: string(found.Kind), ExpiresAt: found.ExpiresAt, Frozen: found.Frozen,
	}, nil
}

// checkCredentials answers for store.Credentials.ValidCredentials.
func (a *API) checkCredentials(r *http.Request) (int, any, error) {
	var body CredentialsCheck
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	tenant, ids, err := lookUp(body.TenantID, body.CredentialIDs, "credential_ids")
	if err != nil {
		return 0, nil, err
	}
	valid, err := a.cfg.Store.ValidCredentials(r.Context(), tenant, ids)
	if err != nil {
		return 0, nil, err
	}
	answer := ValidCredentials{Valid: make([]string, 0, len(valid))}
	for _, id := range valid {
		answer.Valid = append(answer.Valid, id.String())
	}
	return http.StatusOK, answer, nil
}

// checkRooms answers for store.Versions.
func (a *API) checkRooms(r *http.Request) (int, any, error) {
	var body RoomsCheck
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	tenant, ids, err := lookUp(body.TenantID, body.RoomIDs, "room_ids")
	if err != nil {
		return 0, nil, err
	}
	versions, err := a.cfg.Store.RoomVersions(r.Context(), tenant, ids)
	if err != nil {
		return 0, nil, err
	}
	answer := RoomVersions{Versions: make(map[string]int64, len(versions))}
	for id, version := range versions {
		answer.Versions[id.String()] = version
	}
	return http.StatusOK, answer, nil
}

// lookUp reads a tenant and the ids that are asked for in it.
func lookUp(tenantText string, texts []string, member string) (tenant uuid.UUID, ids []uuid.UUID, err error) {
	tenant, err = bodyID(tenantText, "tenant_id")
	if err != nil {
		return tenant, nil, err
	}
	if len(texts) == 0 || len(texts) > maxInternalIDs {
		return tenant, nil, malformed(member + " must be 1 to 1000 ids")
	}
	ids = make([]uuid.UUID, 0, len(texts))
	for _, text := range texts {
		id, err := bodyID(text, member)
		if err != nil {
			return tenant, nil, err
		}
		ids = append(ids, id)
	}
	return tenant, ids, nil
}

// showRoster answers for store.Rosters.
func (a *API) showRoster(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	tenant, err := bodyID(r.URL.Query().Get("tenant_id"), "tenant_id")
	if err != nil {
		return 0, nil, err
	}
	roster, err := a.cfg.Store.Roster(r.Context(), tenant, room)
	if err != nil {
		return 0, nil, err
	}
	answer := Roster{Room: roomAnswer(roster.Room), Participants: make([]RosterRow, 0, len(roster.Participants))}
	for _, p := range roster.Participants {
		answer.Participants = append(answer.Participants, RosterRow{
			ParticipantID: p.ID.String(), DeviceID: p.Device.String(), Role: string(p.Role), JoinedAt: p.JoinedAt,
		})
	}
	return http.StatusOK, answer, nil
}

// ping answers for store.Edge.Ping: the store behind the API is asked.
func (a *API) ping(r *http.Request) (int, any, error) {
	if err := a.cfg.Store.Ping(r.Context()); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Pong{OK: true}, nil
}
