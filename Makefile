# Peer Relay. `make help` lists what there is to type.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# What `make run` and `make demo` hand to the program, e.g. ARGS="--data /srv/relay".
ARGS ?=

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -X main.version=$(VERSION)

# Whatever is not under the race detector is compiled in one way, the tests and the programs that
# they build too: the relay with all it needs takes two minutes of a processor each time, and
# what one target has compiled the others find in Go's cache.
PLAIN := CGO_ENABLED=0 GOFLAGS="$(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath)"

# Tools are built once for each set of versions and each Go.
TOOLS       := .tools/bin
TOOLS_STAMP  = .tools/main-$(shell (cat tools/go.mod tools/go.sum; go version) | sha256sum | cut -c1-16)
NATS_STAMP   = .tools/nats-$(shell (cat tools/nats/go.mod tools/nats/go.sum; go version) | sha256sum | cut -c1-16)

## help: list the targets
.PHONY: help
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' Makefile | awk -F '\t' '{printf "  make %-11s %s\n", $$1, $$2}'

## run: install what is missing, build, and run a relay (ARGS="--listen 127.0.0.1:9000")
.PHONY: run
run: $(if $(or $(RELAY_DATABASE_URL),$(findstring --database-url,$(ARGS))),,setup) build
	@exec bin/relay serve $(ARGS)

## demo: show store, delivery, resume and a killed server, in under a minute
.PHONY: demo
demo: setup build
	@exec bin/demo $(ARGS)

## setup: install the PostgreSQL server programs where they are missing
.PHONY: setup
setup:
	@scripts/setup.sh postgres

## build: build bin/relay, bin/peer and bin/relaybench
.PHONY: build
build:
	@mkdir -p bin
	$(PLAIN) go build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/... ./internal/demo

## nats-server: build bin/nats-server, of the version that is embedded, for a cluster
.PHONY: nats-server
nats-server:
	@mkdir -p bin
	$(PLAIN) go build -o bin/nats-server github.com/nats-io/nats-server/v2

# What the tests need besides Go: PostgreSQL, a C compiler for the race detector, and
# the `nats` program for the recipes of docs/operations.md.
.PHONY: setup-test
setup-test:
	@scripts/setup.sh postgres cc
	@$(MAKE) -s $(NATS_STAMP)

# Packages that share memory between goroutines, whose tests run under the race detector, those
# that take longest first. The rest are functions of their arguments, or drive other processes;
# test-long has them all under it.
CONCURRENT := ./internal/e2e ./inbox ./store/... ./api ./client ./client/keystore ./cmd/peer ./cluster ./outbox ./relay/...

# Tests mostly wait, for a disk, an election or a deadline: of each package, more run at once
# than there are processors. `make verify` vets, more strictly than `go test` would once more.
TESTFLAGS := -vet=off -shuffle=on -parallel 4 -timeout 25m

## test: all tests, with the race detector where goroutines share memory
.PHONY: test
test: setup-test
	go test -race $(TESTFLAGS) $(CONCURRENT)
	$(PLAIN) go test $(TESTFLAGS) $$(go list ./... | grep -vxF "$$(go list $(CONCURRENT))")

## test-long: all tests with the race detector, and many more rounds of random work
.PHONY: test-long
test-long: setup-test
	PEERRELAY_LONG_TESTS=1 go test -race -vet=off -shuffle=on -timeout 120m ./...

## race: the tests of PKG ten times over with the race detector (PKG=./relay/...)
PKG ?= ./...
.PHONY: race
race: setup-test
	go test -race -vet=off -shuffle=on -count=10 -timeout 60m $(PKG)

## fuzz: fuzz each target for five minutes (FUZZTIME=300); make test runs what was found before
FUZZTIME ?= 300
.PHONY: fuzz
fuzz:
	$(PLAIN) scripts/fuzz.sh $(FUZZTIME)

## soak: kill a loaded relay 20 times and account for every envelope
.PHONY: soak
soak: setup build
	bin/relaybench kill --json $(ARGS)

## bench: measure everything that docs/performance.md shows
BENCHES ?= idle pairwise room latency reconnect replay inboxes edge private notices board history
.PHONY: bench
bench: setup build
	@for bench in $(BENCHES); do echo "relaybench $$bench"; bin/relaybench $$bench $(ARGS); done

## generate: write the generated code again
.PHONY: generate
generate: tools
	$(TOOLS)/sqlc generate
	go generate ./...

## fmt: format the code
.PHONY: fmt
fmt: tools
	$(TOOLS)/golangci-lint fmt

## lint: run the linters
.PHONY: lint
lint: tools
	$(PLAIN) $(TOOLS)/golangci-lint run

# Where `make test` has just passed (TESTED=1) verify does not run the same tests once more.
TESTED ?=

## verify: generated code, formatting, lint, modules, docs and import rules are as they should be
.PHONY: verify
verify: setup-test tools
	$(TOOLS)/sqlc diff
	$(TOOLS)/golangci-lint fmt --diff
	$(PLAIN) $(TOOLS)/golangci-lint run
	go mod tidy -diff
	cd tools && go mod tidy -diff
	cd tools/nats && go mod tidy -diff
	$(if $(TESTED),,$(PLAIN) go test -vet=off -count=1 ./internal/archtest ./internal/doctest ./schema)

## tools: build the pinned linters, generators and the nats program into .tools/bin
.PHONY: tools
tools:
	@$(MAKE) -s $(TOOLS_STAMP) $(NATS_STAMP)

$(TOOLS_STAMP):
	@mkdir -p $(TOOLS)
	@echo "building sqlc and golangci-lint (some minutes, once)"
	$(PLAIN) go build -modfile=tools/go.mod -o $(TOOLS)/ github.com/sqlc-dev/sqlc/cmd/sqlc github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@rm -f .tools/main-* && touch $@

$(NATS_STAMP):
	@mkdir -p $(TOOLS)
	@echo "building the nats program (once)"
	$(PLAIN) go build -modfile=tools/nats/go.mod -o $(TOOLS)/ github.com/nats-io/natscli/nats
	@rm -f .tools/nats-* && touch $@

## clean: remove what was built; data and tools stay
.PHONY: clean
clean:
	rm -rf bin
	go clean -testcache
