package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// result is one benchmark's outcome; with --json it is the last line printed
// (DESIGN section 8).
type result struct {
	Bench   string   `json:"bench"`
	Figure  float64  `json:"figure"` // median of the runs
	Unit    string   `json:"unit"`
	Floor   *float64 `json:"floor"` // median of the runs; null where the bar is no ratio
	Ratio   *float64 `json:"ratio"` // median of figure/floor of each run
	Bar     *float64 `json:"bar"`   // null where the figure is only reported
	OK      bool     `json:"ok"`    // the bar is met
	Runs    []sample `json:"runs"`
	Machine machine  `json:"machine"`
}

// sample is one run.
type sample struct {
	Figure float64            `json:"figure"`
	Floor  *float64           `json:"floor,omitempty"`
	Ratio  *float64           `json:"ratio,omitempty"`
	More   map[string]float64 `json:"more,omitempty"` // unit in the name
	// Invalid says why the figure is none; empty: it is one.
	Invalid string `json:"invalid,omitempty"`
}

// bar is what a figure is measured against.
type bar struct {
	value   float64
	ofRatio bool // the ratio to the floor, not the figure
	atMost  bool
}

func (b bar) met(figure float64, ratio *float64) bool {
	if b.ofRatio {
		if ratio == nil {
			return false
		}
		figure = *ratio
	}
	if b.atMost {
		return figure <= b.value
	}
	return figure >= b.value
}

// newSample is a run with the floor measured beside it, 0 for none.
func newSample(figure, floor float64, more map[string]float64) sample {
	s := sample{Figure: figure, More: more}
	if floor > 0 {
		ratio := figure / floor
		s.Floor, s.Ratio = &floor, &ratio
	}
	return s
}

// summarize makes the result of the runs, of those that are valid where there are any. wanted is
// nil where there is no bar.
func summarize(bench, unit string, runs []sample, wanted *bar, on machine) result {
	r := result{Bench: bench, Unit: unit, Runs: runs, Machine: on, OK: true}
	if valid := validOnes(runs); len(valid) > 0 {
		runs = valid
	}
	r.Figure = middle(runs, func(s sample) *float64 { return &s.Figure })
	if len(runs) > 0 && runs[0].Floor != nil {
		floor := middle(runs, func(s sample) *float64 { return s.Floor })
		ratio := middle(runs, func(s sample) *float64 { return s.Ratio })
		r.Floor, r.Ratio = &floor, &ratio
	}
	if wanted != nil {
		r.Bar, r.OK = &wanted.value, wanted.met(r.Figure, r.Ratio)
	}
	r.OK = r.OK && r.invalid() == ""
	return r
}

func validOnes(runs []sample) []sample {
	return slices.DeleteFunc(slices.Clone(runs), func(s sample) bool { return s.Invalid != "" })
}

// invalid says what is wrong with the runs of which something is.
func (r result) invalid() string {
	var why []string
	for _, s := range r.Runs {
		if s.Invalid != "" {
			why = append(why, s.Invalid)
		}
	}
	if len(why) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d runs INVALID: %s", len(why), len(r.Runs), strings.Join(why, "; "))
}

func middle(runs []sample, of func(sample) *float64) float64 {
	var values []float64
	for _, s := range runs {
		if v := of(s); v != nil {
			values = append(values, *v)
		}
	}
	return median(values)
}

// median of no values is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// write writes the result for people, or as one line of JSON.
func (r result) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", r.Bench, spread(r.Runs, func(s sample) *float64 { return &s.Figure }), r.Unit)
	if r.Floor != nil {
		fmt.Fprintf(&b, "; floor %s; ratio %s", spread(r.Runs, func(s sample) *float64 { return s.Floor }),
			spread(r.Runs, func(s sample) *float64 { return s.Ratio }))
	}
	if r.Bar != nil {
		verdict := "met"
		switch {
		case r.invalid() != "":
			verdict = "NOT MEASURED"
		case !r.OK:
			verdict = "MISSED"
		}
		fmt.Fprintf(&b, "; bar %g %s", *r.Bar, verdict)
	}
	fmt.Fprintf(&b, " (median [smallest, largest] of %d)\n", len(r.Runs))
	if why := r.invalid(); why != "" {
		fmt.Fprintf(&b, "  %s\n", why)
	}
	for _, name := range r.extras() {
		fmt.Fprintf(&b, "  %-34s %s\n", name, spread(r.Runs, func(s sample) *float64 {
			if v, ok := s.More[name]; ok {
				return &v
			}
			return nil
		}))
	}
	fmt.Fprintf(&b, "  %s\n", r.Machine)
	_, err := io.WriteString(out, b.String())
	return err
}

func (r result) extras() []string {
	names := make(map[string]bool)
	for _, s := range r.Runs {
		for name := range s.More {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// spread is "median [smallest, largest]".
func spread(runs []sample, of func(sample) *float64) string {
	var values []float64
	for _, s := range runs {
		if v := of(s); v != nil {
			values = append(values, *v)
		}
	}
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s [%s, %s]", number(median(values)), number(slices.Min(values)), number(slices.Max(values)))
}

// number prints three digits or more.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// newHistogram counts nanoseconds up to two minutes with three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, 120_000_000_000, 3)
}

// record keeps the measurement in range: what is longer than the histogram's
// range counts as its end.
func record(h *hdrhistogram.Histogram, nanoseconds int64) {
	_ = h.RecordValue(min(max(nanoseconds, 1), h.HighestTrackableValue()))
}

// millis returns a quantile in milliseconds.
func millis(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtPercentile(percent)) / 1e6
}
