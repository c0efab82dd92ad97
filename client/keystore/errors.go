package keystore

import "errors"

// Errors of this package; none of them says anything of what is stored.
var (
	// ErrWrongSecret reports a secret that does not open the store, or one of the other kind.
	ErrWrongSecret = errors.New("that is not the secret of this key store")
	// ErrDamaged reports a file that is no key store, or one that was changed by something
	// else than this package. Nothing of it is used.
	ErrDamaged = errors.New("the key store is damaged")
	// ErrVersion reports a store that a newer version of this program has written.
	ErrVersion = errors.New("the key store is of a newer version of this program")
	// ErrCost reports a store whose passphrase is stretched too little to be trusted, or so
	// much that opening it would take the machine's memory.
	ErrCost = errors.New("the key store asks for a key derivation that is not accepted")
	// ErrInUse reports a store that another process, or another Store, has open.
	ErrInUse = errors.New("the key store is in use: two clients of one device")
	// ErrExists reports that there is a file already where a store was to be made.
	ErrExists = errors.New("there is a key store already")
	// ErrPermissions reports a file that others on this machine can read or write.
	ErrPermissions = errors.New("the file is open to others on this machine")
	// ErrSecret reports a passphrase or a key file that cannot be one.
	ErrSecret = errors.New("not a secret for a key store")
	// ErrFull reports a change that would exceed a bound of the store. Deleting is always possible.
	ErrFull = errors.New("the key store is full")
	// ErrSize reports a key, a value or an Update that is too large, or an empty key.
	ErrSize = errors.New("too large for the key store, or an empty key")
	// ErrReadOnly reports a change in a View.
	ErrReadOnly = errors.New("nothing can be changed here")
	// ErrGeneration reports a generation that is not newer than those the store knows.
	ErrGeneration = errors.New("not a fresh generation")
	// ErrImplausible reports a number of the relay's that is far above all that the store knows of,
	// as only a relay names it that lies. Believed, it would be above all that follows.
	ErrImplausible = errors.New("the relay names a number that is far above all that this device knows of")
	// ErrUncertain reports an Update of which it is not known whether it was saved, as the disk
	// failed. The store takes no more of them; it can be closed and opened again.
	ErrUncertain = errors.New("the disk failed: it is not known what was saved")
	// ErrClosed reports a store that was closed.
	ErrClosed = errors.New("the key store is closed")
)
