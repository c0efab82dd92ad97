package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

type commitsCommand struct {
	settings
	Racers int `default:"100" help:"Members that commit at the same moment."`
	Rounds int `default:"20" help:"Epochs of one run."`
}

// Help is kong's long text of the command.
func (*commitsCommand) Help() string {
	return `All members of an MLS room commit for the same epoch at the same moment; exactly one must be accepted and the others be told
the epoch that is current. The figure is commits answered a second. The floor is as many requests at the same moment that only
look their caller up.
Example: relaybench commits --racers 50`
}

// Run measures.
func (c *commitsCommand) Run(ctx context.Context, con console) error {
	if c.Racers < 2 || c.Racers > store.MaxCommitAdds || c.Rounds < 1 {
		return usageError{fmt.Sprintf("--racers is 2 to %d, --rounds positive", store.MaxCommitAdds)}
	}
	b, err := openBench(ctx, c.settings, target{}, con)
	if err != nil {
		return err
	}
	defer b.close()
	all := newCallers(b.relay.listen, c.Racers)
	defer all.close()
	group, err := newGroup(ctx, b, all)
	if err != nil {
		return err
	}
	return b.repeat("commits", "commits/s", nil, func() (sample, error) { return c.once(ctx, b, group) })
}

// group is an MLS room whose members are devices, each with a caller of its own.
type group struct {
	room    string
	epoch   uint64
	devices []*device
	callers callers
}

func newGroup(ctx context.Context, b *bench, all callers) (*group, error) {
	devices, err := b.devices(ctx, all, len(all))
	if err != nil {
		return nil, err
	}
	var room api.Room
	if err := b.operator.post(ctx, "/v1/rooms", api.NewRoom{Scheme: string(store.SchemeMLS)}, &room); err != nil {
		return nil, err
	}
	g := &group{room: room.ID, devices: devices, callers: all}
	var added []string
	for i, d := range devices {
		var made api.Member
		err := b.operator.post(ctx, "/v1/rooms/"+room.ID+"/members", api.NewMember{Role: string(store.RoleAgent), DeviceID: d.id.String()}, &made)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			added = append(added, made.ParticipantID)
		}
	}
	first := g.commit(0)
	first.Added, first.Welcome = added, base64.StdEncoding.EncodeToString(mlsMessage(mlsWelcome, []byte{0, 1, 0}, mlsBytes("sealed")))
	return g, g.post(ctx, 0, first)
}

// Wire formats of RFC 9420 section 6, and what is written of a message.
const (
	mlsPrivateMessage = 2
	mlsWelcome        = 3
	mlsGroupInfo      = 4

	mlsVersion     = 1
	mlsContentType = 3 // commit
)

func mlsMessage(wireFormat uint16, parts ...[]byte) []byte {
	message := binary.BigEndian.AppendUint16(nil, mlsVersion)
	message = binary.BigEndian.AppendUint16(message, wireFormat)
	for _, part := range parts {
		message = append(message, part...)
	}
	return message
}

// mlsBytes is a vector of less than 64 bytes (RFC 9420 section 2.1.2).
func mlsBytes(content string) []byte { return append([]byte{byte(len(content))}, content...) }

const benchGroup = "relaybench"

// commit is a well-formed one for an epoch; what is encrypted in it is nothing.
func (*group) commit(epoch uint64) api.NewCommit {
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	opaque := mlsBytes(string(text(5, 48)))
	commit := mlsMessage(mlsPrivateMessage, mlsBytes(benchGroup), number(epoch), []byte{mlsContentType}, mlsBytes(""), opaque, opaque)
	context := append(binary.BigEndian.AppendUint16(nil, mlsVersion), 0, 1) // with a cipher suite
	context = append(append(append(context, mlsBytes(benchGroup)...), number(epoch+1)...), 0, 0, 0)
	info := mlsMessage(mlsGroupInfo, context, []byte{0}, opaque, []byte{0, 0, 0, 0}, opaque)
	return api.NewCommit{
		Epoch: new(epoch), Commit: base64.StdEncoding.EncodeToString(commit), GroupInfo: base64.StdEncoding.EncodeToString(info),
	}
}

func (g *group) post(ctx context.Context, racer int, commit api.NewCommit) error {
	return g.callers[racer].call(ctx, http.MethodPost, "/v1/rooms/"+g.room+"/commits", g.devices[racer].token, commit, nil)
}

// race does something for every racer at the same moment.
func (g *group) race(do func(racer int) error) (time.Duration, error) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, len(g.devices))
	for racer := range g.devices {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			errs[racer] = do(racer)
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	return time.Since(began), errors.Join(errs...)
}

func (c *commitsCommand) once(ctx context.Context, b *bench, g *group) (sample, error) {
	var floor, took time.Duration
	slowest := newHistogram()
	profiled := b.profile(ctx)
	for range c.Rounds {
		looked, err := g.race(func(racer int) error {
			d := g.devices[racer]
			return g.callers[racer].call(ctx, http.MethodGet, "/v1/devices/"+d.id.String(), d.token, nil, nil)
		})
		if err != nil {
			return sample{}, err
		}
		committed, err := c.round(ctx, g)
		if err != nil {
			return sample{}, err
		}
		floor, took = floor+looked, took+committed
		record(slowest, int64(committed))
		// Each device may change a room 10 times a second.
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return sample{}, err
		}
	}
	if err := profiled(); err != nil {
		return sample{}, err
	}
	requests := float64(c.Rounds * c.Racers)
	more := map[string]float64{"round_p50_ms": millis(slowest, 50), "round_max_ms": millis(slowest, 100)}
	return newSample(requests/took.Seconds(), requests/floor.Seconds(), more), nil
}

// round lets everybody commit and demands that one was accepted.
func (*commitsCommand) round(ctx context.Context, g *group) (time.Duration, error) {
	commit := g.commit(g.epoch + 1)
	var accepted atomic.Int64
	took, err := g.race(func(racer int) error {
		err := g.post(ctx, racer, commit)
		if refused, ok := errors.AsType[*callError](err); ok && refused.code == string(wire.EpochConflict) {
			return nil
		}
		if err == nil {
			accepted.Add(1)
		}
		return err
	})
	g.epoch++
	if err == nil && accepted.Load() != 1 {
		err = fmt.Errorf("%d commits of one epoch were accepted", accepted.Load())
	}
	return took, err
}
