"""The maps of patches/examples on real exports: what they fuse, and that the results are those of the original.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so example_maps_test.py
"""
import collections
import os
import pathlib
import tarfile
import unittest

import onnx

from cli_testing import ROOT, CliTest, compare

LIBRARY = os.environ["LIGER_LIBRARY"]
EXAMPLES = ROOT / "patches" / "examples"
FUSED = {"own_rms_norm.yaml": {"LigerRMSNorm": 8, "LigerAddRMSNorm": 1},
         "soft_cap.yaml": {"SoftCap": 1},
         "vision_language.yaml": {"LigerRope": 2, "LigerRMSNorm": 1, "LigerAddRMSNorm": 4, "LigerSwiGLU": 2,
                                  "LigerLayerNorm": 1, "LigerAddLayerNorm": 4, "QuickGelu": 2}}


class ExampleMapsTest(CliTest):
    def export(self, unit, name):
        """An export of tests/recall with its inputs and config.json, in the test's folder."""
        with tarfile.open(ROOT / "tests" / "recall" / "exports.tar.xz") as archive:
            for member in (f"{name}.onnx", f"{name}.npz", "config.json"):
                (self.folder / member).write_bytes(archive.extractfile(f"{unit}/{member}").read())
        return self.folder / f"{name}.onnx"

    def check(self, example, unit, name, **expected):
        model = self.export(unit, name)
        report = self.patch_report(model, "-o", "patched.onnx", "--patches", EXAMPLES / example)
        self.assertEqual(report["route"], expected.pop("route", "custom"))
        for module, count in expected.items():
            self.assertEqual(report["modules"][module]["patched"], count, module)
        nodes = collections.Counter(n.op_type for n in onnx.load(self.folder / "patched.onnx").graph.node
                                    if n.domain in ("liger", "my.ops"))
        arrays = compare.np.load(model.with_suffix(".npz"))
        results = []
        for path, library in ((model, None), ("patched.onnx", None), ("patched.onnx", LIBRARY)):
            session = compare.open_session(self.folder / path, library)
            inputs = {i.name: arrays["in_" + i.name] for i in session.get_inputs()}
            results.append(session.run(None, inputs))
        limit = (2e-3 if results[0][0].dtype == compare.np.float16 else 4e-6) * compare.largest(results[0])
        for result in results[1:]:
            self.assertLessEqual(compare.difference(results[0], result), limit)
        before = (self.folder / "patched.onnx").read_bytes()
        again = self.patch_report("patched.onnx", "-o", "again.onnx", "--patches", EXAMPLES / example)
        self.assertEqual(again["status"], "nothing_to_do")
        self.assertFalse((self.folder / "again.onnx").exists())
        self.assertEqual((self.folder / "patched.onnx").read_bytes(), before)
        return dict(nodes)

    def test_a_class_of_ones_own(self):
        nodes = self.check("own_rms_norm.yaml", "exaone4", "dynamo", rms_norm=9)
        self.assertEqual(nodes, FUSED["own_rms_norm.yaml"])

    def test_an_op_of_ones_own(self):
        for name in ("dynamo", "dynamo_op18", "fp16_dynamo"):
            with self.subTest(name):
                self.assertEqual(self.check("soft_cap.yaml", "gemma2", name, soft_cap=1), FUSED["soft_cap.yaml"])

    def test_an_op_of_ones_own_in_each_attention_as_well(self):
        self.assertEqual(self.check("soft_cap.yaml", "gemma2", "eager_dynamo", soft_cap=3), {"SoftCap": 3})

    def test_a_composite_with_a_tower_of_ones_own(self):
        nodes = self.check("vision_language.yaml", "llava", "dynamo", route="composite", rope=4, rms_norm=5, swiglu=2,
                           vision_norm=5, quick_gelu=2)
        self.assertEqual(nodes, FUSED["vision_language.yaml"])

    def test_every_example_is_tested(self):
        self.assertEqual(sorted(p.name for p in EXAMPLES.iterdir()), sorted(FUSED))


if __name__ == "__main__":
    unittest.main()
