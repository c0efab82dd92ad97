package main

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
)

// device has keys, as it enrolls and signs in.
type device struct {
	private ed25519.PrivateKey
	keys    identity.Keys
	id      uuid.UUID
	token   string // once it has signed in
}

func newDevice() (*device, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	d := &device{private: private}
	copy(d.keys.Identity[:], public)
	copy(d.keys.Agreement[:], agreement.PublicKey().Bytes())
	d.keys.AgreementSignature = identity.SignAgreement(private, d.keys.Agreement)
	return d, nil
}

// enroll makes an invite as the operator and uses it.
func (b *bench) enroll(ctx context.Context, c *caller, d *device, admin bool) error {
	kind := string(store.DeviceAgent)
	if admin {
		kind = string(store.DeviceHuman)
	}
	var invite api.Invite
	if err := b.operator.post(ctx, "/v1/invites", api.NewInvite{Kind: kind, Admin: admin}, &invite); err != nil {
		return err
	}
	token, err := bytes32(invite.Token)
	if err != nil {
		return err
	}
	proof := identity.SignEnrollment(d.private, token, &d.keys)
	var enrolled api.Enrolled
	err = c.call(ctx, http.MethodPost, "/v1/enroll", "", api.NewEnrollment{
		Token: invite.Token, Kind: kind, Label: "bench",
		IdentityKey:        base64.StdEncoding.EncodeToString(d.keys.Identity[:]),
		AgreementKey:       base64.StdEncoding.EncodeToString(d.keys.Agreement[:]),
		AgreementSignature: base64.StdEncoding.EncodeToString(d.keys.AgreementSignature[:]),
		Proof:              base64.StdEncoding.EncodeToString(proof[:]),
	}, &enrolled)
	if err != nil {
		return err
	}
	d.id, err = uuid.Parse(enrolled.DeviceID)
	return err
}

func bytes32(text string) (raw [32]byte, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(data) != len(raw) {
		err = fmt.Errorf("%d bytes instead of %d", len(data), len(raw))
	}
	copy(raw[:], data)
	return raw, err
}

// signIn gets an access token for the device.
func (c *caller) signIn(ctx context.Context, d *device) error {
	var challenge api.Challenge
	if err := c.call(ctx, http.MethodPost, "/v1/auth/challenge", "", api.NewChallenge{DeviceID: d.id.String()}, &challenge); err != nil {
		return err
	}
	nonce, err := bytes32(challenge.Nonce)
	if err != nil {
		return err
	}
	signature := identity.SignIn(d.private, nonce, d.id)
	var signedIn api.AccessToken
	err = c.call(ctx, http.MethodPost, "/v1/auth/token", "", api.NewAccessToken{
		DeviceID: d.id.String(), Nonce: challenge.Nonce, Signature: base64.StdEncoding.EncodeToString(signature[:]),
	}, &signedIn)
	d.token = signedIn.AccessToken
	return err
}

// devices makes devices that are ACTIVE and have signed in.
func (b *bench) devices(ctx context.Context, all callers, count int) ([]*device, error) {
	made := make([]*device, count)
	group, ctx := errgroup.WithContext(ctx)
	workers := min(setupWorkers, len(all))
	for worker := range workers {
		group.Go(func() error {
			for i := worker; i < count; i += workers {
				var err error
				if made[i], err = b.device(ctx, all[i%len(all)/workers*workers+worker]); err != nil {
					return fmt.Errorf("make a device: %w", err)
				}
			}
			return nil
		})
	}
	return made, group.Wait()
}

func (b *bench) device(ctx context.Context, c *caller) (*device, error) {
	d, err := newDevice()
	if err != nil {
		return nil, err
	}
	if err := b.enroll(ctx, c, d, false); err != nil {
		return nil, err
	}
	if err := b.operator.post(ctx, "/v1/devices/"+d.id.String()+"/approve", api.Approval{Fingerprint: d.keys.Fingerprint()}, nil); err != nil {
		return nil, err
	}
	if err := c.signIn(ctx, d); err != nil {
		return nil, err
	}
	return d, c.call(ctx, http.MethodPut, "/v1/devices/me/keys", d.token, api.PublishedDeviceKeys{}, nil)
}

// deviceCalls are settings of measurements of calls about devices.
type deviceCalls struct {
	settings
	Workers int `default:"16" help:"Requests that are under way at once."`
}

// addressesOfOne is how many addresses a worker has, so that limits per address bound
// nothing.
const addressesOfOne = 32

