package pgd

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the operating system user the server runs as.
type account struct {
	name     string
	uid, gid int
	other    bool // not the relay's own user: the relay is root
}

// chooseAccount returns the relay's own user, or when that is root the first of
// candidates that exists.
func chooseAccount(candidates []string) (account, error) {
	if os.Geteuid() != 0 {
		u, err := user.Current()
		if err != nil {
			return account{}, fmt.Errorf("find the own user name (PostgreSQL needs one): %w", err)
		}
		return accountOf(u, false)
	}
	for _, name := range candidates {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		if a, err := accountOf(u, true); err == nil && a.uid != 0 {
			return a, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL refuses to run as root and none of the users %q exists; "+
		"run the relay as an ordinary user or use --database-url", candidates)
}

func accountOf(u *user.User, other bool) (account, error) {
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return account{}, fmt.Errorf("read ids of user %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uid, gid: gid, other: other}, nil
}

// accountOfData returns the owner of an existing PGDATA: a server that was set up as
// nobody keeps running as nobody when a user postgres appears later.
func accountOfData(info os.FileInfo, a account) (account, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == a.uid {
		return a, nil
	}
	owner, err := user.LookupId(strconv.Itoa(int(st.Uid)))
	if err != nil {
		return account{}, fmt.Errorf("find the owner of the PostgreSQL data: %w", err)
	}
	if !a.other || st.Uid == 0 {
		return account{}, fmt.Errorf("the PostgreSQL data belongs to user %s, and the relay runs as %s: "+
			"run it as root or as the owner", owner.Username, a.name)
	}
	return accountOf(owner, true)
}

// sysProcAttr returns the attributes of a server process: its user, and a session of its
// own, so that signals from the terminal reach the relay only.
func (a account) sysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.other {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}
