"""Builds ONNX graphs from formulas, so that a form reads as what it computes.

    g = Graph(opset=18, dtype=F16)
    x, w = g.input("x", ["B", "S", 8]), g.weight("w", [8])
    wide = cast(x, F32)
    y = w * cast(wide / sqrt(mean(wide * wide) + 1e-6), F16)    # Mul, Cast, Div, Sqrt, Add, ReduceMean, Mul, Cast
    model = g.model(y)

Every operator of Python is one node with its operands in the order written: `w * n` is Mul(w, n), `1 / s` is
Div(1, s), `x ** 2` Pow, `x @ w` MatMul, `-x` Neg. A number beside a value becomes a scalar of the value's type. The
functions below hide what moved from attributes to inputs between opsets; op() writes any other node.
"""
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, F16, BF16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
I64, I32, I8, BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.INT8, TensorProto.BOOL
NUMPY = {
    F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16, F64: np.float64, I64: np.int64, I32: np.int32,
    I8: np.int8, BOOL: np.bool_
}
NAMES = {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64"}
SIZES = {"B": 2, "S": 5}  # what symbolic dimensions are when a graph runs
BOOLEAN = {"Not", "Greater", "GreaterOrEqual", "Less", "Equal", "And", "Or", "IsInf", "IsNaN"}
MICROSOFT = "com.microsoft"
LAST = 2**63 - 1  # end of a Slice: to the end of the axis


class Value:
    """A value of a graph; its operators are nodes."""
    def __init__(self, graph, name, dtype):
        self.graph, self.name, self.dtype = graph, name, dtype

    def __add__(self, other):
        return op("Add", self, other)

    def __radd__(self, other):
        return op("Add", other, self)

    def __sub__(self, other):
        return op("Sub", self, other)

    def __rsub__(self, other):
        return op("Sub", other, self)

    def __mul__(self, other):
        return op("Mul", self, other)

    def __rmul__(self, other):
        return op("Mul", other, self)

    def __truediv__(self, other):
        return op("Div", self, other)

    def __rtruediv__(self, other):
        return op("Div", other, self)

    def __pow__(self, other):
        return op("Pow", self, other)

    def __matmul__(self, other):
        return op("MatMul", self, other)

    def __neg__(self):
        return op("Neg", self)


class Graph:
    """The graph under construction. `constants` says where numbers go: "initializer" or "node".

    All names begin with `prefix`, so that graphs can be joined.
    """
    def __init__(self, opset=18, dtype=F32, constants="initializer", prefix=""):
        self.opset, self.dtype, self.constants, self.prefix = opset, dtype, constants, prefix
        self.nodes, self.inputs, self.initializers, self.functions, self.feeds = [], [], [], [], {}
        self.random = np.random.default_rng(7)

    def _name(self, stem):
        return f"{self.prefix}{stem}_{len(self.nodes) + len(self.initializers)}"

    def input(self, name, shape, dtype=None, feed=None):
        """A graph input; `feed` is the array it gets when the graph runs, by default rows() of its shape."""
        name, dtype = self.prefix + name, self.dtype if dtype is None else dtype
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        shape = [SIZES.get(d, d) for d in shape]
        self.feeds[name] = np.asarray(rows(shape, dtype, self.random) if feed is None else feed).astype(NUMPY[dtype])
        return Value(self, name, dtype)

    def constant(self, array, dtype=None, name="c"):
        array = np.asarray(array)
        dtype = self.dtype if dtype is None else dtype
        tensor = numpy_helper.from_array(array.astype(NUMPY[dtype]), self._name(name))
        if self.constants == "node":
            return op("Constant", graph=self, value=tensor, dtype=dtype)
        self.initializers.append(tensor)
        return Value(self, tensor.name, dtype)

    def weight(self, name, shape, dtype=None):
        """A parameter: random numbers about 1."""
        array = 1 + 0.5 * self.random.standard_normal(shape)
        dtype = self.dtype if dtype is None else dtype
        self.initializers.append(numpy_helper.from_array(array.astype(NUMPY[dtype]), self._name(name)))
        return Value(self, self.initializers[-1].name, dtype)

    def function(self, domain, name, build, dtypes, imports=None):
        """Adds a model-local function whose body is `build(inner graph, *its inputs)`; returns what calls it."""
        inner = Graph(self.opset, self.dtype, "node", "body_")
        inputs = [Value(inner, f"arg{i}", d) for i, d in enumerate(dtypes)]
        results = build(inner, *inputs)
        results = results if isinstance(results, tuple) else (results,)
        opsets = [helper.make_opsetid(d, v) for d, v in {"": self.opset, **(imports or {})}.items()]
        self.functions.append(
            helper.make_function(domain, name, [i.name for i in inputs], [r.name for r in results], inner.nodes,
                                 opsets))
        return lambda *args: op(name, *args, domain=domain, outputs=len(results), dtype=results[0].dtype)

    def body(self):
        """A graph that captures values of this one, for If, Loop and Scan."""
        return Graph(self.opset, self.dtype, "node", f"{self.prefix}body{len(self.nodes)}_")

    def model(self, outputs):
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        graph = helper.make_graph(self.nodes, "form", self.inputs,
                                  [helper.make_tensor_value_info(v.name, v.dtype, None) for v in outputs],
                                  self.initializers)
        model = model_of(graph, self.opset, self.functions)
        try:
            inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.output}
        except onnx.shape_inference.InferenceError:
            return model
        for output in model.graph.output:
            output.CopyFrom(inferred[output.name])
        return model


