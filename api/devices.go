package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var errNoAdmin = &wire.Error{Code: wire.Forbidden, Detail: "only an ACTIVE admin device, or the operator, may do this"}

func (a *API) listDevices(r *http.Request) (int, any, error) {
	if !callerOf(r.Context()).admin() {
		return 0, nil, errNoAdmin
	}
	page, err := readDevicePage(r)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	devices, more, err := a.cfg.Store.DevicePage(op.ctx, op.tenant, page.state, page.after, page.limit)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil, malformed("cursor is not one that this list has handed out")
	}
	if err != nil {
		return 0, nil, err
	}
	answer := Devices{Devices: make([]Device, 0, len(devices))}
	for i := range devices {
		answer.Devices = append(answer.Devices, deviceAnswer(&devices[i]))
	}
	if more && len(devices) > 0 {
		answer.NextCursor = idCursor(devices[len(devices)-1].ID)
	}
	return http.StatusOK, answer, nil
}

// devicePage is which devices a list asks for.
type devicePage struct {
	state store.DeviceState // empty: all
	after uuid.UUID
	limit int
}

func readDevicePage(r *http.Request) (page devicePage, err error) {
	query, err := readQuery(r, "limit", "cursor", "state")
	if err != nil {
		return page, err
	}
	page.state = store.DeviceState(query["state"])
	if page.state != "" && !slices.Contains(deviceStates, page.state) {
		return page, malformed("state must be PENDING, APPROVED, ACTIVE, SUSPENDED or REVOKED")
	}
	page.after, page.limit, err = readIDPage(query)
	return page, err
}

var deviceStates = []store.DeviceState{
	store.DevicePending, store.DeviceApproved, store.DeviceActive, store.DeviceSuspended, store.DeviceRevoked,
}

