"""A patched model goes through the tools that people run on models, and is patched again.

Each test is one tool on one model. Afterwards the same ops are fused as before, as often, or the second report names
each module instance that is gone; what it counts adds up; every fused node still has its function body, or the report names
the op that lost it; and the outputs are those of the original model.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so survival_test.py
"""
import collections
import os
import pathlib
import re
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import onnxsim
import onnxslim
from onnxruntime.transformers import float16

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import compare
import recall

PATCHER = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]
MODELS = ROOT / "tests" / "models"

# Both exporters, opsets with and without RMSNormalization, symbolic shapes, and every op: GeGLU and the norms of Gemma,
# LayerNorm and rotation in a vision tower, a packed gate. The second part comes from tests/recall.
OWN = ("llama/dynamo_op20.onnx", "llama/dynamo_op23.onnx", "qwen3/mask_ts_op17_dyn.onnx", "llama/fp16_dynamo_op20.onnx")
PACKED = ("gemma2/dynamo.onnx", "qwen2_vl_vis/dynamo.onnx", "phi3/dynamo.onnx")


def fused(report):
    """{module: {op: instances}}, of what was fused now and of what was already. One node may rotate two tensors."""
    ops = collections.defaultdict(collections.Counter)
    for entry in report["patched"]:
        ops[entry["module"]][entry["op"]] += len(entry["paths"])
    for entry in report["already_fused"]:
        ops[entry["module"]][entry["op"]] += entry["instances"]
    return {module: dict(found) for module, found in ops.items()}


def without_body(model):
    """Op types of fused nodes whose function the model does not hold."""
    held = {(f.name, f.overload) for f in model.functions if f.domain == "liger"}
    return {n.op_type for n in model.graph.node if n.domain == "liger" and (n.op_type, n.overload) not in held}


def instances(report):
    """{module: fused instances} of the enabled modules."""
    return {name: m["patched"] + m["already_fused"] for name, m in report["modules"].items() if m["enabled"]}


def sentences(report):
    return [d["message"] + " " + d["hint"] for d in report["diagnostics"]] + report["runtime_gaps"]


# The tools: from a patched model (a path) to what they make of it (a ModelProto).

def inline_all(path, scratch):
    return onnx.inliner.inline_local_functions(onnx.load(path))


def inline_one(path, scratch):
    model = onnx.load(path)
    return onnx.inliner.inline_selected_functions(model, [("liger", model.functions[-1].name)])


def slim(path, scratch):
    return onnxslim.slim(onnx.load(path))


def sim(path, scratch):
    model, checked = onnxsim.simplify(onnx.load(path))
    assert checked
    return model


def optimise(level, library, path, scratch):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(scratch / "optimised.onnx")
    if library:
        options.register_custom_ops_library(LIBRARY)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(scratch / "optimised.onnx")


def runtime(level, library):
    levels = onnxruntime.GraphOptimizationLevel
    chosen = {"basic": levels.ORT_ENABLE_BASIC, "extended": levels.ORT_ENABLE_EXTENDED}[level]
    return lambda path, scratch: optimise(chosen, library, path, scratch)


TOOLS = {
    "inliner": inline_all,
    "inliner_of_one_op": inline_one,
    "onnxslim": slim,
    "onnxsim": sim,
    "ort_basic_with_the_library": runtime("basic", True),
    "ort_extended_with_the_library": runtime("extended", True),
    "ort_basic_without_the_library": runtime("basic", False),
    "ort_extended_without_the_library": runtime("extended", False),
}


