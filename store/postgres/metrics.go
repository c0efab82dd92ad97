package postgres

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Outcomes of an appended row, as a label of relay_store_rows_total.
const (
	outcomeStored    = "stored"
	outcomeDuplicate = "duplicate"
	outcomeConflict  = "conflict"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

var outcomes = [...]string{outcomeStored, outcomeDuplicate, outcomeConflict, outcomeRefused, outcomeFailed}

// Names of the group commits, as the label "which".
const (
	commitHistory = "history"
	commitTraces  = "traces"
)

// metrics is what the store counts.
type metrics struct {
	registerer prometheus.Registerer
	group      *prometheus.Registry // of all of them
	deleted    prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, pool *pgxpool.Pool, commits ...*commitMetrics) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		group:      prometheus.NewRegistry(),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_history_pruned_total", Help: "History rows deleted because they left the window.",
		}),
	}
	m.group.MustRegister(
		m.deleted,
		gauge("relay_database_connections", "Open database connections.", func() float64 { return float64(pool.Stat().TotalConns()) }),
		gauge("relay_database_connections_busy", "Database connections in use.", func() float64 { return float64(pool.Stat().AcquiredConns()) }),
	)
	for _, c := range commits {
		m.group.MustRegister(c.collectors()...)
	}
	return m, m.register()
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// register shows all of them, or none.
func (m *metrics) register() error {
	if m.registerer == nil {
		return nil
	}
	return m.registerer.Register(m.group)
}

func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.group)
	}
}

func (m *metrics) pruned(rows int64) { m.deleted.Add(float64(rows)) }

// commitMetrics is what one group commit counts.
type commitMetrics struct {
	outcomes *prometheus.CounterVec
	rows     prometheus.Histogram
	seconds  prometheus.Histogram
	depth    prometheus.Collector
}

func newCommitMetrics(which string, depth func() int) *commitMetrics {
	labels := prometheus.Labels{"which": which}
	m := &commitMetrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_store_rows_total", Help: "Rows appended to the store, by outcome.", ConstLabels: labels,
		}, []string{"outcome"}),
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_store_commit_rows", Help: "Rows that shared one commit.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_store_commit_seconds", Help: "Time of one commit of rows, waiting for a connection included.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		depth: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "relay_store_queue_depth", Help: "Rows that wait for a commit.", ConstLabels: labels,
		}, func() float64 { return float64(depth()) }),
	}
	for _, outcome := range outcomes {
		m.outcomes.WithLabelValues(outcome)
	}
	return m
}

func (m *commitMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.outcomes, m.rows, m.seconds, m.depth}
}

func (m *commitMetrics) count(v verdict) { m.outcomes.WithLabelValues(outcomeOf(v)).Inc() }

func (m *commitMetrics) committed(rows int, took time.Duration) {
	m.rows.Observe(float64(rows))
	m.seconds.Observe(took.Seconds())
}

func outcomeOf(v verdict) string {
	var refusal *wire.Error
	switch {
	case v.duplicate:
		return outcomeDuplicate
	case v.err == nil:
		return outcomeStored
	case errors.As(v.err, &refusal) && refusal.Code == wire.HistoryConflict:
		return outcomeConflict
	case refusal != nil, errors.Is(v.err, store.ErrNotFound), errors.Is(v.err, store.ErrConflict):
		return outcomeRefused
	}
	return outcomeFailed
}
