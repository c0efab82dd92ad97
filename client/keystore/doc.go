// Package keystore keeps what a device must not lose and nobody else may read: its keys, the
// states of its sessions, its cursors, the messages it has received and those it is
// sending. One file for each device, sealed with XChaCha20-Poly1305 under a key that comes
// from a passphrase (Argon2id, RFC 9106) or, for agents that start unattended, from a key
// file.
//
//	secret, err := keystore.Passphrase([]byte("…"))        // or KeyFile(path), NewKeyFile(path)
//	store, err := keystore.Create("alice/keys", secret)    // Open from then on
//	err = store.Update(func(tx *keystore.Tx) error {       // all of it or nothing
//		fresh, err := tx.MarkSeen(room, id)
//		if err != nil || !fresh {
//			return err
//		}
//		return errors.Join(
//			tx.Put(keystore.Messages, id, text),
//			tx.Put(keystore.Sessions, room, state),
//			tx.Put(keystore.Cursors, room, cursor))
//	})
//	err = store.Close()
//
// # What an Update promises
//
// When Update returns nil, everything it changed is on disk. When the process or the machine
// stops before that, either all of it is there at the next Open or nothing. So a received
// message, the state of the session that opened it, its id and the cursor are saved in one
// Update, and the message is shown after it; and what is about to be sent is put into the
// Outbox with the state that sealed it before the first byte leaves. A disk that is full
// refuses the Update and keeps what was there. Reading happens in memory.
//
// # The file
//
// A log: a header of 512 bytes, then one record for each Update. Numbers are big-endian.
//
//	header  magic "PEERKEYS", version(1) = 1, kind(1) 1 passphrase 2 key file, threads(1), 0(1),
//	        passes(4), memory in KiB(4), salt(16), nonce(24), sealed file key(32+16), 0 to byte 480,
//	        SHA-256 of the 480 bytes
//	record  nonce(24), sealed length of the body's text(4+16), sealed body(length+16)
//	body    kind(1), epoch(8), operations, 0 to the end, so that a record has a multiple of 512 bytes
//
// The key that opens the header is Argon2id(passphrase, salt), or HKDF-SHA256(key file, salt,
// "peerrelay/keystore-file/v1" 0); it seals a random file key with the label
// "peerrelay/keystore-header/v1" 0 and the 36 bytes of the header before the nonce as
// additional data. Of the file key come, by HKDF-SHA256 with the header's hash as salt, the key of lengths
// ("peerrelay/keystore-length/v1" 0) and that of bodies ("peerrelay/keystore-body/v1" 0). The additional
// data of a length is the header's hash and the record's number(8), that of a body the same and the tag
// of the body before it (16; zeros in the first). So records cannot be changed, left out, repeated,
// reordered, or taken from another file or from another future of the same one. Nonces are random:
// an old copy that is written to again never uses one twice.
//
// The header, the size of the file and that of each record to 512 bytes is all that shows.
//
// Only the last record can be unfinished: each is on disk before the next one is written. It
// is one when the file ends inside it, or when a whole sector of it was never written and reads
// as zeros, and no record follows; then it is cut off. Anything else is ErrDamaged.
//
// When the log has grown by its size and a MiB, and when the store is closed, what is live
// is written to a new file with a new file key, which then takes the old one's name. Until
// then keys that were deleted are still in the file, sealed: whoever has the secret too can
// read them. Compact makes it happen at once. A file above a MiB is written anew at Close only when
// it has grown by a sixteenth: a device in 100 rooms of 50 has 20 MiB, most of it ids that
// were seen, and its programs may send one message each.
//
// # Why not a database
//
// Measured on the machine this was written on, one Update of a message of 1 KiB, a state of 300
// bytes, a cursor and an id among 20,000: go.etcd.io/bbolt v1.5.0 with values of the size of
// sealed ones 3.0 ms, two flushes and 40 KB written; this log 2.9 ms, one flush and 2 KB (2.2 ms
// for the bare append and flush). What decided was not time: sealed values in a B+tree
// can be put back one by one from an older copy of the same file, and its pages can be changed
// so that a key is not found any more, neither of which a seal on each value shows; damaged
// pages make it panic, and a mapped file that becomes shorter ends the process. A
// chain of sealed records has none of that, and a device has little enough to keep in memory.
//
// # Old copies
//
// No file can tell that it is not the newest one. Epoch, the number of Updates ever made,
// rises by one with each and may be kept elsewhere for comparison; and the relay knows which
// generations it has allocated. NoticeRestored tells the store of one; if this copy does
// not know it, then every generation that the store has is unusable from then on, in all rooms,
// until SetGeneration brings a fresh one, and Restores rises, by which states of other
// kinds (ratchets) know that they are too old to send with.
//
// # Limits
//
// One process at a time (ErrInUse), by a lock on the empty file beside the store whose name
// ends in ".lock"; two copies on two machines are not noticed by it. Go cannot reliably wipe memory. Sizes are bounded
// as the constants and Bucket say; ErrFull is returned for what would exceed them.
package keystore
