"""Norms: what is one, with which numbers, and what only looks like one."""
import unittest

import numpy as np
import onnx
from onnx import helper

from graph import B, EPS, F16, F32, F64, W, Graph, ln9, rms6
from recipe_testing import RecipeTest, attributes, fused_nodes, norm_f64, rows_with_extremes, run

NORM, ADD_NORM, LAYER, ADD_LAYER = "LigerRMSNorm", "LigerAddRMSNorm", "LigerLayerNorm", "LigerAddLayerNorm"
SHAPE = [2, 4, 8]
MEAN = "mean over the last axis"


def norm(opset=17, shape=SHAPE, w=W, **options):
    g = Graph(opset)
    rms6(g, g.input("x", shape), g.const("w", w), **options)
    g.output("y", shape)
    return g


def layer_norm(opset=17, shape=SHAPE, **options):
    g = Graph(opset)
    width = shape[-1]
    ln9(g, g.input("x", shape), g.const("w", np.linspace(0.5, 1.5, width)), g.const("b", np.linspace(-1, 1, width)),
        **options)
    g.output("y", shape)
    return g


class ReducedAxesTest(RecipeTest):
    """The mean is over the last axis, which stays."""

    def test_the_forms_themselves(self):
        for opset in (13, 17, 18):
            with self.subTest(opset):
                _, patched = self.fused(norm(opset).model(), [NORM])
                self.assertEqual(np.float32(attributes(fused_nodes(patched)[0])["epsilon"]), np.float32(EPS))
                self.fused(layer_norm(opset).model(), [LAYER])

    def test_dropped_axis_broadcasts_along_another(self):
        g = norm(shape=[4, 4], w=np.linspace(0.5, 1.5, 4), keepdims=0)
        self.refused(g.model(), reason=MEAN)
        self.refused(layer_norm(shape=[8, 8], keepdims=0).model(), reason=MEAN)

    def test_dropped_axis_in_one_of_two_means(self):
        for dropped in ("mu", "v"):
            with self.subTest(dropped):
                g = layer_norm(shape=[8, 8])
                (node,) = (n for n in g.nodes if n.output[0] == dropped)
                next(a for a in node.attribute if a.name == "keepdims").i = 0
                # With the first mean dropped there is still the RMSNorm of a difference. Its body together with the
                # difference is what ONNX Runtime takes for a LayerNorm, as it does with the unpatched model.
                _, patched = self.never_wrong(g.model(), body_level="none")
                self.assertLessEqual({n.op_type for n in fused_nodes(patched)}, {NORM} if dropped == "mu" else set())

    def mean_of(self, opset, *axes, **attributes):
        g = Graph(opset)
        x = g.input("x", [2, 4, 8])
        g.op("Pow", x, g.const("two", 2), out="sq")
        g.op("ReduceMean", "sq", *axes, out="m", **attributes)
        g.op("Add", "m", g.const("eps", EPS), out="me")
        g.op("Sqrt", "me", out="r")
        g.op("Div", x, "r", out="n")
        g.op("Mul", "n", g.const("w", W), out="y")
        g.output("y", [2, 4, 8])
        return g

    def test_no_axes_are_all_axes(self):
        self.refused(self.mean_of(17).model(), reason=MEAN)
        self.refused(self.mean_of(18).model(), reason=MEAN)

    def test_empty_axes_are_all_axes(self):
        g = self.mean_of(18, "none")
        g.ints("none", [])
        self.refused(g.model(), reason=MEAN)

    def test_no_operation_with_empty_axes(self):
        self.refused(self.mean_of(18, noop_with_empty_axes=1).model(), reason=MEAN)
        g = self.mean_of(18, "none", noop_with_empty_axes=1)
        g.ints("none", [])
        self.refused(g.model(), reason=MEAN)

    def test_other_axes(self):
        for axes in ([1], [0, 2], [1, 2], [-2], [0]):
            with self.subTest(axes):
                self.refused(self.mean_of(17, axes=axes).model(), reason=MEAN)
                g = self.mean_of(18, "axes")
                g.ints("axes", axes)
                self.refused(g.model(), reason=MEAN)

    def test_layer_norm_over_other_axes(self):
        for axes in ((1,), (0, 2), (1, 2)):
            with self.subTest(axes):
                self.refused(layer_norm(axes=axes).model(), reason=MEAN)

    def test_means_over_different_axes(self):
        g = layer_norm(shape=[2, 8, 8])
        (node,) = (n for n in g.nodes if n.output[0] == "mu")
        next(a for a in node.attribute if a.name == "axes").ints[:] = [1]
        _, patched = self.never_wrong(g.model())
        self.assertNotIn(LAYER, [n.op_type for n in fused_nodes(patched)])

    def test_axes_that_are_computed(self):
        g = self.mean_of(18, "axes")
        g.inputs.append(helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1]))
        self.refused(g.model(), reason=MEAN)


