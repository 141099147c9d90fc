"""The most dangerous look-alikes: each differs from a form above by one thing. Those not in the other files."""
import numpy as np
from onnx import helper

from case import add_rms, case, either, geglu, refused, rms, swiglu
from cos_sin import graph_proto
from geglu import EXACT, TANH
from graph import (BF16, F16, F32, I64, MICROSOFT, cast, mean, op, reciprocal, silu, split, sqrt)
from rms_norm import H, llama, rms_norm, x_and_w
from swiglu import gate_and_up, packed


def cases():
    # 1: one Cast moved.
    for dtype in (F16, BF16):
        yield case("1 cast back in front of the weight", lambda g: llama(*x_and_w(g)), [rms()], dtype=dtype)
        yield case("1 cast back behind the weight", gemma_like, [rms(scale_type=F32)], dtype=dtype)
    # 2: a folded offset is not added again, whatever the names say.
    yield case("2 folded weight named gemma", folded, [rms()])
    # 3, 4, 5, 6, 7: in rms_norm.py, layer_norm.py, swiglu.py, skip_norm.py.
    # 8: the sum is output 3, not output 1.
    yield case("8 the sum of SkipSimplifiedLayerNormalization goes on", two_skips, [add_rms(), add_rms()])
    # 9 to 13: in rope.py and cos_sin.py.
    # 14: exact GELU never becomes the tanh form, nor the other way round.
    yield case("14 erf", lambda g: EXACT["GEG-3 x*(0.5*(erf+1))"](gate_and_up(g)[0]) * g_up(g), [geglu("none")])
    yield case("14 both in one graph", both_gelus, [geglu("none"), geglu("tanh")])
    # 15: which half is activated.
    yield case("15 diffusers: the second half", lambda g: (lambda a, b: a * EXACT["GEG-2 ((x*(erf+1))*0.5)"](b))
               (*split(packed(g))), [geglu("none", packed="up_gate")])
    # 16 gpt-oss, 17 Softmax <= 12, 18 GroupNormalization-18: in swiglu.py, softmax.py, group_norm.py.
    # 19 and 20, logits and masks of losses, are excluded by default and listed.
    yield case("20 loss ops are left alone", loss, refused("excluded: SoftmaxCrossEntropyLoss"))
    # 21: bodies capture values.
    yield case("21 a body of If reads the square", captured, refused("inner_value_used.*If"))
    yield case("21 a body of If reads x", lambda g: captured(g, leaf=True), [rms()])
    yield case("21 a body of If reads the result", lambda g: captured(g, result=True), [rms()])
    yield case("21 a body of If reads silu(gate)", captured_silu, refused("inner_value_used.*If"))
    # 22: an initializer that is a graph input too can be overridden.
    yield case("22 eps can be overridden", lambda g: overridable(g, "eps"), refused("constant|epsilon|graph input"))
    yield case("22 the scale can be overridden", lambda g: overridable(g, "scale"), [rms()])
    # 23: the default of QuickGelu's alpha.
    yield case("23 QuickGelu without alpha", lambda g: quick(g), either([geglu("sigmoid")], [swiglu(alpha=1.702)]))
    yield case("23 QuickGelu, alpha 1", lambda g: quick(g, alpha=1.0), [swiglu()])
    # 24: ReduceMean without axes: over everything, or nothing.
    for axes in ({}, {"noop_with_empty_axes": 1}):
        yield case(f"24 ReduceMean without axes {axes}", lambda g: empty_axes(g, **axes), refused("mean|axis"))
    # Operators of the same name in another domain.
    yield case("a RMSNormalization of another domain", lambda g: foreign(g), refused(), run="")
    yield case("the domain ai.onnx", ai_onnx, [rms()])
    yield case("dead code", dead, refused())
    yield case("a second consumer of a Cast", cast_elsewhere, [rms()], dtype=F16)


def gemma_like(g):
    x, w = x_and_w(g)
    return cast(rms_norm(cast(x, F32), cast(w, F32)), g.dtype)


def folded(g):
    return rms_norm(g.input("x", ["B", "S", H]), g.weight("gemma.layers.0.input_layernorm.weight_plus_one", [H]))


def two_skips(g):
    x, skip, more = (g.input(n, ["B", "S", H]) for n in ("x", "skip", "more"))

    def fused(a, b):
        y = op("SkipSimplifiedLayerNormalization", a, b, g.weight("w", [H]), domain=MICROSOFT, outputs=4, epsilon=1e-6)
        g.nodes[-1].output[1] = g.nodes[-1].output[2] = ""
        return y[0], y[3]

    y, s = fused(x, skip)
    return (*fused(s, more * y), s)


def g_up(g):
    return g.input("second", ["B", "S", 6], feed=g.random.standard_normal((2, 5, 6)))


def both_gelus(g):
    gate, up = gate_and_up(g)
    return EXACT["GEG-3 x*(0.5*(erf+1))"](gate) * up, TANH["GEG-8b HF gelu_new"](gate) * up


def loss(g):
    logits = g.input("logits", [6, 10], feed=g.random.standard_normal((6, 10)))
    labels = g.input("labels", [6], I64, np.array([0, 1, 2, -100, 4, 5]))
    return op("SoftmaxCrossEntropyLoss", logits, labels, ignore_index=-100, reduction="mean"), op("Identity", logits)


def if_reads(g, value):
    """An If whose bodies read `value` of the graph around them."""
    bodies = []
    for factor in (1.0, 2.0):
        body = g.body()
        bodies.append((body, [op("Mul", value, factor, graph=body)]))
    return op("If",
              g.input("condition", [], 9, True),
              dtype=value.dtype,
              **{n: graph_proto(b, r, n) for n, (b, r) in zip(("then_branch", "else_branch"), bodies)})


def captured(g, leaf=False, result=False):
    x, w = x_and_w(g)
    square = x * x
    y = x / sqrt(mean(square) + 1e-6) * w
    return y, if_reads(g, x if leaf else y if result else square)


def captured_silu(g):
    gate, up = gate_and_up(g)
    activated = silu(gate)
    return activated * up, if_reads(g, activated)


def overridable(g, what):
    x, w = x_and_w(g)
    eps = g.constant(1e-6, name="eps")
    target = eps if what == "eps" else w
    shape = [] if what == "eps" else [H]
    g.inputs.append(helper.make_tensor_value_info(target.name, F32, shape))
    return x / sqrt(mean(x * x) + eps) * w


def quick(g, **attributes):
    gate, up = gate_and_up(g)
    return op("QuickGelu", gate, domain=MICROSOFT, **attributes) * up


def empty_axes(g, **attributes):
    x, w = x_and_w(g)
    return x / sqrt(op("ReduceMean", x * x, keepdims=1, **attributes) + 1e-6) * w


def foreign(g):
    return op("RMSNormalization", *x_and_w(g), domain="my.domain", epsilon=1e-6)


def ai_onnx(g):
    x, w = x_and_w(g)
    y = rms_norm(x, w)
    for node in g.nodes:
        node.domain = "ai.onnx"
    return y


def dead(g):
    x, w = x_and_w(g)
    rms_norm(x, w)
    return x * 2


def cast_elsewhere(g):
    x, w = x_and_w(g)
    wide = cast(x, F32)
    return w * cast(wide * reciprocal(sqrt(mean(wide * wide) + 1e-6)), F16), wide
