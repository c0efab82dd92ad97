// Package archtest is the layout of the module as tests: who may import whom, which
// library appears where, which folders there are. The tables in rules_test.go are
// the rules; each row says why.
package archtest
