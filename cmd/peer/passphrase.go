package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// passphraseCommand changes what opens the device's keys.
type passphraseCommand struct {
	deviceCommand
	NewPassphraseFile string `placeholder:"FILE" help:"File whose first line is the new passphrase; - is standard input. By default it is asked for twice."`
	KeyFile           bool   `help:"No passphrase any more: a key file in the device's folder opens its keys, as an agent needs it that starts by itself."`
}

// Help is kong's long text of the command.
func (*passphraseCommand) Help() string {
	return `Puts the keys of a device under a passphrase, under another one, or under a key file again. Copies of the folder that were made
before open with what opened them then. Where both passphrases come from standard input, the present one is its first line.

Examples:
  peer passphrase --home alice
  peer passphrase --home robot --key-file`
}

// How a device is opened, as it is printed.
const (
	openedByPassphrase = "passphrase"
	openedByKeyFile    = "key_file"
)

// Run changes it.
func (c *passphraseCommand) Run(con console) error {
	if c.KeyFile && c.NewPassphraseFile != "" {
		return usageError{"--key-file does not go with --new-passphrase-file"}
	}
	return c.as(con, func(d *client.Device) error {
		secret, by, err := c.chosen(con)
		if err != nil {
			return err
		}
		if err := d.ChangeSecret(secret); err != nil {
			return err
		}
		return c.show(con, map[string]string{"device_id": d.ID(), "opened_by": by}, func(w io.Writer) {
			if by == openedByKeyFile {
				fmt.Fprintf(w, "The key file in its folder opens device %s from now on.\n", d.ID())
			} else {
				fmt.Fprintf(w, "The new passphrase opens device %s from now on.\n", d.ID())
			}
		})
	})
}

func (c *passphraseCommand) chosen(con console) (secret keystore.Secret, by string, err error) {
	switch {
	case c.KeyFile:
		return keystore.Secret{}, openedByKeyFile, nil
	case c.NewPassphraseFile != "":
		secret, err = passphraseIn(con, c.NewPassphraseFile)
	default:
		if secret, err = askNewPassphrase(con); errors.Is(err, errNoTerminal) {
			err = usageError{err.Error() + ": --new-passphrase-file FILE names a file with it"}
		}
	}
	return secret, openedByPassphrase, err
}

// relocateCommand says that the relay moved.
type relocateCommand struct {
	deviceCommand
	URL string `arg:"" help:"The relay's new address."`
}

// Help is kong's long text of the command.
func (*relocateCommand) Help() string {
	return `For a relay that is the same one at another address. The device signs in there with the next command; at another relay it is
unknown, and enrolls in another folder.

Example:
  peer move --home alice https://relay.example.org`
}

// Run remembers it.
func (c *relocateCommand) Run(con console) error {
	return c.as(con, func(d *client.Device) error {
		switch err := d.SetRelayURL(c.URL); {
		case errors.Is(err, client.ErrRelayURL):
			return usageError{err.Error()}
		case err != nil:
			return err
		}
		warnOfClear(con, c.URL)
		return c.show(con, map[string]string{"device_id": d.ID(), "relay": c.URL}, func(w io.Writer) {
			fmt.Fprintf(w, "Device %s asks the relay at %s from now on.\n", d.ID(), c.URL)
			if con.shared != nil {
				fmt.Fprint(w, "The peer command that has this device open goes on at the former address: end it, and start it again.\n")
			}
			c.next(w, con, "status")
		})
	})
}