class AccumulationTest(RecipeTest):
    """Sums are in f32, in f64 for f64, whatever the graph's types."""

    def add_norm(self, dtype, wide):
        g = Graph(17, dtype)
        shape = [1, 2, 2048]
        a, b = g.input("a", shape), g.input("b", shape)
        s = g.op("Add", a, b, out="sum")
        w = g.const("w", np.linspace(0.5, 1.5, 2048))
        if wide:
            rms6(g, g.cast(s, F32, "sum32"), g.cast(w, F32, "w32"), dtype=F32)
            g.cast("y", F16, "y16")
        else:
            rms6(g, s, w)
        g.output("y16" if wide else "y", shape)
        return g.model()

    def test_large_rows_in_half_precision(self):
        a = np.full((1, 2, 2048), 4000.0, np.float16)
        a[:, 1] = 100.0
        a *= np.where(np.random.default_rng(1).random(2048) < 0.5, -1, 1).astype(np.float16)
        for wide in (False, True):
            with self.subTest(wide=wide):
                report, patched = self.patch(self.add_norm(F16, wide))
                self.assertEqual([n.op_type for n in fused_nodes(patched)], [ADD_NORM], self.reasons())
                (entry,) = report["patched"]
                self.assertEqual(entry["precision"], "exact" if wide else "raised")
                self.assertIn("stash_type", entry["attributes"])
                (got,) = run(patched, {"a": a, "b": a}, library=True).values()
                w = np.linspace(0.5, 1.5, 2048).astype(np.float16)
                want = norm_f64(a.astype(np.float64) * 2, w)
                self.assertEqual(got.dtype, np.float16)
                # Products with the scale and the normalised values are rounded to f16: two halves of an ulp of 1.5.
                np.testing.assert_allclose(got.astype(np.float64), want, rtol=2 ** -10, atol=0)

    def test_raised_precision_is_refused_when_exactness_is_asked_for(self):
        self.refused(self.add_norm(F16, False), "--exact", guard="exact", reason="narrower type")
        self.fused(self.add_norm(F16, True), [ADD_NORM], "--exact", again=False)

    def test_doubles_keep_their_range_and_precision(self):
        g = Graph(17, F64)
        rms6(g, g.input("x", [3, 64]), g.const("w", np.linspace(0.5, 1.5, 64)), eps=float(np.float32(EPS)))
        g.output("y", [3, 64])
        x = np.random.default_rng(2).normal(size=(3, 64)) * np.array([[1e150], [1.0], [1e-3]])
        _, patched = self.fused(g.model(), [NORM], feeds={"x": x})
        got = run(patched, {"x": x}, library=True)["y"]
        np.testing.assert_allclose(got, norm_f64(x, np.linspace(0.5, 1.5, 64), float(np.float32(EPS))), rtol=1e-14)

    def test_doubles_with_an_epsilon_that_no_float_holds(self):
        g = Graph(17, F64)
        rms6(g, g.input("x", SHAPE), g.const("w", W), eps=EPS)
        g.output("y", SHAPE)
        self.refused(g.model(), reason="epsilon.*representable")

    def test_a_mean_that_float_would_lose(self):
        """LayerNorm of numbers near 1e4 with a spread of 1: f32 and f64 differ, f64 must be kept."""
        g = Graph(17, F64)
        ln9(g, g.input("x", [4, 64]), g.const("w", np.ones(64)), g.const("b", np.zeros(64)), eps=float(np.float32(EPS)))
        g.output("y", [4, 64])
        x = np.random.default_rng(3).normal(size=(4, 64)) + 1e4
        _, patched = self.fused(g.model(), [LAYER], feeds={"x": x}, limits={np.dtype(np.float64): 1e-11})
        got = run(patched, {"x": x}, library=True)["y"]
        np.testing.assert_allclose(got, norm_f64(x, 1.0, float(np.float32(EPS)), b=0.0), rtol=1e-9, atol=1e-11)

    def test_large_mean_in_float(self):
        """Mean 1000, spread 1: the mean has to be subtracted before squaring."""
        x = (np.random.default_rng(4).normal(size=(2, 4, 8)) + 1000).astype(np.float32)
        _, patched = self.fused(layer_norm().model(), [LAYER], feeds={"x": x}, limits={np.dtype(np.float32): 2e-4})
        got = run(patched, {"x": x}, library=True)["y"]
        np.testing.assert_allclose(got, norm_f64(x, W.astype(np.float32), b=B.astype(np.float32)), rtol=0, atol=5e-4)


