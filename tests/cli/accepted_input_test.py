"""Models that are not what torch writes today: old operator sets, nodes in another order, local functions, operators
that are fused already, a patched model that another tool converted."""
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cli_testing import CliTest, compare, liger_nodes

F32, F16, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
SHAPE = [2, 3, 8]
SCALE = numpy_helper.from_array(np.linspace(0.5, 1.5, 8, dtype=np.float32), "w")


def norm_nodes(opset, prefix="", x="x", w="w", y="y"):
    """y = x / sqrt(mean(x * x) + 1e-5) * w in the operators of `opset`.

    Constants are tensors: an operator set below 12 has nothing else.
    """
    def name(value):
        return value if value in (x, w, y) else prefix + value

    def op(op_type, *inputs, out, **attributes):
        return helper.make_node(op_type, [name(i) for i in inputs], [name(out)], name=prefix + "node_" + out,
                                **attributes)

    eps = helper.make_tensor("", F32, [], [1e-5])
    nodes = [op("Constant", out="eps", value=eps), op("Mul", x, x, out="sq")]
    if opset < 18:
        nodes.append(op("ReduceMean", "sq", out="mean", axes=[-1], keepdims=1))
    else:
        nodes += [op("Constant", out="axes", value=helper.make_tensor("", I64, [1], [-1])),
                  op("ReduceMean", "sq", "axes", out="mean", keepdims=1)]
    return nodes + [op("Add", "mean", "eps", out="sum"), op("Sqrt", "sum", out="root"), op("Div", x, "root", out="n"),
                    op("Mul", "n", w, out=y)]


def info(name, shape=None, dtype=F32):
    return helper.make_tensor_value_info(name, dtype, shape or SHAPE)


def model_of(nodes, opset, functions=(), initializers=(SCALE,), imports=()):
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *imports], functions=functions,
                             ir_version=8)


class AcceptedTest(CliTest):
    def save(self, model, name="model.onnx"):
        onnx.save(model, self.folder / name)
        return self.folder / name

    def fuses(self, model, ops, *arguments):
        """Patches `model`; the result has these fused ops and computes the same. (report, stderr)."""
        path = self.save(model)
        run = self.patch("model.onnx", "--family", "any", "-o", "out.onnx", "--report", "report.json", *arguments)
        self.assertEqual([op for op, _ in liger_nodes(self.folder / "out.onnx")], ops)
        feeds = {"x": np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)}
        wanted, got = (compare.open_session(p).run(None, feeds) for p in (path, self.folder / "out.onnx"))
        self.assertLessEqual(compare.difference(wanted, got), 2e-6 * compare.largest(wanted))
        return self.read_report(), run.stderr


class OpsetTest(AcceptedTest):
    def test_every_opset_from_11_on(self):
        for opset in range(11, 24):
            with self.subTest(opset):
                _, said = self.fuses(model_of(norm_nodes(opset), opset), ["LigerRMSNorm"])
                self.assertEqual(said, "")
                onnx.checker.check_model(self.folder / "out.onnx", full_check=True)


class OrderTest(AcceptedTest):
    def test_unsorted_nodes_are_sorted_and_a_warning_says_so(self):
        model = model_of(list(reversed(norm_nodes(17))), 17)
        path = self.save(model)
        before = path.read_bytes()
        run = self.patch("model.onnx", "--family", "any", "-o", "out.onnx")
        self.assertRegex(run.stderr, r"(?m)^liger-patch: warning: .*not in topological order.*: \d+$")
        self.assertEqual(path.read_bytes(), before)
        onnx.checker.check_model(self.folder / "out.onnx", full_check=True)
        self.assertEqual([op for op, _ in liger_nodes(self.folder / "out.onnx")], ["LigerRMSNorm"])

    def test_nodes_in_a_circle_are_exit_3(self):
        nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"),
                 helper.make_node("Neg", ["a"], ["b"], name="two"),
                 helper.make_node("Neg", ["b"], ["y"], name="three")]
        self.save(model_of(nodes, 17, initializers=()))
        self.assert_fails(3, "circle|cycle", "model.onnx", "--family", "any", hint="re-export")


