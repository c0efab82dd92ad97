package content_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

func fileOf(size int) *content.File {
	data := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(size), 1))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return &content.File{Name: "plan \"b\" é😀.pdf", MIMEType: "application/pdf", Data: data}
}

func split(t testing.TB, f *content.File) []*content.Chunk {
	t.Helper()
	parts, err := content.Split(f)
	require.NoError(t, err)
	chunks := make([]*content.Chunk, 0, len(parts))
	for _, part := range parts {
		chunk, ok := part.(*content.Chunk)
		require.True(t, ok)
		chunks = append(chunks, chunk)
	}
	return chunks
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	chunk := *split(t, fileOf(content.ChunkSize+3))[1]
	chunk.FileID = [16]byte{0: 0xfb, 15: 1}
	chunk.SHA256 = [32]byte{31: 7}
	chunk.Data = []byte{1, 2, 3}
	for want, parts := range map[string][]content.Part{
		`{"parts":[{"text":"a\"é\u0001\n</>","type":"text"}],"v":1}`: {content.Text("a\"é\x01\n</>")},
		`{"parts":[{"data":"AQL/","mime_type":"text/plain","name":"a b.txt","size_bytes":3,"type":"file"},{"text":"b","type":"text"}],"v":1}`: {
			&content.File{Name: "a b.txt", MIMEType: "text/plain", Data: []byte{1, 2, 255}}, content.Text("b"),
		},
		`{"parts":[{"data":"","mime_type":"b","name":"a","size_bytes":0,"type":"file"}],"v":1}`: {
			&content.File{Name: "a", MIMEType: "b", Data: []byte{}},
		},
		`{"parts":[{"count":2,"data":"AQID","file_id":"-wAAAAAAAAAAAAAAAAAAAQ","index":1,"mime_type":"application/pdf","name":"plan \"b\" é😀.pdf",` +
			`"sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=","size_bytes":32771,"type":"chunk"}],"v":1}`: {&chunk},
	} {
		payload, err := content.Encode(parts...)
		require.NoError(t, err)
		require.Equal(t, want, string(payload))
		form, err := signed.Canonical(payload)
		require.NoError(t, err)
		require.Equal(t, form, payload)

		var indented bytes.Buffer
		require.NoError(t, json.Indent(&indented, payload, "", " "))
		for _, spelled := range [][]byte{payload, indented.Bytes()} {
			read, err := content.Decode(spelled)
			require.NoError(t, err)
			require.Equal(t, parts, read)
		}
	}
}