class StackTest(RecipeTest):
    """Add and LayerNorm twelve times over: each rewrite can be left out, and none moves the result."""

    def setUp(self):
        super().setUp()
        g = Graph(17, F16)
        shape = [2, 768]
        h = g.input("x", shape)
        for i in range(12):
            rng = np.random.default_rng(i)
            g.op("Add", h, g.const(f"c{i}", rng.normal(size=768) * 0.3), out=f"{i}_sum")
            h = ln9(g, f"{i}_sum", g.const(f"w{i}", rng.uniform(0.7, 1.3, 768)),
                    g.const(f"b{i}", rng.normal(size=768) * 0.1), f"{i}_")
        g.op("Identity", h, out="y")
        g.output("y", shape)
        self.stack = g.model()

    def test_bisecting_a_stack(self):
        feeds = {"x": rows_with_extremes([2, 768], np.float16)}
        wanted = run(self.stack, feeds, level="none")["y"]
        everything = [n.op_type for n in fused_nodes(self.patch(self.stack)[1])]
        self.assertEqual(len(everything), 12, self.reasons())
        self.assertEqual({op.replace("Add", "") for op in everything}, {LAYER})
        for count in (0, 1, 5, 12):
            with self.subTest(count):
                _, patched = self.patch(self.stack, "--only-first", count)
                self.assertEqual(len(fused_nodes(patched)), count)
                for library in (True, False):
                    got = run(patched, feeds, library)["y"].astype(np.float64)
                    self.assertLessEqual(np.abs(got - wanted).max(), 0.02, f"library {library}")


