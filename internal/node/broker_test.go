package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func contextFileOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "context.json")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// A context file of the nats program is taken as it is meant, or not at all.
func TestNATSContext(t *testing.T) {
	t.Parallel()
	file := contextFileOf(t, `{"description":"x","url":"nats://a:1","user":"edge","password":"secret","token":"","creds":"","color_scheme":""}`)
	found, err := Config{NATSContext: file}.findBroker()
	require.NoError(t, err)
	require.Equal(t, "nats://a:1", found.url)
	var options nats.Options
	for _, option := range found.options {
		require.NoError(t, option(&options))
	}
	require.Equal(t, "edge", options.User)
	require.Equal(t, "secret", options.Password)

	found, err = Config{NATSContext: file, NATSURL: "nats://b:2"}.findBroker()
	require.NoError(t, err)
	require.Equal(t, "nats://b:2", found.url, "the flag comes before the file")
	require.Len(t, found.options, 1)

	for content, text := range map[string]string{
		`{"url":"nats://a","user":"edge"}`:                       "a user without a password",
		`{"url":"nats://a","nkey":"/secret/key"}`:                `the setting "nkey" is not supported`,
		`{"user":"edge","password":"secret"}`:                    "has no url",
		`{"url":"nats://a","user":"edge","password":"secret"} x`: "is not a context file",
		`[]`: "is not a context file",
	} {
		_, err := Config{NATSContext: contextFileOf(t, content)}.findBroker()
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = Config{NATSContext: "/nowhere"}.findBroker()
	require.ErrorIs(t, err, os.ErrNotExist)
}
