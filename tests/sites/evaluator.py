"""Evaluates nodes of an ONNX graph in numpy, in f64, with or without the roundings that the graph declares.

    graph = Graph(onnx.load("model.onnx"))
    values = graph.evaluate(["node_mul", "node_add"], {"x": x}, rounded=True)    # {value name: array}
    values = graph.evaluate([...], {"x": x}, rounded=True, nudge=1e-7)           # 1e-7 of it added before each
                                                                                 # Cast from f32 to a half type

Floats are f64 arrays, whatever their declared dtype. With `rounded` every result is rounded once, to nearest even, to
the dtype that shape inference gives it: the graph as written. (Sums, products, quotients and roots of f32 operands
in f64 and then f32 are what one rounding gives; so are those of narrower types.) Without it no value is rounded: the
function that the graph stands for. What the named nodes read and `values` lacks is computed from its producers.
A graph input or an unknown op is an error.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# dtype: (bits of the significand with the leading one, least exponent of a normal number, largest number)
FORMATS = {
    TensorProto.FLOAT16: (11, -14, 65504.0),
    TensorProto.BFLOAT16: (8, -126, float.fromhex("0x1.fep127")),
    TensorProto.FLOAT: (24, -126, float.fromhex("0x1.fffffep127")),
    TensorProto.DOUBLE: (53, -1022, np.finfo(np.float64).max),
}
HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def ulp(values, dtype):
    """Distance of the numbers of `dtype` at |value|; below the normal numbers that of the smallest of them."""
    bits, least, _ = FORMATS[dtype]
    exponent = np.frexp(values)[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, least) - (bits - 1))


def round_to(values, dtype):
    """f64 to the nearest number of `dtype`, ties to even, as f64; beyond the largest number infinity."""
    if dtype == TensorProto.DOUBLE:
        return values
    if dtype == TensorProto.FLOAT:
        with np.errstate(over="ignore"):
            return values.astype(np.float32).astype(np.float64)
    step = ulp(np.where(np.isfinite(values), values, 0.0), dtype)
    rounded = np.rint(values / step) * step  # both exact: step is a power of two, and no quotient is subnormal
    return np.where(np.abs(rounded) > FORMATS[dtype][2], np.copysign(np.inf, values), rounded)


def to_f64(array):
    """Arrays of any float dtype as f64, others as they are."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def _div(a, b):
    if a.dtype.kind == "f":
        return a / b
    quotient = np.abs(a) // np.abs(b)  # integers: towards zero
    return quotient * np.sign(a) * np.sign(b)


def _slice(x, starts, ends, axes=None, steps=None):
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step <= 0:
            raise NotImplementedError("Slice with a step that is not positive")
        index[axis] = slice(int(start), int(end), int(step))
    return x[tuple(index)]


def _split(x, sizes=None, *, axis=0, num_outputs=None, outputs):
    if sizes is None:
        part = -(-x.shape[axis] // (num_outputs or outputs))
        bounds = [part * i for i in range(1, outputs)]
    else:
        bounds = np.cumsum(sizes)[:-1]
    return np.split(x, bounds, axis)


def _reduce_mean(x, axes_input=None, *, axes=None, keepdims=1, noop_with_empty_axes=0):
    axes = axes if axes_input is None else axes_input
    if axes is None or len(axes) == 0:
        raise NotImplementedError("ReduceMean without axes")
    return np.mean(x, axis=tuple(int(a) for a in axes), keepdims=bool(keepdims))


def _cast(x, *, to):
    if to in FORMATS:
        return x.astype(np.float64)
    if to in (TensorProto.INT64, TensorProto.INT32):
        return x.astype(np.int64)
    raise NotImplementedError(f"Cast to {TensorProto.DataType.Name(to)}")


def _unsqueeze(x, axes):
    return np.expand_dims(x, tuple(int(a) for a in axes))


OPS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _div,
    "Pow": lambda a, b: a**b,
    "Neg": lambda a: -a,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda a: 1.0 / a,
    "Sigmoid": _sigmoid,
    "ReduceMean": _reduce_mean,
    "Cast": _cast,
    "Identity": lambda a: a,
    "Slice": _slice,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Size": lambda x: np.array(x.size, np.int64),
    "Gather": lambda x, indices, *, axis=0: np.take(x, indices, axis),
    "Unsqueeze": _unsqueeze,
    "Range": lambda start, limit, delta: np.arange(start, limit, delta),
}


def _constant(node):
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    return numpy_helper.to_array(value) if attribute.name == "value" else np.array(value)


