//go:build !linux

package testkit

import (
	"errors"
	"testing"
)

// errLinuxOnly refuses what needs a file system of a process's own.
var errLinuxOnly = errors.New("a small file system for a test is made on Linux only")

// StartBrokerOnDisk fails the test: there is no such broker here.
func StartBrokerOnDisk(t testing.TB, _ int) *BrokerProcess {
	t.Helper()
	t.Fatal(errLinuxOnly)
	return nil
}

func mount(string, int) error { return errLinuxOnly }
