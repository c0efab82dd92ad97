package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/internal/secretfile"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
)

// TestMain is the relay command itself where the test binary is called relay, as the
// scripts call it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "relay" {
		main()
		return
	}
	pgtest.Main(m)
}

// The scripts in testdata run the real program against a running relay, whose data
// folder is $DATA and whose public address is $URL.
func TestScripts(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	server := testkit.Start(t, testkit.Data(data))
	programs := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(programs, "relay")))
	device := server.Enroll(t, "agent", false)
	active, member := server.ActiveDevice(t, "agent", false), server.ActiveDevice(t, "agent", false)
	emptyDatabase, othersDatabase := pgtest.EmptyURL(t), pgtest.As(t, pgtest.EmptyURL(t), schema.ServiceRole)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("DATA", server.Data())
			env.Setenv("URL", "http://"+server.Addr())
			env.Setenv("ADDRESS", server.Addr())
			env.Setenv("TOKEN_FILE", filepath.Join(server.Data(), api.OperatorTokenFile))
			env.Setenv("PENDING_DEVICE", device.ID)
			env.Setenv("PENDING_FINGERPRINT", device.Keys.Fingerprint())
			env.Setenv("ACTIVE_DEVICE", active.ID)
			env.Setenv("MEMBER_DEVICE", member.ID)
			env.Setenv("EMPTY_DATABASE", emptyDatabase)
			env.Setenv("OTHERS_DATABASE", othersDatabase)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":  exitWith,
			"field": readField,
			"keys":  requireKeys,
			"mode":  requireMode,
		},
	})
}

// exitWith is: code N program args... It runs the program and demands that exit code.
func exitWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// object reads standard output, which must hold one JSON object and a line end.
func object(ts *testscript.TestScript) map[string]any {
	var values map[string]any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &values); err != nil {
		ts.Fatalf("not one JSON object: %v", err)
	}
	return values
}

// readField is: field member VARIABLE. It takes a text member of the last output.
func readField(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: field member VARIABLE")
	}
	text, ok := object(ts)[args[0]].(string)
	if !ok {
		ts.Fatalf("member %s is not a text", args[0])
	}
	ts.Setenv(args[1], text)
}

// requireKeys is: keys name... The last output is one JSON object with these members.
func requireKeys(ts *testscript.TestScript, neg bool, args []string) {
	values := object(ts)
	for _, name := range args {
		if _, ok := values[name]; ok == neg {
			ts.Fatalf("member %s: present %t", name, ok)
		}
	}
}

// requireMode is: mode 0600 file.
func requireMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode 0600 file")
	}
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if info.Mode().Perm() != os.FileMode(want) {
		ts.Fatalf("mode %04o", info.Mode().Perm())
	}
}

// A server elsewhere than usual, or one that speaks TLS, is named in the command that
// uses a credential.
func TestTheListenCommandLeadsToThisRelay(t *testing.T) {
	t.Setenv("PEER_URL", "")
	for _, c := range []struct {
		status api.Status
		want   string
	}{
		{api.Status{Listen: "127.0.0.1:8787"}, "bin/peer raw listen --credential-file FILE "},
		{api.Status{Listen: "[::]:8787"}, "bin/peer raw listen --credential-file FILE "},
		{api.Status{Listen: "127.0.0.1:8787", TLS: true}, "bin/peer raw listen --url wss://127.0.0.1:8787/v1/relay --credential-file FILE "},
		{api.Status{Listen: "0.0.0.0:9000"}, "bin/peer raw listen --url ws://127.0.0.1:9000/v1/relay --credential-file FILE "},
		{api.Status{Listen: "[2001:db8::1]:9000"}, "bin/peer raw listen --url 'ws://[2001:db8::1]:9000/v1/relay' --credential-file FILE "},
		{api.Status{}, "bin/peer raw listen --credential-file FILE "},
	} {
		got := listenCommand(console{program: "bin/relay"}, new(secretfile.File), listenURL(c.status))
		require.True(t, strings.HasPrefix(got, c.want), "%s: %s", c.status.Listen, got)
	}
	base, err := url.Parse("https://relay.example/here")
	require.NoError(t, err)
	require.Equal(t, "wss://relay.example/here/v1/relay", (&client{base: base, token: "x"}).relayURL(t.Context()))

	t.Setenv("PEER_URL", "ws://127.0.0.1:9000/v1/relay")
	got := listenCommand(console{program: "relay"}, new(secretfile.File), "ws://127.0.0.1:9000/v1/relay")
	require.NotContains(t, got, "--url")
	got = listenCommand(console{program: "relay"}, new(secretfile.File), defaultRelayURL)
	require.Contains(t, got, "--url "+defaultRelayURL)
}