// showDevice shows a device to admins and to itself. For others it does not exist.
func (a *API) showDevice(r *http.Request) (int, any, error) {
	id, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	if who := callerOf(r.Context()); !who.admin() && who.device.ID != id {
		return 0, nil, store.ErrNotFound
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	device, err := a.cfg.Store.Device(op.ctx, op.tenant, id)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, deviceAnswer(&device), nil
}

func deviceAnswer(d *store.Device) Device {
	answer := Device{
		DeviceID: d.ID.String(), Kind: string(d.Kind), Label: d.Label, State: string(d.State), Admin: d.Admin,
		Fingerprint: d.Fingerprint, CreatedAt: d.CreatedAt.UTC(),
	}
	if d.ApprovedAt != nil {
		answer.ApprovedAt = new(d.ApprovedAt.UTC())
	}
	if d.RevokedAt != nil {
		answer.RevokedAt = new(d.RevokedAt.UTC())
	}
	return answer
}

// approveDevice takes the fingerprint that the admin compared with the one the device
// shows (STATE, "Verify device fingerprint").
func (a *API) approveDevice(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if !who.admin() {
		return 0, nil, errNoAdmin
	}
	id, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	var body Approval
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	fingerprint, err := identity.ParseFingerprint(body.Fingerprint)
	if err != nil {
		return 0, nil, malformed(err.Error())
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	device, err := a.cfg.Store.ApproveDevice(op.ctx, op.tenant, id, who.device.ID, fingerprint)
	if errors.Is(err, store.ErrInvalid) {
		return 0, nil, malformed("that is not the fingerprint of this device: it holds other keys than those that were compared")
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, deviceAnswer(&device), nil
}

// activateDevice is the key-exchange init of the device that calls (APPROVED to ACTIVE).
func (a *API) activateDevice(r *http.Request) (int, any, error) {
	who := callerOf(r.Context())
	if who.operator {
		return 0, nil, &wire.Error{Code: wire.Forbidden, Detail: "only the device itself may do this, with its access token"}
	}
	var body PublishedDeviceKeys
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	if !body.enrolledBy(&who.device) {
		return 0, nil, malformed("agreement_key and agreement_signature are those the device enrolled with, or left out")
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	device, err := a.cfg.Store.ActivateDevice(op.ctx, op.tenant, who.device.ID)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, deviceAnswer(&device), nil
}

// enrolledBy reports whether what is given is what the device enrolled with.
func (p *PublishedDeviceKeys) enrolledBy(device *store.Device) bool {
	if p.AgreementKey == "" && p.AgreementSignature == "" {
		return true
	}
	var key [32]byte
	var signature [64]byte
	return device.Keys != nil && readBytes(p.AgreementKey, key[:]) && readBytes(p.AgreementSignature, signature[:]) &&
		subtle.ConstantTimeCompare(key[:], device.Keys.Agreement[:]) == 1 &&
		subtle.ConstantTimeCompare(signature[:], device.Keys.AgreementSignature[:]) == 1
}

// deviceMove is a change of a device's state by an admin.
type deviceMove func(ctx context.Context, tenant, device, by uuid.UUID) (store.DeviceChange, error)

func (a *API) suspendDevice(r *http.Request) (int, any, error) {
	return a.moveDevice(r, store.DeviceSuspended, a.cfg.Store.SuspendDevice)
}

func (a *API) reinstateDevice(r *http.Request) (int, any, error) {
	return a.moveDevice(r, store.DeviceActive, a.cfg.Store.ReinstateDevice)
}

func (a *API) revokeDevice(r *http.Request) (int, any, error) {
	return a.moveDevice(r, store.DeviceRevoked, a.cfg.Store.RevokeDevice)
}

// moveDevice changes a device's state, and puts it in force on every node before it answers
// (STATE, "WebSocket connections are closed immediately"). It may be repeated.
func (a *API) moveDevice(r *http.Request, to store.DeviceState, move deviceMove) (int, any, error) {
	who := callerOf(r.Context())
	if !who.admin() {
		return 0, nil, errNoAdmin
	}
	id, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	var change cluster.Change // of the whole tenant, since the device may be in many rooms
	if to != store.DeviceActive {
		change.Devices = []uuid.UUID{id}
	}
	moved, err := move(op.ctx, op.tenant, id, who.device.ID)
	if errors.Is(err, store.ErrConflict) {
		moved, err = op.movedBefore(id, to, err)
	}
	switch {
	case errors.Is(err, store.ErrForbidden):
		return 0, nil, err
	case err != nil:
		return 0, nil, op.inDoubt(change, err)
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, deviceAnswer(&moved.Device), nil
}

// movedBefore makes a repetition of a request no error: an earlier one may have been
// committed without an answer.
func (op *operation) movedBefore(id uuid.UUID, to store.DeviceState, conflict error) (store.DeviceChange, error) {
	device, err := op.api.cfg.Store.Device(op.ctx, op.tenant, id)
	if err != nil {
		return store.DeviceChange{}, err
	}
	if device.State != to {
		return store.DeviceChange{}, conflict
	}
	return store.DeviceChange{Device: device}, nil
}

func (a *API) deviceRoutes() []route {
	noSuchDevice := refusedAs{"not_found", "There is no such device."}
	wrongState := refusedAs{"conflict", "The state of the device does not allow this."}
	list := append(pageParameters(), parameter{"state", "Only devices in this state, for example `PENDING`.", "ACTIVE"})
	list[0].description = "Rows of a page, 1 to 500; default 100."
	move := func(name, summary, description string, handler handler) route {
		return route{method: http.MethodPost, path: "/v1/devices/{id}/" + name, access: forDevice, handler: handler, doc: doc{
			tag: "devices", summary: summary, who: forAdmins, description: description,
			status: http.StatusOK, answer: Device{},
			refusals: []refusedAs{noAdminAsks, noSuchDevice, wrongState, notAnnounced},
		}}
	}
	return []route{
		{method: http.MethodGet, path: "/v1/devices", access: forDevice, handler: a.listDevices, doc: doc{
			tag: "devices", summary: "List the devices", who: forAdmins, description: "In the order of their enrollment.",
			query: list, status: http.StatusOK, answer: Devices{},
			refusals: []refusedAs{noAdminAsks},
		}},
		{method: http.MethodGet, path: "/v1/devices/{id}", access: forDevice, handler: a.showDevice, doc: doc{
			tag: "devices", summary: "Show a device", who: "the device itself, admin devices, and the operator",
			status: http.StatusOK, answer: Device{}, refusals: []refusedAs{noSuchDevice},
		}},
		{method: http.MethodPost, path: "/v1/devices/{id}/approve", access: forDevice, handler: a.approveDevice, doc: doc{
			tag: "devices", summary: "Approve a device", who: forAdmins,
			description: "`PENDING` becomes `APPROVED`. The fingerprint is the one that the device shows on its own screen, which the admin " +
				"has compared: another one is refused.",
			request: Approval{}, status: http.StatusOK, answer: Device{}, example: Approval{Fingerprint: "{fingerprint}"},
			refusals: []refusedAs{noAdminAsks, noSuchDevice, wrongState, {"malformed_request", "It is not the fingerprint of this device."}},
		}},
		move("suspend", "Suspend a device", "`ACTIVE` becomes `SUSPENDED`: its connections are closed (4403) on every live node before the answer, and "+
			"neither its access tokens nor its credentials are valid. Its memberships stay. It may be repeated.", a.suspendDevice),
		move("reinstate", "Reinstate a device", "`SUSPENDED` becomes `ACTIVE` again, with the memberships and credentials it had. It may be repeated.", a.reinstateDevice),
		move("revoke", "Revoke a device", "`ACTIVE` becomes `REVOKED`, for ever. Its memberships, credentials and access tokens end at once, its connections are closed (4403) on every "+
			"live node before the answer, and each encrypted room it was in is `REKEYING`. It may be repeated.", a.revokeDevice),
		{method: http.MethodPut, path: "/v1/devices/me/keys", access: forDevice, handler: a.activateDevice, doc: doc{
			tag: "devices", summary: "Publish the device's keys, and become active", who: "the device itself",
			description: "The start of key exchange: `APPROVED` becomes `ACTIVE`. It may be repeated.",
			request:     PublishedDeviceKeys{}, status: http.StatusOK, answer: Device{}, example: PublishedDeviceKeys{},
			refusals: []refusedAs{{"forbidden", "The operator is no device."}, wrongState, {"malformed_request", "The keys are not those the device enrolled with."}},
		}},
		{method: http.MethodGet, path: "/v1/events", access: forDevice, handler: a.followEvents, doc: doc{
			tag: "devices", summary: "Follow what admins are told", who: forAdmins,
			description: "Server-sent events. `device_pending` tells of a device that waits for approval, with `device_id`, `kind`, `label`, " +
				"`fingerprint` and `created_at`; the stream begins with those that wait already. A comment comes every 15 s. It ends when " +
				"the caller is no admin any more, and when the server stops.",
			status: http.StatusOK, raw: []string{mediaEvents},
			refusals: []refusedAs{noAdminAsks, {"unavailable", "Too many follow already: 64, or 4 of one device."}},
		}},
	}
}
