"""Softmax over the last axis, SM-1 to SM-7; patched only when asked for."""
import numpy as np

from case import case, refused, softmax_op
from graph import BF16, F16, F32, cast, concat, cut, exp, largest, op, softmax, total, transpose

H = 8
ON = {"modules": "softmax=on"}


def x(g):
    return g.input("x", ["B", "S", H],
                   feed=g.random.standard_normal((2, 5, H)) * np.resize([1, 0, 30, 1e-3], 10).reshape(2, 5, 1))


def cases():
    fused = [softmax_op()]
    for dtype in (F32, F16, BF16):
        yield case("SM-1", lambda g: softmax(x(g), -1), fused, dtype=dtype, **ON)
    for opset in (13, 17, 20, 23):
        yield case("SM-1 positive axis", lambda g: softmax(x(g), 2), fused, opset=opset, **ON)
        yield case("SM-1 default axis", lambda g: softmax(x(g)), fused, opset=opset, **ON)
    yield case("SM-1 not asked for", lambda g: softmax(x(g), -1), refused())
    yield case("SM-1 axis 1", lambda g: softmax(x(g), 1), refused(), **ON)
    for opset in (11, 12):
        yield case("SM-2 last axis", lambda g: softmax(x(g), 2), fused, opset=opset, **ON)
        yield case("SM-2 axis -1", lambda g: softmax(x(g), -1), fused, opset=opset, **ON)
        # Over the axes 1 and 2 together.
        yield case("SM-2 default axis 1", lambda g: softmax(x(g)), refused(), opset=opset, **ON)
        yield case("SM-2 default axis 1, rank 2", lambda g: softmax(g.input("x", ["B", H])), fused, opset=opset, **ON)
    yield case("SM-3 in f32, cast back",
               lambda g: cast(softmax(cast(x(g), F32), -1), F16), [softmax_op(stash_type=F32)],
               dtype=F16,
               **ON)
    yield case("SM-4 widened behind", lambda g: cast(softmax(x(g), -1), F32), fused, dtype=F16, **ON)
    yield case("SM-5 decomposed", lambda g: decomposed(x(g)), refused(or_only=fused), **ON)
    yield case("SM-6 mask in front", masked, fused, **ON)
    yield case("SM-7 Transposes around", lambda g: transpose(softmax(transpose(x(g), [0, 2, 1]), -1), [0, 2, 1]),
               fused, **ON)
    yield from near_misses()


def decomposed(v):
    e = exp(v - largest(v))
    return e / total(e)


def masked(g):
    return softmax(
        x(g) * 0.35 + g.input("mask", ["B", 1, H], feed=np.where(np.arange(16).reshape(2, 1, 8) % 3, 0, -1e4)), -1)


def near_misses():
    near = lambda name, build, *reasons, **more: case(f"SM near: {name}", build, refused(*reasons, **more), **ON)
    # gpt-oss: a softmax of the scores and one sink a head; the sink's column goes.
    yield case("SM near: sink column", sink, [softmax_op()], **ON)
    yield near("softmax-1", lambda g: softmax_one(x(g)))
    yield near("LogSoftmax", lambda g: op("LogSoftmax", x(g), axis=-1))
    yield near("Hardmax", lambda g: op("Hardmax", x(g), axis=-1))
    yield near("sigmoid attention", lambda g: op("Sigmoid", x(g)))
    yield near("the sum of another tensor",
               lambda g: exp(x(g)) / total(exp(g.input("z", ["B", "S", H], feed=np.ones((2, 5, H))))))
    yield near("between the products of an attention", attention, or_only=[softmax_op()])


def sink(g):
    scores = x(g)
    column = g.input("sink", ["B", "S", 1], feed=np.ones((2, 5, 1)))
    joined = concat(scores, column)
    return cut(softmax(joined - largest(joined), -1), 0, -1)


def softmax_one(v):
    e = exp(v)
    return e / (total(e) + 1)


def attention(g):
    q, k, v = (g.input(n, ["B", 2, "S", 4], feed=g.random.standard_normal((2, 2, 5, 4))) for n in "qkv")
    return softmax(q @ transpose(k, [0, 1, 3, 2]) * 0.5, -1) @ v
