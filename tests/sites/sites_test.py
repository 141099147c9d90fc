"""Every site that liger-patch rewrites in half-precision exports, cut out and held against the graph as written.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so python sites_test.py

ONNX Runtime's CPU provider computes f16 elementwise ops in f32 and has no bf16, so running the original says little
about its roundings. Here the replaced nodes are evaluated in numpy (evaluator.py), twice: with one rounding per op,
to the dtype the graph declares (`written`), and without any (`exact`). The fused node runs in ONNX Runtime as a model
of its own, with the Casts that the patcher put beside it: by the library's kernel, in a model without the function
bodies, and by its body, without the library, where the CPU provider can (not in bf16).

Criteria for the kernel, per output of a site, with ulp the distance of its dtype's numbers:
- norms: equal to `written`, but for 1 ulp of the row's largest output on at most 0.1 % of the elements; the sum of a
  residual add is equal everywhere. Rows in which the mean square vanishes beside epsilon are left out here: each of
  their elements is multiplied by the same constant, which for 1e-6 is 1000 but for its last bit, and then bf16 has so
  many ties that this bit alone decides 1 % of the elements.
- norms, where the activations are small integers, so that every sum is exact: equal to `written` everywhere.
- norms, all rows and elements: between `written` with 2^-21 of it taken away and added at the Cast from the f32
  statistics to the half type. 2^-21 is 8 roundings of f32: at most 4.5 of the graph (half of each in front of the
  root: square, mean, sum; all of root, reciprocal, product), 3.5 of the kernel.
- rope and swiglu: max|y - exact| <= 1.25 * max|written - exact| + 1 ulp of the largest exact output.
- where the report says `raised`, all elements: between `exact` minus and plus 2^-21 of the sum of its terms'
  magnitudes, both rounded once to the output's dtype. This sees what the line above lets pass, and depends on no
  luck with ties.
- all: relative L2 distance f16 1e-3, bf16 8e-3, f32 1e-6, of `written` for half-precision norms and else of `exact`
  rounded to the output's dtype, so that the format's own step does not count where outputs are subnormal.
For the body: the same half-precision and L2 limits (norms too), and as near to the replaced nodes as ONNX Runtime
runs them as a kernel's norm is to `written`. It cannot be held to `written`: between two f16 ops, which it computes in
f32, ONNX Runtime drops the rounding to f16, in originals as in bodies.
Where `exact` is beyond the largest number of the dtype, y is the infinity of its sign. Where only `written` overflows
on the way, y is a number and is held against `exact` alone.
"""
import collections
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from evaluator import FORMATS, HALF, Graph, round_to, to_f64, ulp

MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
PATCHER = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]
EXPECTED = json.loads((MODELS / "expected.json").read_text())["models"]
SINGLE = "llama/dynamo_op20.onnx"
NAMES = [name for name, facts in EXPECTED.items() if facts["dtype"] != "fp32"] + [SINGLE]
MODULES = ("rms_norm", "rope", "swiglu")

F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT
NOISE = 2.0**-21  # see above
L2_LIMIT = {F16: 1e-3, BF16: 8e-3, F32: 1e-6}
ELEMENTS = 1 << 14  # of the largest activation of a case, about
# Scales of the rows of a norm: usual ones, |x| > 255 (whose square f16 cannot hold), tiny ones (epsilon rules).
ROW_SCALES = {F16: (1, 0.02, 5, 40, 300, 5000, 1e-3, 1e-6), BF16: (1, 0.02, 5, 40, 300, 1e12, 1e-3, 1e-25)}
ROW_SCALES[F32] = ROW_SCALES[BF16]
# Gate and up; the last two overflow f16 here and there.
GATE_UP_SCALES = {F16: ((1, 1), (6, 3), (1e-5, 1), (20, 500), (3000, 3000)),
                  BF16: ((1, 1), (6, 3), (1e-25, 1), (20, 500), (1e10, 1e10))}
GATE_UP_SCALES[F32] = GATE_UP_SCALES[BF16]
ROPE_SCALES = {F16: (1, 300, 1e-6, 20000), BF16: (1, 300, 1e-25, 1e20)}
ROPE_SCALES[F32] = ROPE_SCALES[BF16]


