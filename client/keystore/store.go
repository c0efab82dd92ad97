package keystore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// largePart is the part of a large file that Updates may have added when it is closed.
const largePart = 16

// Store is an open key store. Its methods may be called from several goroutines at once;
// Updates happen one after another.
type Store struct {
	path  string
	disk  disk
	lock  *os.File
	slack int64
	since [16]byte // see Tx.Opening

	writing sync.Mutex // held by whoever changes something; guards the following fields
	header  *header    // of the present file
	key     [keySize]byte
	log     log
	base    int64 // size of the file when it was made
	broken  error // why there can be no more Updates

	mu    sync.RWMutex // guards the following field; who holds writing may read without it
	state *state
}

// settings are what tests change.
type settings struct {
	disk   disk
	cost   cost
	limits limits
}

func standard() settings {
	return settings{disk: systemDisk{}, cost: standardCost, limits: standardLimits}
}

// Create makes an empty store of mode 0600 and opens it. It returns ErrExists where there is
// a file already, ErrInUse while another makes one there, and ErrSecret for the zero Secret.
// The folder has to exist.
func Create(path string, secret Secret) (*Store, error) { return create(path, secret, standard()) }

func create(path string, secret Secret, with settings) (*Store, error) {
	s, err := prepare(path, with)
	if err != nil {
		return nil, err
	}
	if err := s.create(secret, with.cost); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

func prepare(path string, with settings) (*Store, error) {
	// A link to a store stays one when the file is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	held, err := lock(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, disk: with.disk, lock: held, slack: with.limits.slack, state: newState(with.limits)}
	_, _ = rand.Read(s.since[:]) // never fails
	return s, nil
}

func (s *Store) create(secret Secret, c cost) error {
	switch f, err := s.disk.Open(s.path); {
	case err == nil:
		return errors.Join(ErrExists, f.Close())
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return s.replaceUnder(secret, c)
}

// Open opens a store. It returns fs.ErrNotExist where there is none, ErrInUse, ErrPermissions,
// ErrDamaged, ErrVersion, ErrCost and ErrWrongSecret. It changes the file only where the last
// Update had not been finished, and takes as long as its secret's derivation (a passphrase: a
// fraction of a second) and reading the file.
func Open(path string, secret Secret) (*Store, error) { return open(path, secret, standard()) }

func open(path string, secret Secret, with settings) (*Store, error) {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, err
	}
	s, err := prepare(path, with)
	if err != nil {
		return nil, err
	}
	if err := s.load(secret); err != nil {
		if s.log.file != nil {
			err = errors.Join(err, s.log.file.Close())
		}
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

func (s *Store) load(secret Secret) error {
	if err := s.openFile(secret); err != nil {
		return err
	}
	size, err := s.log.file.Size()
	if err != nil {
		return err
	}
	if size > maxFile {
		return fmt.Errorf("%d bytes: %w", size, ErrDamaged)
	}
	switch err := s.replay(size); {
	case errors.Is(err, errTorn):
		if err := errors.Join(s.log.file.Truncate(s.log.end), s.log.file.Sync()); err != nil {
			return fmt.Errorf("cut off an unfinished Update: %w", err)
		}
	case err != nil:
		return err
	}
	_ = s.disk.Remove(s.next()) // of somebody who was interrupted; it would be replaced anyway
	return nil
}

// openFile reads the header and derives the keys.
func (s *Store) openFile(secret Secret) (err error) {
	if s.log.file, err = s.disk.Open(s.path); err != nil {
		return err
	}
	size, err := s.log.file.Size()
	if err != nil {
		return err
	}
	if size < sector {
		return fmt.Errorf("%d bytes: %w", size, ErrDamaged)
	}
	first := make([]byte, sector)
	if _, err := s.log.file.ReadAt(first, 0); err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	if s.header, err = parseHeader(first); err != nil {
		return err
	}
	if s.key, err = secret.key(s.header); err != nil {
		return err
	}
	fileKey, err := s.header.open(s.key)
	if err != nil {
		return err
	}
	s.log.keys, err = s.header.keys(fileKey)
	s.log.end = sector
	return err
}

// replay reads the records. Those of the snapshot were there before the file had its
// name, so none of them can be unfinished.
func (s *Store) replay(size int64) error {
	want := bodySnapshot
	for {
		body, err := s.log.read(size)
		switch {
		case want != bodyUpdate && (errors.Is(err, errTorn) || err == nil && body == nil):
			return fmt.Errorf("the beginning is not whole: %w", ErrDamaged)
		case err != nil:
			return err
		case body == nil:
			return nil
		}
		before := s.state.epoch
		if err := s.state.apply(body); err != nil {
			return err
		}
		switch {
		case want == bodySnapshot && body[0] == bodySnapshot:
		case want == bodySnapshot && body[0] == bodyLast:
			want = bodyUpdate
			s.base = s.log.end
		case want == bodyUpdate && body[0] == bodyUpdate && s.state.epoch == before+1:
		default:
			return fmt.Errorf("body of kind %d: %w", body[0], ErrDamaged)
		}
	}
}

// Close writes the file anew where there were Updates since, so that nothing deleted stays in
// it (a large one only when they were many), and lets go of it. It returns an error if the file could not be closed; what Update
// promised is kept all the same. Closing twice is ErrClosed.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if errors.Is(s.broken, ErrClosed) {
		return ErrClosed
	}
	if s.broken == nil && s.log.end > s.base+s.leftAtClose() {
		_ = s.replace(s.header, s.key) // as good as it gets: a full disk is no reason not to close
	}
	s.broken = ErrClosed
	s.mu.Lock()
	s.state, s.key = nil, [keySize]byte{}
	s.mu.Unlock()
	return errors.Join(s.log.file.Close(), s.lock.Close())
}

// leftAtClose is how much a closed file may have grown. A program that sends one message would else
// write all that a device in many rooms has.
func (s *Store) leftAtClose() int64 {
	if s.base <= s.slack {
		return 0
	}
	return s.base / largePart
}

// Epoch is the number of Updates that changed something since the store was created. It never
// goes down in one store; a lower one than was seen before is of an old copy.
func (s *Store) Epoch() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state == nil {
		return 0
	}
	return s.state.epoch
}

