package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

func TestTemplatesMakeValidEnvelopes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{600, 1024, 65_536} {
		made, err := newTemplate("0badcafe", 123, testRoom, testParticipant, testRoom, "message", size)
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

func TestTemplatesHaveALeastSize(t *testing.T) {
	t.Parallel()
	_, err := newTemplate("0badcafe", 0, testRoom, testParticipant, testRoom, "message", 100)
	require.ErrorContains(t, err, "at least 384 bytes")
	_, err = newTemplate("short", 0, testRoom, testParticipant, testRoom, "message", 1024)
	require.Error(t, err)
}

func TestEnvelopesOfOthersHaveNoID(t *testing.T) {
	t.Parallel()
	require.Nil(t, envelopeID([]byte(`{"id":"m1"}`)))
	require.Nil(t, envelopeID([]byte(envelopePrefix)))
}