class ResidualNormTest(RecipeTest):
    """A residual of full shape: norm and addition are one."""

    def sandwich(self, sum_too=False, swap=()):
        g = Graph(17)
        x, s = g.input("x", SHAPE), g.input("s", SHAPE)
        post = rms6(g, x, g.const("w", W), "post_")
        g.pair("Add", post, s, "sum", swap)
        rms6(g, "sum", g.const("w2", W[::-1]), "pre_")
        g.output("pre_y", SHAPE)
        if sum_too:
            g.output("sum", SHAPE)
        return g.model()

    def test_norm_on_both_sides_of_the_addition(self):
        for sum_too in (False, True):
            for swap in ((), ("sum",)):
                with self.subTest(sum_too=sum_too, swap=swap):
                    self.fused(self.sandwich(sum_too, swap), [NORM, ADD_NORM])

    def test_sum_is_used_too(self):
        for opset in (17, 23):
            for standard in ((False, True) if opset == 23 else (False,)):
                with self.subTest(opset=opset, standard=standard):
                    g = Graph(opset)
                    g.op("Add", g.input("a", SHAPE), g.input("b", SHAPE), out="sum")
                    if standard:
                        g.op("RMSNormalization", "sum", g.const("w", W), out="y", axis=-1, epsilon=EPS)
                    else:
                        rms6(g, "sum", g.const("w", W))
                    g.op("Add", "sum", "y", out="z")
                    g.output("z", SHAPE)
                    self.fused(g.model(), [ADD_NORM])

    def test_sum_is_used_too_by_a_layer_norm(self):
        g = Graph(17)
        g.op("Add", g.input("a", SHAPE), g.input("b", SHAPE), out="sum")
        ln9(g, "sum", g.const("w", W), g.const("b_", B))
        g.op("Add", "sum", "y", out="z")
        g.output("z", SHAPE)
        self.fused(g.model(), [ADD_LAYER])


class CastTest(RecipeTest):
    """Type of x, of the computation, of the scale and of the result are four facts."""

    def cast_layer_norm(self, cast_back, opset=17):
        g = Graph(opset, F32)
        x = g.input("x", [2, 4, 64], F16)
        ln9(g, g.cast(x, F32, "x32"), g.const("w", np.linspace(0.5, 1.5, 64)), g.const("b", np.linspace(-1, 1, 64)))
        if cast_back:
            g.cast("y", F16, "y16")
        g.output("y16" if cast_back else "y", [2, 4, 64], F16 if cast_back else F32)
        return g.model()

    def test_layer_norm_of_half_gives_float(self):
        for opset in (17, 18, 23):
            with self.subTest(opset):
                model = self.cast_layer_norm(False, opset)
                x = rows_with_extremes([2, 4, 64], np.float16)
                _, patched = self.fused(model, [LAYER], feeds={"x": x})
                got = run(patched, {"x": x}, library=True)["y"]
                self.assertEqual(got.dtype, np.float32)
                want = norm_f64(x, np.linspace(0.5, 1.5, 64), b=np.linspace(-1, 1, 64))
                np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)

    def test_layer_norm_of_half_gives_half(self):
        for opset in (17, 18, 23):
            with self.subTest(opset):
                x = rows_with_extremes([2, 4, 64], np.float16)
                _, patched = self.fused(self.cast_layer_norm(True, opset), [LAYER], feeds={"x": x})
                got = run(patched, {"x": x}, library=True)["y16"]
                want = norm_f64(x, np.linspace(0.5, 1.5, 64), b=np.linspace(-1, 1, 64))
                # One rounding at the end: half an ulp of numbers below 4.
                np.testing.assert_allclose(got.astype(np.float64), want, rtol=2 ** -11, atol=2e-5)

    def cast_norm(self, scale, back_before_scale, cast_back=True):
        """x f16; the scale of `scale` type; the Cast back before or after the product with the scale."""
        g = Graph(17, F32)
        x = g.cast(g.input("x", [2, 4, 64], F16), F32, "x32")
        w = g.const("w", np.linspace(0.5, 1.5, 64), scale)
        g.op("Pow", x, g.const("two", 2), out="sq")
        g.mean("sq", "m")
        g.op("Add", "m", g.const("eps", EPS), out="me")
        g.op("Sqrt", "me", out="r")
        g.op("Div", x, "r", out="n")
        if back_before_scale:
            g.op("Mul", g.cast("n", F16, "n16"), w, out="y16")
        else:
            g.op("Mul", "n", w if scale == F32 else g.cast(w, F32, "w32"), out="y")
            if cast_back:
                g.cast("y", F16, "y16")
        g.output("y16" if cast_back else "y", [2, 4, 64], F16 if cast_back else F32)
        return g.model()

    def test_each_order_of_casts_has_its_own_mode(self):
        x = rows_with_extremes([2, 4, 64], np.float16)
        w = np.linspace(0.5, 1.5, 64)
        modes = {}
        for name, scale, before in (("llama", F16, True), ("gpt_oss", F16, False), ("olmo", F32, False)):
            with self.subTest(name):
                _, patched = self.fused(self.cast_norm(scale, before), [NORM], feeds={"x": x})
                (node,) = fused_nodes(patched)
                modes[name] = {k: v for k, v in attributes(node).items() if k.endswith("_type")}
                got = run(patched, {"x": x}, library=True)["y16"].astype(np.float64)
                stored = w.astype(np.float16 if scale == F16 else np.float32).astype(np.float64)
                n = norm_f64(x)
                want = (n.astype(np.float16).astype(np.float64) if before else n) * stored
                want = want.astype(np.float16).astype(np.float64)
                off = got != want
                self.assertLessEqual(off.mean(), 0.004, "more than ties")
                np.testing.assert_allclose(got, want, rtol=2 ** -9, atol=0)
        self.assertNotEqual(modes["llama"], modes["gpt_oss"])
        self.assertEqual(modes["gpt_oss"], modes["olmo"])

    def test_norm_of_half_gives_float(self):
        x = rows_with_extremes([2, 4, 64], np.float16)
        for scale in (F16, F32):
            with self.subTest(scale):
                _, patched = self.fused(self.cast_norm(scale, False, cast_back=False), [NORM], feeds={"x": x})
                got = run(patched, {"x": x}, library=True)["y"]
                w = np.linspace(0.5, 1.5, 64).astype(np.float16 if scale == F16 else np.float32)
                np.testing.assert_allclose(got, norm_f64(x, w), rtol=2e-6, atol=0)

    def test_scale_behind_a_cast_keeps_its_type(self):
        _, patched = self.fused(self.cast_norm(F16, False), [NORM])
        (node,) = fused_nodes(patched)
        self.assertEqual(node.input[1], "w")


