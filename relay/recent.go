package relay

import (
	"slices"
	"time"
)

const (
	// An announcement that is later than this is lost, and a node that died before it made
	// one has been noticed.
	overtaking = time.Minute
	maxRecent  = 1024 // rows of one connection that are remembered
)

// recentRows are the rows that were pushed live to one connection, where several nodes
// write the same streams. Announcements can overtake each other there, and one is lost
// with a node that dies before it made it: a catch-up begins below what is remembered
// and skips what was pushed.
type recentRows struct {
	rows    []recentRow
	evicted uint64 // largest sequence that is no longer remembered
}

type recentRow struct {
	sequence uint64
	at       time.Time
}

func (r *recentRows) add(sequence uint64, now time.Time) {
	old := 0
	for old < len(r.rows) && (len(r.rows)-old >= maxRecent || now.Sub(r.rows[old].at) > overtaking) {
		r.evicted = max(r.evicted, r.rows[old].sequence)
		old++
	}
	r.rows = append(slices.Delete(r.rows, 0, old), recentRow{sequence, now})
}

func (r *recentRows) has(sequence uint64) bool {
	return slices.ContainsFunc(r.rows, func(row recentRow) bool { return row.sequence == sequence })
}
