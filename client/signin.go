package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// expiryMargin is how long before its end a token is not used any more.
const expiryMargin = time.Minute

// token returns an access token that is not the refused one.
func (d *Device) token(ctx context.Context, refused string) (string, error) {
	if err := acquire(ctx, d.signing); err != nil {
		return "", err
	}
	defer release(d.signing)
	if kept := d.access; kept.Token != "" && kept.Token != refused && kept.ExpiresAt.Sub(d.clock.Now()) > expiryMargin {
		return kept.Token, nil
	}
	access, err := d.signIn(ctx)
	if unauthorized(err) {
		return "", fmt.Errorf("%w: %w", ErrNotAdmitted, err)
	}
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	d.access = access
	_ = d.saveAccess(access) // where it cannot be kept, the next program signs in
	return access.Token, nil
}

// SignIn signs in, whether or not there is a token. Everything that needs one signs in by
// itself, and like SignIn returns ErrNotAdmitted where the relay does not let the device in.
func (d *Device) SignIn(ctx context.Context) error {
	if err := acquire(ctx, d.signing); err != nil {
		return err
	}
	d.access = accessToken{}
	release(d.signing)
	_, err := d.token(ctx, "")
	return err
}

// approvalPause is how long AwaitApproval waits between its attempts.
const approvalPause = 2 * time.Second

// AwaitApproval tries to sign in until the relay lets the device in, or ctx ends. What may
// be over by the next attempt (Retryable) does not end it.
func (d *Device) AwaitApproval(ctx context.Context) error {
	for {
		err := d.SignIn(ctx)
		if err == nil {
			return nil
		}
		if ended := ctx.Err(); ended != nil { // whatever the last attempt says
			return fmt.Errorf("await approval: %w", ended)
		}
		if !errors.Is(err, ErrNotAdmitted) && !Retryable(err) {
			return err
		}
		pause := approvalPause
		if refused, ok := errors.AsType[*APIError](err); ok {
			pause = max(pause, refused.RetryAfter)
		}
		if err := sleep(ctx, d.clock, pause); err != nil {
			return err
		}
	}
}

func (d *Device) signIn(ctx context.Context) (accessToken, error) {
	var challenge struct {
		Nonce string `json:"nonce"`
	}
	err := d.api.call(ctx, "", request{
		method: http.MethodPost, path: "/v1/auth/challenge", body: map[string]string{"device_id": d.self.DeviceID}, answer: &challenge,
	})
	if err != nil {
		return accessToken{}, err
	}
	nonce, ok := decodeToken(challenge.Nonce)
	id, known := wire.ParseUUID([]byte(d.self.DeviceID))
	if !ok || !known {
		return accessToken{}, errAnswer
	}
	signature := identity.SignIn(d.keys.identity, nonce, id)
	var signedIn struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	asked := d.clock.Now()
	err = d.api.call(ctx, "", request{
		method: http.MethodPost, path: "/v1/auth/token", answer: &signedIn,
		body: map[string]string{
			"device_id": d.self.DeviceID, "nonce": challenge.Nonce, "signature": base64.StdEncoding.EncodeToString(signature[:]),
		},
	})
	if err != nil {
		return accessToken{}, err
	}
	if _, ok := decodeToken(signedIn.AccessToken); !ok {
		return accessToken{}, errAnswer
	}
	lives := time.Duration(min(max(signedIn.ExpiresIn, 0), int64(24*time.Hour/time.Second))) * time.Second
	return accessToken{
		Token: signedIn.AccessToken, ExpiresAt: asked.Add(lives).UTC(), DeviceID: d.self.DeviceID, Relay: d.self.Relay,
	}, nil
}

// decodeToken reads the one text form of 32 bytes.
func decodeToken(text string) (raw [32]byte, ok bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) != len(raw) || len(text) != base64.RawURLEncoding.EncodedLen(len(raw)) {
		return raw, false
	}
	return [32]byte(data), true
}
