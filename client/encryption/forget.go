package encryption

import (
	"errors"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// Forget deletes the keys of a participant that this device is not any more; room is the one that it
// was in, as last known, and who it was there.
//
// Of a direct room it stays known which version of the room the conversation was over at: its messages
// are not for a participant but for the room, and an old one would else begin a conversation with the
// participant that this device becomes when it is added again.
func Forget(tx *keystore.Tx, room *Room) error {
	return errors.Join(forgetSenderKeys(tx, room.Self.Participant), endConversation(tx, room))
}

// endConversation ends what was before the removal, whose version is above all that this device has
// heard of.
func endConversation(tx *keystore.Tx, room *Room) error {
	if tx.Get(keystore.Sessions, conversationKey(room.ID)) == nil {
		return nil
	}
	peer, ok := storedPeer(tx, room.ID)
	if !ok { // nothing of it can be read
		return ForgetConversation(tx, room.ID)
	}
	c, err := loadConversation(tx, room, &peer)
	if err != nil {
		return err
	}
	return c.endBefore(tx, max(c.since, room.Version)+1)
}

// ForgetConversation deletes all there is of a direct room.
func ForgetConversation(tx *keystore.Tx, room string) error {
	return errors.Join(tx.Delete(keystore.Sessions, conversationKey(room)), tx.Delete(keystore.Sessions, repairKey(room)))
}
