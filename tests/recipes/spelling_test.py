"""Spellings of one function: all are recognised."""
import itertools
import unittest

import numpy as np
import onnx
from onnx import helper

from graph import B, EPS, F16, F32, I64, W, Graph, ln9, rms6, rope_half, swiglu3, tables
from recipe_testing import RecipeTest, attributes, fused_nodes

NORM, LAYER, SWIGLU, ROPE = "LigerRMSNorm", "LigerLayerNorm", "LigerSwiGLU", "LigerRope"
SHAPE = [2, 4, 8]


class NormSpellingTest(RecipeTest):
    def test_square_root_scale_and_epsilon(self):
        """{Pow, Mul} x {Div, Reciprocal, Div of one, Pow(-0.5)} x scale left or right x epsilon left or right."""
        roots = ("div", "reciprocal", "one_over", "pow_minus_half")
        for square, root in itertools.product(("pow", "mul"), roots):
            with self.subTest(square=square, root=root):
                g = Graph(17)
                for swap in ((), ("y",), ("me",), ("y", "me")):
                    prefix = "_".join(("swapped", *swap, ""))
                    x = g.input(prefix + "x", SHAPE)
                    g.output(rms6(g, x, g.const("w", W), prefix, square=square, root=root, swap=swap), SHAPE)
                _, patched = self.fused(g.model(), [NORM] * 4)
                self.assertEqual([n.op_type for n in patched.graph.node], [NORM] * 4)
                for node in patched.graph.node:
                    self.assertEqual([node.input[0][-2:], node.input[1]], ["_x", "w"])

    def test_exponent(self):
        for dtype, shape in itertools.product((F32, I64), ([], [1])):
            with self.subTest(dtype=dtype, shape=shape):
                g = Graph(17)
                g.const("two", np.full(shape, 2), dtype)
                rms6(g, g.input("x", SHAPE), g.const("w", W))
                g.output("y", SHAPE)
                self.fused(g.model(), [NORM])

    def test_exponent_that_is_no_two(self):
        for dtype, value in ((F32, 3), (F32, 1), (F32, 2.000001), (I64, 3), (F32, -2)):
            with self.subTest(dtype=dtype, value=value):
                g = Graph(17)
                g.const("two", value, dtype)
                rms6(g, g.input("x", SHAPE), g.const("w", W))
                g.output("y", SHAPE)
                self.refused(g.model())

    def test_reciprocal_axes_as_input_and_last_axis_counted_from_the_front(self):
        for opset, root in itertools.product((13, 18, 20), ("reciprocal", "one_over", "div")):
            with self.subTest(opset=opset, root=root):
                g = Graph(opset)
                rms6(g, g.input("x", SHAPE), g.const("w", W), axes=(2,), root=root)
                g.output("y", SHAPE)
                self.fused(g.model(), [NORM])

    def test_axis_that_is_not_the_last(self):
        g = Graph(18)
        rms6(g, g.input("x", [2, 2, 4, 8]), g.const("w", W), axes=(2,), root="reciprocal")
        g.output("y", [2, 2, 4, 8])
        self.refused(g.model(), reason="mean over the last axis")

    def test_axis_counted_from_the_front_where_the_rank_is_unknown(self):
        """Nothing says that axis 2 is the last one."""
        g = Graph(18)
        x = g.input("x", SHAPE)
        g.op("Reshape", x, g.input("target", ["rank"], I64), out="x2")
        rms6(g, "x2", g.const("w", W), axes=(2,))
        g.op("Reshape", "y", g.ints("flat", [-1]), out="end")
        g.output("end", ["n"])
        self.refused(g.model(), reason="mean over the last axis")

    def test_constants_as_nodes(self):
        """All constants by Constant nodes, and scalars stored as raw bytes, floats or by value_float."""
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        nodes = []
        for name, tensor in list(g.initializers.items()):
            if name != "w":
                nodes.append(helper.make_node("Constant", [], [name], "constant_" + name,
                                              **({"value": tensor} if name == "two" else
                                                 {"value_float": float(onnx.numpy_helper.to_array(tensor))})))
                del g.initializers[name]
        g.nodes = nodes + g.nodes
        self.fused(g.model(), [NORM])

    def test_no_operations_in_between(self):
        """Identity, a Cast to the same type, a Dropout in inference between the nodes."""
        g = Graph(17)
        x = g.op("Identity", g.input("x", SHAPE), out="x_id")
        g.op("Pow", x, g.const("two", 2), out="sq")
        g.mean(g.cast("sq", F32, "sq_cast"), "m")
        g.op("Add", g.op("Identity", "m", out="m_id"), g.const("eps", EPS), out="me")
        g.op("Sqrt", "me", out="r")
        g.op("Div", x, "r", out="n")
        g.op("Mul", g.cast("n", F32, "n_cast"), g.op("Identity", g.const("w", W), out="w_id"), out="y")
        g.output("y", SHAPE)
        self.fused(g.model(), [NORM])

    def test_scale_behind_a_cast(self):
        """w = Cast(w16): the scale keeps its own type."""
        for opset in (17, 18, 23):
            with self.subTest(opset):
                g = Graph(opset, F32)
                x = g.cast(g.input("x", SHAPE, F16), F32, "x32")
                w = g.cast(g.const("w16", W, F16), F32, "w32")
                g.cast(rms6(g, x, w), F16, "z")
                g.output("z", SHAPE, F16)
                _, patched = self.fused(g.model(), [NORM])
                (node,) = fused_nodes(patched)
                self.assertEqual(list(node.input), ["x", "w16"])
                self.assertEqual([n.op_type for n in patched.graph.node], [NORM])


