package api

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/mls"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// addKeyPackages stores those that the device does not have yet, so that a request may be
// repeated.
func (a *API) addKeyPackages(r *http.Request) (int, any, error) {
	device := callerOf(r.Context()).device.ID
	done, err := a.senders.begin(device) // bodies are large
	if err != nil {
		return 0, nil, err
	}
	defer done()
	var body NewKeyPackages
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	packages, err := body.read()
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	stock, err := a.cfg.Store.AddKeyPackages(op.ctx, op.tenant, device, packages)
	switch {
	case errors.Is(err, store.ErrInvalid):
		return 0, nil, malformed("expires_at must be in the next 90 days")
	case errors.Is(err, store.ErrConflict):
		return 0, nil, &wire.Error{Code: wire.Conflict, Detail: "the device would have more than " + strconv.Itoa(store.MaxKeyPackages) + " key packages, or is not active"}
	case err != nil:
		return 0, nil, err
	}
	return http.StatusOK, stockAnswer(stock), nil
}

func (n *NewKeyPackages) read() ([]store.KeyPackage, error) {
	if len(n.KeyPackages) == 0 || len(n.KeyPackages) > store.MaxKeyPackagesAdded {
		return nil, malformed("key_packages must be 1 to 100")
	}
	packages := make([]store.KeyPackage, 0, len(n.KeyPackages))
	for i := range n.KeyPackages {
		given := &n.KeyPackages[i]
		data, message, err := readMLS(given.KeyPackage, "key_package", store.MaxKeyPackage)
		switch {
		case err != nil:
			return nil, err
		case message.WireFormat != mls.KeyPackage:
			return nil, malformed("key_package must be an MLSMessage with a KeyPackage")
		case given.ExpiresAt.IsZero():
			return nil, malformed("expires_at of a key package is missing")
		}
		packages = append(packages, store.KeyPackage{
			Ref: blake2b.Sum256(data), Bytes: data, LastResort: given.LastResort, ExpiresAt: given.ExpiresAt,
		})
	}
	return packages, nil
}

func stockAnswer(stock store.KeyPackageStock) KeyPackageStock {
	return KeyPackageStock{Available: stock.Available, LastResort: stock.LastResort}
}

func (a *API) countKeyPackages(r *http.Request) (int, any, error) {
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	stock, err := a.cfg.Store.KeyPackageStock(op.ctx, op.tenant, callerOf(r.Context()).device.ID)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, stockAnswer(stock), nil
}

// claimKeyPackages hands out a package for each participant, or none: whoever adds some of
// those it wanted to add would have to know which.
func (a *API) claimKeyPackages(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	device := callerOf(r.Context()).device.ID
	if err := a.limits.bundle(device); err != nil { // what one device takes is gone for all others
		return 0, nil, err
	}
	var body KeyPackageClaim
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	participants, err := bodyIDs(body.ParticipantIDs, "participant_ids", store.MaxCommitAdds)
	if err != nil {
		return 0, nil, err
	}
	if len(participants) == 0 {
		return 0, nil, malformed("participant_ids must be 1 to 100")
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	claimed, err := a.cfg.Store.ClaimKeyPackages(op.ctx, op.tenant, room, device, participants)
	if err != nil {
		return 0, nil, claimRefusal(err)
	}
	a.wakeOutbox() // who has few left is told
	answer := ClaimedKeyPackages{KeyPackages: make([]ClaimedKeyPackage, 0, len(claimed))}
	for i := range claimed {
		c := &claimed[i]
		answer.KeyPackages = append(answer.KeyPackages, ClaimedKeyPackage{
			ParticipantID: c.Participant.String(), DeviceID: c.Device.String(), KeyPackage: c.KeyPackage.Bytes, LastResort: c.KeyPackage.LastResort,
		})
	}
	return http.StatusOK, answer, nil
}

// claimRefusal says what the caller can do about it. Whose packages are exhausted says
// refusalOf.
func claimRefusal(err error) error {
	_, exhausted := errors.AsType[*store.ExhaustedError](err)
	switch {
	case exhausted:
		return err
	case errors.Is(err, store.ErrInvalid):
		return malformed("participant_ids must be others, each once")
	case errors.Is(err, store.ErrNotFound):
		return &wire.Error{Code: wire.NotFound, Detail: "there is no such room, or one of the participants is not in it"}
	}
	return groupRefusal(err)
}

// bodyIDs reads a list of ids of the body.
func bodyIDs(texts []string, member string, most int) ([]uuid.UUID, error) {
	if len(texts) > most {
		return nil, malformed(member + " must be at most " + strconv.Itoa(most))
	}
	ids := make([]uuid.UUID, 0, len(texts))
	for _, text := range texts {
		id, err := bodyID(text, "each of "+member)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
