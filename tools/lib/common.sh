# Shared by the scripts in tools/: messages, places, small checks. Source it; it changes nothing by itself.
#
#   . "$(dirname "$(readlink -f "$0")")/lib/common.sh"
#
# Sets root (the repository), build, cache, deps, venv, python (of the virtual environment), jobs.

set -euo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
build=$root/build
cache=$build/cache
deps=$build/deps
venv=$build/venv
python=$venv/bin/python
# One compiler job takes up to 1 GiB: no more jobs than cores, nor than memory allows.
jobs=$(nproc)
memory_gib=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || echo 4)
if ((memory_gib < jobs)); then jobs=$((memory_gib > 0 ? memory_gib : 1)); fi
jobs=${LIGER_JOBS:-$jobs}

if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' red='' plain=''
fi

# say TEXT: what happens now. Diagnostics go to stderr, results to stdout.
say() { printf '%s== %s%s\n' "$bold" "$*" "$plain" >&2; }

# fail TEXT [HINT...]: ends the script with exit code 1.
fail() {
  printf '%serror:%s %s\n' "$red" "$plain" "$1" >&2
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# sha256_of FILE
sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# matches_sha256 FILE HASH
matches_sha256() { [[ -f $1 && $(sha256_of "$1") == "$2" ]]; }

# version_at_least HAVE WANT
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

# quietly LOG COMMAND...: output goes to LOG; its end is shown if the command fails.
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status != 0)); then
    printf '%scommand failed (exit code %d):%s %s\n' "$red" "$status" "$plain" "$*" >&2
    tail -n 40 "$log" | sed 's/^/  | /' >&2
    printf '  all of its output: %s\n' "$log" >&2
  fi
  return "$status"
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset=$1
  shift
  local options=()
  if [[ -n ${LIGER_ORT_INCLUDE_DIR:-} ]]; then
    options+=("-DLIGER_ORT_INCLUDE_DIR=$LIGER_ORT_INCLUDE_DIR")
  fi
  say "configure preset $preset"
  (cd "$root" && quietly "$build/logs/configure-$preset.log" \
    cmake --preset "$preset" "${options[@]}") ||
    fail "the build could not be configured" "is tools/setup.sh done?"
  say "build preset $preset ($jobs jobs)"
  local targets=()
  if (($# > 0)); then targets=(--target "$@"); fi
  (cd "$root" && cmake --build "$build/$preset" -j "$jobs" "${targets[@]}" </dev/null >&2) ||
    fail "the build failed"
}
