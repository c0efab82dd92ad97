package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

// holding is what a device's store has beside the room that is measured: what a device in many rooms
// has.
type holding struct {
	Rooms int `default:"0" help:"Other rooms that the devices' stores hold keys of."`
	Peers int `default:"50" help:"Members of each of them, who gave their keys and have the device's."`
	Seen  int `default:"5000" help:"Ids of messages that are remembered of each of them."`
}

func (h *holding) check() error {
	if h.Rooms < 0 || h.Peers < 1 || h.Seen < 0 || h.Rooms > keystore.MaxRooms/2 {
		return usageError{fmt.Sprintf("--rooms is 0 to %d, --peers positive, --seen 0 or more", keystore.MaxRooms/2)}
	}
	return nil
}

// fill adds it to the store in a device's folder, which nobody has open. Only sizes and names
// matter to the store: the rooms exist nowhere else.
func (h *holding) fill(folder string) (kib float64, err error) {
	path := filepath.Join(folder, "keys")
	secret, err := keystore.KeyFile(filepath.Join(folder, "key-file"))
	if err != nil {
		return 0, err
	}
	store, err := keystore.Open(path, secret)
	if err != nil {
		return 0, err
	}
	for range h.Rooms {
		if err := store.Update(h.room); err != nil {
			return 0, errors.Join(err, store.Close())
		}
	}
	if err := store.Close(); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return float64(info.Size()) / 1024, nil
}

func (h *holding) room(tx *keystore.Tx) error {
	room, self := uuid.NewString(), uuid.NewString()
	peers := make([]string, h.Peers)
	listed := make([]api.RoomMember, h.Peers)
	for i := range peers {
		peers[i] = uuid.NewString()
		if err := peerOf(tx, self, peers[i], &listed[i]); err != nil {
			return err
		}
	}
	text, err := json.Marshal(api.Room{ID: room, Participants: listed})
	if err != nil {
		return err
	}
	own, err := ownKeys(peers)
	if err != nil {
		return err
	}
	for n := range h.Seen {
		if _, err := tx.MarkSeen(room, fmt.Sprintf("%s %d", room, n)); err != nil {
			return err
		}
	}
	return errors.Join(
		tx.Put(keystore.Rooms, room+"/room", text),
		tx.Put(keystore.Rooms, room+"/numbered", []byte("1f")),
		tx.Put(keystore.Cursors, self, []byte("1790000000000-0")),
		tx.Put(keystore.SenderKeys, self+"/own", own))
}

// peerOf adds a member: its pin, the key that it gave, and how the relay lists it.
func peerOf(tx *keystore.Tx, self, id string, listed *api.RoomMember) error {
	device := uuid.NewString()
	*listed = api.RoomMember{
		ParticipantID: id, DeviceID: device, Role: "agent", JoinedAt: time.Now(), IdentityKey: strings.Repeat("i", 44),
		AgreementKey: strings.Repeat("a", 44), AgreementSignature: strings.Repeat("s", 88),
	}
	kid, err := senderkey.NewKID(rand.Reader)
	if err != nil {
		return err
	}
	var received senderkey.Receivers
	if _, err := received.Accept(id, senderkey.Distribution{KID: kid, Gen: 3, Iteration: 40}); err != nil {
		return err
	}
	state, err := received.MarshalBinary()
	if err != nil {
		return err
	}
	return errors.Join(
		tx.Put(keystore.Peers, "participant/"+id, []byte(device)),
		tx.Put(keystore.Peers, "device/"+device, []byte(strings.Repeat("k", 129))),
		tx.Put(keystore.SenderKeys, self+"/from/"+id, state))
}

// ownKeys is a generation that all members have.
func ownKeys(members []string) ([]byte, error) {
	kid, err := senderkey.NewKID(rand.Reader)
	if err != nil {
		return nil, err
	}
	var own senderkey.Outgoing
	if err := own.Begin(rand.Reader, 3, kid, senderkey.Roster{Version: 7, Members: members}); err != nil {
		return nil, err
	}
	own.Confirm(3)
	for _, to := range members {
		if _, err := own.Distribute(to); err != nil {
			return nil, err
		}
	}
	return own.MarshalBinary()
}
