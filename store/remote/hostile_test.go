package remote_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/remote"
	"github.com/peerrelay/peerrelay/wire"
)

// appended is a call that stores, and the refusals that RELAY and the contract of store
// give it, with their statuses.
type appended struct {
	name     string
	do       func(context.Context, *remote.Store) error
	refusals map[string]int
	success  string // raw answer
}

var member = store.Participant{ID: uuid.Max, Tenant: uuid.Max, Room: uuid.Max}

var appends = []appended{
	{
		"history", appendOne,
		map[string]int{
			"mls_scheme_disabled": 403, "e2ee_scheme_mismatch": 409, "mls_generation_retired": 409, "mls_removal_pending": 409,
			"mls_generation_unknown": 404, "history_conflict": 409, "malformed_request": 400, "invalid_file_part": 422,
			"not_activated": 409, "room_archived": 409, "not_found": 404, "conflict": 409,
		},
		raw(201, `{"duplicate":false}`),
	},
	{
		"traces",
		func(ctx context.Context, s *remote.Store) error {
			_, err := s.AppendTrace(ctx, store.Trace{MessageID: "m", Declared: true})
			return err
		},
		map[string]int{
			"private_refused": 403, "history_conflict": 409, "malformed_request": 400, "room_archived": 409,
			"not_found": 404, "conflict": 409,
		},
		raw(201, `{"duplicate":false}`),
	},
	{
		"notices",
		func(ctx context.Context, s *remote.Store) error {
			return s.AppendNotice(ctx, store.Notice{Bytes: []byte("{}")})
		},
		map[string]int{
			"notice_not_permitted": 403, "invalid_envelope": 400, "notice_stale": 409, "notice_cap": 409, "notice_id_conflict": 409,
			"notice_invalid_generation": 409, "notice_duplicate": 409, "room_archived": 409,
			"not_found": 404, "conflict": 409,
		},
		raw(201, `{"accepted":true}`),
	},
}

func appendOne(ctx context.Context, s *remote.Store) error {
	_, err := s.AppendMessage(ctx, envelopeOf(member, "m", "x"))
	return err
}

// opaque demands an error that says nothing but that the answer is not known.
func opaque(t *testing.T, err error, about ...any) {
	t.Helper()
	require.Error(t, err, about...)
	var typed *wire.Error
	require.NotErrorAs(t, err, &typed, about...)
	for _, known := range []error{store.ErrNotFound, store.ErrConflict, store.ErrInvalid, store.ErrForbidden, store.ErrUnauthenticated} {
		require.NotErrorIs(t, err, known, about...)
	}
}

// refusedAs demands the refusal with this code.
func refusedAs(t *testing.T, err error, code string) {
	t.Helper()
	switch code {
	case "not_found":
		require.ErrorIs(t, err, store.ErrNotFound)
	case "conflict":
		require.ErrorIs(t, err, store.ErrConflict)
	default:
		require.ErrorIs(t, err, &wire.Error{Code: wire.Code(code)})
	}
}

// raw is an answer as it goes over the network.
func raw(status int, body string, headers ...string) string {
	head := fmt.Sprintf("HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %d\r\n", status, len(body))
	for _, h := range headers {
		head += h + "\r\n"
	}
	return head + "\r\n" + body
}

// hostile is a server that answers every request with the bytes it is told, and then
// ends the connection.
type hostile struct {
	*httptest.Server

	answer   atomic.Pointer[string]
	requests atomic.Int64
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, *h.answer.Load())
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hostile) says(answer string) { h.answer.Store(&answer) }

func (h *hostile) open(t *testing.T, options ...func(*remote.Config)) *remote.Store {
	t.Helper()
	token, _ := store.NewToken()
	return open(t, service{h.Server, token}, options...)
}