func TestWhatIsNoPayload(t *testing.T) {
	t.Parallel()
	const (
		text  = `{"text":"a","type":"text"}`
		file  = `"data":"AQL/","mime_type":"text/plain","name":"a b.txt","size_bytes":3,"type":"file"`
		chunk = `"count":2,"data":"AQID","file_id":"-wAAAAAAAAAAAAAAAAAAAQ","index":1,"mime_type":"b","name":"a",` +
			`"sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=","size_bytes":32771,"type":"chunk"`
	)
	parts := func(parts string) string { return `{"parts":[` + parts + `],"v":1}` }
	change := func(whole, old, replacement string) string {
		require.Contains(t, whole, old)
		return parts("{" + strings.Replace(whole, old, replacement, 1) + "}")
	}
	for _, good := range []string{parts(text), parts("{" + file + "}"), parts("{" + chunk + "}")} {
		_, err := content.Decode([]byte(good))
		require.NoError(t, err, good)
	}
	for name, payload := range map[string]string{
		"nothing":              "",
		"no object":            `[]`,
		"empty":                `{}`,
		"null":                 `{"parts":null,"v":1}`,
		"no parts":             parts(""),
		"too many parts":       parts(strings.Repeat(text+",", content.MaxParts) + text),
		"a part is null":       parts("null"),
		"a part is a string":   parts(`"a"`),
		"no version":           `{"parts":[` + text + `]}`,
		"another version":      `{"parts":[` + text + `],"v":2}`,
		"version as a text":    `{"parts":[` + text + `],"v":"1"}`,
		"something behind":     parts(text) + "{}",
		"parts twice":          `{"parts":[` + text + `],"parts":[` + text + `],"v":1}`,
		"capital":              `{"Parts":[` + text + `],"v":1}`,
		"unknown member":       `{"later":1,"parts":[` + text + `],"v":1}`,
		"no type":              parts(`{"text":"a"}`),
		"unknown type":         parts(`{"text":"a","type":"video"}`),
		"no text":              parts(`{"type":"text"}`),
		"empty text":           parts(`{"text":"","type":"text"}`),
		"text is null":         parts(`{"text":null,"type":"text"}`),
		"text is a number":     parts(`{"text":1,"type":"text"}`),
		"half a surrogate":     parts(`{"text":"\ud83d","type":"text"}`),
		"bad UTF-8":            parts("{\"text\":\"\xff\",\"type\":\"text\"}"),
		"text with data":       parts(`{"data":"AA==","text":"a","type":"text"}`),
		"text with empty data": parts(`{"data":"","text":"a","type":"text"}`),
		"text with index 0":    parts(`{"index":0,"text":"a","type":"text"}`),
		"text with an unknown": parts(`{"later":0,"text":"a","type":"text"}`),
		"file without data":    change(file, `"data":"AQL/",`, ""),
		"data is null":         change(file, `"AQL/"`, "null"),
		"data of base64url":    change(file, `"AQL/"`, `"AQL_"`),
		"data without padding": change(file, `"data":"AQL/","mime_type":"text/plain","name":"a b.txt","size_bytes":3`, `"data":"AQ","mime_type":"a","name":"b","size_bytes":1`),
		"data respelled":       change(file, `"data":"AQL/","mime_type":"text/plain","name":"a b.txt","size_bytes":3`, `"data":"AR==","mime_type":"a","name":"b","size_bytes":1`),
		"data of two lines":    change(file, `"AQL/"`, `"AQ\nL/"`),
		"data is an array":     change(file, `"AQL/"`, `[1,2,255]`),
		"another size":         change(file, `"size_bytes":3`, `"size_bytes":4`),
		"no size":              change(file, `"size_bytes":3,`, ``),
		"file without a name":  change(file, `"name":"a b.txt",`, ""),
		"empty name":           change(file, `a b.txt`, ""),
		"name of two lines":    change(file, `a b.txt`, `a\nb.txt`),
		"name too long":        change(file, `a b.txt`, strings.Repeat("a", wire.MaxFileName+1)),
		"type with U+2029":     change(file, `text/plain`, `text\u2029`),
		"file with text":       change(file, `"type"`, `"text":"a","type"`),
		"file with a count":    change(file, `"data"`, `"count":0,"data"`),
		"no file_id":           change(chunk, `"file_id":"-wAAAAAAAAAAAAAAAAAAAQ",`, ""),
		"short file_id":        change(chunk, `-wAAAAAAAAAAAAAAAAAAAQ`, "-wAA"),
		"file_id respelled":    change(chunk, `-wAAAAAAAAAAAAAAAAAAAQ`, "-wAAAAAAAAAAAAAAAAAAAR"),
		"file_id of base64":    change(chunk, `-wAAAAAAAAAAAAAAAAAAAQ`, "+wAAAAAAAAAAAAAAAAAAAQ"),
		"file_id, two lines":   change(chunk, `-wAAAAAAAAAAAAAAAAAAAQ`, `-wAAAAAAAAAAAA\nAAAAAAAQ`),
		"no sha256":            change(chunk, `"sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=",`, ""),
		"short sha256":         change(chunk, `AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=`, "AAAA"),
		"no index":             change(chunk, `"index":1,`, ""),
		"index is count":       change(chunk, `"index":1`, `"index":2`),
		"index 2^53-1":         change(chunk, `"index":1`, `"index":9007199254740991`),
		"index negative":       change(chunk, `"index":1`, `"index":-1`),
		"count 0":              change(chunk, `"count":2`, `"count":0`),
		"count 1":              change(chunk, `"count":2`, `"count":1`),
		"count 3":              change(chunk, `"count":2`, `"count":3`),
		"count 2^53-1":         change(chunk, `"count":2`, `"count":9007199254740991`),
		"size one more":        change(chunk, `32771`, `32772`),
		"size of one chunk":    change(chunk, `32771`, `32768`),
		"size 2^53-1":          change(chunk, `32771`, `9007199254740991`),
		"data too short":       change(chunk, `"AQID"`, `"AQI="`),
		"chunk without a name": change(chunk, `"name":"a",`, ``),
	} {
		read, err := content.Decode([]byte(payload))
		require.ErrorIs(t, err, content.ErrContent, name)
		require.Nil(t, read)
	}
	_, err := content.Decode([]byte(parts(text) + strings.Repeat(" ", content.MaxPayload)))
	require.ErrorIs(t, err, content.ErrTooLarge)
}

