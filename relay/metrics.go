package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/peerrelay/peerrelay/wire"
)

// metrics are the instruments of the core. Labels are pre-created, so that
// dashboards show zeros.
type metrics struct {
	hellos        *prometheus.CounterVec
	envelopes     *prometheus.CounterVec
	queued        [wire.KindKeyRequest + 1]prometheus.Counter // of envelopes, by kind
	nacks         *prometheus.CounterVec
	errors        *prometheus.CounterVec
	refusals      *prometheus.CounterVec
	sendToQueued  prometheus.Histogram
	sendToDeliver prometheus.Histogram
	liveRows      prometheus.Counter
	replayRows    prometheus.Counter
	catchUpRows   prometheus.Counter
	catchUps      prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Namespace: "relay", Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: "relay", Name: name, Help: help}, labels)
	}
	seconds := func(name, help string) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{
			Namespace: "relay", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.5 s
		})
	}
	m := &metrics{
		hellos:        vector("hellos_total", "Hello frames by result.", "result"),
		envelopes:     vector("envelopes_total", "Envelopes by kind and verdict.", "kind", "verdict"),
		nacks:         vector("nacks_total", "Nack frames by reason.", "reason"),
		errors:        vector("errors_total", "Error frames by reason.", "reason"),
		refusals:      vector("admission_refusals_total", "Envelopes refused, by the admission check.", "check"),
		sendToQueued:  seconds("send_to_queued_seconds", "From an envelope's arrival to its queued frames."),
		sendToDeliver: seconds("send_to_deliver_seconds", "From an envelope's arrival, on whichever node, to its live deliver frames on this one."),
		liveRows:      counter("live_rows_total", "Rows pushed live."),
		replayRows:    counter("replay_rows_total", "Rows sent by resumes."),
		catchUpRows:   counter("catch_up_rows_total", "Rows read by catch-ups."),
		catchUps:      counter("catch_ups_total", "Catch-ups of one connection after live rows may have been lost."),
	}
	m.create()
	return m
}

func (m *metrics) create() {
	for _, result := range []string{"welcome", "refused", "quota", "frozen", "unavailable"} {
		m.hellos.WithLabelValues(result)
	}
	for kind := wire.KindMessage; kind <= wire.KindKeyRequest; kind++ {
		m.queued[kind] = m.envelopes.WithLabelValues(kind.String(), "queued")
		m.envelopes.WithLabelValues(kind.String(), "nack")
	}
	for _, info := range wire.Codes() {
		switch info.Frame {
		case "nack":
			m.nacks.WithLabelValues(string(info.Code))
		case "error":
			m.errors.WithLabelValues(string(info.Code))
		}
	}
	for _, check := range admission {
		m.refusals.WithLabelValues(check.name)
	}
}

func (m *metrics) replayed(live bool, rows int) {
	if live {
		m.catchUpRows.Add(float64(rows))
		return
	}
	m.replayRows.Add(float64(rows))
}

// observeDeliver ignores times ahead of this node's clock.
func (m *metrics) observeDeliver(received time.Time) {
	if since := time.Since(received); since >= 0 {
		m.sendToDeliver.Observe(since.Seconds())
	}
}
