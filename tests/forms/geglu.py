"""GeGLU: y = gelu(gate) * up, GEG-1 to GEG-13: exact, by tanh, by sigmoid; and what must not become one."""
from case import case, either, geglu, refused, swiglu
from graph import (BF16, F16, F32, LAST, MICROSOFT, cast, cut, op, sigmoid, split, sqrt)
from swiglu import I, computed_halves, gate_and_up, of, packed, sequence

ROOT2, SQRT_HALF, SQRT_2_PI, CUBIC = 1.4142135381698608, 0.7071067811865476, 0.7978845608028654, 0.044715


def erf(x):
    return op("Erf", x)


def tanh(x):
    return op("Tanh", x)


# Exact: x * Phi(x).
EXACT = {
    "GEG-2 ((x*(erf+1))*0.5)": lambda x: (x * (erf(x / ROOT2) + 1)) * 0.5,
    "GEG-3 x*(0.5*(erf+1))": lambda x: x * (0.5 * (erf(x / ROOT2) + 1)),
    "GEG-4 (x*0.5)*(erf+1)": lambda x: (x * 0.5) * (erf(x / ROOT2) + 1),
    "GEG-4 0.5*(x*(1+erf))": lambda x: 0.5 * (x * (1 + erf(x / ROOT2))),
    "GEG-5 erf(x*sqrt(1/2))": lambda x: x * 0.5 * (1 + erf(x * SQRT_HALF)),
    "GEG-5 Sqrt(2) as a node": lambda x: 0.5 * x * (1 + erf(x / sqrt(x.graph.constant(2.0)))),
    "GEG-5 Sum": lambda x: x * (0.5 * op("Sum", erf(x / sqrt(x.graph.constant(2.0))), 1.0)),
    "GEG-2 truncated 1.4142": lambda x: (x * (erf(x / 1.4142) + 1)) * 0.5,
}
# By tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
TANH = {
    "GEG-8a torch_lib":
        lambda x: x * (0.5 * (1 + tanh((x + x**3 * CUBIC) * SQRT_2_PI))),
    "GEG-8a TF":
        lambda x: x * ((1 + tanh(SQRT_2_PI * (x + CUBIC * x**3))) * 0.5),
    "GEG-8b HF gelu_new":
        lambda x: 0.5 * x * (1 + tanh(SQRT_2_PI * (x + CUBIC * x**3))),
    "GEG-8c cube by Mul":
        lambda x: x * (tanh((x + x * (x * x) * CUBIC) * SQRT_2_PI) + 1) * 0.5,
    "GEG-8d factored":
        lambda x: x * 0.5 * (1 + tanh(x * SQRT_2_PI * (1 + CUBIC * x * x))),
    "GEG-8d factored, x*x first":
        lambda x: x * 0.5 * (1 + tanh(x * 0.79788456 * (1 + x * x * CUBIC))),
    "GEG-8e Sum, Sqrt(2/pi) as a node":
        lambda x: x * (0.5 * op("Sum", tanh(op("Sum", x, CUBIC * x**3) * sqrt(x.graph.constant(0.63661977))), 1.0)),
    "GEG-8 truncated 0.7978, 0.0447":
        lambda x: 0.5 * x * (1 + tanh(0.7978 * (x + 0.0447 * x**3))),
}


def cases():
    yield from exact()
    yield from by_tanh()
    yield from by_sigmoid()
    yield from packings()
    yield from near_misses()


def gelu(x, **attributes):
    return op("Gelu", x, **attributes)


def exact():
    wanted = [geglu("none")]
    for name, activation in EXACT.items():
        # A truncated constant moves the result by more than f32's rounding.
        rough = {"tolerance": 1e-4} if "truncated" in name else {}
        expected = refused("constant|1.414", or_only=wanted) if rough else wanted
        yield case(name, of(lambda g, u: activation(g) * u), expected, **rough)
        yield case(f"{name}, u first", of(lambda g, u: u * activation(g)), expected, **rough)
    for opset in (11, 13, 17, 19):
        yield case("GEG-2", of(lambda g, u: EXACT["GEG-2 ((x*(erf+1))*0.5)"](g) * u), wanted, opset=opset)
    for dtype in (F16, BF16):
        yield case("GEG-2 in T", of(lambda g, u: EXACT["GEG-2 ((x*(erf+1))*0.5)"](g) * u), wanted, dtype=dtype)
        yield case("GEG-13 exact activation in f32",
                   of(lambda g, u: cast(EXACT["GEG-2 ((x*(erf+1))*0.5)"](cast(g, F32)), dtype) * u),
                   [geglu("none", stash_type=F32)],
                   dtype=dtype)
        yield case("GEG-1 in T", of(lambda g, u: gelu(g) * u), wanted, opset=20, dtype=dtype)
    for opset in (20, 23):
        yield case("GEG-1 Gelu", of(lambda g, u: gelu(g) * u), wanted, opset=opset)
        yield case("GEG-1 Gelu none", of(lambda g, u: u * gelu(g, approximate="none")), wanted, opset=opset)
    yield case("GEG-6 com.microsoft.Gelu", of(lambda g, u: op("Gelu", g, domain=MICROSOFT) * u), wanted)
    # BiasGelu adds a bias: there is no value for gate + bias in the graph.
    yield case("GEG-6 BiasGelu", of(lambda g, u: op("BiasGelu", g, g.graph.weight("bias", [I]), domain=MICROSOFT) * u),
               refused("BiasGelu|leaf|bias", or_only=wanted))
    yield case("GEG-1 in a function", in_function, wanted)