// FAULTS BL-J05: nobody is named as an author inside.
func TestBLJ05PayloadsHaveNoAuthor(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"from":"018f6b1e-7f2a-7c3d-9a10-0123456789ac","parts":[{"text":"a","type":"text"}],"v":1}`,
		`{"parts":[{"from":"018f6b1e-7f2a-7c3d-9a10-0123456789ac","text":"a","type":"text"}],"v":1}`,
		`{"author":"b","parts":[{"text":"a","type":"text"}],"v":1}`,
	} {
		_, err := content.Decode([]byte(payload))
		require.ErrorIs(t, err, content.ErrContent)
	}
}

func TestWhatIsNotEncoded(t *testing.T) {
	t.Parallel()
	good := split(t, fileOf(100_000))[1]
	bad := func(change func(c *content.Chunk)) *content.Chunk {
		c := *good
		change(&c)
		return &c
	}
	for name, parts := range map[string][]content.Part{
		"nothing":        {},
		"nil":            {nil},
		"no file":        {(*content.File)(nil)},
		"no chunk":       {(*content.Chunk)(nil)},
		"empty text":     {content.Text("")},
		"bad UTF-8":      {content.Text("\xff")},
		"no name":        {&content.File{MIMEType: "a"}},
		"no type":        {&content.File{Name: "a"}},
		"bad name":       {&content.File{Name: "\xff", MIMEType: "a"}},
		"65 parts":       slicesRepeat(content.Text("a"), 65),
		"chunk's index":  {bad(func(c *content.Chunk) { c.Index = c.Count })},
		"negative index": {bad(func(c *content.Chunk) { c.Index = -1 })},
		"chunk's count":  {bad(func(c *content.Chunk) { c.Count++ })},
		"chunk's data":   {bad(func(c *content.Chunk) { c.Data = c.Data[1:] })},
		"negative size":  {bad(func(c *content.Chunk) { c.Size = -1; c.Count = 0 })},
		"small file":     {bad(func(c *content.Chunk) { c.Size = 5; c.Count = 1; c.Index = 0; c.Data = c.Data[:5] })},
		"large file":     {bad(func(c *content.Chunk) { c.Size = content.MaxFile + 1; c.Count = content.MaxChunks + 1 })},
		"chunk's name":   {bad(func(c *content.Chunk) { c.Name = "" })},
	} {
		_, err := content.Encode(parts...)
		require.ErrorIs(t, err, content.ErrContent, name)
	}
	for _, part := range []content.Part{
		content.Text(strings.Repeat("a", content.MaxPayload)),
		content.Text(strings.Repeat("\x01", content.MaxPayload/6)),
		fileOf(content.InlineFile + 1),
	} {
		_, err := content.Encode(part)
		require.ErrorIs(t, err, content.ErrTooLarge)
	}
	_, err := content.Encode(fileOf(content.InlineFile), content.Text(strings.Repeat("a", 5000)))
	require.ErrorIs(t, err, content.ErrTooLarge)
	longest := content.MaxPayload - len(`{"parts":[{"text":"","type":"text"}],"v":1}`)
	payload, err := content.Encode(content.Text(strings.Repeat("a", longest)))
	require.NoError(t, err)
	require.Len(t, payload, content.MaxPayload)
	_, err = content.Encode(content.Text(strings.Repeat("a", longest+1)))
	require.ErrorIs(t, err, content.ErrTooLarge)
}

func slicesRepeat(part content.Part, n int) []content.Part {
	parts := make([]content.Part, n)
	for i := range parts {
		parts[i] = part
	}
	return parts
}

// The longest labels fit beside a whole chunk, and beside a whole file.
func TestTheLongestPartsFit(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"😀", `"`, `\`} {
		f := fileOf(content.MaxFile)
		f.Name, f.MIMEType = strings.Repeat(letter, wire.MaxFileName), strings.Repeat(letter, wire.MaxMIMEType)
		chunks := split(t, f)
		require.Len(t, chunks, content.MaxChunks)
		payload, err := content.Encode(chunks[content.MaxChunks-1])
		require.NoError(t, err)
		_, err = content.Decode(payload)
		require.NoError(t, err)
		f.Data = f.Data[:content.InlineFile]
		_, err = content.Encode(f)
		require.NoError(t, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"parts":[{"text":"a","type":"text"}],"v":1}`))
	f.Add([]byte(`{"parts":[{"data":"AQL/","mime_type":"text/plain","name":"a b.txt","size_bytes":3,"type":"file"},{"text":"\u0001","type":"text"}],"v":1}`))
	f.Add([]byte(`{"parts":[{"count":2,"data":"AQID","file_id":"-wAAAAAAAAAAAAAAAAAAAQ","index":1,"mime_type":"b","name":"a",` +
		`"sha256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=","size_bytes":32771,"type":"chunk"}],"v":1}`))
	f.Add([]byte(`{"parts":[null],"v":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parts, err := content.Decode(data)
		if err != nil {
			require.Nil(t, parts)
			return
		}
		form, err := signed.Canonical(data)
		require.NoError(t, err)
		payload, err := content.Encode(parts...)
		require.NoError(t, err)
		require.Equal(t, string(form), string(payload))
		var a content.Assembler
		for _, part := range parts {
			if chunk, ok := part.(*content.Chunk); ok {
				_, _ = a.Add(chunk)
			}
		}
	})
}
