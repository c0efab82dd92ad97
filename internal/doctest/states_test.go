package doctest_test

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
)

//go:generate go test -count=1 -run ^TestStatesPage$ . -update

var update = flag.Bool("update", false, "write docs/states.md instead of comparing it")

// machine is what docs/states.md says of a state machine besides its moves.
type machine struct {
	name   store.Machine
	title  string
	intro  string
	states []said // in the order of a life
	starts []said // first state, and what leads there
	events []said // what each event is
	notes  string
}

// said is a name and what is said of it.
type said struct{ name, text string }

var machines = []machine{
	{
		name:  store.InviteMachine,
		title: "Invites",
		intro: "An invite lets one device enroll. Its token has 256 random bits, is shown once, and only its BLAKE2b-256 is kept.",
		states: []said{
			{string(store.InviteCreated), "One device of the invite's kind can enroll with it, until it expires by the database's clock."},
			{string(store.InviteConsumed), "Nothing. It made one device, in the same transaction."},
			{string(store.InviteExpired), "Nothing."},
			{string(store.InviteRevoked), "Nothing, from before the answer to the revocation."},
		},
		starts: []said{{string(store.InviteCreated), "an admin or the operator makes it"}},
		events: []said{
			{string(store.InviteConsume), "a device enrolls: token, keys and proof of possession are good"},
			{string(store.InviteExpire), "its time is over; nothing has to note that for it to count"},
			{string(store.InviteRevoke), fmt.Sprintf("an admin or the operator takes it back, or the %dth bad proof came", store.MaxFailedProofs)},
		},
		notes: fmt.Sprintf(`| bound | value |
|---|---|
| uses | 1 |
| life | more than 0, at most %.0f minutes |
| bad proofs of possession, and keys or their signature that are not accepted | %d together; the last one revokes the invite |
| usable invites of a tenant | %d |
| label of a device | %d Unicode code points |

Whatever is wrong with an enrollment gets one and the same refusal, and leaves the invite as it was but for counting a bad proof.
`, store.MaxInviteTTL.Minutes(), store.MaxFailedProofs, store.MaxPendingInvite, store.MaxDeviceLabel),
	},
	{
		name:  store.DeviceMachine,
		title: "Devices",
		intro: "A device is what a person or an agent uses the relay with. It has an Ed25519 identity key and an X25519 agreement key.",
		states: []said{
			{string(store.DevicePending), "Nothing. An admin has to compare its [fingerprint](#fingerprints)."},
			{string(store.DeviceApproved), "It signs in and starts the key exchange. It is in no room and sends nothing."},
			{string(store.DeviceActive), "Everything: it joins rooms, has credentials, sends and receives; an admin manages devices."},
			{string(store.DeviceSuspended), "Nothing: no sign-in, no token or credential of it opens anything, its sockets are closed (4403). It stays a member of its rooms."},
			{string(store.DeviceRevoked), "Nothing, for good. It is in no room and has no credential, and its encrypted rooms have to change their keys."},
		},
		starts: []said{
			{string(store.DevicePending), "it enrolls"},
			{string(store.DeviceApproved), "it enrolls with an admin's invite"},
			{string(store.DeviceActive), "the operator makes it, without keys"},
		},
		events: []said{
			{string(store.DeviceApprove), "an admin or the operator names the device's own fingerprint; another one is refused"},
			{string(store.DeviceActivate), "the device publishes its material for the key exchange"},
			{string(store.DeviceSuspend), "an admin or the operator blocks it for a while"},
			{string(store.DeviceReinstate), "an admin or the operator ends that"},
			{string(store.DeviceRevoke), "an admin or the operator removes it for good"},
		},
		notes: `An admin is an ACTIVE device that enrolled with an admin's invite. Revoking ends every membership, credential and access token of
the device, and moves the rooms, in one transaction. There is one way to REVOKED, from ACTIVE: a suspended device is reinstated
first, and then everything that did not expire is valid again until it is revoked.
`,
	},
	{
		name:  store.RoomMachine,
		title: "Rooms",
		intro: "Each change of a room, of its members too, raises its version. Rooms of scheme `none` have no keys and are never in REKEYING.",
		states: []said{
			{string(store.RoomCreated), "It has no members yet."},
			{string(store.RoomActive), "Members send and receive, within their roles and the room's scheme; members come and go."},
			{string(store.RoomRekeying), "Somebody left who knows the keys, and those who stay change them, as below. Members come and go."},
			{string(store.RoomArchived), "Nothing is stored any more: no message, notice, Board event or sender key (`room_archived`). Members read on what there is."},
		},
		starts: []said{{string(store.RoomCreated), "the operator makes it, or a human device, which is its owner and first member at once"}},
		events: []said{
			{string(store.RoomMembersAdded), "ACTIVE devices become members"},
			{string(store.RoomMemberRemoved), "a member is removed, leaves, or its device is revoked"},
			{string(store.RoomRekeyed), "the members have new keys, which those who left do not"},
			{string(store.RoomArchive), "the room is closed for good"},
		},
		notes: `A room's owners and the tenant's admin devices manage it; a human device that makes a room is its owner. Everybody may leave by
oneself. What the members of a room are told of each of these is in [protocol.md](protocol.md#room-events).

| when somebody left a room of scheme | until | and then |
|---|---|---|
| ` + "`sender_keys`" + ` | a sender that was a member then allocates a new generation, its messages are refused: ` + "`mls_generation_retired`" + ` under one from before, ` + "`mls_generation_unknown`" + ` under one that was not allocated | the room is ACTIVE when everybody who had a generation has a new one; where nobody had any, when somebody allocates one |
| ` + "`mls`" + ` | a commit is accepted that removes all who left the group, every message is refused with ` + "`mls_removal_pending`" + ` | the room is ACTIVE, in the epoch that the commit made |
| ` + "`double_ratchet`" + ` | the owner writes first again, the agent's messages are refused with ` + "`not_activated`" + ` | the room is ACTIVE |
| ` + "`none`" + ` | | it has no keys, and stays ACTIVE |

| case | outcome |
|---|---|
| the last owner leaves, or its device is revoked | The room goes on; the tenant's admin devices and the operator manage it, and may add an owner. |
| the last owner's device is suspended | The same, while that lasts. It stays a member. |
| the last member leaves | Nobody has keys: the room is ACTIVE and empty. Its MLS group is over. Admins and the operator may add members or archive it. |
| it is archived while REKEYING | It passes through ACTIVE in the same transaction: a closed room needs no new keys. |
| it is reset | All encryption state begins anew. Sender generations of before are retired, for everybody. An MLS group is over, the epoch rises and the next commit makes a new group. A direct room's owner writes first again. |
| nobody was ever in it | It is CREATED, and can be neither archived nor reset. |
| somebody joins | Nothing that was stored before is shown to it: no row of an inbox, of history, notices or traces. |
`,
	},
}

