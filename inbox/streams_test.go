package inbox_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

// The streams are exactly what DESIGN section 5 says.
func TestStreamsDeclared(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	s.open(&recorder{}, func(c *inbox.Config) { c.Shards = 0 })
	js := s.jetStream()
	names := 0
	for info := range js.ListStreams(t.Context()).Info() {
		names++
		c := info.Config
		require.Regexp(t, `^INBOX_[0-3]\d$`, c.Name)
		require.Equal(t, []string{"inbox." + c.Name[6:] + ".>"}, c.Subjects)
		require.EqualValues(t, 500, c.MaxMsgsPerSubject)
		require.Equal(t, 24*time.Hour, c.MaxAge)
		require.Equal(t, jetstream.DiscardOld, c.Discard)
		require.Equal(t, jetstream.FileStorage, c.Storage)
		require.Equal(t, 100*time.Millisecond, c.Duplicates)
		require.True(t, c.AllowDirect)
		require.True(t, c.AllowAtomicPublish)
		require.Equal(t, 1, c.Replicas)
	}
	require.Equal(t, inbox.DefaultShards, names)
}

func TestShardCountIsFixed(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	closeInboxes(s.open(&recorder{}))
	_, err := inbox.Open(t.Context(), s.config(&recorder{}, func(c *inbox.Config) { c.Shards = 8 }))
	require.ErrorContains(t, err, "--inbox-shards 4")
	require.NotContains(t, streamNames(t, s), "INBOX_07", "nothing was made")
}

func streamNames(t *testing.T, s *natsServer) (names []string) {
	t.Helper()
	for name := range s.jetStream().StreamNames(t.Context()).Name() {
		names = append(names, name)
	}
	return names
}

// A stream with another configuration is mended where that loses nothing, and else
// refused with a hint, and left as it is.
func TestStreamsChangedByHand(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		change  func(*jetstream.StreamConfig)
		refused string // part of the error; empty when it is mended
	}{
		{"smaller inboxes", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 }, ""},
		{"larger inboxes", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1000 }, "--max-msgs-per-subject=500"},
		{"shorter age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, ""},
		{"no age", func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, "maximum age"},
		{"no direct gets", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, ""},
		{"no batches", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, ""},
		{"duplicates window", func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute }, ""},
		{"discard new", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }, "discard"},
		{"other subjects", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more") }, "subjects"},
		{"limited bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "limits"},
		{"description", func(c *jetstream.StreamConfig) { c.Description = "mine" }, ""},
	}
	s := startNATS(t)
	closeInboxes(s.open(&recorder{}))
	js := s.jetStream()
	stream, err := js.Stream(t.Context(), "INBOX_02")
	require.NoError(t, err)
	original := stream.CachedInfo().Config
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			changed := original
			c.change(&changed)
			_, err := js.UpdateStream(t.Context(), changed)
			require.NoError(t, err)
			j, err := inbox.Open(t.Context(), s.config(&recorder{}))
			after, infoErr := js.Stream(t.Context(), "INBOX_02")
			require.NoError(t, infoErr)
			now := after.CachedInfo().Config
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				require.ErrorContains(t, err, "INBOX_02")
				require.Equal(t, changed.MaxMsgsPerSubject, now.MaxMsgsPerSubject)
				require.Equal(t, changed.Subjects, now.Subjects)
			} else {
				require.NoError(t, err)
				require.Equal(t, original.MaxMsgsPerSubject, now.MaxMsgsPerSubject)
				require.Equal(t, original.MaxAge, now.MaxAge)
				require.Equal(t, original.Duplicates, now.Duplicates)
				require.True(t, now.AllowDirect && now.AllowAtomicPublish)
				require.Equal(t, changed.Description, now.Description)
				require.NoError(t, j.Ready())
				closeInboxes(j)
			}
			_, err = js.UpdateStream(t.Context(), original)
			require.NoError(t, err)
		})
	}
}

// A stream in memory, or one that the relay did not make, is refused.
func TestForeignStreams(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	js := s.jetStream()
	metadata := map[string]string{"relay_shards": "4"}
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "INBOX_01", Subjects: []string{"inbox.01.>"}, Storage: jetstream.MemoryStorage, Metadata: metadata,
	})
	require.NoError(t, err)
	_, err = inbox.Open(t.Context(), s.config(&recorder{}))
	require.ErrorContains(t, err, "storage")
	require.NoError(t, js.DeleteStream(t.Context(), "INBOX_01"))
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "INBOX_01", Subjects: []string{"something"}})
	require.NoError(t, err)
	_, err = inbox.Open(t.Context(), s.config(&recorder{}))
	require.ErrorContains(t, err, "not made by the relay")
}
