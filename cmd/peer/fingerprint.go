package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/client"
)

// fingerprintCommand shows what people compare.
type fingerprintCommand struct {
	deviceCommand
	Device      string `arg:"" optional:"" help:"The id of another device, which this one has met or approved."`
	Fingerprint string `arg:"" optional:"" help:"As that device itself shows it: remembered as compared where it is the same."`
}

// Help is kong's long text of the command.
func (*fingerprintCommand) Help() string {
	return `Prints the fingerprint of this device's own keys; or that of another device as this one remembers it, and whether somebody
compared it. The relay is not asked.

Examples:
  peer fingerprint --home alice
  peer fingerprint --home alice DEVICE_ID
  peer fingerprint --home alice DEVICE_ID K7QM-2XPD-9VWE-R4TN-BA3C`
}

// Run shows it.
func (c *fingerprintCommand) Run(con console) error {
	return c.as(con, func(d *client.Device) error {
		if c.Device == "" {
			return c.show(con, map[string]string{"device_id": d.ID(), "fingerprint": d.Fingerprint()}, func(w io.Writer) {
				fmt.Fprintln(w, d.Fingerprint())
			})
		}
		known, err := c.peer(d)
		if errors.Is(err, client.ErrUnknownPeer) {
			return fmt.Errorf("%w: it is when this device has been in a room with it, or has approved it", err)
		}
		if errors.Is(err, client.ErrFingerprint) && errors.Is(err, client.ErrKeysChanged) { // nothing changed: the two differ
			known, err := d.Peer(c.Device)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w of the keys that this device remembers, which is %s", client.ErrFingerprint, known.Fingerprint)
		}
		if err != nil {
			return err
		}
		return c.show(con, known, func(w io.Writer) {
			compared := "not compared: these are the first keys that the relay showed of it"
			if known.Compared {
				compared = "compared"
			}
			fmt.Fprintf(w, "%s  %s\n", known.Fingerprint, compared)
		})
	})
}

func (c *fingerprintCommand) peer(d *client.Device) (client.Peer, error) {
	if c.Fingerprint != "" {
		return d.ComparePeer(c.Device, c.Fingerprint)
	}
	return d.Peer(c.Device)
}
