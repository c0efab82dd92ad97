package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Summary is what a data folder says of the process that used it last, for relay doctor:
// an edge has no operator socket to ask.
type Summary struct {
	Role   string `json:"role"`
	Listen string `json:"listen"` // of the public listener
	TLS    bool   `json:"tls"`    // it speaks it
}

const summaryFile = "node.json"

func (n *Node) writeSummary() error {
	content, err := json.Marshal(Summary{Role: n.cfg.Role, Listen: n.Addr().String(), TLS: n.cfg.TLSCert != ""})
	if err != nil {
		return err
	}
	path := filepath.Join(n.cfg.Data, summaryFile)
	if err := os.WriteFile(path+".new", append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ReadSummary reads it; an error wraps fs.ErrNotExist where no process has started yet.
func ReadSummary(data string) (Summary, error) {
	var s Summary
	content, err := os.ReadFile(filepath.Join(data, summaryFile))
	if err != nil {
		return s, fmt.Errorf("read what runs here: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("read what runs here: %w", err)
	}
	return s, nil
}
