package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serveNATSCommand is an external NATS server, set up as docs/operations.md says.
type serveNATSCommand struct {
	Listen string `required:""`
	Dir    string `required:""`
	Sync   string `default:"1s" enum:"1s,always"`
}

// Run serves until its standard input ends.
func (c *serveNATSCommand) Run(ctx context.Context, con console) error {
	host, portText, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	defer os.RemoveAll(c.Dir)
	broker, err := server.NewServer(&server.Options{
		Host: host, Port: port, JetStream: true, StoreDir: c.Dir, MaxPayload: 2 << 20, NoSigs: true, NoLog: true,
		SyncInterval: time.Second, SyncAlways: c.Sync == "always", ProfPort: server.RANDOM_PORT,
	})
	if err != nil {
		return err
	}
	broker.Start()
	defer func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	}()
	if !broker.ReadyForConnections(readyTimeout) {
		return errors.New("NATS is not ready")
	}
	if err := json.NewEncoder(con.out).Encode(servingAddress{c.Listen, broker.ProfilerAddr().String()}); err != nil {
		return err
	}
	ctx, cancel := untilEnd(ctx, con.in)
	defer cancel()
	<-ctx.Done()
	return nil
}
