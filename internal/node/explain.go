package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/peerrelay/peerrelay/schema"
)

// ExplainDatabase puts what an operator can do about it before an error of
// schema.Up.
func ExplainDatabase(err error) error {
	if _, ok := errors.AsType[net.Error](err); ok {
		return fmt.Errorf("the database could not be reached: %w", err)
	}
	const insufficientPrivilege = "42501" // PostgreSQL, appendix A
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if ok && state.SQLState() == insufficientPrivilege && !errors.Is(err, schema.ErrRole) {
		return fmt.Errorf("the user of the database URL must own the database and what is in it: %w", err)
	}
	return err
}

// natsServers is a list of NATS addresses, as nats.Connect takes it, without the
// users, passwords and tokens in it; empty when one of them is no address.
func natsServers(list string) string {
	if list == "" {
		return ""
	}
	var servers []string
	for server := range strings.SplitSeq(list, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		parsed, err := url.Parse(server)
		if err != nil || parsed.Host == "" {
			return ""
		}
		servers = append(servers, (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host}).String())
	}
	return strings.Join(servers, ",")
}

// natsError names the address that did not answer. What is wrong with one that
// cannot be read is not told: it may hold a password.
func natsError(list string, err error) error {
	servers := natsServers(list)
	if _, unreadable := errors.AsType[*url.Error](err); unreadable || servers == "" {
		return errors.New("--nats-url is not an address such as nats://127.0.0.1:4222")
	}
	return fmt.Errorf("connect to %s: %w", servers, err)
}
