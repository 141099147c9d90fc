"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * w, in the spellings RMS-1 to RMS-14, and what must not become one."""
import numpy as np

from case import case, refused, rms, swiglu
from graph import (BF16, F16, F32, F64, I8, I32, I64, cast, exp, largest, mean, norm2, op, reciprocal, reshape, silu,
                   sqrt, sum_square, total, transpose, unsqueeze)

H = 8
E32 = float(np.float32(1e-6))

# The slots. A spelling of mean(x^2), one of the inverse root (as a function of x and v = mean + eps: x / sqrt(v)).
SQUARES = {"Mul": lambda x: x * x, "Pow": lambda x: x**2, "Pow int": lambda x: op("Pow", x, x.graph.constant(2, I64))}
MEANS = {"ReduceMean": mean, "ReduceSum*1/H": lambda x: total(x) * (1 / H), "ReduceSum/H": lambda x: total(x) / H}
ROOTS = {
    "Reciprocal": lambda x, v: x * reciprocal(sqrt(v)), "Div(1,)": lambda x, v: x * (1 / sqrt(v)),
    "Pow -0.5": lambda x, v: x * v**-0.5, "Div": lambda x, v: x / sqrt(v), "Div Pow 0.5": lambda x, v: x / v**0.5
}
ORDERS = {"w*n": lambda n, w: w * n, "n*w": lambda n, w: n * w}


def normalised(x, eps=1e-6, square="Pow", mean_of="ReduceMean", root="Reciprocal"):
    return ROOTS[root](x, MEANS[mean_of](SQUARES[square](x)) + eps)


def rms_norm(x, w, **spelling):
    return normalised(x, **spelling) * w


def llama(x, w, **spelling):
    """f32 statistics, cast back before the weight."""
    return w * cast(normalised(cast(x, F32), **spelling), x.dtype)


def x_and_w(g, dtype=None):
    return g.input("x", ["B", "S", H]), g.weight("w", [H], dtype)


def of(build, dtype=None):
    return lambda g: build(*x_and_w(g, dtype))


def cases():
    yield from single_dtype()
    yield from with_casts()
    yield from other_spellings()
    yield from operators()
    yield from weights()
    yield from per_head()
    yield from gated_and_modulated()
    yield from near_misses()


def single_dtype():
    """RMS-3, all slots; RMS-5 is root "Div"."""
    for square in SQUARES:
        for mean_of in MEANS:
            for root in ROOTS:
                for order, product in ORDERS.items():
                    yield case(f"RMS-3 {square}, {mean_of}, {root}, {order}",
                               of(lambda x, w: product(normalised(x, 1e-6, square, mean_of, root), w)), [rms()])
    for opset in (11, 12, 13, 17, 20, 23):
        for square in ("Mul", "Pow"):
            for root in ("Reciprocal", "Div(1,)", "Div"):
                yield case(f"RMS-3 {square}, {root}",
                           of(lambda x, w: rms_norm(x, w, square=square, root=root)), [rms()],
                           opset=opset)
    for eps in (1e-5, 1.1920929e-07, 1e-12, 0.0, 1e-2):
        yield case(f"RMS-3 eps {eps:g}", of(lambda x, w: rms_norm(x + 1e-3, w, eps=eps)), [rms(epsilon=eps)])
    yield case("RMS-3 eps first", of(lambda x, w: x / sqrt(1e-6 + mean(x * x)) * w), [rms()])
    yield case("RMS-3 eps by Sum", of(lambda x, w: x / sqrt(op("Sum", mean(x * x), 1e-6)) * w), [rms()])
    yield case("RMS-3 r*x", of(lambda x, w: (1 / sqrt(mean(x * x) + 1e-6)) * x * w), [rms()])
    yield case("RMS-3 positive axis", of(lambda x, w: x / sqrt(mean(x * x, [2]) + 1e-6) * w), [rms()])
    yield case("RMS-3 eps of one element", of(lambda x, w: x / sqrt(mean(x * x) + np_constant(x, [1e-6])) * w),
               [rms()])
    yield case("RMS-3 two squares", of(lambda x, w: x / sqrt(mean(op("Identity", x) * x) + 1e-6) * w), [rms()])
    yield case("RMS-3", of(rms_norm), [rms()], constants="node")
    # Without Casts in half precision: as written or with f32 statistics; both are right, and the report says which.
    yield case("RMS-3", of(rms_norm), [rms(stash_type="T")], dtype=F16, precision="raised")
    yield case("RMS-3 under --exact", of(rms_norm), refused("exact"), dtype=F16, arguments=["--exact"])
    yield case("RMS-3", of(rms_norm), [rms(stash_type="T")], dtype=BF16)
    # The attribute epsilon is an f32: a number of f64 is only taken if it is one.
    yield case("RMS-3 eps of f32",
               of(lambda x, w: rms_norm(x, w, eps=E32)), [rms(epsilon=E32, stash_type=F64)],
               dtype=F64)
    yield case("RMS-3 eps that is no f32", of(rms_norm), refused("epsilon|constant"), dtype=F64)


