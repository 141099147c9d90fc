"""LayerNorm: y = (x - mean(x)) / sqrt(var(x) + eps) * w + b, LN-1 to LN-12, and what must not become one."""
import numpy as np

from case import add_layer_norm, case, layer_norm, refused, rms
from graph import (BF16, F16, F32, F64, cast, mean, op, reciprocal, sqrt, total, transpose)

H = 8
EPS = 1e-5
SQUARES = {"Mul": lambda d: d * d, "Pow": lambda d: d**2}
ROOTS = {
    "Div": lambda d, v: d / sqrt(v), "Reciprocal": lambda d, v: d * reciprocal(sqrt(v)),
    "Div(1,)": lambda d, v: d * (1 / sqrt(v)), "Pow -0.5": lambda d, v: d * v**-0.5
}
ORDERS = {"n*w + b": lambda n, w, b: n * w + b, "b + w*n": lambda n, w, b: b + w * n}


def normalised(x, eps=EPS, square="Pow", root="Div"):
    d = x - mean(x)
    return ROOTS[root](d, mean(SQUARES[square](d)) + eps)


def ln(x, w, b, **spelling):
    return normalised(x, **spelling) * w + b


def inputs(g, dtype=None):
    return g.input("x", ["B", "S", H]), g.weight("w", [H], dtype), g.weight("b", [H], dtype)


def of(build, dtype=None):
    return lambda g: build(*inputs(g, dtype))


def cases():
    yield from operators()
    yield from decomposed()
    yield from with_casts()
    yield from affine()
    yield from near_misses()


def layer_normalization(x, w, b=None, **attributes):
    return op("LayerNormalization", x, w, b, **({"axis": -1, "epsilon": EPS} | attributes))


def operators():
    for dtype in (F32, F16, BF16):
        for opset in (17, 18, 20, 23):
            yield case("LN-1", of(layer_normalization), [layer_norm()], dtype=dtype, opset=opset)
        yield case("LN-1 no B", of(lambda x, w, b: layer_normalization(x, w)), [layer_norm()], dtype=dtype)
    yield case("LN-1 positive axis", of(lambda x, w, b: layer_normalization(x, w, b, axis=2)), [layer_norm()])
    yield case("LN-1 default eps", of(lambda x, w, b: op("LayerNormalization", x, w, b)), [layer_norm(epsilon=1e-5)])
    yield case("LN-1 eps 1e-12", of(lambda x, w, b: layer_normalization(x, w, b, epsilon=1e-12)),
               [layer_norm(epsilon=1e-12)])
    yield case("LN-1 three outputs, two unused",
               of(lambda x, w, b: op("LayerNormalization", x, w, b, outputs=3, epsilon=EPS)[0]), [layer_norm()])
    yield case("LN-1 mean is used", of(lambda x, w, b: op("LayerNormalization", x, w, b, outputs=2, epsilon=EPS)),
               refused("other_output_used|LayerNormalization"))
    yield case(
        "LN-1 last two axes", lambda g: layer_normalization(
            g.input("x", ["B", 4, H]), g.weight("w", [4, H]), g.weight("b", [4, H]), axis=-2), refused("axis|axes"))
    yield case("LN-1 scale is Expand(1, Shape(x))", expanded_ones, [layer_norm()])
    yield case("LN-1 in a function", wrapped(layer_normalization), [layer_norm()])
    yield case("LN-2 in a function", wrapped(ln), [layer_norm()])
    yield case(
        "LN-12 SkipLayerNormalization", lambda g: op("SkipLayerNormalization",
                                                     g.input("x", ["B", "S", H]),
                                                     g.input("r", ["B", "S", H]),
                                                     g.weight("w", [H]),
                                                     g.weight("b", [H]),
                                                     domain="com.microsoft",
                                                     epsilon=EPS), [add_layer_norm()])
    yield case("LN-12 EmbedLayerNormalization", embed, refused("EmbedLayerNormalization"), run="")