def _function_of(node, opset, types):
    """ONNX's own definition of a standard op as nodes, its inner names prefixed with the node's output."""
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    bytes_ = schema.get_context_dependent_function_with_opset_version(
        max(v for v in schema.context_dependent_function_opset_versions if v <= opset), node.SerializeToString(),
        [helper.make_tensor_type_proto(types[i], None).SerializeToString() for i in node.input])
    function = onnx.FunctionProto.FromString(bytes_)
    names = dict(zip([*function.input, *function.output], [*node.input, *node.output], strict=True))
    nodes = []
    for inner in function.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = f"{node.name}/{len(nodes)}"
        for values in (copy.input, copy.output):
            values[:] = [names.get(v, f"{node.output[0]}/{v}") for v in values]
        nodes.append(copy)
    return nodes


class Graph:
    def __init__(self, model):
        self.model = model
        self.values_of_model = {v for n in model.graph.node for v in n.output}
        self.values_of_model |= {v.name for v in [*model.graph.input, *model.graph.initializer]}
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        self.types, self.shapes = self._infer(model)
        self.expanded = {}  # node name: its nodes
        nodes = []
        for node in model.graph.node:
            if not node.name or node.name in self.expanded:
                raise ValueError(f"node name {node.name!r} is empty or stands twice")
            inner = [node]
            if node.op_type == "RMSNormalization" and node.domain == "":
                inner = _function_of(node, self.opset, self.types)
            self.expanded[node.name] = inner
            nodes += inner
        flat = onnx.ModelProto()
        flat.CopyFrom(model)
        del flat.graph.node[:]
        flat.graph.node.extend(nodes)
        self.types, _ = self._infer(flat)
        self.order = {id(n): i for i, n in enumerate(nodes)}
        self.producer = {v: n for n in nodes for v in n.output if v}
        self.initializers = {i.name: i for i in model.graph.initializer}

    @staticmethod
    def _infer(model):
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        types, shapes = {}, {}
        for value in [*graph.input, *graph.value_info, *graph.output]:
            tensor = value.type.tensor_type
            types[value.name] = tensor.elem_type
            shapes[value.name] = [d.dim_value for d in tensor.shape.dim]  # 0: unknown
        types |= {i.name: i.data_type for i in graph.initializer}
        return types, shapes

    def nodes(self, names):
        """The nodes of these names in the order of the graph, functions replaced by their bodies."""
        return sorted((n for name in names for n in self.expanded[name]), key=lambda n: self.order[id(n)])

    def initializer(self, name):
        return to_f64(numpy_helper.to_array(self.initializers[name])) if name in self.initializers else None

    def evaluate(self, names, values, rounded, nudge=0.0):
        values, self.nudge = dict(values), nudge
        for name, array in values.items():
            if array.dtype.kind == "f" and not np.array_equal(array, round_to(array, self.types[name])):
                raise ValueError(f"{name} holds numbers that its dtype has not")
        for node in self.nodes(names):
            self._run(node, values, rounded)
        return values

    def _value(self, name, values, rounded):
        if not name:
            return None
        if name not in values:
            array = self.initializer(name)
            if array is not None:
                values[name] = array
            elif name in self.producer:
                self._run(self.producer[name], values, rounded)
            else:
                raise LookupError(f"the site depends on {name}")
        return values[name]

    def _run(self, node, values, rounded):
        if node.domain not in ("", "ai.onnx"):
            raise NotImplementedError(f"{node.domain}.{node.op_type}")
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [self._value(i, values, rounded) for i in node.input]
        if node.op_type == "Constant":
            outputs = [to_f64(_constant(node))]
        elif node.op_type == "Split":
            outputs = _split(*inputs, **attributes, outputs=len(node.output))
        elif node.op_type in OPS:
            if node.op_type == "Cast" and self.types[node.input[0]] == TensorProto.FLOAT and attributes["to"] in HALF:
                inputs = [inputs[0] * (1.0 + self.nudge)]
            with np.errstate(all="ignore"):  # overflow gives infinities, as in the graph
                outputs = [OPS[node.op_type](*inputs, **attributes)]
        else:
            raise NotImplementedError(node.op_type)
        for name, array in zip(node.output, outputs, strict=True):
            dtype = self.types[name]
            if (array.dtype.kind == "f") != (dtype in FORMATS):
                raise TypeError(f"{node.op_type} gives {array.dtype} for {name}, declared as {dtype}")
            values[name] = round_to(array, dtype) if rounded and dtype in FORMATS else array
