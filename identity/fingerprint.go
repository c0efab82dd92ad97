package identity

import (
	"encoding/base32"
	"errors"
	"strings"
	"unicode"

	"golang.org/x/crypto/blake2b"
)

// A fingerprint shows 100 bits of the hash: whoever wants other keys with the same one
// has to try 2^100 of them, as the other device's keys are fixed before.
const (
	fingerprintGroups = 5
	fingerprintGroup  = 4 // characters of five bits
	fingerprintChars  = fingerprintGroups * fingerprintGroup

	maxFingerprintText = 256 // bytes of what people type
)

// ErrFingerprint says that a text is no fingerprint.
var ErrFingerprint = errors.New("a fingerprint is 20 letters and digits in five groups, as in K7QM-2XPD-9VWE-R4TN-BA3C")

// crockford is base32 for people: without I, L, O and U.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// Fingerprint is what people compare: five groups of four characters, as in
// K7QM-2XPD-9VWE-R4TN-BA3C. They are the first 100 bits of the BLAKE2b-256 of the label
// and both keys, the highest bit of the first byte first. The signature is no part of
// it, as it follows from the keys.
func (k *Keys) Fingerprint() string {
	sum := blake2b.Sum256(message(labelFingerprint, k.Identity[:], k.Agreement[:]))
	return grouped(crockford.EncodeToString(sum[:])[:fingerprintChars])
}

// ParseFingerprint returns the form that Fingerprint has, of what a person typed or
// pasted: letters of either case, any spaces and dashes, O for 0 and I or L for 1. It
// returns ErrFingerprint for what is none.
func ParseFingerprint(text string) (string, error) {
	if len(text) > maxFingerprintText {
		return "", ErrFingerprint
	}
	chars := make([]byte, 0, fingerprintChars)
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.Is(unicode.Dash, r) {
			continue
		}
		char, ok := fingerprintChar(r)
		if !ok || len(chars) == fingerprintChars {
			return "", ErrFingerprint
		}
		chars = append(chars, char)
	}
	if len(chars) != fingerprintChars {
		return "", ErrFingerprint
	}
	return grouped(string(chars)), nil
}

// EqualFingerprints reports whether both texts are the same fingerprint, however they
// are spelled. What is no fingerprint equals nothing, itself neither.
func EqualFingerprints(a, b string) bool {
	first, err := ParseFingerprint(a)
	if err != nil {
		return false
	}
	second, err := ParseFingerprint(b)
	return err == nil && first == second
}

// fingerprintChar is the character that is meant.
func fingerprintChar(r rune) (byte, bool) {
	switch {
	case r >= '0' && r <= '9':
		return byte(r), true
	case r >= 'a' && r <= 'z':
		r -= 'a' - 'A'
	case r < 'A' || r > 'Z':
		return 0, false
	}
	switch r {
	case 'O':
		return '0', true
	case 'I', 'L':
		return '1', true
	case 'U':
		return 0, false
	}
	return byte(r), true
}

func grouped(chars string) string {
	groups := make([]string, 0, fingerprintGroups)
	for i := 0; i < len(chars); i += fingerprintGroup {
		groups = append(groups, chars[i:i+fingerprintGroup])
	}
	return strings.Join(groups, "-")
}
