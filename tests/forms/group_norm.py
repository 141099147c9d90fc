"""GroupNorm: statistics over each group of channels, GN-1 to GN-6; patched only when asked for."""
import numpy as np

from case import case, either, group_norm, layer_norm, refused
from graph import F16, F32, I64, MICROSOFT, mean, op, reshape, silu, sqrt, unsqueeze

G, C = 2, 4  # groups, channels
EPS = 1e-5
SHAPE = ["B", C, 3, 3]
ON = {"modules": "group_norm=on"}


def image(g):
    return g.input("x", SHAPE, feed=g.random.standard_normal((2, C, 3, 3)) * np.array([1, 1e-3]).reshape(2, 1, 1, 1))


def affine(g):
    return g.weight("w", [C, 1, 1]), g.weight("b", [C, 1, 1])


def cases():
    yield from by_instance_norm()
    yield from operators()
    yield from decomposed()
    yield from near_misses()


def instance_norm(x, scale=None, bias=None, eps=EPS, groups=G):
    g = x.graph
    scale = np.ones(groups) if scale is None else scale
    bias = np.zeros(groups) if bias is None else bias
    return op("InstanceNormalization", reshape(x, [0, groups, -1]), g.constant(scale), g.constant(bias), epsilon=eps)


def simulated(g, back, **how):
    x = image(g)
    w, b = affine(g)
    return back(instance_norm(x, **how), x) * w + b


def by_shape(y, x):
    return op("Reshape", y, op("Shape", x))


def by_instance_norm():
    """GN-1 and GN-6 on top of it: a GroupNorm of Reshapes around an InstanceNormalization, which is left alone."""
    def left_alone(name, build, **more):
        return case(name, build, refused(), **ON, **more)

    for opset in (11, 13, 17, 18, 20):
        yield left_alone("GN-1 Reshape to Shape(x)", lambda g: simulated(g, by_shape), opset=opset)
    yield left_alone("GN-1 Reshape to a constant", lambda g: simulated(g, lambda y, x: reshape(y, [0, C, 3, 3])))
    yield left_alone("GN-1 weights through Unsqueeze", unsqueezed_weights)
    yield left_alone("GN-1 weights through Unsqueeze of Range", range_weights)
    yield left_alone("GN-1 one group", lambda g: simulated(g, by_shape, groups=1))
    yield left_alone("GN-1", lambda g: simulated(g, by_shape), dtype=F16)
    yield left_alone("GN-6 SiLU behind", with_silu)


def unsqueezed_weights(g):
    x = image(g)
    w, b = (unsqueeze(g.weight(n, [C]), [1, 2]) for n in "wb")
    return by_shape(instance_norm(x), x) * w + b


def range_weights(g):
    x = image(g)
    axes = op("Range", g.constant(1, I64), g.constant(3, I64), g.constant(1, I64))
    w, b = (op("Unsqueeze", g.weight(n, [C]), axes) for n in "wb")
    return by_shape(instance_norm(x), x) * w + b


def with_silu(g):
    y = simulated(g, by_shape)
    return silu(y)


def operators():
    x_w_b = lambda g: (image(g), g.weight("w", [C]), g.weight("b", [C]))
    yield case("GN-3 GroupNormalization-21",
               lambda g: op("GroupNormalization", *x_w_b(g), num_groups=G, epsilon=EPS), [group_norm(G)],
               opset=21,
               **ON)
    yield case("GN-3 not asked for", lambda g: op("GroupNormalization", *x_w_b(g), num_groups=G), refused(), opset=21)
    yield case("GN-3 default eps",
               lambda g: op("GroupNormalization", *x_w_b(g), num_groups=G), [group_norm(G, 1e-5)],
               opset=21,
               **ON)
    # Scale and bias of opset 18 are per group.
    yield case("GN-2 GroupNormalization-18",
               lambda g: op("GroupNormalization", image(g), g.weight("w", [G]), g.weight("b", [G]), num_groups=G),
               refused("GroupNormalization|scale|group", or_only=[group_norm(G)]),
               run="",
               **ON)
    # ONNX Runtime's CPU provider has no kernel for it.
    yield case("GN-4 com.microsoft.GroupNorm",
               lambda g: op("GroupNorm",
                            g.input("x", ["B", 3, 3, C]),
                            g.weight("w", [C], F32),
                            g.weight("b", [C], F32),
                            domain=MICROSOFT,
                            groups=G,
                            epsilon=EPS,
                            activation=0,
                            channels_last=1),
               refused("GroupNorm", or_only=[group_norm(G)]),
               run="",
               **ON)


def decomposed():
    # Its statistics are those of a LayerNorm of the flattened groups, without an affine part.
    yield case("GN-5 [N, G, -1]", lambda g: five(g, [2, G, -1], [2]), either([group_norm(G)],
                                                                             [layer_norm(epsilon=EPS)]), **ON)
    yield case("GN-5 [N, G, C/G, H, W]", lambda g: five(g, [2, G, C // G, 3, 3], [2, 3, 4]),
               refused("last axis", or_only=[group_norm(G)]), **ON)


def five(g, grouped, axes):
    x = image(g)
    y = reshape(x, grouped)
    d = y - mean(y, axes)
    w, b = affine(g)
    return reshape(d / sqrt(mean(d * d, axes) + EPS), [2, C, 3, 3]) * w + b


def near_misses():
    near = lambda name, build, **more: case(f"GN near: {name}", build, refused(), **ON, **more)
    yield near("InstanceNormalization with a scale", lambda g: simulated(g, by_shape, scale=np.arange(1, G + 1)))
    yield near("InstanceNormalization with a bias", lambda g: simulated(g, by_shape, bias=np.ones(G)))
    yield near("a group for each channel", lambda g: simulated(g, by_shape, groups=C))
    yield near("channels last", channels_last)
    yield near("the last Reshape has another shape", other_shape)
    yield near("statistics over space only", spatial)
    yield near("InstanceNormalization alone",
               lambda g: op("InstanceNormalization", image(g), g.weight("w", [C]), g.weight("b", [C]), epsilon=EPS))
    yield case("GN-3 scale and shift behind", scale_shift, [group_norm(G)], opset=21, **ON)
    # The statistics are those of a layer norm over the flattened rows, without an affine part; the weights are not.
    yield case("GN near: one group", lambda g: five(g, [2, 1, -1], [2]),
               either([layer_norm(epsilon=EPS)], [group_norm(1)]), **ON)


def channels_last(g):
    x = g.input("x", ["B", 3, 3, C], feed=g.random.standard_normal((2, 3, 3, C)))
    return by_shape(instance_norm(x), x) * g.weight("w", [C]) + g.weight("b", [C])


def other_shape(g):
    x = image(g)
    return reshape(instance_norm(x), [2, 3, 3, C]) * g.weight("w", [C]) + g.weight("b", [C])


def spatial(g):
    x = image(g)
    d = x - mean(x, [2, 3])
    w, b = affine(g)
    return d / sqrt(mean(d * d, [2, 3]) + EPS) * w + b


def scale_shift(g):
    scale, shift = (g.input(n, ["B", C, 1, 1]) for n in ("scale", "shift"))
    norm = op("GroupNormalization", image(g), g.weight("w", [C]), g.weight("b", [C]), num_groups=G)
    return norm * (1 + scale) + shift
