package cluster

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	group           *prometheus.Registry // of all of them
	held            prometheus.GaugeFunc
	lost            prometheus.Counter
	ended           prometheus.Counter
	applied         prometheus.Counter
	applyFailed     prometheus.Counter
	malformed       prometheus.Counter
	announceFailed  prometheus.Counter
	announceSeconds prometheus.Histogram
}

func newMetrics(held func() bool) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "relay", Subsystem: "cluster", Name: name, Help: help})
	}
	m := &metrics{
		group: prometheus.NewRegistry(),
		held: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "relay", Subsystem: "cluster", Name: "lease_held",
			Help: "1 while this node may accept and deliver.",
		}, func() float64 {
			if held() {
				return 1
			}
			return 0
		}),
		lost:           counter("lease_lost_total", "Leases this node lost."),
		ended:          counter("lease_ended_total", "Leases of other nodes that ran out and were ended by this one."),
		applied:        counter("changes_applied_total", "Changes of other nodes that were applied here, repeats included."),
		applyFailed:    counter("changes_failed_total", "Changes of other nodes that could not be applied here; they come again."),
		malformed:      counter("control_malformed_total", "Control messages that were not understood and ignored."),
		announceFailed: counter("announce_failed_total", "Announcements that not every live node acknowledged in time."),
		announceSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "relay", Subsystem: "cluster", Name: "announce_seconds",
			Help:    "Time until a change was in force on every live node.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	m.group.MustRegister(m.held, m.lost, m.ended, m.applied, m.applyFailed, m.malformed, m.announceFailed, m.announceSeconds)
	return m
}

// register shows all of them, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return r.Register(m.group)
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r != nil {
		r.Unregister(m.group)
	}
}