class LocalFunctionTest(AcceptedTest):
    def function(self):
        return helper.make_function("my.models", "Norm", ["x", "w"], ["y"], norm_nodes(17),
                                    [helper.make_opsetid("", 17)])

    def test_bodies_stand_in_place_of_calls_and_a_note_says_so(self):
        nodes = [helper.make_node("Norm", ["x", "w"], ["t"], name="first", domain="my.models"),
                 helper.make_node("Norm", ["t", "w"], ["y"], name="second", domain="my.models")]
        model = model_of(nodes, 17, [self.function()], imports=[helper.make_opsetid("my.models", 1)])
        report, said = self.fuses(model, ["LigerRMSNorm"] * 2)
        self.assertIn("the bodies of 1 local function stand in place of 2 calls", said)
        self.assertEqual([d["severity"] for d in report["diagnostics"]], ["note"])
        # The call's name is in front of what its nodes were called.
        self.assertEqual(sorted(p["replaced"][0].split("node")[0][:5] for p in report["patched"]), ["first", "secon"])

    def test_nothing_fused_nothing_changed(self):
        body = [helper.make_node("Relu", ["x"], ["y"])]
        function = helper.make_function("my.models", "F", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
        path = self.save(model_of([helper.make_node("F", ["x"], ["y"], name="f", domain="my.models")], 17, [function],
                                  initializers=(), imports=[helper.make_opsetid("my.models", 1)]))
        before = path.read_bytes()
        self.assertEqual(self.patch_report("model.onnx", "--family", "any")["status"], "nothing_to_do")
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(sorted(self.files()), ["model.onnx", "report.json"])


class AlreadyFusedTest(AcceptedTest):
    def test_operator_that_stays_is_counted_with_its_reason(self):
        cache = [numpy_helper.from_array(np.zeros((4, 2), np.float32), name) for name in ("cos", "sin")]
        positions = numpy_helper.from_array(np.arange(3, dtype=np.int64)[None].repeat(2, 0), "positions")
        nodes = [helper.make_node("RotaryEmbedding", ["x", "positions", "cos", "sin"], ["y"], name="rotary",
                                  domain="com.microsoft", num_heads=2)]
        self.save(model_of(nodes, 17, initializers=[*cache, positions],
                           imports=[helper.make_opsetid("com.microsoft", 1)]))
        report = self.patch_report("model.onnx", "--family", "any")
        self.assertEqual([(f["module"], f["node"], f["instances"]) for f in report["already_fused"]],
                         [("rope", "rotary", 1)])
        self.assertRegex(report["already_fused"][0]["reason"], "position")
        self.assertEqual(report["modules"]["rope"]["already_fused"], 1)
        self.assertEqual(report["status"], "nothing_to_do")
        text = self.patch("model.onnx", "--family", "any", "--explain").stdout
        self.assertRegex(text, "(?m)^  left as it is  RotaryEmbedding  rotary: .*position")

    def test_operator_of_onnx_runtime_that_is_the_op_is_taken_over(self):
        nodes = [helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["y"], name="norm", axis=-1, epsilon=1e-5,
                                  stash_type=1)]
        report, _ = self.fuses(model_of(nodes, 17), ["LigerRMSNorm"])
        self.assertEqual(report["already_fused"], [])
        self.assertEqual([p["replaced"] for p in report["patched"]], [["norm"]])

    def test_own_nodes_have_no_reason(self):
        self.fuses(model_of(norm_nodes(17), 17), ["LigerRMSNorm"])
        report = self.patch_report("out.onnx", "--family", "any")
        self.assertEqual([(f["op"], f["reason"]) for f in report["already_fused"]], [("LigerRMSNorm", "")])


class DriftTest(AcceptedTest):
    def test_a_patched_model_converted_to_half_precision_is_a_warning_with_the_remedy(self):
        self.fuses(model_of(norm_nodes(17), 17), ["LigerRMSNorm"])
        model = onnx.load(self.folder / "out.onnx")
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            value.type.tensor_type.elem_type = F16
        for tensor in model.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
        onnx.save(model, self.folder / "half.onnx")
        run = self.patch("half.onnx", "--family", "any")
        self.assertRegex(run.stderr, r"(?m)^liger-patch: warning: .*LigerRMSNorm.*convert the original first")


if __name__ == "__main__":
    unittest.main()