def in_function(g):
    call = g.function("pkg.onnxscript.torch_lib", "_aten_gelu_approximate_none", lambda inner, x: x *
                      (0.5 * (erf(x / ROOT2) + 1)), [F32])
    gate, up = gate_and_up(g)
    return call(gate) * up


def by_tanh():
    wanted = [geglu("tanh")]
    for name, activation in TANH.items():
        rough = {"tolerance": 1e-3} if "truncated" in name else {}
        expected = refused("constant|0.79|0.04", or_only=wanted) if rough else wanted
        yield case(name, of(lambda g, u: activation(g) * u), expected, **rough)
        if not rough:
            for opset in (11, 13, 17):
                yield case(name, of(lambda g, u: u * activation(g)), wanted, opset=opset)
            for dtype in (F16, BF16):
                yield case(f"{name}, in T", of(lambda g, u: activation(g) * u), wanted, dtype=dtype)
    for dtype in (F16, BF16):
        yield case("GEG-13 activation in f32",
                   of(lambda g, u: cast(TANH["GEG-8b HF gelu_new"](cast(g, F32)), dtype) * u),
                   [geglu("tanh", stash_type=F32)],
                   dtype=dtype)
    for opset in (20, 23):
        yield case("GEG-7 Gelu tanh", of(lambda g, u: gelu(g, approximate="tanh") * u), wanted, opset=opset)
    yield case("GEG-7 Gelu tanh", of(lambda g, u: gelu(g, approximate="tanh") * u), wanted, opset=20, dtype=F16)
    yield case("GEG-8b FastGelu", of(lambda g, u: op("FastGelu", g, domain=MICROSOFT) * u), wanted)
    yield case("GEG-8b FastGelu with bias",
               of(lambda g, u: op("FastGelu", g, g.graph.weight("bias", [I]), domain=MICROSOFT) * u),
               refused("FastGelu|leaf|bias", or_only=wanted))
    yield case("GEG-8b", of(lambda g, u: TANH["GEG-8b HF gelu_new"](g) * u), wanted, constants="node")


def by_sigmoid():
    """GEG-9: x * sigmoid(1.702 x); also SwiGLU with alpha."""
    wanted = either([geglu("sigmoid")], [swiglu(alpha=1.702)])
    yield case("GEG-9 QuickGELU gate", of(lambda g, u: g * sigmoid(g * 1.702) * u), wanted)
    yield case("GEG-9 QuickGELU gate, 1.702 first", of(lambda g, u: u * (sigmoid(1.702 * g) * g)), wanted)
    yield case("GEG-9 QuickGelu", of(lambda g, u: op("QuickGelu", g, domain=MICROSOFT) * u), wanted)
    yield case("GEG-9 QuickGelu alpha 1.702", of(lambda g, u: op("QuickGelu", g, domain=MICROSOFT, alpha=1.702) * u),
               wanted)
    yield case("GEG-9 Swish alpha 1.702", of(lambda g, u: op("Swish", g, alpha=1.702) * u), wanted, opset=24)
    yield case("GEG-9 in f16", of(lambda g, u: g * sigmoid(g * 1.702) * u), wanted, dtype=F16)
    yield case(
        "GEG-12 phi3-small without the infinities", lambda g: phi3_small(packed(g)),
        either([geglu("sigmoid", packed="interleaved", limit=20, up_offset=1)],
               [swiglu(packed="interleaved", alpha=1.702, limit=20, up_offset=1)]))
    # Where(IsInf(x), x, Clip(x)) lets infinities through, which a limit does not: it stays in front.
    yield case(
        "GEG-12 phi3-small", lambda g: phi3_small(packed(g), clipped_but_infinite),
        either([geglu("sigmoid")], [swiglu(alpha=1.702)], [geglu("sigmoid", up_offset=1)],
               [swiglu(alpha=1.702, up_offset=1)]))


def clipped_but_infinite(x, low, high):
    return op("Where", op("IsInf", x), x, op("Clip", x, low, high))


def phi3_small(x, clip=lambda v, low, high: op("Clip", v, low, high)):
    gate, up = clip(cut(x, 0, step=2), None, 20.0), clip(cut(x, 1, step=2), -20.0, 20.0)
    return gate * sigmoid(gate * 1.702) * (up + 1)


