"""The patched graph loads and runs: roles, shapes, kernels, liveness, order, nested bodies."""
import itertools
import json
import unittest

import numpy as np
import onnx
import onnx.inliner
from onnx import helper

from graph import B, EPS, F16, F32, F64, W, Graph, ln9, rms6, rope_half, swiglu3, tables
from recipe_testing import RecipeTest, feeds_for, fused_nodes, run, session

NORM, ADD_NORM, LAYER, SWIGLU = "LigerRMSNorm", "LigerAddRMSNorm", "LigerLayerNorm", "LigerSwiGLU"
SHAPE = [2, 4, 8]


def executed_ops(model, feeds, folder, library):
    """Operators of the nodes that ran."""
    s = session(model, library, profile=folder / "profile")
    s.run(None, feeds)
    events = json.loads(open(s.end_profiling()).read())
    return {e["args"]["op_name"] for e in events if "op_name" in e.get("args", {})}


class RoleTest(RecipeTest):
    """An operand is told by what it is, not by its place or rank."""

    def test_scale_of_the_same_rank_as_x(self):
        for swap in ((), ("y",)):
            with self.subTest(swap):
                g = Graph(17)
                rms6(g, g.input("x", [8]), g.const("w", W), swap=swap)
                g.output("y", [8])
                _, patched = self.fused(g.model(), [NORM])
                self.assertEqual(list(fused_nodes(patched)[0].input), ["x", "w"])
        for swap in ((), ("s",)):
            with self.subTest(swap):
                g = Graph(17)
                ln9(g, g.input("x", [8]), g.const("w", W), None, swap=swap)
                g.output("s", [8])
                _, patched = self.fused(g.model(), [LAYER])
                self.assertEqual([i for i in fused_nodes(patched)[0].input if i], ["x", "w"])

    def test_scale_that_is_an_input(self):
        for swap in ((), ("y",)):
            g = Graph(17)
            rms6(g, g.input("x", [8]), g.input("w", [8]), swap=swap)
            g.output("y", [8])
            _, patched = self.fused(g.model(), [NORM])
            self.assertEqual(list(fused_nodes(patched)[0].input), ["x", "w"])

    def scaled(self, x, w, y, build=None):
        g = Graph(17)
        rms6(g, g.input("x", x), g.const("w", np.linspace(0.5, 1.5, int(np.prod(w))).reshape(w)))
        g.output("y", y)
        return g.model()

    def test_product_that_broadcasts_x(self):
        for x, w, y in (([1, 1], [2], [1, 2]), ([1, 8], [4, 8], [4, 8]), ([2, 8], [3, 1, 8], [3, 2, 8]),
                        ([8, 1], [1, 8], [8, 8])):
            with self.subTest(x=x, w=w):
                # ONNX Runtime takes the factor for a scale, in the unpatched model as in the body, and fails.
                _, patched = self.never_wrong(self.scaled(x, w, y), body_level="none")
                for node in fused_nodes(patched):
                    self.assertFalse(any(node.input[1:]), "the factor is no scale")

    def test_scale_that_is_a_scalar_or_one_per_row(self):
        for x, w in (([4, 8], []), ([4, 8], [1]), ([4, 8], [4, 1]), ([4, 8], [4, 8])):
            with self.subTest(w=w):
                _, patched = self.never_wrong(self.scaled(x, w, x))
                for node in fused_nodes(patched):
                    self.assertFalse(any(node.input[1:]), "the factor is no scale")


