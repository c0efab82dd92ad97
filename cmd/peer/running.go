package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// running is a device that this process has open, for its own command and for the guests:
// commands of other processes that run inside of this one (running_server.go), since the key
// store can be open in one process only.
type running struct {
	device  *client.Device
	changed chan struct{} // holds a value where this device has come into a room by itself
	all     chan struct{} // holds a value while nobody follows all rooms

	mu    sync.Mutex // guards the following field
	rooms map[string]*opening
}

func newRunning(device *client.Device) *running {
	r := &running{device: device, changed: make(chan struct{}, 1), all: make(chan struct{}, 1), rooms: make(map[string]*opening)}
	r.all <- struct{}{}
	return r
}

// enters lets whoever follows all rooms look at once.
func (r *running) enters() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// opening is a session that is open, or is being opened.
type opening struct {
	done    chan struct{} // closed when the following fields are set
	session *client.Session
	err     error
}

// session is the one session of a room. Where a command that was opening it is killed, the next
// one opens it.
func (r *running) session(ctx context.Context, room string) (*client.Session, error) {
	for {
		o, mine := r.opening(room)
		if mine {
			r.open(ctx, room, o)
			return o.session, o.err
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !errors.Is(o.err, context.Canceled) || ctx.Err() != nil {
			return o.session, o.err
		}
	}
}

// opening is what there is of a room's session, or a new one, which is the caller's to open.
func (r *running) opening(room string) (o *opening, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, begun := r.rooms[room]
	if !begun {
		o = &opening{done: make(chan struct{})}
		r.rooms[room] = o
	}
	return o, !begun
}

func (r *running) open(ctx context.Context, room string, o *opening) {
	defer close(o.done)
	o.session, o.err = r.device.OpenSession(ctx, room)
	if o.err != nil { // the next one tries again
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.rooms, room)
	}
}

// leave ends the session of a room, where there is one: the next one looks anew who this device is
// there.
func (r *running) leave(room string) {
	r.mu.Lock()
	o := r.rooms[room]
	delete(r.rooms, room)
	r.mu.Unlock()
	if o == nil {
		return
	}
	<-o.done
	if o.session != nil {
		_ = o.session.Close()
	}
}

// close ends the sessions.
func (r *running) close() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.rooms))
	r.mu.Unlock()
	for _, room := range all {
		r.leave(room)
	}
}

// with opens the device for one command, or takes the one that is open in this process.
func (h home) with(con console, do func(r *running) error) error {
	if con.shared != nil {
		return do(con.shared)
	}
	device, err := h.open(con)
	if err != nil {
		return err
	}
	r := newRunning(device)
	err = do(r)
	r.close()
	return errors.Join(err, device.Close())
}

// ofDevice is a command that may need a device's key store.
type ofDevice interface {
	device() (h home, needed bool)
}

func (c deviceCommand) device() (home, bool) { return c.home, true }
func (c connection) device() (home, bool)    { return c.home, c.Room != "" }

// device of an enrollment is one that is not there yet.
func (*enrollCommand) device() (home, bool) { return home{}, false }

// usualPatience is how long a command waits for another one that has the device open and takes
// no guests, as it ends by itself.
const usualPatience = 30 * time.Second

// firstLook and looksAgain are when the key store is looked at again meanwhile.
const (
	firstLook  = 20 * time.Millisecond
	looksAgain = 250 * time.Millisecond
)

// execute runs a command: in the process that has its device open, where that takes guests,
// else here.
func execute(ctx context.Context, parsed *kong.Context, args []string, con console) int {
	h, needed := deviceOf(parsed)
	if !needed || con.shared != nil {
		return exitCode(parsed.Run(con), con)
	}
	dir, err := h.dir()
	if err != nil {
		return exitCode(err, con)
	}
	patience := con.patience
	if patience == 0 {
		patience = usualPatience
	}
	late, told := time.After(patience), false
	for pause := firstLook; ; pause = min(2*pause, looksAgain) {
		if code, done := handOver(ctx, dir, args, con); done {
			return code
		}
		err := parsed.Run(con)
		if !errors.Is(err, keystore.ErrInUse) || h.PassphraseFile == "-" { // which was read to its end
			return exitCode(err, con)
		}
		if pause == looksAgain && !told {
			told = true
			con.notef("waiting for another peer command of this device")
		}
		select {
		case <-time.After(pause):
		case <-late:
			return exitCode(err, con)
		case <-ctx.Done():
			return exitCode(ctx.Err(), con)
		}
	}
}

