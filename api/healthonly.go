package api

import (
	"log/slog"
	"net/http"
)

// HealthOnly is the handler of a node that serves no API: /healthz and /readyz with these
// checks (see Config.Checks), and nothing else.
func HealthOnly(checks map[string]func() error, log *slog.Logger) http.Handler {
	a := newAPI(Config{Checks: checks, Logger: log})
	routes := a.healthRoutes()
	a.metrics = newMetrics(nil, routes)
	rt := newRouter(a, a.guardPublic, routes)
	rt.limits = a.limits
	return rt
}
