//go:build !linux

package front

import (
	"errors"
	"net"
)

// poller stands for the absence of one: every connection takes the blocking path.
type poller struct{}

func startPoller(*Front) (*poller, error) { return &poller{}, nil }

func (p *poller) usable() bool   { return false }
func (p *poller) stop()          {}
func (p *poller) conns() []*conn { return nil }
func (p *poller) start(*conn)    {}
func (p *poller) tune(net.Conn)  {}

func (p *poller) attach(*conn, *net.TCPConn) error { return errors.ErrUnsupported }

// OpenFiles is a guess: the open-files limit cannot be asked for everywhere.
func OpenFiles() (webSockets, reserve int) { return 4096, 1024 }
