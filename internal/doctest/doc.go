// Package doctest holds the documentation to the truth, as tests: every relative link
// leads somewhere, every command and flag that a reader may type exists, the session of
// README.md and the recipes of docs/operations.md are typed against a running relay,
// and the tables of settings and metrics are compared with the program.
//
// A fenced block is run when an HTML comment stands in the line before it:
//
//	<!-- run: what the output must match, a regular expression -->
//	<!-- run until: a regular expression -->
//
// The first runs to its end with exit code 0; the second belongs to a command that goes
// on (it watches something) and is stopped once its output matches.
package doctest