// docs/states.md is what the transition tables, and the texts above, make of it. `make
// generate` writes it.
func TestStatesPage(t *testing.T) {
	t.Parallel()
	name := filepath.Join(root, "docs", "states.md")
	want := statesPage(t)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/states.md is not up to date: make generate")
}

func statesPage(t *testing.T) string {
	t.Helper()
	var page strings.Builder
	page.WriteString(`<!-- Made from the transition tables of package store by internal/doctest; make generate writes it again. -->

# States of invites, devices and rooms

Every move there is. The server takes them from one table in Go and from one in the database, whose trigger refuses all others; a
test compares the two, and another one this page with them. A request for a move that is not listed is refused with ` + "`conflict`" + ` and
changes nothing; asking again for a move that was made is no error where the API's reference says so. [security.md](security.md)
has what follows from that for who is trusted with what.
`)
	for _, m := range machines {
		writeMachine(t, &page, m)
	}
	writeFingerprints(t, &page)
	return page.String()
}

func writeMachine(t *testing.T, page *strings.Builder, m machine) {
	t.Helper()
	moves := movesOf(t, m)
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n```mermaid\nstateDiagram-v2\n", m.title, m.intro)
	for _, start := range m.starts {
		fmt.Fprintf(page, "    [*] --> %s: %s\n", start.name, start.text)
	}
	for _, move := range moves {
		fmt.Fprintf(page, "    %s --> %s: %s\n", move.From, move.To, move.Event)
	}
	for _, state := range m.states {
		if !slices.ContainsFunc(moves, func(move store.Transition) bool { return move.From == state.name }) {
			fmt.Fprintf(page, "    %s --> [*]\n", state.name)
		}
	}
	page.WriteString("```\n\n| state | what is possible |\n|---|---|\n")
	for _, state := range m.states {
		fmt.Fprintf(page, "| %s | %s |\n", state.name, state.text)
	}
	page.WriteString("\n| from | event | to | when |\n|---|---|---|---|\n")
	for _, move := range moves {
		fmt.Fprintf(page, "| %s | `%s` | %s | %s |\n", move.From, move.Event, move.To, m.events[sayingOf(t, m.events, move.Event)].text)
	}
	page.WriteString("\n" + m.notes)
}

