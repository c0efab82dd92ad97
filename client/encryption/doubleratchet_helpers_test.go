package encryption_test

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	guuid "github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// direct is a direct room with its relay.
type direct struct {
	id      string
	version uint64
	now     time.Time
	all     []*party // everybody, also who has left

	resets     int // done
	asked      int // asked for, also in vain
	bundles    int // taken
	resetErr   error
	answerLost bool // to resets
	events     []wire.RoomEvent
}

// party is one device in a direct room.
type party struct {
	at        *direct
	store     *keystore.Store
	path      string
	secret    keystore.Secret
	self      encryption.Self
	device    string
	role      string
	left      bool
	looked    uint64                  // the room's version when it was looked at last; 0: it always is
	known     *encryption.Member      // what others have checked
	published encryption.PrekeyUpload // what the relay has of it
	lastID    uint32
	sealed    int
}

// newDirect is a room of an owner and an agent, who has published prekeys.
func newDirect(t testing.TB) (d *direct, owner, agent *party) {
	t.Helper()
	d = &direct{id: guuid.NewString(), now: time.UnixMilli(1_790_000_000_000)}
	owner, agent = d.join(t, "owner"), d.join(t, "agent")
	agent.publish(t)
	return d, owner, agent
}

func (d *direct) join(t testing.TB, role string) *party {
	t.Helper()
	p := &party{at: d, role: role, device: guuid.NewString(), path: filepath.Join(t.TempDir(), "keys"), self: newSelf(t)}
	var err error
	p.secret, err = keystore.NewKeyFile(p.path + ".secret")
	require.NoError(t, err)
	p.store, err = keystore.Create(p.path, p.secret)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.store.Close() })
	d.all = append(d.all, p)
	d.version++
	return p
}

func newSelf(t testing.TB) encryption.Self {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	s := encryption.Self{Participant: guuid.NewString(), Identity: private, Agreement: agreement}
	s.Keys.Identity = [32]byte(public)
	s.Keys.Agreement = [32]byte(agreement.PublicKey().Bytes())
	s.Keys.AgreementSignature = identity.SignAgreement(private, s.Keys.Agreement)
	return s
}

func (p *party) member(t testing.TB) *encryption.Member {
	t.Helper()
	if p.known == nil || p.known.Keys != p.self.Keys {
		m, err := signed.NewMember(p.self.Participant, &p.self.Keys)
		require.NoError(t, err)
		p.known = &encryption.Member{Member: m, Device: p.device, Role: p.role, Keys: p.self.Keys}
	}
	return p.known
}

// room is the room as the party knows it.
func (p *party) room(t testing.TB) *encryption.Room {
	t.Helper()
	room := &encryption.Room{ID: p.at.id, Kind: "direct", Scheme: encryption.DoubleRatchet, Version: p.at.version, Self: p.self, Role: p.role}
	if p.looked != 0 {
		room.Version = p.looked
	}
	for _, other := range p.at.all {
		if other != p && !other.left {
			room.Members = append(room.Members, *other.member(t))
		}
	}
	return room
}

func cipher(t testing.TB) encryption.Encryption {
	t.Helper()
	c, err := encryption.For(encryption.DoubleRatchet)
	require.NoError(t, err)
	return c
}

// prepare is Prepare with the relay of the room.
func (p *party) prepare(t testing.TB) error {
	t.Helper()
	return cipher(t).Prepare(t.Context(), asks{p}, p.store, p.room(t), p.at.now)
}

// seal seals a text with a fresh id, in an Update of its own.
func (p *party) seal(t testing.TB, text string) (sealed encryption.Sealed, err error) {
	t.Helper()
	p.sealed++
	err = p.store.Update(func(tx *keystore.Tx) error {
		all, err := cipher(t).Seal(tx, p.room(t), &encryption.Draft{
			ID: fmt.Sprintf("%s-%d", p.role, p.sealed), Kind: wire.KindMessage, To: p.at.id, Payload: []byte(text), TS: uint64(p.at.now.UnixMilli()),
		})
		if err == nil {
			require.Len(t, all, 1)
			sealed = all[0]
		}
		return err
	})
	return sealed, err
}