func TestTheListenCommandSpeaksTLSWhereTheRelayDoes(t *testing.T) {
	t.Setenv("PEER_URL", "")
	cert, key := certificate(t)
	server := testkit.Start(t, func(c *node.Config) { c.TLSCert, c.TLSKey = cert, key })
	room := server.Room(t, testkit.RoomOptions{})
	var out writer
	args := []string{"participant", "add", "--data", server.Data(), "--room", room, "--role", "agent"}
	require.Zero(t, run(t.Context(), args, console{&out, &out, "relay"}), "%s", out)
	require.Contains(t, string(out), "peer raw listen --url wss://"+server.Addr()+"/v1/relay --credential-file FILE")
}

// certificate borrows that of net/http/httptest.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	pair := borrowed.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	folder := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", key)
}

// Wherever serve stands in the command line, signals are its own matter: caught twice, a
// second one would not end the process.
func TestSignalsOfTheServerAreItsOwn(t *testing.T) {
	for line, caught := range map[string]bool{
		"serve": false, "--data elsewhere serve": false, "serve --data elsewhere": false,
		"room create": true, "--data serve room create": true,
	} {
		var cli CLI
		parser, err := newParser(&cli, console{}, func(int) {})
		require.NoError(t, err)
		parsed, err := parser.Parse(strings.Fields(line))
		require.NoError(t, err)
		ctx, stop := interruptible(t.Context(), parsed)
		require.Equal(t, caught, ctx != t.Context(), line)
		stop()
	}
}

// With an external NATS doctor looks at it, and the nats commands lead to it.
func TestAnExternalNATSIsShown(t *testing.T) {
	broker := testkit.StartBroker(t)
	address := strings.TrimPrefix(broker.URL(), "nats://")
	server := testkit.Start(t, testkit.NATSURL("nats://relay:s3cret@"+address))
	member := server.Join(t, server.Room(t, testkit.RoomOptions{}), "agent")
	var out writer
	con := console{&out, &out, "relay"}
	require.Zero(t, run(t.Context(), []string{"inbox", "--data", server.Data(), "--participant", member.ID}, con), "%s", out)
	require.Equal(t, 3, strings.Count(string(out), "nats --server nats://"+address+" s"), "%s", out)
	require.NotContains(t, string(out), "s3cret")

	out = nil
	run(t.Context(), []string{"doctor", "--data", server.Data()}, con)
	require.Regexp(t, `(?m)^ok +nats +ready$`, string(out))
	broker.Stop()
	require.Eventually(t, func() bool {
		out = nil
		run(t.Context(), []string{"doctor", "--data", server.Data()}, con)
		return strings.Contains(string(out), "not connected to nats://"+address)
	}, 20*time.Second, 50*time.Millisecond)
	require.NotContains(t, string(out), "s3cret")
	broker.Start(t) // the relay closes what it has there
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"/srv/relay-data": "/srv/relay-data", "/my data": "'/my data'", "it's": `'it'\''s'`, "": "''", "$HOME": "'$HOME'",
	} {
		require.Equal(t, want, quote(text))
	}
}

// Every command has an example in its help (DESIGN section 2).
func TestHelpHasExamples(t *testing.T) {
	for _, command := range []string{
		"serve", "room create", "room list", "room show", "room archive", "room reset", "participant add", "participant remove", "participant list",
		"credential mint", "credential revoke", "invite create", "invite revoke",
		"device list", "device approve", "device suspend", "device reinstate", "device revoke", "freeze", "inbox", "doctor", "migrate", "version",
	} {
		var out writer
		code := run(t.Context(), append(strings.Fields(command), "--help"), console{&out, &out, "relay"})
		require.Zero(t, code)
		require.Contains(t, string(out), "Example", "%v", command)
	}
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
