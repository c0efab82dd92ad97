package hints

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the instruments of a Publisher.
type metrics struct {
	registerer prometheus.Registerer
	pending    prometheus.Gauge
	published  prometheus.Counter
	failed     prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "relay", Subsystem: "board_hints", Name: "pending",
			Help: "Hints of all nodes that wait in the outbox, counted up to 10,000.",
		}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "relay", Subsystem: "board_hints", Name: "published_total",
			Help: "Hints this node wrote into inboxes, or dropped because nobody is entitled to them.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "relay", Subsystem: "board_hints", Name: "failed_total",
			Help: "Attempts of this node to publish a hint that are left to another attempt.",
		}),
	}
	var errs []error
	for _, c := range m.collectors() {
		errs = append(errs, registerer.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		m.unregister()
		return nil, err
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pending, m.published, m.failed}
}

func (m *metrics) unregister() {
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}