// deviceOf is the device whose key store a command needs.
func deviceOf(parsed *kong.Context) (h home, needed bool) {
	node := parsed.Selected()
	if node == nil || node.Target.Kind() != reflect.Struct || !node.Target.CanAddr() {
		return home{}, false
	}
	if command, ok := reflect.TypeAssert[ofDevice](node.Target.Addr()); ok {
		return command.device()
	}
	return home{}, false
}

// socketName is where the running process of a device listens, in its folder.
const socketName = "peer.sock"

// longestSocket is the longest address of a unix socket that every system takes.
const longestSocket = 100

// socketOf finds the socket of a device's folder. A socket that had too long a name there is
// elsewhere, in a folder of its own, and the name is a link to it.
func socketOf(dir string) (path string, ok bool) {
	path = filepath.Join(dir, socketName)
	info, err := os.Lstat(path)
	if err != nil || !private(dir) {
		return "", false
	}
	if info.Mode()&os.ModeSymlink == 0 {
		return path, len(path) <= longestSocket
	}
	path, err = os.Readlink(path)
	if err != nil {
		return "", false
	}
	return path, private(filepath.Dir(path))
}

// private reports a folder in which nobody else can have made a socket.
func private(folder string) bool {
	info, err := os.Stat(folder)
	return err == nil && info.IsDir() && (runtime.GOOS == "windows" || info.Mode().Perm()&0o077 == 0)
}

// makeSocket says where to listen for a device's folder. Whoever calls it has the device's key
// store open, so that what is there already is left over.
func makeSocket(dir string) (path string, remove func(), err error) {
	name := filepath.Join(dir, socketName)
	if old, ok := socketOf(dir); ok && old != name {
		_ = os.Remove(old)
		_ = os.Remove(filepath.Dir(old)) // if it is empty
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	if len(name) <= longestSocket {
		return name, func() { _ = os.Remove(name) }, nil
	}
	folder, err := os.MkdirTemp("", "peer-") // mode 0700
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(folder, socketName)
	remove = func() {
		_ = os.Remove(name)
		_ = os.RemoveAll(folder)
	}
	if len(path) > longestSocket {
		err = fmt.Errorf("%s is too long for the name of a socket", path)
	} else {
		err = os.Symlink(path, name)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// circumstances are what a command finds beside its arguments, where another process called it.
type circumstances struct {
	Folder      string            `json:"folder"`      // the working folder
	Environment map[string]string `json:"environment"` // of this program
}

// variables is what the names of this program's environment begin with.
const variables = "PEER_"

// here are the circumstances of this process.
func here() (circumstances, error) {
	folder, err := os.Getwd()
	c := circumstances{Folder: folder, Environment: make(map[string]string)}
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, variables) {
			c.Environment[name] = value
		}
	}
	return c, err
}

// options let a parser see them in place of this process's own.
func (c *circumstances) options() []kong.Option {
	if c == nil {
		return nil
	}
	names := make(map[*kong.Value][]string) // of the environment
	return []kong.Option{
		kong.NamedMapper("path", c.path()),
		kong.PostBuild(func(k *kong.Kong) error {
			return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
				if flag, ok := node.(*kong.Flag); ok {
					names[flag.Value] = flag.Tag.Envs
					flag.Tag.Envs, flag.Envs = nil, nil
				}
				return next(nil)
			})
		}),
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
			for _, name := range names[flag.Value] {
				if value, ok := c.Environment[name]; ok {
					return value, nil
				}
			}
			return nil, nil
		})),
	}
}

// path reads paths that begin in the caller's working folder.
func (c *circumstances) path() kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var path string
		if err := ctx.Scan.PopValueInto("file", &path); err != nil {
			return err
		}
		switch {
		case path == "" || path == "-" || filepath.IsAbs(path):
		case path[0] == '~':
			path = kong.ExpandPath(path)
		default:
			path = filepath.Join(c.Folder, path)
		}
		target.SetString(path)
		return nil
	}
}
