package main

import "context"

type privateCommand struct {
	settings
	target
	Senders int `default:"256" help:"Participants who send, each with one envelope without a verdict."`
}

// Help is kong's long text of the command.
func (*privateCommand) Help() string {
	return `Pairs of agents send private messages to each other. One counts when its trace is committed, it is stored, its verdict has
come and it was delivered. The floor is messages to the same rooms of two, which are committed to history instead.
Example: relaybench private --senders 256`
}

// Run measures.
func (c *privateCommand) Run(ctx context.Context, con console) error {
	b, err := openBench(ctx, c.settings, c.target, con)
	if err != nil {
		return err
	}
	defer b.close()
	rooms, err := b.rooms(ctx, (c.Senders+1)/2, 2)
	if err != nil {
		return err
	}
	var runs []sample
	for range c.Runs {
		floor, moreOfFloor, err := b.roomMessages(ctx, rooms, 2*len(rooms), 1)
		if err != nil {
			return err
		}
		figure, more, err := b.fresh(ctx, 1,
			func(load *traffic) error { return joinPairs(load, rooms, "message", c.Size) },
			func(load *traffic) (float64, map[string]float64, error) { return b.measure(ctx, load, 0, 1) })
		if err != nil {
			return err
		}
		runs = append(runs, withFloor(figure, more, floor, moreOfFloor))
	}
	return b.finish("private", "messages/s", runs, &bar{value: 0.5, ofRatio: true})
}
