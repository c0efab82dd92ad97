package content_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/content"
)

// In any order, with any chunk twice, each in a payload of its own, a file comes out once and
// as it was.
func TestChunksMakeTheFile(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{
		content.InlineFile + 1, 2*content.ChunkSize - 1, 2 * content.ChunkSize, 2*content.ChunkSize + 1, 700_000, content.MaxFile,
	} {
		f := fileOf(size)
		chunks := split(t, f)
		require.Len(t, chunks, (size+content.ChunkSize-1)/content.ChunkSize)
		r.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
		var a content.Assembler
		for i, chunk := range chunks {
			payload, err := content.Encode(chunk)
			require.NoError(t, err)
			parts, err := content.Decode(payload)
			require.NoError(t, err)
			received, ok := parts[0].(*content.Chunk)
			require.True(t, ok)
			whole, err := a.Add(received)
			require.NoError(t, err)
			if i == len(chunks)-1 {
				require.Equal(t, f.Name, whole.Name)
				require.Equal(t, f.MIMEType, whole.MIMEType)
				require.True(t, bytes.Equal(f.Data, whole.Data))
				break
			}
			require.Nil(t, whole)
			whole, err = a.Add(received)
			require.NoError(t, err)
			require.Nil(t, whole)
			require.Equal(t, len(chunks)-1-i, a.Missing(chunk.FileID))
		}
		require.Zero(t, a.Missing(chunks[0].FileID))
	}
}

func TestSmallFilesAreNotSplit(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, content.InlineFile} {
		f := fileOf(size)
		parts, err := content.Split(f)
		require.NoError(t, err)
		require.Equal(t, []content.Part{f}, parts)
	}
	_, err := content.Split(fileOf(content.MaxFile + 1))
	require.ErrorIs(t, err, content.ErrTooLarge)
	_, err = content.Split(&content.File{Name: "a"})
	require.ErrorIs(t, err, content.ErrContent)
}

func TestFilesHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := fileOf(content.InlineFile + 1)
	one, two := split(t, f), split(t, f)
	require.Equal(t, one[0].FileID, one[1].FileID)
	require.NotEqual(t, one[0].FileID, two[0].FileID)
	require.Equal(t, one[0].SHA256, two[0].SHA256)
}

// What contradicts is refused, and changes nothing.
func TestChunksThatContradict(t *testing.T) {
	t.Parallel()
	f := fileOf(3 * content.ChunkSize)
	chunks := split(t, f)
	other := func(index int, change func(c *content.Chunk)) *content.Chunk {
		c := *chunks[index]
		c.Data = bytes.Clone(c.Data)
		change(&c)
		return &c
	}
	var a content.Assembler
	_, err := a.Add(chunks[0])
	require.NoError(t, err)
	for name, c := range map[string]*content.Chunk{
		"another name":     other(1, func(c *content.Chunk) { c.Name = "x" }),
		"another type":     other(1, func(c *content.Chunk) { c.MIMEType = "x" }),
		"another checksum": other(1, func(c *content.Chunk) { c.SHA256[0] ^= 1 }),
		"another size":     other(1, func(c *content.Chunk) { c.Size-- }),
		"another count":    other(1, func(c *content.Chunk) { c.Size += 5; c.Count++ }),
		"other data":       other(0, func(c *content.Chunk) { c.Data[0] ^= 1 }),
	} {
		whole, err := a.Add(c)
		require.ErrorIs(t, err, content.ErrFile, name)
		require.Nil(t, whole)
	}
	for name, c := range map[string]*content.Chunk{
		"nil":                nil,
		"index":              other(1, func(c *content.Chunk) { c.Index = 3 }),
		"data of other size": other(1, func(c *content.Chunk) { c.Data = c.Data[1:] }),
		"size":               other(1, func(c *content.Chunk) { c.Size = 1 << 40 }),
	} {
		_, err := a.Add(c)
		require.ErrorIs(t, err, content.ErrContent, name)
	}
	require.Equal(t, 2, a.Missing(chunks[0].FileID))
	_, err = a.Add(chunks[2])
	require.NoError(t, err)
	whole, err := a.Add(chunks[1])
	require.NoError(t, err)
	require.True(t, bytes.Equal(f.Data, whole.Data))
}

func TestWrongChecksum(t *testing.T) {
	t.Parallel()
	chunks := split(t, fileOf(content.InlineFile+1))
	id := chunks[0].FileID
	chunks[1].Data = []byte{chunks[1].Data[0] ^ 1}
	var a content.Assembler
	_, err := a.Add(chunks[0])
	require.NoError(t, err)
	whole, err := a.Add(chunks[1])
	require.ErrorIs(t, err, content.ErrFile)
	require.Nil(t, whole)
	require.Zero(t, a.Missing(id))
}

// The memory of an Assembler has a bound: the file that was begun first gives way.
func TestUnfinishedFilesAreBounded(t *testing.T) {
	t.Parallel()
	var a content.Assembler
	var files [][]*content.Chunk
	for range content.MaxOpenFiles + 1 {
		chunks := split(t, fileOf(content.InlineFile+1))
		files = append(files, chunks)
		_, err := a.Add(chunks[0])
		require.NoError(t, err)
	}
	require.Zero(t, a.Missing(files[0][0].FileID))
	for _, chunks := range files[1:] {
		require.Equal(t, 1, a.Missing(chunks[0].FileID))
	}
	whole, err := a.Add(files[0][1]) // begins it anew, and the second one gives way
	require.NoError(t, err)
	require.Nil(t, whole)
	require.Zero(t, a.Missing(files[1][0].FileID))
	a.Forget(files[2][0].FileID)
	a.Forget(files[2][0].FileID)
	require.Zero(t, a.Missing(files[2][0].FileID))
	for _, chunks := range files[3:] {
		whole, err := a.Add(chunks[1])
		require.NoError(t, err)
		require.NotNil(t, whole)
	}
}

// Memory that a caller gave away is not kept.
func TestChunksAreCopied(t *testing.T) {
	t.Parallel()
	f := fileOf(content.InlineFile + 1)
	want := bytes.Clone(f.Data)
	chunks := split(t, f)
	var a content.Assembler
	_, err := a.Add(chunks[0])
	require.NoError(t, err)
	clear(chunks[0].Data)
	whole, err := a.Add(chunks[1])
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, whole.Data))
}
