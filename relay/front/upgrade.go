package front

import (
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gobwas/ws"

	"github.com/peerrelay/peerrelay/wire"
)

// upgradeTimeout bounds the writing of the answer to an upgrade request.
const upgradeTimeout = 5 * time.Second

// ServeHTTP upgrades the request to a WebSocket connection (RFC 6455 section 4.2),
// or refuses it:
//
//	405 not GET        400 malformed, or with a body      426 no upgrade, or another version
//	403 foreign origin 429 too many unauthenticated       503 shutting down
//	                       connections of the address
//
// At the node's limit the request is upgraded and closed with 1013. The query
// string is ignored; no extension or subprotocol is ever negotiated. How long the
// head of a request may take and how large it may be is up to the http.Server:
// give it ReadHeaderTimeout and MaxHeaderBytes.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refused := f.checkRequest(r); refused != nil {
		f.refuse(w, refused)
		return
	}
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		f.refuse(w, &httpRefusal{refusedRequest, http.StatusBadRequest, "no remote address"})
		return
	}
	if !f.begin() {
		f.refuse(w, &httpRefusal{refusedShutdown, http.StatusServiceUnavailable, "shutting down"})
		return
	}
	switch f.admission.admit(addr.Addr()) {
	case refusedAddress:
		f.open.Done()
		w.Header().Set("Retry-After", "1")
		f.refuse(w, &httpRefusal{refusedAddress, http.StatusTooManyRequests, "too many unauthenticated connections"})
		return
	case refusedNode:
		f.refuseAtLimit(w, r)
		f.open.Done()
		return
	default: // admitted
	}
	nc, early, err := f.hijack(w, r)
	if err != nil {
		f.metrics.refused.WithLabelValues(string(refusedHijack)).Inc()
		f.log.DebugContext(r.Context(), "upgrade not completed", "error", err)
		f.admission.release(addr.Addr(), false)
		f.open.Done()
		return
	}
	f.metrics.accepted.Inc()
	f.serve(nc, addr, early)
}

// httpRefusal is the answer to a request that is not upgraded.
type httpRefusal struct {
	reason refusal
	status int
	text   string
}

func (f *Front) refuse(w http.ResponseWriter, refused *httpRefusal) {
	f.metrics.refused.WithLabelValues(string(refused.reason)).Inc()
	header := w.Header()
	header.Set("Connection", "close")
	switch refused.status {
	case http.StatusUpgradeRequired:
		header.Set("Upgrade", "websocket")
		header.Add("Connection", "Upgrade") // behind "close", where net/http looks for it
		header.Set("Sec-WebSocket-Version", "13")
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodGet)
	}
	http.Error(w, refused.text, refused.status)
}