class OffsetTest(RecipeTest):
    """Gemma's 1 + w becomes the offset, and never twice."""

    def gemma(self, one_shape, one_left, folded=False):
        g = Graph(17)
        x = g.input("x", SHAPE)
        if folded:
            w1 = g.const("w1", W + 1)
        else:
            one, w = g.const("one", np.ones(one_shape)), g.const("w", W)
            w1 = g.op("Add", *((one, w) if one_left else (w, one)), out="w1")
        rms6(g, x, w1)
        g.output("y", SHAPE)
        return g.model()

    def test_one_plus_scale(self):
        for one_left in (False, True):
            for shape in ([], [1]):
                with self.subTest(one_left=one_left, shape=shape):
                    _, patched = self.fused(self.gemma(shape, one_left), [NORM])
                    (node,) = fused_nodes(patched)
                    self.assertEqual((attributes(node)["offset"], node.input[1]), (1, "w"))
                    self.assertNotIn("w1", {i.name for i in patched.graph.initializer})

    def test_one_as_a_vector(self):
        """A vector of ones is a weight like any other, or an offset: right in both cases, and never both."""
        for one_left in (False, True):
            with self.subTest(one_left=one_left):
                _, patched = self.fused(self.gemma([8], one_left), [NORM])
                (node,) = fused_nodes(patched)
                self.assertIn((attributes(node)["offset"], node.input[1]), ((0, "w1"), (1, "w")))

    def test_scale_with_its_one_folded_in(self):
        _, patched = self.fused(self.gemma([], False, folded=True), [NORM])
        (node,) = fused_nodes(patched)
        self.assertEqual((attributes(node)["offset"], node.input[1]), (0, "w1"))

    def test_half_precision_adds_the_one_as_the_graph_does(self):
        """f16 weights, 1 + w in f32: w of 0.0001 counts."""
        g = Graph(17, F32)
        x = g.cast(g.input("x", [2, 4, 64], F16), F32, "x32")
        w = g.const("w", np.full(64, 2e-4), F16)
        w1 = g.op("Add", g.cast(w, F32, "w32"), g.const("one", 1), out="w1")
        g.cast(rms6(g, x, w1), F16, "y16")
        g.output("y16", [2, 4, 64], F16)
        x = rows_with_extremes([2, 4, 64], np.float16)
        _, patched = self.fused(g.model(), [NORM], feeds={"x": x})
        got = run(patched, {"x": x}, library=True)["y16"]
        want = norm_f64(x, 1 + np.float64(np.float16(2e-4))).astype(np.float16)
        self.assertLessEqual((got != want).mean(), 0.004)


