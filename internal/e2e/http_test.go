package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
)

// ask calls the HTTP API with a participant's credential and returns the status and the
// body.
func ask(t *testing.T, s *testkit.Relay, who testkit.Participant, method, path string, body any) (int, []byte) {
	t.Helper()
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, content)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+who.Credential)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, answer
}

// session calls an endpoint below the participant's session and decodes the answer of
// the status it expects.
func session[T any](t *testing.T, s *testkit.Relay, who testkit.Participant, method, path string, body any, status int) (answer T) {
	t.Helper()
	got, data := ask(t, s, who, method, "/v1/sessions/"+who.Room+path, body)
	require.Equal(t, status, got, "%s", data)
	require.NoError(t, json.Unmarshal(data, &answer), "%s", data)
	return answer
}

// docs/api.md: an address has one spelling, and none is redirected to another.
func TestAddressesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, path := range []string{"/v1/../v1/relay", "//v1/relay", "/v1/rel%61y", "/v1/relay/", "//healthz", "/v1/./freeze", "/v1/x/../freeze"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), http.NoBody)
		require.NoError(t, err)
		request.URL.Opaque = path
		response, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotFound, response.StatusCode, path)
		require.Contains(t, string(answer), `"error":"not_found"`, path)
	}
}
