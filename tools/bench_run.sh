#!/usr/bin/env bash
# Measures running: a generated decoder in ONNX Runtime on the CPU, original against patched, and each kernel alone.
#
#   tools/bench_run.sh [--repeat N] [--threads N] [--dtype fp32|fp16] [--no-kernels]
#
# The model has 4 layers, hidden size 1024 and real random weights; it is written below build/ in three spellings of
# the norm: as torch exports it, as ONNX Runtime fuses it by itself, and as RMSNormalization. A factor above 1 means
# that the patched model is faster than the original.

. "$(dirname "$(readlink -f "$0")")/lib/common.sh"

repeat=15 threads=$(nproc) dtype=fp32 kernels=1
while (($# > 0)); do
  case $1 in
    --repeat) shift; repeat=${1:?--repeat wants a number} ;;
    --threads) shift; threads=${1:?--threads wants a number} ;;
    --dtype) shift; dtype=${1:?--dtype wants fp32 or fp16} ;;
    --no-kernels) kernels=0 ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown option $1" "tools/bench_run.sh --help shows what there is" ;;
  esac
  shift
done

"$root/tools/setup.sh" </dev/null
configure_and_build release bin/liger-patch lib/libliger_ort.so
library=$build/release/lib/libliger_ort.so

grep -m1 'model name' /proc/cpuinfo | sed 's/.*: /CPU: /' || true
printf 'threads %d, %s, %d repetitions, medians\n' "$threads" "$dtype" "$repeat"
limit=1e-4
if [[ $dtype == fp16 ]]; then limit=5e-2; fi
for norm in reciprocal div op; do
  folder=$build/bench/run-$dtype-$norm
  model=$folder/model.onnx
  patched=$folder/model.liger.onnx
  if [[ ! -f $model.data || $root/tools/bench/make_large.py -nt $model ]]; then
    "$python" "$root/tools/bench/make_large.py" "$model" --layers 4 --hidden 1024 --intermediate 2816 \
      --heads 16 --kv-heads 8 --vocab 8192 --dtype "$dtype" --norm "$norm" --weights random >&2
  fi
  quietly "$build/logs/bench-patch.log" "$build/release/bin/liger-patch" "$model" --modules auto -o "$patched" ||
    fail "the model could not be patched"
  printf 'norm spelt as %s\n' "$norm"
  "$python" "$root/tools/bench/run_model.py" "$model" "$patched" --library "$library" \
    --threads "$threads" --repeat "$repeat" --limit "$limit" </dev/null
done

if ((kernels)); then
  if cmake --build "$build/release" --target help 2>/dev/null | grep -q '^bench_cpu:'; then
    configure_and_build release bench_cpu
  fi
  if [[ -x $build/release/bin/bench_cpu ]]; then
    say "each kernel alone"
    "$build/release/bin/bench_cpu" </dev/null
  else
    say "build/release/bin/bench_cpu is not built: no times of single kernels"
  fi
fi