class OpsetTest(RecipeTest):
    def test_layer_norm_at_each_opset(self):
        for opset in (11, 12, 13, 16, 17, 18, 20, 23):
            with self.subTest(opset):
                g = Graph(opset)
                ln9(g, g.input("x", SHAPE), g.const("w", W), g.const("b", B))
                g.output("y", SHAPE)
                _, patched = self.fused(g.model(), [LAYER])
                versions = {o.domain: o.version for o in patched.opset_import}
                self.assertEqual(versions[""], opset)
                for function in patched.functions:
                    for node in function.node:
                        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
                        self.assertLessEqual(schema.since_version, opset)

    def test_norm_and_gate_at_each_opset(self):
        for opset in (11, 12, 13, 16, 18, 20, 23):
            with self.subTest(opset):
                g = Graph(opset)
                x = g.input("x", SHAPE)
                rms6(g, x, g.const("w", W), "n_")
                swiglu3(g, "n_y", x)
                g.output("y", SHAPE)
                self.fused(g.model(), [NORM, SWIGLU])

    def test_opsets_that_are_too_old(self):
        for opset in (7, 9, 10):
            with self.subTest(opset):
                g = Graph(opset)
                ln9(g, g.input("x", SHAPE), g.const("w", W), g.const("b", B))
                g.output("y", SHAPE)
                self.save(g.model())
                self.fails(3, rf"opset.*{opset}|{opset}.*opset", "model.onnx", "--family", "any")


class OrderOfPatchesTest(RecipeTest):
    """The result does not depend on the order in which modules are named."""

    def model(self):
        g = Graph(17)
        q = g.input("q", [1, 4, 5, 16])
        cos, sin = tables(g, g.input("angles", [1, 1, 5, 4]))
        w = g.const("w", np.linspace(0.5, 1.5, 16))
        rms6(g, q, w, "n_")
        g.slice("n_y", 0, 8, "turn")
        g.slice("n_y", 8, 16, "pass")
        rope_half(g, "turn", cos, sin, "t_", width=8)
        g.op("Concat", "t_y", "pass", out="z", axis=-1)
        g.op("Add", q, "z", out="sum")
        rms6(g, "sum", w, "m_")
        swiglu3(g, "m_y", "sum", "s_")
        g.output("s_y", [1, 4, 5, 16])
        return g.model()

    def test_partial_rotation_among_others(self):
        _, patched = self.fused(self.model(), ["LigerAddRMSNorm", NORM, ROPE, SWIGLU])
        (rope,) = (n for n in fused_nodes(patched) if n.op_type == ROPE)
        self.assertEqual(attributes(rope)["rotary_dim"], 8)

    def test_order_of_modules(self):
        results = set()
        for order in itertools.permutations(("rope", "rms_norm", "swiglu")):
            self.patch(self.model(), "--modules", ",".join(order))
            results.add((self.folder / "patched.onnx").read_bytes())
        self.assertEqual(len(results), 1)

    def test_one_module_after_the_other(self):
        """Patched in three runs in any order: the nodes of one run."""
        wanted = sorted(n.op_type for n in fused_nodes(self.patch(self.model())[1]))
        for order in itertools.permutations(("rope", "rms_norm", "swiglu")):
            with self.subTest(order):
                model = self.model()
                for module in order:
                    _, model = self.patch(model, "--modules", module)
                self.assertEqual(sorted(n.op_type for n in fused_nodes(model)), wanted)
                self.same_results(self.model(), model)


if __name__ == "__main__":
    unittest.main()