// RELAY, "Each code passes through only with the status listed": every code there is,
// under every status.
func TestRefusalsPassOnlyWithTheirStatus(t *testing.T) {
	t.Parallel()
	statuses := []int{200, 201, 202, 204, 206, 300, 400, 401, 403, 404, 405, 409, 410, 413, 418, 422, 429, 500, 502, 503, 504}
	codes := []wire.Code{"", "unheard_of", "History_Conflict", "history_conflict ", "NOT_FOUND"}
	for _, info := range wire.Codes() {
		codes = append(codes, info.Code)
	}
	for _, a := range appends {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t)
			s := h.open(t)
			for _, code := range codes {
				for _, status := range statuses {
					h.says(raw(status, `{"error":"`+string(code)+`","detail":"x"}`))
					err := a.do(t.Context(), s)
					if want, listed := a.refusals[string(code)]; listed && want == status {
						refusedAs(t, err, string(code))
						continue
					}
					opaque(t, err)
				}
			}
		})
	}
}

// FAULTS E10, E09: whatever is not exactly one refusal, or one success, is an answer
// that is not known.
func TestAnswersThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, a := range appends {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t)
			s := h.open(t)
			const code = "conflict"
			const refusal = `{"error":"` + code + `"}`

			for name, answer := range map[string]string{
				"as it should be":        raw(409, refusal),
				"white space around it":  raw(409, "\r\n\t "+refusal+" \n\t\r"),
				"with more members":      raw(409, `{"detail":null,"x":[{}],"error":"conflict"}`),
				"of 4096 bytes":          raw(409, refusal+strings.Repeat(" ", 4096-len(refusal))),
				"of 4096 bytes, chunked": chunked(409, refusal+strings.Repeat(" ", 4096-len(refusal))),
				"without a length":       "HTTP/1.1 409 x\r\nConnection: close\r\n\r\n" + refusal,
				"after 100 Continue":     "HTTP/1.1 100 Continue\r\n\r\n" + raw(409, refusal),
				"an escaped code":        raw(409, `{"error":"\u0063onflict"}`),
			} {
				h.says(answer)
				err := a.do(t.Context(), s)
				require.ErrorIs(t, err, store.ErrConflict, name)
			}

			for name, answer := range map[string]string{
				"followed by an object":         raw(409, refusal+`{}`),
				"followed by itself":            raw(409, refusal+refusal),
				"followed by a line and itself": raw(409, refusal+"\n"+refusal),
				"followed by junk":              raw(409, refusal+" x"),
				"followed by a comma":           raw(409, refusal+","),
				"followed by NUL":               raw(409, refusal+"\x00"),
				"followed by a no-break space":  raw(409, refusal+"\u00a0"),
				"after a byte order mark":       raw(409, "\ufeff"+refusal),
				"of 4097 bytes":                 raw(409, refusal+strings.Repeat(" ", 4097-len(refusal))),
				"of 4097 bytes, chunked":        chunked(409, refusal+strings.Repeat(" ", 4097-len(refusal))),
				"endless, without a length":     "HTTP/1.1 409 x\r\nConnection: close\r\n\r\n" + refusal + strings.Repeat(" ", 1<<20),
				"no body":                       raw(409, ""),
				"null":                          raw(409, "null"),
				"an array":                      raw(409, `[`+refusal+`]`),
				"a string":                      raw(409, `"conflict"`),
				"a number":                      raw(409, `409`),
				"error is missing":              raw(409, `{}`),
				"error is spelled otherwise":    raw(409, `{"Error":"conflict"}`),
				"error is null":                 raw(409, `{"error":null}`),
				"error is an object":            raw(409, `{"error":{"code":"conflict"}}`),
				"error is a list":               raw(409, `{"error":["conflict"]}`),
				"error is a number":             raw(409, `{"error":409}`),
				"error twice":                   raw(409, `{"error":"conflict","error":"conflict"}`),
				"not UTF-8":                     raw(409, `{"error":"conflict","detail":"`+"\xff"+`"}`),
				"half a surrogate":              raw(409, `{"error":"conflict","detail":"\ud800"}`),
				"cut in the middle":             raw(409, refusal)[:len(raw(409, refusal))-2],
				"a longer length than sent":     "HTTP/1.1 409 x\r\nContent-Length: 100\r\n\r\n" + refusal,
				"a shorter length than sent":    "HTTP/1.1 409 x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n" + refusal,
				"two lengths":                   "HTTP/1.1 409 x\r\nContent-Length: 20\r\nContent-Length: 21\r\n\r\n" + refusal,
				"a negative length":             "HTTP/1.1 409 x\r\nContent-Length: -1\r\n\r\n" + refusal,
				"a chunk that never ends":       strings.TrimSuffix(chunked(409, refusal), "0\r\n\r\n"),
				"a chunk of a wrong size":       "HTTP/1.1 409 x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + refusal + "\r\n0\r\n\r\n",
				"gzip":                          raw(409, zipped(refusal), "Content-Encoding: gzip"),
				"HTML":                          raw(409, "<html>conflict</html>", "Content-Type: text/html"),

				"no answer":               "",
				"no HTTP":                 "SSH-2.0-x\r\n",
				"no status":               "HTTP/1.1\r\n\r\n" + refusal,
				"a status of four digits": "HTTP/1.1 4090 x\r\n\r\n" + refusal,
				"half a head":             "HTTP/1.1 409 x\r\nContent-Le",
				"a huge head":             raw(409, refusal, "X: "+strings.Repeat("x", 64<<10)),
				"many header lines":       raw(409, refusal, strings.Repeat("X: y\r\n", 20_000)+"Y: z"),
				"endless 1xx":             strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 10_000) + raw(409, refusal),
				"switching protocols":     "HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + refusal,

				"200 with nothing":        raw(200, ""),
				"201 with nothing":        raw(201, ""),
				"204":                     "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n",
				"205":                     raw(205, ""),
				"202":                     raw(202, `{"duplicate":false,"accepted":true}`),
				"200, junk":               raw(200, "ok"),
				"201, junk":               raw(201, "ok"),
				"200, null":               raw(200, "null"),
				"201, null":               raw(201, "null"),
				"201, an empty object":    raw(201, "{}"),
				"201, a list":             raw(201, `[{"duplicate":false,"accepted":true}]`),
				"201, followed by junk":   raw(201, `{"duplicate":false,"accepted":true} x`),
				"201, two values":         raw(201, `{"duplicate":false,"accepted":true}{"duplicate":false,"accepted":true}`),
				"201, the wrong types":    raw(201, `{"duplicate":"no","accepted":"yes"}`),
				"201, which contradicts":  raw(201, `{"duplicate":true,"accepted":false}`),
				"200, which contradicts":  raw(200, `{"duplicate":false,"accepted":false}`),
				"201, cut":                a.success[:len(a.success)-1],
				"201, gzip":               raw(201, zipped(`{"duplicate":false,"accepted":true}`), "Content-Encoding: gzip"),
				"201, larger than a MiB":  raw(201, `{"duplicate":false,"accepted":true}`+strings.Repeat(" ", 1<<20)),
				"200, answers of a batch": raw(200, `{"answers":[{"status":201}]}`),
			} {
				h.says(answer)
				before := h.requests.Load()
				opaque(t, a.do(t.Context(), s), name)
				require.Equal(t, before+1, h.requests.Load(), "%s: asked once", name)
			}

			h.says(a.success)
			require.NoError(t, a.do(t.Context(), s), "it works when the answers are right again")
		})
	}
}

