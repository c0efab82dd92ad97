package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// credentialLife is what the device asks for, in the relay's own words a day.
	credentialLife = 24 * time.Hour
	// credentialMargin is how long before its end a credential is not used any more: a
	// connection ends with the credential that opened it.
	credentialMargin = time.Hour
	maxCredentials   = 1024 // rooms
)

// credentials are those of the participants that this device is in its rooms, in memory
// only. The zero value has none.
type credentials struct {
	mu    sync.Mutex // guards the following field
	rooms map[string]*roomLogin
}

// roomLogin is the credential of one room.
type roomLogin struct {
	minting chan struct{} // holds one value while nobody mints
	kept    Credential    // guarded by minting
	until   time.Time     // guarded by minting; by this device's clock, whatever the relay's says
}

// of returns the login of a room. The oldest one of another room makes place for it where
// there are too many.
func (c *credentials) of(room string) *roomLogin {
	c.mu.Lock()
	defer c.mu.Unlock()
	if login, ok := c.rooms[room]; ok {
		return login
	}
	if len(c.rooms) >= maxCredentials {
		for other := range c.rooms { // any one: it is minted again where it is needed
			delete(c.rooms, other)
			break
		}
	}
	if c.rooms == nil {
		c.rooms = make(map[string]*roomLogin)
	}
	login := &roomLogin{minting: free()}
	c.rooms[room] = login
	return login
}

// forget drops the credential of a room: this device is another participant there now.
func (c *credentials) forget(room string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rooms, room)
}

// roomCredential returns a credential of the participant that this device is in a room, good
// for an hour at least: the one that was minted before, or a new one.
func (d *Device) roomCredential(ctx context.Context, room string) (Credential, error) {
	return d.roomCredentialAfter(ctx, room, "")
}

// roomCredentialAfter returns one that is not the refused one.
func (d *Device) roomCredentialAfter(ctx context.Context, room, refused string) (Credential, error) {
	if err := checkIDs(room); err != nil {
		return Credential{}, fmt.Errorf("room %q: %w", room, err)
	}
	login := d.credentials.of(room)
	if err := acquire(ctx, login.minting); err != nil {
		return Credential{}, err
	}
	defer release(login.minting)
	now := d.clock.Now()
	if kept := login.kept; kept.Token != "" && kept.Token != refused && now.Before(login.until.Add(-credentialMargin)) {
		return kept, nil
	}
	login.kept = Credential{}
	made, err := d.MintCredential(ctx, room, credentialLife)
	if err != nil {
		return Credential{}, err
	}
	if made.RoomID != room || checkIDs(made.ParticipantID) != nil {
		return Credential{}, fmt.Errorf("mint a credential: %w", errAnswer)
	}
	login.kept, login.until = made, now.Add(credentialLife)
	return made, nil
}

// inSession makes a request below /v1/sessions/{room}, as the participant that this device
// is there. A credential that is refused, as it was revoked or belonged to an earlier
// membership, is replaced once: nothing was done with it.
func (d *Device) inSession(ctx context.Context, room, path string, r request) error {
	credential, err := d.roomCredential(ctx, room)
	if err != nil {
		return err
	}
	r.path = "/v1/sessions/" + room + path
	err = d.api.call(ctx, credential.Token, r)
	if !unauthorized(err) {
		return err
	}
	again, err := d.roomCredentialAfter(ctx, room, credential.Token)
	if err != nil {
		return err
	}
	return d.api.call(ctx, again.Token, r)
}
