package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/node"
)

const (
	minOpenFiles = 4096
	minFreeSpace = 1 << 30
	maxClockSkew = 5 * time.Second
	doctorPause  = 10 * time.Second // for the server's answer
)

// buildYear is a year no clock can show that is right.
const buildYear = 2025

// DoctorCmd checks what a relay needs.
type DoctorCmd struct{}

// Help is shown by relay doctor --help.
func (*DoctorCmd) Help() string {
	return `Example:

  relay doctor --data ./relay-data

It prints one line for each check and ends with exit code 1 if one fails. With --api-url it checks the server only.`
}

// checks collects results in the order they are made.
type checks struct{ list []api.Check }

func (c *checks) ok(name, detail string) {
	c.list = append(c.list, api.Check{Name: name, OK: true, Detail: detail})
}

func (c *checks) fail(name, detail string) {
	c.list = append(c.list, api.Check{Name: name, Detail: detail})
}

func (c *checks) failed() bool {
	for _, check := range c.list {
		if !check.OK {
			return true
		}
	}
	return false
}

// Run makes the checks.
func (*DoctorCmd) Run(ctx context.Context, globals *Globals, con console) error {
	c, err := diagnose(ctx, globals, con)
	if err != nil {
		return err
	}
	answer := struct {
		OK     bool        `json:"ok"`
		Checks []api.Check `json:"checks"`
	}{!c.failed(), c.list}
	err = show(globals, con, answer, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, check := range c.list {
			verdict := "ok"
			if !check.OK {
				verdict = "FAIL"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", verdict, check.Name, check.Detail)
		}
		_ = table.Flush() // into a buffer
		if answer.OK && !isEdge(globals) {
			next(w, globals, con, "room create")
		}
	})
	if err == nil && c.failed() {
		return silentError{}
	}
	return err
}

func diagnose(ctx context.Context, globals *Globals, con console) (*checks, error) {
	c := new(checks)
	if isEdge(globals) {
		c.dataFolder(globals.Data)
		c.openFiles()
		c.edge(ctx, globals.Data)
		return c, nil
	}
	server, err := dial(globals, con)
	if err != nil {
		return nil, err
	}
	if globals.APIURL == "" {
		c.dataFolder(globals.Data)
		c.diskSpace(globals.Data)
		c.openFiles()
		c.programs(ctx, globals.Data)
	}
	c.server(ctx, server)
	return c, nil
}

// isEdge reports whether the data folder is one of an edge, which has no operator socket.
// A token asks for the relay at --api-url instead.
func isEdge(globals *Globals) bool {
	if globals.Token != "" || globals.TokenFile != "" {
		return false
	}
	summary, err := node.ReadSummary(globals.Data)
	return err == nil && summary.Role == node.RoleEdge
}

// edge asks an edge whether it is ready.
func (c *checks) edge(ctx context.Context, data string) {
	const name = "server"
	summary, err := node.ReadSummary(data)
	if err != nil {
		c.fail(name, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPause)
	defer cancel()
	health, err := askReady(ctx, summary)
	if err != nil {
		c.fail(name, fmt.Sprintf("no edge answers at %s: %v", summary.Listen, rootCause(err)))
		return
	}
	c.ok(name, "role edge at "+summary.Listen)
	for _, part := range health.Degraded {
		c.fail(part, "not ready; the log of the edge says why")
	}
	if health.OK {
		c.ok("ready", "the API and NATS answer")
	}
}

// askReady asks for /readyz, which needs no token. The certificate is not checked: the
// listener is this machine's own, under whatever name its clients know it.
func askReady(ctx context.Context, summary node.Summary) (api.Health, error) {
	address := url.URL{Scheme: "http", Host: localHost(summary.Listen), Path: "/readyz"}
	if summary.TLS {
		address.Scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return api.Health{}, err
	}
	client := httpClient(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above; nothing secret is sent
	})
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return api.Health{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return api.Health{}, err
	}
	var health api.Health
	if err := json.Unmarshal(content, &health); err != nil {
		return api.Health{}, errors.New("the answer is not understood")
	}
	return health, nil
}

