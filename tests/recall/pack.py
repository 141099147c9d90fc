#!/usr/bin/env python3
"""Packs a folder of exports and what is true of them into exports.tar.xz and truth.json beside this script.

    tests/recall/pack.py EXPORTS SUMMARY.json

EXPORTS holds UNIT/VARIANT.onnx, UNIT/VARIANT.npz and UNIT/config.json. SUMMARY.json describes them: for each unit what
hooks on the running model saw (`ground_truth`), for each file exporter, opset, dtype and operator counts. The same
input gives the same bytes. README.md says what the true numbers mean.
"""
import argparse
import collections
import json
import lzma
import pathlib
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 10_000_000
# Arguments of a rotary function that are tables or positions; every other one is a tensor that it rotates.
TABLES = {"cos", "sin", "freqs_cis", "freqs_ci", "position_ids"}
GATED = {"gate+up", "gate_up_packed"}
# Units that are a part or a text-only class of a family with a helper of its own.
FAMILIES = {"llama4_text": "llama4", "mllama_text_model": "mllama", "qwen3_5_text": "qwen3_5",
            "qwen3_5_moe_text": "qwen3_5_moe"}


def rotations(rotary):
    """Rotated tensors: calls times tensors of one call. A function that calls another one rotates nothing itself."""
    callers = {caller for f in rotary.values() for caller in f["callers"]}
    total = 0
    for name, f in rotary.items():
        if name.rpartition(".")[2] in callers:
            continue
        tensors = {len(set(shape) - TABLES) for shape in f["shapes"]}
        if len(tensors) != 1:
            raise ValueError(f"{name} rotates {sorted(tensors)} tensors a call")
        total += f["calls"] * tensors.pop()
    return total


def true_counts(truth, export):
    """{module: instances} of one file, from what its unit did when it ran and from what the exporter kept."""
    counts = collections.Counter(rope=rotations(truth["rotary"]))
    for name, norm in truth["norms"].items():
        counts["layer_norm" if norm["bias"] or "LayerNorm" in name else "rms_norm"] += norm["calls"]
    # Layers whose result nobody reads are called, and dropped by the exporter: the ones it kept are single nodes
    # (LayerNormalization, at all opsets that occur).
    counts["layer_norm"] = min(counts["layer_norm"], export["ops"].get("LayerNormalization", 0))
    for mlp in truth["mlps"].values():
        if mlp["kind"] not in GATED:
            continue
        if mlp["stacked_experts"] and export["variant"].startswith("eagerexperts_"):
            # One gated product per expert that the traced tokens reached. These routers have no Sigmoid of their own.
            counts["swiglu"] += export["ops"]["Sigmoid"]
            continue
        # gpt_oss spells its activation out: g * sigmoid(1.702 * g).
        kinds = {"geglu" if a.startswith("GELU") else "swiglu" for a in mlp["act"] if a in (
            "SiLUActivation", "GELUTanh", "GELUActivation", "None")}
        if len(kinds) != 1:
            raise ValueError(f"activations {mlp['act']}")
        counts[kinds.pop()] += mlp["calls"]
    return {module: n for module, n in sorted(counts.items()) if n}


def facts(summary):
    units = summary["units"]
    described = {}
    for export in summary["exports"]:
        if not export["ok"]:
            continue
        unit = units[export["unit"]]
        described[export["file"]] = dict(
            family=FAMILIES.get(export["unit"], export["unit"].removesuffix("_lang").removesuffix("_vis")),
            exporter="dynamo" if export["dynamo"] else "TorchScript", opset=export["opset"]["ai.onnx"],
            dtype={"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[export["dtype"]],
            dynamic=export["dynamic"], truth=true_counts(unit["ground_truth"], export))
    return described


def add(archive, path, name):
    entry = tarfile.TarInfo(name)  # no owner, no time: the same input gives the same bytes
    entry.size = path.stat().st_size
    with path.open("rb") as file:
        archive.addfile(entry, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("exports", type=pathlib.Path)
    parser.add_argument("summary", type=pathlib.Path)
    arguments = parser.parse_args()
    summary = json.loads(arguments.summary.read_text())
    described = {name: f for name, f in facts(summary).items() if (arguments.exports / name).is_file()}
    unknown = {str(p.relative_to(arguments.exports)) for p in arguments.exports.glob("*/*.onnx")} - set(described)
    if unknown:
        sys.exit(f"pack.py: {arguments.summary} says nothing about {', '.join(sorted(unknown))}")

    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 64 << 20}]  # variants of a unit share their weights
    target = HERE / "exports.tar.xz"
    with lzma.open(target, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for unit in sorted({name.partition("/")[0] for name in described}):
            for path in sorted((arguments.exports / unit).iterdir()):
                add(archive, path, f"{unit}/{path.name}")
    if target.stat().st_size > LIMIT:
        sys.exit(f"pack.py: {target} has {target.stat().st_size} bytes; {LIMIT} are accepted")

    lines = [f"{json.dumps(name)}: {json.dumps(described[name])}" for name in sorted(described)]
    (HERE / "truth.json").write_text(
        '{"torch": %s, "transformers": %s, "files": {\n%s\n}}\n'
        % (json.dumps(summary["torch"]), json.dumps(summary["transformers"]), ",\n".join(lines)))
    print(f"{len(described)} exports, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
