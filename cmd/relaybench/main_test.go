//go:build linux

package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary stand in for the program where that starts itself.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programFolder)
		os.Exit(code)
	}))
}
