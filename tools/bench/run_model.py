#!/usr/bin/env python3
"""Times a model and its patched form in ONNX Runtime on the CPU: original, with our kernels, by the bodies alone.

    build/venv/bin/python tools/bench/run_model.py ORIGINAL.onnx PATCHED.onnx --library LIB [--threads N]
        [--shape NAME:batch=1,sequence=128,past=0 ...] [--repeat N]

All sessions use graph optimisation ALL. Repetitions are interleaved; medians count. Outputs are compared first:
a wrong result is an error, not a time.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import compare

SHAPES = ["prefill 128:batch=1,sequence=128,past=0", "prefill 512:batch=1,sequence=512,past=0",
          "decode at 128:batch=1,sequence=1,past=128", "decode at 512:batch=1,sequence=1,past=512"]


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
    sessions = {
        "original": compare.open_session(a.original, threads=a.threads),
        "patched, library": compare.open_session(a.patched, a.library, threads=a.threads),
        "patched, bodies": compare.open_session(a.patched, threads=a.threads),
    }
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
        medians = {k: statistics.median(v) for k, v in times.items()}
        print(f"  {name}" + "".join(
            f"  | {k} {m * 1e3:.2f} ms" + ("" if k == "original" else f" (x{medians['original'] / m:.3f})")
            for k, m in medians.items()), flush=True)


if __name__ == "__main__":
    main()