class KernelTest(RecipeTest):
    """A node is made only where the named providers have a kernel for its types."""

    def norm(self, x, w, wide=False):
        g = Graph(17, x)
        if wide:
            g = Graph(17, F32)
            a = g.cast(g.input("x", SHAPE, x), F32, "x32")
            g.cast(rms6(g, a, g.const("w", W, w)), x, "z")
            g.output("z", SHAPE, x)
        else:
            rms6(g, g.input("x", SHAPE), g.const("w", W), eps=float(np.float32(EPS)))
            g.output("y", SHAPE)
        return g.model()

    def test_each_type_has_a_kernel(self):
        for x, w, wide in ((F16, F16, False), (F64, F64, False), (F32, F32, False), (F16, F32, True)):
            with self.subTest(x=x, w=w):
                _, patched = self.fused(self.norm(x, w, wide), [NORM])
                self.assertEqual(len(patched.functions), 1)

    def test_each_type_in_one_model(self):
        """Overloads of one op; each node runs its own kernel and its own body."""
        g = Graph(21)
        for tag, dtype in (("a", F16), ("b", F32), ("c", F64)):
            g.dtype = dtype
            x = g.input(f"{tag}_x", SHAPE)
            for name in ("eps1e-05", "two"):
                g.initializers.pop(name, None)
            eps = g.const(f"{tag}_eps", np.float32(EPS))
            g.op("Mul", x, x, out=f"{tag}_sq")
            g.mean(f"{tag}_sq", f"{tag}_m")
            g.op("Add", f"{tag}_m", eps, out=f"{tag}_me")
            g.op("Sqrt", f"{tag}_me", out=f"{tag}_r")
            g.op("Div", x, f"{tag}_r", out=f"{tag}_n")
            g.op("Mul", f"{tag}_n", g.const(f"{tag}_w", W), out=f"{tag}_y")
            g.output(f"{tag}_y", SHAPE)
        self.fused(g.model(), [NORM] * 3)

    def test_file_does_not_depend_on_the_provider(self):
        g = Graph(17, F16)
        swiglu3(g, g.input("g", SHAPE), g.input("u", SHAPE))
        g.output("y", SHAPE)
        for model in (g.model(), self.norm(F16, F16)):
            _, on_cpu = self.patch(model, "--providers", "cpu")
            self.assertEqual(len(fused_nodes(on_cpu)), 1)
            wanted = (self.folder / "patched.onnx").read_bytes()
            self.patch(model, "--providers", "cuda")
            self.assertEqual((self.folder / "patched.onnx").read_bytes(), wanted)


class BodyTest(RecipeTest):
    """Each fused node can be expanded again, in the form of the model's own opset."""

    def everything(self, opset):
        g = Graph(opset)
        x, r = g.input("x", [1, 4, 5, 16]), g.input("r", [1, 4, 5, 16])
        cos, sin = tables(g, g.input("angles", [1, 1, 5, 8]))
        w, b = g.const("w", np.linspace(0.5, 1.5, 16)), g.const("b", np.linspace(-1, 1, 16))
        g.op("Add", x, r, out="sum")
        a = rms6(g, "sum", w, "a_")
        t = rope_half(g, a, cos, sin, "t_")
        s = swiglu3(g, t, "sum", "s_")
        n = rms6(g, s, w, "n_")
        ln9(g, n, w, b, "l_")
        g.output("l_y", [1, 4, 5, 16])
        return g.model()

    def test_expanded_again(self):
        for opset in (13, 17, 18, 21, 23):
            with self.subTest(opset):
                model = self.everything(opset)
                _, patched = self.patch(model)
                self.assertGreaterEqual(len(fused_nodes(patched)), 4)
                expanded = onnx.inliner.inline_local_functions(patched)
                onnx.checker.check_model(expanded, full_check=True)
                self.assertEqual([n.op_type for n in expanded.graph.node if n.domain], [])
                self.assertEqual({o.domain: o.version for o in expanded.opset_import if o.domain != "liger"},
                                 {"": opset})
                feeds = feeds_for(model)
                wanted, got = run(model, feeds, level="none")["l_y"], run(expanded, feeds)["l_y"]
                self.assert_close(got, wanted)

    def test_kernels_run_with_the_library_and_bodies_without(self):
        model = self.everything(17)
        _, patched = self.patch(model)
        ops = {n.op_type for n in fused_nodes(patched)}
        self.assertEqual(executed_ops(patched, feeds_for(model), self.folder, library=True) & ops, ops)
        self.assertEqual(executed_ops(patched, feeds_for(model), self.folder, library=False) & ops, set())

    def test_functions_import_what_they_use(self):
        for opset in (13, 17, 18, 23):
            with self.subTest(opset):
                _, patched = self.patch(self.everything(opset))
                self.assertEqual(sorted({n.op_type for n in fused_nodes(patched)}),
                                 sorted(f.name for f in patched.functions))
                for function in patched.functions:
                    used = {n.domain for n in function.node}
                    self.assertEqual({o.domain: o.version for o in function.opset_import},
                                     {d: opset if d == "" else 1 for d in used})


