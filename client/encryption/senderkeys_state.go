package encryption

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/wire"
)

// State in the bucket SenderKeys is that of a participant: a device that left a room and was added
// again is another one, with generations of its own. That of each sender has a value of its own, so
// that none exceeds keystore.MaxValue, whatever hostile members make of their share.
func ownStateKey(self string) string   { return self + "/own" }    // senderkey.Outgoing
func keyRepairKey(self string) string  { return self + "/repair" } // senderkey.Repair
func notesStateKey(self string) string { return self + "/notes" }  // notes, in JSON

func receivedPrefix(self string) string           { return self + "/from/" }
func receivedStateKey(self, sender string) string { return receivedPrefix(self) + sender } // senderkey.Receivers of one sender

// forgetSenderKeys deletes all of a participant.
func forgetSenderKeys(tx *keystore.Tx, participant string) error {
	for _, key := range tx.Keys(keystore.SenderKeys, participant+"/") {
		if err := tx.Delete(keystore.SenderKeys, key); err != nil {
			return err
		}
	}
	return tx.ForgetGeneration(participant)
}

type binaryState interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// loadState leaves state as it is where nothing is stored.
func loadBinary(tx *keystore.Tx, key string, state binaryState) error {
	data := tx.Get(keystore.SenderKeys, key)
	if data == nil {
		return nil
	}
	if err := state.UnmarshalBinary(data); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

func saveBinary(tx *keystore.Tx, key string, state binaryState) error {
	data, err := state.MarshalBinary()
	if err != nil {
		return err
	}
	return tx.Put(keystore.SenderKeys, key, data)
}

// loadOwn returns this participant's own keys, which know who is in the room.
func loadOwn(tx *keystore.Tx, room *Room) (*senderkey.Outgoing, error) {
	own := new(senderkey.Outgoing)
	if err := loadBinary(tx, ownStateKey(room.Self.Participant), own); err != nil {
		return nil, err
	}
	return own, own.Update(room.roster())
}

func (r *Room) roster() senderkey.Roster {
	members := make([]string, len(r.Members))
	for i := range r.Members {
		members[i] = r.Members[i].ID()
	}
	return senderkey.Roster{Version: r.Version, Members: members}
}

// Bounds of notes.
const (
	maxLeft  = 4096      // of those who left
	leftKept = time.Hour // how long their keys are kept
)

// notes is what there is to remember of a room beside keys.
type notes struct {
	// Opening is the one of the store in which Prepare confirmed that it is no old copy.
	Opening [16]byte `json:"opening"`
	// Next is the generation that the relay is being asked for, in this opening.
	Next *nextGeneration `json:"next,omitempty"`
	// Retry is when messages whose keys are missing are to be tried again, in Unix
	// milliseconds; 0: not by time.
	Retry int64 `json:"retry,omitempty"`
	// Left are those who left lately, whose last messages may come after the news of it.
	Left map[string]left `json:"left,omitempty"`
}

type left struct {
	Version uint64 `json:"version"`         // of the room, after that
	Forget  int64  `json:"forget,omitzero"` // when to forget the keys, in Unix milliseconds; 0: to be set
}

// nextGeneration is a kid and the chain key that its generation begins with.
type nextGeneration struct {
	KID senderkey.KID `json:"kid"`
	CK  [32]byte      `json:"ck"`
}

func newNextGeneration() (*nextGeneration, error) {
	kid, err := senderkey.NewKID(rand.Reader)
	if err != nil {
		return nil, err
	}
	next := &nextGeneration{KID: kid}
	_, _ = rand.Read(next.CK[:]) // never fails
	return next, nil
}

// published is what the relay, and everybody in the room, is told of the key: 32 bytes that
// are always the same for it, and from which it does not follow (RELAY, "publishes its session
// key"; the chain key itself goes to members only):
//
//	HMAC-SHA256(chain key, "peerrelay/sender-key-published/v1" 0 ‖ kid)
func (n *nextGeneration) published() []byte {
	mac := hmac.New(sha256.New, n.CK[:])
	mac.Write([]byte("peerrelay/sender-key-published/v1\x00"))
	mac.Write(n.KID[:])
	return mac.Sum(nil)
}

func loadNotes(tx *keystore.Tx, self string) (notes, error) {
	var n notes
	data := tx.Get(keystore.SenderKeys, notesStateKey(self))
	if data == nil {
		return n, nil
	}
	if err := json.Unmarshal(data, &n, json.RejectUnknownMembers(true)); err != nil {
		return notes{}, fmt.Errorf("notes: %w", ErrState) // its text could show a key
	}
	return n, nil
}

func (n *notes) save(tx *keystore.Tx, self string) error {
	if n.empty() && tx.Get(keystore.SenderKeys, notesStateKey(self)) == nil {
		return nil
	}
	data, err := json.Marshal(n, json.Deterministic(true))
	if err != nil {
		return errors.New("notes cannot be written") // its text could show a key
	}
	return tx.Put(keystore.SenderKeys, notesStateKey(self), data)
}

func (n *notes) empty() bool {
	return n.Opening == [16]byte{} && n.Next == nil && n.Retry == 0 && len(n.Left) == 0
}

func (n *notes) confirmed(tx *keystore.Tx) bool { return n.Opening == tx.Opening() }

// addLeft remembers who left. It reports false where there is no room for more.
func (n *notes) addLeft(participant string, version uint64) bool {
	if _, known := n.Left[participant]; !known && len(n.Left) >= maxLeft {
		return false
	}
	if n.Left == nil {
		n.Left = make(map[string]left)
	}
	former := n.Left[participant]
	n.Left[participant] = left{Version: max(version, former.Version), Forget: former.Forget}
	return true
}

// applyLeft tells a generation that began with a roster from before the news.
func (n *notes) applyLeft(own *senderkey.Outgoing) {
	for participant, l := range n.Left {
		own.Left(l.Version, participant)
	}
}

// retryAt moves Retry to now and a cooldown of repairs, or leaves it where it is earlier.
func (n *notes) retryAt(now time.Time) {
	latest := now.Add(senderkey.RepairCooldown).UnixMilli()
	if n.Retry == 0 || n.Retry > latest {
		n.Retry = latest
	}
}

// validParticipant keeps keys of the store, and the notes, small.
func validParticipant(id string) bool {
	_, ok := wire.ParseUUID([]byte(id))
	return ok
}
