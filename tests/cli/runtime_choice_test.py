"""What is left to ONNX Runtime's CUDA provider, and only with cuda among --providers."""
import unittest

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from cli_testing import CliTest

BATCH, TOKENS, HEADS, DIM = 2, 3, 4, 8
HIDDEN = HEADS * DIM


def tensor(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


class RuntimeChoiceTest(CliTest):
    def save(self, nodes, inputs, outputs, weights):
        graph = helper.make_graph(nodes, "g", inputs, outputs,
                                  [numpy_helper.from_array(value, name) for name, value in weights.items()])
        save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18),
                                                                   helper.make_opsetid("com.microsoft", 1)]),
             self.folder / "model.onnx")

    def attention(self, query_nodes, weights):
        """query_nodes make 'query' of 'q'; it goes into a GroupQueryAttention."""
        cache = [BATCH, HEADS, 5, DIM]
        attention = helper.make_node("GroupQueryAttention", ["query", "k", "v", "past_k", "past_v", "lengths", "total"],
                                     ["y", "present_k", "present_v"], domain="com.microsoft", num_heads=HEADS,
                                     kv_num_heads=HEADS, name="attention")
        inputs = [*(tensor(n, [BATCH, TOKENS, HIDDEN]) for n in ("q", "k", "v")), tensor("past_k", cache),
                  tensor("past_v", cache), tensor("lengths", [BATCH], TensorProto.INT32),
                  tensor("total", [1], TensorProto.INT32)]
        outputs = [tensor("y", [BATCH, TOKENS, HIDDEN]), tensor("present_k", [BATCH, HEADS, 8, DIM]),
                   tensor("present_v", [BATCH, HEADS, 8, DIM])]
        self.save([*query_nodes, attention], inputs, outputs, weights)

    def places(self, op, *options):
        """How many nodes of our op a run makes, and the reasons with the guard `runtime`."""
        report = self.patch_report("model.onnx", "--family", "any", "--dry-run", *options)
        fused = sum(patched["op"] == op for patched in report["patched"])
        return fused, [miss["reason"] for miss in report["missed"] if miss["guard"] == "runtime"], report

    def test_norm_of_queries(self):
        self.attention([
            helper.make_node("Reshape", ["q", "split"], ["heads"]),
            helper.make_node("SimplifiedLayerNormalization", ["heads", "w"], ["normalised"], axis=-1, epsilon=1e-6, name="norm"),
            helper.make_node("Reshape", ["normalised", "join"], ["query"]),
        ], {"split": np.array([BATCH, TOKENS, HEADS, DIM]), "join": np.array([BATCH, TOKENS, HIDDEN]),
            "w": np.linspace(0.5, 1.5, DIM, dtype=np.float32)})
        self.assertEqual(self.places("LigerRMSNorm", "--providers", "cpu")[:2], (1, []))
        fused, _, report = self.places("LigerRMSNorm")
        self.assertEqual(fused, 0)
        kept = [entry for entry in report["already_fused"] if entry["node"] == "norm"]
        self.assertEqual(len(kept), 1, report["already_fused"])
        self.assertIn("GroupQueryAttention", kept[0]["reason"])

    def test_decomposed_norm_of_queries(self):
        self.attention([
            helper.make_node("Reshape", ["q", "split"], ["heads"]),
            helper.make_node("Pow", ["heads", "two"], ["squares"]),
            helper.make_node("ReduceMean", ["squares", "axes"], ["mean"]),
            helper.make_node("Add", ["mean", "eps"], ["variance"]),
            helper.make_node("Sqrt", ["variance"], ["rms"]),
            helper.make_node("Div", ["heads", "rms"], ["n"]),
            helper.make_node("Mul", ["n", "w"], ["normalised"]),
            helper.make_node("Reshape", ["normalised", "join"], ["query"]),
        ], {"split": np.array([BATCH, TOKENS, HEADS, DIM]), "join": np.array([BATCH, TOKENS, HIDDEN]),
            "w": np.linspace(0.5, 1.5, DIM, dtype=np.float32), "two": np.float32(2), "eps": np.float32(1e-6),
            "axes": np.array([-1])})
        self.assertEqual(self.places("LigerRMSNorm", "--providers", "cpu")[:2], (1, []))
        fused, reasons, _ = self.places("LigerRMSNorm")
        self.assertEqual((fused, len(reasons)), (0, 1))
        self.assertRegex(reasons[0], "left to the runtime: .*GroupQueryAttention")

    def test_rotation_of_queries(self):
        rotated = helper.make_node("RotaryEmbedding", ["q", "positions", "cos", "sin"], ["query"], domain="com.microsoft",
                                   num_heads=HEADS, name="rotation")
        self.attention([rotated], {"positions": np.zeros((BATCH, TOKENS), np.int64),
                                   "cos": np.ones((16, DIM // 2), np.float32), "sin": np.zeros((16, DIM // 2), np.float32)})
        _, _, report = self.places("LigerRope")
        self.assertFalse(report["patched"])
        self.assertEqual([entry["node"] for entry in report["already_fused"]], ["rotation"])

    def layer_norm(self, also_read):
        nodes = [helper.make_node("Add", ["x", "r"], ["sum"]),
                 helper.make_node("LayerNormalization", ["sum", "w", "b"], ["y"], axis=-1, epsilon=1e-6)]
        outputs = [tensor("y", [BATCH, TOKENS, HIDDEN])]
        if also_read:
            nodes.append(helper.make_node("Neg", ["sum"], ["z"]))
            outputs.append(tensor("z", [BATCH, TOKENS, HIDDEN]))
        # A broadcast addition, so that no LigerAddLayerNorm takes it in.
        self.save(nodes, [tensor("x", [BATCH, TOKENS, HIDDEN]), tensor("r", [1, TOKENS, HIDDEN])], outputs,
                  {"w": np.linspace(0.5, 1.5, HIDDEN, dtype=np.float32), "b": np.linspace(-1, 1, HIDDEN, dtype=np.float32)})

    def test_layer_norm_behind_a_lone_addition(self):
        self.layer_norm(also_read=False)
        self.assertEqual(self.places("LigerLayerNorm", "--providers", "cpu")[:2], (1, []))
        fused, _, report = self.places("LigerLayerNorm")
        self.assertEqual(fused, 0)
        self.assertIn("SkipLayerNormalization", str(report["missed"] + report["already_fused"]))

    def test_layer_norm_of_a_residual_stream_is_fused(self):
        self.layer_norm(also_read=True)
        self.assertEqual(self.places("LigerLayerNorm")[:2], (1, []))


if __name__ == "__main__":
    unittest.main()