class LookAlikeTest(RecipeTest):
    """What resembles a norm and computes something else."""

    def test_epsilon_is_an_input(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W), eps=g.input("eps", []))
        g.output("y", SHAPE)
        self.refused(g.model(), reason="epsilon is not a constant")
        g = Graph(17)
        ln9(g, g.input("x", SHAPE), g.const("w", W), g.const("b", B), eps=g.input("eps", []))
        g.output("y", SHAPE)
        self.refused(g.model(), reason="epsilon is not a constant")

    def test_epsilon_varies_along_the_row(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W), eps=g.const("eps", np.linspace(1e-5, 1, 8).reshape(1, 1, 8)))
        g.output("y", SHAPE)
        self.refused(g.model(), reason="epsilon is not")

    def test_epsilon_of_equal_elements(self):
        for shape in ([1], [1, 1, 1]):
            with self.subTest(shape):
                g = Graph(17)
                rms6(g, g.input("x", SHAPE), g.const("w", W), eps=g.const("eps", np.full(shape, EPS)))
                g.output("y", SHAPE)
                self.fused(g.model(), [NORM])
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W), eps=g.const("eps", np.full([1, 1, 8], EPS)))
        g.output("y", SHAPE)
        self.never_wrong(g.model())

    def test_overridable_initializers_are_no_constants(self):
        for name, value, shape in (("eps1e-05", EPS, []), ("two", 2, [])):
            with self.subTest(name):
                reason = "'eps1e-05' .overridable initializer" if name != "two" else "'sq'"
                for g in (norm(), layer_norm()):
                    g.inputs.append(helper.make_tensor_value_info(name, F32, shape))
                    self.refused(g.model(), reason=reason)

    def look_alike(self, change):
        g = norm()
        change(g)
        return g.model()

    def node(self, g, name):
        return next(n for n in g.nodes if n.output[0] == name)

    def test_epsilon_is_subtracted(self):
        self.refused(self.look_alike(lambda g: setattr(self.node(g, "me"), "op_type", "Sub")),
                     reason="epsilon is negative")

    def test_epsilon_behind_the_root(self):
        g = Graph(17)
        x = g.input("x", SHAPE)
        g.op("Pow", x, g.const("two", 2), out="sq")
        g.mean("sq", "m")
        g.op("Sqrt", "m", out="r")
        g.op("Add", "r", g.const("eps", EPS), out="re")
        g.op("Div", x, "re", out="n")
        g.op("Mul", "n", g.const("w", W), out="y")
        g.output("y", SHAPE)
        self.refused(g.model())

    def test_sum_instead_of_mean(self):
        def change(g):
            node = self.node(g, "m")
            node.op_type = "ReduceSum"
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("keepdims", 1))
            node.input.append(g.ints("axes", [-1]))
        self.refused(self.look_alike(change), reason=MEAN + ".*'m'")

    def test_cube_instead_of_square(self):
        self.refused(self.look_alike(lambda g: self.node(g, "sq").input.__setitem__(1, g.const("three", 3))),
                     reason="'sq'|'x'")

    def test_another_tensor_is_divided(self):
        self.refused(self.look_alike(lambda g: self.node(g, "n").input.__setitem__(0, g.input("z", SHAPE))),
                     reason="'x'.*'z'")

    def test_another_mean_is_subtracted(self):
        g = layer_norm()
        self.node(g, "mu").input[0] = g.input("z", SHAPE)
        _, patched = self.never_wrong(g.model())
        self.assertNotIn(LAYER, [n.op_type for n in fused_nodes(patched)])

    def test_square_of_what_is_not_centred(self):
        """x - mean(x) over the root of mean(x^2): neither norm."""
        g = layer_norm()
        self.node(g, "sq").input[0] = "x"
        self.refused(g.model(), reason="'x'")


