"""The worked example of CONTRIBUTING.md: the text goes into a copy of the op's file, and does what is said of it.

Environment: LIGER_PATCH, LIGER_LIBRARY.
"""
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
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import compare  # noqa: E402

SHAPE = [2, 3, 16]


def clamped_geglu(high=7.0, low=-7.0):
    """gelu_tanh(min(gate, high)) * min(max(up, low), high), by Erf-free operators of opset 17."""
    nodes, tensors = [], []

    def op(kind, *inputs):
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], name=f"node_{len(nodes)}"))
        return nodes[-1].output[0]

    def number(value):
        tensors.append(helper.make_tensor(f"c{len(tensors)}", TensorProto.FLOAT, [], [value]))
        return tensors[-1].name

    x = op("Min", "gate", number(high))
    cube = op("Pow", x, number(3.0))
    inner = op("Mul", op("Add", x, op("Mul", cube, number(0.044715))), number(0.7978845608028654))
    gelu = op("Mul", op("Mul", x, number(0.5)), op("Add", op("Tanh", inner), number(1.0)))
    up = op("Min", op("Max", "up", number(low)), number(high))
    nodes.append(helper.make_node("Mul", [gelu, up], ["y"], name="last"))
    gate, up, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ("gate", "up", "y"))
    graph = helper.make_graph(nodes, "g", [gate, up], [y], initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class WorkedExample(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        guide = (ROOT / "CONTRIBUTING.md").read_text()
        text, guard = re.findall(r"```yaml\n(.*?)```", guide, re.S)
        op = (ROOT / "patches/ops/geglu.yaml").read_text()
        self.assertIn("\ntexts:\n", op)
        self.assertNotIn("\nbodies:", op)
        ops = self.folder / "patches/ops"
        ops.mkdir(parents=True)
        (ops / "geglu.yaml").write_text(op.replace("\ntexts:\n", "\n" + guard + "texts:\n") + text)

    def patch(self, model, *arguments):
        onnx.save(model, self.folder / "in.onnx")
        done = subprocess.run([os.environ["LIGER_PATCH"], "in.onnx", "--family", "any", "-o", "out.onnx", "--report",
                               "report.json", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "report.json").read_text())["patched"]

    def results(self):
        values = np.random.default_rng(1).standard_normal((2, *SHAPE)).astype(np.float32) * 6
        feeds = {"gate": values[0], "up": values[1]}
        files = (("in.onnx", None), ("out.onnx", os.environ["LIGER_LIBRARY"]), ("out.onnx", None))
        return [compare.open_session(self.folder / f, library).run(None, feeds) for f, library in files]

    def test_the_form_is_found_only_with_the_text_and_computes_the_same(self):
        self.assertEqual({p["attributes"]["limit"] for p in self.patch(clamped_geglu())}, {0.0})
        patched = self.patch(clamped_geglu(), "--patches-dir", "patches")
        self.assertEqual([(p["op"], p["form"].split("/")[0]) for p in patched], [("LigerGeGLU", "clamped")])
        self.assertEqual((patched[0]["attributes"]["limit"], patched[0]["attributes"]["approximate"]), (7.0, "tanh"))
        original, kernels, bodies = self.results()
        for got in (kernels, bodies):
            self.assertLessEqual(compare.difference(original, got), 2e-6 * compare.largest(original))

    def test_look_alikes_keep_their_clamps(self):
        for bounds in ((7.0, -6.0), (-7.0, 7.0), (0.0, 0.0)):
            with self.subTest(bounds):
                patched = self.patch(clamped_geglu(*bounds), "--patches-dir", "patches")
                self.assertEqual({p["attributes"]["limit"] for p in patched} - {0.0}, set())


class Keys(unittest.TestCase):
    """Keys that files in patches/ use, of texts, lowerings and already_fused, stand in the tables of the guide."""

    def documented(self, heading):
        part = re.search(rf"(?ms)^## {heading}\n(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text())[1]
        return {key for row in re.findall(r"(?m)^\| (`.*?) \|", part) for key in re.findall(r"`(\w+)`", row)}

    def used(self, folder, lists):
        for path in sorted((ROOT / "patches" / folder).glob("*.yaml")):
            for part in re.findall(rf"(?ms)^(?:{lists}):\n(.*?)(?=^\w|\Z)", path.read_text()):
                yield from re.findall(r"(?m)^(?:  - \{?|    )(\w+): ", part)
                yield from (key for line in re.findall(r"(?m)^  - \{(.*)\}$", part)
                            for key in re.findall(r"(\w+): ", line))

    def test_of_texts(self):
        used = set(self.used("ops", "texts|bodies"))
        self.assertLessEqual({"name", "opset", "text", "choices"}, used)
        self.assertLessEqual(used, self.documented("Add a spelling"))

    def test_of_lowerings(self):
        used = set(self.used("lowerings", "lowerings|already_fused"))
        self.assertLessEqual({"op", "domain", "where", "reason", "text"}, used)
        self.assertLessEqual(used, self.documented("Add an operator that stands for others, or that stays"))


if __name__ == "__main__":
    unittest.main()
