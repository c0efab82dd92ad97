// Package deploy holds what operators copy: a compose file, systemd units, and the
// configuration of a NATS cluster, on which the tests of several nodes run, too.
package deploy

import "embed"

// NATSCluster is nats-cluster.conf.
//
//go:embed nats-cluster.conf
var NATSCluster string

// Files are all of them.
//
//go:embed Dockerfile docker-compose.yml nats-cluster.conf relay.service relay-edge.service
var Files embed.FS
