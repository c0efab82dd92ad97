package natsd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	relayAccount = "RELAY"
	debugAccount = "DEBUG"

	relayUser = "relay"
	edgeUser  = "edge"
	debugUser = "debug"
	gateUser  = "gate"
)

// viewExports are the requests of RELAY that account DEBUG may send by itself, and
// whether one request has many answers.
var viewExports = []struct {
	subject string
	many    bool
}{
	{"$JS.API.INFO", false},
	{"$JS.API.STREAM.NAMES", false},
	{"$JS.API.STREAM.LIST", false},
	{"$JS.API.STREAM.INFO.*", false},
	{"$JS.API.STREAM.MSG.GET.*", false},
	{"$JS.API.DIRECT.GET.>", true},
	{"$JS.API.CONSUMER.NAMES.*", false},
	{"$JS.API.CONSUMER.LIST.*", false},
	{"$JS.API.CONSUMER.INFO.*.*", false},
	{"$JS.API.CONSUMER.MSG.NEXT.*.*", true},
	// Only consumers hold what an acknowledgement changes: rows of an inbox leave it by
	// age and number alone.
	{"$JS.ACK.>", false},
}

// gateSubjects are the requests that the gate answers in account DEBUG.
var gateSubjects = []string{
	"$JS.API.CONSUMER.CREATE.>",
	"$JS.API.CONSUMER.DURABLE.CREATE.*.*",
	"$JS.API.CONSUMER.DELETE.*.*",
}

const liveSubjects = "live.>"

// maxConsumers bounds the consumers of a stream. The relay has none; those of the debug
// user cost goroutines and memory until they have been idle for up to viewerIdleMax.
const maxConsumers = 32

// What user edge may do in account RELAY: write inboxes and read them, keep the streams and
// buckets as the relay declares them, hold a lease, and hear the others. It cannot
// delete or purge a stream, nor make consumers, nor announce a change: that is the business
// of nodes that have the database. This bounds mistakes; who means harm can still change
// what a stream keeps, so whoever holds this password is trusted (docs/operations.md).
var (
	edgePublish = []string{
		"inbox.>", liveSubjects, "_INBOX.>", "$KV.nodes.>", "$KV.presence.>",
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*",
		"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*",
		"$JS.API.STREAM.MSG.GET.*", "$JS.API.STREAM.MSG.DELETE.*", "$JS.API.DIRECT.GET.>",
	}
	edgeSubscribe = []string{liveSubjects, "control.>", "$KV.nodes.>", "_INBOX.>"}
)

// secrets are the users' passwords: base64url, so they need no quoting. Without one for
// edge there is no such user.
type secrets struct{ relay, edge, debug, gate string }

// edgeConfig is the line of user edge; empty without one.
func edgeConfig(s secrets) string {
	if s.edge == "" {
		return ""
	}
	return fmt.Sprintf(", {user: %s, password: %q, permissions: {publish: {allow: [%s]}, subscribe: {allow: [%s]}}}",
		edgeUser, s.edge, quoted(edgePublish), quoted(edgeSubscribe))
}

func quoted(subjects []string) string {
	list := make([]string, len(subjects))
	for i, subject := range subjects {
		list[i] = strconv.Quote(subject)
	}
	return strings.Join(list, ", ")
}

// accountsConfig is the part of the server's configuration that says who may do what.
func accountsConfig(s secrets) string {
	var exports, imports strings.Builder
	for _, e := range viewExports {
		response := "singleton"
		if e.many {
			response = "stream"
		}
		fmt.Fprintf(&exports, "{service: %q, response: %s, accounts: [%s]}\n", e.subject, response, debugAccount)
		fmt.Fprintf(&imports, "{service: {account: %s, subject: %q}}\n", relayAccount, e.subject)
	}
	publish := slices.Clone(gateSubjects)
	for _, e := range viewExports {
		publish = append(publish, e.subject)
	}
	return fmt.Sprintf(`
accounts {
  %[1]s {
    jetstream: {max_consumers: %[13]d}
    users: [{user: %[3]s, password: %[6]q}%[14]s]
    exports: [
      {stream: %[9]q, accounts: [%[2]s]}
      %[10]s
    ]
  }
  %[2]s {
    users: [
      {user: %[5]s, password: %[8]q, allowed_connection_types: ["IN_PROCESS"]}
      {user: %[4]s, password: %[7]q, permissions: {
        publish: {allow: [%[12]s]}
        subscribe: {allow: [%[9]q, "_INBOX.>"]}
      }}
    ]
    imports: [
      {stream: {account: %[1]s, subject: %[9]q}}
      %[11]s
    ]
  }
}
`, relayAccount, debugAccount, relayUser, debugUser, gateUser, s.relay, s.debug, s.gate,
		liveSubjects, exports.String(), imports.String(), quoted(publish), maxConsumers, edgeConfig(s))
}
