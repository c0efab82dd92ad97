package encryption_test

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

var (
	start       = time.UnixMilli(1_790_000_000_000)
	errScripted = errors.New("the answer was lost")
)

// world is one room of scheme sender_keys on a relay that obeys the rules which concern keys,
// with devices whose stores are real.
type world struct {
	t       testing.TB
	id      string
	version uint64
	now     time.Time
	members []*device // who is in the room now
	all     []*device
	sent    []envelope        // everything that was accepted, in order
	retired uint64            // the room's version at the last removal
	seen    map[string]uint64 // seq of the last envelope, by sender
}

// envelope is a row of an inbox; raw is nil for a room event.
type envelope struct {
	id    string
	from  *device
	to    []*device
	kind  wire.Kind
	room  bool // addressed to the whole room
	raw   []byte
	event *wire.RoomEvent
}

// device is a participant with its store, and what a client does around an Encryption.
type device struct {
	w       *world
	name    string
	member  encryption.Member
	self    encryption.Self
	role    string
	path    string
	secret  keystore.Secret
	store   *keystore.Store
	cipher  encryption.Encryption
	relay   *scriptedRelay
	room    *encryption.Room // as it knows it
	inbox   []envelope
	shown   map[string]int      // by text
	kept    map[string]envelope // what was ever pending, by id; which of them are is in the store
	lost    []error
	refused []wire.Code
}

// scriptedRelay allocates generations to one participant.
type scriptedRelay struct {
	w     *world
	mu    sync.Mutex
	gens  map[[16]byte]uint64
	keys  map[[16]byte]string
	since map[uint64]uint64 // gen: the room's version then
	last  uint64
	calls int
	after func() error // what becomes of an answer
	while func()       // what happens while the newest generation is asked for

	busy, busiest atomic.Int32 // callers at once
}

func (r *scriptedRelay) AllocateGeneration(_ context.Context, kid [16]byte, key []byte) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if len(key) == 0 || len(key) > 1024 {
		return 0, errors.New("malformed")
	}
	if known, ok := r.keys[kid]; ok && known != string(key) {
		return 0, errors.New("conflict")
	}
	if _, ok := r.gens[kid]; !ok {
		r.last++
		r.gens[kid], r.keys[kid], r.since[r.last] = r.last, string(key), r.w.version
	}
	if r.after != nil {
		if err := r.after(); err != nil {
			return 0, err
		}
	}
	return r.gens[kid], nil
}

