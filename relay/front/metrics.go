package front

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/wire"
)

// metrics are the instruments of a Front. What is counted for every frame is a
// plain atomic that is read when asked for.
type metrics struct {
	accepted  prometheus.Counter
	refused   *prometheus.CounterVec
	closes    *prometheus.CounterVec
	byCode    map[wire.CloseCode]prometheus.Counter
	other     prometheus.Counter
	overflows prometheus.Counter

	framesIn, framesOut, bytesIn, bytesOut atomic.Int64
}

// closeLabels are the codes with a label of their own; 0 is a peer that vanished.
var closeLabels = [...]wire.CloseCode{
	0, 1000, wire.CloseGoingAway, wire.CloseProtocolError,
	wire.CloseUnsupportedData, noStatus, wire.CloseInvalidUTF8, wire.ClosePolicy,
	wire.CloseTooLarge, wire.CloseFrozen, wire.CloseQuota, wire.CloseAuth,
}

func newMetrics() *metrics {
	m := &metrics{
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_front_accepted_total", Help: "Upgraded connections.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_front_refused_total", Help: "Refused upgrades by reason.",
		}, []string{"reason"}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_front_closes_total", Help: "Ended connections by close code; none: the peer vanished.",
		}, []string{"code"}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_front_queue_overflows_total", Help: "Connections closed because their write queue was full.",
		}),
		byCode: make(map[wire.CloseCode]prometheus.Counter, len(closeLabels)),
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(string(reason))
	}
	for _, code := range closeLabels {
		label := strconv.Itoa(int(code))
		if code == 0 {
			label = "none"
		}
		m.byCode[code] = m.closes.WithLabelValues(label)
	}
	m.other = m.closes.WithLabelValues("other")
	return m
}

func (m *metrics) closed(code wire.CloseCode) {
	if counter, ok := m.byCode[code]; ok {
		counter.Inc()
		return
	}
	m.other.Inc()
}

func (m *metrics) register(registerer prometheus.Registerer, f *Front) error {
	collectors := []prometheus.Collector{
		m.accepted, m.refused, m.closes, m.overflows,
		gauge("relay_front_connections", "Open connections.", "pre_auth",
			func() float64 { pre, _ := f.admission.counts(); return float64(pre) }),
		gauge("relay_front_connections", "Open connections.", "authenticated",
			func() float64 { _, authenticated := f.admission.counts(); return float64(authenticated) }),
		gauge("relay_front_tasks", "Turns of connections.", "running",
			func() float64 { busy, _ := f.workers.counts(); return float64(busy) }),
		gauge("relay_front_tasks", "Turns of connections.", "waiting",
			func() float64 { _, waiting := f.workers.counts(); return float64(waiting) }),
		total("relay_front_frames_total", "WebSocket frames.", "in", &m.framesIn),
		total("relay_front_frames_total", "WebSocket frames.", "out", &m.framesOut),
		total("relay_front_bytes_total", "Bytes of WebSocket traffic.", "in", &m.bytesIn),
		total("relay_front_bytes_total", "Bytes of WebSocket traffic.", "out", &m.bytesOut),
	}
	for _, collector := range collectors {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

func gauge(name, help, state string, f func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"state": state},
	}, f)
}

func total(name, help, direction string, n *atomic.Int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"direction": direction},
	},
		func() float64 { return float64(n.Load()) })
}
