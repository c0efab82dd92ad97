package relay

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

type noPresence struct{ seen []time.Duration }

func (p *noPresence) Seen(_ uuid.UUID, _ time.Time, rtt time.Duration) { p.seen = append(p.seen, rtt) }
func (p *noPresence) Gone(uuid.UUID)                                   {}

// DESIGN section 6, "Heartbeat": two unanswered pings close before the third.
func TestHeartbeatGivesUpBeforeTheThirdPing(t *testing.T) {
	t.Parallel()
	const interval = 25 * time.Second
	now := time.Now()
	var b heartbeat
	_, ping, dead := b.due(now, interval)
	require.False(t, ping || dead, "nothing before welcome")

	b.start(now, interval)
	require.WithinRange(t, b.next, now, now.Add(interval))
	now = b.next
	for want := uint64(1); want <= 2; want++ {
		id, ping, dead := b.due(now, interval)
		require.True(t, ping)
		require.False(t, dead)
		require.Equal(t, want, id)
		_, ping, _ = b.due(now.Add(interval-1), interval)
		require.False(t, ping, "one ping an interval")
		now = now.Add(interval)
	}
	_, ping, dead = b.due(now, interval)
	require.False(t, ping)
	require.True(t, dead)
}

func TestHeartbeatTakesAnswers(t *testing.T) {
	t.Parallel()
	const interval = time.Second
	presence := new(noPresence)
	s := &session{relay: &Relay{cfg: Config{Presence: presence}}, identity: store.Identity{}}
	now := time.Now()
	b := &s.beat
	b.start(now, interval)
	now = now.Add(interval)
	b.due(now, interval)

	for _, bad := range []string{"", "x", "0", "2", "-1", "18446744073709551615", "18446744073709551616"} {
		require.False(t, b.pong(s, []byte(bad), now), "pong %q answers no ping", bad)
	}
	require.True(t, b.pong(s, []byte("1"), now.Add(3*time.Millisecond)))
	require.False(t, b.pong(s, []byte("1"), now), "an answer counts once")
	require.Equal(t, []time.Duration{3 * time.Millisecond}, presence.seen)

	b.due(now.Add(interval), interval)
	b.due(now.Add(2*interval), interval)
	require.True(t, b.pong(s, []byte("2"), now.Add(2*interval)), "a late answer is one, without an RTT")
	require.Len(t, presence.seen, 1)
	_, ping, dead := b.due(now.Add(3*interval), interval)
	require.True(t, ping)
	require.False(t, dead)
}
