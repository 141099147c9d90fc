"""A residual sum and the norm behind it: s = x + r, y = norm(s); SKIP-1 to SKIP-10, and what must not become one."""
from case import add_layer_norm, add_rms, case, either, layer_norm, refused, rms
from graph import BF16, F16, F32, MICROSOFT, cast, mean, op, reciprocal, sqrt
from layer_norm import ln, normalised
from rms_norm import H, llama, rms_norm

LN_EPS = 1e-5


def states(g, *names, dtype=None):
    return [g.input(name, ["B", "S", H], dtype) for name in names]


def scale(g, dtype=None):
    return g.weight("w", [H], dtype)


def cases():
    yield from decomposed()
    yield from operators()
    yield from other_sums()
    yield from several()
    yield from near_misses()


def skip(norm, *, first=lambda x, r: x + r):
    """norm(x + r) and the sum, which the next residual reads."""
    def build(g):
        s = first(*states(g, "x", "r"))
        return norm(g, s), s * 0.5

    return build


def rms_of(g, s, **spelling):
    return rms_norm(s, scale(g), **spelling)


def ln_of(g, s, **spelling):
    return ln(s, scale(g), g.weight("b", [H]), **spelling)


def decomposed():
    """SKIP-1."""
    for root in ("Reciprocal", "Div(1,)", "Div"):
        for square in ("Mul", "Pow"):
            yield case(f"SKIP-1 RMS {square}, {root}", skip(lambda g, s: rms_of(g, s, root=root, square=square)),
                       [add_rms()])
            yield case(f"SKIP-1 LN {square}, {root}", skip(lambda g, s: ln_of(g, s, root=root, square=square)),
                       [add_layer_norm()])
    for opset in (11, 13, 17, 20, 23):
        yield case("SKIP-1 RMS", skip(rms_of), [add_rms()], opset=opset)
        yield case("SKIP-1 LN", skip(ln_of), [add_layer_norm()], opset=opset)
    yield case("SKIP-1 RMS r+x", skip(rms_of, first=lambda x, r: r + x), [add_rms()])
    yield case("SKIP-1 RMS, offset", skip(lambda g, s: rms_norm(s, 1 + scale(g))), [add_rms(offset=1)])
    yield case("SKIP-1 LN without bias", skip(lambda g, s: normalised(s) * scale(g)), [add_layer_norm()])
    yield case("SKIP-1 in a function", in_function, [add_rms()])
    for dtype in (F16, BF16):
        # SKIP-5: the sum is rounded to T, then widened.
        yield case("SKIP-5 RMS", skip(lambda g, s: llama(s, scale(g))), [add_rms()], dtype=dtype)
        yield case("SKIP-5 RMS, weight in f32",
                   skip(lambda g, s: cast(rms_norm(cast(s, F32), scale(g, F32)), dtype)), [add_rms(scale_type=F32)],
                   dtype=dtype)
        yield case(
            "SKIP-5 LN",
            skip(lambda g, s: op("LayerNormalization", s, scale(g), g.weight("b", [H]), axis=-1, epsilon=LN_EPS)),
            [add_layer_norm()],
            dtype=dtype)
    yield case("SKIP-5 residual stream in f32", residual_in_f32, [add_rms(scale_type=F32)], dtype=F16)
    yield case("SKIP-5 no-op Cast that the residual reads", noop_cast, [add_rms()])


def in_function(g):
    norm = g.function("pkg.transformers.4", "LlamaRMSNorm", lambda inner, x, w: rms_norm(x, w), [F32, F32])
    x, r = states(g, "x", "r")
    return norm(x + r, scale(g)), (x + r) * 0.5


def residual_in_f32(g):
    x, r = states(g, "x", "r")
    s = cast(x, F32) + cast(r, F32)
    return cast(rms_norm(s, scale(g, F32)), F16), s


def noop_cast(g):
    x, r = states(g, "x", "r")
    s = cast(x + r, F32)
    return rms_norm(s, scale(g)), s * 0.5


