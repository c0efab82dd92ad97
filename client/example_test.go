package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// The examples run at a real relay, which outside of a test needs what testing.TB gives. What
// is not here is not used.
type exampleTB struct {
	testing.TB

	ctx      context.Context
	dir      string
	cleanups []func()
}

func (e *exampleTB) Helper()                  {}
func (e *exampleTB) Context() context.Context { return e.ctx }
func (e *exampleTB) Cleanup(f func())         { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Output() io.Writer        { return io.Discard }
func (e *exampleTB) Errorf(format string, values ...any) {
	panic(fmt.Sprintf(format, values...))
}
func (e *exampleTB) FailNow() { panic("an example failed") }
func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp(e.dir, "")
	check(err)
	return dir
}

// exampleRelay is a relay, the URL and folder of the examples, and how to end it.
type exampleRelay struct {
	*testkit.Relay

	dir string
	end func()
}

func startExample() exampleRelay {
	dir, err := os.MkdirTemp("", "example-")
	check(err)
	tb := &exampleTB{ctx: context.Background(), dir: dir}
	s := testkit.Shared(tb)
	return exampleRelay{Relay: s, dir: dir, end: func() {
		for _, cleanup := range slices.Backward(tb.cleanups) {
			cleanup()
		}
		check(os.RemoveAll(dir))
	}}
}

func (r *exampleRelay) invite(kind string, admin bool) string {
	return r.Invite(&exampleTB{ctx: context.Background()}, kind, admin).Token
}

// pair is an admin and an agent that are both active.
func (r *exampleRelay) pair(ctx context.Context) (alice, robot *client.Device) {
	alice, err := client.EnrollDevice(ctx, filepath.Join(r.dir, "alice"), client.Enrollment{
		RelayURL: r.URL(), Invite: r.invite("human", true), Kind: client.KindHuman, Label: "Alice's laptop",
	}, client.DeviceOptions{})
	check(err)
	_, err = alice.PublishKeys(ctx)
	check(err)
	robot, err = client.EnrollDevice(ctx, filepath.Join(r.dir, "robot"), client.Enrollment{
		RelayURL: r.URL(), Invite: r.invite("agent", false), Kind: client.KindAgent, Label: "build agent",
	}, client.DeviceOptions{})
	check(err)
	_, err = alice.ApproveDevice(ctx, robot.ID(), robot.Fingerprint())
	check(err)
	_, err = robot.PublishKeys(ctx)
	check(err)
	return alice, robot
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A device enrolls with an invite, an admin approves the fingerprint that it shows, and it
// becomes active.
func ExampleEnrollDevice() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()
	alice, other := relay.pair(ctx)
	defer alice.Close()
	defer other.Close()

	invite, err := alice.CreateInvite(ctx, client.NewInvite{Kind: client.KindAgent})
	check(err)
	robot, err := client.EnrollDevice(ctx, filepath.Join(relay.dir, "second"), client.Enrollment{
		RelayURL: relay.URL(), Invite: invite.Token, Kind: client.KindAgent, Label: "second agent",
	}, client.DeviceOptions{})
	check(err)
	defer robot.Close()
	fmt.Println("enrolled:", robot.LastState())

	// Alice reads the fingerprint on the robot's own screen, never from the relay.
	approved, err := alice.ApproveDevice(ctx, robot.ID(), robot.Fingerprint())
	check(err)
	fmt.Println("approved:", approved.State)

	check(robot.AwaitApproval(ctx))
	active, err := robot.PublishKeys(ctx)
	check(err)
	fmt.Println("ready:", active.State)
	// Output:
	// enrolled: PENDING
	// approved: APPROVED
	// ready: ACTIVE
}

// A device that people use is opened with a passphrase, one that runs by itself with a key
// file.
func ExampleOpenDevice() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()

	secret, err := keystore.Passphrase([]byte("correct horse battery staple"))
	check(err)
	dir := filepath.Join(relay.dir, "alice")
	made, err := client.EnrollDevice(ctx, dir, client.Enrollment{
		RelayURL: relay.URL(), Invite: relay.invite("human", true), Kind: client.KindHuman, Label: "laptop",
	}, client.DeviceOptions{Secret: secret})
	check(err)
	check(made.Close())

	wrong, err := keystore.Passphrase([]byte("incorrect horse"))
	check(err)
	_, err = client.OpenDevice(dir, client.DeviceOptions{Secret: wrong})
	fmt.Println(errors.Is(err, keystore.ErrWrongSecret))

	device, err := client.OpenDevice(dir, client.DeviceOptions{Secret: secret})
	check(err)
	defer device.Close()
	_, err = client.OpenDevice(dir, client.DeviceOptions{Secret: secret})
	fmt.Println(errors.Is(err, keystore.ErrInUse))
	// Output:
	// true
	// true
}

