"""Gemma's RMSNorm: y = x / rms(x) * (1 + w), GEM-1 to GEM-6: the 1 stands in the graph, or is folded into w (GEM-3)."""
from case import add_rms, case, refused, rms
from graph import BF16, F16, F32, cast, mean, op, reciprocal, sqrt
from rms_norm import H, ORDERS, ROOTS, normalised

HALF = (F16, BF16)


def x_and_w(g, dtype=None):
    return g.input("x", ["B", "S", H]), g.weight("w", [H], dtype)


def cases():
    yield from offsets()
    yield from operators()
    yield from near_misses()


def offsets():
    one_plus = {"w+1": lambda w: w + 1, "1+w": lambda w: 1 + w}
    for root in ROOTS:
        for order, product in ORDERS.items():
            for name, offset in one_plus.items():
                yield case(f"GEM-2 {root}, {order}, {name}",
                           lambda g: gemma_f32(g, lambda n, w: product(n, offset(w)), root), [rms(offset=1)])
    for dtype in HALF:
        for name, offset in one_plus.items():
            yield case(f"GEM-1 {name} of Cast(w)",
                       lambda g: gemma(g, lambda w: offset(cast(w, F32))), [rms(offset=1, scale_type=F32)],
                       dtype=dtype)
            yield case(f"GEM-1 {name}, w is f32",
                       lambda g: gemma(g, offset, F32), [rms(offset=1, scale_type=F32)],
                       dtype=dtype)
        # The sum rounded to the half type, then widened: not the op's 1 + w in f32, so the sum is the scale.
        yield case("GEM-1 Cast(1 + w)",
                   lambda g: gemma(g, lambda w: cast(1 + w, F32)), [rms(scale_type=F32)],
                   dtype=dtype)
        # 1 + w behind the Cast: the llama order with an offset.
        yield case("GEM-1 offset behind the Cast", lambda g: llama_offset(g), [rms(offset=1)], dtype=dtype)
        yield case("GEM-3 folded, f32", lambda g: gemma(g, lambda w: w, F32), [rms(scale_type=F32)], dtype=dtype)
    yield case("GEM-3 folded", lambda g: gemma_f32(g, lambda n, w: n * w), [rms()])
    yield case("GEM-2 opset 13", lambda g: gemma_f32(g, lambda n, w: n * (1 + w)), [rms(offset=1)], opset=13)
    yield case("GEM-2 opset 11", lambda g: gemma_f32(g, lambda n, w: n * (1 + w)), [rms(offset=1)], opset=11)
    yield case("GEM-2", lambda g: gemma_f32(g, lambda n, w: n * (1 + w)), [rms(offset=1)], constants="node")
    yield case("GEM-2 embedding scale in front", embedded, [rms(offset=1)])
    yield case("GEM-6 n*w + n", lambda g: gemma_f32(g, lambda n, w: n * w + n), [rms(offset=1)])
    yield case("GEM-6 n + w*n", lambda g: gemma_f32(g, lambda n, w: n + w * n), [rms(offset=1)])
    for value in (2, 0.5, -1):
        yield case(f"GEM offset {value}", lambda g: gemma_f32(g, lambda n, w: n * (w + value)), [rms(offset=value)])


def gemma_f32(g, product, root="Reciprocal"):
    x, w = x_and_w(g)
    return product(normalised(x, 1e-6, "Pow", "ReduceMean", root), w)


def gemma(g, scale, weight_dtype=None):
    x, w = x_and_w(g, weight_dtype)
    return cast(normalised(cast(x, F32)) * scale(w), g.dtype)


def llama_offset(g):
    x, w = x_and_w(g)
    return cast(normalised(cast(x, F32)), g.dtype) * (1 + w)


def embedded(g):
    ids = g.input("ids", ["B", "S"], 7, feed=[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    hidden = op("Gather", g.weight("table", [10, H]), ids, dtype=g.dtype) * 2.828427
    return normalised(hidden) * (1 + g.weight("w", [H]))


def operators():
    yield case("GEM-4 RMSNormalization", lambda g: op_offset(g, "RMSNormalization"), [rms(offset=1)], opset=23)
    yield case("GEM-4 SimplifiedLayerNormalization", lambda g: op_offset(g, "SimplifiedLayerNormalization"),
               [rms(offset=1)])
    # The op adds its offset in scale_type, which is f16 here: the same rounding as the graph's Add.
    yield case("GEM-4 in f16", lambda g: op_offset(g, "SimplifiedLayerNormalization"), [rms(offset=1)], dtype=F16)
    yield case("GEM-5 Casts around SimplifiedLayerNormalization",
               lambda g: cast(simplified(cast(g.input("x", ["B", "S", H]), F32), g.weight("w", [H], F32)), F16),
               [rms(scale_type=F32)],
               dtype=F16)
    yield case("GEM-5 residual stream in f32",
               residual_in_f32, [add_rms(scale_type=F32), rms(scale_type=F32)],
               dtype=F16)


def simplified(x, w):
    return op("SimplifiedLayerNormalization", x, w, axis=-1, epsilon=1e-6, stash_type=1)


def op_offset(g, op_type):
    x, w = x_and_w(g)
    return op(op_type, x, w + 1, axis=-1, epsilon=1e-6, stash_type=1)


def residual_in_f32(g):
    """The first norm, and the next one with the f32 sum at output 3, as onnxruntime-genai writes gemma2."""
    wide = cast(g.input("x", ["B", "S", H]), F32)
    first = cast(simplified(wide, g.weight("w1", [H], F32)), F16)
    skip = cast(first * 0.5, F32)
    y, _, _, total = op("SkipSimplifiedLayerNormalization",
                        wide,
                        skip,
                        g.weight("w2", [H], F32),
                        domain="com.microsoft",
                        outputs=4,
                        epsilon=1e-6)
    return cast(y, F16), total


def near_misses():
    yield case("GEM near: n*w + another tensor",
               lambda g: gemma_f32(g, lambda n, w: n * w + g.input("b", ["B", "S", H])), [rms()])
    yield case("GEM near: n*w + bias", lambda g: gemma_f32(g, lambda n, w: n * w + g.weight("b", [H])), [rms()])
    yield case("GEM near: n*w - n", lambda g: gemma_f32(g, lambda n, w: n * w - n),
               refused("inner_value_used|degraded|used|read by"))
    yield case("GEM near: 1 - w is the scale", lambda g: gemma_f32(g, lambda n, w: n * (1 - w)), [rms()])
    yield case("GEM near: a vector beside w", lambda g: gemma_f32(g, lambda n, w: n * (w + g.weight("v", [H]))),
               [rms()])
    yield case("GEM near: two norms share x", two_norms, [rms(offset=1), rms()])


def two_norms(g):
    x, w = x_and_w(g)
    return (x * reciprocal(sqrt(mean(x * x) + 1e-6)) * (1 + w),
            op("Identity", x) / sqrt(mean(x**2) + 1e-6) * g.weight("v", [H]))