// measure measures pieces of work, beside commits of three rows.
func (c *deviceCalls) measure(ctx context.Context, con console, name, unit string,
	prepare func(b *bench, all callers) (func(ctx context.Context, worker, piece int, c *caller) error, error),
) error {
	if c.Workers < 1 {
		return usageError{"--workers is positive"}
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	all := newCallers(b.relay.listen, c.Workers*addressesOfOne)
	defer all.close()
	do, err := prepare(b, all)
	if err != nil {
		return err
	}
	pieces := make([]int, c.Workers)
	return b.repeat(name, unit, nil, func() (sample, error) {
		var floor perSecondFloor
		err := b.child(ctx, &floor, "floor-board", "--time", c.Time.String(), "--size", "256", "--writers", strconv.Itoa(c.Workers))
		if err != nil {
			return sample{}, err
		}
		profiled := func() error { return nil }
		done, err := b.inParallel(ctx, c.Workers, c.Time/4, c.Time, func(ctx context.Context, worker int) error {
			piece := pieces[worker]
			pieces[worker]++
			return do(ctx, worker, piece, all[worker*addressesOfOne+piece%addressesOfOne])
		}, func() { profiled = b.profile(ctx) }, nil)
		if err := errors.Join(err, profiled()); err != nil {
			return sample{}, err
		}
		b.say("floor: %.0f commits/s; %.0f %s", floor.PerSecond, done.perSecond, unit)
		return newSample(done.perSecond, floor.PerSecond, done.more(name)), nil
	})
}

type enrollCommand struct{ deviceCalls }

// Help is kong's long text of the command.
func (*enrollCommand) Help() string {
	return `Each enrollment is an invite, made by the operator, and a device with new keys that uses it. The floor is one PostgreSQL commit
of three rows.
Example: relaybench enroll --workers 32`
}

// Run measures.
func (c *enrollCommand) Run(ctx context.Context, con console) error {
	return c.measure(ctx, con, "enroll", "enrollments/s", func(b *bench, _ callers) (func(context.Context, int, int, *caller) error, error) {
		return func(ctx context.Context, _, _ int, call *caller) error {
			d, err := newDevice()
			if err != nil {
				return err
			}
			return b.enroll(ctx, call, d, false)
		}, nil
	})
}

type signInCommand struct {
	deviceCalls
	Devices int `default:"256" help:"Devices that sign in, one after the other."`
}

// Help is kong's long text of the command.
func (*signInCommand) Help() string {
	return `A sign-in is a challenge and a token for its signature. The floor is one PostgreSQL commit of three rows.
Example: relaybench signin --devices 1000`
}

// Run measures.
func (c *signInCommand) Run(ctx context.Context, con console) error {
	if c.Devices < c.Workers {
		return usageError{"--devices is at least --workers"}
	}
	return c.measure(ctx, con, "signin", "sign-ins/s", func(b *bench, all callers) (func(context.Context, int, int, *caller) error, error) {
		devices, err := b.devices(ctx, all, c.Devices)
		return func(ctx context.Context, worker, piece int, call *caller) error {
			return call.signIn(ctx, devices[(worker+piece*c.Workers)%(c.Devices/c.Workers*c.Workers)])
		}, err
	})
}

type mintCommand struct {
	deviceCalls
	Devices int `default:"512" help:"Devices that mint, one after the other; each may 50 times a second."`
}

// Help is kong's long text of the command.
func (*mintCommand) Help() string {
	return `Devices mint credentials for themselves in a room of theirs. The floor is one PostgreSQL commit of three rows.
Example: relaybench mint`
}

// Run measures.
func (c *mintCommand) Run(ctx context.Context, con console) error {
	if c.Devices < c.Workers {
		return usageError{"--devices is at least --workers"}
	}
	return c.measure(ctx, con, "mint", "credentials/s", func(b *bench, all callers) (func(context.Context, int, int, *caller) error, error) {
		devices, err := b.devices(ctx, all, c.Devices)
		if err != nil {
			return nil, err
		}
		roomOf := make([]string, len(devices))
		for i, d := range devices {
			if i%100 == 0 {
				var room api.Room
				if err := b.operator.post(ctx, "/v1/rooms", api.NewRoom{}, &room); err != nil {
					return nil, err
				}
				roomOf[i] = room.ID
			} else {
				roomOf[i] = roomOf[i-1]
			}
			err := b.operator.post(ctx, "/v1/rooms/"+roomOf[i]+"/members", api.NewMember{Role: string(store.RoleAgent), DeviceID: d.id.String()}, nil)
			if err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, worker, piece int, call *caller) error {
			i := (worker + piece*c.Workers) % (c.Devices / c.Workers * c.Workers)
			return call.call(ctx, http.MethodPost, "/v1/rooms/"+roomOf[i]+"/credentials", devices[i].token, api.NewCredential{}, nil)
		}, nil
	})
}
