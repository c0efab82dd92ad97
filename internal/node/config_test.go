package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// DESIGN section 2: what each role has, and what it cannot have.
func TestConfigOfRoles(t *testing.T) {
	t.Parallel()
	edge := Config{
		Role: RoleEdge, Data: "d", APIURL: "http://10.0.0.1:8787", NATSURL: "nats://10.0.0.1:4222", ServiceTokenFile: "t",
	}
	with := func(c Config, change func(*Config)) Config { change(&c); return c }
	for name, valid := range map[string]Config{
		"all":                  {Data: "d"},
		"api":                  {Data: "d", Role: RoleAPI},
		"api, external":        {Data: "d", Role: RoleAPI, NATSURL: "nats://a", InboxReplicas: 3},
		"api, shared token":    {Data: "d", Role: RoleAPI, ServiceTokenFile: "t"},
		"edge":                 edge,
		"edge, token":          with(edge, func(c *Config) { c.ServiceTokenFile, c.ServiceToken = "", "t" }),
		"edge, context":        with(edge, func(c *Config) { c.NATSURL, c.NATSContext = "", "edge.json" }),
		"all, context, copies": {Data: "d", NATSContext: "c", InboxReplicas: 3},
	} {
		require.NoError(t, valid.Validate(), name)
	}
	for text, wrong := range map[string]Config{
		"the data folder is missing":                             {},
		`--role "front": use "all", "api" or "edge"`:             {Data: "d", Role: "front"},
		"--role edge needs --api-url":                            with(edge, func(c *Config) { c.APIURL = "" }),
		"--api-url must be an http or https address":             with(edge, func(c *Config) { c.APIURL = "10.0.0.1:8787" }),
		"without user, path or query":                            with(edge, func(c *Config) { c.APIURL = "http://u:p@h/" }),
		"--role edge needs --nats-url or --nats-context":         with(edge, func(c *Config) { c.NATSURL = "" }),
		"--role edge needs the service token":                    with(edge, func(c *Config) { c.ServiceTokenFile = "" }),
		"--role edge has no database":                            with(edge, func(c *Config) { c.DatabaseURL = "postgres://" }),
		"two ways to say one thing":                              with(edge, func(c *Config) { c.ServiceToken = "t" }),
		"--nats-replicas needs an external cluster (--nats-url)": {Data: "d", Role: RoleAPI, InboxReplicas: 3},
		"--tls-cert and --tls-key go together":                   {Data: "d", TLSCert: "c"},
		`--inbox-sync "never"`:                                   {Data: "d", InboxSync: "never"},
	} {
		err := wrong.Validate()
		require.ErrorIs(t, err, ErrConfig, text)
		require.ErrorContains(t, err, text)
		_, err = Start(t.Context(), wrong)
		require.ErrorIs(t, err, ErrConfig, "nothing is started: %s", text)
	}
}