// A redirect is followed nowhere, whatever is there.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := newHostile(t)
	elsewhere.says(raw(201, `{"duplicate":false,"accepted":true}`))
	h := newHostile(t)
	s := h.open(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, where := range []string{elsewhere.URL + "/", "/internal/v1/ping"} {
			h.says(raw(status, "", "Location: "+where))
			before := h.requests.Load()
			for _, a := range appends {
				opaque(t, a.do(t.Context(), s))
			}
			_, err := s.Roster(t.Context(), uuid.Max, uuid.Max)
			opaque(t, err)
			require.Equal(t, before+int64(len(appends))+1, h.requests.Load())
		}
	}
	require.Zero(t, elsewhere.requests.Load(), "the token went to nobody else")
}

// A request is sent again neither when its connection is new nor when it was used before.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var dies atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if dies.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"duplicate":false,"accepted":true}`)
	}))
	t.Cleanup(server.Close)
	token, _ := store.NewToken()
	s := open(t, service{server, token})
	for _, a := range appends {
		for range 3 {
			dies.Store(false)
			require.NoError(t, a.do(t.Context(), s))
			dies.Store(true)
			before := requests.Load()
			opaque(t, a.do(t.Context(), s))
			require.Equal(t, before+1, requests.Load())
		}
	}
}

