"""Where the rotary tables come from, CS-1 to CS-10: what proves that their halves (or their pairs) are equal."""
import numpy as np
from onnx import helper

from case import case, refused, rope
from graph import (BF16, F16, F32, I64, SIZES, cast, concat, cut, op, reshape, split, squeeze, transpose, unsqueeze)
from rope import D, HALF, N, angles, normal, q, rotate_pairs, rotated, two_term

S = SIZES["S"]
LENGTH = 16  # positions in a table


def positions(g, shape=("B", "S")):
    feed = np.array(np.broadcast_to(np.arange(S), [SIZES.get(d, d) for d in shape]))
    if len(shape) == 3:  # time, height, width
        feed += np.arange(3).reshape(3, 1, 1)
    return g.input("position_ids", list(shape), I64, feed)


def frequencies(g, factor=1.0):
    return 10000.0**(-np.arange(HALF) / HALF) * factor


def outer(g, ids, inv_freq=None, expand=False):
    """[B, S, HALF]: inv_freq [1, h, 1] @ position_ids [B, 1, S], transposed."""
    inv_freq = frequencies(g) if inv_freq is None else inv_freq
    column = g.constant(inv_freq.reshape(1, HALF, 1), F32, "inv_freq")
    if expand:
        batch = op("Slice", op("Shape", ids), [0], [1], [0])
        column = op("Expand", column, op("Concat", batch, [HALF], [1], axis=0))
    return transpose(column @ cast(unsqueeze(ids, [1]), F32), [0, 2, 1])


def on_the_fly(g, scaling=None, **how):
    f = outer(g, positions(g), **how)
    both = concat(f, f)
    tables = [op("Cos", both), op("Sin", both)]
    if scaling is not None:
        tables = [t * scaling for t in tables]
    return [unsqueeze(cast(t, g.dtype) if g.dtype != F32 else t, [1]) for t in tables]


def turned(tables, rotation=rotated, heads=True):
    """q and k by the same tables."""
    def build(g):
        cos, sin = tables(g)
        return (rotation(q(g), cos, sin), rotation(q(g, 2, "k"), cos, sin)) if heads else rotation(q(g), cos, sin)

    return build


def pairs_rotated(x, cos, sin):
    """rotate_every_two with the heads left to a computed shape."""
    return rotated(x, cos, sin, rotate_pairs)


def cases():
    yield from computed()
    yield from stored()
    yield from repeated()
    yield from selected()
    yield from near_misses()


def computed():
    """CS-1, CS-6."""
    for opset in (11, 13, 17, 20, 23):
        yield case("CS-1", turned(on_the_fly), [rope()], opset=opset)
    for dtype in (F16, BF16):
        yield case("CS-1 cast to T", turned(on_the_fly), [rope()], dtype=dtype)
    yield case("CS-1 expanded", turned(lambda g: on_the_fly(g, expand=True)), [rope()])
    yield case("CS-1 scaling 1.0", turned(lambda g: on_the_fly(g, scaling=1.0)), [rope()])
    yield case("CS-1 scaling 1.19", turned(lambda g: on_the_fly(g, scaling=1.19)), [rope()])
    yield case("CS-1 scaling 1.19", turned(lambda g: on_the_fly(g, scaling=1.19)), [rope()], dtype=F16)
    yield case("CS-1 scaling 0.5", turned(lambda g: on_the_fly(g, scaling=0.5)), [rope()])
    yield case("CS-1 Reshapes around the product", turned(reshaped), [rope()])
    yield case("CS-1 positions [S]", turned(vector_positions), [rope()])
    yield case("CS-1 Range", turned(from_range), [rope()])
    yield case("CS-1 Unsqueeze for each layer", per_layer_unsqueeze, [rope()])
    yield case("CS-1 Unsqueeze in front of Cast", turned(unsqueeze_then_cast), [rope()], dtype=F16)
    yield case("CS-1 Concat of Cos and Cos", turned(concat_of_cos), [rope()])
    yield case("CS-6 Mul",
               turned(lambda g: halves_of(cast(unsqueeze(positions(g), [-1]), F32) * g.constant(frequencies(g), F32))),
               [rope()])
    yield case("CS-6 Einsum", turned(einsum), [rope()])
    yield case("CS-6 MatMul", turned(column_times_row), [rope()])