def expanded_ones(g):
    x = g.input("x", ["B", "S", H])
    ones = op("Expand", g.constant(1.0), op("Shape", x, start=-1), dtype=F32)
    return layer_normalization(x, ones)


def embed(g):
    ids = g.input("ids", ["B", "S"], 6, feed=np.zeros((2, 5)))
    return op("EmbedLayerNormalization",
              ids,
              None,
              g.weight("words", [10, H]),
              g.weight("positions", [10, H]),
              None,
              g.weight("w", [H]),
              g.weight("b", [H]),
              domain="com.microsoft",
              outputs=2,
              dtype=F32)[0]


def wrapped(body):
    def build(g):
        call = g.function("pkg.torch.2.6", "LayerNorm", lambda inner, x, w, b: body(x, w, b), [g.dtype] * 3)
        return call(*inputs(g))

    return build


def decomposed():
    """LN-2, LN-7: all slots."""
    for square in SQUARES:
        for root in ROOTS:
            for order, affine_of in ORDERS.items():
                yield case(f"LN-2 {square}, {root}, {order}",
                           of(lambda x, w, b: affine_of(normalised(x, EPS, square, root), w, b)), [layer_norm()])
    for opset in (11, 12, 13, 16, 20, 23):
        for root in ("Div", "Reciprocal"):
            yield case(f"LN-2 {root}", of(lambda x, w, b: ln(x, w, b, root=root)), [layer_norm()], opset=opset)
    yield case("LN-2", of(ln), [layer_norm()], constants="node")
    yield case("LN-2 eps first", of(lambda x, w, b: eps_first(x) * w + b), [layer_norm()])
    yield case("LN-2 positive axes", of(positive_axes), [layer_norm()])
    yield case("LN-2 f64",
               of(lambda x, w, b: ln(x, w, b, eps=2.0**-17)), [layer_norm(epsilon=2.0**-17, stash_type=F64)],
               dtype=F64)
    for eps in (1e-6, 1e-12, 1e-3):
        yield case(f"LN-2 eps {eps:g}", of(lambda x, w, b: ln(x, w, b, eps=eps)), [layer_norm(epsilon=eps)])
    yield case("LN-3 two Subs", of(two_subs), [layer_norm()])
    yield case("LN-3 two means", of(two_means), [layer_norm()])
    yield case("LN-8 TF", of(tensorflow), [layer_norm()], tolerance=3e-6)
    yield case("LN-8 TF, gamma*r",
               of(lambda x, w, b: tensorflow(x, w, b, lambda r, w: w * r)), [layer_norm()],
               tolerance=3e-6)
    # The variance as a difference is less stable than the op: rows with a small mean, so that both are right.
    yield case("LN-9 E[x^2] - E[x]^2", of(difference_of_squares), [layer_norm()], tolerance=1e-5)
    yield case("LN-9 Pow",
               of(lambda x, w, b: difference_of_squares(x, w, b, lambda v: v**2)), [layer_norm()],
               tolerance=1e-5)


def eps_first(x):
    d = x - mean(x)
    return d / sqrt(EPS + mean(d * d))


def positive_axes(x, w, b):
    d = x - mean(x, [2])
    return d / sqrt(mean(d * d, [2]) + EPS) * w + b


def two_subs(x, w, b):
    m = mean(x)
    return (x - m) / sqrt(mean((x - m)**2) + EPS) * w + b


def two_means(x, w, b):
    return (x - mean(x)) / sqrt(mean((x - mean(x))**2) + EPS) * w + b


def tensorflow(x, w, b, gain=lambda r, w: r * w):
    m = mean(x)
    d = x - m
    g = gain(reciprocal(sqrt(mean(d * d) + EPS)), w)
    return x * g + (b - m * g)


def difference_of_squares(x, w, b, square=lambda v: v * v):
    m = mean(x)
    return (x - m) / sqrt(mean(square(x)) - square(m) + EPS) * w + b