class AffineTest(RecipeTest):
    """LayerNorm with neither scale nor bias, or without bias: still one, and never an RMSNorm."""

    def cut(self, end):
        g = Graph(17)
        last = ln9(g, g.input("x", SHAPE), None if end == "n" else g.const("w", W), None)
        g.output(last, SHAPE)
        return g.model()

    def test_without_scale_and_bias(self):
        report, _ = self.fused(self.cut("n"), [LAYER])
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 0)

    def test_without_bias(self):
        report, _ = self.fused(self.cut("s"), [LAYER])
        self.assertEqual((report["modules"]["layer_norm"]["patched"], report["modules"]["rms_norm"]["patched"]), (1, 0))

    def test_bias_without_scale(self):
        g = Graph(17)
        n = ln9(g, g.input("x", SHAPE), None, None)
        g.op("Add", n, g.const("b", B), out="y")
        g.output("y", SHAPE)
        report, _ = self.never_wrong(g.model())
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 0)

    def test_as_batch_norm(self):
        """Keras 2 writes LayerNorm as a batch norm of reshaped rows."""
        g = Graph(17)
        x = g.input("x", SHAPE)
        g.op("Reshape", x, g.ints("rows", [1, 8, 8, 1]), out="r1")
        for name, value in (("ones", np.ones(8)), ("zeros", np.zeros(8)), ("mean", np.zeros(8)), ("var", np.ones(8))):
            g.const(name, value)
        g.op("BatchNormalization", "r1", "ones", "zeros", "mean", "var", out=["bn", "bm", "bv"], epsilon=1e-3,
             training_mode=1)
        g.op("Reshape", "bn", g.ints("back", SHAPE), out="r2")
        g.op("Mul", "r2", g.const("w", W), out="s")
        g.op("Add", "s", g.const("b", B), out="y")
        g.output("y", SHAPE)
        report, _ = self.never_wrong(g.model())
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 0)

    def clamped(self, *clamps):
        def clamp(value):
            for i, (op, bound) in enumerate(clamps):
                value = g.op(op, value, g.const(f"bound{i}", bound), out=f"c{i}")
            return value
        g = layer_norm(clamp=None)
        g = Graph(17)
        ln9(g, g.input("x", SHAPE), g.const("w", W), g.const("b", B), clamp=clamp)
        g.output("y", SHAPE)
        return g.model()

    def test_infinite_clamps_do_nothing(self):
        self.fused(self.clamped(("Min", np.inf)), [LAYER])
        self.fused(self.clamped(("Max", -np.inf)), [LAYER])
        self.fused(self.clamped(("Max", -np.inf), ("Min", np.inf)), [LAYER])

    def test_clamp_of_a_square_at_nought(self):
        self.never_wrong(self.clamped(("Max", 0), ("Min", np.inf)))

    def test_finite_clamps_do_something(self):
        for clamps in ([("Min", 1e4)], [("Max", 0), ("Min", 1e4)], [("Max", 1e-3)], [("Min", -np.inf)]):
            with self.subTest(clamps):
                self.refused(self.clamped(*clamps), reason=f"'c{len(clamps) - 1}'")


if __name__ == "__main__":
    unittest.main()
