#!/usr/bin/env python3
"""Runs liger-patch over the backend tests of the installed ONNX and checks that none of them is harmed.

    build/venv/bin/python tools/zero_harm.py                       # all of them, some minutes
    build/venv/bin/python tools/zero_harm.py normalization 'softmax.*'   # names that contain one of these patterns

The models are ONNX's own: a case of every operator, with inputs and the outputs they must give, made by
onnx.backend.test. They are no language models, so what is rewritten in them is a rewrite that nobody asked for, and
must still be right. Each one is patched as a llama and by structure alone (`--family any`), with every module on.

Where a model was written, its outputs in ONNX Runtime, with the library and without it, must meet the stored ones as
the original's do. Where none was, exit code and report have to say so, and no file may be there. Prints how many
models there were, how many were rewritten, how many are harmed, and how many rewritten ones ONNX Runtime cannot run as
they are. Exit code 1 if one is harmed.
"""
import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import pathlib
import re
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import recall

# Modules that are tried by structure. The two losses exclude each other.
MODULES = ("rope", "rms_norm", "layer_norm", "swiglu", "geglu", "softmax", "group_norm", "cross_entropy")
CASES = []  # filled before the processes are forked, which find it there


def collect(patterns=()):
    """The cases whose name contains one of the patterns; all without a pattern."""
    import onnx.backend.test.case.model
    import onnx.backend.test.case.node
    import onnx.backend.test.loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy, about what the reference implementations divide by
        cases = [*onnx.backend.test.case.node.collect_testcases(None),
                 *onnx.backend.test.case.model.collect_testcases()]
    # Those that ONNX stores in files.
    for kind in ("pytorch-converted", "pytorch-operator"):
        cases += onnx.backend.test.loader.load_model_tests(kind=kind)
    kept = {}
    for case in cases:
        if case.kind != "real" and (not patterns or any(re.search(p, case.name) for p in patterns)):
            kept.setdefault(case.name, case)
    return [kept[name] for name in sorted(kept)]


def stored_arrays(folder, pattern):
    import onnx

    tensors = []
    for path in sorted(folder.glob(pattern), key=lambda p: int(p.stem.rpartition("_")[2])):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        tensors.append(onnx.numpy_helper.to_array(tensor))
    return tensors


def data_sets(case):
    if case.model is not None:
        return case.data_sets
    return [(stored_arrays(folder, "input_*.pb"), stored_arrays(folder, "output_*.pb"))
            for folder in sorted(pathlib.Path(case.model_dir).glob("test_data_set_*"))]


def model_bytes(case):
    return (case.model.SerializeToString() if case.model is not None
            else (pathlib.Path(case.model_dir) / "model.onnx").read_bytes())


def close(got, wanted, case):
    """As onnx.backend.test.runner compares, for tensors, sequences and optional values."""
    import numpy as np

    if isinstance(wanted, (list, tuple)):
        return len(got) == len(wanted) and all(close(g, w, case) for g, w in zip(got, wanted))
    if got is None or wanted is None:
        return got is None and wanted is None
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        return False
    if wanted.dtype == object or wanted.dtype.kind in "US":
        return bool((got == wanted).all())
    if wanted.dtype.kind not in "biufc":
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    return bool(np.allclose(got, wanted, rtol=case.rtol, atol=case.atol, equal_nan=True))


def run(path, case, library=None):
    """Outputs of each data set, or an exception."""
    import onnx

    session = recall.open_session(path, library)
    names = [i.name for i in session.get_inputs()]
    results = []
    for inputs, _ in data_sets(case):
        inputs = [onnx.numpy_helper.to_array(i) if isinstance(i, onnx.TensorProto) else i for i in inputs]
        results.append(session.run(None, dict(zip(names, inputs))))
    return results


def judge_numbers(original, patched, case, library):
    """(verdict, detail): "same", "not run" or "harmed"."""
    import onnx

    try:
        before, failed = run(original, case), ""
    except Exception as error:  # ONNX Runtime's own classes share no base but Exception
        before, failed = None, recall.short_text(str(error), original.parent)
    wanted = [[onnx.numpy_helper.to_array(o) if isinstance(o, onnx.TensorProto) else o for o in outputs]
              for _, outputs in data_sets(case)]
    # Where the runtime itself gives something else than ONNX stored, its own result is what must stay.
    if before is not None and not close(before, wanted, case):
        wanted = before
    for how, lib in (("with the library", library), ("without the library", None)):
        try:
            after = run(patched, case, lib)
        except Exception as error:
            if failed:  # such as a type that the runtime has no kernel for
                return "not run", failed
            return "harmed", f"{how}: " + recall.short_text(str(error), patched.parent)
        if not close(after, wanted, case):
            return "harmed", f"{how} the outputs are others"
    return "same", ""


