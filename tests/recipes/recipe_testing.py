"""What the recipes share: a graph is patched, and what became of it is held against what must become of it.

    class Norms(RecipeTest):
        def test_square_by_mul(self):
            ...
            self.fused(g.model(), ["LigerRMSNorm"])            # fused, and right with kernels and with bodies
            self.refused(h.model(), reason="epsilon is no")   # left as it is; the report says why

`fused` runs the original with optimisations disabled, the result with the library and without it, and patches the
result again, which must change nothing. `refused` wants the file left alone.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime

from graph import NUMPY

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]

# Largest difference to the unpatched model in one row, in parts of the row's largest element.
LIMITS = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-13}


def session(model, library=False, level="all", profile=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = {"all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
                                        "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL}[level]
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if library:
        options.register_custom_ops_library(LIBRARY)
    source = str(model) if isinstance(model, pathlib.Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(model, feeds, library=False, level="all"):
    """Outputs of a model or file by name."""
    s = session(model, library, level)
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feeds), strict=True))


def rows_with_extremes(shape, dtype=np.float32, seed=7):
    """Normal numbers; the first rows: mean square about 1e-5 (an epsilon matters), zeros, about 600."""
    values = np.random.default_rng(seed).normal(size=shape)
    if len(shape) >= 2:
        rows = values.reshape(-1, shape[-1])
        if len(rows) > 3:
            for row, factor in enumerate((3e-3, 0.0, 600.0)):
                rows[row] *= factor
    return values.astype(dtype)


def feeds_for(model, given=None):
    given = dict(given or {})
    stored = {i.name for i in model.graph.initializer}
    for i, value in enumerate(model.graph.input):
        if value.name not in given and value.name not in stored:
            tensor = value.type.tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else 3 for d in tensor.shape.dim]
            given[value.name] = rows_with_extremes(shape, NUMPY[tensor.elem_type], seed=7 + i)
    return given


def graphs_of(model):
    """The main graph and every nested one, then the nodes of the model's own functions that are not liger's."""
    work = [model.graph] + [f for f in model.functions if f.domain != "liger"]
    while work:
        graph = work.pop()
        yield graph
        work += [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]


def fused_nodes(model):
    return [n for graph in graphs_of(model) for n in graph.node if n.domain == "liger"]


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


class RecipeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name).resolve()

    def command(self, *arguments, env=None):
        return subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.folder, env=env)

    def fails(self, code, sentence, *arguments):
        """A run that must end with this exit code and one sentence on stderr, and write no model."""
        before = sorted(self.folder.rglob("*.onnx"))
        result = self.command(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, sentence)
        self.assertEqual(sorted(self.folder.rglob("*.onnx")), before)
        return result

    def save(self, model, name="model.onnx"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return path

    def patch(self, model, *arguments, family="any", code=0):
        """Patches `model`; (report, patched model). Without any match the patched model is the original."""
        path = self.save(model)
        out = self.folder / "patched.onnx"
        out.unlink(missing_ok=True)
        chosen = ("--family", family) if family else ()
        result = self.command(path, "-o", out, *chosen, *arguments, "--report", "report.json")
        self.assertEqual(result.returncode, code, result.stderr)
        self.report = json.loads((self.folder / "report.json").read_text())
        if not out.exists():
            self.assertIn(self.report["status"], ("nothing_to_do", "dry_run", "error"))
            return self.report, model
        patched = onnx.load(out)
        onnx.checker.check_model(patched, full_check=True)
        self.assertEqual(patched.graph.input, model.graph.input)
        self.assertEqual(patched.graph.output, model.graph.output)
        names = [n.name for n in patched.graph.node if n.name]
        self.assertEqual(len(names), len(set(names)), "a node name stands twice")
        return self.report, patched

    def fused(self, model, ops, *arguments, feeds=None, limits=None, again=True, body_level="all", **options):
        """Exactly these fused ops, right results, nothing left to do; (report, patched model)."""
        report, patched = self.patch(model, *arguments, **options)
        self.assertEqual(sorted(n.op_type for n in fused_nodes(patched)), sorted(ops), self.reasons())
        self.same_results(model, patched, feeds, limits, body_level)
        if again and ops:
            second = self.command("patched.onnx", "-o", "again.onnx", *arguments, "--report", "again.json",
                                  *(("--family", "any") if options.get("family", "any") == "any" else ()))
            self.assertEqual(second.returncode, 0, second.stderr)
            again = json.loads((self.folder / "again.json").read_text())
            self.assertEqual(again["status"], "nothing_to_do")
            self.assertFalse((self.folder / "again.onnx").exists())
            for name, module in report["modules"].items():
                self.assertEqual(again["modules"][name]["patched"], 0, name)
                self.assertEqual(again["modules"][name]["already_fused"], module["patched"] + module["already_fused"],
                                 name)
        return report, patched

    def refused(self, model, *arguments, reason=None, guard=None, **options):
        """Nothing is replaced, no file written; the report gives a reason that matches where one is wanted."""
        report, patched = self.patch(model, *arguments, **options)
        self.assertEqual([n.op_type for n in fused_nodes(patched)], [])
        self.assertIn(report["status"], ("nothing_to_do", "dry_run"))
        if reason is not None or guard is not None:
            given = self.refusals()
            self.assertTrue(any(re.search(reason or "", r["reason"]) and (guard is None or r["guard"] == guard)
                                for r in given), f"no refusal {guard} /{reason}/ in {self.reasons()}")
        return report

    def never_wrong(self, model, *arguments, feeds=None, limits=None, body_level="all", **options):
        """Whatever is replaced, the results are right; (report, patched model)."""
        report, patched = self.patch(model, *arguments, **options)
        if report["output"]:
            self.same_results(model, patched, feeds, limits, body_level)
        return report, patched

    def refusals(self):
        return [*self.report["missed"], *self.report["degraded"], *self.report["near_misses"]]

    def reasons(self):
        return [(r["module"], r["guard"], r["reason"]) for r in self.refusals()]

    def same_results(self, model, patched, feeds=None, limits=None, body_level="all"):
        feeds = feeds_for(model, feeds)
        wanted = run(model, feeds, level="none")
        for library, level in ((True, "all"), (False, body_level)):
            got = run(patched, feeds, library, level)
            for name, want in wanted.items():
                self.assert_close(got[name], want, f"{name} {'with the library' if library else 'from the bodies'}",
                                  limits)

    def assert_close(self, got, want, what="", limits=None):
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), what)
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, what)
            return
        limit = (limits or LIMITS)[want.dtype]
        got, want = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(np.isfinite(got), finite, what)
        np.testing.assert_array_equal(got[~finite], want[~finite], what)
        got, want = np.where(finite, got, 0), np.where(finite, want, 0)
        scale = np.max(np.abs(want), axis=-1, keepdims=True, initial=0.0) if want.ndim else np.abs(want)
        worst = np.max(np.abs(got - want) / np.maximum(scale, 1e-30), initial=0.0)
        self.assertLessEqual(worst, limit, what)


def peak_memory(command, folder):
    """Exit code, stderr and the largest resident size in bytes of a command."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=errors, cwd=folder)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return child.returncode, errors.read(), usage.ru_maxrss * 1024


def norm_f64(x, w=1.0, eps=1e-5, b=None):
    """RMSNorm in f64; with b LayerNorm."""
    x = np.asarray(x, np.float64)
    d = x if b is None else x - x.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * np.asarray(w, np.float64)
    return y if b is None else y + np.asarray(b, np.float64)


def rotate_half_f64(x, cos, sin):
    x = np.asarray(x, np.float64)
    low, high = np.split(x, 2, -1)
    return x * cos + np.concatenate([-high, low], -1) * sin


