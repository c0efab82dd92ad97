#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other:
#
#   fuzz.sh SECONDS [TOTAL]
#
# SECONDS is for each target; with TOTAL, each gets less when all together would
# take longer than TOTAL seconds, but never under one second.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1 total=${2:-0}

# "package-folder target", sorted. No compiling is needed to find them.
mapfile -t targets < <(
  find . -path ./.tools -prune -o -path ./tools -prune -o -name '*_test.go' -print0 |
    xargs -0 grep -HoE '^func Fuzz[A-Za-z0-9_]+\(' |
    sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]+)\(|\1 \2|' | sort -u
)
[[ ${#targets[@]} -gt 0 ]] || { echo "fuzz: no targets found" >&2 && exit 1; }
if [[ $total -gt 0 && $((seconds * ${#targets[@]})) -gt $total ]]; then
  seconds=$((total / ${#targets[@]}))
  [[ $seconds -ge 1 ]] || seconds=1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() {
  go test -run='^$' -fuzz="^$2\$" -fuzztime="${seconds}s" "$1" >"$log" 2>&1
}

# passes runs one target, and once more after the Go tool reported its own deadline
# as a failure (go.dev/issue/75804); a real one always writes the failing input.
passes() {
  fuzz "$@" && return
  grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log" && fuzz "$@"
}

for target in "${targets[@]}"; do
  read -r folder name <<<"$target"
  echo "fuzz: $name for ${seconds}s"
  passes "$folder" "$name" || { cat "$log" && exit 1; }
  tail -n 1 "$log"
done
