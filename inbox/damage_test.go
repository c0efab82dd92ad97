package inbox_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

// A stream that comes back without its newest rows, as after a power cut, is a new
// incarnation: no id is used again, and every old cursor is a gap (FAULTS C05 b).
func TestStreamComesBackShorter(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			j := s.open(&recorder{}, change, func(c *inbox.Config) { c.Shards = 1 })
			l := newLedger()
			require.NoError(t, l.write(j, "kept"))
			s.stop()
			backup := t.TempDir()
			store := filepath.Join(s.dir, "jetstream")
			require.NoError(t, os.CopyFS(backup, os.DirFS(store)))
			s.start()
			ready(t, j)
			require.NoError(t, l.write(j, "lost"))
			s.stop()
			require.NoError(t, os.RemoveAll(store))
			require.NoError(t, os.CopyFS(store, os.DirFS(backup)))
			s.start()
			ready(t, j)
			require.NoError(t, l.write(j, "after"))
			before, after := l.stored["lost"][0], l.stored["after"][0]
			require.Greater(t, after.Incarnation, before.Incarnation)
			require.Equal(t, []string{"kept", "after"}, payloads(readAll(t, j, l.room, l.to[0], 0, 500)))

			again := s.open(&recorder{}, change, func(c *inbox.Config) { c.Shards = 1 })
			bounds, err := again.Bounds(t.Context(), l.room, l.to[0])
			require.NoError(t, err)
			require.Equal(t, after.Incarnation, bounds.Incarnation, "it is written into the stream")
		})
	}
}

// What was noted at an earlier start decides whether a stream may have lost rows.
func TestNotedTails(t *testing.T) {
	t.Parallel()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	here := string(boot[:len(boot)-1])
	for name, c := range map[string]struct {
		note    string
		sync    bool
		renewed bool
	}{
		"the machine runs on, killed":     {fmt.Sprintf(`{"boot":%q,"clean":false,"last":{"INBOX_00":3}}`, here), false, false},
		"the machine went down":           {`{"boot":"another","clean":false,"last":{"INBOX_00":3}}`, false, true},
		"it went down, all was on disk":   {`{"boot":"another","clean":false,"last":{"INBOX_00":3}}`, true, false},
		"it went down after a clean stop": {`{"boot":"another","clean":true,"last":{"INBOX_00":3}}`, false, false},
		"it went down, nothing was there": {`{"boot":"another","clean":false,"last":{"INBOX_00":0}}`, false, false},
		"rows are gone after a clean":     {fmt.Sprintf(`{"boot":%q,"clean":true,"last":{"INBOX_00":4}}`, here), false, true},
		"rows are gone, synced":           {fmt.Sprintf(`{"boot":%q,"clean":false,"last":{"INBOX_00":4}}`, here), true, true},
		"more rows than were noted":       {fmt.Sprintf(`{"boot":%q,"clean":false,"last":{"INBOX_00":2}}`, here), false, false},
		"a note that is damaged":          {`{"boot":`, false, false},
		"no note":                         {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			note := filepath.Join(t.TempDir(), "tails.json")
			open := func() *inbox.JetStream {
				return s.open(&recorder{}, func(config *inbox.Config) {
					config.Shards, config.TailsFile, config.SyncAlways = 1, note, c.sync
				})
			}
			j := open()
			room, to := uuid.New(), participants(1)
			for n := range 3 {
				_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: fmt.Append(nil, n)})
				require.NoError(t, err)
			}
			before, err := j.Bounds(t.Context(), room, to[0])
			require.NoError(t, err)
			closeInboxes(j)
			content, err := os.ReadFile(note)
			require.NoError(t, err)
			var noted struct {
				Boot  string
				Clean bool
				Last  map[string]uint64
			}
			require.NoError(t, json.Unmarshal(content, &noted))
			require.Equal(t, here, noted.Boot)
			require.True(t, noted.Clean)
			require.Equal(t, map[string]uint64{"INBOX_00": 3}, noted.Last)

			require.NoError(t, os.Remove(note))
			if c.note != "" {
				require.NoError(t, os.WriteFile(note, []byte(c.note), 0o600))
			}
			j = open()
			after, err := j.Bounds(t.Context(), room, to[0])
			require.NoError(t, err)
			require.Equal(t, c.renewed, after.Incarnation > before.Incarnation)
			require.Len(t, readAll(t, j, room, to[0], 0, 500), 3)
			content, err = os.ReadFile(note)
			require.NoError(t, err)
			require.Contains(t, string(content), `"clean":false`, "noted before the first row is stored")
			closeInboxes(j)
			third, err := open().Bounds(t.Context(), room, to[0])
			require.NoError(t, err)
			require.Equal(t, after.Incarnation, third.Incarnation, "once only")
		})
	}
}
