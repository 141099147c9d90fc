"""Every form of reference graphs in its variations, and what only looks like one: what is fused, and what is said.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so python forms_test.py
    ... python forms_test.py Forms.test_rope -k "ROPE-3"      # one section; -k TEXT: only cases whose name holds TEXT

One module per section holds its cases (rms_norm.py, rope.py, ...): read them as the catalogue of what the tool
supports. Each case is one small graph; many stand in one model, which the command line patches with `--family any`.
Checked are the fused ops and every attribute of theirs, or the reason the report gives; then the original, with ONNX
Runtime's optimisations off, is run against the patched model with the library's kernels and with the function bodies,
on rows of all kinds (zeros, mean square about epsilon, large ones): f32 within a relative L2 distance of 1e-6, f16
1e-3. ONNX Runtime's CPU provider has no bf16: there ONNX's reference evaluator runs the bodies.
"""
import collections
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import rms_norm
from case import DTYPE_ATTRIBUTES
from graph import BF16, F16, F32, F64, NUMPY, joined

PATCHER = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]
SECTIONS = ("rms_norm", "gemma", "layer_norm", "skip_norm", "cos_sin", "rope", "swiglu", "geglu", "group_norm",
            "softmax", "look_alikes")
TOLERANCE = {F32: 1e-6, F16: 1e-3, BF16: 8e-3, F64: 1e-14}
BATCH = 24
WANTED = ""


def patch(model, folder, modules, arguments):
    """(report, patched model, or the model itself if nothing was fused); ValueError if the command fails."""
    source, target, report = folder / "in.onnx", folder / "out.onnx", folder / "report.json"
    source.write_bytes(model.SerializeToString())
    target.unlink(missing_ok=True)
    command = [PATCHER, str(source), "--family", "any", "-o", str(target), "--report", str(report), *arguments]
    if modules:
        command += ["--modules", modules]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(report.read_text()), onnx.load(target) if target.exists() else model


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def of_case(prefix, names):
    return any(n.startswith(prefix) for n in names)


def fused_nodes(model, prefix):
    def value(attribute):
        value = onnx.helper.get_attribute_value(attribute)
        return value.decode() if isinstance(value, bytes) else value

    return [(n.op_type, {a.name: value(a)
                         for a in n.attribute})
            for n in nodes_of(model.graph)
            if n.domain == "liger" and of_case(prefix, [*n.output, *n.input])]


def same(got, wanted, dtype):
    """Captured numbers are those of the graph: rounded to its dtype."""
    if isinstance(wanted, str) or isinstance(got, str):
        return got == wanted
    return np.float32(got) in (np.float32(wanted), np.float32(NUMPY[dtype](wanted)))


def op_failures(case, fused, patched):
    """What differs between the fused nodes and `fused`."""
    got = fused_nodes(patched, case.prefix)
    wanted = [(o, {k: case.dtype if v == "T" and k in DTYPE_ATTRIBUTES else v for k, v in a.items()}) for o, a in fused
             ]
    if collections.Counter(o for o, _ in got) != collections.Counter(o for o, _ in wanted):
        return [f"fused {[o for o, _ in got]}, wanted {[o for o, _ in wanted]}"]
    failures = []
    for op_type, attributes in got:
        for i, (o, a) in enumerate(wanted):
            if o == op_type and all(k in attributes and same(attributes[k], v, case.dtype) for k, v in a.items()):
                del wanted[i]
                break
        else:
            failures.append(f"{op_type} has {attributes}, wanted {wanted}")
    return failures


def structure_failures(case, report, patched):
    def of(kind):
        return [entry for entry in report[kind] if of_case(case.prefix, [entry["node"]])]

    if any(not op_failures(case, other, patched) for other in case.others):
        return []
    said = [
        f"{entry['guard']}: {entry['reason']}" for kind in ("missed", "degraded", "near_misses") for entry in of(kind)
    ]
    said += [f"already fused: {json.dumps(entry)}" for entry in of("already_fused") if entry.get("reason")]
    said += [
        f"excluded: {entry['op']}" for entry in report["excluded"]["loss_ops"]
        if of_case(case.prefix, [entry["node"]])
    ]
    failures = op_failures(case, case.fused, patched)
    if failures:
        return [*failures, f"said: {said}"]
    precision = {p["precision"] for p in report["patched"] if of_case(case.prefix, [p["node"], *p["replaced"]])}
    if case.precision and precision != {case.precision}:
        failures.append(f"precision {precision}, wanted {case.precision}")
    for reason in case.reasons:
        if not any(re.search(reason, s, re.IGNORECASE) for s in said):
            failures.append(f"no reason like '{reason}' among {said}")
    for op_type in case.already:
        if not any(op_type in json.dumps(entry) for entry in of("already_fused")):
            failures.append(f"{op_type} is not among already_fused {of('already_fused')}")
    return failures


