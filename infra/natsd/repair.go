package natsd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	repairEvery = 2 * time.Second
	repairPause = 15 * time.Second // after a repair
	repairSpace = 1 << 20          // bytes that the disk must take first
)

// keepRepaired starts JetStream again where a failed write has ended it and the disk
// takes data again: the server itself leaves that to a restart of the process. Clients
// stay connected; what was acknowledged is recovered from disk, streams in memory are
// gone.
func (s *Server) keepRepaired() {
	defer close(s.repaired)
	<-s.started
	timer := time.NewTimer(repairEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.stopping:
			return
		case <-timer.C:
		}
		pause := repairEvery
		if why := s.writeFailure(); why != nil && s.writable() == nil {
			s.log.Warn("the disk takes data again; starting JetStream anew", "after", why)
			if err := s.restartJetStream(); err != nil {
				s.log.Error("could not start JetStream anew", "error", err)
			}
			pause = repairPause
		}
		timer.Reset(pause)
	}
}

// writeFailure is the failed write that keeps a stream from storing, if there is one.
func (s *Server) writeFailure() error {
	if !s.ns.JetStreamEnabled() {
		return errors.New("JetStream is off")
	}
	status := s.ns.Healthz(&server.HealthzOptions{Details: true})
	for _, fault := range status.Errors {
		if strings.Contains(fault.Error, "write error") {
			return errors.New(fault.Error)
		}
	}
	return nil
}

// writable tries the disk.
func (s *Server) writable() (err error) {
	file, err := os.CreateTemp(s.dir, ".space-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	if _, err := file.Write(make([]byte, repairSpace)); err != nil {
		return err
	}
	return file.Sync()
}

func (s *Server) restartJetStream() error {
	if err := s.ns.ShutdownJetStream(); err != nil {
		return fmt.Errorf("stop JetStream: %w", err)
	}
	config := s.jetStream
	return s.ns.EnableJetStream(&config)
}
