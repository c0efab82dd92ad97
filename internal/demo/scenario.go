package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/peerrelay/peerrelay/client"
)

const (
	settleTimeout = 20 * time.Second // for what is stored to be read

	chatEach   = 5  // messages of each while all are online
	directEach = 4  // of Alice and Bob, 1:1
	killEach   = 25 // of Alice and Bob around the kill, while Carol is away
	killAfter  = 12 // messages of those that were read before the server is killed
	revoked    = 3  // messages after Carol's device was revoked
)

// scenario is the story the demo tells.
type scenario struct {
	server  *server
	folder  string
	ledger  *ledger
	started time.Time

	alice, bob, carol *person
	room, direct      string
	last              client.Sent // the last message to the room
	carolAs           string      // her participant
	secrets           []secret    // that must be nowhere on the server
}

func newScenario(s *server, folder string) *scenario {
	return &scenario{server: s, folder: folder, ledger: newLedger(), started: time.Now()}
}

// say prints one line with the time since the start.
func (s *scenario) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

func (s *scenario) play(ctx context.Context) error {
	defer s.leave()
	for _, act := range []func(context.Context) error{
		s.open, s.invite, s.talk, s.oneToOne, s.killTheServer, s.carolReturns, s.revokeCarol, s.search,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return s.account()
}

// leave ends whatever is open.
func (s *scenario) leave() {
	for _, p := range []*person{s.alice, s.bob, s.carol} {
		if p == nil {
			continue
		}
		if p.stop != nil {
			_ = p.stop() // the story is over
		}
		_ = p.device.Close()
	}
}

// open starts the relay; Alice, its owner, enrolls with the first invite.
func (s *scenario) open(ctx context.Context) error {
	if err := s.server.start(ctx); err != nil {
		return err
	}
	s.say("relay is ready at %s (pid %d): embedded NATS, its own PostgreSQL", s.server.listen, s.server.pid())
	var invite struct {
		Token string `json:"token"`
	}
	if err := s.server.operate(ctx, &invite, "invite", "create", "--admin"); err != nil {
		return err
	}
	var err error
	if s.alice, err = enroll(ctx, s.server, s.folder, "alice", client.KindHuman, invite.Token, s.ledger); err != nil {
		return err
	}
	s.hide("the owner's invite", []byte(invite.Token))
	if _, err := s.alice.device.PublishKeys(ctx); err != nil {
		return err
	}
	s.say("alice enrolls with the owner's invite: her keys are made on her device and never leave it")
	return nil
}

// invite lets two agents enroll, and Alice approve what their own screens show.
func (s *scenario) invite(ctx context.Context) (err error) {
	if s.bob, err = s.agent(ctx, "bob"); err != nil {
		return err
	}
	if s.carol, err = s.agent(ctx, "carol"); err != nil {
		return err
	}
	if s.room, err = s.makeRoom(ctx, client.NewRoom{}, s.bob, s.carol); err != nil {
		return err
	}
	if s.direct, err = s.makeRoom(ctx, client.NewRoom{Kind: "direct"}, s.bob); err != nil {
		return err
	}
	s.carolAs = s.carol.sessions[s.room].Participant()
	s.say("alice makes a room of three, with sender keys, and a direct one with bob, with the double ratchet")
	return nil
}

func (s *scenario) agent(ctx context.Context, name string) (*person, error) {
	invite, err := s.alice.device.CreateInvite(ctx, client.NewInvite{Kind: client.KindAgent})
	if err != nil {
		return nil, err
	}
	s.hide("an invite", []byte(invite.Token))
	p, err := enroll(ctx, s.server, s.folder, name, client.KindAgent, invite.Token, s.ledger)
	if err != nil {
		return nil, err
	}
	s.say("%-5s enrolls with an invite of alice, and shows %s", name, p.device.Fingerprint())
	if _, err := s.alice.device.ApproveDevice(ctx, p.device.ID(), p.device.Fingerprint()); err != nil {
		return p, err
	}
	if _, err := p.device.PublishKeys(ctx); err != nil {
		return p, err
	}
	s.say("alice compares the fingerprint and approves: %s is active", name)
	return p, nil
}

func (s *scenario) makeRoom(ctx context.Context, room client.NewRoom, others ...*person) (string, error) {
	made, err := s.alice.device.CreateRoom(ctx, room)
	if err != nil {
		return "", err
	}
	for _, p := range others {
		if _, err := s.alice.device.AddMember(ctx, made.RoomID, p.device.ID(), client.RoleAgent); err != nil {
			return "", err
		}
	}
	for _, p := range append(others, s.alice) {
		if err := p.enter(ctx, made.RoomID); err != nil {
			return "", err
		}
	}
	return made.RoomID, nil
}

// talk: everybody is online.
func (s *scenario) talk(ctx context.Context) error {
	for _, p := range []*person{s.alice, s.bob, s.carol} {
		if err := p.listen(ctx); err != nil {
			return err
		}
	}
	s.say("all three listen; each writes %d messages to the room", chatEach)
	group, sending := errgroup.WithContext(ctx)
	group.Go(func() error { return s.writeAll(sending, s.alice, chatEach, "bob", "carol") })
	group.Go(func() error { return s.writeAll(sending, s.bob, chatEach, "alice", "carol") })
	group.Go(func() error { return s.writeAll(sending, s.carol, chatEach, "alice", "bob") })
	if err := group.Wait(); err != nil {
		return err
	}
	_, err := s.bob.write(ctx, s.room, s.carolAs, "between bob and carol alone", "carol")
	if err != nil {
		return err
	}
	return s.settle("the room")
}

func (s *scenario) writeAll(ctx context.Context, p *person, count int, readers ...string) error {
	for range count {
		if _, err := p.write(ctx, s.room, "", "to everybody", readers...); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until everybody has read what is for them, but who is away.
func (s *scenario) settle(where string) error {
	if !s.ledger.until(func(t totals) bool { return t.lost() == 0 }) {
		return fmt.Errorf("%s: %d messages were not read", where, s.ledger.totals().lost())
	}
	t := s.ledger.totals()
	s.say("%d messages so far, read %d times of %d", t.messages, t.read, t.due)
	return nil
}

// oneToOne: the owner writes first.
func (s *scenario) oneToOne(ctx context.Context) error {
	_, err := s.bob.sessions[s.direct].Send(ctx, client.Draft{Text: mark + " too early"})
	if err == nil {
		return errors.New("the agent could write before its owner")
	}
	s.say("bob may not write to the direct room yet: %v", err)
	for range directEach {
		if _, err := s.alice.write(ctx, s.direct, "", "1:1", "bob"); err != nil {
			return err
		}
		if err := s.settle1(); err != nil {
			return err
		}
		if _, err := s.bob.write(ctx, s.direct, "", "1:1", "alice"); err != nil {
			return err
		}
		if err := s.settle1(); err != nil {
			return err
		}
	}
	s.say("alice writes first; then both, %d messages each, every one under a key of its own", directEach)
	return nil
}

func (s *scenario) settle1() error {
	if !s.ledger.until(func(t totals) bool { return t.lost() == 0 }) {
		return errors.New("1:1: a message was not read")
	}
	return nil
}

// killTheServer: SIGKILL under traffic, with Carol offline, then a new process on the same data.
func (s *scenario) killTheServer(ctx context.Context) error {
	if err := s.carol.stop(); err != nil {
		return err
	}
	s.say("carol goes offline; alice and bob write %d each, and in the middle of it ...", killEach)
	before := s.ledger.totals().read
	group, sending := errgroup.WithContext(ctx)
	group.Go(func() error { return s.writeAll(sending, s.alice, killEach, "bob", "carol") })
	group.Go(func() error { return s.writeAll(sending, s.bob, killEach, "alice", "carol") })
	if !s.ledger.until(func(t totals) bool { return t.read >= before+killAfter }) {
		return errors.New("the messages before the kill were not read")
	}
	pid := s.server.pid()
	if err := s.server.kill(); err != nil {
		return err
	}
	s.say("SIGKILL to the relay (pid %d)", pid)
	from := time.Now()
	if err := s.server.start(ctx); err != nil {
		return err
	}
	s.say("relay is started again on the same data (pid %d), ready after %.1fs", s.server.pid(), time.Since(from).Seconds())
	if err := group.Wait(); err != nil {
		return err
	}
	if !s.ledger.until(func(t totals) bool { return t.lost() == s.ledger.missing("carol") }) {
		return errors.New("after the kill messages were not read")
	}
	s.say("alice and bob connected again by themselves, and have read all of each other")
	return nil
}

// carolReturns: what was written meanwhile waits for Carol.
func (s *scenario) carolReturns(ctx context.Context) error {
	missed := s.ledger.missing("carol")
	if err := s.carol.listen(ctx); err != nil {
		return err
	}
	s.say("carol comes back and resumes: %d messages wait for her", missed)
	return s.settle("carol")
}

// revokeCarol: what follows is not for Carol's device any more, even if somebody hands it over.
func (s *scenario) revokeCarol(ctx context.Context) error {
	if _, err := s.alice.device.RevokeDevice(ctx, s.carol.device.ID()); err != nil {
		return err
	}
	s.say("alice revokes carol's device; carol's connection: %v", s.carol.stop())
	for range revoked {
		sent, err := s.alice.write(ctx, s.room, "", "without carol", "bob")
		if err != nil {
			return err
		}
		s.last = sent
	}
	if err := s.settle("the room"); err != nil {
		return err
	}
	row, err := s.bob.device.HistoryMessage(ctx, s.room, s.last.IDs[0])
	if err != nil {
		return err
	}
	opened := false
	err = s.carol.sessions[s.room].Import(ctx, row.Envelope, func(item client.Item) error {
		opened = opened || item.Message != nil
		return nil
	})
	if err != nil {
		return err
	}
	if opened {
		return errors.New("carol's device opened a message of after its revocation")
	}
	s.say("bob hands carol the envelope of a message of after that: her keys do not open it")
	return nil
}

// account prints the result.
func (s *scenario) account() error {
	t := s.ledger.totals()
	fmt.Println()
	fmt.Printf("written    %4d messages, for %d readings\n", t.messages, t.due)
	fmt.Printf("read       %4d\n", t.read)
	fmt.Printf("twice      %4d\n", t.twice)
	fmt.Printf("failed     %4d\n", t.failed)
	fmt.Printf("lost       %4d\n", t.lost())
	switch {
	case t.lost() != 0:
		return fmt.Errorf("%d messages were not read", t.lost())
	case t.twice+t.foreign+t.failed != 0:
		return fmt.Errorf("%d messages were shown twice, %d to the wrong reader, %d not at all", t.twice, t.foreign, t.failed)
	}
	return nil
}
