package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"
)

const maxConfig = 1 << 20

// configFile makes kong's JSON resolver strict about names, so that a misspelled one is
// an error, and puts it behind the environment.
func configFile(r io.Reader) (kong.Resolver, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("the configuration is not one JSON object: %w", err)
	}
	inner, err := kong.JSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return &configResolver{Resolver: inner, values: values}, nil
}

type configResolver struct {
	kong.Resolver
	values map[string]any
}

// Resolve leaves alone what the environment sets.
func (c *configResolver) Resolve(context *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	return c.Resolver.Resolve(context, parent, flag)
}

// Validate refuses names that are no flag of any command.
func (c *configResolver) Validate(app *kong.Application) error {
	known := make(map[string]bool)
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known[strings.ReplaceAll(flag.Name, "-", "_")] = true
		}
		return next(nil)
	})
	for name := range c.values {
		if !known[name] {
			return errors.New("the configuration names " + fmt.Sprintf("%q", name) + ", which is no flag (write listen, tls_cert, ...)")
		}
	}
	return nil
}