def run(how, model, feeds, library=False, optimise=True):
    if how == "reference":
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library:
        options.register_custom_ops_library(LIBRARY)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def distance(got, wanted):
    """Relative L2; elements that are no numbers must be the same."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    if got.shape != wanted.shape:
        return np.inf
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    norm = np.linalg.norm(wanted[finite])
    difference = np.linalg.norm(got[finite] - wanted[finite])
    return difference / norm if norm else difference


def number_failures(cases, model, patched):
    """{prefix: failures}: the model against the patched one, by the kernels and by the bodies."""
    how = cases[0].run
    feeds = {k: v for c in cases for k, v in c.feeds.items()}
    failures = {c.prefix: [] for c in cases}
    wanted = run(how, model, feeds, optimise=False)
    for kind in ("kernels", "bodies") if how == "ort" else ("bodies",):
        try:
            got = run(how, patched, feeds, library=kind == "kernels")
        except Exception as error:  # ONNX Runtime and the evaluator raise what they like
            for of_one in failures.values():
                of_one.append(f"{kind}: {type(error).__name__}: {str(error)[:400]}")
            continue
        for output, g, w in zip(model.graph.output, got, wanted, strict=True):
            (case,) = [c for c in cases if output.name.startswith(c.prefix)]
            limit = case.tolerance or TOLERANCE[case.dtype]
            if not (d := distance(g, w)) <= limit:
                failures[case.prefix].append(f"{output.name}, {kind}: relative L2 {d:.3g} > {limit:g}")
    return failures


def failures_of(cases, folder):
    """{prefix: failures} of cases that can stand in one model. An error of a runtime is one of all of them."""
    model = cases[0].model if len(cases) == 1 else joined([c.model for c in cases])
    try:
        report, patched = patch(model, folder, cases[0].modules, cases[0].arguments)
        failures = {c.prefix: structure_failures(c, report, patched) for c in cases}
        if cases[0].run and patched is not model:
            for prefix, more in number_failures(cases, model, patched).items():
                failures[prefix] += more
        return failures
    except Exception as error:  # of the command, or of the original in a runtime
        return {c.prefix: [f"{type(error).__name__}: {str(error)[:400]}"] for c in cases}


def batches(cases):
    """Cases of one opset and command line together: a run of the command costs more than a small graph."""
    groups = {}
    for case in cases:
        alone = case.prefix if case.model.functions else ""
        key = (case.model.opset_import[0].version, case.run, case.modules, tuple(case.arguments), alone)
        groups.setdefault(key, []).append(case)
    return [g[i:i + BATCH] for g in groups.values() for i in range(0, len(g), BATCH)]


class Forms(unittest.TestCase):
    count = 0

    def section(self, name):
        cases = [c for c in importlib.import_module(name).cases() if WANTED in c.name]
        self.assertEqual([n for n, k in collections.Counter(c.name for c in cases).items() if k > 1], [], "same name")
        Forms.count += len(cases)
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            for batch in batches(cases):
                together = failures_of(batch, folder)
                for case in batch:
                    with self.subTest(case.name):
                        # What fails is run again alone, so that nothing else in the model is to blame.
                        failures = together[case.prefix] and failures_of([case], folder)[case.prefix]
                        if failures:
                            self.fail("\n  ".join(["", *failures]))

    def test_opset_10(self):
        case = rms_norm.case("opset 10", rms_norm.of(rms_norm.rms_norm), [], opset=10)
        with tempfile.TemporaryDirectory() as scratch, self.assertRaisesRegex(ValueError, "exit code 3: .*opset 10"):
            patch(case.model, pathlib.Path(scratch), None, [])

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.count} cases", file=sys.stderr)


for section_name in SECTIONS:
    setattr(Forms, f"test_{section_name}", lambda self, name=section_name: self.section(name))

if __name__ == "__main__":
    if "-k" in sys.argv:
        at = sys.argv.index("-k")
        WANTED = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
