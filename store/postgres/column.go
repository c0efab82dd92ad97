package postgres

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// column is an array parameter with one element per row, encoded straight from the
// rows: the general encoder boxes every element and writes uuids through text.
type column[R any] struct {
	rows    []*pending[R]
	element uint32 // OID
	bytes   int    // of all elements together, about
	// write appends the element's binary form; false is NULL.
	write func(dst []byte, row *R) ([]byte, bool)
}

// arrayParameter is a column of whatever rows.
type arrayParameter interface{ encode(buf []byte) []byte }

var arrayOIDs = [...]uint32{pgtype.UUIDArrayOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.BoolArrayOID, pgtype.ByteaArrayOID}

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
	if _, ok := value.(arrayParameter); ok && format == pgtype.BinaryFormatCode {
		return columnPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type columnPlan struct{}

func (columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	c, ok := value.(arrayParameter)
	if !ok {
		return nil, fmt.Errorf("encode column: got a %T", value)
	}
	return c.encode(buf), nil
}

// encode writes the binary form of a one-dimensional array (array_send in PostgreSQL):
// dimensions, whether it has NULLs, element type, length, lower bound, elements.
func (c column[R]) encode(buf []byte) []byte {
	buf = slices.Grow(buf, 20+4*len(c.rows)+c.bytes)
	buf = binary.BigEndian.AppendUint32(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, 1) // "may have", which costs nothing
	buf = binary.BigEndian.AppendUint32(buf, c.element)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(c.rows)))
	buf = binary.BigEndian.AppendUint32(buf, 1)
	for _, p := range c.rows {
		at := len(buf)
		var present bool
		buf, present = c.write(binary.BigEndian.AppendUint32(buf, math.MaxUint32), &p.row) // -1: NULL
		if present {
			binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
		}
	}
	return buf
}

// uuidColumn, textColumn and the others make columns of one value per row.

func uuidColumn[R any](of []*pending[R], value func(*R) uuid.UUID) column[R] {
	return column[R]{of, pgtype.UUIDOID, 16 * len(of), func(dst []byte, row *R) ([]byte, bool) {
		id := value(row)
		return append(dst, id[:]...), true
	}}
}

func textColumn[R any](of []*pending[R], value func(*R) string) column[R] {
	return column[R]{of, pgtype.TextOID, 36 * len(of), func(dst []byte, row *R) ([]byte, bool) {
		return append(dst, value(row)...), true
	}}
}

func int8Column[R any](of []*pending[R], value func(*R) uint64) column[R] {
	return column[R]{of, pgtype.Int8OID, 8 * len(of), func(dst []byte, row *R) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(dst, value(row)), true
	}}
}

func boolColumn[R any](of []*pending[R], value func(*R) bool) column[R] {
	return column[R]{of, pgtype.BoolOID, len(of), func(dst []byte, row *R) ([]byte, bool) {
		if value(row) {
			return append(dst, 1), true
		}
		return append(dst, 0), true
	}}
}

// optionalColumn holds NULL where a value is empty.
func optionalColumn[R any, V string | []byte](of []*pending[R], element uint32, value func(*R) V) column[R] {
	return column[R]{of, element, 0, func(dst []byte, row *R) ([]byte, bool) {
		v := value(row)
		return append(dst, v...), len(v) > 0
	}}
}

func byteaColumn[R any](of []*pending[R], value func(*R) []byte) column[R] {
	total := 0
	for _, p := range of {
		total += len(value(&p.row))
	}
	return column[R]{of, pgtype.ByteaOID, total, func(dst []byte, row *R) ([]byte, bool) {
		return append(dst, value(row)...), true
	}}
}
