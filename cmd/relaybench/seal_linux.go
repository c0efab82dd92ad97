package main

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

type sealCommand struct{ settings }

// Help is kong's long text of the command.
func (*sealCommand) Help() string {
	return `Seals and opens messages of --size bytes with sender keys, on one core and without a relay. The figure is the slower one of the
two. The floor is the cipher alone. What signing and reading whole envelopes costs is shown beside it. Example: relaybench seal`
}

// Run measures.
func (c *sealCommand) Run(_ context.Context, con console) error {
	if c.Runs < 1 || c.Time <= 0 || c.Size < 1 || c.Size > signed.MaxPlaintext {
		return usageError{fmt.Sprintf("--runs and --time are positive, --size is 1 to %d", signed.MaxPlaintext)}
	}
	runtime.GOMAXPROCS(1)
	b := &bench{settings: c.settings, con: con, machine: thisMachine()}
	return b.repeat("seal", "sender-key seals or opens/s per core", &bar{value: 20_000}, c.once)
}

func (c *sealCommand) once() (sample, error) {
	text, aad := make([]byte, c.Size), make([]byte, 400) // about an envelope's
	key, slice := [seal.KeySize]byte{1}, c.Time/5
	floor, err := perSecond(slice, func() error { seal.Seal(key, text, aad); return nil })
	if err != nil {
		return sample{}, err
	}
	w := &sealing{text: text, aad: aad}
	seals, opens, err := w.rates(slice)
	if err != nil {
		return sample{}, err
	}
	signs, reads, err := envelopeRates(slice, text)
	return newSample(min(seals, opens), floor, map[string]float64{
		"seals_per_second": seals, "opens_per_second": opens, "envelopes_signed_per_second": signs, "envelopes_read_per_second": reads,
	}), err
}

// perSecond is how often something can be done.
func perSecond(during time.Duration, do func() error) (float64, error) {
	count, began := 0, time.Now()
	for time.Since(began) < during {
		for range 64 {
			if err := do(); err != nil {
				return 0, err
			}
		}
		count += 64
	}
	return float64(count) / time.Since(began).Seconds(), nil
}

// sealing is a sender and a receiver, whose generation is changed when it has been used up.
type sealing struct {
	text, aad []byte
	gen       uint64
	sender    *senderkey.Sender
	receivers *senderkey.Receivers
	from, to  string
}

func (s *sealing) rotate() error {
	s.gen++
	kid, err := senderkey.NewKID(rand.Reader)
	if err != nil {
		return err
	}
	s.from, s.to = uuid.NewString(), uuid.NewString()
	s.receivers = &senderkey.Receivers{}
	s.sender, err = senderkey.NewSender(rand.Reader, s.gen, kid, senderkey.Roster{Version: 1, Members: []string{s.to}})
	if err != nil {
		return err
	}
	key, err := s.sender.Distribute(s.to)
	if err == nil {
		_, err = s.receivers.Accept(s.from, key)
	}
	return err
}

// rates seals batches and opens them, and takes the time of each.
func (s *sealing) rates(during time.Duration) (seals, opens float64, err error) {
	const batch = 512
	var sealing, opening time.Duration
	count := 0
	for sealing < during || opening < during {
		if count%(8*batch) == 0 {
			if err := s.rotate(); err != nil {
				return 0, 0, err
			}
		}
		messages := make([]senderkey.Message, batch)
		began := time.Now()
		for i := range messages {
			nonce := seal.NewNonce()
			_, ct, err := s.sender.Seal(nonce, s.text, s.aad)
			if err != nil {
				return 0, 0, err
			}
			messages[i] = senderkey.Message{From: s.from, KID: s.sender.KID(), Gen: s.gen, Nonce: nonce, CT: ct, AAD: s.aad, Verified: true}
		}
		sealing += time.Since(began)
		began = time.Now()
		for i := range messages {
			if _, err := s.receivers.Open(&messages[i]); err != nil {
				return 0, 0, err
			}
		}
		opening += time.Since(began)
		count += batch
	}
	return float64(count) / sealing.Seconds(), float64(count) / opening.Seconds(), nil
}

// envelopeRates is how many whole envelopes can be sealed and signed, and read and opened.
func envelopeRates(during time.Duration, text []byte) (signs, reads float64, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return 0, 0, err
	}
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return 0, 0, err
	}
	var keys identity.Keys
	copy(keys.Identity[:], public)
	copy(keys.Agreement[:], agreement.PublicKey().Bytes())
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	session, from, to := uuid.NewString(), uuid.NewString(), uuid.NewString()
	member, err := signed.NewMember(from, &keys)
	if err != nil {
		return 0, 0, err
	}
	key := [seal.KeySize]byte{1}
	envelope := signed.Envelope{ID: "bench", SessionID: session, From: from, To: session, Kind: wire.KindMessage, Gen: 1, Seq: 1, TS: 1}
	var raw []byte
	signs, err = perSecond(during, func() (err error) {
		raw, err = envelope.Seal(private, key, text)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	expected := &signed.Expected{SessionID: session, From: member, Self: to}
	reads, err = perSecond(during, func() error {
		read, err := signed.Read(raw, expected)
		if err != nil {
			return err
		}
		_, err = read.Open(key)
		return err
	})
	return signs, reads, err
}
