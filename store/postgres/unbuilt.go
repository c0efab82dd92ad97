package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) CreateInvite(context.Context, store.NewInvite) (store.Invite, error) {
	return store.Invite{}, errUnbuilt
}
func (s *Store) RevokeInvite(context.Context, uuid.UUID, uuid.UUID) error { return errUnbuilt }
func (s *Store) Enroll(context.Context, store.Enrollment) (store.Device, error) {
	return store.Device{}, errUnbuilt
}
func (s *Store) ProofFailed(context.Context, store.TokenHash) error { return errUnbuilt }
func (s *Store) HasAdmin(context.Context, uuid.UUID) (bool, error)  { return false, errUnbuilt }
func (s *Store) Device(context.Context, uuid.UUID, uuid.UUID) (store.Device, error) {
	return store.Device{}, errUnbuilt
}
func (s *Store) DevicePage(context.Context, uuid.UUID, store.DeviceState, uuid.UUID, int) ([]store.Device, bool, error) {
	return nil, false, errUnbuilt
}
func (s *Store) ApproveDevice(context.Context, uuid.UUID, uuid.UUID, uuid.UUID, string) (store.Device, error) {
	return store.Device{}, errUnbuilt
}
func (s *Store) ActivateDevice(context.Context, uuid.UUID, uuid.UUID) (store.Device, error) {
	return store.Device{}, errUnbuilt
}
func (s *Store) SuspendDevice(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.DeviceChange, error) {
	return store.DeviceChange{}, errUnbuilt
}
func (s *Store) ReinstateDevice(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.DeviceChange, error) {
	return store.DeviceChange{}, errUnbuilt
}
func (s *Store) RevokeDevice(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.DeviceChange, error) {
	return store.DeviceChange{}, errUnbuilt
}
func (s *Store) NewChallenge(context.Context, uuid.UUID, uuid.UUID, store.TokenHash) error {
	return errUnbuilt
}
func (s *Store) SignIn(context.Context, uuid.UUID, uuid.UUID, store.TokenHash, store.TokenHash, time.Duration, func([32]byte) bool) (time.Time, error) {
	return time.Time{}, errUnbuilt
}
func (s *Store) AuthenticateDevice(context.Context, store.TokenHash) (store.Device, error) {
	return store.Device{}, errUnbuilt
}

var (
	_ store.Enrollments = (*Store)(nil)
	_ store.Devices     = (*Store)(nil)
	_ store.SignIns     = (*Store)(nil)
)
