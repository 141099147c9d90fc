"""Families, scopes and losses: what is looked for, and what is said of the rest."""
import json
import unittest

import numpy as np

from graph import B, F32, I64, W, Graph, gelu5, ln9, rms6, swiglu3
from recipe_testing import RecipeTest, fused_nodes

NORM, LAYER, SWIGLU = "LigerRMSNorm", "LigerLayerNorm", "LigerSwiGLU"
SHAPE = [2, 4, 8]


def layer(g, x, prefix=""):
    """Norm, gated MLP and residual with the names of a decoder layer."""
    p = prefix
    rms6(g, x, g.const(f"{p}post_attention_layernorm.weight", W), p + "n_")
    g.op("MatMul", p + "n_y", g.const(f"{p}mlp.gate_proj.weight", np.eye(8)), out=p + "gate")
    g.op("MatMul", p + "n_y", g.const(f"{p}mlp.up_proj.weight", np.eye(8) * 2), out=p + "up")
    swiglu3(g, p + "gate", p + "up", p + "g_")
    g.op("MatMul", p + "g_y", g.const(f"{p}mlp.down_proj.weight", np.eye(8) / 2), out=p + "down")
    return g.op("Add", x, p + "down", out=p + "out")


def decoder():
    g = Graph(17)
    g.output(layer(g, g.input("x", SHAPE), "model.layers.0."), SHAPE)
    return g.model()


class FamilyRecipe(RecipeTest):
    def config(self, **values):
        (self.folder / "config.json").write_text(json.dumps(values))

    def modules(self):
        return {name: m["patched"] for name, m in self.report["modules"].items() if m["patched"]}


class UnknownTest(FamilyRecipe):
    """A family that nobody knows is an error with the way out; never a crash, never a silent run without effect."""

    NAMES = ("gpt2", "Llama", "qwen9_vl", "x" * 10_000, "llama\n", "ллама", "../llama", "null")

    def test_model_type_that_no_map_has(self):
        self.save(decoder())
        for name in self.NAMES:
            with self.subTest(name[:20]):
                self.config(model_type=name)
                result = self.fails(4, ".", "model.onnx")
                self.assertIn("--family", result.stderr)
                self.assertLess(len(result.stderr), 5000, "the message quotes everything")

    def test_family_option_that_no_map_has(self):
        self.save(decoder())
        for name in self.NAMES:
            with self.subTest(name[:20]):
                result = self.fails(4, ".", "model.onnx", "--family", name)
                self.assertLess(len(result.stderr), 5000, "the message quotes everything")

    def test_wrong_case_names_the_right_one(self):
        self.save(decoder())
        self.config(model_type="Llama")
        self.assertRegex(self.fails(4, ".", "model.onnx").stderr, r"\bllama\b")

    def test_values_that_are_no_names(self):
        self.save(decoder())
        for value in ("", None, 7, [], {}, True):
            with self.subTest(value=value):
                self.config(model_type=value)
                result = self.command("model.onnx", "-o", "out.onnx")
                self.assertIn(result.returncode, (0, 3, 4), result.stderr)

    def test_nothing_names_a_family(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        self.save(g.model())
        self.assertIn("--family", self.fails(4, ".", "model.onnx").stderr)

    def test_structure_alone(self):
        """A hybrid of convolutions and gates; no rotation in its layers."""
        g = Graph(17)
        x = layer(g, g.input("x", SHAPE), "model.layers.0.")
        rms6(g, x, g.const("c_w", W), "c_")
        g.op("Transpose", "c_y", out="c_t", perm=[0, 2, 1])
        g.op("Conv", "c_t", g.const("kernel", np.full([8, 1, 3], 0.3)), out="c_c", group=8, pads=[1, 1])
        g.op("Transpose", "c_c", out="c_b", perm=[0, 2, 1])
        g.op("Add", x, "c_b", out="c_out")
        rms6(g, "c_out", g.const("f_w", W), "f_")
        g.op("MatMul", "f_y", g.const("f_gate", np.eye(8)), out="f_g")
        g.op("MatMul", "f_y", g.const("f_up", np.eye(8) * 2), out="f_u")
        swiglu3(g, "f_g", "f_u", "s_")
        g.output("s_y", SHAPE)
        self.config(model_type="no_such_model")
        report, _ = self.fused(g.model(), [NORM, "LigerAddRMSNorm", "LigerAddRMSNorm", SWIGLU, SWIGLU])
        self.assertEqual(report["route"], "structural")
        self.assertEqual({m["expected"] for m in report["modules"].values()}, {None})
        self.assertEqual(report["modules"]["rope"]["patched"], 0)

    def test_structure_alone_keeps_every_guard(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W), eps=g.input("eps", []))
        g.output("y", SHAPE)
        self.config(model_type="no_such_model")
        self.refused(g.model(), reason="epsilon is not a constant")


