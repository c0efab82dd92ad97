package remote_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/remote"
)

// described takes the names of the metrics that are registered, those without a sample too.
type described struct {
	prometheus.Registerer

	mu    sync.Mutex
	names []string
}

var metricName = regexp.MustCompile(`fqName: "([a-z_]+)"`)

func (d *described) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	for description := range descriptions {
		d.names = append(d.names, metricName.FindStringSubmatch(description.String())[1])
	}
	return nil
}

func (*described) Unregister(prometheus.Collector) bool { return true }

// docs/operations.md tells what each metric of an edge says, and of none that there is not.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	registered := &described{}
	token, _ := store.NewToken()
	s, err := remote.Open(remote.Config{URL: "http://127.0.0.1:1", Token: token, Registerer: registered})
	require.NoError(t, err)
	t.Cleanup(s.Close)

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(relay_edge_[a-z_]+)").FindAllStringSubmatch(string(page), -1) {
		told = append(told, row[1])
	}
	slices.Sort(told)
	slices.Sort(registered.names)
	require.Equal(t, slices.Compact(registered.names), told)
}
