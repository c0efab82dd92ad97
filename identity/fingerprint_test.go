package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
)

// Each key changes the fingerprint, and the signature, which follows from them, does not.
func TestFingerprintIsOfBothKeys(t *testing.T) {
	t.Parallel()
	keys, others := goodKeys(t, 1), goodKeys(t, 2)
	fingerprint := keys.Fingerprint()
	require.Regexp(t, `^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){4}$`, fingerprint)
	changed := *keys
	changed.Identity = others.Identity
	require.NotEqual(t, fingerprint, changed.Fingerprint())
	changed = *keys
	changed.Agreement = others.Agreement
	require.NotEqual(t, fingerprint, changed.Fingerprint())
	changed = *keys
	changed.Identity, changed.Agreement = keys.Agreement, keys.Identity
	require.NotEqual(t, fingerprint, changed.Fingerprint())
	changed = *keys
	changed.AgreementSignature = others.AgreementSignature
	require.Equal(t, fingerprint, changed.Fingerprint())
}

// People spell as they like; what is meant is found, and nothing else is accepted.
func TestParseFingerprint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"K0QM-1XPD-9VWE-R4TN-BA1C",
		"k0qm-1xpd-9vwe-r4tn-ba1c",
		"K0QM1XPD9VWER4TNBA1C",
		" K0QM 1XPD 9VWE R4TN BA1C\n",
		"KOQM-IXPD-9VWE-R4TN-BAlC",
		"koqm-lxpd-9vwe-r4tn-baic",
		"K0QM\u20131XPD\u20149VWE\u2212R4TN\u00a0BA1C",
		"K-0-Q-M-1XPD--9VWER4TNBA1C-",
	} {
		parsed, err := identity.ParseFingerprint(text)
		require.NoError(t, err, text)
		require.Equal(t, "K0QM-1XPD-9VWE-R4TN-BA1C", parsed, text)
		require.True(t, identity.EqualFingerprints(text, "K0QM-1XPD-9VWE-R4TN-BA1C"), text)
	}
	for _, text := range []string{
		"",
		"-",
		"K0QM-1XPD-9VWE-R4TN-BA1",
		"K0QM-1XPD-9VWE-R4TN-BA1CC",
		"K0QM-1XPD-9VWE-R4TN-BA1U",
		"K0QM-1XPD-9VWE-R4TN-BA1\u0421", // Cyrillic
		"\u212a0QM-1XPD-9VWE-R4TN-BA1C", // KELVIN SIGN
		"K0QM-1XPD-9VWE-R4TN-BA1\u0661", // Arabic one
		"K0QM-1XPD-9VWE-R4TN-BA1C\x00",  //
		"K0QM-1XPD-9VWE-R4TN-BA1\xff",   // no UTF-8
		"K0QM_1XPD_9VWE_R4TN_BA1C",      //
		"K0QM-1XPD-9VWE-R4TN-BA1C" + strings.Repeat(" ", 1000),
	} {
		_, err := identity.ParseFingerprint(text)
		require.ErrorIs(t, err, identity.ErrFingerprint, text)
		require.False(t, identity.EqualFingerprints(text, text), text)
		require.False(t, identity.EqualFingerprints("K0QM-1XPD-9VWE-R4TN-BA1C", text), text)
	}
	require.False(t, identity.EqualFingerprints("K0QM-1XPD-9VWE-R4TN-BA1C", "K0QM-1XPD-9VWE-R4TN-BA1D"))
}

// FuzzParseFingerprint: what is accepted parses to itself from then on.
func FuzzParseFingerprint(f *testing.F) {
	f.Add("K7QM-2XPD-9VWE-R4TN-BA3C")
	f.Add("koqm lxpd 9vwe r4tn bail")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := identity.ParseFingerprint(text)
		if err != nil {
			require.ErrorIs(t, err, identity.ErrFingerprint)
			return
		}
		require.Len(t, parsed, 24)
		again, err := identity.ParseFingerprint(parsed)
		require.NoError(t, err)
		require.Equal(t, parsed, again)
	})
}
