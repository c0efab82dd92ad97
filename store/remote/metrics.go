package remote

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

type metrics struct {
	registerer prometheus.Registerer
	group      *prometheus.Registry // of all of them

	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec
	items    *prometheus.HistogramVec
	outcomes *prometheus.CounterVec
}

// Outcomes of what was appended, as the label of relay_edge_appends_total.
const (
	outcomeStored    = "stored"
	outcomeDuplicate = "duplicate"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

func newMetrics(registerer prometheus.Registerer, s *Store) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		group:      prometheus.NewRegistry(),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "relay_edge_call_seconds", Help: "Time of one request to the API, by what was asked.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"call"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_edge_call_failures_total", Help: "Requests to the API that got no answer that could be read.",
		}, []string{"call"}),
		items: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "relay_edge_request_items", Help: "Messages or traces that shared one request.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"call"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_edge_appends_total", Help: "Messages, traces and notices that were sent to the API, by what became of them.",
		}, []string{"call", "outcome"}),
	}
	for _, c := range []call{callAuthenticate, callCredentials, callRoster, callVersions, callHistory, callTraces, callNotices, callPing} {
		m.seconds.WithLabelValues(c.name)
		m.failures.WithLabelValues(c.name)
	}
	for _, c := range []call{callHistory, callTraces, callNotices} {
		for _, outcome := range []string{outcomeStored, outcomeDuplicate, outcomeRefused, outcomeFailed} {
			m.outcomes.WithLabelValues(c.name, outcome)
		}
	}
	m.group.MustRegister(
		m.seconds, m.failures, m.items, m.outcomes,
		queued(callHistory, func() int { return len(s.messages.queue) }),
		queued(callTraces, func() int { return len(s.traces.queue) }),
	)
	return m, m.register()
}

func queued(c call, depth func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "relay_edge_queue_depth", Help: "Messages or traces that wait to be sent to the API.",
		ConstLabels: prometheus.Labels{"call": c.name},
	}, func() float64 { return float64(depth()) })
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

func (m *metrics) called(name string, took time.Duration, err error) {
	m.seconds.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(name).Inc()
	}
}

// appended counts what became of one message, trace or notice.
func (m *metrics) appended(name string, o outcome) {
	result := outcomeStored
	var refusal *wire.Error
	switch {
	case o.appended.Duplicate:
		result = outcomeDuplicate
	case o.err == nil:
	case errors.As(o.err, &refusal), errors.Is(o.err, store.ErrNotFound), errors.Is(o.err, store.ErrConflict):
		result = outcomeRefused
	default:
		result = outcomeFailed
	}
	m.outcomes.WithLabelValues(name, result).Inc()
}
