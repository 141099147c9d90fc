"""Files: weights elsewhere, names, types, metadata, a second run."""
import os
import re
import shutil
import subprocess
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph import B, EPS, F32, W, Graph, ln9, rms6, swiglu3
from recipe_testing import BINARY, RecipeTest, attributes, fused_nodes, graphs_of, peak_memory, run

NORM, LAYER, SWIGLU = "LigerRMSNorm", "LigerLayerNorm", "LigerSwiGLU"
SHAPE = [2, 4, 8]

STRACE = shutil.which("strace")
CAN_TRACE = bool(STRACE) and subprocess.run([STRACE, "-o", os.devnull, "true"], capture_output=True).returncode == 0


def external(name, dims, location, offset, length, dtype=F32):
    tensor = TensorProto(name=name, dims=dims, data_type=dtype, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


class ExternalTest(RecipeTest):
    def norm(self, location="model.onnx_data", w=None):
        """RMSNorm whose scale stands 64 bytes into a file of 1 KiB."""
        g = Graph(17)
        g.initializers["w"] = external("w", [8], location, 64, 32)
        rms6(g, g.input("x", SHAPE), "w")
        g.output("y", SHAPE)
        model = helper.make_model(g.graph(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        data = bytes(range(64)) + W.astype(np.float32).tobytes()
        return model, data + b"\xff" * (1024 - len(data))

    def store(self, folder):
        model, data = self.norm()
        self.save(model, f"{folder}/model.onnx")
        (self.folder / folder / "model.onnx_data").write_bytes(data)
        return model

    def test_references_are_kept_and_no_weight_is_read(self):
        model = self.store("a")
        command = ["a/model.onnx", "--family", "any", "--report", "report.json"]
        if CAN_TRACE:
            env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
            traced = subprocess.run([STRACE, "-f", "-y", "-o", "trace", BINARY, *command], cwd=self.folder, env=env,
                                    capture_output=True, text=True)
            self.assertEqual(traced.returncode, 0, traced.stderr)
            read = [line for line in (self.folder / "trace").read_text().splitlines()
                    if re.search(r"\b(p?readv?2?(64)?|mmap)\(.*model\.onnx_data", line)]
            self.assertEqual(read, [])
        else:
            self.assertEqual(self.command(*command).returncode, 0)
        patched = onnx.load(self.folder / "a/model.liger.onnx", load_external_data=False)
        self.assertEqual([n.op_type for n in patched.graph.node], [NORM])
        self.assertEqual([i for i in patched.graph.initializer if i.name == "w"],
                         [i for i in model.graph.initializer if i.name == "w"])
        x = {"x": np.ones(SHAPE, np.float32)}
        wanted = run(self.folder / "a/model.onnx", x, level="none")["y"]
        for library in (True, False):
            self.assert_close(run(self.folder / "a/model.liger.onnx", x, library)["y"], wanted)

    def test_output_in_another_folder(self):
        self.store("a")
        (self.folder / "b").mkdir()
        self.fails(5, "b", "a/model.onnx", "--family", "any", "-o", "b/model.onnx")
        self.assertEqual(list((self.folder / "b").iterdir()), [])
        for way in ("copy", "hardlink"):
            with self.subTest(way):
                result = self.command("a/model.onnx", "--family", "any", "-o", "b/model.onnx", "--external-data", way)
                self.assertEqual(result.returncode, 0, result.stderr)
                shutil.move(self.folder / "a", self.folder / "away")  # the result stands on its own
                try:
                    x = {"x": np.ones(SHAPE, np.float32)}
                    wanted = run(self.folder / "away/model.onnx", x, level="none")["y"]
                    for library in (True, False):
                        self.assert_close(run(self.folder / "b/model.onnx", x, library)["y"], wanted)
                finally:
                    shutil.move(self.folder / "away", self.folder / "a")
                shutil.rmtree(self.folder / "b")
                (self.folder / "b").mkdir()

    def test_references_that_lead_out_of_the_folder(self):
        (self.folder / "secret").write_bytes(bytes(1024))
        for location in ("../secret", "/etc/passwd", "x/../../secret", str(self.folder / "secret")):
            with self.subTest(location):
                model, _ = self.norm(location)
                self.save(model, "a/model.onnx")
                result = self.command("a/model.onnx", "--family", "any", "--report", "report.json")
                self.assertEqual(result.returncode, 3, result.stderr)
                self.assertRegex(result.stderr, re.escape(location))

    def test_data_file_that_is_missing_or_too_short(self):
        model, data = self.norm()
        self.save(model, "a/model.onnx")
        self.fails(3, "model.onnx_data", "a/model.onnx", "--family", "any")
        (self.folder / "a/model.onnx_data").write_bytes(data[:80])
        self.fails(3, "model.onnx_data", "a/model.onnx", "--family", "any")

    def large(self, size):
        """Three weights that stand in a sparse file of `size` bytes."""
        g = Graph(17)
        x = g.input("x", SHAPE)
        rms6(g, x, g.const("w", W))
        rows = size // 3 // 32
        for i in range(3):
            g.initializers[f"table{i}"] = external(f"table{i}", [rows, 8], "model.data", i * rows * 32, rows * 32)
            g.op("Gather", f"table{i}", g.ints(f"row{i}", [i]), out=f"g{i}", axis=0)
        g.op("Add", "y", "g0", out="s0")
        g.op("Add", "s0", "g1", out="s1")
        g.op("Add", "s1", "g2", out="z")
        g.output("z", SHAPE)
        model = helper.make_model(g.graph(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.save(model)
        with open(self.folder / "model.data", "wb") as data:
            data.truncate(size)
        command = [BINARY, "model.onnx", "--family", "any", "-o", "out.onnx"]
        code, errors, peak = peak_memory(command, self.folder)
        self.assertEqual(code, 0, errors)
        patched = onnx.load(self.folder / "out.onnx", load_external_data=False)
        self.assertEqual([n.op_type for n in fused_nodes(patched)], [NORM])
        return peak

    def test_memory_does_not_grow_with_the_weights(self):
        small, large = self.large(96 * 1024), self.large(5 << 30)
        self.assertLess(large - small, 20 << 20)

    def test_inline_weights_beyond_the_limit_of_protobuf(self):
        path = self.save(b"")
        with open(path, "r+b") as file:
            file.truncate((2 << 30) + 100)
        code, errors, peak = peak_memory([BINARY, "model.onnx", "--family", "any", "-o", "out.onnx"], self.folder)
        self.assertEqual(code, 3, errors)
        self.assertRegex(errors, "2 GiB|2 GB|2147483647|external")
        self.assertLess(peak, 1 << 30, "the file was read")


class SharedTest(RecipeTest):
    def two(self, plus_one):
        g = Graph(17)
        x, w = g.input("x", SHAPE), g.const("w", W)
        a = rms6(g, x, g.op("Add", w, g.const("one", 1), out="a_w1") if plus_one else w, "a_")
        rms6(g, g.op("Tanh", a, out="tanh"), g.op("Add", w, "one", out="b_w1") if plus_one else w, "b_")
        g.output("b_y", SHAPE)
        return g.model()

    def test_shared_scale_stays_one(self):
        for plus_one in (False, True):
            with self.subTest(plus_one=plus_one):
                model = self.two(plus_one)
                _, patched = self.fused(model, [NORM, NORM])
                self.assertEqual([list(n.input)[1] for n in fused_nodes(patched)], ["w", "w"])
                wide = [i.name for i in patched.graph.initializer if list(i.dims) == [8]]
                self.assertEqual(wide, ["w"])
                self.assertLessEqual({i.name for i in patched.graph.initializer},
                                     {i.name for i in model.graph.initializer})


class NameTest(RecipeTest):
    def gemma_pair(self):
        g = Graph(17)
        x = g.input("x", SHAPE)
        for p in ("a_", "b_"):
            w = g.const(p + "w", W if p == "a_" else W[::-1])
            rms6(g, x, g.op("Add", w, g.const("one", 1), out=p + "w1"), p)
        g.op("Add", "a_y", "b_y", out="z")
        g.output("z", SHAPE)
        return g

    def test_two_norms_of_one_input(self):
        _, patched = self.fused(self.gemma_pair().model(), [NORM, NORM])
        self.assertEqual(sorted(n.input[1] for n in fused_nodes(patched)), ["a_w", "b_w"])

    def names(self, model):
        nodes, values = set(), set()
        for graph in [*graphs_of(model)]:
            nodes |= {n.name for n in graph.node}
            values |= {v for n in graph.node for v in n.output}
            values |= {i.name for i in graph.initializer}
        return nodes, values

    def test_names_that_are_taken(self):
        """A model that holds what we would call our nodes, values and functions."""
        plain = self.gemma_pair().model()
        _, patched = self.patch(plain)
        before, after = self.names(plain), self.names(patched)
        nodes, values = after[0] - before[0], after[1] - before[1]
        self.assertTrue(nodes)
        for where in ("graph", "body"):
            with self.subTest(where):
                g = self.gemma_pair()
                taken = [helper.make_node("Neg", ["z"], [f"other_{i}"], name) for i, name in enumerate(sorted(nodes))]
                taken += [helper.make_node("Neg", ["z"], [value], f"other_node_{i}")
                          for i, value in enumerate(sorted(values))]
                if where == "graph":
                    g.nodes += taken
                    g.op("Sum", "z", *[n.output[0] for n in taken], out="end")
                else:
                    taken.append(helper.make_node("Sum", [n.output[0] for n in taken], ["t"], "t"))
                    body = helper.make_graph(taken, "then", [], [helper.make_tensor_value_info("t", F32, SHAPE)])
                    other = helper.make_graph([helper.make_node("Identity", ["z"], ["e"], "e")], "else", [],
                                              [helper.make_tensor_value_info("e", F32, SHAPE)])
                    g.op("Greater", g.input("switch", []), g.const("nought", 0), out="condition")
                    g.op("If", "condition", out="end", then_branch=body, else_branch=other)
                g.output("end", SHAPE)
                feeds = {"switch": np.array(1, np.float32)} if where == "body" else {}
                _, patched = self.fused(g.model(), [NORM, NORM], feeds=feeds)
                names = [n.name for n in patched.graph.node]
                self.assertEqual(len(names), len(set(names)))

    def test_function_of_our_name_in_another_domain(self):
        g = self.gemma_pair()
        function = helper.make_function("other", NORM, ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"], "n")],
                                        [helper.make_opsetid("", 17)])
        g.functions.append(function)
        g.imports["other"] = 1
        g.op(NORM, "z", out="end", domain="other")
        g.output("end", SHAPE)
        self.fused(g.model(), [NORM, NORM])


class SecondRunTest(RecipeTest):
    def test_nothing_changes(self):
        g = Graph(17)
        x = g.input("x", SHAPE)
        rms6(g, x, g.const("w", W), "n_")
        ln9(g, "n_y", "w", g.const("b", B), "l_")
        swiglu3(g, "l_y", x, "s_")
        g.op("Add", "s_y", x, out="sum")
        rms6(g, "sum", "w", "m_")
        g.output("m_y", SHAPE)
        self.fused(g.model(), ["LigerAddRMSNorm", LAYER, NORM, SWIGLU])
        first = (self.folder / "patched.onnx").read_bytes()
        result = self.command("patched.onnx", "--family", "any", "-o", "patched.onnx")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.folder / "patched.onnx").read_bytes(), first)

    def test_same_input_same_bytes(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        results = set()
        for _ in range(3):
            self.patch(g.model())
            results.add((self.folder / "patched.onnx").read_bytes())
        self.assertEqual(len(results), 1)

    def test_model_that_was_patched_in_part(self):
        """A norm beside one that is fused already: one new, one old, no name twice."""
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W), "a_")
        rms6(g, g.op("Tanh", "a_y", out="tanh"), "w", "b_")
        g.output("b_y", SHAPE)
        model = g.model()
        _, half = self.patch(model, "--only-first", "1")
        self.assertEqual(len(fused_nodes(half)), 1)
        report, whole = self.patch(half)
        self.assertEqual(len(fused_nodes(whole)), 2)
        module = report["modules"]["rms_norm"]
        self.assertEqual((module["patched"], module["already_fused"]), (1, 1))
        self.same_results(model, whole)


class TypeTest(RecipeTest):
    def test_declared_types_of_what_stays(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.op("MatMul", "y", g.const("weight", np.eye(8)), out="z")
        g.op("Neg", "z", out="end")
        for name, shape in (("sq", SHAPE), ("m", [2, 4, 1]), ("me", [2, 4, 1]), ("r", [2, 4, 1]), ("n", SHAPE),
                            ("y", SHAPE), ("z", SHAPE)):
            g.info(name, shape)
        g.output("end", SHAPE)
        model = g.model()
        _, patched = self.fused(model, [NORM])
        wanted = {i.name: i for i in model.graph.value_info if i.name in ("y", "z")}
        self.assertEqual({i.name: i for i in patched.graph.value_info}, wanted)

    def test_types_that_only_inference_knows(self):
        """The fused output gets its type, so that inference goes on behind the node."""
        g = Graph(17)
        rms6(g, g.input("x", ["batch", 4, 8]), g.const("w", W))
        g.op("MatMul", "y", g.const("weight", np.eye(8)), out="z")
        g.op("Neg", "z", out="end")
        g.output("end", ["batch", 4, 8])
        _, patched = self.patch(g.model())
        (y,) = (i for i in patched.graph.value_info if i.name == "y")
        self.assertEqual([d.dim_param or d.dim_value for d in y.type.tensor_type.shape.dim], ["batch", 4, 8])
        self.assertEqual(y.type.tensor_type.elem_type, F32)


class DomainTest(RecipeTest):
    def test_import_stands_where_it_is_used_and_only_there(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        _, patched = self.patch(g.model())
        self.assertEqual(sorted((o.domain, o.version) for o in patched.opset_import), [("", 17), ("liger", 1)])
        self.assertEqual({n.domain for n in patched.graph.node}, {"liger"})

    def test_norm_inside_a_function(self):
        for opset in (17, 20):
            with self.subTest(opset):
                inner = Graph(opset)
                inner.input("x", SHAPE)
                axes = []
                inner.op("Constant", out="two", value=numpy_helper.from_array(np.array(2, np.float32)))
                inner.op("Constant", out="eps", value=numpy_helper.from_array(np.array(EPS, np.float32)))
                inner.op("Pow", "x", "two", out="sq")
                if opset < 18:
                    inner.op("ReduceMean", "sq", out="m", axes=[-1])
                else:
                    inner.op("Constant", out="axes", value=numpy_helper.from_array(np.array([-1], np.int64)))
                    axes.append("axes")
                    inner.op("ReduceMean", "sq", *axes, out="m")
                inner.op("Add", "m", "eps", out="me")
                inner.op("Sqrt", "me", out="r")
                inner.op("Div", "x", "r", out="n")
                inner.op("Mul", "n", "w", out="y")
                function = helper.make_function("my.nn", "Norm", ["x", "w"], ["y"], inner.nodes,
                                                [helper.make_opsetid("", opset)])
                g = Graph(opset)
                x = g.input("x", SHAPE)
                g.op("Norm", x, g.const("w", W), out="a", domain="my.nn")
                g.op("Norm", "a", g.const("w2", W[::-1]), out="end", domain="my.nn")
                g.output("end", SHAPE)
                g.functions.append(function)
                g.imports["my.nn"] = 1
                model = g.model()
                _, patched = self.never_wrong(model)
                # Patched inside the function, or once for each call after the calls are replaced by the body.
                kept = [f for f in patched.functions if f.domain == "my.nn"]
                self.assertEqual([n.op_type for n in fused_nodes(patched)], [NORM] if kept else [NORM, NORM])
                for holder in (*kept, patched):
                    self.assertIn(("liger", 1), [(o.domain, o.version) for o in holder.opset_import])


class MetadataTest(RecipeTest):
    def test_scopes_of_the_match_are_kept(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        model = g.model()
        model.ir_version = 10
        scopes = "['', 'model', 'model.layers.0.input_layernorm'%s]"
        classes = "['my.Wrapper', 'my.Model', 'my.Norm'%s]"
        for node in model.graph.node:
            if node.op_type != "Sqrt":
                node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes % f", '{node.output[0]}'")
        _, patched = self.fused(model, [NORM])
        (node,) = fused_nodes(patched)
        self.assertEqual({p.key: p.value for p in node.metadata_props}, {"pkg.torch.onnx.name_scopes": scopes % ""})
        for node in model.graph.node:
            if node.op_type != "Sqrt":
                node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy",
                                        value=classes % f", 'aten.{node.op_type}'")
        report, patched = self.fused(model, [NORM])
        (node,) = fused_nodes(patched)
        self.assertEqual({p.key: p.value for p in node.metadata_props},
                         {"pkg.torch.onnx.name_scopes": scopes % "", "pkg.torch.onnx.class_hierarchy": classes % ""})
        self.assertEqual(report["patched"][0]["path"], "model.layers.0.input_layernorm")

    def test_metadata_is_not_needed(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        for node in g.nodes:
            node.ClearField("name")
        _, patched = self.fused(g.model(), [NORM])
        self.assertEqual(list(fused_nodes(patched)[0].metadata_props), [])

    def test_metadata_of_the_model_is_kept(self):
        g = Graph(17)
        rms6(g, g.input("x", SHAPE), g.const("w", W))
        g.output("y", SHAPE)
        model = g.model()
        model.producer_name, model.doc_string = "someone", "said this"
        model.metadata_props.add(key="theirs", value="kept")
        _, patched = self.patch(model)
        self.assertEqual((patched.producer_name, patched.doc_string), ("someone", "said this"))
        self.assertIn(("theirs", "kept"), [(p.key, p.value) for p in patched.metadata_props])
        self.assertEqual(attributes(fused_nodes(patched)[0])["offset"], 0)


if __name__ == "__main__":
    unittest.main()
