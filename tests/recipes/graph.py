"""Small graphs, node by node, and the subgraphs that exporters write.

    g = Graph(opset=17)
    x = g.input("x", [2, 4, 8])
    rms6(g, x, g.const("w", W))          # values sq, m, me, r, n, y
    g.output("y", [2, 4, 8])
    model = g.model()

A form names its values as its comment says, `prefix` in front, and returns the name of the last one. `swap` is a set
of such names: the two operands of the commutative operator that gives the value change places.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F16, F32, F64, I64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
NUMPY = {F16: np.float16, F32: np.float32, F64: np.float64, I64: np.int64}
EPS = 1e-5
W = np.linspace(0.5, 1.5, 8)
B = np.linspace(-1, 1, 8)


class Graph:
    def __init__(self, opset=17, dtype=F32):
        self.opset, self.dtype = opset, dtype
        self.nodes, self.inputs, self.outputs, self.initializers, self.infos = [], [], [], {}, []
        self.imports = {"": opset}
        self.functions = []

    def input(self, name, shape, dtype=None):
        self.inputs.append(helper.make_tensor_value_info(name, dtype or self.dtype, shape))
        return name

    def output(self, name, shape, dtype=None):
        self.outputs.append(helper.make_tensor_value_info(name, dtype or self.dtype, shape))
        return name

    def info(self, name, shape, dtype=None):
        self.infos.append(helper.make_tensor_value_info(name, dtype or self.dtype, shape))

    def const(self, name, value, dtype=None):
        """An initializer; the one of the same name if there is one."""
        if name not in self.initializers:
            array = np.asarray(value, NUMPY[dtype or self.dtype])
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def ints(self, name, value):
        return self.const(name, value, I64)

    def op(self, op_type, *inputs, out, domain="", **attributes):
        """A node; `out` is the name of its output, or a list of names."""
        outputs = [out] if isinstance(out, str) else out
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name="node_" + outputs[0], domain=domain,
                                           **attributes))
        return out

    def pair(self, op_type, a, b, out, swap=()):
        return self.op(op_type, *((b, a) if out in swap else (a, b)), out=out)

    def mean(self, x, out, axes=(-1,), keepdims=1):
        if self.opset < 18:
            return self.op("ReduceMean", x, out=out, axes=list(axes), keepdims=keepdims)
        name = self.ints("axes" + "_".join(str(a) for a in axes), list(axes))
        return self.op("ReduceMean", x, name, out=out, keepdims=keepdims)

    def slice(self, x, start, end, out, axis=-1):
        bounds = [self.ints(f"int{v}", [v]) for v in (start, end, axis)]
        return self.op("Slice", x, *bounds, out=out)

    def cast(self, x, to, out):
        return self.op("Cast", x, out=out, to=to)

    def graph(self, name="graph"):
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.initializers.values()),
                                 value_info=self.infos)

    def model(self):
        """The model; the checker has seen it."""
        model = helper.make_model(self.graph(), functions=self.functions, ir_version=8 if self.opset < 21 else 11,
                                  opset_imports=[helper.make_opsetid(d, v) for d, v in self.imports.items()])
        onnx.checker.check_model(model, full_check=True)
        return model


def eps_of(g, eps=EPS):
    return g.const(f"eps{eps:g}", eps)


def rms6(g, x, w, prefix="", eps=EPS, *, square="pow", root="div", swap=(), axes=(-1,), keepdims=1, dtype=None):
    """sq = x^2, m = mean(sq), me = m + eps, r = Sqrt(me), n = x / r, y = n * w.

    square: pow, mul. root: div, reciprocal, one_over (1 / r), pow_minus_half (of me). eps: a number or a value's name.
    """
    p, swap = prefix, {prefix + s for s in swap}
    dtype = dtype or g.dtype
    tag = "" if dtype == g.dtype else f"_{dtype}"
    if not isinstance(eps, str):
        eps = g.const(f"eps{eps:g}{tag}", eps, dtype)
    if square == "pow":
        g.op("Pow", x, g.const("two" + tag, 2, dtype), out=p + "sq")
    else:
        g.op("Mul", x, x, out=p + "sq")
    g.mean(p + "sq", p + "m", axes, keepdims)
    g.pair("Add", p + "m", eps, p + "me", swap)
    if root == "pow_minus_half":
        g.op("Pow", p + "me", g.const("minus_half" + tag, -0.5, dtype), out=p + "r")
        g.op("Mul", x, p + "r", out=p + "n")
    else:
        g.op("Sqrt", p + "me", out=p + "r")
        if root == "div":
            g.op("Div", x, p + "r", out=p + "n")
        else:
            if root == "reciprocal":
                g.op("Reciprocal", p + "r", out=p + "i")
            else:
                g.op("Div", g.const("one" + tag, 1, dtype), p + "r", out=p + "i")
            g.op("Mul", x, p + "i", out=p + "n")
    return g.pair("Mul", p + "n", w, p + "y", swap)


def ln9(g, x, w, b, prefix="", eps=EPS, *, swap=(), axes=(-1,), keepdims=1, clamp=None, dtype=None):
    """mu = mean(x), d = x - mu, sq = d^2, v = mean(sq), ve = v + eps, sd = Sqrt(ve), n = d / sd, s = n * w, y = s + b.

    Without b it ends with s, without w too with n. clamp(v) gives the value that takes the place of v.
    """
    p, swap = prefix, {prefix + s for s in swap}
    dtype = dtype or g.dtype
    tag = "" if dtype == g.dtype else f"_{dtype}"
    if not isinstance(eps, str):
        eps = g.const(f"eps{eps:g}{tag}", eps, dtype)
    g.mean(x, p + "mu", axes, keepdims)
    g.op("Sub", x, p + "mu", out=p + "d")
    g.op("Pow", p + "d", g.const("two" + tag, 2, dtype), out=p + "sq")
    g.mean(p + "sq", p + "v", axes, keepdims)
    g.pair("Add", clamp(p + "v") if clamp else p + "v", eps, p + "ve", swap)
    g.op("Sqrt", p + "ve", out=p + "sd")
    g.op("Div", p + "d", p + "sd", out=p + "n")
    if w is None:
        return p + "n"
    g.pair("Mul", p + "n", w, p + "s", swap)
    return g.pair("Add", p + "s", b, p + "y", swap) if b is not None else p + "s"


def silu2(g, gate, prefix="", swap=()):
    """s = Sigmoid(gate), t = gate * s."""
    p = prefix
    g.op("Sigmoid", gate, out=p + "s")
    return g.pair("Mul", gate, p + "s", p + "t", {p + s for s in swap})


def swiglu3(g, gate, up, prefix="", swap=()):
    """silu2, then y = t * up."""
    silu2(g, gate, prefix, swap)
    return g.pair("Mul", prefix + "t", up, prefix + "y", {prefix + s for s in swap})


def gelu5(g, x, prefix="", *, half="last", divide=True):
    """t = x / sqrt(2), e = Erf(t), p = e + 1, q = x * p, a = q * 0.5; with half="first" q = (0.5 * x) * p."""
    p = prefix
    if divide:
        g.op("Div", x, g.const("sqrt2", math.sqrt(2)), out=p + "t")
    else:
        g.op("Mul", x, g.const("rsqrt2", math.sqrt(0.5)), out=p + "t")
    g.op("Erf", p + "t", out=p + "e")
    g.op("Add", p + "e", g.const("one", 1), out=p + "p")
    return gelu_tail(g, x, p, half)


def gelu_tanh(g, x, prefix="", *, half="last", cube="pow"):
    """The twin with Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)) instead of Erf."""
    p = prefix
    if cube == "pow":
        g.op("Pow", x, g.const("three", 3), out=p + "x3")
    else:
        g.op("Mul", x, x, out=p + "x2")
        g.op("Mul", p + "x2", x, out=p + "x3")
    g.op("Mul", p + "x3", g.const("c3", 0.044715), out=p + "c")
    g.op("Add", x, p + "c", out=p + "i")
    g.op("Mul", p + "i", g.const("c1", math.sqrt(2 / math.pi)), out=p + "j")
    g.op("Tanh", p + "j", out=p + "e")
    g.op("Add", p + "e", g.const("one", 1), out=p + "p")
    return gelu_tail(g, x, p, half)


def gelu_tail(g, x, p, half):
    if half == "last":
        g.op("Mul", x, p + "p", out=p + "q")
        return g.op("Mul", p + "q", g.const("half", 0.5), out=p + "a")
    g.op("Mul", x, g.const("half", 0.5), out=p + "h")
    return g.op("Mul", p + "h", p + "p", out=p + "a")


def rope_half(g, q, cos, sin, prefix="", *, width=16, bounds=None, swap=()):
    """x1 = q[:half], x2 = q[half:], neg = -x2, rot = Concat(neg, x1), straight = q * cos, crossed = rot * sin,
    y = straight + crossed.

    bounds(start, end, x, out): writes the two slices; default: constants.
    """
    p, half, swap = prefix, width // 2, {prefix + s for s in swap}
    cut = bounds or (lambda start, end, out: g.slice(q, start, end, out))
    cut(0, half, p + "x1")
    cut(half, np.iinfo(np.int64).max, p + "x2")
    g.op("Neg", p + "x2", out=p + "neg")
    g.op("Concat", p + "neg", p + "x1", out=p + "rot", axis=-1)
    g.pair("Mul", q, cos, p + "straight", swap)
    g.pair("Mul", p + "rot", sin, p + "crossed", swap)
    return g.pair("Add", p + "straight", p + "crossed", p + "y", swap)


def tables(g, angles, prefix=""):
    """cos and sin of angles [..., S, D/2], both halves alike, as exporters make them."""
    g.op("Concat", angles, angles, out=prefix + "emb", axis=-1)
    return g.op("Cos", prefix + "emb", out=prefix + "cos"), g.op("Sin", prefix + "emb", out=prefix + "sin")