// says seals a text that has to be sealable, after Prepare where that is needed.
func (p *party) says(t testing.TB, text string) []byte {
	t.Helper()
	sealed, err := p.seal(t, text)
	if errors.Is(err, encryption.ErrPrepare) {
		require.NoError(t, p.prepare(t))
		sealed, err = p.seal(t, text)
	}
	require.NoError(t, err)
	return sealed.Raw
}

// open opens what another party sent, as a caller does: what is lost is saved as such.
func (p *party) open(t testing.TB, from *party, raw []byte) (text string, err error) {
	t.Helper()
	updateErr := p.store.Update(func(tx *keystore.Tx) error {
		var opened *encryption.Opened
		opened, err = cipher(t).Open(tx, p.room(t), from.member(t), raw, p.at.now)
		if err == nil {
			text = string(opened.Payload)
		}
		return nil
	})
	require.NoError(t, updateErr)
	return text, err
}

func (p *party) reads(t testing.TB, from *party, raw []byte, text string) {
	t.Helper()
	got, err := p.open(t, from, raw)
	require.NoError(t, err)
	require.Equal(t, text, got)
}

// loses demands that an authentic message is lost, for this reason.
func (p *party) loses(t testing.TB, from *party, raw []byte, why error) {
	t.Helper()
	_, err := p.open(t, from, raw)
	require.ErrorIs(t, err, encryption.ErrLost)
	if why != nil {
		require.ErrorIs(t, err, why)
	}
}

// hears processes a room event.
func (p *party) hears(t testing.TB, event *wire.RoomEvent) {
	t.Helper()
	require.NoError(t, p.store.Update(func(tx *keystore.Tx) error { return cipher(t).Event(tx, p.room(t), event) }))
}

func (p *party) due(t testing.TB) (due *encryption.Due) {
	t.Helper()
	require.NoError(t, p.store.Update(func(tx *keystore.Tx) (err error) {
		due, err = cipher(t).Due(tx, p.room(t), p.at.now)
		return err
	}))
	return due
}

// stored is everything of some buckets.
func (p *party) stored(t testing.TB, buckets ...keystore.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, p.store.View(func(tx *keystore.Tx) error {
		for _, b := range buckets {
			for key, value := range tx.All(b, "") {
				all[fmt.Sprint(b, " ", key)] = string(value)
			}
		}
		return nil
	}))
	return all
}

// everything is what is stored of keys.
func (p *party) everything(t testing.TB) map[string]string {
	t.Helper()
	return p.stored(t, keystore.Sessions, keystore.Prekeys, keystore.Rooms)
}

// conversation is the state of the sessions, with the prekeys, and without what is counted.
func (p *party) conversation(t testing.TB) map[string]string {
	t.Helper()
	all := p.stored(t, keystore.Sessions, keystore.Prekeys)
	repairs := 0
	maps.DeleteFunc(all, func(key, _ string) bool {
		repair := key == fmt.Sprint(keystore.Sessions, " ratchet-repair/", p.at.id)
		if repair {
			repairs++
		}
		return repair
	})
	require.LessOrEqual(t, repairs, 1)
	return all
}

// sessions is how many of them are stored with their keys.
func (p *party) sessions(t testing.TB) int {
	t.Helper()
	var s ratchet.Sessions
	stored := p.stored(t, keystore.Sessions)[fmt.Sprint(keystore.Sessions, " ratchet/", p.at.id)]
	require.NoError(t, s.UnmarshalBinary([]byte(stored[145:])))
	return s.Len()
}

// stock is what the relay tells of its prekeys.
func (p *party) stock() encryption.PrekeyStock {
	s := encryption.PrekeyStock{LastID: p.lastID, OneTime: len(p.published.OneTime)}
	if p.published.Signed != nil {
		s.SignedID = p.published.Signed.ID
	}
	return s
}

// makes is MakePrekeys.
func (p *party) makes(t testing.TB) (made *encryption.PrekeyUpload) {
	t.Helper()
	require.NoError(t, p.store.Update(func(tx *keystore.Tx) (err error) {
		made, err = encryption.MakePrekeys(tx, p.self.Identity, p.stock(), p.at.now)
		return err
	}))
	return made
}

// uploads is what the relay does with an upload: what it has already, it leaves out.
func (p *party) uploads(made *encryption.PrekeyUpload) {
	if made.Signed != nil {
		p.published.Signed = made.Signed
	}
	for _, o := range made.OneTime {
		if o.ID > p.lastID {
			p.published.OneTime = append(p.published.OneTime, o)
			p.lastID = o.ID
		}
	}
}

