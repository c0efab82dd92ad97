package outbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/store"
)

// metrics are the instruments of a Publisher.
type metrics struct {
	registerer prometheus.Registerer
	group      *prometheus.Registry // of all of them
	pending    prometheus.Gauge
	published  *prometheus.CounterVec
	failed     *prometheus.CounterVec
}

// kindOther labels what this program does not know.
const kindOther = "other"

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		group:      prometheus.NewRegistry(),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "relay", Subsystem: "outbox", Name: "pending",
			Help: "Rows of all nodes that wait in the outbox, counted up to 10,000.",
		}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "relay", Subsystem: "outbox", Name: "published_total",
			Help: "Rows this node wrote into inboxes, or dropped because nobody is entitled to them.",
		}, []string{"kind"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "relay", Subsystem: "outbox", Name: "failed_total",
			Help: "Attempts of this node to publish a row that are left to another attempt.",
		}, []string{"kind"}),
	}
	for _, kind := range kinds {
		m.published.WithLabelValues(kind.String())
		m.failed.WithLabelValues(kind.String())
	}
	m.failed.WithLabelValues(kindOther)
	m.group.MustRegister(m.pending, m.published, m.failed)
	return m, registerer.Register(m.group)
}

// add counts what became of the claimed rows.
func (m *metrics) add(claimed, published []store.OutboxRow) {
	left := map[string]int{}
	for _, row := range claimed {
		left[label(row.Kind)]++
	}
	for _, row := range published {
		left[label(row.Kind)]--
		m.published.WithLabelValues(label(row.Kind)).Inc()
	}
	for kind, n := range left {
		m.failed.WithLabelValues(kind).Add(float64(n))
	}
}

func label(kind string) string {
	if _, known := kindOf(kind); known {
		return kind
	}
	return kindOther
}

func (m *metrics) unregister() { m.registerer.Unregister(m.group) }
