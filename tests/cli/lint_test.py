"""--lint: a model that another tool broke is named for what is wrong with it, in every format, and nothing is changed."""
import json
import os
import unittest

import onnx
from onnx import TensorProto, helper, numpy_helper

from cli_testing import STRACE, TRACED, CliTest, fd_calls, needs_strace


def wrong_domain(model):
    """As a tool does that writes ONNX Runtime's operators into ONNX's domain."""
    norm = next(n for n in model.graph.node if n.op_type == "Sigmoid")
    norm.op_type = "QuickGelu"


def import_lost(model):
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def older_opset(model):
    """Nodes of opset 18 and later under an import of 17."""
    model.opset_import[0].version = 17


def name_twice(model):
    model.graph.node[1].name = model.graph.node[0].name


def output_lost(model):
    model.graph.node.remove(next(n for n in model.graph.node if model.graph.output[0].name in n.output))


def reversed_nodes(model):
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def initializer_nobody_uses(model):
    model.graph.initializer.append(helper.make_tensor("left_over", TensorProto.FLOAT, [1], [0.0]))


# change, rule, severity, exit code
ORIGINAL = [
    (wrong_domain, "contrib_op_in_default_domain", "error", 1),
    (import_lost, "missing_opset_import", "error", 1),
    (older_opset, "operator_attribute", "error", 1),
    (name_twice, "duplicate_node_name", "warning", 1),
    (output_lost, "undefined_output", "error", 1),
    (reversed_nodes, "node_order", "warning", 1),
    (initializer_nobody_uses, "unused_initializer", "note", 0),
]


def bodies_lost(model):
    del model.functions[:]


def attribute_lost(model):
    node = next(n for n in model.graph.node if n.domain == "liger")
    node.attribute.remove(next(a for a in node.attribute if a.name in ("epsilon", "stash_type")))


def packing_that_is_none(model):
    node = next(n for n in model.graph.node if n.op_type == "LigerSwiGLU")
    next(a for a in node.attribute if a.name == "packed").s = b"sideways"


def liger_import_lost(model):
    model.opset_import.remove(next(o for o in model.opset_import if o.domain == "liger"))


def weights_converted(model):
    """Half-precision weights around bodies that stayed in f32."""
    for tensor in model.graph.initializer:
        if tensor.name.endswith("norm.weight"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float16"), tensor.name))


PATCHED = [
    (bodies_lost, "fused_op_without_body", "warning", 1),
    (attribute_lost, "fused_op_attribute", "error", 1),
    (packing_that_is_none, "fused_op_attribute", "error", 1),
    (liger_import_lost, "missing_opset_import", "error", 1),
    (weights_converted, "function_types", "error", 1),
]


class LintTest(CliTest):
    def lint(self, path, code, *arguments):
        before = self.files()
        run = self.run_patch("--lint", path, "--report", "lint.json", *arguments)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        after = self.files()
        report = json.loads(after.pop("lint.json"))
        before.pop("lint.json", None)
        self.assertEqual(after, before, "lint changed a file")
        self.assertEqual(report["exit_code"], code)
        return report, run.stdout + run.stderr

    def assert_found(self, path, rule, severity, code):
        report, text = self.lint(path, code)
        found = [d for d in report["diagnostics"] if d["message"].endswith(f"[{rule}]")]
        self.assertTrue(found, report["diagnostics"])
        self.assertEqual(found[0]["severity"], severity)
        self.assertTrue(found[0]["location"])
        self.assertTrue(found[0]["hint"])
        self.assertIn(f"[{rule}]", text)
        return found

    def test_originals(self):
        for change, rule, severity, code in ORIGINAL:
            with self.subTest(change.__name__):
                model = onnx.load(self.model())
                change(model)
                onnx.save(model, self.folder / "model.onnx")
                self.assert_found("model.onnx", rule, severity, code)

    def test_patched_models(self):
        self.model(config=True)
        self.patch("model.onnx", "-o", "patched.onnx")
        for change, rule, severity, code in PATCHED:
            with self.subTest(change.__name__):
                model = onnx.load(self.folder / "patched.onnx")
                change(model)
                onnx.save(model, self.folder / "broken.onnx")
                self.assert_found("broken.onnx", rule, severity, code)

    def test_right_models(self):
        self.model(config=True)
        self.patch("model.onnx", "-o", "patched.onnx")
        for name in ("model.onnx", "patched.onnx"):
            report, text = self.lint(name, 0)
            self.assertEqual(report["diagnostics"], [])
            self.assertEqual(report["status"], "checked")
            self.assertIn("nothing found", text)

    def test_weights_that_stayed_behind(self):
        model = self.external_model()
        model.rename(self.folder / "renamed.onnx")
        self.lint("renamed.onnx", 0)
        (self.folder / "dynamo_op20_external.onnx.data").rename(self.folder / "renamed.onnx.data")
        found = self.assert_found("renamed.onnx", "external_data", "error", 1)
        self.assertIn("'renamed.onnx.data' is large enough to be it under another name", found[0]["hint"])
        self.assert_found("renamed.onnx", "unreferenced_data_file", "warning", 1)

    def test_no_model(self):
        (self.folder / "text.onnx").write_text("no model")
        for name in ("text.onnx", "missing.onnx"):
            report, _ = self.lint(name, 3)
            self.assertEqual(report["status"], "error")

    @needs_strace
    def test_no_weight_is_read(self):
        self.external_model()
        run = self.run_command([STRACE, "-f", "-y", "-e", "trace=openat,read,pread64,mmap", "-o", "trace",
                                *self.command("--lint", "dynamo_op20_external.onnx")], env=TRACED)
        self.assertEqual(run.returncode, 0, run.stderr)
        trace = (self.folder / "trace").read_text()
        self.assertIn("dynamo_op20_external.onnx", trace)
        self.assertEqual([c for c in fd_calls(trace) if c[1].endswith(".data")], [])
        self.assertNotIn('.onnx.data"', trace)
        os.remove(self.folder / "trace")


if __name__ == "__main__":
    unittest.main()
