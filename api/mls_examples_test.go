package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
)

// groupOperations are those on MLS groups and key packages. Devices perform them.
var groupOperations = []string{
	"postDevicesMeKeyPackages", "getDevicesMeKeyPackages", "postRoomsByIdKeyPackagesClaim",
	"postRoomsByIdCommits", "getRoomsByIdCommits", "postRoomsByIdCommitsByEpochReport", "getRoomsByIdGroupInfo", "getRoomsByIdWelcome",
}

// exampleExpiry is that of the example of a key package.
const exampleExpiry = "2026-10-21T14:13:20Z"

// group makes an MLS room of two devices, with what the operation needs, and tells which
// values of the example stand for it.
func (e *examples) group(t *testing.T, p *place, id string) (values []string) {
	t.Helper()
	owner, other := e.relay.ActiveDevice(t, "human", false), e.relay.ActiveDevice(t, "agent", false)
	var room struct {
		ID string `json:"room_id"`
	}
	var member struct {
		ID string `json:"participant_id"`
	}
	e.relay.Public(t, http.MethodPost, "/v1/rooms", owner.AccessToken, testkit.RoomOptions{Scheme: "mls"}).Into(t, &room)
	e.relay.Public(t, http.MethodPost, "/v1/rooms/"+room.ID+"/members", owner.AccessToken, map[string]string{"device_id": other.ID, "role": "agent"}).Into(t, &member)
	p.device = owner.AccessToken
	switch id {
	case "postRoomsByIdKeyPackagesClaim":
		e.relay.PublishKeyPackages(t, other, testkit.NewMLSKeyPackage("of the other")).Demand(t, http.StatusOK)
	case "getRoomsByIdWelcome":
		p.device = other.AccessToken
		fallthrough
	case "getRoomsByIdCommits", "postRoomsByIdCommitsByEpochReport", "getRoomsByIdGroupInfo":
		begin := testkit.NewMLSCommit("group", 0, 0, "begin").Adding("come in", member.ID)
		e.relay.Public(t, http.MethodPost, "/v1/rooms/"+room.ID+"/commits", owner.AccessToken, begin).Demand(t, http.StatusCreated)
	}
	require.NotEmpty(t, member.ID)
	return []string{exampleRoom, room.ID, exampleOther, member.ID, exampleExpiry, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
}