def packings():
    """GEG-10 (gate last), GEG-11 (gate first, or two products)."""
    activations = {"none": EXACT["GEG-3 x*(0.5*(erf+1))"], "tanh": TANH["GEG-8b HF gelu_new"]}
    halves = {
        "Split": split, "Slice": lambda x: (cut(x, 0, I), cut(x, I, LAST)), "computed bounds": computed_halves,
        "SplitToSequence": sequence
    }
    for approximate, activation in activations.items():
        for name, parts in halves.items():
            for form, build, half in (("GEG-11", gate_first, "gate_up"), ("GEG-10", gate_last, "up_gate")):
                fused = [geglu(approximate, packed=half)]
                yield case(f"{form} {approximate}, {name}", lambda g: build(packed(g), parts, activation),
                           either(fused, [geglu(approximate)]) if name == "SplitToSequence" else fused)
        yield case(f"GEG-11 {approximate}, two products", lambda g: two_products(g, activation), [geglu(approximate)])
    for approximate in ("none", "tanh"):
        yield case(f"GEG-10 Gelu {approximate}",
                   lambda g: gate_last(packed(g), split, lambda x: gelu(x, approximate=approximate)),
                   [geglu(approximate, packed="up_gate")],
                   opset=20)
        yield case(f"GEG-11 Gelu {approximate}",
                   lambda g: gate_first(packed(g), split, lambda x: gelu(x, approximate=approximate)),
                   [geglu(approximate, packed="gate_up")],
                   opset=20)
    # BiasSplitGelu: the op of ONNX Runtime's diffusion fusions, CUDA only.
    yield case("GEG-10 BiasSplitGelu",
               lambda g: op("BiasSplitGelu", packed(g), g.weight("bias", [2 * I]), domain=MICROSOFT),
               refused(),
               run="",
               already=["BiasSplitGelu"])


def gate_first(x, halves, activation):
    gate, up = halves(x)
    return activation(gate) * up


def gate_last(x, halves, activation):
    up, gate = halves(x)
    return up * activation(gate)


def two_products(g, activation):
    x = g.input("x", ["B", "S", 8], feed=g.random.standard_normal((2, 5, 8)))
    return activation(x @ g.weight("wi_0", [8, I])) * (x @ g.weight("wi_1", [8, I]))


def near_misses():
    near = lambda name, build, *reasons, **more: case(f"GEG near: {name}", of(build), refused(*reasons), **more)
    gelu_erf, gelu_tanh = EXACT["GEG-3 x*(0.5*(erf+1))"], TANH["GEG-8b HF gelu_new"]
    yield near("no gate, exact", lambda g, u: gelu_erf(g))
    yield near("no gate, tanh", lambda g, u: gelu_tanh(g))
    yield near("no gate, MatMul behind", lambda g, u: gelu_tanh(g) @ g.graph.weight("w", [I, 4]))
    yield near("no gate, Gelu", lambda g, u: gelu(g), opset=20)
    yield near("0.6 instead of 0.5", lambda g, u: g * (0.6 * (erf(g / ROOT2) + 1)) * u,
               "constant|0.5|0.6|factor|product")
    yield near("1.1 instead of 1", lambda g, u: g * (0.5 * (erf(g / ROOT2) + 1.1)) * u, "constant|1.1|expected")
    yield near("another scale in Erf", lambda g, u: g * (0.5 * (erf(g / 1.5) + 1)) * u,
               "constant|1.5|0.6|expected|factor")
    # Too little of a GELU is left to speak of a near miss.
    yield case("GEG near: no 1 in Erf", of(lambda g, u: g * (0.5 * erf(g / ROOT2)) * u), [])
    yield near("another cubic factor", lambda g, u: 0.5 * g * (1 + tanh(SQRT_2_PI * (g + 0.05 * g**3))) * u,
               "constant|0.05|0.04|expected|factor")
    yield near("tanh without x", lambda g, u: 0.5 * g * (1 + tanh(SQRT_2_PI * (CUBIC * g**3))) * u,
               "Add|expected|factor")
    yield near("square for the cube", lambda g, u: 0.5 * g * (1 + tanh(SQRT_2_PI * (g + CUBIC * g**2))) * u,
               "Pow|expected|factor|product")
    yield near("another value in tanh", lambda g, u:
               (lambda z: 0.5 * g * (1 + tanh(SQRT_2_PI * (z + CUBIC * z**3))) * u)(g + u), "one place|gate|factor")
    yield case("GEG near: GELU of both", of(lambda g, u: gelu_erf(g) * gelu_erf(u)),
               refused("gate|factor|product", or_only=[geglu("none")]))
    yield near("up is broadcast", lambda g, u: gelu_erf(g) * cut(u, 0, 1), "same_shape")
    yield near("the activation is also an output", lambda g, u: (lambda a: (a * u, a))(gelu_erf(g)),
               "inner_value_used")
    yield near("the Erf is also an output", lambda g, u: (lambda e: (g * (0.5 * (e + 1)) * u, e))(erf(g / ROOT2)),
               "inner_value_used")
    yield near("gate times itself", lambda g, u: gelu_erf(g) * g, "different")
    # mobius calls plain GELU "gegelu": names prove nothing.
    yield case("GEG near: exact GELU is never the tanh form",
               of(lambda g, u: gelu(g) * u), [geglu("none")],
               opset=23,
               dtype=F16)
