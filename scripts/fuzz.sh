#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, each for some seconds:
#
#   fuzz.sh SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1

# "package-folder file target", sorted. No compiling is needed to find them.
mapfile -t targets < <(
  find . -path ./.tools -prune -o -path ./tools -prune -o -name '*_test.go' -print0 |
    xargs -0 grep -HoE '^func Fuzz[A-Za-z0-9_]+\(' |
    sed -E 's|^(.*)/([^/]*):func (Fuzz[A-Za-z0-9_]+)\(|\1 \2 \3|' | sort -u
)
[[ ${#targets[@]} -gt 0 ]] || { echo "fuzz: no targets found" >&2 && exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log corpus=$(go env GOCACHE)/fuzz

# In a few seconds coverage guides the engine nowhere. The targets are then compiled as the
# tests are, and so is what they use, most of which Go's cache has.
guided=()
[[ $seconds -lt 10 ]] || guided=(-fuzz=.)

# compile builds one program of a folder with the targets of it, or of the files there.
compile() {
  local folder=$1
  shift
  (cd "$folder" && go test -c -vet=off ${guided[@]+"${guided[@]}"} -o "$work/targets" "$@") >"$log" 2>&1
}

# build builds the program with the targets of one file. Everything in it is compiled for
# fuzzing, which takes a minute for the NATS server: where other tests of the package run
# one, the file is built with the code that it is named after, or with the package's own.
build() {
  local folder=$1 file=$2 code
  if go list -deps -test "$folder" | grep -q '^github.com/nats-io/nats-server/'; then
    compile "$folder" "${file%_test.go}.go" "$file" && return
    mapfile -t code < <(go list -f '{{range .GoFiles}}{{println .}}{{end}}' "$folder" | grep .)
    compile "$folder" "${code[@]}" "$file" && return
  fi
  compile "$folder" .
}

# fuzz runs one target of the program as `go test -fuzz` does: in its folder, with the
# inputs that earlier runs found.
fuzz() {
  (cd "$1" && "$work/targets" -test.run='^$' -test.fuzz="^$2\$" -test.fuzztime="${seconds}s" \
    -test.fuzzcachedir="$corpus/$(go list .)" -test.paniconexit0) >"$log" 2>&1
}

# passes runs one target, and once more after the engine reported its own deadline as a
# failure (go.dev/issue/75804); a real one always writes the failing input.
passes() {
  fuzz "$@" && return
  grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log" && fuzz "$@"
}

built=''
for target in "${targets[@]}"; do
  read -r folder file name <<<"$target"
  if [[ $built != "$folder/$file" ]]; then
    build "$folder" "$file" || { cat "$log" && exit 1; }
    built=$folder/$file
  fi
  echo "fuzz: $name for ${seconds}s"
  passes "$folder" "$name" || { cat "$log" && exit 1; }
  grep '^fuzz: elapsed' "$log" | tail -n 1
done