def patch(model, *arguments):
    return subprocess.run([PATCHER, str(model), "--modules", "auto", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)


def open_session(model, library):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if library:
        options.register_custom_ops_library(LIBRARY)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Cut:
    """A fused node and the Casts that were put beside it, as a model over values of the original graph.

    bf16 inputs and outputs pass a Cast from and to f32, since numpy has no bf16; no other node computes in it.
    """

    def __init__(self, original, patched, node_name):
        producer = {v: n for n in patched.graph.node for v in n.output}
        (self.node,) = [n for n in patched.graph.node if n.name == node_name]
        nodes = [self.node]
        self.inputs, self.outputs = [], []
        for value in filter(None, self.node.input):
            if value not in original.values_of_model:
                nodes.insert(0, self._cast(producer[value]))
                value = producer[value].input[0]
            if value not in self.inputs:
                self.inputs.append(value)
        for value in filter(None, self.node.output):
            if value not in original.values_of_model:
                (after,) = [n for n in patched.graph.node if value in n.input]
                nodes.append(self._cast(after))
                (value,) = after.output
            self.outputs.append(value)
        self.original, self.patched, self.nodes = original, patched, nodes

    @staticmethod
    def _cast(node):
        if node.op_type != "Cast":
            raise ValueError(f"{node.name} ({node.op_type}) stands between a fused node and the graph")
        return node

    def model(self, bodies):
        types = self.original.types
        nodes, before, after = [onnx.NodeProto.FromString(n.SerializeToString()) for n in self.nodes], [], []
        interface = []
        for values, casts in ((self.inputs, before), (self.outputs, after)):
            infos = []
            for value in values:
                infos.append(helper.make_tensor_value_info(value, types[value], None))
                if types[value] != BF16:
                    continue
                infos[-1] = helper.make_tensor_value_info(value, F32, None)
                for node in nodes:
                    for side in (node.input, node.output):
                        side[:] = [v + "/bf16" if v == value else v for v in side]
                if casts is before:
                    casts.append(helper.make_node("Cast", [value], [value + "/bf16"], to=BF16))
                else:
                    casts.append(helper.make_node("Cast", [value + "/bf16"], [value], to=F32))
            interface.append(infos)
        graph = helper.make_graph([*before, *nodes, *after], "site", *interface)
        return helper.make_model(graph, opset_imports=self.patched.opset_import, ir_version=self.patched.ir_version,
                                 functions=self.patched.functions if bodies else [])

    def original_model(self):
        """The nodes that the fused one replaces, with what they need from the graph behind the cut."""
        graph, nodes, needed, todo = self.original.model.graph, {}, set(), list(self.outputs)
        producer = {v: i for i, n in enumerate(graph.node) for v in n.output}
        while todo:
            value = todo.pop()
            if not value or value in self.inputs:
                continue
            if value in self.original.initializers:
                needed.add(value)
            elif producer[value] not in nodes:
                nodes[producer[value]] = graph.node[producer[value]]
                todo += nodes[producer[value]].input
        types = self.original.types
        cut = helper.make_graph([n for _, n in sorted(nodes.items())], "original",
                                *([helper.make_tensor_value_info(v, types[v], None) for v in values]
                                  for values in (self.inputs, self.outputs)),
                                [i for i in graph.initializer if i.name in needed])
        return helper.make_model(cut, opset_imports=self.original.model.opset_import,
                                 ir_version=self.original.model.ir_version)

    def run(self, session, values):
        types = self.original.types
        feeds = {v: values[v].astype(np.float16 if types[v] == F16 else np.float32) for v in self.inputs}
        return dict(zip(self.outputs, map(to_f64, session.run(self.outputs, feeds)), strict=True))


def normal(random, shape, scale, dtype):
    largest = 0.45 * FORMATS[dtype][2]  # so that the sum of two is finite
    return round_to(np.clip(random.standard_normal(shape) * scale, -largest, largest), dtype)


def enlarged(shape):
    """The shape with a longer first axis, so that shares of 0.1 % mean something."""
    return [max(1, ELEMENTS // int(np.prod(shape[1:]))), *shape[1:]]


class Boundary:
    """Values of the model where sites are cut: dtypes, shapes, and the model's own arrays where it can run."""

    def __init__(self, name, graph, wanted):
        self.graph = graph
        self.arrays = {v: graph.initializer(v) for v in wanted if v in graph.initializers}
        missing = [v for v in wanted if v not in self.arrays]
        if EXPECTED[name]["dtype"] == "bf16":
            return  # the CPU provider cannot run it; its shapes are static and its tables initializers
        model = onnx.ModelProto()
        model.CopyFrom(graph.model)
        del model.graph.output[:]
        model.graph.output.extend(helper.make_tensor_value_info(v, graph.types[v], None) for v in missing)
        session = open_session(model, False)
        stored = np.load((MODELS / name).with_suffix(".npz"))
        feeds = {i.name: stored["in_" + i.name] for i in session.get_inputs()}
        self.arrays |= dict(zip(missing, map(to_f64, session.run(missing, feeds)), strict=True))

    def shape(self, value):
        shape = list(self.arrays[value].shape) if value in self.arrays else self.graph.shapes[value]
        if 0 in shape:
            raise ValueError(f"shape of {value} is not known: {shape}")
        return shape


def norm_cases(cut, boundary, random):
    types = cut.original.types
    activations = [v for v in cut.inputs if v not in cut.original.initializers]
    values = {v: boundary.arrays[v] for v in cut.inputs if v in cut.original.initializers}
    shape = enlarged(boundary.shape(activations[0]))
    for value in activations:
        dtype = types[value]
        scales = np.resize(ROW_SCALES[dtype], int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1)
        values[value] = normal(random, shape, scales, dtype)
    if len(activations) == 2:  # every fifth row: a sum that cancels, but for some bits
        x, residual = (values[v].reshape(-1, shape[-1]) for v in activations)
        nearly = -x[::5] * (1 + 2.0**-6 * random.standard_normal(x[::5].shape))
        residual[::5] = round_to(nearly, types[activations[1]])
    for _, arrays in own(cut, boundary):  # among the others, since they are too few for shares of 0.1 %
        values |= {v: np.concatenate([arrays[v], values[v]]) for v in activations}
    yield "rows of all scales", values
    yield "small integers", values | {v: random.integers(-8, 9, shape).astype(np.float64) for v in activations}


def own(cut, boundary):
    if all(v in boundary.arrays for v in cut.inputs):
        yield "the model's own", {v: boundary.arrays[v] for v in cut.inputs}


def swiglu_cases(cut, boundary, random):
    gate, up = cut.node.input
    dtype = cut.original.types[gate]
    shape = enlarged(boundary.shape(gate))
    for gate_scale, up_scale in GATE_UP_SCALES[dtype]:
        yield f"gate {gate_scale:g}, up {up_scale:g}", {gate: normal(random, shape, gate_scale, dtype),
                                                        up: normal(random, shape, up_scale, dtype)}
    yield from own(cut, boundary)


def rope_cases(cut, boundary, random):
    attributes = {a.name: helper.get_attribute_value(a) for a in cut.node.attribute}
    if (attributes["layout"], attributes["table"]) != (b"BNSD", b"full"):
        raise NotImplementedError("inputs for this layout or table")
    x, cos, sin, *second = cut.node.input
    types, heads = cut.original.types, [v for v in (x, *second) if v]
    sizes = {v: boundary.shape(v) for v in heads}
    half = boundary.shape(cos)[-1] // 2
    for scale in ROPE_SCALES[types[x]]:
        sequence = 16
        angles = np.exp(random.uniform(-7, 7, (2 * sequence, half)))
        angles = np.concatenate([angles, angles], -1).reshape(2, 1, sequence, 2 * half)
        random_tables = {cos: round_to(np.cos(angles), types[cos]), sin: round_to(np.sin(angles), types[sin])}
        for kind, tables in (("random", random_tables), ("model's", {v: boundary.arrays[v] for v in (cos, sin)})):
            table_batch, _, sequence, _ = tables[cos].shape
            batch = ELEMENTS // (4 * sequence * 2 * half) // 2 * 2
            values = {v: np.tile(t, (batch // table_batch, 1, 1, 1)) if table_batch > 1 else t
                      for v, t in tables.items()}
            for v in heads:
                values[v] = normal(random, [batch, sizes[v][1], sequence, sizes[v][3]], scale, types[v])
            yield f"x {scale:g}, {kind} tables", values
    yield from own(cut, boundary)


CASES = {"rms_norm": norm_cases, "rope": rope_cases, "swiglu": swiglu_cases}


def share_of_differences(got, wanted, dtype):
    """How many elements differ, of all, and the worst difference in ulp of the row's largest wanted output."""
    if got.size == 0:
        return 0.0, 0.0
    same_kind = np.array_equal(np.isnan(got), np.isnan(wanted))
    largest = np.max(np.abs(np.where(np.isfinite(wanted), wanted, 0.0)), axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        distance = np.where(got == wanted, 0.0, np.abs(got - wanted))
    distance = np.where(np.isnan(distance), 0.0 if same_kind else np.inf, distance)
    return np.count_nonzero(distance) / distance.size, float(np.max(distance / ulp(largest, dtype)))


class Run:
    """Inputs of a site and what it makes of them; everything its outputs are held against."""

    def __init__(self, site, cut, values):
        graph, names = cut.original, site["replaced"]
        self.site, self.cut, self.values = site, cut, values
        self.norm = site["module"] == "rms_norm"
        self.raised = site["precision"] == "raised"
        self.written = graph.evaluate(names, values, rounded=True)
        self.exact = graph.evaluate(names, values, rounded=False)
        self.low, self.high = {}, {}
        types = [graph.types[v] for v in cut.outputs]
        if self.norm and set(types) & set(HALF):
            bounds = [graph.evaluate(names, values, rounded=True, nudge=n) for n in (-NOISE, NOISE)]
            for v in cut.outputs:
                self.low[v] = np.minimum(*(b[v] for b in bounds))
                self.high[v] = np.maximum(*(b[v] for b in bounds))
        if self.raised:
            magnitudes = self._magnitudes()
            for v, dtype in zip(cut.outputs, types, strict=True):
                self.low[v] = round_to(self.exact[v] - NOISE * magnitudes[v], dtype)
                self.high[v] = round_to(self.exact[v] + NOISE * magnitudes[v], dtype)

    def _magnitudes(self):
        """The outputs with the magnitude of each term in place of the term."""
        if self.site["module"] == "swiglu":
            return {v: np.abs(self.exact[v]) for v in self.cut.outputs}
        # Of x * cos + rotate(x) * sin the rotation negates one half: with a negative sin all terms of that half have
        # one sign, with a positive sin those of the other half.
        absolute = {v: np.abs(a) for v, a in self.values.items()}
        sin = self.cut.node.input[2]
        names = self.site["replaced"]
        two = [self.cut.original.evaluate(names, absolute | {sin: s * absolute[sin]}, rounded=False) for s in (1, -1)]
        return {v: np.maximum(np.abs(two[0][v]), np.abs(two[1][v])) for v in self.cut.outputs}

    def ordinary_rows(self):
        """Rows of a norm in which the statistics are more than epsilon."""
        x = self.written[self.cut.outputs[1]] if len(self.cut.outputs) == 2 else self.values[self.cut.node.input[0]]
        (epsilon,) = [a.f for a in self.cut.node.attribute if a.name == "epsilon"]
        return np.mean(x * x, axis=-1) > epsilon * 2.0**-25

    def sums_are_exact(self):
        activations = [a for v, a in self.values.items() if v not in self.cut.original.initializers]
        return all(np.array_equal(a, np.rint(a)) and np.max(np.abs(a)) <= 16 for a in activations)

    def judge_kernel(self, got):
        verdict = Verdict()
        for index, value in enumerate(self.cut.outputs):
            y, dtype = got[value], self.cut.original.types[value]
            written = self.written[value]
            self._judge_distance(verdict, value, y)
            if self.norm and index == 1:
                verdict.require(np.array_equal(y, written), f"{value}: the sum differs from the graph's")
            elif self.norm and dtype in HALF:
                ordinary = self.ordinary_rows()
                verdict.few("norm", y[ordinary], written[ordinary], dtype)
                if self.sums_are_exact():
                    verdict.require(np.array_equal(y, written), f"{value}: differs though the sums are exact")
            if value in self.low:
                outside = ~((self.low[value] <= y) & (y <= self.high[value]))
                verdict.require(not outside.any(), f"{value}: {np.count_nonzero(outside)} elements beyond f32 noise")
        return verdict

    def judge_body(self, got, original):
        """original: the outputs of the replaced nodes in ONNX Runtime"""
        verdict = Verdict()
        for value in self.cut.outputs:
            self._judge_distance(verdict, value, got[value], body=True)
            if self.cut.original.types[value] in HALF:
                verdict.few("original", got[value], original[value], self.cut.original.types[value])
        return verdict

    def _judge_distance(self, verdict, value, y, body=False):
        dtype = self.cut.original.types[value]
        written, exact = self.written[value], self.exact[value]
        best = round_to(exact, dtype)
        finite = np.isfinite(best)
        if self.norm:
            verdict.require(finite.all() and np.isfinite(written).all(), f"{value}: a reference is not finite")
        verdict.require(np.array_equal(y[~finite], best[~finite]), f"{value}: not the infinity it should be")
        verdict.require(np.isfinite(y[finite]).all(), f"{value}: not finite where the exact output is")
        if verdict.failures:
            return
        if dtype in HALF and (body or not self.norm):
            both = finite & np.isfinite(written)
            verdict.limit("half", np.max(np.abs(y - exact)[finite]), 1.25 * np.max(np.abs(written - exact)[both]) +
                          float(ulp(np.max(np.abs(exact[finite])), dtype)))
        wanted = (written if self.norm and dtype in HALF else best)[finite]
        verdict.limit("L2", np.linalg.norm(y[finite] - wanted), L2_LIMIT[dtype] * np.linalg.norm(wanted))


class Verdict:
    """What is wrong, and how near each criterion came to its limit (1)."""

    def __init__(self):
        self.failures, self.ratios = [], collections.Counter()

    def require(self, condition, text):
        if not condition:
            self.failures.append(text)

    def limit(self, name, value, limit):
        ratio = 0.0 if value == 0 else float(value / limit) if limit > 0 else np.inf
        self.ratios[name] = max(self.ratios[name], ratio)
        self.require(value <= limit, f"{name}: {value:g} > {limit:g}")

    def few(self, name, got, wanted, dtype):
        share, worst = share_of_differences(got, wanted, dtype)
        self.ratios[f"{name} 0.1 %"] = max(self.ratios[f"{name} 0.1 %"], share / 1e-3)
        self.ratios[f"{name} 1 ulp"] = max(self.ratios[f"{name} 1 ulp"], worst)
        self.require(share <= 1e-3 and worst <= 1,
                     f"{name}: {100 * share:.3g} % of the elements differ, by up to {worst:.3g} ulp")


def seed_of(*parts):
    return np.random.default_rng([ord(c) for c in "/".join(parts)])


class SitesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.scratch.name)
        cls.graphs, cls.patched, cls.reports, cls.exact_reports, cls.cuts, cls.boundaries = {}, {}, {}, {}, {}, {}
        for name in NAMES:
            out, report = folder / "patched.onnx", folder / "report.json"
            for arguments, reports in ((["-o", out], cls.reports), (["--exact", "--dry-run"], cls.exact_reports)):
                run = patch(MODELS / name, *arguments, "--report", report)
                if run.returncode != 0:
                    raise AssertionError(f"{name}: {run.stderr}")
                reports[name] = json.loads(report.read_text())
            graph, patched = Graph(onnx.load(MODELS / name)), onnx.load(out)
            cls.graphs[name], cls.patched[name] = graph, patched
            cls.cuts[name] = [Cut(graph, patched, site["node"]) for site in cls.reports[name]["patched"]]
            cls.boundaries[name] = Boundary(name, graph, sorted({v for c in cls.cuts[name] for v in c.inputs}))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def sites(self):
        for name in NAMES:
            for site, cut in zip(self.reports[name]["patched"], self.cuts[name], strict=True):
                yield name, site, cut

    def cases(self, name, site, cut):
        return CASES[site["module"]](cut, self.boundaries[name], seed_of(name, site["node"]))

    def test_models_are_of_both_types_and_both_exporters(self):
        self.assertEqual({EXPECTED[n]["dtype"] for n in NAMES}, {"fp16", "bf16", "fp32"})
        self.assertEqual({EXPECTED[n]["exporter"] for n in NAMES}, {"dynamo", "ts"})

    def test_every_instance_is_a_site(self):
        for name in NAMES:
            with self.subTest(name):
                found = collections.Counter()
                for site, cut in zip(self.reports[name]["patched"], self.cuts[name], strict=True):
                    # A rotation has an output per instance; the second output of an add is its sum.
                    found[site["module"]] += len(cut.outputs) if site["module"] == "rope" else 1
                    self.assertEqual(len(site["paths"]), len(cut.outputs) if site["module"] == "rope" else 1)
                self.assertEqual(found, EXPECTED[name]["counts"])

    def test_sites_meet_the_criteria(self):
        table = collections.defaultdict(lambda: (set(), collections.Counter()))
        for name, site, cut in self.sites():
            kernel, body = open_session(cut.model(bodies=False), True), None
            if BF16 not in (self.graphs[name].types[v] for v in cut.inputs):
                body = open_session(cut.model(bodies=True), False)
                original = open_session(cut.original_model(), False)
            for case, values in self.cases(name, site, cut):
                run = Run(site, cut, values)
                verdicts = {"kernel": run.judge_kernel(cut.run(kernel, values))}
                if body:
                    verdicts["body"] = run.judge_body(cut.run(body, values), cut.run(original, values))
                for variant, verdict in verdicts.items():
                    nodes, ratios = table[name, site["op"], site["form"], variant]
                    nodes.add(site["node"])
                    for key, ratio in verdict.ratios.items():
                        ratios[key] = max(ratios[key], ratio)
                    with self.subTest(model=name, site=site["node"], case=case, variant=variant):
                        self.assertEqual(verdict.failures, [])
        print(f"\n{'model':33s}{'op':16s}{'form':20s}{'by':7s}sites  worst ratio, and all (1 is the limit)")
        for (name, op, form, variant), (nodes, ratios) in table.items():
            print(f"{name:33s}{op:16s}{form:20s}{variant:7s}{len(nodes):5d}  {max(ratios.values()):.3f}: " +
                  ", ".join(f"{k} {v:.3f}" for k, v in ratios.items()))

    def test_wrong_sites_are_seen(self):
        def attribute(name, value):
            def edit(node):
                (found,) = [a for a in node.attribute if a.name == name]
                found.CopyFrom(helper.make_attribute(name, value(helper.get_attribute_value(found))))
            return edit

        def swap(i, j):
            def edit(node):
                node.input[i], node.input[j] = node.input[j], node.input[i]
            return edit

        norm = [attribute("epsilon", lambda e: e * 1.5), attribute("offset", lambda _: 2.0**-6),
                attribute("scale_type", lambda _: F32)]  # that of gemma: the product is rounded once
        edits = {"LigerRMSNorm": norm, "LigerAddRMSNorm": norm, "LigerRope": [swap(1, 2)],
                 "LigerSwiGLU": [swap(0, 1), attribute("stash_type", lambda _: F32)]}  # silu is rounded
        seen = set()
        for name, site, cut in self.sites():
            if name == SINGLE or (name, site["op"]) in seen:
                continue
            seen.add((name, site["op"]))
            runs, cases = [], self.cases(name, site, cut)
            has_body = BF16 not in (self.graphs[name].types[v] for v in cut.inputs)
            original = open_session(cut.original_model(), False) if has_body else None
            for number, edit in enumerate(edits[site["op"]]):
                with self.subTest(model=name, op=site["op"], edit=number):
                    session = open_session(self.edited(cut, edit, bodies=False), True)
                    self.assertTrue(any(r.judge_kernel(cut.run(session, r.values)).failures
                                        for r in self.runs(site, cut, cases, runs)))
                    if not has_body or number > 0:
                        continue  # bodies hold further attributes as constants
                    session = open_session(self.edited(cut, edit, bodies=True), False)
                    self.assertTrue(any(r.judge_body(cut.run(session, r.values), cut.run(original, r.values)).failures
                                        for r in self.runs(site, cut, cases, runs)))

    @staticmethod
    def edited(cut, edit, bodies):
        model = cut.model(bodies)
        (node,) = [n for n in model.graph.node if n.domain == "liger"]
        edit(node)
        return model

    @staticmethod
    def runs(site, cut, cases, made):
        """The runs of `made`, then those of the other cases, which are added to it."""
        yield from list(made)
        for _, values in cases:
            made.append(Run(site, cut, values))
            yield made[-1]

    def test_precision_is_raised_where_a_half_type_computes_inside(self):
        for name, site, cut in self.sites():
            with self.subTest(model=name, site=site["node"]):
                # A result in a half type that is no output of the site is one rounding more than the kernel makes.
                # Casts are roundings that the kernel makes too; signs, slices and the like round nothing.
                exact = {"Cast", "Neg", "Slice", "Split", "Concat", "Constant", "Identity"}
                types = self.graphs[name].types
                inner = [v for n in self.graphs[name].nodes(site["replaced"]) if n.op_type not in exact
                         for v in n.output if types[v] in HALF and v not in cut.outputs]
                self.assertEqual(site["precision"], "raised" if inner else "exact")

    def test_exact_refuses_what_is_raised_and_nothing_else(self):
        for name in NAMES:
            with self.subTest(name):
                sites, strict = self.reports[name]["patched"], self.exact_reports[name]
                self.assertEqual([s["node"] for s in strict["patched"]],
                                 [s["node"] for s in sites if s["precision"] == "exact"])
                raised = collections.Counter(p for s in sites if s["precision"] == "raised" for p in s["paths"])
                self.assertEqual(collections.Counter(m["path"] for m in strict["missed"]), raised)
                self.assertEqual({m["guard"] for m in strict["missed"]}, {"exact"} if raised else set())
                for module in MODULES:
                    counts = strict["modules"][module]
                    missed = sum(m["module"] == module for m in strict["missed"])
                    self.assertEqual((counts["patched"] + counts["missed"], counts["missed"]),
                                     (EXPECTED[name]["counts"][module], missed))


class EvaluatorTest(unittest.TestCase):
    def test_rounding_is_to_nearest_even(self):
        for dtype, numpy_type in ((F16, np.float16), (BF16, ml_dtypes.bfloat16), (F32, np.float32)):
            with self.subTest(numpy_type.__name__):
                if dtype == F32:
                    bits = np.random.default_rng(1).integers(0, 0x7F800000, 1 << 16).astype(np.uint32)
                    bits[:4] = 0, 1, 0x7FFFFF, 0x7F7FFFFE
                else:  # all finite positive numbers but the largest
                    bits = np.arange({F16: 0x7BFF, BF16: 0x7F7F}[dtype], dtype=np.uint16)
                low = bits.view(numpy_type).astype(np.float64)
                high = (bits + bits.dtype.type(1)).view(numpy_type).astype(np.float64)
                middle = (low + high) / 2
                even = np.where(bits % 2 == 0, low, high)
                for sign in (1, -1):
                    for number, rounded in ((low, low), (middle, even), (middle - (high - low) * 2.0**-20, low),
                                            (middle + (high - low) * 2.0**-20, high)):
                        np.testing.assert_array_equal(round_to(sign * number, dtype), sign * rounded)
                    largest = FORMATS[dtype][2]
                    beyond = largest + float(ulp(largest, dtype)) / 2  # a tie, whose even side is infinity
                    np.testing.assert_array_equal(round_to(np.array([sign * beyond]), dtype), [sign * np.inf])
                    below = np.array([sign * np.nextafter(beyond, 0)])
                    np.testing.assert_array_equal(round_to(below, dtype), [sign * largest])

    def test_every_op_rounds(self):
        graph = Graph(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
            g (float16[1] x) => (float16[1] y) { [a] s = Add (x, x)  [b] p = Mul (s, x)  [c] y = Sub (p, s) }"""))
        x = np.array([1 + 2.0**-10])
        names = ["a", "b", "c"]
        self.assertEqual(graph.evaluate(names, {"x": x}, rounded=False)["y"], 2 * x * x - 2 * x)
        # 2 x^2 = 2 + 2^-8 + 2^-19 is 2 + 2^-8 in f16
        self.assertEqual(graph.evaluate(names, {"x": x}, rounded=True)["y"], 2.0**-9)

    def test_unknown_ops_and_inputs_are_errors(self):
        model = """<ir_version: 8, opset_import: ["" : 17]>
            g (float16[1] x) => (float16[1] y) { [a] e = Erf (x)  [b] y = Add (e, x) }"""
        graph = Graph(onnx.parser.parse_model(model))
        one = np.ones(1)
        with self.assertRaises(NotImplementedError):
            graph.evaluate(["a"], {"x": one}, rounded=True)
        with self.assertRaises(NotImplementedError):
            graph.evaluate(["b"], {"x": one}, rounded=True)
        with self.assertRaises(LookupError):
            graph.evaluate(["b"], {"e": one}, rounded=True)
        with self.assertRaises(ValueError):
            graph.evaluate(["b"], {"e": one, "x": one / 3}, rounded=True)


if __name__ == "__main__":
    unittest.main()