func (f *Front) checkRequest(r *http.Request) *httpRefusal {
	bad := func(text string) *httpRefusal {
		return &httpRefusal{refusedRequest, http.StatusBadRequest, text}
	}
	switch {
	case r.Method != http.MethodGet:
		return &httpRefusal{refusedMethod, http.StatusMethodNotAllowed, "GET only"}
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return bad("HTTP/1.1 only")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return bad("a body is not allowed")
	case !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket"):
		return &httpRefusal{refusedRequest, http.StatusUpgradeRequired, "WebSocket upgrade required"}
	}
	if versions := r.Header.Values("Sec-WebSocket-Version"); len(versions) != 1 || versions[0] != "13" {
		return &httpRefusal{refusedVersion, http.StatusUpgradeRequired, "WebSocket version 13 required"}
	}
	if keys := r.Header.Values("Sec-WebSocket-Key"); len(keys) != 1 || !validKey(keys[0]) {
		return bad("malformed Sec-WebSocket-Key")
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || (len(origins) == 1 && !f.origins[origins[0]]) {
		return &httpRefusal{refusedOrigin, http.StatusForbidden, "origin not allowed"}
	}
	return nil
}

// hasToken reports whether the comma-separated header has the token, which is in
// lower case.
func hasToken(header http.Header, name, token string) bool {
	for _, line := range header.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

func validKey(key string) bool {
	nonce, err := base64.StdEncoding.Strict().DecodeString(key)
	return err == nil && len(nonce) == 16 && len(key) == 24
}

// acceptKey answers a Sec-WebSocket-Key (RFC 6455 section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// hijack takes the connection over and answers the upgrade. The returned buffer,
// perhaps nil, has the bytes that came right behind the request.
func (f *Front) hijack(w http.ResponseWriter, r *http.Request) (net.Conn, *buffer, error) {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		f.refuse(w, &httpRefusal{refusedHijack, http.StatusInternalServerError, "cannot upgrade"})
		return nil, nil, err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + acceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n\r\n"
	err = nc.SetDeadline(time.Now().Add(upgradeTimeout))
	if err == nil {
		_, err = nc.Write([]byte(answer))
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = nc.Close() // the first error says more
		return nil, nil, err
	}
	var early *buffer
	if n := rw.Reader.Buffered(); n > 0 {
		bytes, _ := rw.Peek(n) // cannot fail: they are there
		early = f.buffers.get(n)
		early.b = append(early.b, bytes...)
	}
	return nc, early, nil
}

// serve makes a connection of an upgraded socket and starts it.
func (f *Front) serve(nc net.Conn, addr netip.AddrPort, early *buffer) {
	c := &conn{front: f, addr: addr, fd: -1, turn: turnRunning}
	if early != nil {
		c.takeDecoder()
		c.decoder.early = early
	}
	if tcp, ok := nc.(*net.TCPConn); ok && f.poller.usable() {
		if err := f.poller.attach(c, tcp); err != nil {
			f.metrics.refused.WithLabelValues(string(refusedHijack)).Inc()
			f.log.Debug("cannot poll connection", "error", err)
			c.mu.Lock()
			c.closing, c.peerDone = true, true
			c.goneLocked()
			c.mu.Unlock()
			return
		}
		c.begin()
		f.poller.start(c)
		return
	}
	transport := f.attachBlocking(c, nc)
	c.begin()
	transport.start(c)
}

// begin sets the hello deadline and opens the peer side. The caller owns the turn.
func (c *conn) begin() {
	c.mu.Lock()
	c.setDeadlineLocked(&c.helloUntil, c.front.limits.HelloTimeout)
	c.mu.Unlock()
	peer := c.front.handler.Open(c)
	c.peer = peer
	if c.front.isDraining() {
		c.Close(wire.CloseGoingAway, wire.ReasonShutdown) // it may have come too late for Shutdown to see
	}
}

// refuseAtLimit upgrades only to say 1013: most clients cannot tell a refused
// upgrade from any other failure. The goroutine of the request waits a moment for
// the client to have read it; when too many do, the answer is a plain 503.
func (f *Front) refuseAtLimit(w http.ResponseWriter, r *http.Request) {
	select {
	case f.refusing <- struct{}{}:
		defer func() { <-f.refusing }()
	default:
		f.refuse(w, &httpRefusal{refusedNode, http.StatusServiceUnavailable, wire.ReasonQuota})
		return
	}
	f.metrics.refused.WithLabelValues(string(refusedNode)).Inc()
	nc, early, err := f.hijack(w, r)
	if err != nil {
		return
	}
	f.buffers.put(early)
	closeRefused(nc, f.limits.CloseTimeout)
}

// closeRefused says 1013 and waits until the client closes, or for the time given.
func closeRefused(nc net.Conn, timeout time.Duration) {
	defer func() { _ = nc.Close() }() // nothing is left to be lost
	body := appendCloseBody(nil, ws.StatusCode(wire.CloseQuota), wire.ReasonQuota)
	frame := append(appendHeader(nil, ws.OpClose, len(body)), body...)
	if nc.SetDeadline(time.Now().Add(timeout)) != nil {
		return
	}
	if _, err := nc.Write(frame); err != nil {
		return
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, nc, maxDiscard) // ends at the deadline at the latest
}
