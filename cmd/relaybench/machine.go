package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// machine is what a figure was measured on, and how the relay was set up.
type machine struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memory_gib"`
	Kernel    string  `json:"kernel"`
	Go        string  `json:"go"`
	Sync      string  `json:"inbox_sync"`
	Shards    string  `json:"inbox_shards"`
	Flags     string  `json:"relay_flags,omitempty"`
}

func (m machine) String() string {
	return fmt.Sprintf("on %s, %d cores, %.0f GiB, Linux %s, %s; inbox sync %s, %s shards", m.CPU, m.Cores, m.MemoryGiB, m.Kernel, m.Go, m.Sync, m.Shards)
}

// thisMachine describes where the process runs, as far as /proc tells.
func thisMachine() machine {
	return machine{
		CPU:       procField("/proc/cpuinfo", "model name"),
		Cores:     runtime.NumCPU(),
		MemoryGiB: float64(procKiB("/proc/meminfo", "MemTotal")) / (1 << 20),
		Kernel:    strings.TrimSpace(readText("/proc/sys/kernel/osrelease")),
		Go:        runtime.Version(),
	}
}

func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

// procField returns the value of the first "name: value" line of a file.
func procField(path, name string) string {
	for line := range strings.Lines(readText(path)) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// procKiB is procField for "name: 123 kB".
func procKiB(path, name string) int64 {
	digits, _, _ := strings.Cut(procField(path, name), " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
