package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	settleTimeout = 15 * time.Second // for what is stored to arrive

	chatEach   = 8  // envelopes of each participant while all are online
	absentEach = 15 // of Alice and Bob while Carol is offline
	killEach   = 40 // of Alice and Bob around the kill
	killAfter  = 24 // queued envelopes of those before the server is killed
)

// scenario is the story the demo tells.
type scenario struct {
	server  *server
	ledger  *ledger
	started time.Time

	alice, bob, carol *participant
}

func newScenario(s *server) *scenario {
	return &scenario{server: s, ledger: newLedger(), started: time.Now()}
}

// say prints one line with the time since the start.
func (s *scenario) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

func (s *scenario) play(ctx context.Context) error {
	for _, act := range []func(context.Context) error{
		s.open, s.chat, s.carolMisses, s.killTheServer, s.carolReturns, s.settle,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	for _, p := range s.everyone() {
		p.hangUp()
	}
	return s.account()
}

func (s *scenario) everyone() []*participant { return []*participant{s.alice, s.bob, s.carol} }

// open starts the relay and makes a room with three participants.
func (s *scenario) open(ctx context.Context) error {
	if err := s.server.start(ctx); err != nil {
		return err
	}
	s.say("relay is ready at %s (pid %d): embedded NATS, its own PostgreSQL", s.server.listen, s.server.pid())

	var room struct {
		ID string `json:"room_id"`
	}
	if err := s.server.operate(ctx, &room, "room", "create"); err != nil {
		return err
	}
	s.say("room %s", room.ID)

	names := []string{"alice", "bob", "carol"}
	roles := []string{"owner", "agent", "agent"}
	var joined []*participant
	for i, name := range names {
		p, err := s.join(ctx, room.ID, name, roles[i])
		if err != nil {
			return err
		}
		joined = append(joined, p)
	}
	for _, p := range joined {
		for _, other := range joined {
			if other != p {
				p.others = append(p.others, other.name)
			}
		}
	}
	s.alice, s.bob, s.carol = joined[0], joined[1], joined[2]
	return nil
}

func (s *scenario) join(ctx context.Context, room, name, role string) (*participant, error) {
	var added struct {
		ID         string `json:"participant_id"`
		Credential string `json:"credential"`
	}
	if err := s.server.operate(ctx, &added, "participant", "add", "--room", room, "--role", role); err != nil {
		return nil, err
	}
	s.say("%-5s joins as %s, participant %s", name, role, added.ID)
	return &participant{
		name: name, id: added.ID, credential: added.Credential, url: s.server.url(), room: room,
		cursor: "0", ledger: s.ledger,
	}, nil
}

// chat: everybody is online.
func (s *scenario) chat(ctx context.Context) error {
	for _, p := range s.everyone() {
		if _, err := p.connect(ctx); err != nil {
			return err
		}
	}
	s.say("all three are connected; each sends %d envelopes", chatEach)
	if err := s.send(ctx, chatEach, s.everyone()...); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	now := s.ledger.totals()
	s.say("%d envelopes sent, %d deliveries, all live", now.sent, now.live)
	return nil
}

// send lets several participants send at the same time.
func (s *scenario) send(ctx context.Context, count int, senders ...*participant) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range senders {
		group.Go(func() error { return p.send(ctx, count) })
	}
	return group.Wait()
}

// carolMisses: Carol goes offline while the others go on, and comes back.
func (s *scenario) carolMisses(ctx context.Context) error {
	if err := s.carol.disconnect(ctx); err != nil {
		return err
	}
	s.say("carol goes offline at row %s; alice and bob send %d each", s.carol.cursor, absentEach)
	if err := s.send(ctx, absentEach, s.alice, s.bob); err != nil {
		return err
	}
	return s.returns(ctx, s.carol)
}

// returns connects and resumes, and says whether the replay brought what was missed.
func (s *scenario) returns(ctx context.Context, p *participant) error {
	missed := s.ledger.missing(p.name)
	got, err := p.connect(ctx)
	if err != nil {
		return err
	}
	s.say("%-5s comes back and resumes: missed %d, replayed %d", p.name, missed, got.fresh)
	return nil
}

// killTheServer: SIGKILL under traffic, with Carol offline, then a new process on the
// same data.
func (s *scenario) killTheServer(ctx context.Context) error {
	if err := s.carol.disconnect(ctx); err != nil {
		return err
	}
	s.say("carol goes offline again; alice and bob send %d each, and in the middle of it ...", killEach)
	if err := s.killWhileSending(ctx); err != nil {
		return err
	}
	from := time.Now()
	if err := s.server.start(ctx); err != nil {
		return err
	}
	s.say("relay is started again on the same data (pid %d), ready after %.1fs", s.server.pid(), time.Since(from).Seconds())

	for _, p := range []*participant{s.alice, s.bob} {
		if err := s.goesOn(ctx, p); err != nil {
			return err
		}
	}
	rest := func(p *participant) int { return chatEach + absentEach + killEach - p.sent }
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range []*participant{s.alice, s.bob} {
		group.Go(func() error { return p.send(ctx, rest(p)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.say("alice and bob have sent the rest")
	return nil
}

func (s *scenario) killWhileSending(ctx context.Context) error {
	before := s.ledger.totals().queued
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- s.send(sending, killEach, s.alice, s.bob) }()

	if !s.ledger.until(settleTimeout, func(t totals) bool { return t.queued >= before+killAfter }) {
		cancel()
		return errors.Join(<-sent, errors.New("the envelopes before the kill got no verdict"))
	}
	pid := s.server.pid()
	if err := s.server.kill(); err != nil {
		return err
	}
	s.say("SIGKILL to the relay (pid %d), %d envelopes of these were queued", pid, s.ledger.totals().queued-before)
	return <-sent
}

// goesOn is what a client does after a lost connection: resume, and send again what
// has no verdict.
func (s *scenario) goesOn(ctx context.Context, p *participant) error {
	p.hangUp()
	got, err := p.connect(ctx)
	if err != nil {
		return err
	}
	s.say("%-5s resumes at its last cursor: %d rows replayed, %d of them new", p.name, got.rows, got.fresh)
	if p.open == nil {
		return nil
	}
	s.say("%-5s sends %s again, the same bytes: it had no verdict when the server died", p.name, p.open.id)
	return p.resend(ctx)
}

// carolReturns: what was queued before and after the kill waits for Carol.
func (s *scenario) carolReturns(ctx context.Context) error { return s.returns(ctx, s.carol) }

// settle waits until everything that was sent has arrived; account says so if not.
func (s *scenario) settle(context.Context) error {
	s.ledger.until(settleTimeout, func(t totals) bool { return t.lost() == 0 })
	return nil
}

// account prints the result.
func (s *scenario) account() error {
	t := s.ledger.totals()
	fmt.Println()
	fmt.Printf("sent       %4d envelopes, each to two others: %d deliveries due\n", t.sent, t.due)
	fmt.Printf("queued     %4d envelopes, %d of them only when sent again after the kill\n", t.queued, t.resent)
	fmt.Printf("delivered  %4d live\n", t.live)
	fmt.Printf("replayed   %4d after being offline or after the kill (%d rows came twice and were recognised)\n", t.replayed, t.again)
	fmt.Printf("lost       %4d\n", t.lost())
	switch {
	case t.lost() != 0:
		return fmt.Errorf("%d deliveries are missing", t.lost())
	case t.altered != 0:
		return fmt.Errorf("%d deliveries have other bytes than were sent", t.altered)
	case t.queued != t.sent:
		return fmt.Errorf("%d envelopes were sent, %d queued", t.sent, t.queued)
	}
	return nil
}
