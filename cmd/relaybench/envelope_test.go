package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

func testHeading(tag string) heading {
	return heading{tag: tag, sender: 123, session: testRoom, from: testParticipant, to: testRoom, kind: "message"}
}

func TestTemplatesMakeValidEnvelopes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{600, 1024, 65_536} {
		made, err := newTemplate(testHeading("0badcafe"), size)
		require.NoError(t, err)
		first := string(made.at(firstSeq + 7))
		second := string(made.at(firstSeq + 8))
		require.NotEqual(t, first, second)
		require.Equal(t, first, string(made.at(firstSeq+7)), "the same seq gives the same bytes")
		require.Equal(t, first, string(made.clone().at(firstSeq+7)))
		require.Len(t, second, size)

		var frame wire.ClientFrame
		require.NoError(t, wire.ParseClient([]byte(second), &frame))
		require.Nil(t, frame.Envelope.Check())
		require.Equal(t, wire.KindMessage, frame.Envelope.Kind)
		require.Equal(t, uint64(firstSeq+8), frame.Envelope.Seq)
		require.Equal(t, testRoom, string(frame.Envelope.SessionID))
		require.Equal(t, testParticipant, string(frame.Envelope.From))

		require.Equal(t, string(frame.Envelope.ID), string(envelopeID([]byte(second))))
		sender, seq, ok := parseID(frame.Envelope.ID, "0badcafe")
		require.True(t, ok)
		require.Equal(t, 123, sender)
		require.Equal(t, uint64(firstSeq+8), seq)
		_, _, ok = parseID(frame.Envelope.ID, "deadbeef")
		require.False(t, ok, "of another run")
	}
}

// The members of a notice are few and fixed (RELAY, "A notice is a participant alert").
func TestTemplatesMakeValidNotices(t *testing.T) {
	t.Parallel()
	h := testHeading("0badcafe")
	h.kind, h.sent, h.expires = "notice", time.UnixMilli(1_800_000_000_123), time.UnixMilli(1_800_003_600_123)
	made, err := newTemplate(h, 1024)
	require.NoError(t, err)
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient(made.at(firstSeq+7), &frame))
	require.Nil(t, frame.Envelope.Check())
	require.Equal(t, wire.KindNotice, frame.Envelope.Kind)
	require.Contains(t, string(frame.Envelope.Raw), `"ts":1800000000123,"expires_at":1800003600123,`)
	require.Equal(t, uint64(firstSeq+7), frame.Envelope.Seq)
}

func TestTemplatesHaveALeastSize(t *testing.T) {
	t.Parallel()
	_, err := newTemplate(testHeading("0badcafe"), 100)
	require.ErrorContains(t, err, "at least 384 bytes")
	_, err = newTemplate(testHeading("short"), 1024)
	require.Error(t, err)
}

func TestEnvelopesOfOthersHaveNoID(t *testing.T) {
	t.Parallel()
	require.Nil(t, envelopeID([]byte(`{"id":"m1"}`)))
	require.Nil(t, envelopeID([]byte(envelopePrefix)))
}