class MismatchTest(FamilyRecipe):
    def test_gate_of_another_activation_than_the_family_has(self):
        """Gemma 2 has GELU gates; the graph says SiLU. Nothing is patched by the wrong name, and it is said."""
        self.config(model_type="gemma2", num_hidden_layers=1, hidden_activation="gelu_pytorch_tanh")
        report, patched = self.patch(decoder(), family=None)
        self.assertEqual(report["family"]["name"], "gemma2")
        self.assertEqual([n.op_type for n in fused_nodes(patched) if n.op_type in (SWIGLU, "LigerGeGLU")], [])
        geglu = report["modules"]["geglu"]
        self.assertEqual((geglu["expected"], geglu["patched"], geglu["missed"] + geglu["unaccounted"]), (1, 0, 1))
        said = [r["reason"] for r in self.refusals() if r["module"] in ("geglu", "swiglu")]
        said += [d["message"] for d in report["diagnostics"]]
        self.assertTrue(any("geglu" in s or "SwiGLU" in s or "swiglu" in s or "Sigmoid" in s for s in said), said)

    def test_gate_that_the_family_has_not(self):
        """The other way round: llama has SiLU gates, the graph says GELU."""
        g = Graph(17)
        x = g.input("x", SHAPE)
        g.op("MatMul", x, g.const("model.layers.0.mlp.gate_proj.weight", np.eye(8)), out="gate")
        g.op("MatMul", x, g.const("model.layers.0.mlp.up_proj.weight", np.eye(8) * 2), out="up")
        g.op("Mul", gelu5(g, "gate"), "up", out="y")
        g.output("y", SHAPE)
        self.config(model_type="llama", num_hidden_layers=1)
        report, patched = self.patch(g.model(), family=None)
        self.assertEqual(fused_nodes(patched), [])
        swiglu = report["modules"]["swiglu"]
        self.assertEqual((swiglu["expected"], swiglu["missed"] + swiglu["unaccounted"]), (1, 1))


class NestedConfigTest(FamilyRecipe):
    """Sizes stand at the top of config.json or in the part that describes the text."""

    def test_model_type_of_the_whole_decides(self):
        self.config(model_type="qwen2_5_vl", text_config={"model_type": "qwen2_5_vl_text", "num_hidden_layers": 1})
        report, _ = self.patch(decoder(), family=None)
        self.assertEqual(report["family"]["name"], "qwen2_5_vl")
        self.assertEqual(self.modules(), {"rms_norm": 1, "swiglu": 1})

    def test_number_of_layers_is_found(self):
        """Names that say nothing: only config.json can tell how many gates there are."""
        g = Graph(17)
        x = g.input("x", SHAPE)
        swiglu3(g, x, g.op("Tanh", x, out="u"))
        g.output("y", SHAPE)
        for path in ((), ("text_config",), ("language_config",), ("llm_config",),
                     ("thinker_config", "text_config")):
            with self.subTest(path):
                values = {"num_hidden_layers": 3, "hidden_size": 8, "model_type": "llama"}
                for key in reversed(path):
                    values = {"model_type": "llama", key: values}
                self.config(**values)
                report, _ = self.patch(g.model(), family=None)
                swiglu = report["modules"]["swiglu"]
                self.assertEqual((swiglu["expected"], swiglu["expected_source"], swiglu["patched"]), (3, "config", 1))


class ScopeTest(FamilyRecipe):
    def test_vision_and_text_in_one_graph(self):
        """LayerNorms of a vision tower beside RMSNorms of a text model: each module acts on its own kind."""
        g = Graph(17)
        x = g.input("x", SHAPE)
        ln9(g, x, g.const("vision.norm.weight", W), g.const("vision.norm.bias", B), "v_")
        rms6(g, "v_y", g.const("text.norm.weight", W), "t_")
        g.output("t_y", SHAPE)
        self.fused(g.model(), [LAYER, NORM])
        self.fused(g.model(), [NORM], "--modules", "rms_norm")
        self.fused(g.model(), [LAYER], "--modules", "layer_norm")