class LivenessTest(RecipeTest):
    """What others need keeps its producer."""

    def test_intermediate_is_a_graph_output(self):
        shapes = {"sq": SHAPE, "m": [2, 4, 1], "me": [2, 4, 1], "r": [2, 4, 1], "n": SHAPE}
        for value, shape in shapes.items():
            with self.subTest(value):
                g = Graph(17)
                rms6(g, g.input("x", SHAPE), g.const("w", W))
                g.output("y", SHAPE)
                g.output(value, shape)
                self.refused(g.model(), guard="inner_value_used", reason=f"'{value}'.*output")
        shapes = {"mu": [2, 4, 1], "d": SHAPE, "sq": SHAPE, "v": [2, 4, 1], "ve": [2, 4, 1], "sd": [2, 4, 1],
                  "n": SHAPE}
        for value, shape in shapes.items():
            with self.subTest(value, form="ln9"):
                g = Graph(17)
                ln9(g, g.input("x", SHAPE), g.const("w", W), g.const("b", B))
                g.output("y", SHAPE)
                g.output(value, shape)
                _, patched = self.never_wrong(g.model())
                self.assertNotIn(LAYER, [n.op_type for n in fused_nodes(patched)])

    def test_normalised_value_with_two_scales(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.op("Mul", "n", g.const("w2", 2 * W), out="y2")
        g.output("y", SHAPE)
        g.output("y2", SHAPE)
        _, patched = self.never_wrong(g.model())
        self.assertIn([n.op_type for n in fused_nodes(patched)], ([NORM, NORM], []))

    def if_node(self, g, then, otherwise, out):
        condition = g.op("Greater", g.input("switch", []), g.const("nought", 0), out="condition")
        g.op("If", condition, out=out, then_branch=then, else_branch=otherwise)

    def branch(self, name, nodes, out, shape, initializers=()):
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(out, F32, shape)], list(initializers))

    def test_intermediate_is_read_inside_a_body(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        then = self.branch("then", [helper.make_node("Neg", ["r"], ["t"], "neg")], "t", [2, 4, 1])
        other = self.branch("else", [helper.make_node("Identity", ["c"], ["e"], "id")], "e", [2, 4, 1])
        g.const("c", np.ones([2, 4, 1]))
        self.if_node(g, then, other, "z")
        g.output("y", SHAPE)
        g.output("z", [2, 4, 1])
        self.refused(g.model(), guard="inner_value_used", reason="'r'.*body")

    def body_norm(self, x, w, y):
        """A norm as nodes of a body; constants come from outside."""
        body = Graph(17)
        body.op("Mul", x, x, out="b_sq")
        body.op("ReduceMean", "b_sq", out="b_m", axes=[-1])
        body.op("Add", "b_m", "eps", out="b_me")
        body.op("Sqrt", "b_me", out="b_r")
        body.op("Div", x, "b_r", out="b_n")
        body.op("Mul", "b_n", w, out=y)
        return body.nodes

    def test_intermediate_is_an_output_of_a_body(self):
        for value, shape in (("b_sq", SHAPE), ("b_r", [2, 4, 1]), ("b_n", SHAPE)):
            with self.subTest(value):
                g = Graph(17)
                g.input("x", SHAPE)
                g.const("w", W), g.const("eps", EPS)
                then = self.branch("then", self.body_norm("x", "w", "t"), "t", SHAPE)
                then.output.append(helper.make_tensor_value_info(value, F32, shape))
                other = self.branch("else", [helper.make_node("Identity", ["x"], ["e"], "id"),
                                             helper.make_node("ReduceSum", ["x"], ["e2"], "sum", keepdims=1)
                                             if shape != SHAPE else helper.make_node("Neg", ["x"], ["e2"], "neg")],
                                    "e", SHAPE)
                if shape != SHAPE:
                    other.node[1].input.append(g.ints("last", [-1]))
                other.output.append(helper.make_tensor_value_info("e2", F32, shape))
                self.if_node(g, then, other, ["z", "z2"])
                g.output("z", SHAPE)
                g.output("z2", shape)
                self.refused(g.model(), guard="inner_value_used", reason=f"'{value}'.*output")

    def test_scale_is_used_only_inside_a_body(self):
        g = Graph(17)
        g.input("x", SHAPE)
        g.const("w", W), g.const("eps", EPS)
        then = self.branch("then", self.body_norm("x", "w", "t"), "t", SHAPE)
        other = self.branch("else", [helper.make_node("Identity", ["x"], ["e"], "id")], "e", SHAPE)
        self.if_node(g, then, other, "z")
        g.output("z", SHAPE)
        model = g.model()
        for switch in (1.0, -1.0):
            _, patched = self.fused(model, [NORM], feeds={"switch": np.array(switch, np.float32)})
            self.assertIn("w", [i.name for i in patched.graph.initializer])

    def test_value_of_a_body_has_the_name_of_an_outer_one(self):
        """Not allowed by ONNX; many tools write it. Refused, or the body stays as it is and the outer value too."""
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        then = self.branch("then", [helper.make_node("Neg", ["y"], ["w"], "neg"),
                                    helper.make_node("Neg", ["w"], ["t"], "neg2")], "t", SHAPE)
        other = self.branch("else", [helper.make_node("Identity", ["y"], ["e"], "id")], "e", SHAPE)
        self.if_node(g, then, other, "z")
        g.output("z", SHAPE)
        model = helper.make_model(g.graph(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = self.save(model)
        result = self.command(path, "--family", "any", "-o", "out.onnx")
        self.assertIn(result.returncode, (0, 3), result.stderr)
        if (self.folder / "out.onnx").exists():
            patched = onnx.load(self.folder / "out.onnx")
            (node,) = fused_nodes(patched)
            self.assertEqual(list(node.input), ["x", "w"])
            self.assertIn("w", [i.name for i in patched.graph.initializer])
            self.assertEqual([a.g for n in patched.graph.node if n.op_type == "If" for a in n.attribute],
                             [a.g for n in model.graph.node if n.op_type == "If" for a in n.attribute])

    def test_norms_of_both_branches(self):
        g = Graph(17)
        g.input("x", SHAPE)
        g.const("w", W), g.const("w2", W[::-1]), g.const("eps", EPS)
        then = self.branch("then", self.body_norm("x", "w", "t"), "t", SHAPE)
        other = self.branch("else", self.body_norm("x", "w2", "e"), "e", SHAPE)
        self.if_node(g, then, other, "z")
        g.output("z", SHAPE)
        # Names of one body may stand in another.
        model = g.model()
        for switch in (1.0, -1.0):
            self.fused(model, [NORM, NORM], feeds={"switch": np.array(switch, np.float32)})


class OrderTest(RecipeTest):
    """The output is sorted, also where the input is not."""

    def two_outputs(self):
        """The sum's other user stands before the norm."""
        g = Graph(17)
        g.op("Add", g.input("a", SHAPE), g.input("b", SHAPE), out="sum")
        g.op("Neg", "sum", out="minus")
        g.op("Exp", "minus", out="exp")
        rms6(g, "sum", g.const("w", W))
        g.op("Add", "exp", "y", out="z")
        g.output("z", SHAPE)
        return g

    def test_other_user_of_the_sum_stands_first(self):
        self.fused(self.two_outputs().model(), [ADD_NORM])  # `patch` runs the checker, which wants the order

    def test_other_user_stands_between(self):
        for position in range(2, 8):
            with self.subTest(position):
                g = self.two_outputs()
                node = g.nodes.pop(1)
                g.nodes.insert(position, node)
                (exp,) = (n for n in g.nodes if n.op_type == "Exp")
                g.nodes.remove(exp)
                g.nodes.insert(g.nodes.index(node) + 1, exp)
                try:
                    model = g.model()
                except onnx.checker.ValidationError:
                    continue
                self.fused(model, [ADD_NORM], again=False)

    def test_nodes_in_reverse(self):
        sorted_model = self.two_outputs().model()
        reverse = onnx.ModelProto()
        reverse.CopyFrom(sorted_model)
        del reverse.graph.node[:]
        reverse.graph.node.extend(reversed(sorted_model.graph.node))
        _, patched = self.patch(reverse)
        self.assertEqual([n.op_type for n in fused_nodes(patched)], [ADD_NORM])
        self.same_results(sorted_model, patched)
        said = [d["message"] for d in self.report["diagnostics"]]
        self.assertTrue(any("sort" in s or "order" in s for s in said), said)

    def test_nodes_in_a_circle(self):
        g = self.two_outputs()
        g.nodes[1].input[0] = "z"
        model = helper.make_model(g.graph(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.save(model)
        self.fails(3, "cycle|circle|itself|order|before its use", "model.onnx", "--family", "any")


class OutputsTest(RecipeTest):
    """Fused op and body agree in number and order of their outputs."""

    def add_norm(self, use_norm, use_sum, norm="rms"):
        g = Graph(17)
        g.op("Add", g.input("a", SHAPE), g.input("b", SHAPE), out="sum")
        if norm == "rms":
            rms6(g, "sum", g.const("w", W))
        else:
            ln9(g, "sum", g.const("w", W), g.const("bias", B))
        if use_norm:
            g.op("Neg", "y", out="z")
            g.output("z", SHAPE)
        if use_sum:
            g.op("Exp", g.op("Neg", g.op("Abs", "sum", out="abs"), out="minus"), out="e")
            g.output("e", SHAPE)
        return g.model()

    def test_norm_and_sum(self):
        for norm, op in (("rms", ADD_NORM), ("ln", "LigerAddLayerNorm")):
            with self.subTest(norm):
                _, patched = self.fused(self.add_norm(True, True, norm), [op])
                self.assertEqual(list(fused_nodes(patched)[0].output), ["y", "sum"])

    def test_norm_alone(self):
        for norm, op in (("rms", ADD_NORM), ("ln", "LigerAddLayerNorm")):
            with self.subTest(norm):
                _, patched = self.fused(self.add_norm(True, False, norm), [op])
                (node,) = fused_nodes(patched)
                self.assertIn(list(node.output), (["y"], ["y", "sum"], ["y", ""]))

    def test_sum_alone(self):
        for norm in ("rms", "ln"):
            with self.subTest(norm):
                self.never_wrong(self.add_norm(False, True, norm))

    def test_both_are_graph_outputs(self):
        g = Graph(17)
        g.op("Add", g.input("a", SHAPE), g.input("b", SHAPE), out="sum")
        rms6(g, "sum", g.const("w", W))
        g.output("sum", SHAPE)
        g.output("y", SHAPE)
        self.fused(g.model(), [ADD_NORM])

    def test_sum_of_operands_that_broadcast(self):
        for a, b in (([2, 4, 8], [8]), ([4, 8], [2, 4, 8]), ([2, 4, 8], [1, 4, 8]), ([2, 1, 8], [2, 4, 1])):
            with self.subTest(a=a, b=b):
                g = Graph(17)
                g.op("Add", g.input("a", a), g.input("b", b), out="sum")
                rms6(g, "sum", g.const("w", W))
                g.op("Add", "sum", "y", out="z")
                g.output("z", SHAPE)
                self.fused(g.model(), [NORM])


class CommutativeTest(RecipeTest):
    """Every commutative operator swapped, with one further user of each intermediate.

    One model holds a subgraph with inputs of its own for each set of swapped operators.
    """

    SHAPES = {"m": [2, 4, 1], "me": [2, 4, 1], "r": [2, 4, 1], "mu": [2, 4, 1], "v": [2, 4, 1], "ve": [2, 4, 1],
              "sd": [2, 4, 1]}

    def cross(self, build, op, swaps, intermediates, instead=None, shape=SHAPE):
        """build(g, prefix, swap) writes a subgraph; instead: what may be fused where a value has a further user."""
        sets = [swap for count in range(len(swaps) + 1) for swap in itertools.combinations(swaps, count)]
        for used in (None, *intermediates):
            with self.subTest(used=used):
                g = Graph(17)
                for swap in sets:
                    prefix = "_".join(("swapped", *swap, ""))
                    g.output(build(g, prefix, swap), shape)
                    if used:
                        g.op("Exp", prefix + used, out=prefix + "further")
                        half = [*shape[:-1], shape[-1] // 2] if used in ("x1", "x2", "neg") else shape
                        g.output(prefix + "further", self.SHAPES.get(used, half))
                if used is None:
                    self.fused(g.model(), [op] * len(sets))
                else:
                    _, patched = self.never_wrong(g.model())
                    self.assertLessEqual({n.op_type for n in fused_nodes(patched)}, {(instead or {}).get(used)})

    def test_rms_norm(self):
        def build(g, prefix, swap):
            return rms6(g, g.input(prefix + "x", SHAPE), g.const("w", W), prefix, swap=swap)
        self.cross(build, NORM, ("me", "y"), ("sq", "m", "me", "r", "n"))

    def test_layer_norm(self):
        """A further user of the scaled value leaves a LayerNorm without bias, one of the mean the RMSNorm of d."""
        def build(g, prefix, swap):
            return ln9(g, g.input(prefix + "x", SHAPE), g.const("w", W), g.const("b", B), prefix, swap=swap)
        self.cross(build, LAYER, ("ve", "s", "y"), ("mu", "d", "sq", "v", "ve", "sd", "n", "s"),
                   instead={"s": LAYER, "mu": NORM, "d": NORM})

    def test_gate(self):
        def build(g, prefix, swap):
            return swiglu3(g, g.input(prefix + "g", SHAPE), g.input(prefix + "u", SHAPE), prefix, swap)
        self.cross(build, SWIGLU, ("t", "y"), ("s", "t"))

    def test_rotation(self):
        def build(g, prefix, swap):
            q = g.input(prefix + "q", [1, 2, 4, 8])
            cos, sin = tables(g, g.input(prefix + "angles", [1, 1, 4, 4]), prefix)
            return rope_half(g, q, cos, sin, prefix, width=8, swap=swap)
        parts = ("x1", "x2", "neg", "rot", "straight", "crossed")
        self.cross(build, "LigerRope", ("straight", "crossed", "y"), parts, instead=dict.fromkeys(parts, "LigerRope"),
                   shape=[1, 2, 4, 8])


if __name__ == "__main__":
    unittest.main()
