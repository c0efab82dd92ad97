package pgd

import (
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// defaultSettings is the server's postgresql.conf. An operator changes values with
// ALTER SYSTEM, which wins over this file.
func defaultSettings() map[string]string {
	return map[string]string{
		// A verdict "queued" rests on commits: none may be lost.
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",

		"max_connections":                 "60",
		"shared_buffers":                  "128MB",
		"effective_cache_size":            "512MB",
		"work_mem":                        "8MB",
		"maintenance_work_mem":            "64MB",
		"huge_pages":                      "off",
		"random_page_cost":                "1.1",
		"jit":                             "off",
		"max_parallel_workers_per_gather": "0", // short statements, few cores
		// Not posix: systemd removes a user's /dev/shm segments when the user logs out
		// (RemoveIPC), and containers have little of it.
		"dynamic_shared_memory_type": "mmap",

		"wal_level":            "replica", // so that pg_basebackup works
		"max_wal_senders":      "2",
		"wal_compression":      "on",
		"wal_buffers":          "8MB",
		"min_wal_size":         "128MB",
		"max_wal_size":         "1GB",
		"checkpoint_timeout":   "15min",
		"autovacuum_naptime":   "30s",
		"max_worker_processes": "4",

		// Terse, without statements: a detail line would print rows, and with them what
		// must not be in a log.
		"log_destination":         "stderr",
		"logging_collector":       "off", // the relay writes the file, with a bound
		"log_statement":           "none",
		"log_min_error_statement": "panic",
		"log_error_verbosity":     "terse",
		"log_lock_waits":          "on",
		"log_checkpoints":         "off",
		"log_line_prefix":         "%m [%p] %q%u@%d %e ",
		"log_timezone":            "UTC",
		"timezone":                "UTC",
		"cluster_name":            "relay",
	}
}

// writeConf writes the three configuration files. They hold no secret; the server's user
// must be able to read them.
func (f folder) writeConf(cfg Config) error {
	settings := defaultSettings()
	maps.Copy(settings, cfg.Settings)
	var b strings.Builder
	b.WriteString("# Written by the relay at every start. Use ALTER SYSTEM to change a value.\n")
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", k, quoteConf(settings[k]))
	}
	ident, err := identMap(cfg.Roles)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"postgresql.conf": b.String(),
		"pg_hba.conf":     "local all all peer map=relay\nlocal replication all peer map=relay\n",
		"pg_ident.conf":   ident,
	} {
		if err := f.replaceConf(name, text); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// identMap lets the relay's user and root, and nobody else, be the owner or one of roles.
func identMap(roles []string) (string, error) {
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the own user name: %w", err)
	}
	users := []string{me.Username}
	if me.Username != "root" {
		users = append(users, "root")
	}
	var b strings.Builder
	for _, u := range users {
		for _, role := range append([]string{OwnerRole}, roles...) {
			if strings.ContainsAny(u+role, "\"\n\r\\") || strings.HasPrefix(u, "/") {
				return "", fmt.Errorf("user %q or role %q can't stand in a PostgreSQL user map", u, role)
			}
			fmt.Fprintf(&b, "relay \"%s\" \"%s\"\n", u, role)
		}
	}
	return b.String(), nil
}

func quoteConf(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }

func (f folder) replaceConf(name, text string) error {
	path := filepath.Join(f.conf(), name)
	mode := os.FileMode(0o600)
	if f.acct.other {
		mode = 0o644
	}
	if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
		return err
	}
	if err := os.Chmod(path+".new", mode); err != nil { // whatever the umask left
		return err
	}
	return os.Rename(path+".new", path)
}

// fixedArgs are what neither the file nor ALTER SYSTEM may change. base is the folder as
// the server sees it.
func fixedArgs(base, socketDir string) []string {
	var args []string
	for _, s := range [][2]string{
		{"config_file", filepath.Join(base, "conf", "postgresql.conf")},
		{"hba_file", filepath.Join(base, "conf", "pg_hba.conf")},
		{"ident_file", filepath.Join(base, "conf", "pg_ident.conf")},
		{"listen_addresses", ""},
		{"port", "5432"},
		{"unix_socket_directories", quoteSocketDir(socketDir)},
		{"unix_socket_permissions", "0700"},
	} {
		args = append(args, "-c", s[0]+"="+s[1])
	}
	return args
}

// quoteSocketDir: the setting is a list, in which a comma or space would separate.
func quoteSocketDir(dir string) string { return `"` + strings.ReplaceAll(dir, `"`, `""`) + `"` }
