package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tailsEvery is how often the last sequences are noted.
const tailsEvery = time.Second

// tails are the last sequences of the streams, noted beside them so that a start can
// tell that a stream has become shorter: the server cuts a damaged block at the
// damage, and a power cut takes what was not on disk yet.
type tails struct {
	path string
	noted
}

// noted is what the file holds.
type noted struct {
	Boot  string            `json:"boot"`  // of the machine, as its kernel names it
	Clean bool              `json:"clean"` // nothing was written afterwards
	Last  map[string]uint64 `json:"last"`  // by stream
}

// readTails reads the file of an earlier start. A file that is missing or damaged
// says nothing.
func readTails(path string) (*tails, error) {
	t := &tails{path: path}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last sequences: %w", err)
	}
	if json.Unmarshal(content, &t.noted) != nil {
		t.noted = noted{}
	}
	return t, nil
}

// lastKnown is the sequence that a stream must at least have; more than it can have
// where the machine went down with rows that may not have been on disk.
func (t *tails) lastKnown(stream string, syncAlways bool) uint64 {
	if t == nil {
		return 0
	}
	last := t.Last[stream]
	if last > 0 && !t.Clean && t.Boot != bootID() && !syncAlways {
		return math.MaxUint64
	}
	return last
}

// write notes the last sequences. sync waits for the disk.
func (t *tails) write(last map[string]uint64, clean, sync bool) error {
	t.noted = noted{Boot: bootID(), Clean: clean, Last: last}
	content, err := json.Marshal(t.noted)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(t.path), ".tails-")
	if err != nil {
		return fmt.Errorf("note last sequences: %w", err)
	}
	_, err = file.Write(content)
	if err == nil && sync {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), t.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("note last sequences: %w", err), os.Remove(file.Name()))
	}
	return nil
}

// bootID names this run of the machine; empty where the system does not say.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// lastSequences are those of all streams, as the committers know them.
func (j *JetStream) lastSequences() map[string]uint64 {
	last := make(map[string]uint64, len(j.committers))
	for _, c := range j.committers {
		last[c.stream] = c.committed.Load()
	}
	return last
}

// noteTails notes the last sequences now and then, until the inboxes close.
func (j *JetStream) noteTails() {
	ticker := time.NewTicker(tailsEvery)
	defer ticker.Stop()
	var failed bool
	for {
		select {
		case <-j.closing:
			return
		case <-ticker.C:
		}
		err := j.tails.write(j.lastSequences(), false, false)
		if err != nil && !failed {
			j.config.Logger.Warn("last sequences not noted", "error", err)
		}
		failed = err != nil
	}
}