def halves_of(f):
    both = concat(f, f)
    return [unsqueeze(op("Cos", both), [1]), unsqueeze(op("Sin", both), [1])]


def reshaped(g):
    f = outer(g, positions(g))
    return halves_of(op("Reshape", f, op("Shape", f)))


def vector_positions(g):
    return halves_of(outer(g, unsqueeze(positions(g, ("S",)), [0])))


def from_range(g):
    length = squeeze(op("Slice", op("Shape", g.input("tokens", ["B", "S"], I64, np.zeros((2, S)))), [1], [2], [0]),
                     [0])
    ids = op("Range", g.constant(0, I64), length, g.constant(1, I64))
    return halves_of(outer(g, unsqueeze(ids, [0])))


def per_layer_unsqueeze(g):
    f = outer(g, positions(g))
    both = concat(f, f)
    cos, sin = op("Cos", both), op("Sin", both)
    return tuple(rotated(x, unsqueeze(cos, [1]), unsqueeze(sin, [1])) for x in (q(g), q(g, 2, "k")))


def unsqueeze_then_cast(g):
    return [cast(t, g.dtype) for t in halves_of(outer(g, positions(g)))]


def concat_of_cos(g):
    f = outer(g, positions(g))
    return [unsqueeze(concat(t, t), [1]) for t in (op("Cos", f), op("Sin", f))]


def einsum(g):
    ids = cast(positions(g, ("S",)), F32)
    f = op("Einsum", ids, g.constant(frequencies(g), F32), equation="i,j->ij")
    return halves_of(unsqueeze(f, [0]))


def column_times_row(g):
    ids = unsqueeze(cast(positions(g, ("S",)), F32), [1])
    return halves_of(unsqueeze(ids @ g.constant(frequencies(g).reshape(1, HALF), F32), [0]))


def stored():
    """CS-2, CS-3, CS-4."""
    yield case("CS-2 constant tables", turned(lambda g: constant(g, (1, 1, S, D))), [rope()])
    yield case("CS-2 constant angles", turned(lambda g: constant_angles(g)), [rope()])
    yield case("CS-3 Gather", turned(gathered), [rope()])
    yield case("CS-3 Gather", turned(gathered), [rope()], dtype=F16)
    yield case("CS-3 Slice, Squeeze, Gather", turned(old_llama), [rope()])
    yield case("CS-4 half width", turned(half_width, two_term), [rope(table="half")])
    yield case("CS-4 Gather from half width", turned(lambda g: gathered(g, HALF), two_term), [rope(table="half")])
    yield case("CS-4 Gather from half width, Concat", turned(gathered_concat), [rope()])


def table(width, t):
    f = np.arange(LENGTH)[:, None] * 10000.0**(-np.arange(HALF) / HALF)
    return t(np.concatenate([f, f], -1) if width == D else f)


def constant(g, shape):
    return [g.constant(table(D, t)[:S].reshape(shape)) for t in (np.cos, np.sin)]


def constant_angles(g):
    return halves_of(g.constant(angles().reshape(1, S, HALF), name="angles"))


def gathered(g, width=D):
    ids = positions(g)
    return [unsqueeze(op("Gather", g.constant(table(width, t), name="cache"), ids), [1]) for t in (np.cos, np.sin)]


def gathered_concat(g):
    ids = positions(g)
    parts = [op("Gather", g.constant(table(HALF, t), name="cache"), ids) for t in (np.cos, np.sin)]
    return [unsqueeze(concat(p, p), [1]) for p in parts]


def old_llama(g):
    ids = positions(g)
    length = op("Slice", op("Shape", ids), [1], [2], [0])

    def of(t):
        cache = g.constant(table(D, t).reshape(1, 1, LENGTH, D), name="cache")
        rows = squeeze(squeeze(op("Slice", cache, [0], length, [2], [1]), [1]), [0])
        return unsqueeze(op("Gather", rows, ids), [1])

    return of(np.cos), of(np.sin)


