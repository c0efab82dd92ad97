package client

import (
	"cmp"
	"maps"
	"slices"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// share is what of a sender takes room in the store until more of it comes: an envelope that waits
// for its key, or a file that has not come whole.
type share struct {
	key, room, from string
	age             uint64 // number in its room: the oldest has the lowest
	size            int    // bytes
	giveUp          func(tx *keystore.Tx) error
}

// bound is how much there may be of some shares.
type bound struct {
	of   func(*share) bool
	size func(*share) int
	most int
}

func everything(*share) bool { return true }
func one(*share) int         { return 1 }
func bytesOf(s *share) int   { return s.size }

// makeRoom gives up shares until all bounds are kept: the oldest one of the sender that has most of
// what a bound is of. So nobody's take the place of all others, or fill the store, which would then
// take nothing at all.
func makeRoom(tx *keystore.Tx, all []share, bounds ...bound) error {
	for _, b := range bounds {
		for {
			many, sum := make(map[string]int), 0
			for i := range all {
				if b.of(&all[i]) {
					many[all[i].from] += b.size(&all[i])
					sum += b.size(&all[i])
				}
			}
			if sum <= b.most || len(many) == 0 {
				break
			}
			most, oldest := slices.Max(slices.Collect(maps.Values(many))), -1
			for i := range all {
				if b.of(&all[i]) && many[all[i].from] == most && (oldest < 0 || cmp.Less(all[i].age, all[oldest].age)) {
					oldest = i
				}
			}
			if err := all[oldest].giveUp(tx); err != nil {
				return err
			}
			all = slices.Delete(all, oldest, oldest+1)
		}
	}
	return nil
}