class LossTest(FamilyRecipe):
    """Losses are left alone unless asked for, and every one is listed."""

    def listed(self):
        return sorted((loss["op"], loss["node"]) for loss in self.report["excluded"]["loss_ops"])

    def cross_entropy(self, reduction, weighted, labels):
        g = Graph(13)
        logits = g.input("logits", [6, 10])
        inputs = [logits, g.const("labels", labels, I64)]
        if weighted:
            inputs.append(g.const("class_weights", np.linspace(0.5, 1.5, 10)))
        g.op("SoftmaxCrossEntropyLoss", *inputs, out=["loss", "log_prob"], reduction=reduction, ignore_index=-100)
        g.output("loss", [6] if reduction == "none" else [])
        g.output("log_prob", [6, 10])
        return g.model()

    def test_cross_entropy_is_listed_and_left(self):
        some, none = [3, -100, 0, 9, -100, 1], [-100] * 6
        for reduction in ("mean", "sum", "none"):
            for weighted in (False, True):
                for labels in (some, none):
                    with self.subTest(reduction=reduction, weighted=weighted, ignored=labels is none):
                        report = self.refused(self.cross_entropy(reduction, weighted, labels))
                        self.assertEqual(self.listed(), [("SoftmaxCrossEntropyLoss", "node_loss")])
                        self.assertEqual(report["excluded"]["modules"],
                                         ["cross_entropy", "fused_linear_cross_entropy"])

    def test_logarithm_and_negative_log_likelihood(self):
        g = Graph(13)
        g.op("LogSoftmax", g.input("logits", [6, 10]), out="log_prob", axis=1)
        g.op("NegativeLogLikelihoodLoss", "log_prob", g.const("labels", [3, -100, 0, 9, -100, 1], I64), out="loss",
             ignore_index=-100)
        g.output("loss", [])
        self.refused(g.model())
        self.assertEqual(self.listed(), [("LogSoftmax + NegativeLogLikelihoodLoss", "node_log_prob")])

    def test_loss_written_out(self):
        """LogSoftmax, GatherElements, Neg, Where, ReduceSum, Div by the count of labels that are kept."""
        g = Graph(13)
        g.op("LogSoftmax", g.input("logits", [6, 10]), out="log_prob", axis=1)
        g.input("labels", [6, 1], I64)  # class numbers that the graph holds would be a choice of its own
        g.op("Equal", "labels", g.ints("ignored", -100), out="is_ignored")
        g.op("Where", "is_ignored", g.ints("first", 0), "labels", out="safe")
        g.op("GatherElements", "log_prob", "safe", out="picked", axis=1)
        g.op("Neg", "picked", out="negative")
        g.op("Where", "is_ignored", g.const("nought", 0), "negative", out="masked")
        g.op("ReduceSum", "masked", out="total", keepdims=0)
        g.op("Not", "is_ignored", out="kept")
        g.cast("kept", F32, "kept_float")
        g.op("ReduceSum", "kept_float", out="count", keepdims=0)
        g.op("Div", "total", "count", out="loss")
        g.output("loss", [])
        self.refused(g.model())
        self.assertEqual(len(self.listed()), 1, self.listed())

    def test_softmax_for_sampling_is_no_loss(self):
        g = Graph(13)
        g.op("LogSoftmax", g.input("logits", [6, 10]), out="y", axis=1)
        g.output("y", [6, 10])
        self.refused(g.model())
        self.assertEqual(self.listed(), [])

    def test_loss_beside_norms(self):
        """The norms are patched, the loss is listed and gives the same number."""
        g = Graph(17)
        rms6(g, g.input("x", [6, 8]), g.const("w", W))
        g.op("SoftmaxCrossEntropyLoss", "y", g.const("labels", [3, -100, 0, 7, -100, 1], I64), out="loss",
             ignore_index=-100)
        g.output("loss", [])
        self.fused(g.model(), [NORM])
        self.assertEqual(self.listed(), [("SoftmaxCrossEntropyLoss", "node_loss")])


if __name__ == "__main__":
    unittest.main()
