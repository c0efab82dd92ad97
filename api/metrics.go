package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/peerrelay/peerrelay/wire"
)

// noRoute is the label of requests for addresses and methods there are not, so that
// labels are bounded whatever is asked for.
const noRoute = "none"

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	limited  *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, routes []route) *metrics {
	if registerer == nil {
		registerer = prometheus.NewRegistry()
	}
	factory := promauto.With(registerer)
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: "relay", Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: vector("http_requests_total", "Requests of the API by route and status.", "route", "status"),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "relay", Name: "http_request_seconds", Help: "Time from a request's head to its answer, by route.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9), // 1 ms to 6.6 s
		}, []string{"route"}),
		refusals: vector("http_refusals_total", "Refused requests by code.", "code"),
		limited:  vector("http_limited_total", "Requests refused by a limit.", "limit"),
	}
	for i := range routes {
		m.requests.WithLabelValues(routes[i].name(), strconv.Itoa(max(http.StatusOK, routes[i].doc.status)))
		m.seconds.WithLabelValues(routes[i].name())
	}
	for _, info := range wire.Codes() {
		if info.Status != 0 {
			m.refusals.WithLabelValues(string(info.Code))
		}
	}
	for _, limit := range []string{limitToken, limitAddress, limitFailures, limitEnroll, limitRequests, limitShare, limitAnswers, limitBundles, limitChanges} {
		m.limited.WithLabelValues(limit)
	}
	return m
}

func (m *metrics) observe(to *route, status int, code string, took time.Duration) {
	name := noRoute
	if to != nil {
		name = to.name()
		m.seconds.WithLabelValues(name).Observe(took.Seconds())
	}
	m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
	if code != "" {
		m.refusals.WithLabelValues(code).Inc()
	}
}
