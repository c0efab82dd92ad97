package keystore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/e2ee/seal"
)

const (
	sector   = 512 // disks write one as a whole
	lengthAt = seal.NonceSize
	bodyAt   = lengthAt + 4 + seal.Overhead
	// maxBody bounds what one record says, and so what is read into memory at once.
	maxBody = 8 << 20
	// maxFile bounds a file, and so how long opening one takes.
	maxFile = 1 << 30
)

// log is an open file: a header and a chain of sealed records.
type log struct {
	file file
	keys keys
	next uint64              // number of the next record
	tag  [seal.Overhead]byte // of the body before it
	end  int64               // where it begins
}

// round is n, or the next multiple of a sector.
func round(n int) int { return (n + sector - 1) / sector * sector }

func (l *log) lengthAAD(number uint64) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(l.keys.id[:]), number)
}

func (l *log) bodyAAD() []byte { return append(l.lengthAAD(l.next), l.tag[:]...) }

// write puts a record at the end, without flushing it. Nothing of it counts before advance.
func (l *log) write(body []byte) (record []byte, err error) {
	size := round(bodyAt + len(body) + seal.Overhead)
	plain := make([]byte, size-bodyAt-seal.Overhead)
	copy(plain, body)
	if len(plain) > maxBody {
		return nil, ErrSize
	}
	if l.end+int64(size) > maxFile {
		return nil, ErrFull
	}
	nonce := seal.NewNonce()
	record = append(make([]byte, 0, size), nonce[:]...)
	length := binary.BigEndian.AppendUint32(nil, uint32(len(plain)))
	record = append(record, seal.WithNonce(l.keys.length, nonce, length, l.lengthAAD(l.next))...)
	record = append(record, seal.WithNonce(l.keys.body, nonce, plain, l.bodyAAD())...)
	_, err = l.file.WriteAt(record, l.end)
	return record, err
}

// advance takes a record as written or read.
func (l *log) advance(record []byte) {
	copy(l.tag[:], record[len(record)-seal.Overhead:])
	l.next++
	l.end += int64(len(record))
}

// append makes a record last. After an error that is not ErrUncertain, nothing was saved.
func (l *log) append(body []byte) error {
	record, err := l.write(body)
	switch {
	case record == nil:
		return err
	case err != nil:
		if undo := errors.Join(l.file.Truncate(l.end), l.file.Sync()); undo != nil {
			return fmt.Errorf("%w: %w, %w", ErrUncertain, err, undo)
		}
		return fmt.Errorf("save: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		// Whether it is on disk nobody can say now (and a second flush would say yes).
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	l.advance(record)
	return nil
}

// errTorn reports that the last record was not written to its end.
var errTorn = errors.New("the last record is not whole")

// read returns the body at the end and goes beyond it. It returns nil at the end of the file,
// errTorn for an unfinished last record, and ErrDamaged.
func (l *log) read(size int64) ([]byte, error) {
	left := size - l.end
	if left == 0 {
		return nil, nil
	}
	if left < bodyAt {
		return nil, errTorn
	}
	first := make([]byte, min(left, sector))
	if _, err := l.file.ReadAt(first, l.end); err != nil {
		return nil, fmt.Errorf("read the key store: %w", err)
	}
	length, ok := l.length(first, l.next)
	if !ok {
		return nil, l.unreadable(first, size)
	}
	record := make([]byte, bodyAt+length+seal.Overhead)
	if int64(len(record)) > left {
		return nil, errTorn // whoever has the key wrote that it is longer than the file
	}
	if _, err := l.file.ReadAt(record, l.end); err != nil {
		return nil, fmt.Errorf("read the key store: %w", err)
	}
	body, err := seal.Open(l.keys.body, [seal.NonceSize]byte(record), record[bodyAt:], l.bodyAAD())
	if err != nil {
		if int64(len(record)) == left && hole(record) {
			return nil, errTorn
		}
		return nil, fmt.Errorf("record %d: %w", l.next, ErrDamaged)
	}
	l.advance(record)
	return body, nil
}

// length reads how long the body of a record is.
func (l *log) length(first []byte, number uint64) (int, bool) {
	plain, err := seal.Open(l.keys.length, [seal.NonceSize]byte(first), first[lengthAt:bodyAt], l.lengthAAD(number))
	if err != nil {
		return 0, false
	}
	length := int(binary.BigEndian.Uint32(plain))
	if length > maxBody || length < 1 || round(bodyAt+length+seal.Overhead) != bodyAt+length+seal.Overhead {
		return 0, false
	}
	return length, true
}

// unreadable tells a record whose first sector was never written, while others of it
// may have been, from a damaged one: nothing can follow the former.
func (l *log) unreadable(first []byte, size int64) error {
	damaged := fmt.Errorf("record %d: %w", l.next, ErrDamaged)
	if !hole(first) || size-l.end > int64(round(bodyAt+maxBody+seal.Overhead)) {
		return damaged
	}
	next := make([]byte, sector)
	for at := l.end + sector; at+sector <= size; at += sector {
		if _, err := l.file.ReadAt(next, at); err != nil {
			return fmt.Errorf("read the key store: %w", err)
		}
		if _, follows := l.length(next, l.next+1); follows {
			return damaged
		}
	}
	return errTorn
}

// hole reports whether one of the sectors holds nothing but zeros.
func hole(sectors []byte) bool {
	for len(sectors) > 0 {
		n := min(len(sectors), sector)
		if bytes.Count(sectors[:n], []byte{0}) == n {
			return true
		}
		sectors = sectors[n:]
	}
	return false
}
