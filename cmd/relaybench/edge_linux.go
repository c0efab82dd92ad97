package main

import (
	"context"
	"path/filepath"
)

type edgeCommand struct {
	settings
	NATS    string `name:"nats" default:"external" enum:"external,embedded" help:"Where the streams are: in a NATS server of their own, on both sides, or embedded in the api node and in the all node."`
	Senders int    `default:"256" help:"Participants who send, each with one envelope without a verdict."`
	Members int    `default:"10" help:"Participants of a room."`
}

// Help is kong's long text of the command.
func (*edgeCommand) Help() string {
	return `The room messages of "relaybench room" through an edge node (--role edge), which asks an api node (--role api). The floor is
the same through one node that is both (--role all). Either side has a PostgreSQL and, with --nats external, a NATS server
of its own; only one of them works at a time. Example: relaybench edge --nats embedded`
}

// Run measures.
func (c *edgeCommand) Run(ctx context.Context, con console) error {
	if c.Members < 2 {
		return usageError{"--members is 2 or more"}
	}
	all, err := c.startAll(ctx, con)
	if err != nil {
		return err
	}
	defer all.close()
	edge, err := c.startEdge(ctx, con)
	if err != nil {
		return err
	}
	defer edge.close()
	count := (c.Senders + c.Members - 1) / c.Members
	roomsOfAll, err := all.rooms(ctx, count, c.Members)
	if err != nil {
		return err
	}
	roomsOfEdge, err := edge.rooms(ctx, count, c.Members)
	if err != nil {
		return err
	}
	var runs []sample
	for range c.Runs {
		floor, moreOfFloor, err := all.roomMessages(ctx, roomsOfAll, c.Senders, c.Members-1)
		if err != nil {
			return err
		}
		figure, more, err := edge.roomMessages(ctx, roomsOfEdge, c.Senders, c.Members-1)
		if err != nil {
			return err
		}
		runs = append(runs, withFloor(figure, more, floor, moreOfFloor))
	}
	edge.machine.Flags += " (NATS " + c.NATS + ")"
	return edge.finish("edge", "inbox writes/s", runs, &bar{value: 0.7, ofRatio: true})
}

// side is a relay with everything it needs.
type side struct {
	*bench
	edge *relay // in front of bench's own relay; nil: none
}

func (c *edgeCommand) startAll(ctx context.Context, con console) (*side, error) {
	s, err := c.startSide(ctx, con, "all")
	if err == nil {
		s.relay.name = "all"
	}
	return s, err
}

// startSide starts a broker, where there is to be one, and a node of this role.
func (c *edgeCommand) startSide(ctx context.Context, con console, role string) (_ *side, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	flags := []string{"--role=" + role}
	if c.NATS == "external" {
		flags = append(flags, "--nats-url=nats://"+address)
	}
	b, err := newBench(c.settings, con, flags...)
	if err != nil {
		return nil, err
	}
	s := &side{bench: b}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if c.NATS == "external" {
		folder := filepath.Join(b.relay.folder, "broker")
		if s.broker, err = startServing(ctx, "serve-nats", "--listen", address, "--dir", folder, "--sync", c.Sync); err != nil {
			return nil, err
		}
	}
	_, err = b.start(ctx)
	return s, err
}

// startEdge starts an api node and an edge node, through which participants come.
func (c *edgeCommand) startEdge(ctx context.Context, con console) (_ *side, err error) {
	s, err := c.startSide(ctx, con, "api")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	behind := s.relay
	behind.name = "api"
	flags := []string{
		"--inbox-sync=" + c.Sync, "--role=edge", "--api-url=http://" + behind.listen,
		"--service-token-file=" + filepath.Join(behind.data, "keys", "service.token"),
	}
	if c.NATS == "external" {
		flags = append(flags, "--nats-url=nats://"+s.broker.address)
	} else {
		flags = append(flags, "--nats-context="+filepath.Join(behind.data, "nats", "edge.json"))
	}
	s.edge, err = newRelay(behind.program, append(append(flags, limits...), c.RelayFlag...))
	if err != nil {
		return nil, err
	}
	s.edge.name = "edge"
	s.relay, s.behind = s.edge, []*relay{behind}
	_, err = s.start(ctx)
	return s, err
}

// close ends the nodes before what they need, and removes what they wrote last.
func (s *side) close() {
	if s.edge != nil {
		s.edge.remove()
		s.relay, s.behind = s.behind[0], nil
	}
	s.relay.stop()
	if s.broker != nil {
		s.broker.stop()
	}
	s.bench.close()
}
