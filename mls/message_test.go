package mls_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/mls"
)

// vector is a message of another implementation with what that one reads of it.
type vector struct {
	Name    string          `json:"name"`
	Format  string          `json:"wire_format"`
	GroupID string          `json:"group_id"` // hex
	Epoch   uint64          `json:"epoch"`
	Content string          `json:"content_type"`
	Sender  string          `json:"sender_type"`
	Message json.RawMessage `json:"message"`
}

func (v *vector) bytes(t testing.TB) []byte {
	t.Helper()
	var text string
	require.NoError(t, json.Unmarshal(v.Message, &text))
	data, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return data
}

func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/messages.json")
	require.NoError(t, err)
	var list []vector
	require.NoError(t, json.Unmarshal(text, &list))
	require.NotEmpty(t, list)
	return list
}

var (
	formats = map[string]mls.WireFormat{
		"mls_public_message": mls.PublicMessage, "mls_private_message": mls.PrivateMessage, "mls_welcome": mls.Welcome,
		"mls_group_info": mls.GroupInfo, "mls_key_package": mls.KeyPackage,
	}
	contents = map[string]mls.ContentType{"": 0, "application": mls.Application, "proposal": mls.Proposal, "commit": mls.Commit}
	senders  = map[string]mls.SenderType{
		"": 0, "member": mls.Member, "external": mls.External, "new_member_proposal": mls.NewMemberProposal, "new_member_commit": mls.NewMemberCommit,
	}
)

// want is what the vector says.
func (v *vector) want(t testing.TB) mls.Message {
	t.Helper()
	id, err := hex.DecodeString(v.GroupID)
	require.NoError(t, err)
	want := mls.Message{WireFormat: formats[v.Format], Epoch: v.Epoch, Content: contents[v.Content], Sender: senders[v.Sender]}
	if len(id) > 0 {
		want.GroupID = id
	}
	if want.WireFormat == mls.PrivateMessage {
		want.Sender = mls.Member
	}
	return want
}

// What another implementation wrote is read as that one reads it, and every format, content
// and sender is among it.
func TestMessagesOfAnotherImplementation(t *testing.T) {
	t.Parallel()
	seenFormats, seenContents, seenSenders := map[mls.WireFormat]int{}, map[mls.ContentType]int{}, map[mls.SenderType]int{}
	for _, v := range vectors(t) {
		want := v.want(t)
		require.NotZero(t, want.WireFormat, v.Name)
		got, err := mls.Parse(v.bytes(t))
		require.NoError(t, err, v.Name)
		require.Equal(t, want, got, v.Name)
		seenFormats[got.WireFormat]++
		seenContents[got.Content]++
		seenSenders[got.Sender]++
		require.Equal(t, want.Content == mls.Commit && want.Sender == mls.Member, got.ByMember(), v.Name)
		require.Equal(t, want.Content == mls.Commit && want.Sender == mls.NewMemberCommit, got.Joins(), v.Name)
	}
	require.Len(t, seenFormats, len(formats))
	require.Len(t, seenContents, len(contents))
	require.Len(t, seenSenders, len(senders))
}

// A message that is cut off at any byte which is read, or followed by one more where its
// whole structure is read, is refused.
func TestMessagesAreWhole(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		data, want := v.bytes(t), v.want(t)
		whole := want.WireFormat == mls.PrivateMessage || want.WireFormat == mls.GroupInfo || want.WireFormat == mls.Welcome
		read := len(data)
		if !whole { // up to where the end does not matter any more
			for read = 0; ; read++ {
				if _, err := mls.Parse(data[:read]); err == nil {
					break
				}
			}
		}
		for n := range read {
			_, err := mls.Parse(data[:n])
			require.ErrorIs(t, err, mls.ErrTruncated, "%s: %d of %d bytes", v.Name, n, len(data))
		}
		_, err := mls.Parse(append(bytes.Clone(data), 0))
		if whole {
			require.ErrorIs(t, err, mls.ErrTrailing, v.Name)
		} else {
			require.NoError(t, err, v.Name)
		}
	}
}

// message builds bytes from parts.
func message(parts ...any) []byte {
	var data []byte
	for _, part := range parts {
		switch part := part.(type) {
		case int:
			data = append(data, byte(part))
		case string:
			data = append(data, part...)
		case []byte:
			data = append(data, part...)
		}
	}
	return data
}

