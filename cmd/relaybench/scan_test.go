package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	testParticipant = "01980000-0000-7000-8000-000000000001"
	testRoom        = "01980000-0000-7000-8000-000000000002"
)

func uuidOf(t *testing.T, text string) wire.UUID {
	t.Helper()
	id, ok := wire.ParseUUID([]byte(text))
	require.True(t, ok)
	return id
}

func TestScanReadsWhatTheRelayWrites(t *testing.T) {
	t.Parallel()
	id := wire.StreamID{Incarnation: 1790000000000, Sequence: 42}
	envelope := []byte("{ \"v\":1,\r\n \"id\":\"a\\\"}\\\\\", \"x\":[{\"]\":\"[\"}, -1.5e3] }")
	for _, c := range []struct {
		frame []byte
		want  message
	}{
		{wire.AppendWelcome(nil, uuidOf(t, testParticipant), uuidOf(t, testRoom)), message{kind: []byte("welcome")}},
		{wire.AppendDeliver(nil, id, true, envelope), message{kind: []byte("deliver"), streamID: []byte(id.String()), replay: true, envelope: envelope}},
		{wire.AppendDeliver(nil, id, false, envelope), message{kind: []byte("deliver"), streamID: []byte(id.String()), envelope: envelope}},
		{wire.AppendQueued(nil, []byte("m1"), id, uuidOf(t, testParticipant)), message{
			kind: []byte("queued"), id: []byte("m1"), streamID: []byte(id.String()), to: []byte(testParticipant),
		}},
		{wire.AppendNack(nil, []byte("m1"), wire.Partial), message{kind: []byte("nack"), id: []byte("m1"), reason: []byte("partial")}},
		{wire.AppendNack(nil, nil, wire.InvalidEnvelope), message{kind: []byte("nack"), reason: []byte("invalid_envelope")}},
		{wire.AppendResumeComplete(nil, 120, true), message{kind: []byte("resume_complete"), replayed: 120, more: true}},
		{wire.AppendResyncRequired(nil, nil), message{kind: []byte("resync_required")}},
		{wire.AppendPing(nil, 7), message{kind: []byte("ping"), id: []byte("7")}},
		{wire.AppendError(nil, wire.UnknownFrame, "a\"b", "c, }"), message{kind: []byte("error"), reason: []byte("unknown_frame")}},
		{[]byte("{\n\"type\" : \"ping\" ,\t\"id\" : \"8\" }"), message{kind: []byte("ping"), id: []byte("8")}},
	} {
		var got message
		require.True(t, got.scan(c.frame), "%s", c.frame)
		require.Equal(t, c.want, got, "%s", c.frame)
	}
}

func TestScanGivesUpOnWhatIsCut(t *testing.T) {
	t.Parallel()
	whole := wire.AppendDeliver(nil, wire.StreamID{Incarnation: 1, Sequence: 2}, true, []byte(`{"id":"a\\","x":["}"]}`))
	for n := range whole {
		var m message
		require.False(t, m.scan(whole[:n]), "%s", whole[:n])
	}
	for _, odd := range []string{"", "[]", "{}", `{"a"}`, `{"replay":,"more":}`, `{"a":1 "b":2}`, `"x"`} {
		var m message
		require.False(t, m.scan([]byte(odd)), odd)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"type":"deliver","envelope":{"id":"a"}}`))
	f.Add([]byte(`{"type":"resume_complete","replayed":12,"more":true}`))
	f.Add([]byte(`{"\\":"\"}`))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		var m message
		m.scan(frame) // must neither panic nor hang
	})
}

func TestScanDoesNotAllocate(t *testing.T) {
	frame := wire.AppendDeliver(nil, wire.StreamID{Incarnation: 1, Sequence: 2}, false, []byte(`{"id":"a","ct":"AAAA"}`))
	var m message
	require.Zero(t, testing.AllocsPerRun(100, func() { m.scan(frame) }))
}
