#!/usr/bin/env python3
"""Runs a model and its patched form in ONNX Runtime and prints how far their outputs are apart.

    build/venv/bin/python tools/compare.py ORIGINAL.onnx PATCHED.onnx [--library build/release/lib/libliger_ort.so]
        [--inputs FILE.npz] [--size NAME=N ...] [--no-bodies] [--limit X]

Without --inputs they are made: token ids, masks of ones, positions that count up, normal numbers else. --size sets
symbolic axes by their name or role: batch=2, sequence=8, past=4, vocabulary=32 are the defaults. FILE.npz holds
one array per input, named as the input or `in_<input>`. The patched model is run with the library (its kernels) and without it (the function bodies).
Prints the largest difference and the largest output. Exit code 0 if each is within --limit times the largest
output (default 1e-5 for fp32, 5e-2 for 16-bit models), 1 if not, 2 if a model cannot be run.
"""
import argparse
import collections
import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import onnxruntime

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def open_session(path, library=None, profile=None, threads=0, level="all"):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.graph_optimization_level = {
        "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL}[level]
    if library:
        options.register_custom_ops_library(str(library))
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def make_inputs(session, sizes, seed=0):
    """Plausible inputs from names, types and shapes; the same for every run of one seed.

    Symbolic axes get a size by name where `sizes` has it, else by their role: batch, sequence (of the new tokens),
    past (of a cache), and past + sequence for the mask that covers both.
    """
    random = np.random.default_rng(seed)
    has_cache = any(v.name.startswith("past") for v in session.get_inputs())
    batch, sequence = sizes.get("batch", 2), sizes.get("sequence", 8)
    past = sizes.get("past", 4) if has_cache else 0
    inputs = {}
    for value in session.get_inputs():
        is_cache, is_mask = value.name.startswith("past"), "mask" in value.name
        roles = {0: batch, 1: past + sequence if is_mask else sequence, 2: past if is_cache else sequence}
        shape = [size if isinstance(size, int) else sizes.get(size, roles.get(axis, sequence))
                 for axis, size in enumerate(value.shape)]
        dtype = TYPES.get(value.type)
        if dtype is None:
            raise ValueError(f"input {value.name} is {value.type}: give it with --inputs")
        if is_mask:
            inputs[value.name] = np.ones(shape, dtype)
        elif "position" in value.name:
            inputs[value.name] = np.broadcast_to(past + np.arange(shape[-1]), shape).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            inputs[value.name] = random.integers(0, sizes.get("vocabulary", 32), shape).astype(dtype)
        else:
            inputs[value.name] = random.standard_normal(shape).astype(dtype)
    return inputs


def read_inputs(path, session):
    arrays = np.load(path)
    inputs = {}
    for value in session.get_inputs():
        name = "in_" + value.name if "in_" + value.name in arrays else value.name
        if name not in arrays:
            raise ValueError(f"{path} has no array for the input {value.name}")
        inputs[value.name] = arrays[name]
    return inputs


def largest(arrays):
    return max((float(np.abs(a.astype(np.float64)).max()) for a in arrays if a.size), default=0.0)


def difference(left, right):
    """Largest absolute difference; equal NaNs and infinities count as equal, others as infinite."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return float("inf")
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.abs(a[~same] - b[~same])
        if gap.size:
            worst = max(worst, float("inf") if not np.isfinite(gap).all() else float(gap.max()))
    return worst


def kernels_run(path, library, inputs):
    """How often each op of the liger domain ran, by ONNX Runtime's own profile."""
    with tempfile.TemporaryDirectory() as scratch:
        session = open_session(path, library, profile=os.path.join(scratch, "profile"))
        session.run(None, inputs)
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    names = [e["args"]["op_name"] for e in events if e.get("name", "").endswith("_kernel_time")]
    return collections.Counter(n for n in names if n.startswith("Liger"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("original")
    parser.add_argument("patched")
    parser.add_argument("--library", help="libliger_ort.so; without it only the bodies are run")
    parser.add_argument("--inputs", help=".npz with one array per input")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N",
                        help="size of a symbolic axis, by name or role")
    parser.add_argument("--no-bodies", action="store_true", help="do not run without the library")
    parser.add_argument("--limit", type=float, help="accepted difference, relative to the largest output")
    arguments = parser.parse_args()
    try:
        sizes = {k: int(v) for k, v in (s.split("=", 1) for s in arguments.size)}
    except ValueError:
        parser.error("--size wants NAME=N")

    try:
        original = open_session(arguments.original)
        inputs = (read_inputs(arguments.inputs, original) if arguments.inputs
                  else make_inputs(original, sizes))
        expected = original.run(None, inputs)
        runs = []
        if arguments.library:
            session = open_session(arguments.patched, arguments.library)
            runs.append(("with the library", session.run(None, inputs)))
        if not arguments.no_bodies:
            runs.append(("without the library", open_session(arguments.patched).run(None, inputs)))
        used = kernels_run(arguments.patched, arguments.library, inputs) if arguments.library else {}
    except Exception as error:  # ONNX Runtime's own classes share no base but Exception
        print(f"compare.py: {error}", file=sys.stderr)
        return 2

    scale = largest(expected)
    half = any(v.type == "tensor(float16)" for v in original.get_outputs())
    limit = arguments.limit if arguments.limit is not None else (5e-2 if half else 1e-5)
    print(f"original against patched, ONNX Runtime {onnxruntime.__version__}, CPU; "
          f"largest output {scale:.4g}")
    passed = True
    for name, outputs in runs:
        worst = difference(expected, outputs)
        passed &= worst <= limit * scale
        print(f"  {name + ':':22s} largest difference {worst:.3g}"
              f"{'' if worst <= limit * scale else f'  MORE THAN {limit:g} OF THE LARGEST OUTPUT'}")
    if arguments.library:
        listing = ", ".join(f"{n} x {c}" for n, c in sorted(used.items())) or "none"
        print(f"  kernels that ran:      {listing}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
