package client_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		runChild(what)
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}
