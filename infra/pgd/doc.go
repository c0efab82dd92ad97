// Package pgd runs a PostgreSQL server of its own from the server programs that are
// installed on the machine (DESIGN section 2): one per data folder, on a unix socket
// only, ended with the process that started it.
//
// # Folder
//
//	<data>/postgres/            the relay's, 0711 as root and else 0700
//	<data>/postgres/relay.lock  held (flock) while a relay runs
//	<data>/postgres/conf/       settings, written again at every start
//	<data>/postgres/data/       PGDATA, owned by the user the server runs as, 0700
//	<data>/postgres/run/        the socket, owned by that user, 0700
//	<data>/postgres/log/        postgres.log and the one before it, size-bounded
//
// # Root
//
// PostgreSQL refuses to run as root. A relay that is root runs it as user postgres,
// else nobody. What root writes lies outside of the folders which that user owns, so
// that user can't lead root to other files by links. The server reaches its folder
// through an inherited directory handle (/proc/self/fd), so it works where the path
// itself is closed to that user, as below /root, and <data> can stay 0700. Where there
// is no /proc, <data> becomes 0711 instead.
//
// # Authentication
//
// Peer: the kernel tells the server which operating system user is at the other end of
// the socket, and only the relay's user and root are mapped to the database roles.
// There is no password to keep, leak or rotate, and a connection costs no SCRAM
// rounds. The socket's folder is closed to all others besides.
//
// # Life
//
// The server gets a fast shutdown from the kernel when the relay's process ends in
// whatever way (Linux), and Start ends one that is still there before it starts its
// own. It has a session of its own, so that a Ctrl-C in the terminal reaches the relay
// alone, which then stops it last.
//
// A server that ends by itself, killed or for want of disk space, is started again under
// the same address, for as long as it takes.
package pgd
