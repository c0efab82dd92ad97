package cluster

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestChangeSubjects(t *testing.T) {
	t.Parallel()
	tenant, room := uuid.New(), uuid.New()
	require.Equal(t, "control."+room.String(), controlSubject(&Change{Tenant: tenant, Room: room}))
	require.Equal(t, "control.tenant."+tenant.String(), controlSubject(&Change{Tenant: tenant}))
}

func TestChangeParts(t *testing.T) {
	t.Parallel()
	ids := func(n int) []uuid.UUID {
		list := make([]uuid.UUID, n)
		for i := range list {
			list[i] = uuid.New()
		}
		return list
	}
	for _, size := range []struct{ removed, credentials, parts int }{
		{0, 0, 1}, {1, 1, 1}, {maxIDsPerChange, maxIDsPerChange, 1}, {maxIDsPerChange + 1, 0, 2}, {3, 2*maxIDsPerChange + 1, 3},
	} {
		c := Change{Tenant: uuid.New(), Room: uuid.New(), Version: 3, Removed: ids(size.removed), Credentials: ids(size.credentials)}
		parts := c.parts()
		require.Len(t, parts, size.parts)
		var removed, credentials []uuid.UUID
		for _, part := range parts {
			require.NoError(t, part.validate())
			require.Equal(t, c.Version, part.Version)
			_, err := encodeControl(&control{Announcement: uuid.New(), Change: part})
			require.NoError(t, err)
			removed, credentials = append(removed, part.Removed...), append(credentials, part.Credentials...)
		}
		require.True(t, slices.Equal(c.Removed, removed))
		require.True(t, slices.Equal(c.Credentials, credentials))
	}
}

func FuzzDecodeControl(f *testing.F) {
	room := uuid.New()
	for _, c := range []Change{
		{Tenant: uuid.New(), Room: room, Version: 7, Removed: []uuid.UUID{uuid.New()}},
		{Tenant: uuid.New(), Room: room, Credentials: []uuid.UUID{uuid.New()}},
	} {
		data, err := encodeControl(&control{Announcement: uuid.New(), Origin: "x", Change: c})
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"announcement":"","origin":1}`))
	subject := "control." + room.String()
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeControl(subject, data)
		if err != nil {
			return
		}
		require.Equal(t, room, m.Change.Room)
		again, err := encodeControl(m)
		require.NoError(t, err)
		same, err := decodeControl(subject, again)
		require.NoError(t, err)
		require.Equal(t, m, same)
	})
}
