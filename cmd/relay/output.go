package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/internal/secretfile"
	"github.com/peerrelay/peerrelay/store"
)

// show prints a command's answer: one JSON object, or text for people.
func show(globals *Globals, con console, answer any, text func(w io.Writer)) error {
	var out bytes.Buffer
	if globals.JSON {
		data, err := json.Marshal(answer, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		out.Write(data)
		out.WriteByte('\n')
	} else {
		text(&out)
	}
	if _, err := con.out.Write(out.Bytes()); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return nil
}

// next prints what to type now: each command with the flags that lead to this relay.
func next(w io.Writer, globals *Globals, con console, commands ...string) {
	fmt.Fprint(w, "\nNext:\n")
	for _, command := range commands {
		fmt.Fprintf(w, "  %s %s%s\n", con.program, command, globals.target())
	}
}

// target are the flags that find the same relay and tenant again; none for the defaults.
func (g *Globals) target() string {
	tenant := ""
	if g.Tenant != os.Getenv("RELAY_TENANT") {
		tenant = " --tenant " + quote(orText(g.Tenant, store.DefaultTenantName))
	}
	return g.relay() + tenant
}

// relay are the flags that find the same relay again.
func (g *Globals) relay() string {
	switch usual, err := filepath.Abs("relay-data"); {
	case g.APIURL != "" && os.Getenv("RELAY_API_URL") == "":
		return " --api-url " + quote(g.APIURL)
	case g.APIURL == "" && os.Getenv("RELAY_DATA") == "" && (err != nil || usual != g.Data):
		return " --data " + quote(g.Data)
	}
	return ""
}

// quote makes one word of text for a shell.
func quote(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\n\"'\\$`&|;<>()*?[]{}~#!") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// tellCredential prints the credential, or where it is.
func tellCredential(w io.Writer, file *secretfile.File, credential string, expires time.Time) {
	if name := file.Name(); name != "" {
		fmt.Fprintf(w, "Its credential is in %s, valid until %s.\n", name, moment(expires))
		return
	}
	fmt.Fprintf(w, "Its credential, shown only now and valid until %s:\n\n  %s\n", moment(expires), credential)
}

// listenCommand is the command that uses the credential. relayURL is empty where it is not
// known.
func listenCommand(con console, file *secretfile.File, relayURL string) string {
	peer := "peer"
	if folder, ours := strings.CutSuffix(con.program, "relay"); ours {
		peer = folder + "peer"
	}
	peer += " raw listen"
	if usual := orText(os.Getenv("PEER_URL"), defaultRelayURL); relayURL != "" && relayURL != usual {
		peer += " --url " + quote(relayURL)
	}
	if name := file.Name(); name != "" {
		return peer + " --credential-file " + quote(name)
	}
	return peer + " --credential-file FILE   # a file that holds the credential"
}
