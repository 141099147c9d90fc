#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the kernels, checks them, times them. Needs CMake, Ninja, nvcc, GoogleTest;
# for the timing PyTorch, and Liger-Kernel to compare with.
#
#   kernels/bench/check_and_time.sh [OUT] [--no-sanitizer] [--no-check] [-- OPTIONS OF bench_cuda.py]
#
# Logs and the table go to OUT (build/kernels/out). Stops at the first check that fails.
set -euo pipefail

root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
build=$root/build/kernels
out=$build/out
sanitizer=1
check=1
bench=()
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --no-sanitizer) sanitizer=0 ;;
    --no-check) check=0 ;;
    --) shift; bench=("$@"); break ;;
    *) out=$1 ;;
  esac
  shift
done
mkdir -p "$out"

say() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

say "build"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLIGER_KERNELS_ONLY=ON -DLIGER_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="${LIGER_ARCHITECTURES:-native}" >"$out/configure.log" 2>&1 ||
  { cat "$out/configure.log"; exit 1; }
cmake --build "$build" --target liger_cuda_kernels_test liger_bench >"$out/build.log" 2>&1 ||
  { tail -40 "$out/build.log"; exit 1; }

if ((check)); then
  say "check against the f64 reference"
  "$build/bin/liger_cuda_kernels_test" --gtest_brief=1 >"$out/check.log" 2>&1 || status=$?
  tail -40 "$out/check.log"
  if ((${status:-0})); then exit 1; fi
fi
# sanitize TOOL FILTER: compute-sanitizer on the tests that GTEST_FILTER takes.
sanitize() {
  say "compute-sanitizer $1 $2"
  GTEST_FILTER=$2 compute-sanitizer --tool "$1" --error-exitcode 9 "$build/bin/liger_cuda_kernels_test" \
    --gtest_brief=1 >"$out/$1.log" 2>&1 || { tail -40 "$out/$1.log"; exit 1; }
  tail -2 "$out/$1.log"
}
if ((sanitizer)); then
  # Every kernel by its small cases, and the streamed ones; the large cases would take hours here.
  small='*-*32Bit*:*ManyShortRows*:*ManyRows*:*Large*:*WideRows*:*ShapesOfModels*:*EveryForm*:*EveryType*:*EveryPacking*'
  small+=':*NormalisesTheRounded*:*Precision*:*AppliesLimit*:*AppliesAlpha*:*Outlier*:Status.*'
  sanitize racecheck "$small"
  sanitize memcheck "$small"
  sanitize memcheck 'Softmax.MatchesOracleForWideRows:GroupNorm.MatchesOracleForLargeGroups'
fi

say "time"
python3 "$root/kernels/bench/bench_cuda.py" --library "$build/lib/libliger_bench.so" --json "$out/bench.json" \
  "${bench[@]}" | tee "$out/bench.md"
say "done"