func (p *party) acknowledge(t testing.TB) {
	t.Helper()
	require.NoError(t, p.store.Update(func(tx *keystore.Tx) error { return encryption.PrekeysPublished(tx, p.at.now) }))
}

// publish publishes prekeys until nothing is missing.
func (p *party) publish(t testing.TB) {
	t.Helper()
	for {
		made := p.makes(t)
		if made == nil {
			return
		}
		p.uploads(made)
		p.acknowledge(t)
	}
}

// reopen closes the store and opens it again.
func (p *party) reopen(t testing.TB) {
	t.Helper()
	require.NoError(t, p.store.Close())
	var err error
	p.store, err = keystore.Open(p.path, p.secret)
	require.NoError(t, err)
}

// backUp returns a copy of the key store, which restore puts back.
func (p *party) backUp(t testing.TB) []byte {
	t.Helper()
	p.reopen(t)
	text, err := os.ReadFile(p.path)
	require.NoError(t, err)
	return text
}

func (p *party) restore(t testing.TB, text []byte) {
	t.Helper()
	require.NoError(t, p.store.Close())
	require.NoError(t, os.WriteFile(p.path, text, 0o600))
	var err error
	p.store, err = keystore.Open(p.path, p.secret)
	require.NoError(t, err)
}

// asks is the relay, as one party asks it.
type asks struct{ *party }

func (a asks) AllocateGeneration(context.Context, [16]byte, []byte) (uint64, error) {
	return 0, errors.New("not asked for in a direct room")
}

func (a asks) NewestGeneration(context.Context) (uint64, error) { return 0, nil }

func (a asks) PrekeyBundle(_ context.Context, device string) (ratchet.Bundle, error) {
	at := slices.IndexFunc(a.at.all, func(p *party) bool { return p.device == device })
	p := a.at.all[at]
	if p.published.Signed == nil {
		return ratchet.Bundle{}, &wire.Error{Code: wire.NotFound}
	}
	a.at.bundles++
	b := ratchet.Bundle{Keys: p.self.Keys, Signed: *p.published.Signed}
	if len(p.published.OneTime) > 0 {
		b.OneTime = &p.published.OneTime[0]
		p.published.OneTime = p.published.OneTime[1:]
	}
	return b, nil
}

func (a asks) ResetRoom(context.Context) (uint64, error) {
	a.at.asked++
	if a.at.resetErr != nil {
		return 0, a.at.resetErr
	}
	a.at.resets++
	version := a.at.tell(wire.DeviceLinked, a.party).Version
	if a.at.answerLost {
		return 0, errors.New("the answer was lost")
	}
	return uint64(version), nil
}

// tell writes an event that changed the room.
func (d *direct) tell(event wire.RoomEventType, about *party) *wire.RoomEvent {
	d.version++
	d.events = append(d.events, wire.RoomEvent{
		EventID: guuid.NewString(), Event: event, RoomID: d.id, Version: int64(d.version), ParticipantID: about.self.Participant, DeviceID: about.device,
	})
	return &d.events[len(d.events)-1]
}

// leave takes a party out of the room.
func (d *direct) leave(p *party) *wire.RoomEvent {
	p.left = true
	return d.tell(wire.MemberRemoved, p)
}

// signs is an envelope as a party's device would sign it, from one that was read.
func (p *party) signs(t testing.TB, raw []byte, change func(m *signed.Message)) []byte {
	t.Helper()
	m, err := signed.Read(raw, &signed.Expected{SessionID: p.at.id, From: p.member(t).Member, Self: p.self.Participant})
	require.NoError(t, err)
	change(m)
	forged, err := m.Sign(p.self.Identity, m.Nonce, m.CT)
	require.NoError(t, err)
	return forged
}

// header is the ratchet header of an envelope.
func (p *party) header(t testing.TB, raw []byte) ratchet.Header {
	t.Helper()
	m, err := signed.Read(raw, &signed.Expected{SessionID: p.at.id, From: p.member(t).Member, Self: p.self.Participant})
	require.NoError(t, err)
	h, err := ratchet.ParseHeader(m.Hdr)
	require.NoError(t, err)
	return h
}
