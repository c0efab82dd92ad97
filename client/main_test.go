package client_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }
