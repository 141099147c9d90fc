"""Patch maps of a user: what their entries bind, what they report, and what they refuse."""
import unittest

import onnx
import onnx.parser

from cli_testing import MODELS, CliTest, liger_nodes

NORM = """
  <domain: "mine", opset_import: ["" : 18]>
  MyNorm (x, w) => (y) {
    two = Constant <value_float = 2.0> ()
    square = Pow (x, two)
    axes = Constant <value_ints = [-1]> ()
    mean = ReduceMean <keepdims = 1> (square, axes)
    epsilon = Constant <value_float = 0.00001> ()
    sum = Add (mean, epsilon)
    root = Sqrt (sum)
    normal = Div (x, root)
    y = Mul (normal, w)
  }
  <domain: "mine", opset_import: ["" : 18]>
  MaxNorm (x, w) => (y) {
    axes = Constant <value_ints = [-1]> ()
    largest = ReduceMax <keepdims = 1> (x, axes)
    normal = Div (x, largest)
    y = Mul (normal, w)
  }
  <domain: "mine", opset_import: ["" : 18, "mine" : 1]>
  Block (x, w) => (y) {
    inner = mine.MyNorm (x, w)
    y = Add (inner, x)
  }
"""
MODEL = """
  <ir_version: 8, opset_import: ["" : 18, "mine" : 1]>
  functions (float[2, 8] x, float[8] w) => (float[2, 8] y) {
    a = mine.MyNorm (x, w)
    b = mine.Block (a, w)
    y = mine.MaxNorm (b, w)
  }
"""


class CustomMapsTest(CliTest):
    def map(self, text, family="mine", name="mine.yaml", extends=None):
        head = f"schema_version: 1\nfamily: {family}\n" + (f"extends: {extends}\n" if extends else "")
        (self.folder / name).write_text(head + "modules:\n" + text)
        return name

    def functions(self):
        onnx.save(onnx.parser.parse_model(MODEL + NORM), self.folder / "functions.onnx")
        return "functions.onnx"


class FunctionEntriesTest(CustomMapsTest):
    def test_each_call_is_an_instance_nested_ones_too(self):
        path = self.map("  my_norm:\n    - {function: MyNorm, op: LigerRMSNorm, expect: 2}\n")
        report = self.patch_report(self.functions(), "--patches", path)
        self.assertEqual(report["modules"]["my_norm"]["patched"], 2)
        self.assertEqual(report["modules"]["my_norm"]["expected"], 2)
        self.assertEqual(report["symbols"][0]["instances"], 2)
        self.assertEqual(report["symbols"][0]["symbol"], "MyNorm")

    def test_a_domain_and_a_glob(self):
        for symbol in ("mine::MyNorm", "*Norm", "mine::M*Norm"):
            with self.subTest(symbol):
                path = self.map(f"  my_norm:\n    - {{function: '{symbol}', op: LigerRMSNorm, optional: true}}\n")
                report = self.patch_report(self.functions(), "--patches", path)
                self.assertEqual(report["modules"]["my_norm"]["patched"], 2)

    def test_a_function_that_is_no_norm(self):
        path = self.map("  my_norm:\n    - {function: MaxNorm, op: LigerRMSNorm}\n")
        self.functions()
        self.assert_fails(2, "of function 'MaxNorm' matches no form of LigerRMSNorm", "functions.onnx", "--patches",
                          path, hint="optional: true")

    def test_an_absent_function(self):
        path = self.map("  my_norm:\n    - {function: MyNorms, op: LigerRMSNorm}\n")
        self.functions()
        self.assert_fails(2, "function 'MyNorms' is not in the model", "functions.onnx", "--patches", path,
                          hint="the model has mine::MyNorm")


class EntriesTest(CustomMapsTest):
    """Entries for a bundled llama: two layers, five norms, four rotations."""

    def setUp(self):
        super().setUp()
        self.model()

    def patched(self, modules, *options, **more):
        return self.patch_report("model.onnx", "-o", "patched.onnx", "--patches", self.map(modules, **more), *options)

    def refused(self, modules, sentence, *options, **more):
        return self.assert_fails(2, sentence, "model.onnx", "--patches", self.map(modules), *options, **more)

    def test_a_bare_class_name(self):
        report = self.patched("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n")
        self.assertEqual(report["modules"]["norm"]["patched"], 5)
        self.assertEqual(report["modules"]["norm"]["expected_source"], "patch_map")
        self.assertEqual({op for op, _ in liger_nodes(self.folder / "patched.onnx")},
                         {"LigerRMSNorm", "LigerAddRMSNorm"})

    def test_a_class_that_holds_the_op_several_times(self):
        report = self.patched("  rotations:\n    - {class: LlamaAttention, op: liger_rotary_pos_emb}\n")
        self.assertEqual(report["modules"]["rotations"]["patched"], 4)
        self.assertEqual(report["symbols"][0]["instances"], 4)
        self.assertEqual(report["symbols"][0]["op"], "liger.LigerRope")

    def test_scopes_take_single_modules(self):
        report = self.patched("  norm:\n    - {scope: 'model.model.layers.*.input_layernorm', op: LigerRMSNorm}\n")
        self.assertEqual([p["path"] for p in report["patched"]],
                         [f"model.model.layers.{i}.input_layernorm" for i in (0, 1)])

    def test_nothing_outside_of_the_entries_is_touched(self):
        report = self.patched("  gate:\n    - {scope: '**.layers.1.mlp', op: LigerSwiGLUMLP}\n")
        self.assertEqual(len(report["patched"]), 1)
        self.assertEqual(report["patched"][0]["path"], "model.model.layers.1.mlp")

    def test_an_alias_that_disagrees_with_the_graph(self):
        report = self.patched("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNormForGemma}\n")
        self.assertEqual(report["modules"]["norm"]["patched"], 5)
        self.assertRegex("\n".join(report["symbols"][0]["notes"]),
                         r"LigerRMSNormForGemma stands for offset = 1(\.0)?, but the graph has 0 \(5 instances\)")

    def test_an_alias_that_agrees(self):
        report = self.patched("  norm:\n    - {class: LlamaRMSNorm, op: liger.LigerRMSNorm}\n")
        self.assertEqual(report["symbols"][0]["notes"], [])

    def test_an_instance_without_a_form(self):
        report = self.refused("  norm:\n    - {scope: '**.mlp', op: LigerRMSNorm}\n",
                              r"the instance 'model.model.layers.0.mlp' of scope '\*\*.mlp' matches no form",
                              hint="--explain 'model.model.layers.0.mlp' shows its nodes")
        errors = [d for d in report["diagnostics"] if d["severity"] == "error"]
        self.assertEqual(len(errors), 2)  # one for each layer, all at once
        self.assertEqual(len(report["missed"]), 2)

    def test_optional_entries(self):
        report = self.patched("  norm:\n    - {scope: '**.mlp', op: LigerRMSNorm, optional: true}\n"
                              "    - {class: Absent, op: LigerRMSNorm, optional: true}\n"
                              "    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n")
        self.assertEqual(report["modules"]["norm"]["patched"], 5)
        self.assertEqual(report["modules"]["norm"]["missed"], 2)
        self.assertEqual(report["symbols"][1]["notes"], ["optional, and absent"])
        self.assert_fails_strict("norm")

    def assert_fails_strict(self, module):
        run = self.run_patch("model.onnx", "--check", "--patches", "mine.yaml", "--strict")
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"{module}: all 7 wanted by --strict, 5 fused", run.stderr)

    def test_an_expectation_of_the_map(self):
        self.map("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm, expect: 6}\n")
        run = self.run_patch("model.onnx", "--patches", "mine.yaml", "--report", "report.json")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"norm: 6 wanted by the patch map, 5 fused\n  at: mine.yaml:5:7")
        self.assertEqual(self.read_report()["status"], "expectation_failed")
        self.assertFalse((self.folder / "model.liger.onnx").exists())

    def test_scope_options_limit_a_map_too(self):
        report = self.patched("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n", "--skip", "**.layers.0",
                              "--strict")
        self.assertEqual((report["modules"]["norm"]["patched"], report["modules"]["norm"]["excluded"]), (3, 2))

    def test_bisecting_a_map_is_no_error(self):
        report = self.patched("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n", "--only-first", "2")
        self.assertEqual((report["modules"]["norm"]["patched"], report["modules"]["norm"]["missed"]), (2, 3))

    def test_two_maps_add_up(self):
        first = self.map("  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n")
        second = self.map("  gate:\n    - {class: LlamaMLP, op: LigerSwiGLU}\n", name="second.yaml")
        report = self.patch_report("model.onnx", "--patches", first, "--patches", second)
        self.assertEqual({n: m["patched"] for n, m in report["modules"].items()}, {"norm": 5, "gate": 2})
        self.assertEqual(report["helper"], "mine.yaml, second.yaml")

    def test_a_second_run_finds_everything_fused(self):
        modules = "  norm:\n    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n"
        self.patched(modules)
        again = self.patch_report("patched.onnx", "--patches", "mine.yaml", "--strict")
        self.assertEqual(again["status"], "nothing_to_do")
        self.assertEqual(again["modules"]["norm"]["already_fused"], 5)

    def test_a_lost_fused_loss(self):
        self.refused("  loss:\n    - {class: LlamaForCausalLM, op: FusedLinearCrossEntropy}\n", "spans", hint=None)