var epoch = []byte{0, 0, 0, 0, 0, 0, 1, 2}

// RFC 9420 section 2.1.2: a length has 1, 2 or 4 bytes, and as few as it can.
func TestLengthsOfVectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length []byte
		size   int // of the group id that follows
		err    error
	}{
		"nothing":                {[]byte{0x00}, 0, nil},
		"one byte":               {[]byte{0x3f}, 63, nil},
		"two bytes":              {[]byte{0x40, 0x40}, 64, nil},
		"two bytes, most":        {[]byte{0x7f, 0xff}, 1<<14 - 1, nil},
		"four bytes":             {[]byte{0x80, 0, 0x40, 0}, 1 << 14, nil},
		"two for one":            {[]byte{0x40, 0x3f}, 63, mls.ErrLength},
		"four for one":           {[]byte{0x80, 0, 0, 5}, 5, mls.ErrLength},
		"four for two":           {[]byte{0x80, 0, 0x3f, 0xff}, 1<<14 - 1, mls.ErrLength},
		"eight":                  {[]byte{0xc0, 0, 0, 0, 0, 0, 0, 5}, 5, mls.ErrLength},
		"the largest, of nobody": {[]byte{0xbf, 0xff, 0xff, 0xff}, 100, mls.ErrTruncated},
	} {
		id := bytes.Repeat([]byte{7}, c.size)
		m, err := mls.Parse(message(0, 1, 0, 2, c.length, id, epoch, 3, 0, 0, 0))
		require.ErrorIs(t, err, c.err, name)
		if c.err == nil {
			require.Equal(t, mls.Message{WireFormat: mls.PrivateMessage, GroupID: id, Epoch: 258, Content: mls.Commit, Sender: mls.Member}, m, name)
		}
	}
}

// What has no meaning, or one that a later version may give it, is refused.
func TestUnknownValues(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"version 0":       message(0, 0, 0, 5),
		"version 2":       message(0, 2, 0, 5),
		"version 256":     message(1, 0, 0, 5),
		"wire format 0":   message(0, 1, 0, 0),
		"wire format 6":   message(0, 1, 0, 6),
		"wire format 257": message(0, 1, 1, 1),
		"sender 0":        message(0, 1, 0, 1, 1, "g", epoch, 0, 0, 3),
		"sender 5":        message(0, 1, 0, 1, 1, "g", epoch, 5, 0, 3),
		"public content":  message(0, 1, 0, 1, 1, "g", epoch, 4, 0, 4),
		"content 0":       message(0, 1, 0, 2, 1, "g", epoch, 0, 0, 0, 0),
		"content 4":       message(0, 1, 0, 2, 1, "g", epoch, 4, 0, 0, 0),
		"group version 2": message(0, 1, 0, 4, 0, 2, 0, 3, 1, "g", epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		_, err := mls.Parse(data)
		require.ErrorIs(t, err, mls.ErrUnknown, name)
	}
	for _, data := range [][]byte{
		message(0, 1, 0, 5),
		message(0, 1, 0, 1, 1, "g", epoch, 4, 0, 3),
		message(0, 1, 0, 4, 0, 1, 0, 3, 1, "g", epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		_, err := mls.Parse(data)
		require.NoError(t, err, "what is refused above is refused for that one value")
	}
}

// Parse never panics, takes no memory, and what it returns is in the bytes.
func FuzzParse(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.bytes(f))
	}
	f.Add(message(0, 1, 0, 2, 0xbf, 0xff, 0xff, 0xff))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := mls.Parse(data)
		if err != nil {
			require.Equal(t, mls.Message{}, m)
			return
		}
		require.Contains(t, []mls.WireFormat{mls.PublicMessage, mls.PrivateMessage, mls.Welcome, mls.GroupInfo, mls.KeyPackage}, m.WireFormat)
		require.True(t, bytes.Contains(data, m.GroupID))
	})
}

// However long a vector says it is, nothing is allocated for it.
func TestParseAllocatesNothing(t *testing.T) {
	for _, v := range vectors(t) {
		data := v.bytes(t)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = mls.Parse(data) }), v.Name)
	}
	lies := message(0, 1, 0, 2, 0xbf, 0xff, 0xff, 0xff, "short")
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = mls.Parse(lies) }))
}
