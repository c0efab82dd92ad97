package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/peerrelay/peerrelay/api"
)

// web is the HTTP side: the public listener with the WebSocket and the API, the
// operator socket, and the private listener with metrics and profiles.
type web struct {
	public  net.Listener
	private net.Listener
}

// startListeners binds the addresses first, so that a port that is taken is said
// before anything else is started.
func (n *Node) startListeners(ctx context.Context) error {
	n.web = new(web)
	var config net.ListenConfig
	var err error
	if n.web.public, err = config.Listen(ctx, "tcp", n.cfg.Listen); err != nil {
		return err
	}
	n.onClose("public listener", closeListener(n.web.public))
	if n.cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(n.cfg.TLSCert, n.cfg.TLSKey)
		if err != nil {
			return fmt.Errorf("TLS certificate: %w", err)
		}
		n.web.public = tls.NewListener(n.web.public, &tls.Config{
			Certificates: []tls.Certificate{pair},
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"h2", "http/1.1"},
		})
	}
	if n.cfg.MetricsListen == "off" {
		return nil
	}
	if n.web.private, err = config.Listen(ctx, "tcp", n.cfg.MetricsListen); err != nil {
		return err
	}
	n.onClose("metrics listener", closeListener(n.web.private))
	return nil
}

func closeListener(l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// startWeb begins to serve. Everything is up, so the first answer of /readyz is true.
func (n *Node) startWeb(context.Context) error {
	public, err := n.startAPI()
	if err != nil {
		return err
	}
	if n.web.private != nil {
		n.serve("metrics listener", n.web.private, api.Server(n.private(), n.log))
	}
	if err := n.writeSummary(); err != nil {
		return err
	}
	// Last, because what sees /readyz answer uses the rest at once.
	n.serve("public listener", n.web.public, n.publicServer(n.withFront(public)))
	if n.api != nil { // answers that go on for ever end before the servers wait for them
		n.onClose("event streams", func(context.Context) error { n.api.Close(); return nil })
	}
	return nil
}

// startAPI adds the API to the public listener and serves it to operators on the socket.
// An edge tells its health only.
func (n *Node) startAPI() (public http.Handler, err error) {
	if n.cfg.Role == RoleEdge {
		return api.HealthOnly(n.checks(), n.log), nil
	}
	service, err := n.newAPI()
	if err != nil {
		return nil, err
	}
	n.api = service
	socket, err := api.ListenSocket(filepath.Join(n.cfg.Data, api.SocketFile))
	if err != nil {
		return nil, err
	}
	n.serve("operator socket", socket, api.Server(service.Socket(), n.log))
	return service.Public(), nil
}

// withFront hands the WebSocket's one address to the front. It is no ServeMux, which
// would redirect other spellings of an address.
func (n *Node) withFront(rest http.Handler) http.Handler {
	if n.front == nil {
		return rest
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/relay" && r.URL.RawPath == "" {
			n.front.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

func (n *Node) newAPI() (*api.API, error) {
	token, err := api.LoadOperatorToken(n.cfg.Data)
	if err != nil {
		return nil, err
	}
	service, err := n.serviceToken()
	if err != nil {
		return nil, err
	}
	return api.New(api.Config{
		Store:         n.postgres,
		Announcer:     n.cluster,
		Inboxes:       n.inboxes,
		Presence:      n.cluster,
		Admission:     n.core,
		Board:         n.postgres,
		MLS:           n.cfg.MLS,
		OutboxWake:    n.outbox.Wake,
		OperatorToken: token,
		ServiceToken:  service,
		Limits:        n.cfg.HTTPLimits,
		Checks:        n.checks(),
		NATSContext:   cmp.Or(n.ContextFile(), n.cfg.NATSContext),
		NATSServers:   natsServers(n.cfg.NATSURL), // else the context's
		NATSCreds:     n.cfg.NATSCreds,
		Version:       n.cfg.Version,
		NodeID:        n.cluster.ID(),
		Listen:        n.Addr().String(),
		TLS:           n.cfg.TLSCert != "",
		Logger:        n.log,
		Registerer:    n.registry,
	})
}

// drainTimeout is the time that requests under way get when the node closes. A request
// may last for longer (a profile, a body that comes slowly), and must not take the time
// of what is closed after it.
const drainTimeout = 3 * time.Second

// serve runs one HTTP server until the node closes.
func (n *Node) serve(name string, listener net.Listener, server *http.Server) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !n.stopping.Load() {
			n.failed <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	n.onClose(name, func(ctx context.Context) error {
		defer func() { <-ended }()
		drain, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		if server.Shutdown(drain) == nil {
			return nil
		}
		n.log.Info("requests cut short", "listener", name)
		return server.Close()
	})
}

// publicServer is for everybody who can reach it, so it bounds what they hold open.
func (n *Node) publicServer(handler http.Handler) *http.Server {
	server := api.Server(handler, n.log)
	webSockets := func() int { return 0 }
	if n.front != nil {
		webSockets = n.front.Connections
	}
	server.ConnState = newConnections(cmp.Or(n.cfg.AddressConns, defaultAddressConns),
		func() int { return filesForHTTP(webSockets()) }, n.registry).changed
	return server
}

// defaultAddressConns is the front's, too.
const defaultAddressConns = 256

// private serves metrics and profiles; its address is never a public one by default.
func (n *Node) private() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// OwnerInvite makes the invite of the first admin. It reports false where there is an admin
// already, and on an edge.
func (n *Node) OwnerInvite(ctx context.Context) (invite api.Invite, made bool, err error) {
	if n.api == nil {
		return api.Invite{}, false, nil
	}
	return n.api.OwnerInvite(ctx)
}
