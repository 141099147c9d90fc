#!/usr/bin/env bash
# Measures patching: time and peak memory, beside a plain load and save of the same file.
#
#   tools/bench_patch.sh [--repeat N] [MODEL.onnx ...]
#
# Without a model: three exports of tests/models and a generated 32-layer decoder of 8B shape in fp16, whose 16 GB of
# weights are a sparse file. The yardsticks are a C++ program that parses and writes the file with protobuf alone, and
# Python's onnx package (its interpreter's start-up included). Output goes to the model's own folder and is deleted.

. "$(dirname "$(readlink -f "$0")")/lib/common.sh"

repeat=7
models=()
while (($# > 0)); do
  case $1 in
    --repeat) shift; repeat=${1:?--repeat wants a number} ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "unknown option $1" "tools/bench_patch.sh --help shows what there is" ;;
    *) models+=("$(readlink -f "$1")") ;;
  esac
  shift
done

"$root/tools/setup.sh" </dev/null
configure_and_build release bin/liger-patch
patcher=$build/release/bin/liger-patch
out=$build/bench
load_save=$out/load_save
mkdir -p "$out"

source=$root/tools/bench/load_save.cc
if [[ ! -x $load_save || $source -nt $load_save ]]; then
  say "build the yardstick (parse and serialise)"
  quietly "$build/logs/load-save.log" g++ -std=c++20 -O2 -DONNX_ML=1 -DONNX_NAMESPACE=onnx \
    -isystem "$deps/onnx/include" "$source" -o "$load_save" "$deps/onnx/lib/libonnx_proto.a" -lprotobuf ||
    fail "tools/bench/load_save.cc could not be built"
fi

if ((${#models[@]} == 0)); then
  copies=$out/small
  mkdir -p "$copies"
  for name in llama/past_dynamo_op20_dyn llama/mask_ts_op17_dyn qwen3/fp16_dynamo_op23; do
    mkdir -p "$copies/${name%/*}"
    cp "$root/tests/models/$name.onnx" "$root/tests/models/${name%/*}/config.json" "$copies/${name%/*}/"
    models+=("$copies/$name.onnx")
  done
  say "write the large graph (32 layers, 8B shape, fp16, sparse weights)"
  large=$out/llama-8b-shape/model.onnx
  "$python" "$root/tools/bench/make_large.py" "$large" >&2
  models+=("$large")
fi

for model in "${models[@]}"; do
  target=$(dirname "$model")/bench-output.$$.onnx
  trap 'rm -f "$target"' EXIT
  printf '%s (%s bytes)\n' "${model#"$root"/}" "$(stat -L -c %s "$model")"
  python3 "$root/tools/bench/measure.py" --repeat "$repeat" \
    "load and save, C++=$(printf '%q %q %q' "$load_save" "$model" "$target")" \
    "load and save, Python=$(printf '%q -c %q %q %q' "$python" \
      'import sys, onnx; onnx.save(onnx.load(sys.argv[1], load_external_data=False), sys.argv[2])' \
      "$model" "$target")" \
    "liger-patch=$(printf '%q %q --modules auto -o %q' "$patcher" "$model" "$target")" \
    "liger-patch --dry-run=$(printf '%q %q --modules auto --dry-run' "$patcher" "$model")"
  rm -f "$target"
done
