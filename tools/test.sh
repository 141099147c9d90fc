#!/usr/bin/env bash
# Sets up, builds and runs every test and the lint step. The last line is `N passed, N failed, N skipped`.
#
#   tools/test.sh [--asan] [--no-lint] [--tidy all|none] [-R REGEX]
#
#   --asan      build and test with the address and undefined-behaviour sanitizers too
#   --no-lint   no clang-format, no clang-tidy
#   --tidy none no clang-tidy (it is the slow part of the lint step; unchanged files are not checked again)
#   -R REGEX    only the tests whose names match
#
# Each test counts once, and so does each lint check. Exit code 0 if nothing failed.

. "$(dirname "$(readlink -f "$0")")/lib/common.sh"

presets=(release)
lint=1
tidy=all
filter=()
while (($# > 0)); do
  case $1 in
    --asan) presets+=(asan) ;;
    --no-lint) lint=0 ;;
    --tidy) shift; tidy=${1:-}; [[ $tidy == all || $tidy == none ]] || fail "--tidy wants all or none" ;;
    -R) shift; filter=(-R "${1:?-R wants a pattern}") ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown option $1" "tools/test.sh --help shows what there is" ;;
  esac
  shift
done

passed=0 failed=0 skipped=0

run_tests() {
  local preset=$1 results=$build/$1/test-results.xml counts status=0
  configure_and_build "$preset"
  say "test preset $preset"
  rm -f "$results"
  (cd "$root" && ctest --preset "$preset" -j "$jobs" "${filter[@]}" --no-tests=error \
    --output-junit "$results" </dev/null) || status=$?
  if [[ ! -f $results ]]; then
    ((failed += 1))
    say "preset $preset: ctest ran no test (exit code $status)"
    return 0
  fi
  counts=$(python3 "$root/tools/lib/count_tests.py" "$results")
  local p f s
  read -r p f s <<<"$counts"
  # ctest has the last word: it also fails when a test did not even start.
  if ((status != 0 && f == 0)); then f=1; fi
  ((passed += p, failed += f, skipped += s)) || true
}

# check NAME COMMAND...: one lint check. Exit code 77 means that it could not be made.
check() {
  local name=$1 status=0
  shift
  "$@" </dev/null >&2 || status=$?
  case $status in
    0) ((passed += 1)) ;;
    77) ((skipped += 1)); say "lint: $name skipped" ;;
    *) ((failed += 1)); say "lint: $name failed" ;;
  esac
}

# sources PATTERN...: files of the repository by name, one a line. Works in a checkout and in an unpacked archive.
sources() {
  local pattern names=() folder folders=()
  for pattern in "$@"; do names+=(-o -name "$pattern"); done
  for folder in src kernels tools tests .ci; do
    if [[ -d $root/$folder ]]; then folders+=("$folder"); fi
  done
  (cd "$root" && find "${folders[@]}" -type f \( "${names[@]:1}" \) | sort)
}

check_format() {
  have clang-format || return 77
  (cd "$root" && sources '*.cc' '*.h' '*.cu' '*.cuh' | xargs -r clang-format --dry-run -Werror)
}

check_scripts() {
  local file status=0
  while read -r file; do
    bash -n "$root/$file" || status=1
  done < <(sources '*.sh' run)
  while read -r file; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$root/$file" || status=1
  done < <(sources '*.py')
  return $status
}

# One stamp per file and state of all headers: an unchanged file is not checked twice.
# GCC is the compiler here. What clang-tidy's own front end does not know (C++20 beyond its release, names of CPU
# features, GCC's warning options) is no finding: the file has compiled.
tidy_one() {
  local file=$1 stamp findings status=0
  stamp=$build/tidy/$( (printf '%s\n' "$2"; cat "$root/$file") | sha256sum | cut -d' ' -f1)
  [[ -f $stamp ]] && return 0
  (cd "$root" && clang-tidy -p "$build/release" --quiet --extra-arg=-Wno-unknown-warning-option "$file") \
    >"$stamp.log" 2>"$stamp.err" || status=$?
  findings=$(grep -E '(error|warning): .*\[' "$stamp.log" | grep -v 'clang-diagnostic-error' || true)
  if [[ -z $findings ]] && { ((status == 0)) || grep -q 'clang-diagnostic-error' "$stamp.log"; }; then
    mv "$stamp.log" "$stamp"
    rm -f "$stamp.err"
    return 0
  fi
  cat "$stamp.log"
  if [[ -z $findings ]]; then cat "$stamp.err"; fi  # it did not get as far as a finding
  rm -f "$stamp.log" "$stamp.err"
  return 1
}

check_tidy() {
  have clang-tidy || return 77
  local headers
  headers=$( (cd "$root" && sources '*.h' | xargs -r cat; cat .clang-tidy; clang-tidy --version) |
    sha256sum | cut -d' ' -f1)
  mkdir -p "$build/tidy"
  export -f tidy_one
  export root build
  # Only files that the build compiles have flags to be checked with.
  sources '*.cc' | while read -r file; do
    if grep -qF "\"file\": \"$root/$file\"" "$build/release/compile_commands.json"; then
      printf '%s\n' "$file"
    fi
  done | xargs -r -P "$jobs" -I{} bash -c 'tidy_one "$1" "$2"' _ {} "$headers"
}

setup_options=()
if ((lint)); then setup_options+=(--lint); fi
"$root/tools/setup.sh" "${setup_options[@]}" </dev/null
for preset in "${presets[@]}"; do run_tests "$preset"; done
if ((lint)); then
  say "lint: scripts"
  check scripts check_scripts
  say "lint: clang-format"
  check clang-format check_format
  if [[ $tidy == all ]]; then
    say "lint: clang-tidy"
    check clang-tidy check_tidy
  fi
fi

printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0))