def half_width(g):
    f = outer(g, positions(g))
    return [unsqueeze(t, [1]) for t in (op("Cos", f), op("Sin", f))]


def repeated():
    """CS-5, CS-7: equal pairs."""
    expected = [rope(interleaved=1)]
    yield case("CS-5 Unsqueeze, Expand, Reshape", turned(lambda g: repeat(g, expand), pairs_rotated), expected)
    yield case("CS-5 Unsqueeze, Tile, Reshape", turned(lambda g: repeat(g, tile), pairs_rotated), expected)
    yield case("CS-5 stack, flatten", turned(lambda g: repeat(g, stack), pairs_rotated), expected)
    yield case("CS-5 Gather 0, 0, 1, 1", turned(lambda g: repeat(g, by_index), pairs_rotated), expected)
    yield case("CS-5 of the tables' first half", turned(glm4, pairs_rotated), expected)
    yield case("CS-7 polar", polar, [rope(interleaved=1, table="half", layout="BSND")])


def repeat(g, how):
    f = how(outer(g, positions(g)))
    return [unsqueeze(t, [1]) for t in (op("Cos", f), op("Sin", f))]


def expand(f):
    return reshape(op("Expand", unsqueeze(f, [-1]), [1, 1, 1, 2]), [0, 0, D])


def tile(f):
    return reshape(op("Tile", unsqueeze(f, [-1]), [1, 1, 1, 2]), [0, 0, D])


def stack(f):
    return reshape(concat(unsqueeze(f, [-1]), unsqueeze(f, [-1])), [0, 0, D])


def by_index(f):
    return op("Gather", f, list(np.repeat(np.arange(HALF), 2)), axis=-1)


def glm4(g):
    """cos[..., : h] repeated, as GLM-4 and Cohere write it."""
    return [unsqueeze(expand(cut(squeeze(t, [1]), 0, HALF)), [1]) for t in halves_of(outer(g, positions(g)))]


def polar(g):
    """cos and sin as the last axis of one value, times a scaling; the complex product of llama4."""
    f = outer(g, positions(g))
    parts = [unsqueeze(t * g.constant(np.ones((1, 1, HALF))), [-1]) for t in (op("Cos", f), op("Sin", f))]
    freqs = unsqueeze(concat(*parts), [2])
    pairs = reshape(g.input("q", ["B", "S", N, D], feed=normal(g, 2, S, N, D)), [0, 0, N, HALF, 2])
    a, b, c, d = cut(pairs, 0, 1), cut(pairs, 1, 2), cut(freqs, 0, 1), cut(freqs, 1, 2)
    return reshape(concat(a * c - b * d, a * d + b * c), [0, 0, N, D])


def selected():
    """CS-8, CS-9, CS-10."""
    # What the bodies of an If give is not looked into.
    yield case("CS-8 If between two caches", turned(longrope), refused("rotary_tables.*halves"))
    yield case("CS-8 offset into one cache", turned(offset_trick), [rope()])
    yield case("CS-8 Where between two frequencies", turned(dynamic_ntk), [rope()])
    yield case("CS-9 mrope, Split and Gather", turned(mrope), [rope()])
    yield case("CS-9 mrope, interleaved by Where", turned(mrope_where), [rope()])
    yield case("CS-10 two thetas", two_thetas, [rope(), rope()])


def longrope(g):
    ids = positions(g)
    long = op("Greater", op("ReduceMax", ids, keepdims=0), g.constant(8, I64))
    bodies = []
    for factor in (1.0, 2.0):
        body = g.body()
        tables = [
            body.constant(np.tile(t(np.arange(LENGTH)[:, None] * frequencies(g, factor)), 2)) for t in (np.cos, np.sin)
        ]
        bodies.append((body, [op("Identity", t) for t in tables]))
    caches = op("If",
                long,
                outputs=2,
                dtype=F32,
                **{
                    branch: graph_proto(body, results, branch)
                    for branch, (body, results) in zip(("then_branch", "else_branch"), bodies)
                })
    return [unsqueeze(op("Gather", c, ids), [1]) for c in caches]


def graph_proto(body, results, name):
    outputs = [helper.make_tensor_value_info(r.name, r.dtype, None) for r in results]
    return helper.make_graph(body.nodes, name, [], outputs, body.initializers)


