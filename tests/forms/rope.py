"""Rotary embedding: y = x * cos + rotate(x) * sin, ROPE-1 to ROPE-16, and what must not become one.

Where the tables come from is cos_sin.py; here they are constants, or inputs where their halves need no proof.
"""
import numpy as np

from case import case, either, refused, rms, rope
from graph import (BF16, F16, F32, I64, LAST, MICROSOFT, SIZES, cast, concat, cut, op, reshape, split, transpose,
                   unsqueeze)
from rms_norm import rms_norm

N, D, HALF = 4, 8, 4  # heads, size of a head, half of it
S = SIZES["S"]


def angles(width=HALF, count=S):
    return np.arange(count)[:, None] * 10000.0**(-np.arange(width) / width)[None]


def tables(g, *, width=D, kind="halves", lead=(1, 1), dtype=None):
    """cos, sin as constants [*lead, S, width]: halves equal, pairs equal, or all different ("half")."""
    f = angles(width if kind == "half" else width // 2)
    f = {"halves": lambda: np.concatenate([f, f], -1), "pairs": lambda: np.repeat(f, 2, -1), "half": lambda: f}[kind]()
    return [g.constant(t(f).reshape(*lead, *f.shape), dtype, t.__name__) for t in (np.cos, np.sin)]


def q(g, heads=N, name="q", dtype=None):
    # As many positions as the constant tables have: beside an unknown number they would broadcast.
    return g.input(name, ["B", heads, S, D], dtype, normal(g, 2, heads, S, D))


def normal(g, *shape):
    return g.random.standard_normal(shape)


# Halves of the last axis, and rotations of them.


def slices(x, half=HALF):
    return cut(x, 0, half), cut(x, half, LAST)


def rotate_half(x, halves=slices):
    low, high = halves(x)
    return concat(-high, low)


def rotated(x, cos, sin, rotate=rotate_half):
    return x * cos + rotate(x) * sin


def two_term(x, cos, sin, halves=slices):
    low, high = halves(x)
    return concat(low * cos - high * sin, high * cos + low * sin)


def rotate_pairs(x):
    even, odd = cut(x, 0, step=2), cut(x, 1, step=2)
    shape = [0, 0, 0, D]
    return reshape(concat(unsqueeze(-odd, [-1]), unsqueeze(even, [-1])), shape)


def cases():
    yield from full()
    yield from pairs_of_heads()
    yield from halves()
    yield from interleaved()
    yield from partial()
    yield from complex_product()
    yield from layouts()
    yield from operators()
    yield from near_misses()


def full():
    """ROPE-1, ROPE-2."""
    sums = {
        "x*cos + r*sin": lambda x, r, c, s: x * c + r * s, "cos*x + sin*r": lambda x, r, c, s: c * x + s * r,
        "r*sin + x*cos": lambda x, r, c, s: r * s + x * c
    }
    rotations = {
        "Neg(Slice)": rotate_half,
        "Slice(Neg)": lambda x: concat(cut(-x, HALF, LAST), cut(x, 0, HALF)),
        "Mul -1": lambda x: concat(cut(x, HALF, LAST) * -1, cut(x, 0, HALF)),
        "Sub from 0": lambda x: concat(0 - cut(x, HALF, LAST), cut(x, 0, HALF)),
        "end D": lambda x: concat(-cut(x, HALF, D), cut(x, 0, HALF)),
        "end int32 max": lambda x: concat(-cut(x, HALF, 2**31 - 1), cut(x, 0, HALF)),
        "negative bounds": lambda x: concat(-cut(x, -HALF, LAST), cut(x, 0, -HALF)),
        "axis 3": lambda x: concat(-cut(x, HALF, LAST, 3), cut(x, 0, HALF, 3), axis=3),
        "Split": lambda x: rotate_half(x, split),
        "Split by sizes": lambda x: rotate_half(x, lambda v: split(v, [HALF, HALF])),
        "Gather": lambda x: concat(-op("Gather", x, [4, 5, 6, 7], axis=-1), op("Gather", x, [0, 1, 2, 3], axis=-1)),
        "ROPE-2 Shape/2": lambda x: rotate_half(x, computed_bounds),
        "ROPE-2 Shape/2, Casts": lambda x: rotate_half(x, computed_bounds_cast),
    }
    for rotation, rotate in rotations.items():
        expected = refused("Gather|part|Concat|Neg", or_only=[rope()]) if rotation == "Gather" else [rope()]
        for name, product in sums.items() if rotation == "Neg(Slice)" else list(sums.items())[:1]:
            yield case(f"ROPE-1 {rotation}, {name}", lambda g: rotate_with(g, rotate, product), expected)
    for opset in (11, 13, 17, 20, 23):
        for name, parts in {"Slice": slices, "Split": split, "computed bounds": computed_bounds}.items():
            yield case(f"ROPE-1 {name}",
                       lambda g: rotated(q(g), *tables(g), lambda x: rotate_half(x, parts)), [rope()],
                       opset=opset)
    yield case("ROPE-1", lambda g: rotated(q(g), *tables(g)), [rope()], constants="node")
    for dtype in (F16, BF16):
        yield case("ROPE-1 in T", lambda g: rotated(q(g), *tables(g)), [rope()], dtype=dtype)
        yield case("ROPE-1 in f32, cast back",
                   lambda g: cast(rotated(cast(q(g), F32), *tables(g, dtype=F32)), dtype), [rope(stash_type=F32)],
                   dtype=dtype)
        yield case("ROPE-1 tables cast to T",
                   lambda g: rotated(q(g), *[cast(t, dtype) for t in tables(g, dtype=F32)]), [rope()],
                   dtype=dtype)
    yield case("ROPE-1 one head", lambda g: rotated(q(g, 1), *tables(g)), [rope()])
    yield case("ROPE-1 tables are [1, S, D]", lambda g: rotated(q(g), *tables(g, lead=(1,))), [rope()])
    yield case("ROPE-1 q scaled in front", lambda g: rotated(q(g) * 0.25, *tables(g)), [rope()])
    yield case("ROPE-1 scaled behind", lambda g: rotated(q(g), *tables(g)) * 0.25, [rope()])
    yield case("ROPE-1 norm in front", lambda g: rotated(rms_norm(q(g), g.weight("w", [D])), *tables(g)),
               [rms(), rope()])
    yield case("ROPE-1 norm behind", lambda g: rms_norm(rotated(q(g), *tables(g)), g.weight("w", [D])),
               [rope(), rms()])
    for factor in (0.5, 1.5):  # attention_scaling, beside the product
        yield case(f"ROPE-1 tables times {factor}", lambda g: rotated(q(g), *[t * factor for t in tables(g)]),
                   [rope()])
    yield case("ROPE-16 local function", function_wrapped, [rope()])


def rotate_with(g, rotate, product):
    x = q(g)
    cos, sin = tables(g)
    return product(x, rotate(x), cos, sin)


def computed_bounds(x):
    """ROPE-2: the bound from the shape of x."""
    width = op("Gather", op("Shape", x), x.graph.constant(3, I64))
    half = unsqueeze(op("Div", width, x.graph.constant(2, I64)), [0])
    return op("Slice", x, [0], half, [3], [1]), op("Slice", x, half, [LAST], [3], [1])


def computed_bounds_cast(x):
    width = op("Gather", op("Shape", x), x.graph.constant(3, I64))
    half = unsqueeze(cast(cast(op("Div", width, x.graph.constant(2, I64)), I64), I64), [0])
    return op("Slice", x, [0], half, [3], [1]), op("Slice", x, half, [LAST], [3], [1])


def function_wrapped(g):
    rotate = g.function("pkg.transformers.4", "RotaryEmbedding", lambda inner, x, cos, sin: rotated(x, cos, sin),
                        [F32] * 3)
    return rotate(q(g), *tables(g))


def pairs_of_heads():
    """q and k: one node where they use the same tables."""
    def two(g, k_heads=2, share=True):
        cos, sin = tables(g)
        other = (cos, sin) if share else tables(g)
        return rotated(q(g), cos, sin), rotated(q(g, k_heads, "k"), *other)

    yield case("ROPE-1 q and k", lambda g: two(g, N), [rope()])
    yield case("ROPE-1 q and k, fewer heads", two, [rope()])
    yield case("ROPE-1 q and k, one head", lambda g: two(g, 1), [rope()])
    yield case("ROPE-1 q and k, equal tables stored twice", lambda g: two(g, share=False),
               either([rope()], [rope(), rope()]))
    yield case("ROPE-1 q and k, tables of their own", other_tables, [rope(), rope()])
    yield case("ROPE-1 k from the rotated q", dependent, [rope(), rope()])
    yield case("ROPE-1 q and k in f16", two, [rope()], dtype=F16)


def other_tables(g):
    cos, sin = tables(g)
    return rotated(q(g), cos, sin), rotated(q(g, 2, "k"), cos * 1.5, sin * 1.5)


def dependent(g):
    cos, sin = tables(g)
    first = rotated(q(g), cos, sin)
    return first, rotated(first * 2, cos, sin)


def halves():
    """ROPE-3: two products a half, tables of half the width."""
    parts = {
        "Slice": slices, "Split": split, "Split by sizes": lambda x: split(x, [HALF, HALF]),
        "SplitToSequence": sequence
    }
    for opset in (13, 18, 20):
        for name, of in parts.items():
            yield case(f"ROPE-3 {name}",
                       lambda g: two_term(q(g), *tables(g, width=HALF, kind="half"), of), [rope(table="half")],
                       opset=opset)
    for dtype in (F16, BF16):
        yield case("ROPE-3 in T",
                   lambda g: two_term(q(g), *tables(g, width=HALF, kind="half")), [rope(table="half")],
                   dtype=dtype)
        yield case("ROPE-3 in f32",
                   lambda g: cast(two_term(cast(q(g), F32), *tables(g, width=HALF, kind="half", dtype=F32)), dtype),
                   [rope(table="half", stash_type=F32)],
                   dtype=dtype)
    yield case("ROPE-3 sin*x1 first", lambda g: two_term_swapped(q(g), *tables(g, width=HALF, kind="half")),
               [rope(table="half")])
    # Each half with its own half of a full table, whose halves are equal.
    yield case("ROPE-3 full tables", full_tables, either([rope()], [rope(table="half")]))
    yield case("ROPE-3 q and k", lambda g: half_pair(g), [rope(table="half")])
    yield case("ROPE-3 ONNX function body", onnx_body, [rope(table="half", layout="BSND")])


def sequence(x):
    parts = op("SplitToSequence", x, x.graph.constant(HALF, I64), axis=-1)
    parts.dtype = x.dtype
    return tuple(op("SequenceAt", parts, x.graph.constant(i, I64)) for i in range(2))


def two_term_swapped(x, cos, sin):
    low, high = slices(x)
    return concat(cos * low - sin * high, sin * low + cos * high)


def full_tables(g):
    x = q(g)
    (c1, c2), (s1, s2) = (slices(t) for t in tables(g))
    low, high = slices(x)
    return concat(low * c1 - high * s1, high * c2 + low * s2)


def half_pair(g):
    cos, sin = tables(g, width=HALF, kind="half")
    return two_term(q(g), cos, sin), two_term(q(g, 2, "k"), cos, sin)


def onnx_body(g):
    """As the body of RotaryEmbedding: x [B, N, S, D] to [B, S, N, D] and back, tables [B, S, 1, D/2]."""
    x = transpose(q(g), [0, 2, 1, 3])
    cos, sin = (unsqueeze(t, [2]) for t in tables(g, width=HALF, kind="half", lead=(1,)))
    return transpose(two_term(x, cos, sin), [0, 2, 1, 3])


def interleaved():
    """ROPE-4, and ROPE-8, which is not."""
    for opset in (13, 18, 20):
        yield case("ROPE-4",
                   lambda g: rotated(q(g), *tables(g, kind="pairs"), rotate_pairs), [rope(interleaved=1)],
                   opset=opset)
    yield case("ROPE-4 Flatten shape computed", lambda g: rotated(q(g), *tables(g, kind="pairs"), rotate_pairs_shape),
               [rope(interleaved=1)])
    yield case("ROPE-4 q and k", pairs_pair, [rope(interleaved=1)])
    for dtype in (F16, BF16):
        yield case("ROPE-4 Cohere, f32",
                   lambda g: cast(rotated(cast(q(g), F32), *tables(g, kind="pairs", dtype=F32), rotate_pairs), dtype),
                   [rope(interleaved=1, stash_type=F32)],
                   dtype=dtype)
        yield case("ROPE-4 in T",
                   lambda g: rotated(q(g), *tables(g, kind="pairs"), rotate_pairs), [rope(interleaved=1)],
                   dtype=dtype)
    # DeepSeek: the pairs are sorted into halves, which stay so; the permutation is kept.
    yield case("ROPE-8", lambda g: rotated(deinterleaved(q(g)), *tables(g)), [rope()])
    yield case("ROPE-8 q and one k head", deepseek, [rope()])


def pairs_pair(g):
    cos, sin = tables(g, kind="pairs")
    return rotated(q(g), cos, sin, rotate_pairs), rotated(q(g, 2, "k"), cos, sin, rotate_pairs)


def rotate_pairs_shape(x):
    even, odd = cut(x, 0, step=2), cut(x, 1, step=2)
    stacked = concat(unsqueeze(-odd, [-1]), unsqueeze(even, [-1]))
    shape = op("Concat", op("Slice", op("Shape", stacked), [0], [3], [0]), [-1], axis=0)
    return op("Reshape", stacked, shape)


def deinterleaved(x):
    return reshape(transpose(reshape(x, [0, 0, 0, HALF, 2]), [0, 1, 2, 4, 3]), [0, 0, 0, D])


def deepseek(g):
    cos, sin = tables(g)
    return rotated(deinterleaved(q(g)), cos, sin), rotated(deinterleaved(q(g, 1, "k")), cos, sin)


def partial():
    """ROPE-5, ROPE-6: the first or the last R of D."""
    r = HALF

    def front(rotate, kind, parts):
        def build(g):
            turned, passed = parts(q(g))
            return concat(rotated(turned, *tables(g, width=r, kind=kind), rotate), passed)

        return build

    parts = {
        "Slice": lambda x: (cut(x, 0, r), cut(x, r, LAST)), "Split": lambda x: split(x, [r, D - r]),
        "ROPE-6 end D": lambda x: (cut(x, 0, r), cut(x, r, D))
    }
    inner_half = lambda x: rotate_half(x, lambda v: slices(v, r // 2))
    for opset in (13, 18):
        for name, of in parts.items():
            yield case(f"ROPE-6 {name}", front(inner_half, "halves", of), [rope(rotary_dim=r)], opset=opset)
            yield case(f"ROPE-5 {name}",
                       front(pairs_of(r), "pairs", of), [rope(rotary_dim=r, interleaved=1)],
                       opset=opset)
    yield case("ROPE-6 two-term", two_term_partial, [rope(rotary_dim=r, table="half")])
    yield case("ROPE-6 R = 2 of 8", lambda g: partial_of(g, 2), [rope(rotary_dim=2)])
    yield case("ROPE-6 R = 6 of 8", lambda g: partial_of(g, 6), [rope(rotary_dim=6)])
    yield case("ROPE-6 q and k", partial_pair, [rope(rotary_dim=r)])
    yield case("ROPE-6 the tail", tail, [rope(rotary_dim=r, rotary_offset=D - r)])
    yield case("ROPE-6 in f16", front(inner_half, "halves", parts["Slice"]), [rope(rotary_dim=r)], dtype=F16)
    yield case("ROPE-6 f32 rotation in f16", partial_f32, [rope(rotary_dim=r, stash_type=F32)], dtype=F16)
    # DeepSeek: the rotated part is a value of its own, the other comes from elsewhere.
    yield case("ROPE-6 near: nope part from elsewhere", nope, [rope(rotary_dim=D)])


def pairs_of(r):
    def rotate(x):
        even, odd = cut(x, 0, step=2), cut(x, 1, step=2)
        return reshape(concat(unsqueeze(-odd, [-1]), unsqueeze(even, [-1])), [0, 0, 0, r])

    return rotate


def partial_of(g, r):
    x = q(g)
    rotate = lambda v: rotate_half(v, lambda u: slices(u, r // 2))
    return concat(rotated(cut(x, 0, r), *tables(g, width=r), rotate), cut(x, r, LAST))


def partial_pair(g):
    r = HALF
    cos, sin = tables(g, width=r)
    rotate = lambda v: rotate_half(v, lambda u: slices(u, r // 2))
    return tuple(concat(rotated(cut(x, 0, r), cos, sin, rotate), cut(x, r, LAST)) for x in (q(g), q(g, 2, "k")))


def two_term_partial(g):
    x, r = q(g), HALF
    return concat(two_term(cut(x, 0, r), *tables(g, width=r // 2, kind="half"), lambda v: slices(v, r // 2)),
                  cut(x, r, LAST))


def tail(g):
    x, r = q(g), HALF
    rotate = lambda v: rotate_half(v, lambda u: slices(u, r // 2))
    return concat(cut(x, 0, D - r), rotated(cut(x, D - r, LAST), *tables(g, width=r), rotate))


def partial_f32(g):
    x, r = q(g), HALF
    rotate = lambda v: rotate_half(v, lambda u: slices(u, r // 2))
    return concat(cast(rotated(cast(cut(x, 0, r), F32), *tables(g, width=r, dtype=F32), rotate), F16), cut(x, r, LAST))


def nope(g):
    return concat(g.input("nope", ["B", N, "S", 16]), rotated(q(g), *tables(g)))


def complex_product():
    """ROPE-7: llama4's complex product, x [B, S, N, D] and a table [.., S, 1, D/2, 2] of (cos, sin)."""
    expected = [rope(interleaved=1, table="half", layout="BSND", stash_type=F32)]
    yield case("ROPE-7", llama4, expected)
    yield case("ROPE-7", llama4, expected, dtype=F16)
    yield case("ROPE-7", llama4, expected, dtype=BF16)
    yield case("ROPE-7 q and k", lambda g: llama4(g, pair=True), expected)


def llama4(g, pair=False):
    f = angles()
    freqs = g.constant(np.stack([np.cos(f), np.sin(f)], -1).reshape(1, S, 1, HALF, 2), F32, "freqs_cis")

    def turn(x, heads):
        pairs = reshape(cast(x, F32), [0, 0, heads, HALF, 2])
        a, b, c, d = cut(pairs, 0, 1), cut(pairs, 1, 2), cut(freqs, 0, 1), cut(freqs, 1, 2)
        product = concat(a * c - b * d, a * d + b * c)
        return cast(reshape(product, [0, 0, heads, D]), g.dtype)

    x = g.input("q", ["B", S, N, D], feed=normal(g, 2, S, N, D))
    if not pair:
        return turn(x, N)
    return turn(x, N), turn(g.input("k", ["B", S, 2, D], feed=normal(g, 2, S, 2, D)), 2)


def layouts():
    """ROPE-10 [S, N, D], ROPE-15 [B, S, N, D], ROPE-9 (its tables are in cos_sin.py), ROPE-11."""
    bsnd = lambda g, heads=N, name="q": g.input(name, ["B", S, heads, D], feed=normal(g, 2, S, heads, D))
    snd = lambda g, heads=N, name="q": g.input(name, [S, heads, D], feed=normal(g, S, heads, D))
    yield case("ROPE-15", lambda g: rotated(bsnd(g), *[unsqueeze(t, [2]) for t in tables(g, lead=(1,))]),
               [rope(layout="BSND")])
    yield case("ROPE-15 q and k", lambda g: layout_pair(g, bsnd, 2), [rope(layout="BSND")])
    yield case(
        "ROPE-15 two-term",
        lambda g: two_term(bsnd(g), *[unsqueeze(t, [2]) for t in tables(g, width=HALF, kind="half", lead=(1,))]),
        [rope(layout="BSND", table="half")])
    yield case("ROPE-15 Transpose behind",
               lambda g: transpose(rotated(bsnd(g), *[unsqueeze(t, [2]) for t in tables(g, lead=(1,))]), [0, 2, 1, 3]),
               [rope(layout="BSND")])
    yield case("ROPE-10", lambda g: rotated(snd(g), *[unsqueeze(t, [1]) for t in tables(g, lead=())]),
               [rope(layout="SND")])
    yield case("ROPE-10 q and k", lambda g: layout_pair(g, snd, 1), [rope(layout="SND")])
    yield case("ROPE-10 in f32",
               lambda g: cast(rotated(cast(snd(g), F32), *[unsqueeze(t, [1])
                                                           for t in tables(g, lead=(), dtype=F32)]), g.dtype),
               [rope(layout="SND", stash_type=F32)],
               dtype=F16)
    yield case("ROPE-11 sign in the table", sign_folded, refused("Neg|sign|negat", or_only=[rope(table="half")]))


def layout_pair(g, of, axis):
    cos, sin = (unsqueeze(t, [axis]) for t in tables(g, lead=(1,) if axis == 2 else ()))
    return rotated(of(g), cos, sin), rotated(of(g, 2, "k"), cos, sin)


def sign_folded(g):
    x = q(g)
    f = np.concatenate([angles(), angles()], -1).reshape(1, 1, S, D)
    sign = np.repeat([-1.0, 1.0], HALF)
    low, high = slices(x)
    return x * g.constant(np.cos(f)) + concat(high, low) * g.constant(np.sin(f) * sign)


def operators():
    """ROPE-12, 13, 14: operators that ONNX Runtime computes itself; ours, or counted as already fused."""
    for inter in (0, 1):
        fused = [rope(table="half", interleaved=inter)]
        yield case(f"ROPE-12 RotaryEmbedding, interleaved {inter}",
                   lambda g: standard(g, interleaved=inter),
                   refused(or_only=fused),
                   already=["RotaryEmbedding"],
                   opset=23)
        yield case(f"ROPE-13 com.microsoft.RotaryEmbedding, interleaved {inter}",
                   lambda g: microsoft(g, interleaved=inter),
                   refused(or_only=fused),
                   already=["RotaryEmbedding"])
    yield case("ROPE-12 position ids",
               lambda g: standard(g, ids=True),
               refused(or_only=[rope(table="half")]),
               already=["RotaryEmbedding"],
               opset=23)
    yield case("ROPE-12 rank 3",
               rank_three,
               refused(or_only=[rope(table="half", layout="BSND")]),
               already=["RotaryEmbedding"],
               opset=23)
    yield case("ROPE-12 partial",
               lambda g: standard(g, rotary_embedding_dim=HALF),
               refused(or_only=[rope(table="half", rotary_dim=HALF)]),
               already=["RotaryEmbedding"],
               opset=23)
    yield case("ROPE-13 RotaryEmbedding in front of GroupQueryAttention",
               lambda g: attention(g, rotary=True),
               refused(),
               already=["RotaryEmbedding"],
               run="")
    yield case("ROPE-14 GroupQueryAttention with do_rotary",
               lambda g: attention(g, do_rotary=1),
               refused(),
               already=["GroupQueryAttention"],
               run="")


def cache(g, width=HALF):
    f = angles(width)
    return g.constant(np.cos(f), name="cos_cache"), g.constant(np.sin(f), name="sin_cache")


def positions(g):
    return g.input("position_ids", ["B", "S"], I64, np.tile(np.arange(S), (2, 1)))


def standard(g, ids=False, **attributes):
    width = attributes.get("rotary_embedding_dim", D) // 2
    if ids:
        return op("RotaryEmbedding", q(g), *cache(g, width), positions(g), **attributes)
    f = angles(width)
    cos, sin = (g.constant(np.tile(t(f), (2, 1, 1))) for t in (np.cos, np.sin))
    return op("RotaryEmbedding", q(g), cos, sin, **attributes)


def rank_three(g):
    x = g.input("q", ["B", S, N * D], feed=normal(g, 2, S, N * D))
    return op("RotaryEmbedding", x, *cache(g), positions(g), num_heads=N)


def microsoft(g, **attributes):
    return op("RotaryEmbedding", q(g), positions(g), *cache(g), domain=MICROSOFT, **attributes)


def attention(g, rotary=False, **attributes):
    size = N * D
    states = [g.input(name, ["B", "S", size]) for name in ("q", "k", "v")]
    if rotary:
        ids = positions(g)
        states[:2] = [op("RotaryEmbedding", v, ids, *cache(g), domain=MICROSOFT, num_heads=N) for v in states[:2]]
    past = [g.input(name, ["B", N, 0, D]) for name in ("past_key", "past_value")]
    lengths = g.constant([S - 1, S - 1], 6), g.constant(S, 6)
    tables_ = cache(g) if attributes else ()
    return op("GroupQueryAttention",
              *states,
              *past,
              *lengths,
              *tables_,
              domain=MICROSOFT,
              outputs=3,
              num_heads=N,
              kv_num_heads=N,
              **attributes)


def near_misses():
    near = lambda name, build, *reasons, **more: case(f"ROPE near: {name}", build, refused(*reasons, **more))
    with_tables = lambda formula, **kind: (lambda g: formula(q(g), *tables(g, **kind)))
    # The inverse rotation is one with the negative of sin; that is a value only if the graph holds it.
    yield near("Concat(x2, -x1), the inverse rotation",
               with_tables(lambda x, c, s: x * c + concat(cut(x, HALF, LAST), -cut(x, 0, HALF)) * s),
               "Neg|negative|part|Concat|low|high",
               or_only=[rope()])
    yield case("ROPE-1 with -sin", with_tables(lambda x, c, s: rotated(x, c, -s)), [rope()])
    yield near("Concat(x1, -x2)",
               with_tables(lambda x, c, s: x * c + concat(cut(x, 0, HALF), -cut(x, HALF, LAST)) * s),
               "Neg|negative|part|Concat")
    yield near("slices not at D/2", with_tables(lambda x, c, s: x * c + concat(-cut(x, 2, LAST), cut(x, 0, 2)) * s),
               "part|Slice|Concat")
    yield near("slices overlap",
               with_tables(lambda x, c, s: x * c + concat(-cut(x, HALF, LAST), cut(x, 1, HALF + 1)) * s),
               "part|Slice|Concat")
    yield near("slice axis 1", lambda g: axis_one(g), "part|Slice|axis|Concat")
    yield near(
        "cos and sin swapped in the second half",
        with_tables(lambda x, c, s: (lambda low, high: concat(low * c - high * s, high * s + low * c))(*slices(x)),
                    width=HALF,
                    kind="half"), "cos|sin|one place")
    yield near("x differs between the products", lambda g: different_x(g), "one place|part|x is")
    yield near("other tables for the halves", lambda g: other_halves(g), "cos|sin|one place|factor")
    yield near("rotate_half on tables of pairs", with_tables(rotated, kind="pairs"), "rotary_tables|halves")
    yield near("rotation of pairs on tables of halves", with_tables(lambda x, c, s: rotated(x, c, s, rotate_pairs)),
               "rotary_tables|halves|pairs")
    yield near("halves that nobody can prove equal", lambda g: unproved(g), "rotary_tables|halves")
    yield near("halves of a constant table that differ", lambda g: halves_differ(g), "rotary_tables|halves differ")
    yield near("partial with a gap", lambda g: gap(g), "part|Slice|Concat|shape|rotary", or_only=[rope(rotary_dim=2)])
    yield near("tables per head", lambda g: per_head(g), "rotary_tables|broadcast")
    yield case("ROPE near: tables per batch", lambda g: per_batch(g), [rope(table="half")])
    yield case("ROPE near: xPos, other tables for k", other_tables, [rope(), rope()])
    yield case(
        "ROPE near: axial, halves rotated by tables of their own", axial,
        either([rope(rotary_dim=HALF), rope(rotary_dim=HALF)],
               [rope(rotary_dim=HALF, rotary_offset=HALF),
                rope(rotary_dim=HALF)]))
    yield near("x*cos - rotate(x)*sin, the inverse rotation",
               lambda g: rotated_sub(g),
               "Sub|Add|sin|expected",
               or_only=[rope()])
    yield near("tables that enlarge the batch", enlarging, "rotary_tables|batch|enlarge|broadcast")
    yield near("an odd rotary part", odd, "part|odd|Concat|Slice")
    yield near("the rotation is read elsewhere", lambda g: rotation_used(g), "inner_value_used")


def axis_one(g):
    x = q(g)
    rotation = concat(-cut(x, 2, LAST, 1), cut(x, 0, 2, 1), axis=1)
    cos, sin = tables(g)
    return x * cos + rotation * sin


def different_x(g):
    x, other = q(g), q(g, name="other")
    cos, sin = tables(g)
    return x * cos + rotate_half(other) * sin


def other_halves(g):
    low, high = slices(q(g))
    (c, s), (c2, s2) = tables(g, width=HALF, kind="half"), [t * 0.5 for t in tables(g, width=HALF, kind="half")]
    return concat(low * c - high * s, high * c2 + low * s2)


def unproved(g):
    cos, sin = (
        g.input(name, [1, 1, "S", D], feed=np.tile(angles(), 2).reshape(1, 1, S, D)) for name in ("cos", "sin"))
    return rotated(q(g), cos, sin)


def halves_differ(g):
    f = angles(D).reshape(1, 1, S, D)
    return rotated(q(g), g.constant(np.cos(f)), g.constant(np.sin(f)))


def gap(g):
    x = q(g)
    rotate = lambda v: rotate_half(v, lambda u: slices(u, 1))
    return concat(rotated(cut(x, 0, 2), *tables(g, width=2), rotate), cut(x, 4, LAST))


def enlarging(g):
    """x [1, N, S, D], tables [B, 1, S, D]."""
    f = np.tile(angles(), 2)
    cos, sin = (g.input(name, ["B", 1, "S", D], feed=t(np.stack([f, f + 1])).reshape(2, 1, S, D))
                for name, t in (("cos", np.cos), ("sin", np.sin)))
    return rotated(g.input("q", [1, N, "S", D], feed=normal(g, 1, N, S, D)), cos, sin)


def odd(g):
    """Three of eight: there are no two halves."""
    x = q(g)
    cos, sin = (g.constant(np.ones((1, 1, S, 3)) * 0.5) for _ in range(2))
    part = cut(x, 0, 3)
    return concat(rotated(part, cos, sin, lambda v: concat(-cut(v, 1, LAST), cut(v, 0, 1))), cut(x, 3, LAST))


def per_head(g):
    cos, sin = (
        op("Mul", t, g.constant(np.ones((1, N, 1, 1)) * np.arange(1, N + 1).reshape(1, N, 1, 1))) for t in tables(g))
    return rotated(q(g), cos, sin)


def per_batch(g):
    cos, sin = (g.input(name, ["B", 1, "S", HALF], feed=t(np.stack([angles(), angles() + 1])).reshape(2, 1, S, HALF))
                for name, t in (("cos", np.cos), ("sin", np.sin)))
    return two_term(q(g), cos, sin)


def axial(g):
    """2-D: the first half of a head by rows, the second by columns."""
    x = q(g)
    rotate = lambda v: rotate_half(v, lambda u: slices(u, HALF // 2))
    rows, columns = tables(g, width=HALF), [t * 1.5 for t in tables(g, width=HALF)]
    return concat(rotated(cut(x, 0, HALF), *rows, rotate), rotated(cut(x, HALF, LAST), *columns, rotate))


def rotated_sub(g):
    x = q(g)
    cos, sin = tables(g)
    return x * cos - rotate_half(x) * sin


def rotation_used(g):
    x = q(g)
    cos, sin = tables(g)
    rotation = rotate_half(x)
    return x * cos + rotation * sin, rotation