func (r *scriptedRelay) NewestGeneration(context.Context) (uint64, error) {
	r.busiest.Store(max(r.busiest.Load(), r.busy.Add(1)))
	defer r.busy.Add(-1)
	for range 1000 {
		runtime.Gosched() // others are let in, if they may
	}
	if while := r.while; while != nil {
		r.while = nil
		while()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, nil
}

func (*scriptedRelay) PrekeyBundle(context.Context, string) (ratchet.Bundle, error) {
	return ratchet.Bundle{}, errors.New("there are no bundles in these rooms")
}

func (*scriptedRelay) ResetRoom(context.Context) (uint64, error) {
	return 0, errors.New("nothing is reset in these rooms")
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newWorld(t testing.TB, names ...string) *world {
	t.Helper()
	w := &world{t: t, id: uuid(), now: start, seen: make(map[string]uint64)}
	for _, name := range names {
		w.join(name, "agent")
	}
	return w
}

// join adds a device to the room, and tells everybody.
func (w *world) join(name, role string) *device {
	w.t.Helper()
	d := newDevice(w, name, role)
	w.version++
	w.members, w.all = append(w.members, d), append(w.all, d)
	w.tell(wire.RoomJoined, d)
	d.refresh()
	return d
}

// leave removes one from the room, and tells everybody else.
func (w *world) leave(d *device) {
	w.t.Helper()
	w.version++
	w.retired = w.version
	w.members = slices.DeleteFunc(slices.Clone(w.members), func(m *device) bool { return m == d })
	w.tell(wire.MemberRemoved, d)
	w.tell(wire.RekeyRequired, nil)
}

func (w *world) tell(what wire.RoomEventType, about *device) {
	event := &wire.RoomEvent{EventID: uuid(), Event: what, RoomID: w.id, Version: int64(w.version)}
	if about != nil {
		event.ParticipantID, event.DeviceID = about.id(), about.member.Device
	}
	for _, d := range w.members {
		d.inbox = append(d.inbox, envelope{id: event.EventID, event: event})
	}
}

func newDevice(w *world, name, role string) *device {
	t := w.t
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := identity.Keys{Identity: [32]byte(public), Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	participant := uuid()
	checked, err := signed.NewMember(participant, &keys)
	require.NoError(t, err)
	folder := t.TempDir()
	secret, err := keystore.NewKeyFile(filepath.Join(folder, "key"))
	require.NoError(t, err)
	d := &device{
		w: w, name: name, role: role, path: filepath.Join(folder, "store"), secret: secret,
		shown: make(map[string]int), kept: make(map[string]envelope),
		member: encryption.Member{Member: checked, Device: uuid(), Role: role, Keys: keys},
		self:   encryption.Self{Participant: participant, Identity: private, Agreement: agreement, Keys: keys},
		relay: &scriptedRelay{
			w: w, gens: make(map[[16]byte]uint64), keys: make(map[[16]byte]string), since: make(map[uint64]uint64),
		},
	}
	d.store, err = keystore.Create(d.path, secret)
	require.NoError(t, err)
	d.cipher, err = encryption.For(encryption.SenderKeys)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.store.Close() })
	return d
}

func (d *device) id() string { return d.self.Participant }

// refresh looks up who is in the room.
func (d *device) refresh() {
	d.room = &encryption.Room{
		ID: d.w.id, Kind: "group", Scheme: encryption.SenderKeys, Version: d.w.version, Self: d.self, Role: d.role,
	}
	for _, m := range d.w.members {
		if m != d {
			d.room.Members = append(d.room.Members, m.member)
		}
	}
}

// restart closes the store and opens it again.
func (d *device) restart() {
	d.w.t.Helper()
	require.NoError(d.w.t, d.store.Close())
	d.reopen()
}

func (d *device) reopen() {
	d.w.t.Helper()
	var err error
	d.store, err = keystore.Open(d.path, d.secret)
	require.NoError(d.w.t, err)
}

func (d *device) prepare() error {
	return d.cipher.Prepare(d.w.t.Context(), d.relay, d.store, d.room, d.w.now)
}

func (d *device) draft(text, to string) *encryption.Draft {
	return &encryption.Draft{ID: uuid(), Kind: wire.KindMessage, To: to, Payload: []byte(text), TS: uint64(d.w.now.UnixMilli())}
}

// seal seals as a client does: it prepares where it has to, and saves what was sealed.
func (d *device) seal(draft *encryption.Draft) []encryption.Sealed {
	d.w.t.Helper()
	for range 2 {
		sealed, err := d.trySeal(draft)
		if err == nil {
			return sealed
		}
		require.ErrorIs(d.w.t, err, encryption.ErrPrepare)
		require.NoError(d.w.t, d.prepare())
	}
	require.Fail(d.w.t, "it has to prepare again and again")
	return nil
}

func (d *device) trySeal(draft *encryption.Draft) (sealed []encryption.Sealed, err error) {
	err = d.store.Update(func(tx *keystore.Tx) error {
		sealed, err = d.cipher.Seal(tx, d.room, draft)
		return err
	})
	return sealed, err
}

// say sends a text to the room, and once more where its generation is over.
func (d *device) say(text string) {
	d.w.t.Helper()
	for range 2 {
		again := false
		for _, sealed := range d.seal(d.draft(text, d.w.id)) {
			again = d.post(sealed) || again
		}
		if !again {
			return
		}
		d.refresh()
	}
	require.Fail(d.w.t, "refused twice")
}

// post gives an envelope to the relay, and tells what it refused.
func (d *device) post(sealed encryption.Sealed) (again bool) {
	d.w.t.Helper()
	code := d.w.accept(d, sealed)
	if code == "" {
		return false
	}
	d.refused = append(d.refused, code)
	require.NoError(d.w.t, d.store.Update(func(tx *keystore.Tx) (err error) {
		again, err = d.cipher.Refused(tx, d.room, &sealed, code)
		return err
	}))
	return again
}

func (d *device) postAll(sealed []encryption.Sealed) {
	d.w.t.Helper()
	for i := range sealed {
		d.post(sealed[i])
	}
}

// accept is the relay: it checks the envelope and writes it into inboxes.
func (w *world) accept(from *device, sealed encryption.Sealed) wire.Code {
	w.t.Helper()
	var frame wire.ClientFrame
	require.NoError(w.t, wire.ParseClient(sealed.Raw, &frame))
	e := &frame.Envelope
	require.Nil(w.t, e.Check())
	require.Equal(w.t, from.id(), string(e.From))
	require.Equal(w.t, sealed.ID, string(e.ID))
	require.Equal(w.t, sealed.To, string(e.To))
	require.Equal(w.t, sealed.Kind, e.Kind)
	require.Equal(w.t, sealed.Gen, e.Gen)
	require.Equal(w.t, sealed.Seq, e.Seq)
	require.Greater(w.t, e.Seq, w.seen[from.id()], "seq rises over all generations")
	w.seen[from.id()] = e.Seq
	require.NotEqual(w.t, "viewer", from.role, "viewers send nothing: the relay closes 1008")
	row := envelope{id: sealed.ID, from: from, kind: sealed.Kind, room: sealed.To == w.id, raw: sealed.Raw}
	if !slices.Contains(w.members, from) {
		return wire.NotAMember
	}
	if row.room {
		since, allocated := from.relay.since[e.Gen]
		switch {
		case !allocated && w.retired > 0:
			return wire.MLSUnknown
		case since < w.retired:
			return wire.MLSRetired
		}
	}
	for _, m := range w.members {
		if m != from && (row.room || m.id() == sealed.To) {
			row.to = append(row.to, m)
		}
	}
	if len(row.to) == 0 {
		return wire.NotAMember
	}
	if row.room && from.room.Version == w.version {
		require.Len(w.t, row.to, sealed.Recipients)
	}
	w.sent = append(w.sent, row)
	for _, m := range row.to {
		m.inbox = append(m.inbox, row)
	}
	return ""
}

func pendingKey(id string) string { return "pending/" + id }

// receive takes a row as a client does: once, and kept where its key is missing.
func (d *device) receive(row envelope) {
	d.w.t.Helper()
	if row.event != nil {
		d.refresh()
		require.NoError(d.w.t, d.store.Update(func(tx *keystore.Tx) error { return d.cipher.Event(tx, d.room, row.event) }))
		return
	}
	opened, err := d.take(row)
	if err != nil {
		d.lost = append(d.lost, err)
		return
	}
	if opened.Payload != nil {
		d.shown[string(opened.Payload)]++
	}
	d.postAll(opened.Send)
	if opened.Retry {
		d.retry()
	}
}

// take opens a row in an Update.
func (d *device) take(row envelope) (opened *encryption.Opened, err error) {
	none := &encryption.Opened{}
	var failed error
	err = d.store.Update(func(tx *keystore.Tx) error {
		opened = none
		if tx.Seen(d.w.id, row.id) || tx.Get(keystore.Messages, pendingKey(row.id)) != nil {
			return nil
		}
		opened, failed = d.cipher.Open(tx, d.room, &row.from.member, row.raw, d.w.now)
		if errors.Is(failed, encryption.ErrPending) {
			failed = nil
			d.kept[row.id] = row
			return tx.Put(keystore.Messages, pendingKey(row.id), []byte(row.id))
		}
		if failed != nil && !errors.Is(failed, encryption.ErrLost) {
			return failed
		}
		_, err := tx.MarkSeen(d.w.id, row.id)
		return err
	})
	return opened, errors.Join(err, failed)
}

// waiting are the envelopes whose keys are missing.
func (d *device) waiting() (rows []envelope) {
	d.w.t.Helper()
	require.NoError(d.w.t, d.store.View(func(tx *keystore.Tx) error {
		for key := range tx.All(keystore.Messages, pendingKey("")) {
			rows = append(rows, d.kept[strings.TrimPrefix(key, pendingKey(""))])
		}
		return nil
	}))
	return rows
}

// retry gives what waits to Open again.
func (d *device) retry() {
	d.w.t.Helper()
	for _, row := range d.waiting() {
		require.NoError(d.w.t, d.store.Update(func(tx *keystore.Tx) error {
			return tx.Delete(keystore.Messages, pendingKey(row.id))
		}))
		d.receive(row)
	}
}

// receiveKeys takes all keys that were sent to d.
func (d *device) receiveKeys() {
	d.w.t.Helper()
	for _, row := range d.w.rows(wire.KindSenderKey) {
		if row.to[0] == d {
			d.receive(row)
		}
	}
}

// tick does what is due.
func (d *device) tick() *encryption.Due {
	d.w.t.Helper()
	var due *encryption.Due
	require.NoError(d.w.t, d.store.Update(func(tx *keystore.Tx) (err error) {
		due, err = d.cipher.Due(tx, d.room, d.w.now)
		return err
	}))
	d.postAll(due.Send)
	if due.Retry {
		d.retry()
	}
	return due
}

// settle delivers all inboxes in order, until they are empty.
func (w *world) settle() {
	w.t.Helper()
	for busy := true; busy; {
		busy = false
		for _, d := range w.members {
			for len(d.inbox) > 0 {
				busy = true
				row := d.inbox[0]
				d.inbox = d.inbox[1:]
				d.receive(row)
			}
		}
	}
}

// dump is everything that a store has.
func (d *device) dump() map[string]string {
	d.w.t.Helper()
	all := make(map[string]string)
	require.NoError(d.w.t, d.store.View(func(tx *keystore.Tx) error {
		for b := keystore.Device; b <= keystore.Messages; b++ {
			for key, value := range tx.All(b, "") {
				all[fmt.Sprint(b, " ", key)] = string(value)
			}
		}
		return nil
	}))
	return all
}

// rows are the accepted envelopes of a kind.
func (w *world) rows(kind wire.Kind) (rows []envelope) {
	for _, row := range w.sent {
		if row.kind == kind {
			rows = append(rows, row)
		}
	}
	return rows
}

// newest is the last accepted message to the room.
func (w *world) newest() envelope {
	w.t.Helper()
	rows := w.rows(wire.KindMessage)
	require.NotEmpty(w.t, rows)
	return rows[len(rows)-1]
}
