package inbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	writeSeconds   prometheus.Histogram
	groupRows      prometheus.Histogram
	writes         *prometheus.CounterVec // result
	stored         prometheus.Counter
	unavailable    prometheus.Counter
	recoveries     prometheus.Counter
	streamsRemade  prometheus.Counter
	recentReads    *prometheus.CounterVec // source
	replayRows     *prometheus.CounterVec // source
	missed         prometheus.Counter
	queued         prometheus.Gauge
	unwritable     prometheus.Gauge
	recentBytes    prometheus.GaugeFunc
	orphansRemoved prometheus.Counter
}

// Label values.
const (
	resultStored      = "stored"
	resultUnavailable = "unavailable"
	sourceMemory      = "memory"
	sourceStream      = "stream"
)

func newMetrics(registerer prometheus.Registerer, recentBytes func() float64) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "relay", Subsystem: "inbox", Name: name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "relay", Subsystem: "inbox", Name: name, Help: help})
	}
	gauge := prometheus.GaugeOpts{Namespace: "relay", Subsystem: "inbox"}
	queued, unwritable, recent := gauge, gauge, gauge
	queued.Name, queued.Help = "queue_depth", "Messages that wait for a committer."
	unwritable.Name, unwritable.Help = "unwritable_shards", "Shards that could not store and have not passed a probe since."
	recent.Name, recent.Help = "recent_bytes", "Memory of recent rows."
	m := &metrics{
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "relay", Subsystem: "inbox", Name: "write_seconds",
			Help:    "Time from Write to its verdict.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13),
		}),
		groupRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "relay", Subsystem: "inbox", Name: "group_rows",
			Help: "Rows committed with one acknowledgement.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		writes:         counter("writes_total", "Messages by verdict.", "result"),
		recentReads:    counter("reads_total", "Reads answered from memory alone, or with the stream.", "source"),
		replayRows:     counter("replay_rows_total", "Rows read, by where they came from.", "source"),
		recoveries:     single("recoveries_total", "Groups whose fate had to be read from the stream."),
		streamsRemade:  single("streams_remade_total", "Streams that vanished and were made anew, without their rows."),
		missed:         single("missed_total", "Times the live feed may have lost messages, each of which makes connections catch up."),
		orphansRemoved: single("orphans_removed_total", "Rows of messages that were refused as unavailable, removed again."),
		queued:         prometheus.NewGauge(queued),
		unwritable:     prometheus.NewGauge(unwritable),
		recentBytes:    prometheus.NewGaugeFunc(recent, recentBytes),
	}
	m.stored, m.unavailable = m.writes.WithLabelValues(resultStored), m.writes.WithLabelValues(resultUnavailable)
	for _, source := range []string{sourceMemory, sourceStream} {
		m.recentReads.WithLabelValues(source)
		m.replayRows.WithLabelValues(source)
	}
	var errs []error
	for _, collector := range []prometheus.Collector{
		m.writeSeconds, m.groupRows, m.writes, m.recoveries, m.streamsRemade, m.recentReads,
		m.replayRows, m.missed, m.queued, m.unwritable, m.recentBytes, m.orphansRemoved,
	} {
		errs = append(errs, registerer.Register(collector))
	}
	return m, errors.Join(errs...)
}
