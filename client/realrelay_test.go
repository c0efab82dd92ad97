package client_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// enroll enrolls a device at a relay.
func enroll(t *testing.T, s *testkit.Relay, kind client.DeviceKind, invite string) *client.Device {
	t.Helper()
	d, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), "device"),
		client.Enrollment{RelayURL: s.URL(), Invite: invite, Kind: kind, Label: "a " + string(kind)}, client.DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// await returns the next frame of a type.
func await(t *testing.T, conn *client.Conn, wanted wire.ServerType) wire.ServerFrame {
	t.Helper()
	for {
		frame, err := conn.Receive(t.Context())
		require.NoError(t, err)
		if frame.Type == wanted {
			return frame
		}
	}
}

// The package's own example: from two invites to an envelope, and to the end of a membership.
func TestDevicesAtARealRelay(t *testing.T) {
	s, ctx := testkit.Shared(t), t.Context()
	alice := enroll(t, s, client.KindHuman, s.Invite(t, "human", true).Token)
	require.Equal(t, client.DeviceApproved, alice.LastState())
	_, err := alice.CreateInvite(ctx, client.NewInvite{})
	require.ErrorIs(t, err, &wire.Error{Code: wire.Forbidden}, "not yet")
	active, err := alice.PublishKeys(ctx)
	require.NoError(t, err)
	require.Equal(t, client.DeviceActive, active.State)

	invite, err := alice.CreateInvite(ctx, client.NewInvite{Kind: client.KindAgent})
	require.NoError(t, err)
	robot := enroll(t, s, client.KindAgent, invite.Token)
	require.ErrorIs(t, robot.SignIn(ctx), client.ErrNotAdmitted)
	require.ErrorIs(t, alice.RevokeInvite(ctx, invite.InviteID), &wire.Error{Code: wire.Conflict}, "a device has enrolled with it")
	_, err = alice.ApproveDevice(ctx, robot.ID(), alice.Fingerprint())
	require.ErrorIs(t, err, client.ErrFingerprint)
	_, err = alice.ApproveDevice(ctx, robot.ID(), "none")
	require.ErrorIs(t, err, client.ErrFingerprint)
	var pending []string
	for device, err := range alice.Devices(ctx, client.DevicePending) {
		require.NoError(t, err)
		require.Equal(t, robot.Fingerprint(), device.Fingerprint)
		pending = append(pending, device.DeviceID)
	}
	require.Equal(t, []string{robot.ID()}, pending)
	_, err = alice.Peer(robot.ID())
	require.ErrorIs(t, err, client.ErrUnknownPeer)
	_, err = alice.ApproveDevice(ctx, robot.ID(), robot.Fingerprint())
	require.NoError(t, err)
	peer, err := alice.Peer(robot.ID())
	require.NoError(t, err)
	require.Equal(t, client.Peer{DeviceID: robot.ID(), Fingerprint: robot.Fingerprint(), Compared: true}, peer)
	require.NoError(t, robot.AwaitApproval(ctx))
	_, err = robot.PublishKeys(ctx)
	require.NoError(t, err)

	made, err := alice.CreateRoom(ctx, client.NewRoom{Scheme: "none"})
	require.NoError(t, err)
	_, err = robot.Room(ctx, made.RoomID)
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	_, err = alice.AddMember(ctx, made.RoomID, robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	_, err = alice.AddMember(ctx, made.RoomID, robot.ID(), client.RoleAgent)
	require.ErrorIs(t, err, &wire.Error{Code: wire.Conflict})
	room, err := robot.Room(ctx, made.RoomID)
	require.NoError(t, err)
	require.Len(t, room.Participants, 2)
	for i, device := range []*client.Device{alice, robot} {
		keys, err := room.Participants[i].Keys()
		require.NoError(t, err)
		require.Equal(t, device.Keys(), keys)
	}
	require.Equal(t, room.Participants[1].ParticipantID, room.ParticipantID)

	credential, err := robot.MintCredential(ctx, made.RoomID, 0)
	require.NoError(t, err)
	require.Equal(t, room.ParticipantID, credential.ParticipantID)
	conn, err := robot.Connect(ctx, credential)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, made.RoomID, conn.SessionID())
	require.NoError(t, conn.Resume(ctx, "$", 0))
	await(t, conn, wire.ServerResumeComplete)

	require.NoError(t, robot.LeaveRoom(ctx, made.RoomID))
	for err == nil {
		_, err = conn.Receive(ctx)
	}
	require.Equal(t, &client.CloseError{Code: wire.CloseAuth, Reason: wire.ReasonAuth}, err)
	_, err = robot.MintCredential(ctx, made.RoomID, 0)
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	require.NoError(t, alice.RemoveMember(ctx, made.RoomID, room.ParticipantID), "removing again is no error")

	archived, err := alice.ArchiveRoom(ctx, made.RoomID)
	require.NoError(t, err)
	require.Equal(t, client.RoomArchived, archived.State)
	_, err = alice.ResetRoom(ctx, made.RoomID)
	require.ErrorIs(t, err, &wire.Error{Code: wire.Conflict})

	_, err = alice.RevokeDevice(ctx, robot.ID())
	require.NoError(t, err)
	_, err = robot.Info(ctx)
	require.ErrorIs(t, err, client.ErrNotAdmitted)
}

// An admin sees a room that it is not in, and cannot leave it.
func TestLeavingARoomOneIsNotIn(t *testing.T) {
	s := testkit.Shared(t)
	alice := enroll(t, s, client.KindHuman, s.Invite(t, "human", true).Token)
	_, err := alice.PublishKeys(t.Context())
	require.NoError(t, err)
	room := s.Room(t, testkit.RoomOptions{})
	member := s.Join(t, room, "agent")
	err = alice.LeaveRoom(t.Context(), room)
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	found, err := alice.Room(t.Context(), room)
	require.NoError(t, err)
	require.Equal(t, member.ID, found.Participants[0].ParticipantID, "nobody else left")
}
