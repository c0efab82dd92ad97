package senderkey_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

// writes is send with a time of writing.
func writes(t testing.TB, s *senderkey.Sender, ts, seq uint64) sent {
	t.Helper()
	m := send(t, s, "alice")
	m.Written = senderkey.Written{TS: ts, Seq: seq}
	return m
}

// A sender that went back to an old copy of its state seals under message keys that were used: its
// key is asked for, and opens what it wrote since, and nothing that was opened before.
func TestOldCopyOfASenderIsRead(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", d)
	var before []sent
	for i := range uint64(4) {
		before = append(before, writes(t, s, 100+i, 1+i))
	}
	old := save(t, s)
	for i := range uint64(4) { // two of one millisecond
		before = append(before, writes(t, s, 104+i/2, 5+i))
	}
	for _, m := range before[:7] {
		opens(t, &r, m)
	}
	require.NoError(t, s.UnmarshalBinary(old))
	s.Confirm(1)
	after := []sent{writes(t, s, 200, 5), writes(t, s, 200, 6), writes(t, s, 200, 7), writes(t, s, 201, 8), writes(t, s, 201, 9)}

	state := save(t, &r)
	refuses(t, &r, after[0].Message, senderkey.ErrStaleSenderKey)
	refuses(t, &r, after[0].Message, senderkey.ErrSpent)
	require.Equal(t, state, save(t, &r))
	// A key that was not asked for makes no used message key new.
	accept(t, &r, "alice", d)
	refuses(t, &r, after[0].Message, senderkey.ErrSpent)

	r.Spent(&after[0].Message)
	refuses(t, &r, after[2].Message, senderkey.ErrSpent)
	opens(t, &r, after[3]) // its key was not used yet
	reload(t, &r)
	answer, err := s.Distribute("bob")
	require.NoError(t, err)
	_, err = r.AcceptAgain("alice", answer)
	require.NoError(t, err)
	for _, m := range before[:7] {
		refuses(t, &r, m.Message, senderkey.ErrDuplicate)
	}
	reload(t, &r)
	for _, m := range []sent{after[0], after[2], after[1], after[4]} {
		opens(t, &r, m)
		reload(t, &r)
		refuses(t, &r, m.Message, senderkey.ErrDuplicate)
	}
	for _, m := range before { // the last one of them, too: its key opened another one
		refuses(t, &r, m.Message, senderkey.ErrDuplicate)
	}
}

// messageAgain is a message that a sender's state of before would make now.
func messageAgain(t testing.TB, s *senderkey.Sender) sent {
	t.Helper()
	m := send(t, s, "alice")
	binary.BigEndian.PutUint32(m.CT, 0)
	m.Written = senderkey.Written{TS: 1, Seq: 1}
	return m
}

// How many used keys are given again is bounded, whatever a member gives.
func TestKeysGivenAgainAreBounded(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", d)
	for _, m := range sendMany(t, s, "alice", 3*senderkey.RepairWindow) {
		opens(t, &r, m)
	}
	none := len(save(t, &r))
	used := messageAgain(t, s)
	r.Spent(&used.Message)
	small := len(save(t, &r))
	require.Equal(t, none+16+4+senderkey.RepairWindow/8+2, small)
	for range 3 {
		_, err := r.AcceptAgain("alice", d)
		require.NoError(t, err)
		require.Len(t, save(t, &r), small+36*senderkey.RepairWindow)
		reload(t, &r)
	}
}

// A state of before version 2 does not say what was opened: it opens nothing under a used key.
func TestReceiversOfVersion1(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", d)
	messages := sendMany(t, s, "alice", 4)
	opens(t, &r, messages[0])
	opens(t, &r, messages[2])
	data := save(t, &r)
	require.Equal(t, byte(2), data[1])
	// Of the one chain, newest is before its skipped key, and that nothing is used again behind it.
	skipped := len(data) - 1 - 36 - 2
	require.Equal(t, uint16(1), binary.BigEndian.Uint16(data[skipped:]))
	first := append([]byte{data[0], 1}, data[2:skipped-16]...)
	first = append(first, data[skipped:len(data)-1]...)
	var upgraded senderkey.Receivers
	require.NoError(t, upgraded.UnmarshalBinary(first))
	later := messages[0].Message
	later.Written = senderkey.Written{TS: 1, Seq: 1}
	refuses(t, &r, later, senderkey.ErrSpent)
	refuses(t, &upgraded, later, senderkey.ErrDuplicate)
	reload(t, &upgraded)
	refuses(t, &upgraded, later, senderkey.ErrDuplicate)
	opens(t, &upgraded, messages[1])
	opens(t, &upgraded, messages[3])
}
