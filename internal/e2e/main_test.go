// Package e2e_test runs a whole relay, on real NATS and PostgreSQL, and looks at it
// from outside only.
package e2e_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	testkit.RunChild()
	pgtest.Main(m, func() error {
		http.DefaultClient.CloseIdleConnections()
		return goleak.Find() // what every relay of these tests started has ended
	})
}
