package content

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// ErrFile says that chunks do not make the file that they belong to: they contradict each
// other, or the whole does not have its checksum.
var ErrFile = errors.New("the chunks do not make the file")

// MaxOpenFiles is how many unfinished files an Assembler holds.
const MaxOpenFiles = 4

var errChunk = fmt.Errorf("%w: index, count and size of a chunk do not fit each other", ErrContent)

// chunks is how many chunks a file of size bytes has.
func chunks(size int) int { return (size + ChunkSize - 1) / ChunkSize }

// check returns an error that is ErrContent.
func (c *Chunk) check() error {
	switch {
	case c == nil || !validLabels(c.Name, c.MIMEType):
		return errLabels
	case c.Size <= InlineFile || c.Size > MaxFile, c.Count != chunks(c.Size), c.Index < 0 || c.Index >= c.Count:
		return errChunk
	case len(c.Data) != min(ChunkSize, c.Size-c.Index*ChunkSize):
		return errChunk
	}
	return nil
}

// Split returns the parts that f is sent as, each in a payload of its own: one File, or the
// Chunks of a file of more than InlineFile bytes, under an id that is drawn. They share the
// memory of f. The error is ErrContent, or ErrTooLarge for more than MaxFile bytes.
func Split(f *File) ([]Part, error) {
	if !validLabels(f.Name, f.MIMEType) {
		return nil, errLabels
	}
	if len(f.Data) > MaxFile {
		return nil, ErrTooLarge
	}
	if len(f.Data) <= InlineFile {
		return []Part{f}, nil
	}
	whole := Chunk{Count: chunks(len(f.Data)), Name: f.Name, MIMEType: f.MIMEType, Size: len(f.Data), SHA256: sha256.Sum256(f.Data)}
	_, _ = rand.Read(whole.FileID[:]) // never fails: the program ends instead (package crypto/rand)
	parts := make([]Part, 0, whole.Count)
	for data := range slices.Chunk(f.Data, ChunkSize) {
		c := whole
		c.Index, c.Data = len(parts), data
		parts = append(parts, &c)
	}
	return parts, nil
}

// Assembler puts the chunks of one sender in one room together, in any order. The zero
// Assembler is ready. It holds MaxOpenFiles unfinished files, MaxFile bytes each at most; the
// one that was begun first gives way to another one.
//
// It is not saved: who saves the messages it was fed with feeds a new one with them, and
// what comes twice changes nothing.
type Assembler struct {
	open []*unfinished // the oldest one first
}

type unfinished struct {
	first Chunk // what all chunks say of the whole
	data  [][]byte
	left  int
}

// Add takes a chunk and returns the file when that was its last one, else nil. Memory of the
// chunk is not kept. The error is ErrContent for a chunk that breaks a rule of its own, which
// changes nothing, and ErrFile for one that says something else of the file than the first
// one did or other data for an index, which changes nothing either, and for a whole
// that does not have its checksum, which is forgotten.
func (a *Assembler) Add(c *Chunk) (*File, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	f := a.find(c.FileID)
	if f == nil {
		f = a.begin(c)
	}
	switch {
	case !f.first.sameFile(c):
		return nil, fmt.Errorf("%w: a chunk contradicts another one", ErrFile)
	case f.data[c.Index] != nil && !bytes.Equal(f.data[c.Index], c.Data):
		return nil, fmt.Errorf("%w: there is other data for a chunk", ErrFile)
	case f.data[c.Index] != nil:
		return nil, nil
	}
	f.data[c.Index] = bytes.Clone(c.Data)
	if f.left--; f.left > 0 {
		return nil, nil
	}
	a.Forget(c.FileID)
	whole := bytes.Join(f.data, nil)
	if sha256.Sum256(whole) != f.first.SHA256 {
		return nil, fmt.Errorf("%w: the checksum is another one", ErrFile)
	}
	return &File{Name: f.first.Name, MIMEType: f.first.MIMEType, Data: whole}, nil
}

// Missing returns how many chunks of a file have not come; it is 0 for one that is unknown or
// finished.
func (a *Assembler) Missing(file [16]byte) int {
	if f := a.find(file); f != nil {
		return f.left
	}
	return 0
}

// Forget drops what has come of a file.
func (a *Assembler) Forget(file [16]byte) {
	for i, f := range a.open {
		if f.first.FileID == file {
			a.open = append(a.open[:i:i], a.open[i+1:]...)
			return
		}
	}
}

func (a *Assembler) find(file [16]byte) *unfinished {
	for _, f := range a.open {
		if f.first.FileID == file {
			return f
		}
	}
	return nil
}

func (a *Assembler) begin(c *Chunk) *unfinished {
	if len(a.open) == MaxOpenFiles {
		a.Forget(a.open[0].first.FileID)
	}
	f := &unfinished{first: *c, data: make([][]byte, c.Count), left: c.Count}
	f.first.Data = nil
	a.open = append(a.open, f)
	return f
}

func (c *Chunk) sameFile(other *Chunk) bool {
	return c.FileID == other.FileID && c.Count == other.Count && c.Name == other.Name &&
		c.MIMEType == other.MIMEType && c.Size == other.Size && c.SHA256 == other.SHA256
}
