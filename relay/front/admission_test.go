package front

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountedAddr(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7":                 "192.0.2.7",
		"::ffff:192.0.2.7":          "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":      "2001:db8:1:2::",
		"2001:db8:1:2:ffff::1":      "2001:db8:1:2::",
		"fe80::1%eth0":              "fe80::",
		"2001:db8:1:3:ffff:ffff::1": "2001:db8:1:3::",
	} {
		require.Equal(t, netip.MustParseAddr(want), CountedAddr(netip.MustParseAddr(addr)), addr)
	}
}

func TestAdmissionForgetsAddresses(t *testing.T) {
	t.Parallel()
	a := admission{maxConns: 3, maxPreAuth: 2, preAuth: make(map[netip.Addr]int)}
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	require.Empty(t, a.admit(one))
	require.Empty(t, a.admit(one))
	require.Equal(t, refusedAddress, a.admit(one))
	a.authenticated(one)
	require.Empty(t, a.admit(two))
	require.Equal(t, refusedNode, a.admit(two))
	a.release(one, true)
	a.release(one, false)
	a.release(two, false)
	require.Empty(t, a.preAuth)
	pre, authenticated := a.counts()
	require.Zero(t, pre)
	require.Zero(t, authenticated)
}
