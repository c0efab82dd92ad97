package ratchet

import (
	"cmp"
	"slices"
)

// chain is what is known of a receiving chain.
type chain struct {
	key  [32]byte // the sender's ratchet key
	next uint32   // of every message below it the key was derived; of one that ended, its length
	lost uint32   // of a message below it the key may have been dropped
	keys []kept   // of messages that did not come, by rising number
}

// kept is the key of a message that did not come yet.
type kept struct {
	n   uint32
	key [32]byte
}

func (c *chain) clone() chain {
	d := *c
	d.keys = slices.Clone(c.keys)
	return d
}

func (c *chain) find(n uint32) (at int, found bool) {
	return slices.BinarySearchFunc(c.keys, n, func(k kept, n uint32) int { return cmp.Compare(k.n, n) })
}

// remove deletes a key, in memory too.
func (c *chain) remove(at int) { c.keys = slices.Delete(c.keys, at, at+1) }

// drop deletes up to count of the oldest keys and returns how many.
func (c *chain) drop(count int) int {
	count = min(count, len(c.keys))
	if count > 0 {
		c.lost = max(c.lost, c.keys[count-1].n+1)
		c.keys = slices.Delete(c.keys, 0, count)
	}
	return count
}

// skipped is a chain key and the keys of the messages before it.
type skipped struct {
	chain [32]byte
	keys  []kept
}

// skip moves a chain key from a message to a later one, at most MaxSkip: ErrTooFarAhead.
func skip(chain [32]byte, from, to uint32) (skipped, error) {
	if to-from > MaxSkip { // to is never below from
		return skipped{}, ErrTooFarAhead
	}
	s := skipped{chain: chain, keys: make([]kept, 0, to-from)}
	for n := from; n < to; n++ {
		next, key := chainStep(s.chain)
		s.chain = next
		s.keys = append(s.keys, kept{n, key})
	}
	return s, nil
}