def np_constant(x, values):
    return x.graph.constant(np.array(values), x.dtype)


def with_casts():
    for dtype in (F16, BF16):
        for root in ("Reciprocal", "Div(1,)", "Div", "Pow -0.5"):
            for square in ("Mul", "Pow"):
                yield case(f"RMS-1 {square}, {root}",
                           of(lambda x, w: llama(x, w, root=root, square=square)), [rms()],
                           dtype=dtype,
                           precision="exact" if root == "Reciprocal" else None)
                # The weight multiplied in f32, one rounding: another function.
                yield case(
                    f"RMS-2 {square}, {root}, Cast(w)",
                    of(lambda x, w: cast(rms_norm(cast(x, F32), cast(w, F32), root=root, square=square), dtype)),
                    [rms(scale_type=F32)],
                    dtype=dtype)
        for opset in (11, 13, 17, 20, 23)[dtype == BF16:]:  # bf16 came with opset 13
            yield case("RMS-1", of(llama), [rms()], dtype=dtype, opset=opset)
        yield case("RMS-1 n*w", of(lambda x, w: cast(normalised(cast(x, F32)), dtype) * w), [rms()], dtype=dtype)
        yield case("RMS-1 statistics in f64",
                   of(lambda x, w: w * cast(normalised(cast(x, F64)), dtype)),
                   refused("stash|Cast|epsilon|kernel"),
                   dtype=dtype)
        yield case("RMS-2 w in f32",
                   of(lambda x, w: cast(rms_norm(cast(x, F32), w), dtype), F32), [rms(scale_type=F32)],
                   dtype=dtype)
        yield case(
            "RMS-2 w*n, positive axis, eps of F.rms_norm",
            of(lambda x, w: cast(
                cast(w, F32) * (cast(x, F32) * reciprocal(sqrt(mean(cast(x, F32)**2, [2]) + 1.1920929e-07))), dtype)),
            [rms(epsilon=1.1920929e-07, scale_type=F32)],
            dtype=dtype)
        yield case("RMS-4 cast back", of(lambda x, w: cast(normalised(cast(x, F32)), dtype)), [rms()], dtype=dtype)
        yield case("RMS-11 no Cast behind",
                   of(lambda x, w: rms_norm(cast(x, F32), w), F32), [rms(scale_type=F32)],
                   dtype=dtype)
        yield case("RMS-11 no Cast in front",
                   lambda g: g.weight("w", [H]) * cast(normalised(g.input("x", ["B", "S", H], F32)), dtype),
                   [rms(scale_type="T")],
                   dtype=dtype)
    for dtype in (F32, F64):
        yield case("RMS-1 Casts that do nothing",
                   of(lambda x, w: w * cast(normalised(cast(x, dtype), E32), dtype)),
                   [rms(epsilon=E32, stash_type=dtype)],
                   dtype=dtype)


