package main

// rawCommands are envelopes as they are on the wire: made by others, or with random text in
// place of a ciphertext. Nothing is encrypted or decrypted here.
type rawCommands struct {
	Send     rawSendCommand     `cmd:"" help:"Send envelopes from a file or standard input, or test envelopes."`
	Listen   rawListenCommand   `cmd:"" help:"Print every frame that arrives, and go on after a lost connection."`
	Template rawTemplateCommand `cmd:"" help:"Print one envelope of this participant, to edit and send."`
}
