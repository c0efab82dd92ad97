package front

import "github.com/peerrelay/peerrelay/relay"

// Waiting is the number of bytes that wait to be written to the connection.
func Waiting(rc relay.Conn) int {
	c, ok := rc.(*conn)
	if !ok {
		panic("not a connection of the front")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.waiting()
}

// Flushed reports whether the flusher has seen to all that was sent so far.
func Flushed(rc relay.Conn) bool {
	c, ok := rc.(*conn)
	if !ok {
		panic("not a connection of the front")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dirty
}
