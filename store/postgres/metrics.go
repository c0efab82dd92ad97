package postgres

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Outcomes of an appended message, as the label of relay_history_messages_total.
const (
	outcomeStored    = "stored"
	outcomeDuplicate = "duplicate"
	outcomeConflict  = "conflict"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector

	messages *prometheus.CounterVec
	rows     prometheus.Histogram
	seconds  prometheus.Histogram
	deleted  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, pool *pgxpool.Pool, depth func() int) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_history_messages_total", Help: "Messages appended to history, by outcome.",
		}, []string{"outcome"}),
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_history_commit_rows", Help: "Messages that shared one commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_history_commit_seconds", Help: "Time of one commit of messages, waiting for a connection included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_history_pruned_total", Help: "History rows deleted because they left the window.",
		}),
	}
	for _, outcome := range []string{outcomeStored, outcomeDuplicate, outcomeConflict, outcomeRefused, outcomeFailed} {
		m.messages.WithLabelValues(outcome)
	}
	m.collectors = []prometheus.Collector{
		m.messages, m.rows, m.seconds, m.deleted,
		gauge("relay_history_queue_depth", "Messages that wait for a flusher.", func() float64 { return float64(depth()) }),
		gauge("relay_database_connections", "Open database connections.", func() float64 { return float64(pool.Stat().TotalConns()) }),
		gauge("relay_database_connections_busy", "Database connections in use.", func() float64 { return float64(pool.Stat().AcquiredConns()) }),
	}
	return m, m.register()
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func (m *metrics) register() error {
	if m.registerer == nil {
		return nil
	}
	for _, c := range m.collectors {
		if err := m.registerer.Register(c); err != nil {
			m.unregister()
			return err
		}
	}
	return nil
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) count(v verdict) { m.messages.WithLabelValues(outcomeOf(v)).Inc() }

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

func (m *metrics) committed(rows int, took time.Duration) {
	m.rows.Observe(float64(rows))
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) pruned(rows int64) { m.deleted.Add(float64(rows)) }
