"""SwiGLU: y = silu(gate) * up, SWG-1 to SWG-14, and what must not become one."""
import numpy as np

from case import case, either, geglu, refused, rms, swiglu
from graph import (BF16, F16, F32, F64, I64, LAST, MICROSOFT, cast, cut, exp, mean, op, reciprocal, reshape, sigmoid,
                   silu, split, unsqueeze)
from cos_sin import graph_proto
from rms_norm import rms_norm

H, I = 8, 6  # model width, width of the MLP


def gate_and_up(g, dtype=None):
    return g.input("gate", ["B", "S", I], dtype, values(g, I)), g.input("up", ["B", "S", I], dtype, values(g, I))


def values(g, width):
    return g.random.standard_normal((2, 5, width)) * np.array([1, 8, 0]).repeat(4)[:10].reshape(2, 5, 1)


def packed(g):
    return g.input("gate_up", ["B", "S", 2 * I], feed=values(g, 2 * I))


def of(build):
    return lambda g: build(*gate_and_up(g))


def cases():
    yield from separate()
    yield from from_packed()
    yield from producers()
    yield from variants()
    yield from near_misses()


def separate():
    """SWG-1, 2, 3, 4, 5, 6."""
    products = {
        "SWG-1 (g*s)*u": lambda g, s, u: (g * s) * u,
        "SWG-1 u*(g*s)": lambda g, s, u: u * (g * s),
        "SWG-1 (s*g)*u": lambda g, s, u: (s * g) * u,
        "SWG-1 u*(s*g)": lambda g, s, u: u * (s * g),
        "SWG-2 g*(s*u)": lambda g, s, u: g * (s * u),
        "SWG-2 (g*u)*s": lambda g, s, u: (g * u) * s,
        "SWG-2 s*(u*g)": lambda g, s, u: s * (u * g),
    }
    for name, product in products.items():
        for opset in (11, 13, 18, 23) if name == "SWG-1 (g*s)*u" else (18,):
            yield case(name, of(lambda g, u: product(g, sigmoid(g), u)), [swiglu()], opset=opset)
    for dtype in (F16, BF16, F64):
        yield case("SWG-1", of(lambda g, u: silu(g) * u), [swiglu()], dtype=dtype)
    yield case("SWG-1", of(lambda g, u: silu(g) * u), [swiglu()], precision="exact")
    yield case("SWG-2", of(lambda g, u: g * (sigmoid(g) * u)), [swiglu()], precision="reassociated")
    yield case("SWG-2 under --exact", of(lambda g, u: g * (sigmoid(g) * u)), refused("exact"), arguments=["--exact"])
    yield case("SWG-3 Swish", of(lambda g, u: op("Swish", g) * u), [swiglu()], opset=24)
    yield case("SWG-3 Swish alpha 1", of(lambda g, u: u * op("Swish", g, alpha=1.0)), [swiglu()], opset=24)
    yield case("SWG-4 QuickGelu alpha 1", of(lambda g, u: quick_gelu(g, alpha=1.0) * u), [swiglu()])
    yield case("SWG-4 QuickGelu alpha 1", of(lambda g, u: quick_gelu(g, alpha=1.0) * u), [swiglu()], dtype=F16)
    yield case("SWG-5 SwiGLU-28", of(lambda g, u: op("SwiGLU", g, u)), [swiglu()], opset=28, run="reference")
    opened = {
        "1/(1+exp)": lambda g: g * (1 / (1 + exp(-g))), "Reciprocal": lambda g: g * reciprocal(1 + exp(-g)),
        "g/(1+exp)": lambda g: g / (1 + exp(-g)), "g/(exp+1)": lambda g: g / (exp(-g) + 1)
    }
    for name, activation in opened.items():
        yield case(f"SWG-6 {name}", of(lambda g, u: activation(g) * u), [swiglu()])


def quick_gelu(x, **attributes):
    return op("QuickGelu", x, domain=MICROSOFT, **attributes)


