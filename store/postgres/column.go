package postgres

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/peerrelay/peerrelay/store"
)

// column is an array parameter with one element per message, encoded straight from the
// messages: the general encoder boxes every element and writes uuids through text.
type column struct {
	messages []*pending
	element  uint32 // OID
	// write appends the element's binary form; false is NULL.
	write func(dst []byte, m *store.Message) ([]byte, bool)
}

var arrayOIDs = [...]uint32{pgtype.UUIDArrayOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.ByteaArrayOID}

// registerTypes teaches a connection to encode columns and single uuids.
func registerTypes(conn *pgx.Conn) {
	types := conn.TypeMap()
	if t, ok := types.TypeForOID(pgtype.UUIDOID); ok {
		types.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: uuidCodec{t.Codec}})
	}
	for _, oid := range arrayOIDs {
		if t, ok := types.TypeForOID(oid); ok {
			types.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: columnCodec{t.Codec}})
		}
	}
}

// uuidCodec is the codec of uuid, without the general encoder's way through text.
type uuidCodec struct{ pgtype.Codec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type uuidPlan struct{}

func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("encode uuid: got a %T", value)
	}
	return append(buf, id[:]...), nil
}

// columnCodec is the codec of an array type that also takes a column.
type columnCodec struct{ pgtype.Codec }

func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(column); ok && format == pgtype.BinaryFormatCode {
		return columnPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type columnPlan struct{}

// Encode writes the binary form of a one-dimensional array (array_send in PostgreSQL):
// dimensions, whether it has NULLs, element type, length, lower bound, elements.
func (columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	c, ok := value.(column)
	if !ok {
		return nil, fmt.Errorf("encode column: got a %T", value)
	}
	buf = slices.Grow(buf, c.size())
	buf = binary.BigEndian.AppendUint32(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, 1) // "may have", which costs nothing
	buf = binary.BigEndian.AppendUint32(buf, c.element)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(c.messages)))
	buf = binary.BigEndian.AppendUint32(buf, 1)
	for _, p := range c.messages {
		at := len(buf)
		var present bool
		buf, present = c.write(binary.BigEndian.AppendUint32(buf, math.MaxUint32), &p.message) // -1: NULL
		if present {
			binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
		}
	}
	return buf, nil
}

// size is about how long the encoded column will be.
func (c column) size() int {
	size := 20 + len(c.messages)*(4+36)
	if c.element == pgtype.ByteaOID {
		for _, p := range c.messages {
			size += len(p.message.Bytes)
		}
	}
	return size
}

// The columns of HistoryInsert.

func roomIDs(of []*pending) column {
	return column{of, pgtype.UUIDOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.Room[:]...), true }}
}

func senderIDs(of []*pending) column {
	return column{of, pgtype.UUIDOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.Sender[:]...), true }}
}

func messageIDs(of []*pending) column {
	return column{of, pgtype.TextOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.ID...), true }}
}

func kinds(of []*pending) column {
	return column{of, pgtype.TextOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.Kind.String()...), true }}
}

func gens(of []*pending) column {
	return column{of, pgtype.Int8OID, func(dst []byte, m *store.Message) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(dst, m.Gen), true
	}}
}

func kids(of []*pending) column {
	return column{of, pgtype.ByteaOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.KID...), m.KID != "" }}
}

func envelopes(of []*pending) column {
	return column{of, pgtype.ByteaOID, func(dst []byte, m *store.Message) ([]byte, bool) { return append(dst, m.Bytes...), true }}
}
