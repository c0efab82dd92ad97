package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bare is the router over endpoints of the test's own, as on the public listener.
func bare(t *testing.T, cfg Config, log io.Writer, routes ...route) *httptest.Server {
	t.Helper()
	if log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	a := newAPI(cfg)
	a.metrics = newMetrics(nil, routes)
	rt := newRouter(a, a.guardSocket, routes)
	rt.limits = a.limits
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	return server
}

// echo answers with the number of bytes of the body.
func echo(r *http.Request) (int, any, error) {
	body, err := readBody(r)
	return http.StatusOK, map[string]int{"bytes": len(body)}, err
}

func call(t *testing.T, server *httptest.Server, method, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
	require.NoError(t, err)
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, string(text)
}

// onlyReader hides a reader's length, so that the body goes out in chunks.
type onlyReader struct{ io.Reader }

func TestBodiesAreBoundedByTheirRoute(t *testing.T) {
	t.Parallel()
	server := bare(t, Config{}, nil,
		route{method: http.MethodPost, path: "/small", handler: echo},
		route{method: http.MethodPost, path: "/large", handler: echo, maxBody: 1 << 20},
		route{method: http.MethodGet, path: "/none", handler: echo},
	)
	for path, limit := range map[string]int{"/small": 16 << 10, "/large": 1 << 20} {
		for _, size := range []int{0, limit, limit + 1, 4 * limit} {
			for name, body := range map[string]io.Reader{
				"declared": strings.NewReader(strings.Repeat("x", size)),
				"chunked":  onlyReader{strings.NewReader(strings.Repeat("x", size))},
			} {
				answer, text := call(t, server, http.MethodPost, path, body)
				if size <= limit {
					require.Equal(t, http.StatusOK, answer.StatusCode, "%s %s %d", path, name, size)
					require.JSONEq(t, fmt.Sprintf(`{"bytes":%d}`, size), text)
					continue
				}
				require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode, "%s %s %d", path, name, size)
				require.JSONEq(t, fmt.Sprintf(`{"error":"too_large","detail":"the body is larger than %d bytes"}`, limit), text)
			}
		}
	}
	answer, _ := call(t, server, http.MethodGet, "/none", strings.NewReader("x"))
	require.Equal(t, http.StatusBadRequest, answer.StatusCode, "no body belongs to a GET")
}

// FAULTS B07: nesting as deep as the largest body allows ends in a refusal.
func TestDeepBodyIsRefused(t *testing.T) {
	t.Parallel()
	var into struct {
		Known []any `json:"known,omitzero"`
	}
	server := bare(t, Config{}, nil, route{method: http.MethodPost, path: "/", maxBody: 1 << 20, handler: func(r *http.Request) (int, any, error) {
		return http.StatusOK, nil, decode(r, &into)
	}})
	for _, body := range []string{
		strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<17), `{"known":` + strings.Repeat("[", 1<<19), `{"other":` + strings.Repeat("[", 1<<19),
	} {
		answer, text := call(t, server, http.MethodPost, "/", strings.NewReader(body))
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.Contains(t, text, `"malformed_request"`)
	}
}

func TestRawAnswers(t *testing.T) {
	t.Parallel()
	raw := []byte{0, 1, 2, 0xFF}
	server := bare(t, Config{}, nil, route{method: http.MethodGet, path: "/raw", handler: func(*http.Request) (int, any, error) {
		return http.StatusOK, rawAnswer{contentType: mediaStream, body: raw}, nil
	}})
	answer, text := call(t, server, http.MethodGet, "/raw", http.NoBody)
	require.Equal(t, string(raw), text)
	require.Equal(t, mediaStream, answer.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
	require.Equal(t, nothingMayBeLoaded, answer.Header.Get("Content-Security-Policy"))
	head, text := call(t, server, http.MethodHead, "/raw", http.NoBody)
	require.Equal(t, http.StatusOK, head.StatusCode)
	require.Empty(t, text)
	require.Equal(t, "4", head.Header.Get("Content-Length"))
}

func TestPanicIsLoggedOnceAndHidden(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	server := bare(t, Config{}, &log, route{method: http.MethodGet, path: "/", handler: func(*http.Request) (int, any, error) { panic("boom\nsecond line") }})
	answer, text := call(t, server, http.MethodGet, "/", http.NoBody)
	require.Equal(t, http.StatusInternalServerError, answer.StatusCode)
	require.NotContains(t, text, "boom")
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "boom")
}

type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// One place too few: the request that waits for it is told to come back, and what is for
// everybody answers all the same.
func TestRequestsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	server := bare(t, Config{Limits: Limits{Requests: 2}}, nil,
		route{method: http.MethodGet, path: "/wait", handler: func(*http.Request) (int, any, error) {
			entered <- struct{}{}
			<-leave
			return http.StatusOK, nil, nil
		}},
		route{method: http.MethodGet, path: "/healthz", access: forEverybody, handler: echo},
	)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			answer, err := server.Client().Get(server.URL + "/wait")
			if err == nil {
				answer.Body.Close()
			}
		})
		<-entered
	}
	answer, text := call(t, server, http.MethodGet, "/wait", http.NoBody)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Contains(t, text, `"unavailable"`)
	require.Equal(t, "1", answer.Header.Get("Retry-After"))
	answer, _ = call(t, server, http.MethodGet, "/healthz", http.NoBody)
	require.Equal(t, http.StatusOK, answer.StatusCode)

	close(leave)
	waiting.Wait()
	answer, _ = call(t, server, http.MethodGet, "/wait", http.NoBody)
	require.Equal(t, http.StatusOK, answer.StatusCode, "places are given back")
}

// FAULTS B08, for HTTP/2: the head of a request has a bound there too.
func TestHTTP2HeadIsBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), slog.New(slog.DiscardHandler))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, "HTTP/2.0", answer.Proto)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	answer, err = server.Client().Do(request)
	if err == nil { // else: the client was told the bound and kept to it
		answer.Body.Close()
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
	}
}

// A request's second length would let a proxy see another body than we do.
func TestTwoLengthsAreRefused(t *testing.T) {
	t.Parallel()
	server := bare(t, Config{}, nil, route{method: http.MethodPost, path: "/", handler: echo})
	for _, lengths := range []string{
		"Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 1\r\nTransfer-Encoding: gzip\r\n", "Content-Length: -1\r\n", "Content-Length: 1x\r\n",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: relay\r\n"+lengths+"\r\nxxGET /second HTTP/1.1\r\n\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		answer.Body.Close()
		require.GreaterOrEqual(t, answer.StatusCode, 400, lengths)
		require.True(t, answer.Close, "no second request is read from the body")
		conn.Close()
	}
}

func TestARouteIsThereOnce(t *testing.T) {
	t.Parallel()
	twice := route{method: http.MethodGet, path: "/", handler: echo}
	require.Panics(t, func() { newRouter(newAPI(Config{}), nil, []route{twice, twice}) })
}