// An answer that does not come, or does not end, ends with the timeout of the call.
func TestSlowAnswersEnd(t *testing.T) {
	t.Parallel()
	for name, drip := range map[string]string{
		"nothing at all":     "",
		"half a head":        "HTTP/1.1 409 x\r\nContent-Length: 20\r\n",
		"a body of a letter": "HTTP/1.1 409 x\r\nContent-Length: 20\r\n\r\n{",
		"a head by letters":  "drip HTTP/1.1 409 x\r\nX: " + strings.Repeat("x", 4096),
		"a body by letters":  "drip HTTP/1.1 409 x\r\nContent-Length: 4000\r\n\r\n" + strings.Repeat(" ", 4000),
		"1xx after 1xx":      "drip " + strings.Repeat("HTTP/1.1 102 x\r\n\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openTo(t, listen(t, drip), func(cfg *remote.Config) { cfg.Timeout = 400 * time.Millisecond })
			for _, a := range appends {
				err := a.do(t.Context(), s)
				opaque(t, err)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			_, err := s.Authenticate(t.Context(), store.TokenHash{})
			opaque(t, err)
			opaque(t, s.Ping(t.Context()))
		})
	}
}

// listen answers the first request of every connection with text, slowly after the word drip, and keeps it open.
func listen(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			go speak(ctx, conn, text)
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

func speak(ctx context.Context, conn net.Conn, text string) {
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return
	}
	rest, slow := strings.CutPrefix(text, "drip ")
	if !slow {
		_, _ = io.WriteString(conn, text)
		return
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range len(rest) {
		if _, err := conn.Write([]byte{rest[i]}); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func openTo(t *testing.T, url string, options ...func(*remote.Config)) *remote.Store {
	t.Helper()
	token, _ := store.NewToken()
	return open(t, service{&httptest.Server{URL: url}, token}, options...)
}

// What looks something up fails closed, too.
func TestLookUpsThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	const (
		a       = "01890a5d-ac96-774b-bcce-b302099a8057"
		ids     = `"tenant_id":"` + a + `","room_id":"` + a + `","participant_id":"` + a + `","device_id":"` + a + `","credential_id":"` + a + `"`
		who     = `{` + ids + `,"role":"agent","kind":"session","expires_at":"2030-01-01T00:00:00Z","frozen":false}`
		room    = `"room":{"room_id":"` + a + `","kind":"group","scheme":"mls","private_messages":"allowed","state":"ACTIVE","version":1,"created_at":"2030-01-01T00:00:00Z"}`
		present = `{"participant_id":"` + a + `","device_id":"` + a + `","role":"agent","joined_at":"2030-01-01T00:00:00Z"}`
	)
	id := uuid.MustParse(a)
	for _, c := range []struct {
		name  string
		do    func(context.Context, *remote.Store) error
		good  []string
		bad   []string
		typed map[string]error // by the raw answer
	}{
		{
			"authenticate",
			func(ctx context.Context, s *remote.Store) error {
				found, err := s.Authenticate(ctx, store.TokenHash{})
				if err != nil && found != (store.Identity{}) {
					return nil // an identity in spite of the error: wrong
				}
				return err
			},
			[]string{who, who + " \n"},
			[]string{
				"", "null", "{}", who + who, who + "x", "[" + who + "]",
				strings.Replace(who, `"agent"`, `"Agent"`, 1), strings.Replace(who, `"agent"`, `""`, 1), strings.Replace(who, `"role":"agent",`, ``, 1),
				strings.Replace(who, `"session"`, `"root"`, 1), strings.Replace(who, `,"frozen":false`, ``, 1), strings.Replace(who, `false`, `null`, 1),
				strings.Replace(who, a, strings.ToUpper(a), 1), strings.Replace(who, a, "", 1), strings.Replace(who, a, "{"+a+"}", 1),
				strings.Replace(who, a, uuid.Nil.String(), 1), strings.Replace(who, `"2030-01-01T00:00:00Z"`, `0`, 1), strings.Replace(who, `,"expires_at":"2030-01-01T00:00:00Z"`, ``, 1),
			},
			map[string]error{
				raw(401, `{"error":"unauthorized"}`):   store.ErrUnauthenticated,
				raw(403, `{"error":"unauthorized"}`):   nil,
				raw(403, `{"error":"forbidden"}`):      nil,
				raw(404, `{"error":"not_found"}`):      nil,
				raw(401, ""):                           nil,
				raw(401, `unauthorized`):               nil,
				raw(401, `{"error":"unauthorized"} x`): nil,
			},
		},
		{
			"roster",
			func(ctx context.Context, s *remote.Store) error { _, err := s.Roster(ctx, id, id); return err },
			[]string{`{` + room + `,"participants":[` + present + `]}`, `{` + room + `,"participants":[]}`},
			[]string{
				"", "null", "{}", `{` + room + `}`, `{` + room + `,"participants":null}`, `{"participants":[` + present + `]}`,
				`{` + room + `,"participants":[` + strings.Replace(present, "agent", "root", 1) + `]}`,
				`{` + room + `,"participants":[` + strings.Replace(present, a, uuid.Nil.String(), 1) + `]}`,
				`{` + room + `,"participants":[{}]}`,
				`{` + strings.Replace(room, a, uuid.Max.String(), 1) + `,"participants":[]}`,
				`{` + strings.Replace(room, `"version":1`, `"version":0`, 1) + `,"participants":[]}`,
			},
			map[string]error{
				raw(404, `{"error":"not_found"}`): store.ErrNotFound, raw(404, `404 page not found`): nil,
				raw(409, `{"error":"conflict"}`): nil, raw(403, `{"error":"forbidden"}`): nil,
			},
		},
		{
			"valid credentials",
			func(ctx context.Context, s *remote.Store) error {
				_, err := s.ValidCredentials(ctx, id, []uuid.UUID{id})
				return err
			},
			[]string{`{"valid":[]}`, `{"valid":["` + a + `"]}`},
			[]string{"", "null", "{}", `{"valid":null}`, `{"valid":["` + uuid.Max.String() + `"]}`, `{"valid":["x"]}`, `{"valid":[]}[]`},
			map[string]error{raw(404, `{"error":"not_found"}`): nil},
		},
		{
			"room versions",
			func(ctx context.Context, s *remote.Store) error {
				_, err := s.RoomVersions(ctx, id, []uuid.UUID{id})
				return err
			},
			[]string{`{"versions":{}}`, `{"versions":{"` + a + `":3}}`},
			[]string{"", "null", "{}", `{"versions":null}`, `{"versions":{"` + uuid.Max.String() + `":3}}`, `{"versions":{"` + a + `":"3"}}`, `{"versions":{"` + a + `":3.5}}`},
			map[string]error{raw(404, `{"error":"not_found"}`): nil},
		},
		{
			"ping",
			func(ctx context.Context, s *remote.Store) error { return s.Ping(ctx) },
			[]string{`{"ok":true}`},
			[]string{"", "null", "{}", `{"ok":false}`, `{"ok":1}`, "ok"},
			map[string]error{raw(503, `{"error":"unavailable"}`): nil, raw(404, `{"error":"not_found"}`): nil},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t)
			s := h.open(t)
			for _, body := range c.good {
				h.says(raw(200, body))
				require.NoError(t, c.do(t.Context(), s), body)
				h.says(raw(201, body))
				opaque(t, c.do(t.Context(), s))
			}
			for _, body := range c.bad {
				h.says(raw(200, body))
				opaque(t, c.do(t.Context(), s))
			}
			for answer, want := range c.typed {
				h.says(answer)
				if err := c.do(t.Context(), s); want != nil {
					require.ErrorIs(t, err, want)
				} else {
					opaque(t, err)
				}
			}
		})
	}
}

func chunked(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n%s\r\n0\r\n\r\n", status, strconv.FormatInt(int64(len(body)), 16), body)
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// An API that says it does not know is told from one whose answers nobody understands: an
// operator looks into its log, and not for a mix of versions.
func TestAnUnavailableAPIIsNamed(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	s := h.open(t)
	h.says(raw(503, `{"error":"unavailable"}`))
	err := s.Ping(t.Context())
	opaque(t, err)
	require.ErrorContains(t, err, "the API answers that it is unavailable")
	h.says(raw(500, `{"error":"unavailable"}`))
	err = s.Ping(t.Context())
	opaque(t, err)
	require.ErrorContains(t, err, "not understood")
}
