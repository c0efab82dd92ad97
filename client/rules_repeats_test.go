package client_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
)

// FAULTS J07 for private messages, whose direction key opens them any number of times: one that
// comes again, live, as a replay under another stream id, and after a restart, is shown once.
func TestARepeatedPrivateMessageIsShownOnce(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	var mu sync.Mutex
	var kept []byte
	times := 0
	o.proxy.onDown(func(message []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case bytes.Contains(message, []byte(`"pairwise"`)) && bytes.Contains(message, []byte(`"kind":"message"`)):
			kept = bytes.Replace(message, []byte(`"replay":true`), []byte(`"replay":false`), 1)
			times++
			return [][]byte{message, kept}
		case bytes.Contains(message, []byte(`"resume_complete"`)) && kept != nil:
			times += 2
			return [][]byte{kept, message, bytes.Replace(kept, []byte(`"stream_id":"`), []byte(`"stream_id":"9`), 1)}
		default:
			return [][]byte{message}
		}
	})
	_, err := o.alice.Send(t.Context(), client.Draft{Text: "between us", To: bob.Participant()})
	require.NoError(t, err)
	listening, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- bob.Listen(listening, bob.take) }()
	bob.await(t, "between us")
	say(t, o.alice, "and on")
	bob.await(t, "between us", "and on")
	require.Empty(t, bob.failures())
	mu.Lock()
	envelope := kept[bytes.Index(kept, []byte(`"envelope":`))+len(`"envelope":`):]
	envelope = envelope[:bytes.LastIndexByte(envelope, '}')]
	require.GreaterOrEqual(t, times, 3)
	mu.Unlock()

	stop()
	require.NoError(t, <-ended) // before its key store is closed
	later := o.again(t)
	require.NoError(t, later.Import(t.Context(), envelope, later.take))
	later.poll(t)
	require.Empty(t, later.texts())
	require.Empty(t, later.failures())
}
