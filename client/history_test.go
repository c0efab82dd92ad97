package client_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// speaker sends envelopes whose content nobody reads.
type speaker struct {
	conn     *client.Conn
	room, id string
	gen      uint64
	seq      int
}

func (m *meeting) speaker(t *testing.T, d *client.Device, key string) *speaker {
	t.Helper()
	credential, err := d.MintCredential(t.Context(), m.id, 0)
	require.NoError(t, err)
	made, err := client.AllocateGeneration(t.Context(), m.url, credential.Token, m.id, [16]byte{byte(len(key))}, []byte(key))
	require.NoError(t, err)
	conn, err := client.Dial(t.Context(), m.RelayURL(), client.Options{Token: credential.Token})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &speaker{conn: conn, room: m.id, id: credential.ParticipantID, gen: made.Gen}
}

// say sends one envelope and returns it; more are further members.
func (s *speaker) say(t *testing.T, kind, id, to, more string) string {
	t.Helper()
	s.seq++
	envelope := fmt.Sprintf(`{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":%q,"gen":%d,"seq":%d,"ts":%d,"nonce":%q,"ct":"QQ==","sig":"QQ=="%s}`,
		id, s.room, s.id, to, kind, s.gen, s.seq, time.Now().UnixMilli(), base64.StdEncoding.EncodeToString(make([]byte, 24)), more)
	_, err := s.conn.Send(t.Context(), []byte(envelope), 0)
	require.NoError(t, err)
	return envelope
}

// one makes every page one row, so that lists of a few have several.
func one(m *meddler) {
	m.request = func(r *http.Request) { r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "limit=500", "limit=1") }
}

func TestHistoryIsWhatWasSent(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	agent := m.speaker(t, m.agent, "a key")
	var sent []string
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		sent = append(sent, agent.say(t, "message", id, m.id, ""))
	}
	m.set(one)
	rows := gather(t, m.owner.History(t.Context(), m.id, client.OldestFirst))
	require.Equal(t, 3, m.count(http.MethodGet, "/history"), "three pages")
	newest := gather(t, m.owner.History(t.Context(), m.id, client.NewestFirst))
	slices.Reverse(newest)
	require.Equal(t, rows, newest)
	require.Equal(t, rows, gather(t, m.owner.History(t.Context(), m.id, "")))
	require.Len(t, rows, 3)
	for i, row := range rows {
		require.Equal(t, sent[i], string(row.Envelope))
		require.Equal(t, m.agentID, row.From)
		require.Equal(t, "message", row.Kind)
		require.EqualValues(t, 1, row.Gen)
		require.WithinDuration(t, time.Now(), row.ReceivedAt, time.Minute)
	}
	found, err := m.owner.HistoryMessage(t.Context(), m.id, "m-2")
	require.NoError(t, err)
	require.Equal(t, rows[1], found)
	_, err = m.owner.HistoryMessage(t.Context(), m.id, "m-4")
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	_, err = m.owner.HistoryMessage(t.Context(), m.id, "m 4")
	require.ErrorIs(t, err, client.ErrID)

	late := m.device(t, client.KindAgent, nil)
	m.add(t, late, client.RoleAgent)
	require.Empty(t, gather(t, late.History(t.Context(), m.id, client.OldestFirst)), "from before it joined")

	for name, value := range map[string]any{"message_id": "m 1", "from": "me", "envelope": ""} {
		m.set(func(m *meddler) {
			m.answer = func(_ *http.Request, body map[string]any) {
				for _, row := range listed(body["messages"]) {
					row[name] = value
				}
				if _, ok := body["envelope"]; ok {
					body[name] = value
				}
			}
		})
		require.ErrorIs(t, failure(t, m.owner.History(t.Context(), m.id, client.OldestFirst)), client.ErrAnswer, name)
		_, err = m.owner.HistoryMessage(t.Context(), m.id, "m-1")
		require.ErrorIs(t, err, client.ErrAnswer, name)
	}
}

