package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
)

// maxRooms is how many rooms one peer listen follows. Each is a connection, and all devices of a
// tenant have 1,024 of them (DESIGN section 6).
const maxRooms = 100

// Rooms are opened one after the other, since each takes some requests of the 50 that the relay
// answers a device in a second.
const (
	opensPerSecond = 8
	opensAtOnce    = 4
)

// After a failure it is tried again: the relay, or a room.
const (
	firstAgain   = time.Second
	longestAgain = time.Minute
)

// follower follows all rooms of a device, those too that it comes into meanwhile, and lets go of
// those that it is not in any more. What one room is refused for keeps no other from being read;
// what is this process's own ends all.
type follower struct {
	running *running
	con     console
	every   time.Duration
	listen  func(ctx context.Context, s *client.Session) error

	rooms    map[string]*followed
	failures int       // of looking, in a row
	quiet    time.Time // until then the relay is not asked again
	full     bool      // it was said that there are too many
	none     bool      // it was said that there are none
	ended    chan ended
	opening  *rate.Limiter
	working  sync.WaitGroup
}

// followed is a room that is followed, or will be.
type followed struct {
	end      context.CancelFunc // nil while nobody reads it
	begun    time.Time
	before   bool      // it has been read
	err      error     // that it ended with, and that was not told yet
	failures int       // in a row
	again    time.Time // when it is tried again
	refused  bool      // this program cannot read it
}

// ended is a room that is not read any more.
type ended struct {
	room string
	err  error
}

// everyRoom follows all rooms.
func (c *listenCommand) everyRoom(r *running) func(ctx context.Context, con console, take taking) error {
	return func(ctx context.Context, con console, take taking) error {
		select {
		case <-r.all:
			defer func() { r.all <- struct{}{} }()
		default: // a guest's
			return client.ErrReading
		}
		f := &follower{
			running: r, con: con, every: c.LookAgain, rooms: make(map[string]*followed),
			ended: make(chan ended), opening: rate.NewLimiter(opensPerSecond, opensAtOnce),
			listen: func(ctx context.Context, s *client.Session) error {
				return s.ListenWith(ctx, c.told(con, s.Room()), take(s))
			},
		}
		return f.follow(ctx)
	}
}

func (f *follower) follow(outer context.Context) error {
	ctx, cancel := context.WithCancel(outer)
	defer f.working.Wait()
	defer cancel()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.ended:
			if err := f.settle(e); err != nil {
				return err
			}
		case <-f.running.changed:
		case <-next.C:
		}
		pause := time.Until(f.quiet)
		if pause <= 0 {
			var err error
			if pause, err = f.look(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		next.Reset(pause)
	}
}

// settle notes that a room is not read any more, and the others of which that is known.
func (f *follower) settle(e ended) error {
	for {
		room := f.rooms[e.room]
		room.end = nil
		switch {
		case e.err == nil: // it was let go
		case errors.Is(e.err, encryption.ErrScheme):
			room.refused = true
			f.con.notef("room %s is left out: %v", e.room, e.err)
		case !ofRoom(e.err):
			return e.err
		default: // whether this device is in it is looked up first
			room.err = e.err
		}
		select {
		case e = <-f.ended:
		default:
			return nil
		}
	}
}

// look asks the relay which rooms there are, and does what follows from it. It returns when to look
// again, or an error that no other attempt mends.
func (f *follower) look(ctx context.Context) (pause time.Duration, err error) {
	found, err := roomsOf(ctx, f.running.device)
	if err != nil {
		if !ofRoom(err) || !client.Retryable(err) {
			return 0, err
		}
		f.failures++
		pause = pauseAfter(f.failures)
		f.quiet = time.Now().Add(pause)
		f.con.notef("%v; looking for rooms again in %s", err, pause.Round(100*time.Millisecond))
		return pause, nil
	}
	f.failures = 0
	f.leave(found)
	return f.enter(ctx, found), nil
}

// leave lets go of rooms that this device is not in any more.
func (f *follower) leave(found []client.Room) {
	for id, room := range f.rooms {
		if slices.ContainsFunc(found, func(r client.Room) bool { return r.RoomID == id }) {
			continue
		}
		if room.end != nil {
			room.end() // and when it has ended, this comes here again
			continue
		}
		delete(f.rooms, id)
		f.running.leave(id)
		f.con.notef("this device is not in room %s any more", id)
	}
}