def offset_trick(g):
    """Positions of long inputs point into the second half of the cache."""
    ids = positions(g)
    long = cast(op("Greater", op("ReduceMax", ids, keepdims=1), g.constant(8, I64)), I64)
    caches = [np.concatenate([table(D, t), table(D, t) * 0.5]) for t in (np.cos, np.sin)]
    return [unsqueeze(op("Gather", g.constant(c, name="cache"), ids + long * LENGTH), [1]) for c in caches]


def dynamic_ntk(g):
    ids = positions(g)
    long = op("Greater", op("ReduceMax", ids, keepdims=1), g.constant(8, I64))
    near, far = (outer(g, ids, frequencies(g, factor)) for factor in (1.0, 0.5))
    return halves_of(op("Where", unsqueeze(long, [0]), far, near))


def mrope_angles(g):
    """[3, B, S, D/2]"""
    ids = positions(g, (3, "B", "S"))
    column = g.constant(frequencies(g).reshape(1, 1, HALF, 1), F32, "inv_freq")
    return transpose(column @ cast(unsqueeze(ids, [2]), F32), [0, 1, 3, 2])


def mrope(g):
    f = mrope_angles(g)
    both = concat(f, f)
    sections = [1, 1, 2] * 2

    def chosen(t):
        parts = split(t, sections)
        return unsqueeze(concat(*[op("Gather", p, g.constant(i % 3, I64), axis=0) for i, p in enumerate(parts)]), [1])

    return chosen(op("Cos", both)), chosen(op("Sin", both))


def mrope_where(g):
    f = mrope_angles(g)
    t, h, w = (op("Gather", f, g.constant(i, I64), axis=0) for i in range(3))
    mask = lambda kind: op("Equal", g.constant(np.arange(HALF) % 3, I64), g.constant(kind, I64))
    return halves_of(op("Where", mask(1), h, op("Where", mask(2), w, t)))


def two_thetas(g):
    ids = positions(g)
    local, wide = (halves_of(outer(g, ids, frequencies(g, factor))) for factor in (1.0, 0.125))
    return rotated(q(g), *local), rotated(q(g, N, "q_of_next_layer"), *wide)


def near_misses():
    near = lambda name, tables, *reasons, rotation=rotated: case(
        f"CS near: {name}", turned(tables, rotation, heads=False), refused(*reasons))
    yield near("halves of other angles", lambda g: halves_of_two(g), "rotary_tables|halves")
    yield near("halves in a gathered cache differ", lambda g: differing_cache(g), "rotary_tables|halves")
    yield near("pairs instead of halves", lambda g: repeat(g, expand), "rotary_tables|halves")
    yield near("halves instead of pairs", on_the_fly, "rotary_tables|pairs|halves", rotation=pairs_rotated)
    yield near("mrope sections that differ between the halves", lambda g: uneven_mrope(g), "rotary_tables|halves")
    # Only one of the two is scaled: no rotation of unit length, but what the op computes from its tables all the same.
    yield case("CS only cos is scaled", turned(lambda g: scaled_cos(g)), [rope()])


def halves_of_two(g):
    ids = positions(g)
    both = concat(outer(g, ids), outer(g, ids, frequencies(g, 0.5)))
    return unsqueeze(op("Cos", both), [1]), unsqueeze(op("Sin", both), [1])


def differing_cache(g):
    ids = positions(g)
    f = np.arange(LENGTH)[:, None] * 10000.0**(-np.arange(D) / D)
    return [unsqueeze(op("Gather", g.constant(t(f), name="cache"), ids), [1]) for t in (np.cos, np.sin)]


def uneven_mrope(g):
    f = mrope_angles(g)
    both = concat(f, f)

    def chosen(t):
        parts = split(t, [1, 1, 2, 2, 1, 1])
        return unsqueeze(concat(*[op("Gather", p, g.constant(i % 3, I64), axis=0) for i, p in enumerate(parts)]), [1])

    return chosen(op("Cos", both)), chosen(op("Sin", both))


def scaled_cos(g):
    cos, sin = on_the_fly(g)
    return cos * 1.5, sin
