"""Rotations, gates and activations: every number and every attribute comes from the graph."""
import itertools
import unittest

import numpy as np
import onnx
from onnx import helper

from graph import F16, F32, F64, I64, W, Graph, gelu5, gelu_tanh, rms6, rope_half, silu2, swiglu3, tables
from recipe_testing import RecipeTest, attributes, fused_nodes, rotate_half_f64, run

ROPE, SWIGLU, GEGLU = "LigerRope", "LigerSwiGLU", "LigerGeGLU"
SHAPE = [2, 4, 8]


def rotation_input(g, heads=4, sequence=5, width=16):
    """q, cos, sin with tables of equal halves made of angles."""
    q = g.input("q", [1, heads, sequence, width])
    cos, sin = tables(g, g.input("angles", [1, 1, sequence, width // 2]))
    return q, cos, sin


class RotationTest(RecipeTest):
    def test_rotate_half(self):
        g = Graph(17)
        rope_half(g, *rotation_input(g))
        g.output("y", [1, 4, 5, 16])
        rng = np.random.default_rng(5)
        feeds = {"q": rng.normal(size=(1, 4, 5, 16)).astype(np.float32),
                 "angles": rng.uniform(-3, 3, size=(1, 1, 5, 8)).astype(np.float32)}
        _, patched = self.fused(g.model(), [ROPE], feeds=feeds)
        angles = np.concatenate([feeds["angles"]] * 2, -1).astype(np.float64)
        want = rotate_half_f64(feeds["q"], np.cos(angles), np.sin(angles))
        np.testing.assert_allclose(run(patched, feeds, library=True)["y"], want, rtol=0, atol=2e-6)

    def standard(self, partial=False, interleaved=0, three_axes=False, positions=False, heads=4):
        """RotaryEmbedding of opset 23."""
        g = Graph(23)
        width = 16
        turned = 8 if partial else width
        x = g.input("x", [2, 5, heads * width] if three_axes else [2, heads, 5, width])
        cache = [9, turned // 2] if positions else [2, 5, turned // 2]
        rng = np.random.default_rng(6)
        angles = rng.uniform(-3, 3, size=cache)
        inputs = [x, g.const("cos", np.cos(angles)), g.const("sin", np.sin(angles))]
        if positions:
            inputs.append(g.const("position_ids", rng.integers(0, 9, size=(2, 5)), I64))
        options = {"interleaved": interleaved} if interleaved else {}
        if partial:
            options["rotary_embedding_dim"] = turned
        if three_axes:
            options["num_heads"] = heads
        g.op("RotaryEmbedding", *inputs, out="y", **options)
        g.output("y", [2, 5, heads * width] if three_axes else [2, heads, 5, width])
        return g.model()

    def test_standard_rotary_embedding_keeps_each_attribute(self):
        for partial, interleaved, three_axes, positions in itertools.product((False, True), (0, 1), (False, True),
                                                                            (False, True)):
            with self.subTest(partial=partial, interleaved=interleaved, three_axes=three_axes, positions=positions):
                report, patched = self.never_wrong(self.standard(partial, interleaved, three_axes, positions))
                module = report["modules"]["rope"]
                self.assertEqual(module["patched"] + module["already_fused"], 1)
                for node in fused_nodes(patched):
                    self.assertEqual(attributes(node)["interleaved"], interleaved)
                    self.assertEqual(attributes(node)["rotary_dim"], 8 if partial else 16)

    def test_three_axes_without_number_of_heads(self):
        """Invalid: it must be left alone or refused, not guessed."""
        g = Graph(23)
        g.op("RotaryEmbedding", g.input("x", [2, 5, 64]), g.const("cos", np.ones([2, 5, 8])),
             g.const("sin", np.zeros([2, 5, 8])), out="y")
        g.output("y", [2, 5, 64])
        model = helper.make_model(g.graph(), opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
        path = self.save(model)
        result = self.command(path, "--family", "any")
        self.assertIn(result.returncode, (0, 3), result.stderr)
        self.assertFalse((self.folder / "model.liger.onnx").exists())

    def sections(self, sizes, rows):
        """cos and sin chosen in sections from three rows of positions, then the rotation."""
        g = Graph(17)
        q = g.input("q", [1, 4, 5, 16])
        cos, sin = tables(g, g.input("angles", [3, 1, 5, 8]))
        chosen = []
        for name, table in (("c", cos), ("s", sin)):
            parts = [f"{name}{i}" for i in range(len(sizes))]
            g.op("Split", table, g.ints("sizes", sizes), out=parts, axis=-1)
            for i, part in enumerate(parts):
                g.op("Gather", part, g.ints(f"row{rows[i]}", rows[i]), out=f"{part}_row", axis=0)
            g.op("Concat", *[f"{part}_row" for part in parts], out=f"{name}_all", axis=-1)
            chosen.append(g.op("Unsqueeze", f"{name}_all", g.ints("one", [1]), out=f"{name}_table"))
        rope_half(g, q, *chosen)
        g.output("y", [1, 4, 5, 16])
        return g

    def test_sections_in_blocks(self):
        g = self.sections([2, 3, 3, 2, 3, 3], [0, 1, 2, 0, 1, 2])
        before = [n.op_type for n in g.nodes]
        _, patched = self.fused(g.model(), [ROPE])
        after = [n.op_type for n in patched.graph.node]
        for op in ("Split", "Gather", "Unsqueeze", "Cos", "Sin"):
            self.assertEqual(after.count(op), before.count(op), f"{op}: the tables are no part of the rotation")

    def test_sections_whose_halves_differ(self):
        """Widths 4, 6, 6 of 16: element i and element i + 8 turn by different angles. No rotation of pairs."""
        self.refused(self.sections([4, 6, 6], [0, 1, 2]).model(), guard="rotary_tables", reason="halves")

    def test_sections_interleaved(self):
        """Angles chosen by Where from three rows, then doubled."""
        g = Graph(17)
        q, angles = g.input("q", [1, 4, 5, 16]), g.input("angles", [3, 1, 5, 8])
        for row in range(3):
            g.op("Gather", angles, g.ints(f"row{row}", row), out=f"a{row}", axis=0)
        for row in (1, 2):
            mask = np.arange(8) % 3 == row
            g.initializers[f"mask{row}"] = onnx.numpy_helper.from_array(mask, f"mask{row}")
        g.op("Where", "mask1", "a1", "a0", out="b1")
        g.op("Where", "mask2", "a2", "b1", out="b2")
        cos, sin = tables(g, "b2")
        g.op("Unsqueeze", cos, g.ints("one", [1]), out="c4")
        g.op("Unsqueeze", sin, "one", out="s4")
        rope_half(g, q, "c4", "s4")
        g.output("y", [1, 4, 5, 16])
        _, patched = self.fused(g.model(), [ROPE])
        self.assertEqual([n.op_type for n in patched.graph.node].count("Where"), 2)

    def test_bounds_are_computed_from_the_shape(self):
        """Half of the head's size by Shape, Gather, Cast and Div; tables made on the way; no declared shapes."""
        for casts in (True, False):
            with self.subTest(casts=casts):
                g = Graph(17)
                q, angles = g.input("q", [1, 4, "sequence", 16]), g.input("angles", [1, 1, "sequence", 8])
                g.op("Shape", q, out="shape")
                g.op("Gather", "shape", g.ints("three", 3), out="size", axis=0)
                if casts:
                    g.cast("size", I64, "size_cast")
                g.op("Div", "size_cast" if casts else "size", g.ints("two_i", 2), out="middle")
                if casts:
                    g.cast("middle", I64, "middle_cast")
                g.op("Unsqueeze", "middle_cast" if casts else "middle", g.ints("zero", [0]), out="middle1")

                def cut(start, end, out, g=g):
                    bound = {0: "zero", 8: "middle1"}
                    ends = bound.get(end) or g.ints("far", [np.iinfo(np.int64).max])
                    if start == 0:
                        ends = "middle1"
                    g.op("Slice", "q", bound[start], ends, g.ints("last", [-1]), g.ints("step", [1]), out=out)

                cos, sin = tables(g, angles)
                g.op("Mul", cos, g.const("scaling", 1.0), out="cos1")
                g.op("Mul", sin, "scaling", out="sin1")
                rope_half(g, q, "cos1", "sin1", bounds=cut)
                g.output("y", [1, 4, "sequence", 16])
                self.fused(g.model(), [ROPE])

    def test_partial_rotation(self):
        g = Graph(17)
        q = g.input("q", [1, 4, 5, 16])
        cos, sin = tables(g, g.input("angles", [1, 1, 5, 4]))
        g.slice(q, 0, 8, "turn")
        g.slice(q, 8, 16, "pass")
        rope_half(g, "turn", cos, sin, "t_", width=8)
        g.op("Concat", "t_y", "pass", out="y", axis=-1)
        g.output("y", [1, 4, 5, 16])
        _, patched = self.fused(g.model(), [ROPE])
        self.assertEqual(attributes(fused_nodes(patched)[0])["rotary_dim"], 8)


class GateTest(RecipeTest):
    def gate(self, dtype=F32, opset=17):
        g = Graph(opset, dtype)
        return g, g.input("g", SHAPE), g.input("u", SHAPE)

    def test_swapped_operands(self):
        for swap in ((), ("t",), ("y",), ("t", "y")):
            with self.subTest(swap):
                g, gate, up = self.gate()
                swiglu3(g, gate, up, swap=swap)
                g.output("y", SHAPE)
                _, patched = self.fused(g.model(), [SWIGLU])
                self.assertEqual(list(fused_nodes(patched)[0].input), ["g", "u"])

    def test_associated_the_other_way(self):
        for first in ("up", "gate"):
            with self.subTest(first):
                g, gate, up = self.gate()
                g.op("Sigmoid", gate, out="s")
                g.op("Mul", "s", up if first == "up" else gate, out="t")
                g.op("Mul", gate if first == "up" else up, "t", out="y")
                g.output("y", SHAPE)
                report, patched = self.fused(g.model(), [SWIGLU])
                self.assertEqual(list(fused_nodes(patched)[0].input), ["g", "u"])
                self.assertEqual(report["patched"][0]["precision"], "reassociated" if first == "up" else "exact")
        g, gate, up = self.gate()
        g.op("Mul", gate, up, out="p")
        g.op("Sigmoid", gate, out="s")
        g.op("Mul", "p", "s", out="y")
        g.output("y", SHAPE)
        self.fused(g.model(), [SWIGLU])
        self.refused(g.model(), "--exact", guard="exact")

    def test_intermediate_is_an_output(self):
        g, gate, up = self.gate()
        swiglu3(g, gate, up)
        g.output("y", SHAPE)
        g.output("t", SHAPE)
        self.refused(g.model(), reason="inner value 't'.*output")

    def clamped(self, low=-7, high=7, gate_high=7, gate_low=None, alpha=1.702, clip_gate=False, up_first=False):
        """y = (clip(u) + 1) * gc * Sigmoid(alpha * gc), gc = Min(g, limit)."""
        g, gate, up = self.gate()
        if gate_low is not None or clip_gate:
            low_name = g.const("gate_low", gate_low) if gate_low is not None else ""
            g.op("Clip", gate, low_name, g.const("gate_high", gate_high), out="gc")
        else:
            g.op("Min", gate, g.const("gate_high", gate_high), out="gc")
        g.op("Clip", up, g.const("low", low), g.const("high", high), out="uc")
        g.op("Add", "uc", g.const("one", 1), out="u1")
        g.op("Mul", "gc", g.const("alpha", alpha), out="z")
        g.op("Sigmoid", "z", out="s")
        if up_first:
            g.op("Mul", g.op("Mul", "u1", "gc", out="t"), "s", out="y")
        else:
            g.op("Mul", "u1", g.op("Mul", "gc", "s", out="t"), out="y")
        g.output("y", SHAPE)
        rng = np.random.default_rng(8)
        return g.model(), {n: (rng.normal(size=SHAPE) * 8).astype(np.float32) for n in ("g", "u")}

    def test_clamped_gate_keeps_its_numbers(self):
        for clip_gate, up_first in ((False, False), (True, False), (False, True)):
            for alpha, limit in ((1.702, 7), (1.5, 3)):
                with self.subTest(alpha=alpha, limit=limit, clip_gate=clip_gate, up_first=up_first):
                    model, feeds = self.clamped(-limit, limit, limit, None, alpha, clip_gate, up_first)
                    _, patched = self.never_wrong(model, feeds=feeds)
                    (node,) = fused_nodes(patched)
                    found = attributes(node)
                    self.assertEqual((found["limit"], found["up_offset"]), (limit, 1))
                    self.assertEqual(list(node.input), ["g", "u"])
                    if "approximate" in found:
                        self.assertEqual((found["approximate"], alpha), (b"sigmoid", 1.702))
                    else:
                        self.assertEqual(np.float32(found["alpha"]), np.float32(alpha))

    def test_clamps_that_differ(self):
        for numbers in ({"low": -6}, {"high": 6}, {"gate_high": 5}, {"gate_low": -7}):
            with self.subTest(numbers):
                model, feeds = self.clamped(**numbers)
                self.never_wrong(model, feeds=feeds)
                self.assertEqual([p["attributes"] for p in self.report["patched"] if p["attributes"]["limit"]], [])

    def test_alpha(self):
        for alpha in (1.702, 1.0, 0.5):
            with self.subTest(alpha):
                g, gate, up = self.gate()
                g.op("Mul", gate, g.const("alpha", alpha), out="z")
                g.op("Sigmoid", "z", out="s")
                g.op("Mul", gate, "s", out="t")
                g.op("Mul", "t", up, out="y")
                g.output("y", SHAPE)
                report, patched = self.never_wrong(g.model())
                for node in fused_nodes(patched):
                    found = attributes(node)
                    self.assertTrue(found.get("approximate") == b"sigmoid" and alpha == 1.702 or
                                    np.float32(found.get("alpha", 0)) == np.float32(alpha), found)
                self.assertEqual(len(report["patched"]), 1, self.reasons())

    def test_alpha_in_double_that_no_float_holds(self):
        """1.702 as a double is a constant of the GELU by sigmoid; 1.71 can only be an attribute, which is a float."""
        for alpha, fits in ((1.71, False), (float(np.float32(1.71)), True), (1.702, None)):
            with self.subTest(alpha):
                g, gate, up = self.gate(F64)
                g.op("Mul", gate, g.const("alpha", alpha), out="z")
                g.op("Sigmoid", "z", out="s")
                g.op("Mul", gate, "s", out="t")
                g.op("Mul", "t", up, out="y")
                g.output("y", SHAPE)
                _, patched = self.never_wrong(g.model())
                if fits is not None:
                    self.assertEqual(len(fused_nodes(patched)), int(fits), self.reasons())

    def test_activation_alone_is_no_gate(self):
        """x * Sigmoid(1.702 x) and its like have no second factor: left alone in every type."""
        for dtype in (F16, F32, F64):
            for alpha in (1.702, None):
                with self.subTest(dtype=dtype, alpha=alpha):
                    g = Graph(17, dtype)
                    x = g.input("x", SHAPE)
                    if alpha is None:
                        silu2(g, x)
                    else:
                        g.op("Mul", x, g.const("alpha", alpha), out="z")
                        g.op("Sigmoid", "z", out="s")
                        g.op("Mul", x, "s", out="t")
                    g.output("t", SHAPE)
                    self.refused(g.model(), reason=None if alpha else "no factor of the product 't'")

    def test_shape_of_a_factor_is_used(self):
        """A value may feed a shape slot; only inner values may not."""
        g, gate, up = self.gate()
        swiglu3(g, gate, up)
        g.op("Reshape", up, g.ints("flat", [8, 8]), out="u2")
        g.op("Shape", up, out="shape")
        g.op("Shape", "u2", out="shape2")
        g.op("Reshape", "y", "shape2", out="y2")
        g.op("Reshape", "y2", "shape", out="y3")
        g.output("y3", SHAPE)
        self.fused(g.model(), [SWIGLU])
        g, gate, up = self.gate()
        swiglu3(g, gate, up)
        g.op("Shape", "t", out="shape")
        g.op("Reshape", "y", "shape", out="y2")
        g.output("y2", SHAPE)
        self.never_wrong(g.model())


class GeluGateTest(RecipeTest):
    """The activation of a gate is the graph's: exact or with Tanh, wherever the 0.5 stands."""

    FORMS = [("none", gelu5, {"half": h, "divide": d}) for h in ("last", "first") for d in (True, False)]
    FORMS += [("tanh", gelu_tanh, {"half": h, "cube": c}) for h in ("last", "first") for c in ("pow", "mul")]

    def geglu(self, form, options, swap=False, opset=17):
        g = Graph(opset)
        gate, up = g.input("g", SHAPE), g.input("u", SHAPE)
        activated = form(g, gate, **options)
        g.op("Mul", *((up, activated) if swap else (activated, up)), out="y")
        g.output("y", SHAPE)
        return g.model()

    def test_each_spelling(self):
        for approximate, form, options in self.FORMS:
            for swap in (False, True):
                with self.subTest(approximate=approximate, swap=swap, **options):
                    _, patched = self.fused(self.geglu(form, options, swap), [GEGLU])
                    (node,) = fused_nodes(patched)
                    self.assertEqual(attributes(node)["approximate"].decode(), approximate)
                    self.assertEqual(list(node.input), ["g", "u"])

    def test_standard_operator(self):
        for approximate in ("none", "tanh"):
            with self.subTest(approximate):
                g = Graph(20)
                g.op("Gelu", g.input("g", SHAPE), out="a", approximate=approximate)
                g.op("Mul", "a", g.input("u", SHAPE), out="y")
                g.output("y", SHAPE)
                _, patched = self.fused(g.model(), [GEGLU])
                self.assertEqual(attributes(fused_nodes(patched)[0])["approximate"].decode(), approximate)

    def test_activation_alone(self):
        for _, form, options in self.FORMS:
            with self.subTest(**options):
                g = Graph(17)
                form(g, g.input("x", SHAPE), **options)
                g.output("a", SHAPE)
                self.refused(g.model())

    def test_other_constants(self):
        """1.41 for the root of two, 0.05 for 0.044715: close to a GELU, and none."""
        for name, value in (("sqrt2", 1.41), ("half", 0.4), ("one", 1.1)):
            with self.subTest(name):
                g = Graph(17)
                g.const(name, value)
                gelu5(g, g.input("g", SHAPE))
                g.op("Mul", "a", g.input("u", SHAPE), out="y")
                g.output("y", SHAPE)
                self.refused(g.model())
        for name, value in (("c3", 0.05), ("c1", 0.8), ("three", 2), ("one", 1.1)):
            with self.subTest(name):
                g = Graph(17)
                g.const(name, value)
                gelu_tanh(g, g.input("g", SHAPE))
                g.op("Mul", "a", g.input("u", SHAPE), out="y")
                g.output("y", SHAPE)
                self.refused(g.model())


class QuantizedScaleTest(RecipeTest):
    def test_scale_behind_dequantize_linear(self):
        g = Graph(17)
        x = g.input("x", SHAPE)
        g.initializers["w8"] = onnx.numpy_helper.from_array(np.arange(5, 13, dtype=np.int8), "w8")
        g.initializers["zero8"] = onnx.numpy_helper.from_array(np.array(0, np.int8), "zero8")
        g.op("DequantizeLinear", "w8", g.const("step", 0.1), "zero8", out="w")
        rms6(g, x, "w")
        g.output("y", SHAPE)
        _, patched = self.fused(g.model(), ["LigerRMSNorm"])
        self.assertEqual([n.op_type for n in patched.graph.node], ["DequantizeLinear", "LigerRMSNorm"])
        self.assertEqual(fused_nodes(patched)[0].input[1], "w")

    def test_quantised_value_between_norm_and_scale_stops_the_match(self):
        g = Graph(17)
        x, w = g.input("x", SHAPE), g.const("w", W)
        rms6(g, x, w)
        del g.nodes[-1]
        g.initializers["zero8"] = onnx.numpy_helper.from_array(np.array(0, np.int8), "zero8")
        g.op("QuantizeLinear", "n", g.const("step", 0.1), "zero8", out="q")
        g.op("DequantizeLinear", "q", "step", "zero8", out="dq")
        g.op("Mul", "dq", w, out="y")
        g.output("y", SHAPE)
        _, patched = self.never_wrong(g.model())
        self.assertEqual([n.op_type for n in patched.graph.node][-3:], ["QuantizeLinear", "DequantizeLinear", "Mul"])
        self.assertEqual([i for n in fused_nodes(patched) for i in n.input[1:] if i], [], "the scale was taken in")


if __name__ == "__main__":
    unittest.main()