def from_packed():
    """SWG-7, SWG-8: halves of one product, gate first or last."""
    halves = {
        "SWG-7 Split": split, "SWG-7 Split by sizes": lambda x: split(x, [I, I]),
        "SWG-7 Split positive axis": lambda x: split(x, axis=2), "SWG-8 Slice": lambda x:
                                                                                (cut(x, 0, I), cut(x, I, LAST)),
        "SWG-8 Slice to 2I": lambda x: (cut(x, 0, I), cut(x, I, 2 * I)),
        "SWG-8 Slice from -I": lambda x: (cut(x, 0, -I), cut(x, -I, LAST)), "SWG-8 computed bounds": computed_halves,
        "SWG-8 SplitToSequence": sequence, "SWG-8 Gather": gathered
    }
    for name, of_packed in halves.items():
        # Sequences and Gathers may stay: gate and up are values of their own.
        free = name in ("SWG-8 SplitToSequence", "SWG-8 Gather")
        for opset in (13, 18):
            yield case(name,
                       lambda g: gate_first(packed(g), of_packed),
                       either([swiglu(packed="gate_up")], [swiglu()]) if free else [swiglu(packed="gate_up")],
                       opset=opset)
        yield case(f"{name}, gate last", lambda g: gate_last(packed(g), of_packed),
                   either([swiglu(packed="up_gate")], [swiglu()]) if free else [swiglu(packed="up_gate")])
    for dtype in (F16, BF16):
        yield case("SWG-7", lambda g: gate_first(packed(g), split), [swiglu(packed="gate_up")], dtype=dtype)
    yield case("SWG-7 opset 11", lambda g: gate_first(packed(g), split), [swiglu(packed="gate_up")], opset=11)
    yield case("SWG-7 SwiGLU u*silu", lambda g: (lambda a, b: b * silu(a))(*split(packed(g))),
               [swiglu(packed="gate_up")])
    # The packed value is read elsewhere too: it stays, and the op reads it.
    yield case("SWG-7 packed value also an output", lambda g: shared_packed(packed(g)), [swiglu(packed="gate_up")])
    yield case("SWG-7 a half is also an output", lambda g: shared_half(packed(g)),
               either([swiglu()], [swiglu(packed="gate_up")]))
    yield case("SWG-7 three parts", three_parts, [swiglu()])


def gate_first(x, halves):
    gate, up = halves(x)
    return silu(gate) * up


def gate_last(x, halves):
    up, gate = halves(x)
    return up * silu(gate)


def computed_halves(x):
    """As TorchScript writes chunk(2): (size + 1) / 2."""
    size = op("Gather", op("Shape", x), x.graph.constant(2, I64))
    step = unsqueeze(op("Div", op("Add", size, x.graph.constant(1, I64)), x.graph.constant(2, I64)), [0])
    end = op("Mul", step, x.graph.constant([2], I64))
    return op("Slice", x, [0], step, [2]), op("Slice", x, step, end, [2])


def sequence(x):
    parts = op("SplitToSequence", x, x.graph.constant(I, I64), axis=-1)
    parts.dtype = x.dtype
    return tuple(op("SequenceAt", parts, x.graph.constant(i, I64)) for i in range(2))


def gathered(x):
    return (op("Gather", x, list(range(I)), axis=-1), op("Gather", x, list(range(I, 2 * I)), axis=-1))


def shared_packed(x):
    return gate_first(x, split), x * 2


def shared_half(x):
    gate, up = split(x)
    return silu(gate) * up, up


def three_parts(g):
    x = g.input("x", ["B", "S", 3 * I], feed=values(g, 3 * I))
    gate, up, other = split(x, parts=3)
    return silu(gate) * up, other