def other_spellings():
    for dtype in (F32, F64):
        kind = {"epsilon": E32, "stash_type": dtype}
        yield case("RMS-4", of(lambda x, w: normalised(x, E32)), [rms(**kind)], dtype=dtype)
        yield case("RMS-6 x*(r*w)",
                   of(lambda x, w: x * (reciprocal(sqrt(mean(x * x) + E32)) * w)), [rms(**kind)],
                   dtype=dtype)
        yield case("RMS-6 (x*w)*r",
                   of(lambda x, w: (x * w) * reciprocal(sqrt(mean(x * x) + E32))), [rms(**kind)],
                   dtype=dtype)
        yield case("RMS-6 (x*w)/s", of(lambda x, w: (x * w) / sqrt(mean(x * x) + E32)), [rms(**kind)], dtype=dtype)
    yield case(
        "RMS-6 x*(r*w), all in f32",
        of(lambda x, w: cast(cast(x, F32) * (reciprocal(sqrt(mean(cast(x, F32)**2) + 1e-6)) * cast(w, F32)), F16)),
        [rms(scale_type=F32)],
        dtype=F16)
    yield case("RMS-7 ReduceSumSquare*1/H", of(lambda x, w: x / sqrt(sum_square(x) * (1 / H) + 1e-6) * w), [rms()])
    yield case("RMS-7 ReduceSumSquare/H", of(lambda x, w: x / sqrt(sum_square(x) / H + 1e-6) * w), [rms()])
    yield case("RMS-7 ReduceL2/sqrt(H), no eps", of(lambda x, w: x / (norm2(x) / sqrt_of(H)) * w), [rms(epsilon=0)])
    yield case("RMS-7 ReduceL2*1/sqrt(H), no eps", of(lambda x, w: x / (norm2(x) * (1 / sqrt_of(H))) * w),
               [rms(epsilon=0)])
    yield case("RMS-7 Sqrt(ReduceMean), no eps", of(lambda x, w: x / sqrt(mean(x * x)) * w), [rms(epsilon=0)])


def sqrt_of(n):
    return float(np.sqrt(n))


def operators():
    def simplified(x, w, **attributes):
        return op("SimplifiedLayerNormalization", x, w,
                  **({"axis": -1, "epsilon": 1e-6, "stash_type": 1} | attributes))

    def standard(x, w, **attributes):
        return op("RMSNormalization", x, w, **({"axis": -1, "epsilon": 1e-6, "stash_type": 1} | attributes))

    for dtype in (F32, F16, BF16):
        yield case("RMS-8 SimplifiedLayerNormalization",
                   of(simplified), [rms()],
                   dtype=dtype,
                   run="" if dtype == BF16 else None)
        yield case("RMS-9 RMSNormalization", of(standard), [rms()], dtype=dtype, opset=23)
    yield case("RMS-8 axis 2, eps 1e-5", of(lambda x, w: simplified(x, w, axis=2, epsilon=1e-5)), [rms(epsilon=1e-5)])
    yield case("RMS-8 default eps", of(lambda x, w: op("SimplifiedLayerNormalization", x, w)), [rms(epsilon=1e-5)])
    yield case("RMS-9 default eps, axis 2",
               of(lambda x, w: op("RMSNormalization", x, w, axis=2)), [rms(epsilon=1e-5)],
               opset=23)
    yield case("RMS-9 default eps, opset 24",
               of(lambda x, w: op("RMSNormalization", x, w)), [rms(epsilon=1e-5)],
               opset=24)
    yield case("RMS-9 scale of one element",
               lambda g: standard(g.input("x", ["B", "S", H]), g.constant([1.0])), [rms()],
               opset=23)
    yield case("RMS-8 inverse deviation used",
               of(lambda x, w: op("SimplifiedLayerNormalization", x, w, outputs=2, dtype=F32)),
               refused("other_output_used|also gives|SimplifiedLayerNormalization"))
    yield case("RMS-9 last two axes",
               lambda g: standard(g.input("x", ["B", 4, H]), g.weight("w", [4, H]), axis=-2),
               refused("axis|axes"),
               opset=23)
    yield case("RMS-9 scale [G, D]",
               lambda g: standard(g.input("x", ["B", 4, H]), g.weight("w", [4, H])),
               refused("row_of|scale"),
               opset=23)
    # gemma2, olmo2 and gpt-oss in half precision: the product with an f32 scale is one of f32. ONNX Runtime refuses the
    # operator with two types, so that only the patched model runs.
    yield case(
        "RMS-9 f16 x, f32 scale, cast back",
        lambda g: cast(op("RMSNormalization", g.input("x", ["B", "S", H]), g.weight("w", [H], F32), dtype=F32), F16),
        [rms(epsilon=1e-5, scale_type=F32)],
        dtype=F16,
        opset=23,
        run="")
    yield case("RMS-14 local function", wrapped(llama), [rms()], dtype=F16)
    yield case("RMS-14 local function", wrapped(rms_norm), [rms()])
    yield case("RMS-14 nested local functions", nested, [rms()])