def operators():
    def after(op_type, **attributes):
        return skip(lambda g, s: op(op_type, s, scale(g), axis=-1, epsilon=1e-6, **attributes))

    for dtype in (F32, F16, BF16):
        yield case("SKIP-2 RMSNormalization", after("RMSNormalization"), [add_rms()], opset=23, dtype=dtype)
        yield case("SKIP-2 SimplifiedLayerNormalization",
                   after("SimplifiedLayerNormalization"), [add_rms()],
                   dtype=dtype,
                   run="" if dtype == BF16 else None)
        yield case("SKIP-2 LayerNormalization",
                   after("LayerNormalization"), [add_layer_norm(epsilon=1e-6)],
                   dtype=dtype)
    for dtype in (F32, F16):
        yield case("SKIP-3 SkipSimplifiedLayerNormalization",
                   lambda g: contrib(g, "SkipSimplifiedLayerNormalization"), [add_rms()],
                   dtype=dtype)
        yield case("SKIP-3 SkipLayerNormalization",
                   lambda g: contrib(g, "SkipLayerNormalization", g.weight("b", [H])), [add_layer_norm(epsilon=1e-6)],
                   dtype=dtype)
    yield case("SKIP-3 SkipLayerNormalization without beta", lambda g: contrib(g, "SkipLayerNormalization"),
               [add_layer_norm(epsilon=1e-6)])
    yield case("SKIP-3 only output 0", lambda g: contrib(g, "SkipSimplifiedLayerNormalization", outputs=1),
               [add_rms()])
    yield case("SKIP-3 default eps of SkipLayerNormalization",
               lambda g: op("SkipLayerNormalization", *states(g, "x", "r"), scale(g), domain=MICROSOFT),
               [add_layer_norm(epsilon=1e-12)])
    # Its bias is added to the sum: there is no value for x + bias in the graph.
    yield case("SKIP-3 bias", lambda g: contrib(g, "SkipSimplifiedLayerNormalization", g.weight("bias", [H])),
               refused("leaf|bias|SkipSimplified", or_only=[add_rms()]))
    yield case("SKIP-3 SkipLayerNormalization with bias",
               lambda g: contrib(g, "SkipLayerNormalization", g.weight("b", [H]), g.weight("bias", [H])),
               refused("leaf|bias|SkipLayer", or_only=[add_layer_norm(epsilon=1e-6)]))


def contrib(g, op_type, *more, outputs=4):
    results = op(op_type, *states(g, "x", "r"), scale(g), *more, domain=MICROSOFT, outputs=outputs, epsilon=1e-6)
    if outputs == 1:
        return results
    g.nodes[-1].output[1] = g.nodes[-1].output[2] = ""
    return results[0], results[3]


def other_sums():
    """SKIP-4, 6, 7, 8: what else is added."""
    bias = lambda g: g.weight("bias", [H])
    yield case("SKIP-4 (x + bias) + r", lambda g: with_sum(g, lambda x, r: (x + bias(g)) + r), [add_rms()])
    yield case("SKIP-4 r + (x + bias)", lambda g: with_sum(g, lambda x, r: r + (x + bias(g))), [add_rms()])
    # The last Add has the bias for an operand: the norm alone, of a sum of three.
    yield case("SKIP-4 (x + r) + bias", lambda g: with_sum(g, lambda x, r: (x + r) + bias(g)),
               either([rms()], [add_rms()]))
    yield case("SKIP-6 the sum is an output", sum_is_output, [add_rms()])
    yield case("SKIP-6 the sum of LN is an output", lambda g: sum_is_output(g, ln_of), [add_layer_norm()])
    yield case("SKIP-7 x + r*c", lambda g: with_sum(g, lambda x, r: x + r * 0.22), [add_rms()])
    yield case("SKIP-7 r*c is also an output", scaled_is_output, [add_rms()])
    yield case("SKIP-8 (attn + mlp) + x", parallel, [add_rms()])
    yield case("SKIP-8 x + (attn + mlp), LN", lambda g: parallel(g, ln_of), [add_layer_norm()])


def with_sum(g, first):
    s = first(*states(g, "x", "r"))
    return rms_of(g, s), s * 0.5


def sum_is_output(g, norm=rms_of):
    x, r = states(g, "x", "r")
    s = x + r
    return norm(g, s), s


