// Package long says how much of their work those tests do that could go on for as long as
// one likes. Each of them proves what it is about in every run; `make test-long` looks
// further.
package long

import "os"

// Times is the first number, and the second where the long tests were asked for.
func Times(usual, asked int) int {
	if os.Getenv("PEERRELAY_LONG_TESTS") != "" {
		return asked
	}
	return usual
}