func TestNoticesAndTraces(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	other := m.device(t, client.KindAgent, nil)
	otherID := m.add(t, other, client.RoleAgent)
	agent := m.speaker(t, m.agent, "a key")
	expires := time.Now().Add(time.Hour).UnixMilli()
	notices := []string{
		agent.say(t, "notice", "n-1", m.id, fmt.Sprintf(`,"expires_at":%d`, expires)),
		agent.say(t, "notice", "n-2", m.id, fmt.Sprintf(`,"expires_at":%d`, expires)),
	}
	agent.say(t, "message", "p-1", otherID, `,"enc":"pairwise","file":{"name":"plan.pdf","mimeType":"application/pdf","sizeBytes":7}`)
	agent.say(t, "message", "p-2", otherID, `,"enc":"pairwise"`)

	m.set(one)
	for order, want := range map[client.Order][]string{client.OldestFirst: {"n-1", "n-2"}, client.NewestFirst: {"n-2", "n-1"}} {
		rows := gather(t, other.Notices(t.Context(), m.id, order))
		require.Len(t, rows, 2)
		for i, row := range rows {
			require.Equal(t, want[i], row.MessageID)
			require.Contains(t, notices, string(row.Envelope))
			require.Equal(t, m.agentID, row.From)
			require.Equal(t, expires, row.ExpiresAt.UnixMilli())
			require.WithinDuration(t, time.Now(), row.AcceptedAt, time.Minute)
		}
	}
	traces := gather(t, m.owner.Traces(t.Context(), m.id, client.OldestFirst))
	require.Len(t, traces, 2)
	file := client.TracedFile{Name: "plan.pdf", MIMEType: "application/pdf", SizeBytes: 7, Declared: true}
	require.Equal(t, &file, traces[0].File)
	require.Nil(t, traces[1].File)
	for i, trace := range traces {
		require.Equal(t, []string{"p-1", "p-2"}[i], trace.MessageID)
		require.Equal(t, []string{m.agentID, otherID, "message.private"}, []string{trace.From, trace.To, trace.Event})
		require.WithinDuration(t, time.Now(), time.UnixMilli(int64(trace.TS)), time.Minute)
	}
	require.Equal(t, "p-2", gather(t, m.owner.Traces(t.Context(), m.id, ""))[0].MessageID)
	require.ErrorIs(t, failure(t, m.agent.Traces(t.Context(), m.id, "")), &wire.Error{Code: wire.Forbidden})
}

// Whoever was away asks who sent what it finds.
func TestMembersPastAndPresent(t *testing.T) {
	t.Parallel()
	m := newMeeting(t, client.NewRoom{})
	away, late := m.device(t, client.KindAgent, nil), m.device(t, client.KindAgent, nil)
	m.add(t, away, client.RoleAgent)
	agent := m.speaker(t, m.agent, "a key")
	gen, err := away.NewestGeneration(t.Context(), m.id, m.agentID)
	require.NoError(t, err)
	require.EqualValues(t, 1, gen)
	gen, err = away.NewestGeneration(t.Context(), m.id, m.ownerID)
	require.NoError(t, err)
	require.Zero(t, gen)
	m.set(one)
	all, err := away.SenderGenerations(t.Context(), m.id)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "a key", string(all[1].SessionKey))
	require.Equal(t, base64.RawURLEncoding.EncodeToString([]byte{5, 15: 0}), all[1].KID)
	require.Equal(t, []string{m.ownerID, m.agentID}, []string{all[0].ParticipantID, all[1].ParticipantID})

	repeat(t, func() bool {
		presence, err := away.Presence(t.Context(), m.id)
		require.NoError(t, err)
		require.Len(t, presence.Participants, 3)
		require.Equal(t, 90*time.Second, presence.Lease)
		require.WithinDuration(t, time.Now(), presence.AsOf, time.Minute)
		require.False(t, presence.Participants[0].Online)
		return presence.Participants[1].Online && presence.Participants[1].Node != ""
	})
	require.NoError(t, agent.conn.Close())

	m.behave()
	require.NoError(t, m.agent.LeaveRoom(t.Context(), m.id))
	m.add(t, late, client.RoleAgent)
	found, err := away.Member(t.Context(), m.id, m.agentID)
	require.NoError(t, err)
	require.Equal(t, []string{m.agentID, m.id, m.agent.ID()}, []string{found.ParticipantID, found.RoomID, found.DeviceID})
	require.Equal(t, client.RoleAgent, found.Role)
	require.False(t, found.LeftAt.Before(found.JoinedAt))
	keys, err := found.Keys()
	require.NoError(t, err)
	require.Equal(t, m.agent.Keys(), keys)
	present, err := away.Member(t.Context(), m.id, m.ownerID)
	require.NoError(t, err)
	require.Zero(t, present.LeftAt)
	for _, none := range []string{m.agentID, uuid.NewString()} {
		_, err = late.Member(t.Context(), m.id, none)
		require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	}
	_, err = away.Member(t.Context(), m.id, "../rules")
	require.ErrorIs(t, err, client.ErrID)

	for name, value := range map[string]any{"participant_id": m.ownerID, "device_id": "x"} {
		m.set(func(m *meddler) { m.answer = func(_ *http.Request, body map[string]any) { body[name] = value } })
		_, err = away.Member(t.Context(), m.id, m.agentID)
		require.ErrorIs(t, err, client.ErrAnswer, name)
	}
	m.set(func(m *meddler) {
		m.answer = func(_ *http.Request, body map[string]any) { body["identity_key"] = body["agreement_key"] }
	})
	found, err = away.Member(t.Context(), m.id, m.agentID)
	require.NoError(t, err)
	_, err = found.Keys()
	require.ErrorIs(t, err, identity.ErrKeys)
}