def scaled_is_output(g):
    x, r = states(g, "x", "r")
    scaled = r * 0.22
    s = x + scaled
    return rms_of(g, s), s, scaled


def parallel(g, norm=rms_of):
    attention, mlp, x = states(g, "attention", "mlp", "x")
    s = attention + mlp + x
    return norm(g, s), s


def several():
    """SKIP-9, SKIP-10."""
    yield case("SKIP-9 two norms of one sum", two_norms, [add_rms(), rms()])
    yield case("SKIP-9 two LNs of one sum", lambda g: two_norms(g, lambda s, w: ln(s, w, g.weight("b", [H]))),
               [add_layer_norm(), layer_norm()])
    yield case("SKIP-9 RMS and LN of one sum", rms_and_ln, either([add_rms(), layer_norm()],
                                                                  [rms(), add_layer_norm()]))
    yield case("SKIP-10 embedding first, no residual last", first_and_last, [rms(), add_rms(), add_rms()])


def two_norms(g, norm=rms_norm):
    x, r = states(g, "x", "r")
    s = x + r
    return norm(s, scale(g)), norm(s, g.weight("v", [H])), s


def rms_and_ln(g):
    x, r = states(g, "x", "r")
    s = x + r
    return rms_of(g, s), ln_of(g, s), s


def first_and_last(g):
    ids = g.input("ids", ["B", "S"], 7, feed=[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    hidden = op("Gather", g.weight("table", [10, H]), ids, dtype=F32)
    weights = [g.weight(f"w{i}", [H]) for i in range(3)]
    for w in weights[:2]:
        hidden = hidden + op("Tanh", rms_norm(hidden, w))
    return rms_norm(hidden, weights[2])


def near_misses():
    for shape in ([1, "S", H], ["S", H], [H]):
        yield case(f"SKIP near: {shape} is broadcast", lambda g: broadcast(g, shape), [rms()])
    yield case("SKIP near: [1, S, H] is broadcast, LN", lambda g: broadcast(g, [1, "S", H], ln_of), [layer_norm()])
    yield case("SKIP near: a number is added", lambda g: plus_number(g), [rms()])
    yield case("SKIP near: other symbolic dimensions", lambda g: other_names(g), [rms()])
    yield case("SKIP near: post-norm", post_norm, [rms()])
    yield case("SKIP near: post-norm, then the next pre-norm", post_then_pre, [rms(), add_rms()])
    # Gemma 2's stream: the f16 value behind the Cast is normalised and goes on; its sum is one of f32.
    yield case("SKIP near: sum in f32, Cast to f16, norm of f16", cast_sum, [rms()], dtype=F16)
    yield case("SKIP-5 the residual reads the widened sum", widened_sum, [add_rms()], dtype=F16)
    yield case("SKIP near: norm over axis 1", lambda g: axis_one(g), refused("last axis"))
    yield case("SKIP near: Sub instead of Add", lambda g: with_sum(g, lambda x, r: x - r), [rms()])


def broadcast(g, shape, norm=rms_of):
    s = g.input("x", ["B", "S", H]) + g.input("r", shape)
    return norm(g, s), s


def plus_number(g):
    (x,) = states(g, "x")
    s = x + 0.5
    return rms_of(g, s), s


def other_names(g):
    s = g.input("x", ["B", "S", H]) + g.input("r", ["B", "T", H], feed=g.random.standard_normal([2, 5, H]))
    return rms_of(g, s), s


def post_norm(g):
    x, r = states(g, "x", "r")
    return r + rms_of(g, x)


def post_then_pre(g):
    s = post_norm(g)
    return rms_norm(s, g.weight("v", [H])), s


def cast_sum(g):
    x, r = states(g, "x", "r", dtype=F32)
    s = cast(x + r, F16)
    return llama(s, scale(g)), s


def widened_sum(g):
    x, r = states(g, "x", "r")
    s = cast(x + r, F32)
    return scale(g) * cast(s * reciprocal(sqrt(mean(s * s) + 1e-6)), F16), s * 0.5


def axis_one(g):
    x, r = states(g, "x", "r")
    s = x + r
    return s / sqrt(mean(s * s, [1]) + 1e-6) * scale(g), s
