package encryption

import (
	"context"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

type stub struct{}

func (stub) Prepare(context.Context, Relay, *keystore.Store, *Room, time.Time) error { return ErrScheme }
func (stub) Seal(*keystore.Tx, *Room, *Draft) ([]Sealed, error)                      { return nil, ErrScheme }
func (stub) Open(*keystore.Tx, *Room, *Member, []byte, time.Time) (*Opened, error) {
	return nil, ErrScheme
}
func (stub) Event(*keystore.Tx, *Room, *wire.RoomEvent) error { return ErrScheme }
func (stub) Refused(*keystore.Tx, *Room, *Sealed, wire.Code) (bool, error) {
	return false, ErrScheme
}
func (stub) Due(*keystore.Tx, *Room, time.Time) (*Due, error) { return nil, ErrScheme }

type (
	senderKeys    struct{ stub }
	doubleRatchet struct{ stub }
)
