"""The models of tests/models are what expected.json says: complete, small, runnable, equal to torch."""
import json
import pathlib
import re
import sys
import unittest

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
sys.path.insert(0, str(ROOT / "tools"))
import compare

# fp32: summation order. fp16: the npz holds fp32 results of the same weights.
LIMITS = dict(fp32=2e-5, fp16=2e-2)
EXPECTED = json.loads((MODELS / "expected.json").read_text())["models"]


def for_each_model(check):
    """Turns check(self, path, facts) into a test that names the model it fails for."""

    def test(self):
        for name, facts in EXPECTED.items():
            with self.subTest(name):
                check(self, MODELS / name, facts)

    return test


class ModelsTest(unittest.TestCase):
    def test_every_model_is_listed(self):
        found = {str(p.relative_to(MODELS)) for p in MODELS.glob("*/*.onnx")}
        self.assertEqual(found, set(EXPECTED))

    def test_all_together_are_small(self):
        total = sum(p.stat().st_size for p in MODELS.rglob("*") if p.is_file())
        self.assertLess(total, 8_000_000)

    @for_each_model
    def test_models_are_small_and_have_a_config(self, path, facts):
        self.assertLess(path.stat().st_size, 250_000)
        config = json.loads((path.parent / "config.json").read_text())
        self.assertEqual(config["model_type"], facts["family"])
        self.assertEqual(config["num_hidden_layers"], facts["layers"])

    def test_variants_cover_what_they_must(self):
        def seen(key):
            return {facts[key] for facts in EXPECTED.values()}

        self.assertLessEqual({"llama", "mistral", "qwen2", "qwen3"}, seen("family"))
        self.assertEqual(seen("exporter"), {"dynamo", "ts"})
        self.assertEqual(seen("opset"), {17, 18, 20, 23})
        self.assertEqual(seen("dtype"), {"fp32", "fp16", "bf16"})
        self.assertEqual(seen("dynamic"), {True, False})
        self.assertEqual(seen("kind"), {"ids", "mask", "past", "loss"})
        self.assertEqual(seen("external_data"), {True, False})

    @for_each_model
    def test_graphs_agree_with_the_facts(self, path, facts):
        model = onnx.load(path, load_external_data=False)
        self.assertEqual([o.version for o in model.opset_import if o.domain == ""], [facts["opset"]])
        stored = {i.name for i in model.graph.initializer}
        norms = [n for n in stored if re.search(r"norm\.weight$", n)]
        self.assertEqual(len(norms), facts["counts"]["rms_norm"])
        self.assertEqual(len(facts["paths"]["rms_norm"]), facts["counts"]["rms_norm"])
        self.assertEqual(len(facts["paths"]["swiglu"]), facts["counts"]["swiglu"])
        sigmoids = sum(n.op_type == "Sigmoid" for n in model.graph.node)
        self.assertEqual(sigmoids, facts["counts"]["swiglu"])
        negations = sum(n.op_type == "Neg" and "loss" not in n.name for n in model.graph.node)
        self.assertGreaterEqual(negations, facts["counts"]["rope"])
        external = any(i.data_location == onnx.TensorProto.EXTERNAL for i in model.graph.initializer)
        self.assertEqual(external, facts["external_data"])
        self.assertFalse(any(p.key.endswith("stack_trace") for n in model.graph.node
                             for p in n.metadata_props))

    @for_each_model
    def test_stored_arrays_fit_the_interface(self, path, facts):
        graph = onnx.load(path, load_external_data=False).graph
        arrays = np.load(path.with_suffix(".npz"))
        names = {f"in_{i.name}" for i in graph.input} | {f"out_{o.name}" for o in graph.output}
        if facts["dynamic"]:
            names |= {"alt_" + n for n in names}
        self.assertEqual(set(arrays.files), names)

    @for_each_model
    def test_onnxruntime_agrees_with_torch(self, path, facts):
        if facts["dtype"] not in LIMITS:
            return  # ONNX Runtime's CPU provider has no bf16 arithmetic
        arrays = np.load(path.with_suffix(".npz"))
        session = compare.open_session(path)
        for prefix in ["", "alt_"] if facts["dynamic"] else [""]:
            inputs = {i.name: arrays[f"{prefix}in_{i.name}"] for i in session.get_inputs()}
            expected = [arrays[f"{prefix}out_{o.name}"] for o in session.get_outputs()]
            worst = compare.difference(session.run(None, inputs), expected)
            self.assertLess(worst, LIMITS[facts["dtype"]])


if __name__ == "__main__":
    unittest.main()
