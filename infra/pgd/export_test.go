package pgd

import "path/filepath"

// ServerProcesses are the server's processes in the data folder dir.
func ServerProcesses(dir string) ([]int, error) {
	return serverProcesses(filepath.Join(dir, "postgres", "data"))
}

// NewLog is a log in dir of at most limit bytes a file.
func NewLog(dir string, limit int64) (*logFile, error) {
	l, err := openLog(dir)
	if err == nil {
		l.max = limit
	}
	return l, err
}

// Drain is (*logFile).drain.
var Drain = (*logFile).drain