def wrapped(body):
    def build(g):
        x, w = x_and_w(g)
        norm = g.function("pkg.transformers.4", "LlamaRMSNorm", lambda inner, x, w: body(x, w), [g.dtype, g.dtype])
        return norm(x, w)

    return build


def nested(g):
    x, w = x_and_w(g)
    square = g.function("pkg.onnxscript.torch_lib", "aten_square", lambda inner, x: x * x, [F32])
    norm = g.function("pkg.onnxscript.torch_lib", "aten_rms_norm",
                      lambda inner, x, w: x / sqrt(mean(square(x)) + 1e-6) * w, [F32, F32],
                      {"pkg.onnxscript.torch_lib": 1})
    return norm(x, w)


def weights():
    """What the scale may be."""
    x = lambda g: g.input("x", ["B", "S", H])
    yield case("RMS-3 w [1, H]", lambda g: rms_norm(x(g), g.weight("w", [1, H])), [rms()])
    yield case("RMS-3 w [1, 1, H]", lambda g: rms_norm(x(g), g.weight("w", [1, 1, H])), [rms()])
    yield case("RMS-3 w is Unsqueeze(w)", lambda g: rms_norm(x(g), unsqueeze(g.weight("w", [H]), [0])), [rms()])
    yield case("RMS-3 w is a graph input", lambda g: rms_norm(x(g), g.input("w", [H])), [rms()])
    yield case("RMS-3 w is Cast", lambda g: rms_norm(x(g), cast(g.weight("w", [H], F16), F32)), [rms()])
    yield case("RMS-3 w is dequantised", lambda g: rms_norm(x(g), dequantised(g)), [rms()])
    yield case("RMS-3 w is computed", lambda g: rms_norm(x(g), exp(g.weight("w", [H]))), [rms()])
    yield case("RMS-3 w also elsewhere", lambda g: shared_weight(x(g), g.weight("w", [H])), [rms()])
    yield case("RMS-3 rank 2", lambda g: rms_norm(g.input("x", ["S", H]), g.weight("w", [H])), [rms()])
    yield case("RMS-3 H not known to the weight", lambda g: rms_norm(x(g), g.input("w", ["W"], feed=np.ones(H))),
               refused("row_of"))
    yield case("RMS-4 times a number", lambda g: rms_norm(x(g), g.constant(1.5)), [rms()])


def dequantised(g):
    return op("DequantizeLinear", cast(g.constant(np.arange(H), I32), I8), g.constant(0.25), dtype=F32)


def shared_weight(x, w):
    return rms_norm(x, w), w + 1


def per_head():
    """RMS-10: q and k norms on [B, S, N, D] or [B, N, S, D]."""
    def heads_then_norm(g, shape, order, norm):
        x = reshape(g.input("x", ["B", "S", 4 * H]), shape)
        if order == "after":
            return norm(transpose(x, [0, 2, 1, 3]), g.weight("w", [H]))
        return transpose(norm(x, g.weight("w", [H])), [0, 2, 1, 3])

    for order in ("before", "after"):
        yield case(f"RMS-10 {order} Transpose", lambda g: heads_then_norm(g, [0, 0, 4, H], order, rms_norm), [rms()])
        yield case(f"RMS-10 {order} Transpose",
                   lambda g: heads_then_norm(g, [0, 0, 4, H], order, llama), [rms()],
                   dtype=F16)
    yield case(
        "RMS-10 genai sandwich", lambda g: reshape(
            op("SimplifiedLayerNormalization",
               reshape(g.input("x", ["B", "S", 4 * H]), [0, -1, H]),
               g.weight("w", [H]),
               epsilon=1e-6), [0, -1, 4 * H]), [rms()])
    yield case("RMS-10 positive axis 3", lambda g: per_head_axis(g), [rms()])