// movesOf are a machine's moves in the order in which its states and events are said.
// Each state and each event is said, and nothing else is.
func movesOf(t *testing.T, m machine) []store.Transition {
	t.Helper()
	moves := slices.DeleteFunc(store.Transitions(), func(move store.Transition) bool { return move.Machine != m.name })
	require.NotEmpty(t, moves)
	for _, state := range m.states {
		require.True(t, slices.ContainsFunc(moves, func(move store.Transition) bool {
			return move.From == state.name || move.To == state.name
		}), "no move of %s %s", m.name, state.name)
	}
	for _, event := range m.events {
		require.True(t, slices.ContainsFunc(moves, func(move store.Transition) bool { return move.Event == event.name }),
			"no move of %s %s", m.name, event.name)
	}
	for _, move := range moves {
		sayingOf(t, m.states, move.To)
	}
	slices.SortFunc(moves, func(a, b store.Transition) int {
		if from := sayingOf(t, m.states, a.From) - sayingOf(t, m.states, b.From); from != 0 {
			return from
		}
		return sayingOf(t, m.events, a.Event) - sayingOf(t, m.events, b.Event)
	})
	return moves
}

func sayingOf(t *testing.T, all []said, name string) int {
	t.Helper()
	at := slices.IndexFunc(all, func(one said) bool { return one.name == name })
	require.GreaterOrEqual(t, at, 0, "nothing is said of %s", name)
	return at
}

func writeFingerprints(t *testing.T, page *strings.Builder) {
	t.Helper()
	keys := exampleKeys(t)
	fmt.Fprintf(page, `
## Fingerprints

Before an admin approves a device, the admin and the device's owner compare its fingerprint over a channel of their own: on the
phone, or side by side. The device shows the one of its own keys, and what the server shows of the device has to be the same. The
approval names the fingerprint that was compared, and is refused for another one.

It is made of the device's two public keys:

1. the BLAKE2b-256 of the 24 ASCII characters %[1]s, a zero byte, the identity key (32 bytes) and the agreement key (32
   bytes);
2. the first 100 bits of it, the highest bit of the first byte first;
3. as 20 characters of five bits each, of the alphabet %[2]s (Crockford's base32);
4. in five groups of four, with dashes.

| | example |
|---|---|
| identity key | %[3]s |
| agreement key | %[4]s |
| fingerprint | %[5]s |

What a person types may be in small letters, with spaces or dashes anywhere or nowhere, and with O for 0 and I or L for 1. Anything
else is no fingerprint. `+"`identity/testdata/vectors.json`"+` has more examples, of what devices sign as well.
`, "`peerrelay/fingerprint/v1`", "`0123456789ABCDEFGHJKMNPQRSTVWXYZ`",
		fmt.Sprintf("`%x`", keys.Identity), fmt.Sprintf("`%x`", keys.Agreement), "`"+keys.Fingerprint()+"`")
	require.Len(t, "peerrelay/fingerprint/v1", 24)
	require.Equal(t, 10*time.Minute, store.MaxInviteTTL)
}

// exampleKeys are keys that everybody can make.
func exampleKeys(t *testing.T) *identity.Keys {
	t.Helper()
	seed := sha256.Sum256([]byte("example identity"))
	secret := sha256.Sum256([]byte("example agreement"))
	private := ed25519.NewKeyFromSeed(seed[:])
	agreement, err := ecdh.X25519().NewPrivateKey(secret[:])
	require.NoError(t, err)
	keys := &identity.Keys{Identity: [32]byte(private[32:]), Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	require.NoError(t, keys.Check())
	return keys
}
