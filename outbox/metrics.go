package outbox

import "github.com/prometheus/client_golang/prometheus"

// metrics are the instruments of a Publisher.
type metrics struct {
	registerer prometheus.Registerer
	group      *prometheus.Registry // of all of them
	pending    prometheus.Gauge
	published  prometheus.Counter
	failed     prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		group:      prometheus.NewRegistry(),
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
	m.group.MustRegister(m.pending, m.published, m.failed)
	return m, registerer.Register(m.group)
}

func (m *metrics) unregister() { m.registerer.Unregister(m.group) }