def producers():
    """SWG-9, SWG-10, SWG-13: gate and up may come from anything."""
    x = lambda g: g.input("x", ["B", "S", H])
    w = lambda g, name: g.weight(name, [H, I])
    yield case("SWG-1 MatMul", lambda g: shared_x(x(g), lambda v, n: v @ w(g, n)), [swiglu()])
    yield case("SWG-9 MatMul and Add", lambda g: shared_x(x(g), lambda v, n: v @ w(g, n) + g.weight("b", [I])),
               [swiglu()])
    yield case(
        "SWG-9 Gemm, rank 2", lambda g: shared_x(
            g.input("x", ["S", H]), lambda v, n: op("Gemm", v, g.weight(n, [I, H]), g.weight("b", [I]), transB=1)),
        [swiglu()])
    yield case(
        "SWG-9 Reshape, Gemm, Reshape", lambda g: shared_x(
            x(g), lambda v, n: reshape(op("Gemm", reshape(v, [-1, H]), w(g, n), g.weight("b", [I])), [2, 5, I])),
        [swiglu()])
    yield case(
        "SWG-10 dequantised weights", lambda g: shared_x(
            x(g), lambda v, n: v @ op("DequantizeLinear",
                                      cast(g.constant(np.arange(H * I).reshape(H, I) - 20, I64), 3),
                                      g.constant(0.1),
                                      dtype=F32)), [swiglu()])
    yield case(
        "SWG-10 LoRA",
        lambda g: shared_x(x(g), lambda v, n: v @ w(g, n) +
                           (v @ g.weight("a", [H, 2]) @ g.weight("b", [2, I])) * 0.5), [swiglu()])
    yield case("SWG-10 MatMulNBits", lambda g: shared_x(g.input("x", ["B", "S", 32]), lambda v, n: n_bits(g, v)),
               [swiglu()])
    yield case("SWG-10 quantised between silu and product", quantised_between,
               refused("QuantizeLinear|Dequantize|factor|product"))
    yield case("SWG-13 batched experts",
               lambda g: shared_x(g.input("x", [3, "S", H]), lambda v, n: v @ g.weight(n, [3, H, I])), [swiglu()])
    yield case("SWG-13 three experts", experts, [swiglu()] * 3)
    yield case("SWG-13 in a body of If", in_body, [swiglu()])
    yield case("SWG-14 in a function", in_function, [swiglu()])


def shared_x(x, linear):
    return silu(linear(x, "gate")) * linear(x, "up")


def n_bits(g, x):
    weights = g.constant(g.random.integers(0, 255, (I, 1, 16)), I64)
    return op("MatMulNBits",
              x,
              cast(weights, 2),
              g.constant(np.full(I, 0.1)),
              domain=MICROSOFT,
              K=32,
              N=I,
              bits=4,
              block_size=32)


def quantised_between(g):
    gate, up = gate_and_up(g)
    quantised = op("QuantizeLinear", silu(gate), g.constant(0.1), dtype=2)
    return op("DequantizeLinear", quantised, g.constant(0.1), dtype=F32) * up


def experts(g):
    x = g.input("x", ["B", "S", H])
    outputs = [shared_x(x, lambda v, n: v @ g.weight(n, [H, I])) @ g.weight("down", [I, H]) for _ in range(3)]
    return outputs[0] + outputs[1] * 0.5 + outputs[2] * 0.25


def in_body(g):
    gate, up = gate_and_up(g)
    bodies = []
    for factor in (1.0, None):
        body = g.body()
        if factor:
            a, b = op("Identity", gate, graph=body), op("Identity", up, graph=body)
            bodies.append((body, [silu(a) * b]))
        else:
            bodies.append((body, [op("Identity", gate, graph=body)]))
    hit = op("Greater", op("ReduceMax", gate, keepdims=0), g.constant(-100.0))
    return op("If",
              hit,
              dtype=F32,
              **{name: graph_proto(b, r, name) for name, (b, r) in zip(("then_branch", "else_branch"), bodies)})


def in_function(g):
    swish = g.function("pkg.onnxscript.torch_lib", "aten_silu", lambda inner, x: silu(x), [F32])
    gate, up = gate_and_up(g)
    return swish(gate) * up


