package archtest_test

// module is the import path of everything below.
const module = "github.com/peerrelay/peerrelay"

// layer says which packages of this module a package may import in production code.
type layer struct {
	pkg    string   // a package, or a folder and all below it: "internal/..."
	may    []string // in the same notation; "..." is any package
	reason string
}

// layers is the direction of the module, from the bottom up. The first row that
// matches a package counts; a package without a row is an error.
var layers = []layer{
	{"wire", nil, "wire knows bytes and nothing else, so that a client needs nothing else either"},

	{"identity", nil, "what devices sign is known to server and client alike"},
	{"mls", nil, "it reads bytes of a public standard"},

	{"store/postgres/internal/...", nil, "generated code knows the database driver only"},
	{"store/postgres", []string{"store", "board", "wire", "schema", "store/postgres/internal/..."}, "adapters do not know each other; this one fits one schema"},
	{"store/remote", []string{"store", "wire"}, "adapters do not know each other"},
	{"store/storetest", []string{"store", "wire"}, "the suite knows the contract, not who fulfils it"},
	{"store", []string{"wire"}, "the domain knows no technology"},

	{"inbox", []string{"wire"}, "inboxes know rows and ids, not who may send them"},
	{"cluster", []string{"wire"}, "announcements between nodes know no store and no sockets"},
	{"outbox", []string{"store", "inbox", "wire"}, "the server's own rows use the one delivery path through its contract"},
	{"board", []string{"store", "wire"}, "the Board's contract, which adapters of the store import, knows no inboxes"},

	{"relay/front", []string{"relay", "wire"}, "sockets know the protocol core's contract only"},
	{"relay", []string{"store", "inbox", "cluster", "wire"}, "the protocol core is handed its adapters"},
	{"api", []string{"identity", "mls", "store", "inbox", "cluster", "board", "relay", "wire"}, "HTTP translates for the same core"},

	{"e2ee/...", []string{"e2ee/...", "identity", "wire"}, "encryption is the client's, and proven without a relay"},

	{"client/...", []string{"client/...", "e2ee/...", "identity", "wire"}, "a client must not carry the server"},

	{"schema", nil, "migrations know the database only"},
	{"infra/...", nil, "a broker or a database that is started knows nothing of what it is for"},

	{"deploy", nil, "files for operators"},

	{"internal/fault", []string{"store", "inbox", "wire"}, "faults are decorators of the contracts"},
	{"internal/testkit/...", []string{"..."}, "the whole stack in one process"},
	{"internal/node", []string{"..."}, "wires one process, for cmd and for tests of the whole"},
	{"internal/e2e", nil, "tests only"},
	{"internal/archtest", nil, "looks at the module from outside"},
	{"internal/doctest", nil, "looks at the module from outside"},
	{"internal/secretfile", nil, "commands of clients and servers alike print secrets"},
	{"internal/demo", []string{"client/...", "wire"}, "the demo is a client of a running relay"},

	{"cmd/peer", []string{"client/...", "internal/secretfile", "wire"}, "a client must not carry the server"},
	{"cmd/...", []string{"..."}, "only cmd wires"},
}

// fence says in which packages of this module a library may be imported by
// production code, and where it must not arrive through others either.
type fence struct {
	library string   // an import path, or a prefix: "github.com/gobwas/..."
	only    []string // packages that may import it directly
	never   []string // packages that must not even reach it
	reason  string
}

var fences = []fence{
	{
		library: "github.com/gobwas/...",
		only:    []string{"relay/front", "cmd/relaybench"},
		never:   []string{"wire", "store", "inbox", "relay", "api", "client/...", "cmd/peer"},
		reason:  "WebSocket frames are the front's business",
	},
	{
		library: "github.com/jackc/...",
		only:    []string{"store/postgres/...", "schema", "infra/pgd", "internal/testkit/...", "cmd/relaybench"},
		never:   []string{"wire", "store", "store/remote", "inbox", "relay/...", "client/...", "cmd/peer"},
		reason:  "SQL stays behind the store's contract; an edge node has none",
	},
	{
		library: "github.com/nats-io/nats.go/...",
		only:    []string{"inbox", "cluster", "infra/natsd", "cmd/...", "internal/..."},
		never:   []string{"wire", "store/...", "client/...", "cmd/peer", "internal/demo"},
		reason:  "the core is handed inboxes, not a broker",
	},
	{
		library: "github.com/nats-io/nats-server/...",
		only:    []string{"infra/natsd", "internal/testkit/...", "cmd/relaybench"},
		never:   []string{"wire", "store/...", "inbox", "cluster", "relay/...", "api", "client/...", "cmd/peer", "internal/demo"},
		reason:  "whether the broker is embedded is known where it is started",
	},
	{
		library: "github.com/alecthomas/kong",
		only:    []string{"cmd/..."},
		reason:  "flags are read in cmd and handed on as Config values",
	},
	{
		library: "encoding/gob",
		reason:  "what is stored or sent is read by programs in other languages",
	},
	{
		library: "unsafe",
		only:    []string{"relay/front"},
		reason:  "nothing here needs it",
	},
}

// testOnly are packages that must not be part of any program of cmd.
var testOnly = []string{
	"testing",
	"net/http/httptest",
	"github.com/stretchr/testify/...",
	"go.uber.org/goleak",
	"github.com/rogpeppe/go-internal/testscript",
	module + "/store/storetest",
	module + "/internal/testkit/...",
	module + "/internal/fault",
}

// folders are the top-level folders of the repository, besides hidden ones and what
// .gitignore names.
var folders = map[string]string{
	"api":      "HTTP API",
	"board":    "Board",
	"client":   "Go SDK",
	"cluster":  "nodes in step: leases, announcements, presence",
	"cmd":      "programs",
	"deploy":   "what operators copy: units, compose, NATS configuration",
	"docs":     "documentation",
	"e2ee":     "end-to-end encryption of clients, in small packages",
	"identity": "keys of devices: what is accepted, signed and compared",
	"inbox":    "inboxes on JetStream",
	"infra":    "embedded NATS, managed PostgreSQL",
	"internal": "tests of the whole, fault injection, the demo, what commands share",
	"mls":      "what the server reads of MLS messages",
	"outbox":   "the server's own rows on their way into inboxes",
	"queries":  "sqlc inputs",
	"relay":    "protocol core and front",
	"schema":   "migrations",
	"scripts":  "what make calls",
	"skill":    "how an AI agent uses peer",
	"store":    "domain and its adapters",
	"tools":    "pinned generators and linters",
	"wire":     "frames, envelope, codes",
}

// badNames say nothing about what a package is for.
var badNames = []string{"util", "utils", "common", "helpers", "helper", "misc", "models", "types", "base", "shared", "lib"}