func (c *checks) dataFolder(data string) {
	const name = "data folder"
	info, err := os.Stat(data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fail(name, data+" is not there; `relay serve --data "+data+"` makes it")
	case err != nil:
		c.fail(name, err.Error())
	case !info.IsDir():
		c.fail(name, data+" is not a folder")
	case info.Mode().Perm()&0o066 != 0:
		c.fail(name, fmt.Sprintf("%s can be read or changed by others (mode %04o): chmod 700 it", data, info.Mode().Perm()))
	case unix.Access(data, unix.W_OK|unix.X_OK) != nil:
		c.fail(name, data+" cannot be written by this user")
	default:
		c.ok(name, fmt.Sprintf("%s, mode %04o", data, info.Mode().Perm()))
	}
}

// diskSpace looks at the file system that holds the data folder, or will.
func (c *checks) diskSpace(data string) {
	const name = "disk space"
	var stat unix.Statfs_t
	place := data
	for unix.Statfs(place, &stat) != nil {
		parent := filepath.Dir(place)
		if parent == place {
			c.fail(name, "unknown")
			return
		}
		place = parent
	}
	free := stat.Bavail * uint64(stat.Bsize)
	text := fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	if free < minFreeSpace {
		c.fail(name, text+"; at least 1 GiB is wanted")
		return
	}
	c.ok(name, text)
}

// openFiles is about this shell's limit, which a server started here inherits; the
// program raises the soft limit to the hard one by itself.
func (c *checks) openFiles() {
	const name = "open files"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		c.fail(name, err.Error())
		return
	}
	if limit.Max < minOpenFiles {
		c.fail(name, fmt.Sprintf("at most %d; each connection is one: ulimit -n, or LimitNOFILE of the service", limit.Max))
		return
	}
	c.ok(name, fmt.Sprintf("at most %d", limit.Max))
}

func (c *checks) programs(ctx context.Context, data string) {
	const name = "PostgreSQL programs"
	folder, found, err := pgd.Programs(ctx, data)
	switch {
	case err == nil:
		c.ok(name, fmt.Sprintf("version %d in %s", found, folder))
	case os.Getenv("RELAY_DATABASE_URL") != "":
		c.ok(name, "none, and none needed: RELAY_DATABASE_URL is set")
	case errors.Is(err, fs.ErrPermission):
		c.ok(name, "not looked at: the data belongs to another user")
	default:
		c.fail(name, err.Error())
	}
}

func (c *checks) server(ctx context.Context, server *client) {
	ctx, cancel := context.WithTimeout(ctx, doctorPause)
	defer cancel()
	var status api.Status
	asked := time.Now()
	if err := server.call(ctx, http.MethodGet, "/v1/status", nil, nil, &status); err != nil {
		c.fail("server", err.Error())
		return
	}
	answered := time.Now()
	c.ok("server", fmt.Sprintf("version %s at %s, up %s", status.Version, status.Listen, status.Now.Sub(status.Started).Round(time.Second)))
	for _, part := range status.Checks {
		if part.OK && part.Name == "shutdown" { // an answer says that it runs
			continue
		}
		if part.OK {
			c.ok(part.Name, "ready")
			continue
		}
		c.fail(part.Name, part.Detail)
	}
	if status.Frozen { // somebody wants it so
		c.ok("network", "frozen, no client may connect: `relay freeze --off` ends it")
	} else {
		c.ok("network", "not frozen")
	}
	c.clock(status.Now, asked, answered)
}

// clock compares the server's clock with this one, the time of the request allowed for.
func (c *checks) clock(server, asked, answered time.Time) {
	const name = "clock"
	switch early, late := asked.Sub(server), server.Sub(answered); {
	case server.Year() < buildYear:
		c.fail(name, "the server's clock says "+moment(server))
	case early > maxClockSkew:
		c.fail(name, fmt.Sprintf("the server's clock is %s behind this one", early.Round(time.Second)))
	case late > maxClockSkew:
		c.fail(name, fmt.Sprintf("the server's clock is %s ahead of this one", late.Round(time.Second)))
	default:
		c.ok(name, "as this machine's, "+moment(server))
	}
}
