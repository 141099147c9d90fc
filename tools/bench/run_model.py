#!/usr/bin/env python3
"""Times a model and its patched form in ONNX Runtime on the CPU: original, with our kernels, by the bodies alone.

    build/venv/bin/python tools/bench/run_model.py ORIGINAL.onnx PATCHED.onnx --library LIB [--threads N]
        [--shape NAME:batch=1,sequence=128,past=0 ...] [--repeat N]

All sessions use graph optimisation ALL. Repetitions are interleaved; medians count, and the best of each is shown
beside them, which a busy machine moves less. The last column is the time in all operators but the matrix products,
by ONNX Runtime's own profile: what fusing can change at all. Outputs are compared first: a wrong result is an error,
not a time.
"""
import argparse
import collections
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import compare

SHAPES = ["prefill 128:batch=1,sequence=128,past=0", "prefill 512:batch=1,sequence=512,past=0",
          "decode at 128:batch=1,sequence=1,past=128", "decode at 512:batch=1,sequence=1,past=512"]


def operator_times(path, library, threads, inputs, repeat):
    """Seconds per run by op type: over the runs of a profile, the median for each node, summed."""
    with tempfile.TemporaryDirectory() as scratch:
        session = compare.open_session(path, library, os.path.join(scratch, "profile"), threads)
        for _ in range(repeat):
            session.run(None, inputs)
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    nodes = collections.defaultdict(list)
    for event in events:
        if event.get("name", "").endswith("_kernel_time"):
            nodes[event["name"], event["args"]["op_name"]].append(event["dur"] * 1e-6)
    totals = collections.Counter()
    for (_, op), durations in nodes.items():
        totals[op] += statistics.median(durations)
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("original")
    parser.add_argument("patched")
    parser.add_argument("--library", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--limit", type=float, default=1e-4)
    a = parser.parse_args()
    files = {"original": (a.original, None), "patched, library": (a.patched, a.library),
             "patched, bodies": (a.patched, None)}
    sessions = {k: compare.open_session(*v, threads=a.threads) for k, v in files.items()}
    for shape in a.shape or SHAPES:
        name, _, text = shape.partition(":")
        sizes = {k: int(v) for k, v in (s.split("=") for s in text.split(",") if s)}
        inputs = compare.make_inputs(sessions["original"], sizes)
        outputs = {k: s.run(None, inputs) for k, s in sessions.items()}
        scale = compare.largest(outputs["original"])
        for key in list(sessions)[1:]:
            worst = compare.difference(outputs["original"], outputs[key])
            if not worst <= a.limit * scale:
                sys.exit(f"run_model.py: {name}, {key}: differs by {worst:.3g}, largest output {scale:.3g}")
        times = {k: [] for k in sessions}
        for _ in range(a.repeat):
            for key, session in sessions.items():
                start = time.perf_counter()
                session.run(None, inputs)
                times[key].append(time.perf_counter() - start)
        products = ("MatMul", "FusedMatMul", "Gemm")
        rest = {k: sum(t for op, t in operator_times(*v, a.threads, inputs, a.repeat).items()
                       if op not in products) for k, v in files.items()}
        print(f"  {name}")
        for key, values in times.items():
            median, best = statistics.median(values), min(values)
            base = times["original"]
            print(f"    {key:16s}  median {median * 1e3:8.2f} ms x{statistics.median(base) / median:.3f}"
                  f"   best {best * 1e3:8.2f} ms x{min(base) / best:.3f}"
                  f"   but products {rest[key] * 1e3:7.2f} ms x{rest['original'] / rest[key]:.2f}", flush=True)


if __name__ == "__main__":
    main()