def variants():
    """SWG-11, 12, 14."""
    for value in (0.5, 1.25):
        yield case(f"SWG-11 gate times {value}", of(lambda g, u: silu(g * value) * u), [swiglu(gate_multiplier=value)])
        yield case(f"SWG-11 {value} times gate in f16",
                   of(lambda g, u: silu(value * g) * u),
                   either([swiglu()], [swiglu(gate_multiplier=value)]),
                   dtype=F16)
        yield case(f"SWG-11 a product behind, {value}", of(lambda g, u: silu(g) * u * value), [swiglu()])
    for alpha in (1.702, 0.5, 2.0):
        yield case(f"SWG-1 alpha {alpha}", of(lambda g, u: g * sigmoid(g * alpha) * u),
                   either([swiglu(alpha=alpha)], [geglu("sigmoid")]) if alpha == 1.702 else [swiglu(alpha=alpha)])
    for dtype in (F32, F16, BF16):
        for clip in ("Clip", "Min, Max"):
            yield case(f"SWG-12 gpt-oss, {clip}",
                       lambda g: gpt_oss(g, clip), [swiglu(packed="interleaved", alpha=1.702, limit=7, up_offset=1)],
                       dtype=dtype)
    yield case("SWG-12 alpha 1.703125 of genai", lambda g: gpt_oss(g, alpha=1.703125),
               [swiglu(packed="interleaved", alpha=1.703125, limit=7, up_offset=1)])
    yield case("SWG-12 bf16 alpha",
               lambda g: gpt_oss(g, alpha=1.703125),
               [swiglu(packed="interleaved", alpha=1.703125, limit=7, up_offset=1)],
               dtype=BF16)
    yield case("SWG-12 halves, not interleaved", lambda g: clamped(*split(packed(g))),
               [swiglu(packed="gate_up", alpha=1.702, limit=7, up_offset=1)])
    yield case("SWG-12 separate", of(clamped), [swiglu(alpha=1.702, limit=7, up_offset=1)])
    yield case("SWG-12 limit 10", of(lambda g, u: clamped(g, u, limit=10.0)),
               [swiglu(alpha=1.702, limit=10, up_offset=1)])
    yield case("SWG-12 gate (u+1) first",
               of(lambda g, u: (op("Clip", u, -7.0, 7.0) + 1) * quick(op("Clip", g, None, 7.0))),
               [swiglu(alpha=1.702, limit=7, up_offset=1)])
    yield case("SWG-12 no limit, u+1", of(lambda g, u: silu(g) * (u + 1)), either([swiglu(up_offset=1)], [swiglu()]))
    yield case("SWG-1 clamped silu", of(lambda g, u: silu(op("Clip", g, None, 7.0)) * op("Clip", u, -7.0, 7.0)),
               either([swiglu(limit=7)], [swiglu()]))
    for dtype in (F16, BF16):
        yield case("SWG-14 silu in f32, product in T",
                   of(lambda g, u: cast(silu(cast(g, F32)), dtype) * u), [swiglu(stash_type=F32)],
                   dtype=dtype)
        yield case("SWG-14 all in f32",
                   of(lambda g, u: cast(silu(cast(g, F32)) * cast(u, F32), dtype)),
                   refused("Cast|dtype|stash", or_only=[swiglu(stash_type=F32)]),
                   dtype=dtype)
        yield case("SWG-14 sigmoid in f32",
                   of(lambda g, u: g * cast(sigmoid(cast(g, F32)), dtype) * u),
                   refused("Cast|gate|factor|Sigmoid", or_only=[swiglu()]),
                   dtype=dtype)


def quick(x, alpha=1.702):
    return x * sigmoid(x * alpha)


def clamped(gate, up, alpha=1.702, limit=7.0):
    return quick(op("Clip", gate, None, limit), alpha) * (op("Clip", up, -limit, limit) + 1)


