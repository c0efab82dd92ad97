#!/usr/bin/env bash
# Makes sure that the programs named as arguments are there, and installs the
# missing ones with apt-get where that needs no question to be answered:
#
#   postgres   the PostgreSQL server programs, 15 or newer
#   cc         a C compiler, which the race detector needs
#
# Says nothing when all is there. Otherwise exit code 1 and the command to type.
set -euo pipefail

readonly min_postgres=15

# postgres_folders lists where the server programs may be: the one folder that
# RELAY_PG_BIN names, or PATH and the usual places (the relay looks there too).
postgres_folders() {
  if [[ -n ${RELAY_PG_BIN:-} ]]; then
    echo "$RELAY_PG_BIN"
    return
  fi
  dirname "$(command -v postgres || echo .)"
  printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin \
    /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
    /Applications/Postgres.app/Contents/Versions/*/bin
}

# find_postgres succeeds when a server program that is new enough is installed.
find_postgres() {
  local folder version
  while read -r folder; do
    [[ -x $folder/postgres ]] || continue
    version=$("$folder/postgres" --version 2>/dev/null | sed -n 's/^[^0-9]*\([0-9]\{1,\}\).*/\1/p')
    [[ -z $version || $version -lt $min_postgres ]] || return 0
  done < <(postgres_folders)
  return 1
}

have() {
  case $1 in
    postgres) find_postgres ;;
    cc) command -v "${CC:-gcc}" >/dev/null || command -v cc >/dev/null ;;
    *) echo "setup: unknown program \"$1\"" >&2 && exit 2 ;;
  esac
}

packages() {
  case $1 in
    postgres) echo postgresql ;;
    cc) echo gcc libc6-dev ;;
  esac
}

# as_root runs a command as root, or fails without asking for a password.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
  command -v apt-get >/dev/null || return 1
  [[ $(id -u) -eq 0 ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Debian's server package makes and starts a database cluster of its own. The relay
# runs its own, so ours is installed with that switched off; the switch is a
# drop-in file that is removed again, and clusters that exist are left alone.
readonly cluster_switch=/etc/postgresql-common/createcluster.d/peer-relay-setup.conf

install_packages() {
  echo "setup: installing $*"
  as_root mkdir -p "$(dirname "$cluster_switch")"
  echo 'create_main_cluster = false' | as_root tee "$cluster_switch" >/dev/null
  trap 'as_root rm -f "$cluster_switch"; as_root rmdir --ignore-fail-on-non-empty "$(dirname "$cluster_switch")"' EXIT
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}

missing=() wanted=()
for program in "$@"; do
  have "$program" && continue
  missing+=("$program")
  # shellcheck disable=SC2207 # a list of package names
  wanted+=($(packages "$program"))
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! can_install; then
  echo "setup: missing: ${missing[*]}. On Debian or Ubuntu type:" >&2
  echo "  sudo apt-get install ${wanted[*]}" >&2
  exit 1
fi
install_packages "${wanted[@]}" >&2
for program in "${missing[@]}"; do
  have "$program" && continue
  echo "setup: ${wanted[*]} installed, but $program is still missing (PostgreSQL must be $min_postgres or newer)" >&2
  exit 1
done