// Messages to a room, and what the other side polls.
func ExampleSession_Send() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()
	alice, robot := relay.pair(ctx)
	defer alice.Close()
	defer robot.Close()

	room, err := alice.CreateRoom(ctx, client.NewRoom{})
	check(err)
	_, err = alice.AddMember(ctx, room.RoomID, robot.ID(), client.RoleAgent)
	check(err)

	mine, err := alice.OpenSession(ctx, room.RoomID)
	check(err)
	sent, err := mine.Send(ctx, client.Draft{Text: "please build main"})
	check(err)
	fmt.Println("stored for", len(sent.Recipients))

	theirs, err := robot.OpenSession(ctx, room.RoomID)
	check(err)
	more, err := theirs.Poll(ctx, 0, func(item client.Item) error {
		if m := item.Message; m != nil {
			fmt.Println("robot reads:", m.Text)
		}
		return nil
	})
	check(err)
	fmt.Println("more:", more)
	// Output:
	// stored for 1
	// robot reads: please build main
	// more: false
}

// An agent that answers whatever its owner writes to it, in a direct room.
func ExampleSession_Listen() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()
	alice, robot := relay.pair(ctx)
	defer alice.Close()
	defer robot.Close()
	room, err := alice.CreateRoom(ctx, client.NewRoom{Kind: "direct"})
	check(err)
	_, err = alice.AddMember(ctx, room.RoomID, robot.ID(), client.RoleAgent)
	check(err)

	agent, err := robot.OpenSession(ctx, room.RoomID)
	check(err)
	_, err = agent.Send(ctx, client.Draft{Text: "hello?"})
	fmt.Println("the owner has to write first:", errors.Is(err, encryption.ErrNotActivated))

	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Listen(listening, func(item client.Item) error {
			if item.Message == nil {
				return nil // events of the room, failures, hints of the Board
			}
			_, err := agent.Send(listening, client.Draft{Text: "done: " + item.Message.Text})
			return err
		})
	}()

	owner, err := alice.OpenSession(ctx, room.RoomID)
	check(err)
	_, err = owner.Send(ctx, client.Draft{Text: "water the plants"})
	check(err)
	for answered := false; !answered; time.Sleep(20 * time.Millisecond) {
		_, err = owner.Poll(ctx, 0, func(item client.Item) error {
			if item.Message != nil {
				fmt.Println("alice reads:", item.Message.Text)
				answered = true
			}
			return nil
		})
		check(err)
	}
	stop()
	check(<-ended)
	// Output:
	// the owner has to write first: true
	// alice reads: done: water the plants
}

// Refusals have the codes of the protocol.
func ExampleSession_Send_refused() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()
	alice, robot := relay.pair(ctx)
	defer alice.Close()
	defer robot.Close()
	room, err := alice.CreateRoom(ctx, client.NewRoom{PrivateMessages: "refused"})
	check(err)
	_, err = alice.AddMember(ctx, room.RoomID, robot.ID(), client.RoleAgent)
	check(err)
	mine, err := alice.OpenSession(ctx, room.RoomID)
	check(err)

	// Only agents have notices.
	_, err = mine.Send(ctx, client.Draft{Text: "the build is red", Expires: time.Now().Add(time.Hour)})
	if refused, ok := errors.AsType[*client.NackError](err); ok {
		fmt.Println("refused:", refused.Reason)
	}
	fmt.Println(errors.Is(err, &wire.Error{Code: wire.NoticeNotPermitted}))
	// Output:
	// refused: notice_not_permitted
	// true
}

// A task on the Board, which everybody who is in the room at that moment can read.
func ExampleDevice_CreateCard() {
	relay, ctx := startExample(), context.Background()
	defer relay.end()
	alice, robot := relay.pair(ctx)
	defer alice.Close()
	defer robot.Close()
	room, err := alice.CreateRoom(ctx, client.NewRoom{})
	check(err)
	_, err = alice.AddMember(ctx, room.RoomID, robot.ID(), client.RoleAgent)
	check(err)

	made, err := alice.CreateCard(ctx, room.RoomID, boardseal.Task, client.BoardContent{Subject: "water the plants"})
	check(err)

	after, err := robot.BoardCursor(room.RoomID)
	check(err)
	for event, err := range robot.BoardEvents(ctx, room.RoomID, after) {
		check(err)
		fmt.Println(event.Type, event.CardID == made.CardID, event.Content.Subject)
		check(robot.MoveBoardCursor(room.RoomID, event))
	}
	// Output:
	// created true water the plants
}