def gpt_oss(g, clip="Clip", alpha=1.702):
    x = packed(g)
    gate, up = cut(x, 0, step=2), cut(x, 1, step=2)
    if clip == "Clip":
        return clamped(gate, up, alpha)
    return quick(op("Min", gate, 7.0), alpha) * (op("Max", op("Min", up, 7.0), -7.0) + 1)


def near_misses():
    near = lambda name, build, *reasons, **more: case(f"SWG near: {name}", of(build), refused(*reasons, **more))
    yield near("SiLU without a gate", lambda g, u: silu(g))
    yield near("GLU, the sigmoid of the other", lambda g, u: g * sigmoid(u), "gate|product|factor")
    yield case("SWG near: SE block",
               lambda g: g.input("x", ["B", H, 4, 4]) * sigmoid(g.input("pooled", ["B", H, 1, 1])),
               refused("gate|product|factor|same_shape"))
    yield near("HardSigmoid", lambda g, u: g * op("HardSigmoid", g) * u)
    yield near("HardSwish", lambda g, u: op("HardSwish", g) * u)
    yield near("Mish", lambda g, u: op("Mish", g) * u)
    yield near("ReGLU", lambda g, u: op("Relu", g) * u)
    yield near("Tanh gate", lambda g, u: op("Tanh", g) * u)
    yield near("three factors", lambda g, u: silu(g) * u * op("Tanh", u), or_only=[swiglu()])
    yield near("sigmoid of another value", lambda g, u: g * sigmoid(g + u) * u, "gate|product|factor")
    yield near("silu squared, p*p*sigmoid(p)", lambda g, u: g * silu(g), "different")
    yield near("up is broadcast", lambda g, u: silu(g) * mean(u), "same_shape")
    yield near("the activated half is also an output", lambda g, u: (lambda a: (a * u, a))(silu(g)),
               "inner_value_used")
    yield near("the sigmoid is also an output", lambda g, u: (lambda s: (g * s * u, s))(sigmoid(g)),
               "inner_value_used")
    yield case("SWG near: SiLU of both", of(lambda g, u: silu(g) * silu(u)), [swiglu()])
    yield case("SWG near: unequal split", unequal_split, refused("same_shape|part|shape"), run="")
    yield case("SWG near: overlapping halves", lambda g: overlapping(packed(g)), [swiglu()])
    yield case("SWG near: halves of another axis",
               lambda g: gate_first(g.input("x", ["B", 10, I]), lambda x: split(x, axis=1)), [swiglu()])
    yield case("SWG near: gate of a norm",
               lambda g: silu(g.input("z", ["B", "S", H])) * rms_norm(g.input("x", ["B", "S", H]), g.weight("w", [H])),
               [rms(), swiglu()])
    # Other clamps than the op's stay in front, as what computes gate and up.
    clamps = {
        "clamp of the gate alone":
            lambda g, u: quick(op("Clip", g, None, 7.0)) * (u + 1), "limits differ":
                lambda g, u: quick(op("Clip", g, None, 7.0)) * (op("Clip", u, -6.0, 6.0) + 1),
        "the gate is clamped on both sides":
            lambda g, u: quick(op("Clip", g, -7.0, 7.0)) * (op("Clip", u, -7.0, 7.0) + 1)
    }
    for name, build in clamps.items():
        yield case(
            f"SWG near: {name}", of(build),
            either([swiglu(alpha=1.702)], [swiglu(alpha=1.702, up_offset=1)], [geglu("sigmoid")],
                   [geglu("sigmoid", up_offset=1)]))
    yield near("up - 1", lambda g, u: silu(g) * (u - 1), or_only=[swiglu(up_offset=-1)], fused=[swiglu()])


def unequal_split(g):
    gate, up = split(packed(g), [I + 1, I - 1])
    return silu(gate) * cut(up, 0, 1)


def overlapping(x):
    return silu(cut(x, 0, I)) * cut(x, 1, I + 1)
