package node

import (
	"context"
	"errors"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/remote"
)

// startRemote makes the client of the node that has the database. That this node does not
// answer yet is no error: the edge is not ready until it does.
func (n *Node) startRemote(context.Context) error {
	token, err := n.givenToken()
	if err != nil {
		return err
	}
	client, err := remote.Open(remote.Config{
		URL:        n.cfg.APIURL,
		Token:      token,
		Timeout:    n.cfg.StoreTimeout,
		Logger:     n.log,
		Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.store = client
	n.onClose("API client", func(context.Context) error { client.Close(); return nil })
	return nil
}

// givenToken is the service token that this node was configured with; empty without one.
func (n *Node) givenToken() (string, error) {
	if n.cfg.ServiceTokenFile != "" {
		return api.ReadServiceToken(n.cfg.ServiceTokenFile)
	}
	return n.cfg.ServiceToken, nil
}

var errServiceToken = errors.New("RELAY_SERVICE_TOKEN is not a service token")

// serviceToken is the hash of the token that edges have to show this node: a given one, or
// the data folder's own, made at the first start.
func (n *Node) serviceToken() (store.TokenHash, error) {
	given, err := n.givenToken()
	if err != nil {
		return store.TokenHash{}, err
	}
	if given == "" {
		return api.LoadServiceToken(n.cfg.Data)
	}
	hash, ok := store.HashToken([]byte(given))
	if !ok {
		return store.TokenHash{}, errServiceToken
	}
	return hash, nil
}