def with_casts():
    yield case("LN-4 Casts that do nothing", of(cast_in_square), [layer_norm()])
    yield case("LN-4 in f16, mean in f16",
               of(cast_in_square),
               refused("Cast|mean|dtype", or_only=[rms(epsilon=EPS)]),
               dtype=F16)
    for dtype in (F16, BF16):
        yield case("LN-5",
                   of(lambda x, w, b: cast(normalised(cast(x, F32)), dtype) * w + b), [layer_norm()],
                   dtype=dtype)
        yield case("LN-5 Reciprocal",
                   of(lambda x, w, b: cast(normalised(cast(x, F32), root="Reciprocal"), dtype) * w + b),
                   [layer_norm()],
                   dtype=dtype)
        yield case("LN-5 no bias",
                   of(lambda x, w, b: w * cast(normalised(cast(x, F32)), dtype)), [layer_norm()],
                   dtype=dtype)
        yield case("LN-6",
                   of(lambda x, w, b: cast(normalised(cast(x, F32)) * cast(w, F32) + cast(b, F32), dtype)),
                   [layer_norm(scale_type=F32)],
                   dtype=dtype)
        yield case("LN-6 w in f32, no bias",
                   of(lambda x, w, b: cast(w * normalised(cast(x, F32)), dtype), F32), [layer_norm(scale_type=F32)],
                   dtype=dtype)
        yield case("LN-2 single dtype", of(ln), [layer_norm(stash_type="T")], dtype=dtype)


def cast_in_square(x, w, b):
    d = x - mean(x)
    return cast(cast(d, F32) / sqrt(mean(cast(d, F32)**2) + EPS), x.dtype) * w + b


def affine():
    """LN-10, LN-11."""
    yield case("LN-10 w + 1", of(lambda x, w, b: normalised(x) * (w + 1) + b), [layer_norm()])
    yield case("LN-10 LayerNormalization, w + 1", of(lambda x, w, b: layer_normalization(x, w + 1, b)), [layer_norm()])
    yield case("LN-10 1 + w in f16", of(lambda x, w, b: layer_normalization(x, 1 + w, b)), [layer_norm()], dtype=F16)
    yield case("LN-11 no bias", of(lambda x, w, b: normalised(x) * w), [layer_norm()])
    yield case("LN-11 w*n", of(lambda x, w, b: w * normalised(x, root="Reciprocal")), [layer_norm()])
    yield case("LN-11 no affine", of(lambda x, w, b: normalised(x)), [layer_norm()])
    yield case("LN-11 no affine, cast back",
               of(lambda x, w, b: cast(normalised(cast(x, F32)), F16)), [layer_norm()],
               dtype=F16)
    yield case(
        "LN-11 ones and zeros",
        lambda g: layer_normalization(g.input("x", ["B", "S", H]), g.constant(np.ones(H)), g.constant(np.zeros(H))),
        [layer_norm()])
    yield case("LN-2 w [1, 1, H]",
               lambda g: ln(g.input("x", ["B", "S", H]), g.weight("w", [1, 1, H]), g.weight("b", [1, 1, H])),
               [layer_norm()])
    yield case("LN-2 rank 4", lambda g: ln(g.input("x", ["B", "S", 2, H]), g.weight("w", [H]), g.weight("b", [H])),
               [layer_norm()])