SILU = """
  gate:
    - match: |
        Silu (x) => (y)
        {
          s = Sigmoid (x)
          y = Mul (x, s)
        }
      op: my.ops.Silu
"""


class PatternsTest(CustomMapsTest):
    def setUp(self):
        super().setUp()
        self.model()

    def test_a_pattern_and_the_same_outputs(self):
        report = self.patch_report("model.onnx", "-o", "patched.onnx", "--patches", self.map(SILU))
        self.assertEqual(report["modules"]["gate"]["patched"], 2)
        self.assertIsNone(report["modules"]["gate"]["expected"])
        self.assertEqual(report["patched"][0]["op"], "my.ops.Silu")
        model = onnx.load(self.folder / "patched.onnx")
        self.assertEqual([(f.domain, f.name) for f in model.functions], [("my.ops", "Silu")])
        self.assertIn(("my.ops", 1), [(i.domain, i.version) for i in model.opset_import])
        self.assertIn(("liger.own_ops", "my.ops.Silu"), [(p.key, p.value) for p in model.metadata_props])
        self.assert_same_results(self.folder / "model.onnx", self.folder / "patched.onnx", MODELS / "llama/dynamo_op20.npz")

    def test_an_official_run_leaves_own_ops_alone(self):
        self.patch("model.onnx", "-o", "own.onnx", "--patches", self.map(SILU))
        report = self.patch_report("own.onnx", "-o", "both.onnx", "--family", "llama")
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 5)
        self.assertEqual(report["modules"]["swiglu"]["patched"], 0)
        model = onnx.load(self.folder / "both.onnx")
        self.assertEqual(sum(n.domain == "my.ops" for n in model.graph.node), 2)
        self.assertIn(("liger.own_ops", "my.ops.Silu"), [(p.key, p.value) for p in model.metadata_props])
        self.assert_same_results(self.folder / "model.onnx", self.folder / "both.onnx", MODELS / "llama/dynamo_op20.npz")

    def test_a_pattern_goes_before_the_familys_ops(self):
        report = self.patch_report("model.onnx", "--check", "--patches", self.map(SILU, extends="llama"))
        self.assertEqual(report["modules"]["gate"]["patched"], 2)
        self.assertEqual(report["modules"]["swiglu"]["patched"], 0)
        self.assertEqual(report["modules"]["swiglu"]["missed"], 2)

    def test_a_pattern_in_a_familys_module_leaves_its_number_known(self):
        pattern = SILU.replace("  gate:", "  rms_norm:").rstrip() + "\n      optional: true\n"
        report = self.patch_report("model.onnx", "--check", "--strict", "--patches", self.map(pattern, extends="llama"),
                                   "--modules", "swiglu=off")
        self.assertEqual((report["modules"]["rms_norm"]["expected"], report["modules"]["rms_norm"]["patched"]), (7, 7))
        self.assertIn("rms_norm", [e["module"] for e in report["expectations"]])

    def test_a_pattern_for_another_opset(self):
        self.assert_fails(2, "no text of my.ops.Silu is for the model's opset 20, only for 13-17", "model.onnx",
                          "--patches", self.map(SILU.rstrip() + "\n      opset: 13-17\n"), hint="widen")
        report = self.patch_report("model.onnx", "--check", "--patches",
                                   self.map(SILU.rstrip() + "\n      opset: 13-17\n      optional: true\n"))
        self.assertEqual(report["status"], "nothing_to_do")

    def test_a_pattern_that_matches_nowhere(self):
        self.assert_fails(2, r"the pattern Silu \(my.ops.Silu\) matches nowhere", "model.onnx", "--patches",
                          self.map(SILU.replace("Sigmoid", "Tanh")), hint="optional: true")

    def test_a_fault_in_the_text_has_its_line(self):
        report = self.assert_fails(2, ".", "model.onnx", "--patches", self.map(SILU.replace("y = Mul (x, s)", "y = Mul (x, s")))
        error = next(d for d in report["diagnostics"] if d["severity"] == "error")
        self.assertRegex(error["location"], r"^mine.yaml:1[0-2]:\d+$")


if __name__ == "__main__":
    unittest.main()