// View calls a function with what is saved, which does not change meanwhile: an Update that
// is done waits with becoming visible until View returns. It returns what the function returns,
// or ErrClosed.
func (s *Store) View(look func(tx *Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state == nil {
		return ErrClosed
	}
	tx := &Tx{state: s.state, opening: s.since}
	defer func() { tx.state = nil }()
	return look(tx)
}

// Update calls a function that changes the store, and saves all its changes or, when it
// returns an error or panics, none; the error is returned as it is. Others are ErrFull,
// ErrSize, ErrClosed and those of the disk: after them nothing was changed, and the function may be
// tried again, save for ErrUncertain. An Update that changes nothing costs nothing. In the function
// neither Update nor View may be called: they would wait for each other.
func (s *Store) Update(change func(tx *Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.broken != nil {
		return s.broken
	}
	tx := &Tx{state: s.state, opening: s.since, writable: true, changed: map[ref][]byte{}, forgotten: map[string]bool{}, seen: map[string][]seenID{}}
	defer func() { tx.state = nil }()
	if err := change(tx); err != nil {
		return err
	}
	body, err := tx.body()
	if err != nil || body == nil {
		return err
	}
	return s.save(body)
}

func (s *Store) save(body []byte) error {
	if s.log.end > s.base+s.base+s.slack {
		// A disk without room for a second file may have some for this record.
		if err := s.replace(s.header, s.key); err != nil && s.broken != nil {
			return s.broken
		}
	}
	if err := s.log.append(body); err != nil {
		if errors.Is(err, ErrUncertain) {
			s.broken = err
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.apply(body); err != nil {
		panic("keystore: " + err.Error()) // it was made a moment ago, by this program
	}
	return nil
}

// Compact writes what is live to a new file, under a new file key, that takes the old one's
// place: what was deleted is not in it any more. After an error that is not ErrUncertain the
// old one is used further.
func (s *Store) Compact() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.replace(s.header, s.key)
}

// ChangeSecret makes another secret the one that opens the store, which is written anew for it.
// Copies of the file that were made before still open with the former one.
func (s *Store) ChangeSecret(secret Secret) error { return s.changeSecret(secret, standardCost) }

func (s *Store) changeSecret(secret Secret, c cost) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.replaceUnder(secret, c)
}

// replaceUnder writes the store anew under a secret.
func (s *Store) replaceUnder(secret Secret, c cost) error {
	h, err := newHeader(secret, c)
	if err != nil {
		return err
	}
	key, err := secret.key(h)
	if err != nil {
		return err
	}
	return s.replace(h, key)
}

// next is the name of a file that has not taken the store's place yet.
func (s *Store) next() string { return s.path + ".new" }

// replace writes a new file and gives it the store's name. The caller holds writing. It
// leaves the present file in use, or sets broken.
func (s *Store) replace(h *header, key [keySize]byte) error {
	fresh := *h
	made, err := s.write(&fresh, key)
	if err != nil {
		return errors.Join(fmt.Errorf("write the key store anew: %w", err), s.disk.Remove(s.next()))
	}
	// Some systems rename no open files.
	if s.log.file != nil {
		_ = s.log.file.Close() // everything in it was flushed
	}
	err = s.disk.Rename(s.next(), s.path)
	if err == nil {
		made.file, err = s.disk.Open(s.path)
	}
	if err != nil {
		s.broken = fmt.Errorf("%w: %w", ErrUncertain, err)
		return s.broken
	}
	s.log, s.base, s.header, s.key = made, made.end, &fresh, key
	return nil
}

// write makes a file that is whole and flushed.
func (s *Store) write(h *header, key [keySize]byte) (l log, err error) {
	l.keys, err = h.keys(h.seal(key))
	if err != nil {
		return l, err
	}
	if l.file, err = s.disk.Create(s.next()); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, l.file.Close()) }()
	if _, err := l.file.WriteAt(h.marshal(), 0); err != nil {
		return l, err
	}
	l.end = sector
	for body := range s.state.snapshot() {
		record, err := l.write(body)
		if err != nil {
			return l, err
		}
		l.advance(record)
	}
	return l, l.file.Sync()
}