def near_misses():
    nchw = lambda g: (g.input("x", ["B", H, 3, 3]), g.weight("w", [H, 1, 1]), g.weight("b", [H, 1, 1]))
    yield case("LN near: LayerNorm2d, axis 1", lambda g: channels_first(*nchw(g)), refused("last axis"))
    yield case("LN LayerNorm2d between Transposes", transposed, [layer_norm()])
    yield case("LN near: unbiased, ReduceSum/(H-1)",
               of(lambda x, w, b: by_variance(x, lambda d: total(d * d) / (H - 1)) * w + b), refused("mean|sum"))
    yield case("LN near: unbiased, H/(H-1)",
               of(lambda x, w, b: by_variance(x, lambda d: mean(d * d) * (H / (H - 1))) * w + b),
               refused("mean|Mul|product|factor"))
    yield case("LN near: eps outside", of(lambda x, w, b: outside(x) * w + b), refused("epsilon|Add|Sqrt"))
    yield case("LN near: annotated transformer", of(annotated), refused("."))
    yield case("LN near: MeanVarianceNormalization",
               lambda g: op("MeanVarianceNormalization", g.input("x", ["B", H, 3, 3])), refused())
    yield case(
        "LN near: InstanceNormalization",
        lambda g: op("InstanceNormalization", g.input("x", ["B", H, 9]), g.weight("w", [H]), g.weight("b", [H])),
        refused())
    yield case("LN near: three axes",
               lambda g: three_axes(g.input("x", ["B", 2, 3, 4]), g.weight("w", [2, 3, 4]), g.weight("b", [2, 3, 4])),
               refused("last axis"))
    yield case("LN near: Max(var, eps)", of(lambda x, w, b: maximum(x) * w + b), refused("Max|epsilon"))
    yield case("LN near: mean and variance over different axes", of(lambda x, w, b: other_axes(x) * w + b),
               refused("last axis|mean|Sub", or_only=[rms(epsilon=EPS)]))
    yield case("LN near: bias in front of the scale", of(lambda x, w, b: (normalised(x) + b) * w),
               refused("degraded|scale", or_only=[layer_norm()]))
    yield case("LN near: adaLN", adaptive, refused("row_of|degraded|shape", or_only=[layer_norm()]))
    yield case("LN near: variance of another tensor", of(lambda x, w, b: other_variance(x) * w + b),
               refused("in one place and"))
    # Without the variance of x itself this is an RMSNorm of the centred value.
    yield case("LN near: the centred value is an output", of(centred_is_output),
               refused("inner_value_used", or_only=[rms(epsilon=EPS)]))
    yield case("LN near: bias [B, S, H]",
               lambda g: ln(g.input("x", ["B", "S", H]), g.weight("w", [H]), g.input("b", ["B", "S", H])),
               [layer_norm()])
    yield case("LN near: std is also used", of(std_is_output), refused("inner_value_used"))


def channels_first(x, w, b):
    d = x - mean(x, [1])
    return d / sqrt(mean(d * d, [1]) + EPS) * w + b


def transposed(g):
    x = transpose(g.input("x", ["B", H, 3, 3]), [0, 2, 3, 1])
    return transpose(ln(x, g.weight("w", [H]), g.weight("b", [H])), [0, 3, 1, 2])


def by_variance(x, variance):
    d = x - mean(x)
    return d / sqrt(variance(d) + EPS)


def outside(x):
    d = x - mean(x)
    return d / (sqrt(mean(d * d)) + EPS)


def annotated(x, w, b):
    d = x - mean(x)
    return w * d / (sqrt(total(d * d) / (H - 1)) + EPS) + b


def three_axes(x, w, b):
    axes = [1, 2, 3]
    d = x - mean(x, axes)
    return d / sqrt(mean(d * d, axes) + EPS) * w + b


def maximum(x):
    d = x - mean(x)
    return d / sqrt(op("Max", mean(d * d), EPS))


def other_axes(x):
    d = x - mean(x, [1])
    return d / sqrt(mean(d * d) + EPS)


def adaptive(g):
    modulation = [g.input(name, ["B", 1, H]) for name in ("scale", "shift")]
    return normalised(g.input("x", ["B", "S", H])) * (1 + modulation[0]) + modulation[1]


def other_variance(x):
    d = op("Tanh", x) - mean(op("Tanh", x))
    return (x - mean(x)) / sqrt(mean(d * d) + EPS)


def centred_is_output(x, w, b):
    d = x - mean(x)
    return d / sqrt(mean(d * d) + EPS) * w + b, d


def std_is_output(x, w, b):
    d = x - mean(x)
    std = sqrt(mean(d * d) + EPS)
    return d / std * w + b, std