def model_of(graph, opset, functions=()):
    nodes = [*graph.node, *(n for f in functions for n in f.node)]
    domains = sorted({n.domain for n in nodes} - {"", "ai.onnx"} | {f.domain for f in functions})
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10 if functions else 8)


def joined(models):
    """Graphs of the same opset, whose names differ, as one model."""
    graph = onnx.GraphProto(name="forms")
    for model in models:
        for field in ("node", "input", "output", "initializer"):
            getattr(graph, field).extend(getattr(model.graph, field))
    return model_of(graph, models[0].opset_import[0].version)


def rows(shape, dtype, random):
    """Numbers whose rows are of all kinds: usual, zeros, mean square about a common epsilon, tiny, large."""
    scales = (1, 0, 1e-3, 1e-5, 100, 3) if dtype == F16 else (1, 0, 1e-3, 1e-6, 1e4, 3)
    count = int(np.prod(shape[:-1]))
    return random.standard_normal(shape) * np.resize(scales, count).reshape(*shape[:-1], 1)


def _operand(graph, value, dtype):
    if value is None or isinstance(value, Value):
        return value
    if isinstance(value, (list, tuple)):
        return graph.constant(np.array(value, np.int64), I64)
    return graph.constant(value, dtype)


def op(op_type, *inputs, outputs=1, domain="", dtype=None, graph=None, **attributes):
    """One node. Lists are int64 vectors, numbers scalars of the first value's type, None an absent input."""
    inputs = inputs[:max((i + 1 for i, v in enumerate(inputs) if v is not None), default=0)]
    values = [v for v in inputs if isinstance(v, Value)]
    graph = graph or max((v.graph for v in values), key=lambda g: len(g.prefix))  # the body, not what it captures
    first = values[-1 if op_type == "Where" else 0].dtype if values else graph.dtype  # Where: not the condition's
    operands = [_operand(graph, v, first) for v in inputs]
    if dtype is None:
        dtype = attributes.get("to", BOOL if op_type in BOOLEAN else I64 if op_type in ("Shape", "Size") else first)
    names = [f"{graph.prefix}{op_type.lower()}_{len(graph.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
    graph.nodes.append(
        helper.make_node(op_type, ["" if v is None else v.name for v in operands],
                         names,
                         name=names[0],
                         domain=domain,
                         **attributes))
    results = tuple(Value(graph, n, dtype) for n in names)
    return results if outputs > 1 else results[0]


# Operators whose parameters moved from attributes to inputs.


def _reduce(op_type, x, axes, keepdims, since=18):
    if x.graph.opset < since:
        return op(op_type, x, axes=axes, keepdims=keepdims)
    return op(op_type, x, axes, keepdims=keepdims)


def mean(x, axes=(-1,), keepdims=1):
    return _reduce("ReduceMean", x, list(axes), keepdims)


def total(x, axes=(-1,), keepdims=1):
    return _reduce("ReduceSum", x, list(axes), keepdims, since=13)


def sum_square(x, axes=(-1,), keepdims=1):
    return _reduce("ReduceSumSquare", x, list(axes), keepdims)


def norm2(x, axes=(-1,), keepdims=1):
    return _reduce("ReduceL2", x, list(axes), keepdims)


def largest(x, axes=(-1,), keepdims=1):
    return _reduce("ReduceMax", x, list(axes), keepdims)


def unsqueeze(x, axes):
    if x.graph.opset < 13:
        return op("Unsqueeze", x, axes=axes)
    return op("Unsqueeze", x, list(axes))


def squeeze(x, axes):
    if x.graph.opset < 13:
        return op("Squeeze", x, axes=axes)
    return op("Squeeze", x, list(axes))


def split(x, sizes=None, axis=-1, parts=2):
    """By sizes, or into equal parts."""
    if x.graph.opset < 13:
        return op("Split", x, outputs=len(sizes) if sizes else parts, axis=axis, **({"split": sizes} if sizes else {}))
    if sizes:
        return op("Split", x, list(sizes), outputs=len(sizes), axis=axis)
    extra = {"num_outputs": parts} if x.graph.opset >= 18 else {}
    return op("Split", x, outputs=parts, axis=axis, **extra)


def cut(x, start, end=LAST, axis=-1, step=1):
    """x[..., start:end:step] of one axis."""
    return op("Slice", x, [start], [end], [axis], [step])


def softmax(x, axis=None):
    return op("Softmax", x, **({} if axis is None else {"axis": axis}))


# Operators that read better as functions.


def cast(x, to):
    return op("Cast", x, to=to)


def sqrt(x):
    return op("Sqrt", x)


def sigmoid(x):
    return op("Sigmoid", x)


def exp(x):
    return op("Exp", x)


def reciprocal(x):
    return op("Reciprocal", x)


def concat(*parts, axis=-1):
    return op("Concat", *parts, axis=axis)


def reshape(x, shape):
    return op("Reshape", x, shape)


def transpose(x, perm):
    return op("Transpose", x, perm=perm)


def silu(x):
    return x * sigmoid(x)
