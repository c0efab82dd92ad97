package senderkey_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

// vectors is testdata/vectors.json, made by testdata/vectors.py.
type vectors struct {
	Generations []struct {
		Sender   string `json:"sender"`
		Gen      uint64 `json:"gen"`
		KID      string `json:"kid"`
		ChainKey string `json:"chain_key"`
		Messages []struct {
			Iteration  uint32 `json:"iteration"`
			ChainKey   string `json:"chain_key"`
			MessageKey string `json:"message_key"`
			Nonce      string `json:"nonce"`
			Plaintext  string `json:"plaintext"`
			AAD        string `json:"aad"`
			CT         string `json:"ct"`
		} `json:"messages"`
		Distributions []struct {
			Iteration uint32 `json:"iteration"`
			Payload   string `json:"payload"`
		} `json:"distributions"`
		RequestID   string `json:"request_id"`
		Request     string `json:"key_request"`
		Unavailable string `json:"key_unavailable"`
	} `json:"generations"`
	Deliveries []string `json:"deliveries"`
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	require.NotEmpty(t, v.Generations)
	require.NotEmpty(t, v.Deliveries)
	return v
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	return raw
}

// What another implementation sealed is sealed here, byte for byte, and opened.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, g := range readVectors(t).Generations {
		kid, err := senderkey.ParseKID(g.KID)
		require.NoError(t, err)
		require.Equal(t, g.KID, kid.String())
		s, err := senderkey.NewSender(bytes.NewReader(unhex(t, g.ChainKey)), g.Gen, kid, roster(1, "carol"))
		require.NoError(t, err)
		d, err := s.Distribute("carol")
		require.NoError(t, err)
		require.Equal(t, g.Distributions[0].Payload, string(d.Encode()))
		first, err := senderkey.ParseDistribution([]byte(g.Distributions[0].Payload))
		require.NoError(t, err)

		for _, v := range g.Messages {
			nonce, aad := [24]byte(unhex(t, v.Nonce)), unhex(t, v.AAD)
			if v.Iteration <= 1000 {
				for s.Iteration() < v.Iteration {
					_, _, err := s.Seal(nonce, nil, nil)
					require.NoError(t, err)
				}
				iteration, ct, err := s.Seal(nonce, unhex(t, v.Plaintext), aad)
				require.NoError(t, err)
				require.Equal(t, v.Iteration, iteration)
				require.Equal(t, v.CT, hex.EncodeToString(ct))
			}
			// By the first key, and by the nearest one.
			for _, given := range g.Distributions {
				d, err := senderkey.ParseDistribution([]byte(given.Payload))
				require.NoError(t, err)
				require.Equal(t, given.Payload, string(d.Encode()))
				require.Equal(t, given.Iteration, d.Iteration)
				var r senderkey.Receivers
				accept(t, &r, g.Sender, d)
				accept(t, &r, g.Sender, first) // of the same chain, wherever that is
				opened, err := r.Open(&senderkey.Message{
					From: g.Sender, KID: kid, Gen: g.Gen, Nonce: nonce, CT: unhex(t, v.CT), AAD: aad, Verified: true,
				})
				if gap := int(v.Iteration) - int(given.Iteration); gap < -senderkey.MaxSkip || gap > senderkey.MaxSkip {
					require.Error(t, err)
					continue
				}
				require.NoError(t, err, "%d by %d", v.Iteration, given.Iteration)
				require.Equal(t, v.Plaintext, hex.EncodeToString(opened))
			}
		}

		request := senderkey.KeyRequest{ID: senderkey.RequestID(unhex(t, g.RequestID)), KID: kid, Gen: g.Gen}
		require.Equal(t, g.Request, string(request.Encode()))
		parsed, err := senderkey.ParseKeyRequest([]byte(g.Request))
		require.NoError(t, err)
		require.Equal(t, request, parsed)
		gone := senderkey.KeyUnavailable{KID: kid, Gen: g.Gen}
		require.Equal(t, g.Unavailable, string(gone.Encode()))
		parsedGone, err := senderkey.ParseKeyUnavailable([]byte(g.Unavailable))
		require.NoError(t, err)
		require.Equal(t, gone, parsedGone)
	}
}

// Deliveries in any order end as another model of the window says.
func TestDeliveriesOfTheModel(t *testing.T) {
	t.Parallel()
	for _, line := range readVectors(t).Deliveries {
		s := newSender(t, 7, 1, "bob")
		sent := make(map[uint32]sent)
		for range 3 {
			m := send(t, s, "alice")
			sent[m.iteration] = m
		}
		s.Settle()
		var r senderkey.Receivers
		accept(t, &r, "alice", distribute(t, s, "bob"))
		for step := range strings.FieldsSeq(line) {
			number, verdict, _ := strings.Cut(step, ":")
			n, err := strconv.ParseUint(number, 10, 32)
			require.NoError(t, err)
			iteration := uint32(n)
			for s.Iteration() <= iteration {
				m := send(t, s, "alice")
				sent[m.iteration] = m
			}
			m := sent[iteration]
			plaintext, err := r.Open(&m.Message)
			switch verdict {
			case "opened":
				require.NoError(t, err, step)
				require.Equal(t, m.plaintext, plaintext)
			case "duplicate":
				require.ErrorIs(t, err, senderkey.ErrDuplicate, step)
			case "far":
				require.ErrorIs(t, err, senderkey.ErrTooFar, step)
				require.ErrorIs(t, err, senderkey.ErrStaleSenderKey, step)
			case "before":
				require.ErrorIs(t, err, senderkey.ErrBeforeKey, step)
			default:
				require.Fail(t, step)
			}
			reload(t, &r)
		}
	}
}
