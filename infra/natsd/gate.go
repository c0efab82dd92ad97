package natsd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// viewerMark in a consumer's metadata says that the gate let it be made.
	viewerMark = "relay-viewer"
	// viewerIdleMax is how long such a consumer lives unused at most: what nats stream
	// view asks for.
	viewerIdleMax = time.Hour

	gateTimeout = 5 * time.Second
)

// errRefused is a request that user debug may not make.
var errRefused = errors.New("refused")

// gate answers account DEBUG's requests about consumers: it checks each and asks account
// RELAY in its own words.
type gate struct {
	ctx    context.Context //nolint:containedctx // ends with the server, not with a call
	cancel context.CancelFunc
	debug  *nats.Conn // in account DEBUG
	relay  *nats.Conn // in account RELAY
}

func (s *Server) openGate() (_ *gate, err error) {
	g := &gate{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			g.close()
			err = fmt.Errorf("open debug gate: %w", err)
		}
	}()
	inProcess := nats.InProcessServer(s.ns)
	if g.relay, err = s.connect(relayUser, s.secrets.relay, inProcess, nats.Name("debug gate")); err != nil {
		return nil, err
	}
	if g.debug, err = s.connect(gateUser, s.secrets.gate, inProcess, nats.Name("debug gate")); err != nil {
		return nil, err
	}
	for _, subject := range gateSubjects {
		sub, err := g.debug.Subscribe(subject, g.answer)
		if err != nil {
			return nil, err
		}
		if err := sub.SetPendingLimits(64, 1<<20); err != nil { // more wait in vain
			return nil, err
		}
	}
	return g, g.debug.Flush()
}

func (g *gate) close() {
	if g == nil {
		return
	}
	g.cancel()
	for _, nc := range []*nats.Conn{g.debug, g.relay} {
		if nc != nil {
			nc.Close()
		}
	}
}

func (g *gate) answer(m *nats.Msg) {
	ctx, cancel := context.WithTimeout(g.ctx, gateTimeout)
	defer cancel()
	reply, err := g.forward(ctx, m)
	if err != nil {
		reply = apiError(m.Subject, err)
	}
	_ = m.Respond(reply) // to a client that may be gone
}

// forward returns RELAY's answer to m, or errRefused.
func (g *gate) forward(ctx context.Context, m *nats.Msg) ([]byte, error) {
	body := m.Data
	var err error
	if strings.HasPrefix(m.Subject, "$JS.API.CONSUMER.DELETE.") {
		err = g.checkDelete(ctx, m.Subject)
	} else {
		body, err = viewerRequest(m.Data)
	}
	if err != nil {
		return nil, err
	}
	answer, err := g.relay.RequestWithContext(ctx, m.Subject, body)
	if err != nil {
		return nil, fmt.Errorf("ask JetStream: %w", err)
	}
	return answer.Data, nil
}

// viewerRequest checks a request to make a consumer and writes it anew from what was
// understood, so that the server can't understand it differently. The consumer is
// marked, kept in memory, and ends when it is not used.
func viewerRequest(body []byte) ([]byte, error) {
	var req server.CreateConsumerRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("%w: not a request to make a consumer", errRefused)
	}
	c := &req.Config
	switch {
	case c.DeliverSubject != "" || c.DeliverGroup != "":
		return nil, fmt.Errorf("%w: only pull consumers; one that pushes could write to any subject", errRefused)
	case c.InactiveThreshold > viewerIdleMax, c.InactiveThreshold < 0:
		return nil, fmt.Errorf("%w: the inactive threshold is at most %s", errRefused, viewerIdleMax)
	case c.Durable != "" && c.InactiveThreshold == 0:
		return nil, fmt.Errorf("%w: a durable consumer needs an inactive threshold of at most %s", errRefused, viewerIdleMax)
	}
	req.Action = server.ActionCreate // never change one that is there
	c.MemoryStorage = true
	c.Metadata = map[string]string{viewerMark: "debug"}
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return b, nil
}

// checkDelete lets only consumers go that were made through the gate.
func (g *gate) checkDelete(ctx context.Context, subject string) error {
	info := "$JS.API.CONSUMER.INFO." + strings.TrimPrefix(subject, "$JS.API.CONSUMER.DELETE.")
	answer, err := g.relay.RequestWithContext(ctx, info, nil)
	if err != nil {
		return fmt.Errorf("ask JetStream: %w", err)
	}
	var found server.JSApiConsumerInfoResponse
	if err := json.Unmarshal(answer.Data, &found); err != nil {
		return fmt.Errorf("read answer of JetStream: %w", err)
	}
	if found.ConsumerInfo == nil || found.Config == nil || found.Config.Metadata[viewerMark] == "" {
		return fmt.Errorf("%w: not a consumer that the debug user made", errRefused)
	}
	return nil
}

// apiError is a JetStream API answer that carries err.
func apiError(subject string, err error) []byte {
	kind := server.JSApiConsumerCreateResponseType
	if strings.HasPrefix(subject, "$JS.API.CONSUMER.DELETE.") {
		kind = server.JSApiConsumerDeleteResponseType
	}
	code := 503
	if errors.Is(err, errRefused) {
		code = 403
	}
	b, err := json.Marshal(server.ApiResponse{
		Type:  kind,
		Error: &server.ApiError{Code: code, Description: "debug user: " + err.Error()},
	})
	if err != nil {
		return nil // strings and numbers: can't fail
	}
	return b
}