// enter begins to read rooms that are not read, and returns when to look again.
func (f *follower) enter(ctx context.Context, found []client.Room) (pause time.Duration) {
	slices.SortStableFunc(found, func(a, b client.Room) int { return rank(a) - rank(b) })
	pause = f.every - rand.N(f.every/4+1) // spread over time
	for i := range found {
		id := found[i].RoomID
		room := f.rooms[id]
		if room == nil {
			if f.following() >= maxRooms {
				f.tooMany()
				continue
			}
			room = &followed{}
			f.rooms[id] = room
		}
		if wait := f.begin(ctx, id, room); wait > 0 {
			pause = min(pause, wait)
		}
	}
	f.tellNone(len(found) == 0)
	return pause
}

// rank puts rooms last that nothing comes to any more.
func rank(r client.Room) int {
	if r.State == client.RoomArchived {
		return 1
	}
	return 0
}

// following is how many rooms are followed.
func (f *follower) following() (count int) {
	for _, room := range f.rooms {
		if !room.refused {
			count++
		}
	}
	return count
}

func (f *follower) tooMany() {
	if !f.full {
		f.full = true
		f.con.notef("this device is in more than %d rooms, and the others are not followed: name them with --room, each for a peer listen of its own", maxRooms)
	}
}

func (f *follower) tellNone(none bool) {
	if none && !f.none {
		f.con.notef("this device is in no room: waiting until it is")
	}
	f.none = none
}

// begin reads a room, unless it is read already, cannot be, or is to wait.
func (f *follower) begin(ctx context.Context, id string, room *followed) (wait time.Duration) {
	if room.end != nil || room.refused {
		return 0
	}
	if room.err != nil {
		if time.Since(room.begun) > longestAgain {
			room.failures = 0
		}
		room.failures++
		pause := pauseAfter(room.failures)
		room.again = time.Now().Add(pause)
		f.con.notef("room %s: %v; trying again in %s", id, room.err, pause.Round(100*time.Millisecond))
		room.err = nil
	}
	if wait = time.Until(room.again); wait > 0 {
		return wait
	}
	reading, end := context.WithCancel(ctx)
	again := room.before
	room.end, room.begun, room.before = end, time.Now(), true
	f.working.Go(func() {
		defer end()
		err := f.read(reading, id, again)
		if reading.Err() != nil {
			err = nil
		}
		select {
		case f.ended <- ended{id, err}:
		case <-ctx.Done():
		}
	})
	return 0
}

// read reads a room until that ends.
func (f *follower) read(ctx context.Context, id string, again bool) error {
	if err := f.opening.Wait(ctx); err != nil {
		return err
	}
	session, err := f.session(ctx, id, again)
	if err != nil {
		return err
	}
	return f.listen(ctx, session)
}

// session is that of a room. Where it was read before, this device may be another participant now:
// somebody removed it and added it again.
func (f *follower) session(ctx context.Context, id string, again bool) (*client.Session, error) {
	session, err := f.running.session(ctx, id)
	if err != nil || !again {
		return session, err
	}
	now, err := f.running.device.Room(ctx, id)
	if err != nil {
		return nil, err
	}
	if now.ParticipantID == session.Participant() {
		return session, nil
	}
	f.running.leave(id)
	return f.running.session(ctx, id)
}

// pauseAfter is how long to wait after so many failures, spread over time.
func pauseAfter(failures int) time.Duration {
	longest := min(firstAgain<<min(failures, 10), longestAgain)
	return longest/2 + rand.N(longest/2) // spread over time
}

// ofRoom reports an error that is about a room, or the way to the relay, and not about this device
// or its key store.
func ofRoom(err error) bool {
	if errors.Is(err, client.ErrNotAdmitted) {
		return false
	}
	for _, known := range []error{encryption.ErrScheme, client.ErrReading, client.ErrNotMember, client.ErrTooManyRooms} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, refused := errors.AsType[*client.APIError](err)
	_, closed := errors.AsType[*client.CloseError](err)
	_, upgrade := errors.AsType[*client.UpgradeError](err)
	return refused || closed || upgrade || unreachable(err)
}
