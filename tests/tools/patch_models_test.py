"""liger-patch on every model of tests/models: true counts, same results with kernels and with bodies, no second change.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so patch_models_test.py
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
sys.path.insert(0, str(ROOT / "tools"))
import compare

PATCHER = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]
EXPECTED = json.loads((MODELS / "expected.json").read_text())["models"]
MODULES = ("rms_norm", "rope", "swiglu")


def patch(*arguments):
    return subprocess.run([PATCHER, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


class PatchModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.results = {}
        for name in EXPECTED:
            out = cls.folder / name
            out.parent.mkdir(exist_ok=True)
            report = out.with_suffix(".json")
            run = patch(MODELS / name, "--modules", "auto", "--external-data", "copy", "-o", out,
                        "--report", report)
            cls.results[name] = (run, out, report)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def each(self):
        for name, facts in EXPECTED.items():
            run, out, report = self.results[name]
            yield name, facts, run, out, report

    def test_counts_are_those_of_the_running_model(self):
        for name, facts, run, _, report in self.each():
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                modules = json.loads(report.read_text())["modules"]
                for module in MODULES:
                    found = {k: modules[module][k] for k in ("expected", "patched", "already_fused", "degraded",
                                                             "missed", "excluded", "unaccounted", "additional")}
                    wanted = dict(dict.fromkeys(found, 0), expected=facts["counts"][module],
                                  patched=facts["counts"][module])
                    self.assertEqual(found, wanted, module)

    def test_paths_are_those_of_the_running_model(self):
        for name, facts, run, _, report in self.each():
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                patched = json.loads(report.read_text())["patched"]
                for module in ("rms_norm", "swiglu"):
                    # The exported wrapper calls the model `model`: model.model.norm is the model's own model.norm.
                    found = sorted(p["path"].removeprefix("model.") for p in patched if p["module"] == module)
                    self.assertEqual(found, sorted(facts["paths"][module]))

    def test_results_are_the_same_in_onnxruntime(self):
        for name, facts, run, out, _ in self.each():
            if facts["dtype"] == "bf16":
                continue  # ONNX Runtime's CPU provider has no bf16 arithmetic
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                arrays = np.load((MODELS / name).with_suffix(".npz"))
                sessions = [compare.open_session(MODELS / name), compare.open_session(out, LIBRARY),
                            compare.open_session(out)]
                outputs = [o.name for o in sessions[0].get_outputs()]
                for prefix in ["", "alt_"] if facts["dynamic"] else [""]:
                    inputs = {i.name: arrays[f"{prefix}in_{i.name}"] for i in sessions[0].get_inputs()}
                    original, kernels, bodies = [s.run(outputs, inputs) for s in sessions]
                    for got in (kernels, bodies):
                        if facts["dtype"] == "fp32":
                            limit = 2e-6 * compare.largest(original)
                            self.assertLessEqual(compare.difference(original, got), limit)
                            continue
                        # Roundings of a whole fp16 model are noise that another order of sums re-draws: both
                        # must lie as near to the fp32 results. (Single sites are held more tightly elsewhere.)
                        exact = [arrays[f"{prefix}out_{o}"] for o in outputs]
                        ulp = float(np.spacing(np.float16(compare.largest(exact))))
                        limit = 2 * compare.difference(original, exact) + ulp
                        self.assertLessEqual(compare.difference(got, exact), limit)

    def test_kernels_run(self):
        for name, facts, run, out, report in self.each():
            if facts["dtype"] == "bf16":
                continue
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                arrays = np.load((MODELS / name).with_suffix(".npz"))
                graph = onnx.load(out, load_external_data=False).graph
                inputs = {i.name: arrays["in_" + i.name] for i in graph.input}
                ran = compare.kernels_run(out, LIBRARY, inputs)
                ops = [n.op_type for n in graph.node if n.domain == "liger"]
                self.assertEqual(dict(ran), {o: ops.count(o) for o in set(ops)})
                self.assertEqual(ran["LigerRMSNorm"] + ran["LigerAddRMSNorm"], facts["counts"]["rms_norm"])
                self.assertEqual(ran["LigerSwiGLU"], facts["counts"]["swiglu"])

    def test_interface_and_weights_stay(self):
        for name, _, run, out, _ in self.each():
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                before, after = onnx.load(MODELS / name), onnx.load(out)
                self.assertEqual(list(before.graph.input), list(after.graph.input))
                self.assertEqual(list(before.graph.output), list(after.graph.output))
                old = {i.name: i.raw_data for i in before.graph.initializer}
                for tensor in after.graph.initializer:
                    self.assertIn(tensor.name, old)
                    self.assertEqual(tensor.raw_data, old[tensor.name], tensor.name)
                onnx.checker.check_model(after, full_check=True)

    def test_a_second_run_changes_nothing(self):
        for name, _, run, out, _ in self.each():
            with self.subTest(name):
                self.assertEqual(run.returncode, 0, run.stderr)
                before = hashlib.sha256(out.read_bytes()).digest()
                again = patch(out, "--modules", "auto", "--family", EXPECTED[name]["family"])
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertEqual(hashlib.sha256(out.read_bytes()).digest(), before)
                self.assertFalse(out.with_suffix(".liger.onnx").exists())

    def test_the_same_bytes_each_time(self):
        name = "llama/past_dynamo_op20_dyn.onnx"
        twice = self.folder / "twice.onnx"
        run = patch(MODELS / name, "--modules", "auto", "-o", twice)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(twice.read_bytes(), self.results[name][1].read_bytes())


if __name__ == "__main__":
    unittest.main()
