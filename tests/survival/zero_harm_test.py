"""ONNX's own backend tests of norms, activations, rotary embedding, softmax, losses and attention: none is harmed.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so zero_harm_test.py

tools/zero_harm.py runs all of them.
"""
import os
import pathlib
import sys
import types
import unittest

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import zero_harm

# Attention as a single node holds nothing that could be fused; its decomposed forms do.
PATTERNS = ("norm", "gelu", "swish", "swiglu", "silu", "sigmoid", "rotary", "softmax", "loss", "nll", "sce",
            "attention.*_expanded", "test_sqrt", "test_reciprocal", "reduce_mean", "test_pow")


class ZeroHarmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results, cls.ways = zero_harm.examine_all(os.environ["LIGER_PATCH"], os.environ["LIGER_LIBRARY"], PATTERNS)
        zero_harm.print_results(cls.results, cls.ways)

    def test_no_model_is_harmed(self):
        self.assertEqual([f"{r['case']} --family {r['family']}: {r['detail']}" for r in self.results
                          if r["verdict"] == "harmed"], [])

    def test_the_cases_are_there(self):
        self.assertGreater(len({r["case"] for r in self.results}), 300)

    def test_some_are_rewritten(self):
        """Else nothing was tried."""
        for family in self.ways:
            run = {op for r in self.results if r["family"] == family and r["verdict"] == "same" for op in r["ops"]}
            self.assertIn("LigerRMSNorm", run)

    def test_every_module_is_tried(self):
        modules = self.ways["any"][1].split(",")
        self.assertLessEqual({"rope", "rms_norm", "swiglu"}, set(modules))


class VerdictTest(unittest.TestCase):
    """What must be called harmed, is."""

    def case(self):
        node = onnx.helper.make_node("Softmax", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "g", *(
            [onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, [2, 3])] for v in ("x", "y")))
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        y = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
        return types.SimpleNamespace(model=model, data_sets=[([x], [y])], rtol=1e-3, atol=1e-7)

    def judge(self, change):
        import tempfile

        case = self.case()
        with tempfile.TemporaryDirectory() as scratch:
            original, patched = (pathlib.Path(scratch) / name for name in ("model.onnx", "patched.onnx"))
            onnx.save(case.model, original)
            changed = onnx.ModelProto()
            changed.CopyFrom(case.model)
            change(changed)
            onnx.save(changed, patched)
            return zero_harm.judge_numbers(original, patched, case, os.environ["LIGER_LIBRARY"])

    def test_the_same_model(self):
        self.assertEqual(self.judge(lambda model: None), ("same", ""))

    def test_other_outputs(self):
        def change(model):
            model.graph.node[0].attribute.append(onnx.helper.make_attribute("axis", 0))
        self.assertEqual(self.judge(change)[0], "harmed")

    def test_a_model_that_does_not_load(self):
        def change(model):
            model.graph.node[0].input[0] = "absent"
        self.assertEqual(self.judge(change)[0], "harmed")

    def test_a_refusal_has_the_code_that_is_documented(self):
        model = self.case().model
        error = dict(status="error", diagnostics=[{}])
        self.assertTrue(zero_harm.documented_refusal(0, dict(status="nothing_to_do"), model))
        self.assertFalse(zero_harm.documented_refusal(0, dict(status="ok"), model))
        self.assertFalse(zero_harm.documented_refusal(3, error, model), "a good model")
        for code in (70, -11, 2, 4, 5, None):
            self.assertFalse(zero_harm.documented_refusal(code, error, model), code)
        del model.opset_import[:]
        model.opset_import.append(onnx.helper.make_opsetid("", 11))
        self.assertTrue(zero_harm.documented_refusal(3, error, model))


if __name__ == "__main__":
    unittest.main()