def per_head_axis(g):
    x = reshape(g.input("x", ["B", "S", 4 * H]), [0, 0, 4, H])
    return x / sqrt(mean(x * x, [3]) + 1e-6) * g.weight("w", [H])


def gated_and_modulated():
    z = lambda g: g.input("z", ["B", "S", H])
    yield case("RMS-12 gate behind", lambda g: rms_norm(*x_and_w(g)) * silu(z(g)), [rms(), swiglu()])
    yield case("RMS-12 gate behind, f32, cast back",
               lambda g: cast(cast(llama(*x_and_w(g)), F32) * silu(cast(z(g), F32)), F16),
               [rms(), swiglu(stash_type=F32)],
               dtype=F16)
    yield case("RMS-12 gate in front",
               lambda g: rms_norm(g.input("x", ["B", "S", H]) * silu(z(g)), g.weight("w", [H])),
               [rms(), swiglu()])
    yield case("RMS-12 grouped",
               lambda g: rms_norm(reshape(g.input("x", ["B", "S", 2 * H]), [0, 0, 2, H]), g.weight("w", [2, H])),
               refused("row_of"))
    yield case("RMS-13 scale per sample", lambda g: rms_norm(g.input("x", ["B", "S", H]), g.input("w", ["B", 1, H])),
               refused("row_of|degraded", or_only=[rms()]))


