package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// memory is what a Go process holds, in KiB, after it has collected its garbage.
type memory struct {
	resident, shared float64 // Rss and Pss
	anonymous        float64 // of Rss: not of files, such as its program
	free             float64 // heap that it keeps for later; part of it may be in anonymous
	heap, stacks     float64 // in use
	runtime          float64 // what the runtime needs for itself
	kernel           float64 // sockets and what belongs to them, of the whole machine: both ends are on it
	goroutines       float64
}

// used is what the runtime itself says.
func (m *memory) used() float64 { return m.heap + m.stacks + m.runtime }

// readMemory has a process collect its garbage, and reads what it holds. address is where it
// serves profiles and metrics.
func readMemory(ctx context.Context, client *http.Client, address string, pid int) (memory, error) {
	for range 2 { // the second one frees what finalizers let go of
		if _, err := getFrom(ctx, client, "http://"+address+"/debug/pprof/heap?gc=1"); err != nil {
			return memory{}, fmt.Errorf("collect the garbage: %w", err)
		}
	}
	text, err := getFrom(ctx, client, "http://"+address+"/metrics")
	if err != nil {
		return memory{}, err
	}
	values := parseMetrics(string(text))
	kib := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += values["go_memstats_"+name+"_bytes"] / 1024
		}
		return sum
	}
	sums := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	m := memory{
		resident: float64(procKiB(sums, "Rss")), shared: float64(procKiB(sums, "Pss")), anonymous: float64(procKiB(sums, "Anonymous")),
		free: kib("heap_idle") - kib("heap_released"), heap: kib("heap_inuse"), stacks: kib("stack_inuse"),
		runtime: kib("mspan_inuse", "mcache_inuse", "buck_hash_sys", "gc_sys", "other_sys"),
		kernel:  kernelKiB(), goroutines: values["go_goroutines"],
	}
	if m.resident == 0 || m.heap == 0 {
		return memory{}, fmt.Errorf("the memory of process %d cannot be read", pid)
	}
	return m, nil
}

// kernelKiB are the kernel's objects, and the buffers of TCP.
func kernelKiB() float64 {
	buffers := 0.0
	if fields := strings.Fields(procField("/proc/net/sockstat", "TCP")); len(fields) > 0 {
		buffers, _ = strconv.ParseFloat(fields[len(fields)-1], 64)
	}
	const pageKiB = 4
	return float64(procKiB("/proc/meminfo", "Slab")) + buffers*pageKiB
}

// parseMetrics are the metrics without labels.
func parseMetrics(text string) map[string]float64 {
	values := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); found && err == nil {
			values[name] = v
		}
	}
	return values
}

// line is the one that is nearest to points, by least squares.
type line struct{ slope, deviation float64 } // deviation is the slope's standard error

func fit(x, y []float64) line {
	n := float64(len(x))
	var sumX, sumY float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	var xx, xy float64
	for i := range x {
		dx := x[i] - sumX/n
		xx, xy = xx+dx*dx, xy+dx*(y[i]-sumY/n)
	}
	slope := xy / xx
	var rest float64
	for i := range x {
		off := y[i] - sumY/n - slope*(x[i]-sumX/n)
		rest += off * off
	}
	return line{slope, math.Sqrt(rest / (n - 2) / xx)}
}