def documented_refusal(code, report, model):
    """Whether a run without a model ended as docs/exit-codes.md says. The report must say the same as the code."""
    import onnx

    if code == 0:
        return report.get("status") == "nothing_to_do"
    if code != 3 or report.get("status") != "error" or not report.get("diagnostics"):
        return False
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions or max(versions) < 13:
        return True
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return True
    return False


def examine(job):
    """All routes of one case: a list of dicts."""
    import onnx

    case = CASES[job["index"]]
    results = []
    with tempfile.TemporaryDirectory(dir=job["scratch"]) as scratch:
        original, patched = pathlib.Path(scratch) / "model.onnx", pathlib.Path(scratch) / "patched.onnx"
        content = model_bytes(case)
        original.write_bytes(content)
        for family, options in job["routes"].items():
            patched.unlink(missing_ok=True)
            code, report = recall.call(job["patcher"], [original, "-o", patched, "--family", family, *options],
                                       pathlib.Path(scratch) / "report.json")
            result = dict(case=case.name, family=family, exit=code, verdict="", detail="", ops=[])
            if original.read_bytes() != content:
                result.update(verdict="harmed", detail="the input was changed")
            elif code == 0 and patched.is_file() and report.get("status") == "ok":
                result["ops"] = sorted({p["op"] for p in report["patched"]})
                result["verdict"], result["detail"] = judge_numbers(original, patched, case, job["library"])
            elif not patched.is_file() and documented_refusal(code, report, onnx.load_model_from_string(content)):
                result["verdict"] = "untouched" if code == 0 else "refused"
            else:
                said = "; ".join(d["message"] for d in report.get("diagnostics", []))
                result.update(verdict="harmed", detail=f"exit code {code}, status {report.get('status')}, "
                              f"{'a' if patched.is_file() else 'no'} file: {recall.short_text(said, original.parent)}")
            results.append(result)
    return results


def routes(patcher, scratch):
    """{family: options}: every module that this version knows."""
    probe = pathlib.Path(scratch) / "probe.onnx"
    probe.write_bytes(model_bytes(next(c for c in CASES if c.kind == "node")))
    known = [m for m in MODULES
             if recall.call(patcher, [probe, "--family", "any", "--modules", m, "--exclude", "none", "--dry-run"],
                            pathlib.Path(scratch) / "report.json")[0] not in (2, 4)]
    return {"llama": ["--exclude", "none"], "any": ["--modules", ",".join(known), "--exclude", "none"]}


def examine_all(patcher, library, patterns=(), jobs=2):
    """(results, routes)."""
    CASES[:] = collect(patterns)
    with tempfile.TemporaryDirectory(prefix="liger-zero-harm-") as scratch:
        ways = routes(patcher, scratch)
        work = [dict(index=i, patcher=str(patcher), library=str(library), scratch=scratch, routes=ways)
                for i in range(len(CASES))]
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
            results = [r for found in pool.map(examine, work, chunksize=8) for r in found]
    return results, ways


def print_results(results, ways, every=False):
    for family, options in ways.items():
        mine = [r for r in results if r["family"] == family]
        counted = collections.Counter(r["verdict"] for r in mine)
        rewritten = [r for r in mine if r["ops"]]
        ops = collections.Counter(op for r in rewritten for op in r["ops"])
        print(f"--family {family} {' '.join(options)}")
        print(f"  {len(mine)} models: {len(rewritten)} rewritten, {counted['untouched']} without anything to do, "
              f"{counted['refused']} refused (opset below 13, or no valid model)")
        print(f"  {counted['harmed']} harmed; {counted['not run']} of the rewritten ones ONNX Runtime cannot run as "
              "they are")
        print("  " + (", ".join(f"{op} in {n}" for op, n in sorted(ops.items())) or "no op fused"))
    for r in results:
        if r["verdict"] == "harmed" or every and (r["ops"] or r["verdict"] == "refused"):
            print(f"{r['verdict'].upper()}  {r['case']} --family {r['family']}: {' '.join(r['ops'])} {r['detail']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.partition("\n\n")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="regular expressions; a case whose name contains one is run")
    parser.add_argument("--every", action="store_true", help="name the rewritten and refused cases as well")
    parser.add_argument("--json", type=pathlib.Path, help="write the result of every case")
    recall.add_binaries(parser)
    arguments = parser.parse_args()
    for path in (arguments.patcher, arguments.library):
        if not pathlib.Path(path).is_file():
            parser.error(f"{path} is not there: build it, or name it with --patcher and --library")
    results, ways = examine_all(arguments.patcher, arguments.library, arguments.patterns, arguments.jobs)
    if not results:
        parser.error("no case has such a name")
    print_results(results, ways, arguments.every)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(r["verdict"] == "harmed" for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
