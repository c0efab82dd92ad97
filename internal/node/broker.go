package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/nats-io/nats.go"
)

// broker is where an external NATS is and how to sign in there.
type broker struct {
	url     string
	options []nats.Option
}

// findBroker puts the settings of an external NATS together: the address of NATSURL comes
// before the one of the context.
func (c Config) findBroker() (broker, error) {
	b := broker{url: c.NATSURL}
	if c.NATSContext != "" {
		var err error
		if b, err = readContext(c.NATSContext); err != nil {
			return broker{}, err
		}
		b.url = cmp.Or(c.NATSURL, b.url)
		if b.url == "" {
			return broker{}, fmt.Errorf("%s has no url: add one, or use --nats-url", c.NATSContext)
		}
	}
	if c.NATSCreds != "" {
		b.options = append(b.options, nats.UserCredentials(c.NATSCreds))
	}
	return b, nil
}

const maxContext = 64 << 10 // bytes of a context file

// readContext reads a context file of the nats program (natscli, jsm.go/natscontext).
// Settings that this program does not know are an error, not passed over: without one of
// them a connection would be another one than the file asks for.
func readContext(path string) (broker, error) {
	file, err := os.Open(path)
	if err != nil {
		return broker{}, fmt.Errorf("read --nats-context: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxContext))
	if err != nil {
		return broker{}, fmt.Errorf("read --nats-context: %w", err)
	}
	var settings map[string]any
	if json.Unmarshal(text, &settings) != nil { // its error may quote a password
		return broker{}, fmt.Errorf("--nats-context %s is not a context file of the nats program", path)
	}
	b, err := contextBroker(settings)
	if err != nil {
		return broker{}, fmt.Errorf("--nats-context %s: %w", path, err)
	}
	return b, nil
}

func contextBroker(settings map[string]any) (broker, error) {
	take := func(name string) string {
		text, _ := settings[name].(string)
		delete(settings, name)
		return text
	}
	b := broker{url: take("url")}
	if user, password := take("user"), take("password"); password != "" {
		b.options = append(b.options, nats.UserInfo(user, password))
	} else if user != "" {
		return broker{}, errors.New("a user without a password")
	}
	if token := take("token"); token != "" {
		b.options = append(b.options, nats.Token(token))
	}
	if creds := take("creds"); creds != "" {
		b.options = append(b.options, nats.UserCredentials(creds))
	}
	if ca := take("ca"); ca != "" {
		b.options = append(b.options, nats.RootCAs(ca))
	}
	if cert, key := take("cert"), take("key"); cert != "" || key != "" {
		b.options = append(b.options, nats.ClientCert(cert, key))
	}
	take("description")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if value := settings[name]; value != nil && value != "" && value != false {
			return broker{}, fmt.Errorf("the setting %q is not supported", name)
		}
	}
	return b, nil
}