def near_misses():
    x = lambda g: g.input("x", ["B", "S", H])
    w = lambda g: g.weight("w", [H])
    for eps in (1e-6, 1e-2):
        yield case(f"RMS near: eps {eps} outside the root", of(lambda x, w: x / (sqrt(mean(x * x)) + eps) * w),
                   refused("epsilon|Add|Sqrt"))
        yield case(f"RMS near: Max(v, {eps})", of(lambda x, w: x / sqrt(op("Max", mean(x * x), eps)) * w),
                   refused("Max|epsilon"))
        yield case(f"RMS near: Max(norm, {eps}), F.normalize",
                   of(lambda x, w: x / op("Max", norm2(x), eps) * sqrt_of(H) * w), refused("Max|epsilon"))
        yield case(f"RMS near: Clip(norm, {eps})", of(lambda x, w: x / op("Clip", sqrt(mean(x * x)), eps, None) * w),
                   refused("Clip|epsilon"))
    yield case("RMS near: ReduceL2 without sqrt(H)", of(lambda x, w: x / norm2(x) * w), refused("ReduceL2|mean|sum"))
    yield case("RMS near: ReduceSum without 1/H", of(lambda x, w: x / sqrt(total(x * x) + 1e-6) * w),
               refused("mean|sum|ReduceSum"))
    yield case("RMS near: ReduceSum over another number", of(lambda x, w: x / sqrt(total(x * x) / (H - 1) + 1e-6) * w),
               refused("mean|sum|ReduceSum"))
    yield case("RMS near: LpNormalization", of(lambda x, w: op("LpNormalization", x, axis=-1, p=2) * w), refused())
    yield case("RMS near: axis 1", of(lambda x, w: x / sqrt(mean(x * x, [1]) + 1e-6) * w), refused("last axis"))
    yield case("RMS near: axes 1 and 2", of(lambda x, w: x / sqrt(mean(x * x, [1, 2]) + 1e-6) * w),
               refused("last axis"))
    yield case("RMS near: all axes by an empty list",
               of(lambda x, w: x / sqrt(op("ReduceMean", x * x, keepdims=1) + 1e-6) * w), refused("last axis"))
    yield case("RMS near: no axes, noop",
               of(lambda x, w: x / sqrt(op("ReduceMean", x * x, keepdims=1, noop_with_empty_axes=1) + 1e-6) * w),
               refused("mean|ReduceMean"))
    yield case(
        "RMS near: keepdims 0, Unsqueeze elsewhere", lambda g:
        (lambda x, w: x / sqrt(unsqueeze(mean(x * x, keepdims=0), [1]) + 1e-6) * w)(g.input("x", ["B", H, H]), w(g)),
        refused("last axis|kept|ReduceMean|Unsqueeze"))
    yield case("RMS near: statistics of another value",
               lambda g: other_statistics(x(g), g.input("r", ["B", "S", H]), w(g)), refused("square|x|factor|same"))
    # A factor for each row is no scale: the norm is one without.
    yield case("RMS near: w [H, 1]", lambda g: rms_norm(g.input("x", ["B", H, H]), g.weight("w", [H, 1])), [rms()])
    yield case("RMS near: w [N, 1]", lambda g: rms_norm(g.input("x", ["B", "S", 4, H]), g.weight("w", [4, 1])),
               [rms()])
    yield case("RMS near: w [N, D], statistics over D",
               lambda g: rms_norm(g.input("x", ["B", "S", 4, H]), g.weight("w", [4, H])), refused("row_of"))
    yield case("RMS near: exponent 3", of(lambda x, w: x / sqrt(mean(x**3) + 1e-6) * w),
               refused("square|Pow|one place and"))
    yield case("RMS near: exponent 2.001", of(lambda x, w: x / sqrt(mean(x**2.001) + 1e-6) * w), refused("square|Pow"))
    yield case("RMS near: mean of Abs", of(lambda x, w: x / sqrt(mean(op("Abs", x)) + 1e-6) * w),
               refused("square|Abs"))
    yield case("RMS near: ReduceMax", of(lambda x, w: x / sqrt(largest(x * x) + 1e-6) * w), refused("ReduceMax"))
    yield case("RMS near: cube root", of(lambda x, w: x * (mean(x * x) + 1e-6)**-0.3333 * w), refused())
    yield case("RMS near: no root", of(lambda x, w: x / (mean(x * x) + 1e-6) * w), refused("Sqrt|root|rsqrt"))
    yield case(
        "RMS near: x is an integer", lambda g: cast(
            rms_norm_of_int(g.input("x", ["B", "S", H], I32, feed=np.arange(80).reshape(2, 5, H)), w(g)), F32),
        [rms()])
    yield case("RMS near: stash in bf16",
               of(lambda x, w: w * cast(normalised(cast(x, BF16)), F16)),
               refused("stash|dtype|kernel|Cast"),
               dtype=F16,
               run="")
    yield case("RMS near: eps is a vector", of(lambda x, w: x / sqrt(mean(x * x) + np_constant(x, [1e-6] * H)) * w),
               refused("constant|epsilon|@epsilon"))
    yield case("RMS near: eps is computed", lambda g: (lambda x, w, e: x / sqrt(mean(x * x) + e) * w)
               (x(g), w(g), g.input("e", [], feed=1e-6)), refused("constant|epsilon"))
    yield case("RMS near: eps below zero",
               of(lambda x, w: x / sqrt(mean(x * x) + -1e-6) * w),
               refused("not_negative"),
               run="")
    yield case("RMS near: square also elsewhere", of(square_also_elsewhere), refused("inner_value_used"))
    yield case("RMS near: the inverse root is an output", of(root_is_output), refused("inner_value_used"))


def rms_norm_of_int(x, w):
    """The Cast from int stands in front of the norm, which is one of f32."""
    return rms_norm(cast(x, F32), w)


def other_statistics(x, r, w):
    return (x + r) / sqrt(mean(x * x) + 1e-6) * w


def square_also_elsewhere(x, w):
    square = x * x
    return x / sqrt(mean(square) + 1e-6) * w, square + 1


def root_is_output(x, w):
    r = reciprocal(sqrt(mean(x * x) + 1e-6))
    return x * r * w, r
