"""A case: one graph, and what liger-patch must say and make of it.

    case("RMS-3 Pow", lambda g: ..., [rms()])                        # fused into one LigerRMSNorm with these attributes
    case("RMS eps outside", lambda g: ..., refused("Add|Sqrt"))      # nothing fused, and a reason that fits

`fused` is a list of ops with all of their attributes: rms(), add_rms(), layer_norm(), ... below; "T" stands for the
dtype of the graph. A reason is a regular expression for "guard: reason" of an entry among missed, degraded and
near_misses, "already fused: entry" of an operator that stays with a reason, or "excluded: operator" of a loss op. A
refusal without a reason is a graph in which nothing resembles the op by the operators that make it rare, so that nobody
waits for a word about it.
"""
import dataclasses
import itertools

from graph import BF16, F32, NAMES, Graph

_numbers = itertools.count()
DTYPE_ATTRIBUTES = ("stash_type", "scale_type")


@dataclasses.dataclass
class Case:
    name: str
    prefix: str  # of all names in the model
    model: object
    feeds: dict
    dtype: int
    fused: list
    others: list  # lists of ops that may be fused instead; then no reason is needed
    reasons: list
    already: list
    modules: str
    arguments: list
    run: str  # "ort", "reference" (ONNX's evaluator, without the library), or "" (structure only)
    precision: str
    tolerance: float


@dataclasses.dataclass
class Refused:
    """Nothing is fused but `fused`, and for each of `reasons` an entry says it; or one of `others` is fused."""
    reasons: tuple
    fused: tuple = ()
    others: tuple = ()


def refused(*reasons, fused=(), or_only=None):
    return Refused(reasons, tuple(fused), () if or_only is None else (or_only,))


def either(one, *others):
    """Ops that compute the same function."""
    return Refused((), tuple(one), others)


def case(name,
         build,
         expected,
         *,
         opset=18,
         dtype=F32,
         constants="initializer",
         modules=None,
         arguments=(),
         run=None,
         already=(),
         precision=None,
         tolerance=None):
    """Builds the graph at once. `already`: ops that the report must count as already fused."""
    graph = Graph(opset, dtype, constants, f"c{next(_numbers)}_")
    outputs = build(graph)
    name = f"{name}, opset {opset}, {NAMES[dtype]}" + (", Constant nodes" if constants == "node" else "")
    reasons = list(expected.reasons) if isinstance(expected, Refused) else []
    fused = list(expected.fused) if isinstance(expected, Refused) else list(expected)
    if run is None:
        run = "reference" if dtype == BF16 else "ort"
    return Case(name, graph.prefix, graph.model(outputs), graph.feeds, dtype, fused,
                list(getattr(expected, "others", ())), reasons, list(already), modules, list(arguments), run,
                precision, tolerance)


# The ops with every attribute, at its usual value.


def rms(epsilon=1e-6, offset=0, stash_type=F32, scale_type="T", op="LigerRMSNorm"):
    return op, {"epsilon": epsilon, "offset": offset, "stash_type": stash_type, "scale_type": scale_type}


def add_rms(**attributes):
    return rms(op="LigerAddRMSNorm", **attributes)


def layer_norm(epsilon=1e-5, stash_type=F32, scale_type="T", op="LigerLayerNorm"):
    return op, {"epsilon": epsilon, "stash_type": stash_type, "scale_type": scale_type}


def add_layer_norm(**attributes):
    return layer_norm(op="LigerAddLayerNorm", **attributes)


def rope(rotary_dim=8, layout="BNSD", table="full", interleaved=0, rotary_offset=0, stash_type="T"):
    return "LigerRope", {
        "rotary_dim": rotary_dim, "layout": layout, "table": table, "interleaved": interleaved,
        "rotary_offset": rotary_offset, "stash_type": stash_type
    }


def swiglu(packed="none", alpha=1, gate_multiplier=1, limit=0, up_offset=0, stash_type="T"):
    return "LigerSwiGLU", {
        "packed": packed, "alpha": alpha, "gate_multiplier": gate_multiplier, "limit": limit, "up_offset": up_offset,
        "stash_type": stash_type
    }


def geglu(approximate, packed="none", limit=0, up_offset=0, stash_type="T"):
    return "LigerGeGLU", {
        "approximate": approximate, "packed": packed, "limit": limit, "up_offset": up_offset, "stash_type": stash_type
    }


def softmax_op(stash_type="T"):
    return "LigerSoftmax", {"stash_type": stash_type}


def group_norm(groups, epsilon=1e-5):
    return "LigerGroupNorm", {"num_groups": groups, "epsilon": epsilon}
