#!/usr/bin/env bash
# Sets up, builds, patches a real export and runs it in ONNX Runtime: from a clone to a result in one command.
#
#   tools/quickstart.sh [MODEL.onnx] [-- OPTIONS OF liger-patch]
#
# Without MODEL a small Llama of tests/models is patched. Results go to build/quickstart.

. "$(dirname "$(readlink -f "$0")")/lib/common.sh"

model=$root/tests/models/llama/past_dynamo_op20_dyn.onnx
options=()
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; options=("$@"); break ;;
    -*) fail "unknown option $1" "tools/quickstart.sh --help shows what there is" ;;
    *) model=$(readlink -f "$1") ;;
  esac
  shift
done
[[ -f $model ]] || fail "there is no file $model"

"$root/tools/setup.sh" </dev/null
configure_and_build release bin/liger-patch lib/libliger_ort.so

out=$build/quickstart
stem=$(basename "$model" .onnx)
patched=$out/$stem.liger.onnx
mkdir -p "$out"
# From here on as a reader would type it in the folder of the clone.
cd "$root"
model=${model#"$root"/} patched=${patched#"$root"/} report=build/quickstart/$stem.report.json
command=(build/release/bin/liger-patch "$model" --modules auto --external-data copy
  -o "$patched" --report "$report" "${options[@]}")
say "patch $model"
printf '$ %s\n' "${command[*]}"
status=0
"${command[@]}" </dev/null || status=$?
((status == 0)) || fail "liger-patch ended with exit code $status (README: exit codes)"

compare=(build/venv/bin/python tools/compare.py "$model" "$patched"
  --library build/release/lib/libliger_ort.so)
inputs=${model%.onnx}.npz
if [[ -f $inputs ]]; then compare+=(--inputs "$inputs"); fi
say "run original and patched model in ONNX Runtime"
printf '\n$ %s\n' "${compare[*]}"
"${compare[@]}" </dev/null || fail "the patched model gave another result (see above)"

cat <<END

Report: $report
Try next, with an export of your own:
  build/release/bin/liger-patch YOUR.onnx --modules auto --dry-run      what would be fused, and why not the rest
  build/release/bin/liger-patch YOUR.onnx --modules auto                writes YOUR.liger.onnx beside it
  build/venv/bin/python tools/compare.py YOUR.onnx YOUR.liger.onnx --library build/release/lib/libliger_ort.so
In your program: SessionOptions.register_custom_ops_library("build/release/lib/libliger_ort.so") before the
session is made. Without it the same file runs by the function bodies it carries.
END
