package front

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/wire"
)

// Config says how a Front behaves. Handler is required; the zero value of
// everything else is a working default.
type Config struct {
	Handler    relay.Handler
	Logger     *slog.Logger          // nil: no logs
	Registerer prometheus.Registerer // nil: metrics are kept but not registered

	// Origins are the web origins that may connect, "https://host" or
	// "https://host:port". Requests without an Origin header, which browsers always
	// send, pass; any other origin is refused.
	Origins []string

	Limits Limits
}

// Limits bounds what connections may cost.
type Limits struct {
	Conns          int // upgraded connections; 0: the open-files limit less a reserve
	PreAuthPerAddr int // of one address (IPv6: /64) before Authenticated; 0: 256
	Workers        int // connections whose messages are handled at once; 0: 4096
	QueueFrames    int // frames waiting to be written to one connection; 0: wire.MaxQueueFrames
	QueueBytes     int // bytes of them; 0: wire.MaxQueueBytes
	ControlFrames  int // pings and pongs one connection may send in a second; 0: 1000

	HelloTimeout   time.Duration // from the upgrade to Authenticated; 0: wire.HelloTimeout
	MessageTimeout time.Duration // from the first byte of a message to its last; 0: 10 s
	CloseTimeout   time.Duration // from Close to the end of the socket; 0: 1.5 s
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.PreAuthPerAddr, 256)
	setDefault(&l.Workers, 4096)
	setDefault(&l.QueueFrames, wire.MaxQueueFrames)
	setDefault(&l.QueueBytes, wire.MaxQueueBytes)
	setDefault(&l.ControlFrames, 1000)
	setDefault(&l.HelloTimeout, wire.HelloTimeout)
	setDefault(&l.MessageTimeout, 10*time.Second)
	setDefault(&l.CloseTimeout, 1500*time.Millisecond)
	webSockets, _ := OpenFiles()
	setDefault(&l.Conns, webSockets)
	return l
}

func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

func (c Config) validate() error {
	if c.Handler == nil {
		return errors.New("no handler")
	}
	l := c.Limits
	for name, n := range map[string]int{
		"Conns": l.Conns, "PreAuthPerAddr": l.PreAuthPerAddr, "Workers": l.Workers,
		"QueueFrames": l.QueueFrames, "QueueBytes": l.QueueBytes, "ControlFrames": l.ControlFrames,
	} {
		if n < 0 || n > 1<<30 {
			return fmt.Errorf("limit %s out of range: %d", name, n)
		}
	}
	for name, d := range map[string]time.Duration{
		"HelloTimeout": l.HelloTimeout, "MessageTimeout": l.MessageTimeout, "CloseTimeout": l.CloseTimeout,
	} {
		if d < 0 || d > 24*time.Hour {
			return fmt.Errorf("limit %s out of range: %s", name, d)
		}
	}
	return nil
}

// parseOrigins turns configured origins into what browsers send for them: scheme,
// host in lower case, and the port unless it is the scheme's own.
func parseOrigins(origins []string) (map[string]bool, error) {
	allowed := make(map[string]bool, len(origins))
	for _, text := range origins {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("origin %q: %w", text, err)
		}
		if (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil ||
			(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("origin %q: want scheme://host[:port]", text)
		}
		host := strings.ToLower(u.Host)
		if own := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]; u.Port() != "" {
			host = strings.TrimSuffix(host, own)
		}
		allowed[u.Scheme+"://"+host] = true
	}
	return allowed, nil
}