class PatchedModels(unittest.TestCase):
    """The models, patched once. `self.models[name]`: original, patched, report."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        packed = cls.folder / "packed"
        recall.unpack(packed, {pathlib.PurePath(name).parent.as_posix() for name in PACKED})
        cls.models = {}
        for name in cls.names:
            original = (MODELS if name in OWN else packed) / name
            patched = cls.folder / name.replace("/", "_")
            code, report = recall.patch(PATCHER, original, patched)
            cls.models[name] = original, patched, code, report

    def patched_model(self, name):
        original, patched, code, report = self.models[name]
        self.assertEqual((code, report["status"]), (0, "ok"), report["diagnostics"])
        return original, patched, report

    def patch_again(self, model, name):
        """(report, model as it is afterwards, its path)."""
        before = self.folder / "before.onnx"
        after = self.folder / "after.onnx"
        after.unlink(missing_ok=True)
        onnx.save(model, before)
        # config.json is not beside it: the stamp of the first run has to do.
        code, report = recall.patch(PATCHER, before, after)
        self.assertEqual(code, 0, report.get("diagnostics"))
        path = after if after.is_file() else before
        return report, onnx.load(path), path


class SurvivalTest(PatchedModels):
    names = OWN + PACKED

    def check(self, tool, name):
        original, patched, first = self.patched_model(name)
        self.assertTrue(fused(first))
        report, model, path = self.patch_again(TOOLS[tool](patched, self.folder), name)

        had, has = instances(first), instances(report)
        # Beyond what the first run had named.
        named = collections.Counter(e["module"] for kind in ("missed", "degraded") for e in report[kind])
        named.subtract(e["module"] for kind in ("missed", "degraded") for e in first[kind])
        gone = {m: n - has.get(m, 0) for m, n in had.items() if has.get(m, 0) < n}
        with self.subTest("what is gone is named"):
            self.assertEqual({m: n for m, n in gone.items() if named[m] < n}, {}, f"had {had}, has {has}")
        with self.subTest("the same ops"):
            self.assertEqual(*({m: found for m, found in fused(r).items() if m not in gone} for r in (report, first)))
        with self.subTest("nothing is said to be missed that was fused"):
            self.assertEqual({m: n for m, n in named.items() if n > gone.get(m, 0)}, {}, f"had {had}, has {has}")
        with self.subTest("the counts add up"):
            for module, m in report["modules"].items():
                if m["expected"] is not None:
                    self.assertEqual(m["expected"], sum(m[k] for k in recall.COUNTS[1:]), module)
        lost = without_body(model)
        with self.subTest("functions that are lost are named"):
            said = " ".join(sentences(report))
            self.assertEqual([op for op in sorted(lost) if not re.search(rf"\b{op}\b", said)], [],
                             f"nodes without a function; the report says: {said}")
        with self.subTest("the same outputs"):
            verdict = recall.compare_numbers(original, path, original.with_suffix(".npz"), LIBRARY,
                                             "fp16" if "fp16" in name else "fp32", bodies=not lost)
            self.assertEqual(verdict, recall.SAME)


def add_tests():
    for name in SurvivalTest.names:
        for tool in TOOLS:
            def test(self, tool=tool, name=name):
                self.check(tool, name)
            setattr(SurvivalTest, f"test_{re.sub(r'[/.]', '_', name.removesuffix('.onnx'))}_{tool}", test)


add_tests()


class HalfPrecisionTest(PatchedModels):
    """A converter to fp16 changes the types of a call and does not visit the function: a body that was written for fp32
    no longer fits. Without the library such a model does not load. Patching it again repairs the body, or names each op
    whose body does not fit, and never says that all is well."""

    names = ("llama/dynamo_op20.onnx", "qwen3/mask_ts_op17_dyn.onnx", "gemma2/dynamo.onnx",
             "qwen2_vl_vis/dynamo.onnx")

    def broken_ops(self, model):
        """Ops whose inlined body does not pass the type check."""
        broken = set()
        for op in sorted({f.name for f in model.functions if f.domain == "liger"}):
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            inlined = onnx.inliner.inline_selected_functions(copy, [("liger", op)])
            del inlined.functions[:]
            try:
                onnx.shape_inference.infer_shapes(inlined, check_type=True, strict_mode=True)
            except onnx.shape_inference.InferenceError:
                broken.add(op)
        return broken

    def check(self, name, keep_io):
        _, patched, _ = self.patched_model(name)
        converted = float16.convert_float_to_float16(onnx.load(patched), keep_io_types=keep_io)
        broken = self.broken_ops(converted)
        # The spelled-out norms have an fp32 epsilon and cannot fit; a body of typeless operators fits as it is.
        if name != "qwen2_vl_vis/dynamo.onnx":
            self.assertTrue(broken)
        report, model, path = self.patch_again(converted, name)
        if not self.broken_ops(model):
            recall.open_session(path)
            recall.open_session(path, LIBRARY)
            return
        said = [d["message"] for d in report["diagnostics"] if d["severity"] != "note"]
        for op in sorted(broken):
            found = [s for s in said if re.search(rf"\b{op}\b", s)]
            self.assertTrue(found, f"{op}'s body does not fit its inputs; warnings and errors: {said}")
            self.assertRegex(" ".join(found), r"(?i)fp?16|float16")

    def test_the_tool_breaks_what_it_is_said_to_break(self):
        _, patched, _ = self.patched_model(self.names[0])
        converted = float16.convert_float_to_float16(onnx.load(patched))
        path = self.folder / "converted.onnx"
        onnx.save(converted, path)
        with self.assertRaisesRegex(Exception, "LigerRMSNorm"):
            recall.open_session(path)

    def test_a_conversion_before_patching_is_fine(self):
        original, _, _ = self.patched_model(self.names[0])
        converted = self.folder / "half.onnx"
        onnx.save(float16.convert_float_to_float16(onnx.load(original), keep_io_types=True), converted)
        patched = self.folder / "half.liger.onnx"
        code, report = recall.patch(PATCHER, converted, patched, "llama")
        self.assertEqual((code, report["status"]), (0, "ok"), report["diagnostics"])
        self.assertEqual(self.broken_ops(onnx.load(patched)), set())
        arrays = np.load(original.with_suffix(".npz"))
        inputs = {i.name: arrays["in_" + i.name] for i in onnx.load(original).graph.input}
        before, *after = [recall.open_session(*a).run(None, inputs)
                          for a in ((converted,), (patched, LIBRARY), (patched,))]
        exact = recall.open_session(original).run(None, inputs)
        for outputs in after:
            ulp = float(np.spacing(np.float16(compare.largest(exact))))
            self.assertLessEqual(compare.difference(outputs, exact), 2 * compare.difference(before, exact) + ulp)


def add_conversions():
    for name in HalfPrecisionTest.names:
        for keep_io in (False, True):
            def test(self, name=name, keep_io=keep_io):
                self.check(name, keep_io)
            label = re.sub(r"[/.]", "_", name.removesuffix(".onnx"))
            setattr(HalfPrecisionTest, f"test_{label}_{'with_fp32_io' if keep_io else 'whole'}", test)


add_conversions()


if __name__ == "__main__":
    unittest.main()
