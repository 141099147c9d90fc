#!/usr/bin/env python3
"""Times the CUDA kernels against their floor and against what else there is, in one run.

    bench_cuda.py --library build/kernels/lib/libliger_bench.so [--filter TEXT] [--only-ours] [--json FILE]

Every provider runs on the same buffers, captured in a CUDA graph that rotates over several sets of them: far more
than the second-level cache holds for the large shapes, eight sets in cache for the decode shapes. A row is the median
of many replays, divided by the calls of one. The floor is the fastest of the copy kernels in floor.cu that read and
write the same buffers. Others: Liger-Kernel (Triton), torch.compile of the plain formula, torch's own function.

Before anything is timed each provider is held against the formula in f64 on fresh random data, in outputs that were
poisoned; what differs by more than its dtype allows is an error of this program.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

EPSILON = 1e-6
L2_BYTES = 60 << 20
DTYPES = {torch.float32: 1, torch.float16: 10, torch.bfloat16: 16}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}

P, I64, I32, F32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [(field, kind) for kind, names in fields for field in names.split()]})


RmsNormArgs = struct("RmsNormArgs", (P, "x residual scale y sum"), (I64, "rows hidden_size"),
                     (I32, "dtype scale_dtype stash_type scale_type"), (F32, "epsilon offset"))
LayerNormArgs = struct("LayerNormArgs", (P, "x residual scale bias y sum"), (I64, "rows hidden_size"),
                       (I32, "dtype scale_dtype stash_type scale_type"), (F32, "epsilon"))
GroupNormArgs = struct("GroupNormArgs", (P, "x scale bias y"), (I64, "batch channels spatial num_groups"),
                       (I32, "dtype scale_dtype stash_type scale_type"), (F32, "epsilon"))
RopeArgs = struct("RopeArgs", (P, "x second_x cos sin y second_y"),
                  (I64, "batch sequence heads second_heads head_dim rotary_dim rotary_offset cos_batch_stride "
                        "cos_sequence_stride sin_batch_stride sin_sequence_stride"),
                  (I32, "dtype table_dtype stash_type layout interleaved full_table"))
SwiGluArgs = struct("SwiGluArgs", (P, "gate up y"), (I64, "rows width"), (I32, "dtype stash_type packed"),
                    (F32, "alpha gate_multiplier limit up_offset"))
GeGluArgs = struct("GeGluArgs", (P, "gate up y"), (I64, "rows width"), (I32, "dtype stash_type packed form"),
                   (F32, "limit up_offset"))
SoftmaxArgs = struct("SoftmaxArgs", (P, "x y"), (I64, "rows width"), (I32, "dtype stash_type"))


class Library:
    """The launch functions, on torch's current stream."""

    def __init__(self, path):
        self.dll = ctypes.CDLL(path)

    def launch(self, name, args):
        status = getattr(self.dll, name)(ctypes.byref(args), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if status != 0:
            raise RuntimeError(f"{name}: status {status}")

    def copy(self, variant, reads, writes):
        bytes_ = reads[0].numel() * reads[0].element_size()
        status = self.dll.LigerBenchCopy(
            variant, len(reads), len(writes), (P * len(reads))(*(t.data_ptr() for t in reads)),
            (P * len(writes))(*(t.data_ptr() for t in writes)), I64(bytes_),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if status != 0:
            raise RuntimeError(f"copy: CUDA error {status}")

    def nothing(self):
        self.dll.LigerBenchNothing(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


def fill(kind, tensors, **numbers):
    args = kind(**numbers)
    for name, tensor in tensors.items():
        setattr(args, name, tensor.data_ptr() if tensor is not None else None)
    return args


class Case:
    """One row of the table. A subclass makes sets of buffers and says how providers work on one of them."""

    in_place = False
    native = liger = None

    def __init__(self, name, shape, dtype=torch.bfloat16, bar=None, micro=None):
        self.name, self.shape, self.dtype, self.bar, self.micro = name, shape, dtype, bar, micro
        self.large = micro is None

    def random(self, *shape, scale=1.0):
        return torch.randn(*shape, device="cuda", dtype=torch.float32).mul_(scale).to(self.dtype)

    def title(self):
        kind = "" if self.dtype == torch.bfloat16 else " f16" if self.dtype == torch.float16 else " f32"
        return f"{self.name}{kind} {'x'.join(map(str, self.shape))}"


class RmsNorm(Case):
    def buffers(self):
        rows, width = self.shape
        return {"x": self.random(rows, width), "w": self.random(width), "y": torch.empty(rows, width, device="cuda", dtype=self.dtype)}

    def outputs(self, b):
        return [b["y"]]

    def moved(self, b):
        return [b["x"]], [b["y"]]

    def args(self, b):
        rows, width = self.shape
        code = DTYPES[self.dtype]
        return fill(RmsNormArgs, {"x": b["x"], "scale": b["w"], "y": b["y"], "residual": b.get("r"), "sum": b.get("s")},
                    rows=rows, hidden_size=width, dtype=code, scale_dtype=code, stash_type=1, scale_type=code,
                    epsilon=EPSILON)

    def ours(self, library, b):
        args = self.args(b)
        return lambda: library.launch("LigerCudaRmsNorm", args)

    def formula(self, x, w):
        h = x.float()
        return ((h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * w,)

    def inputs(self, b):
        return b["x"], b["w"]

    def reference(self, b):
        h = b["x"].double()
        return [h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPSILON) * b["w"].double()]

    def liger(self, b):
        from liger_kernel.ops.rms_norm import rms_norm_forward
        return lambda: rms_norm_forward(b["x"], b["w"], EPSILON, 0.0, "llama", None)[0]

    def native(self, b):
        return lambda: F.rms_norm(b["x"], (self.shape[1],), b["w"], EPSILON)


class AddRmsNorm(RmsNorm):
    def buffers(self):
        b = super().buffers()
        return {**b, "r": self.random(*self.shape), "s": torch.empty_like(b["x"])}

    def outputs(self, b):
        return [b["y"], b["s"]]

    def moved(self, b):
        return [b["x"], b["r"]], [b["y"], b["s"]]

    def formula(self, x, w, r):
        s = x + r
        return (*super().formula(s, w), s)

    def inputs(self, b):
        return b["x"], b["w"], b["r"]

    def reference(self, b):
        s = b["x"] + b["r"]
        return [*super().reference({**b, "x": s}), s.double()]

    def liger(self, b):
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
        return lambda: fused_add_rms_norm_forward(b["x"], b["r"], b["w"], EPSILON, 0.0, "llama")[:2]

    native = None


class LayerNorm(Case):
    def buffers(self):
        return {"x": self.random(*self.shape), "w": self.random(self.shape[1]), "b": self.random(self.shape[1]),
                "y": torch.empty(*self.shape, device="cuda", dtype=self.dtype)}

    def outputs(self, b):
        return [b["y"]]

    def moved(self, b):
        return [b["x"]], [b["y"]]

    def ours(self, library, b):
        rows, width = self.shape
        code = DTYPES[self.dtype]
        args = fill(LayerNormArgs, {"x": b["x"], "scale": b["w"], "bias": b["b"], "y": b["y"], "residual": b.get("r"),
                                    "sum": b.get("s")}, rows=rows, hidden_size=width, dtype=code, scale_dtype=code,
                    stash_type=1, scale_type=1, epsilon=EPSILON)
        return lambda: library.launch("LigerCudaLayerNorm", args)

    def formula(self, x, w, bias):
        h = x.float()
        mean = h.mean(-1, keepdim=True)
        variance = (h - mean).square().mean(-1, keepdim=True)
        return (((h - mean) * torch.rsqrt(variance + EPSILON) * w.float() + bias.float()).to(x.dtype),)

    def inputs(self, b):
        return b["x"], b["w"], b["b"]

    def reference(self, b):
        return [F.layer_norm(b["x"].double(), (self.shape[1],), b["w"].double(), b["b"].double(), EPSILON)]

    def liger(self, b):
        from liger_kernel.ops.layer_norm import layer_norm_forward
        return lambda: layer_norm_forward(b["x"], b["w"], b["b"], EPSILON)[0]

    def native(self, b):
        return lambda: F.layer_norm(b["x"], (self.shape[1],), b["w"], b["b"], EPSILON)


class AddLayerNorm(LayerNorm):
    def buffers(self):
        b = super().buffers()
        return {**b, "r": self.random(*self.shape), "s": torch.empty_like(b["x"])}

    def outputs(self, b):
        return [b["y"], b["s"]]

    def moved(self, b):
        return [b["x"], b["r"]], [b["y"], b["s"]]

    def formula(self, x, w, bias, r):
        s = x + r
        return (*super().formula(s, w, bias), s)

    def inputs(self, b):
        return b["x"], b["w"], b["b"], b["r"]

    def reference(self, b):
        s = b["x"] + b["r"]
        return [*super().reference({**b, "x": s}), s.double()]

    liger = native = None


class Gated(Case):
    def buffers(self):
        return {"g": self.random(*self.shape, scale=2.0), "u": self.random(*self.shape),
                "y": torch.empty(*self.shape, device="cuda", dtype=self.dtype)}

    def outputs(self, b):
        return [b["y"]]

    def moved(self, b):
        return [b["g"], b["u"]], [b["y"]]

    def inputs(self, b):
        return b["g"], b["u"]

    def formula(self, g, u):
        return (self.activation(g.float()).to(g.dtype) * u,)

    def reference(self, b):
        return [self.activation(b["g"].double()) * b["u"].double()]

    native = None


class SwiGlu(Gated):
    activation = staticmethod(F.silu)

    def ours(self, library, b):
        code = DTYPES[self.dtype]
        args = fill(SwiGluArgs, {"gate": b["g"], "up": b["u"], "y": b["y"]}, rows=self.shape[0], width=self.shape[1],
                    dtype=code, stash_type=1, alpha=1, gate_multiplier=1)
        return lambda: library.launch("LigerCudaSwiGlu", args)

    def liger(self, b):
        from liger_kernel.ops.swiglu import swiglu_forward
        return lambda: swiglu_forward(b["g"], b["u"])[-1]


class PackedSwiGlu(SwiGlu):
    def buffers(self):
        rows, width = self.shape
        p = self.random(rows, 2 * width, scale=2.0)
        return {"p": p, "y": torch.empty(rows, width, device="cuda", dtype=self.dtype)}

    def moved(self, b):
        flat, half = b["p"].view(-1), b["y"].numel()
        return [flat[:half], flat[half:]], [b["y"]]

    def inputs(self, b):
        return (b["p"],)

    def formula(self, p):
        return super().formula(*p.chunk(2, -1))

    def reference(self, b):
        g, u = b["p"].double().chunk(2, -1)
        return [F.silu(g) * u]

    def ours(self, library, b):
        code = DTYPES[self.dtype]
        args = fill(SwiGluArgs, {"gate": b["p"], "up": None, "y": b["y"]}, rows=self.shape[0], width=self.shape[1],
                    dtype=code, stash_type=1, packed=1, alpha=1, gate_multiplier=1)
        return lambda: library.launch("LigerCudaSwiGlu", args)

    def liger(self, b):
        from liger_kernel.ops.swiglu import swiglu_fused_gate_up_forward
        return lambda: swiglu_fused_gate_up_forward(b["p"])[1]


class GeGlu(Gated):
    form, approximate = 0, "tanh"

    def activation(self, g):
        return F.gelu(g, approximate=self.approximate)

    def ours(self, library, b):
        code = DTYPES[self.dtype]
        args = fill(GeGluArgs, {"gate": b["g"], "up": b["u"], "y": b["y"]}, rows=self.shape[0], width=self.shape[1],
                    dtype=code, stash_type=1, form=self.form)
        return lambda: library.launch("LigerCudaGeGlu", args)

    def liger(self, b):
        from liger_kernel.ops.geglu import geglu_forward
        return lambda: geglu_forward(b["g"], b["u"])[-1]


class ExactGeGlu(GeGlu):
    form, approximate = 1, "none"
    liger = None


class Softmax(Case):
    def buffers(self):
        x = self.random(*self.shape, scale=3.0)
        return {"x": x, "y": torch.empty_like(x)}

    def outputs(self, b):
        return [b["y"]]

    def moved(self, b):
        return [b["x"]], [b["y"]]

    def inputs(self, b):
        return (b["x"],)

    def ours(self, library, b):
        args = fill(SoftmaxArgs, {"x": b["x"], "y": b["y"]}, rows=self.shape[0], width=self.shape[1],
                    dtype=DTYPES[self.dtype], stash_type=1)
        return lambda: library.launch("LigerCudaSoftmax", args)

    def formula(self, x):
        return (torch.softmax(x, -1),)

    def reference(self, b):
        return [torch.softmax(b["x"].double(), -1)]

    def liger(self, b):
        if self.shape[1] > 65536:
            raise ValueError("refuses more than 65536 columns")
        from liger_kernel.ops.softmax import _softmax_forward
        return lambda: _softmax_forward(b["x"])[0]

    def native(self, b):
        return lambda: torch.softmax(b["x"], -1)


class GroupNorm(Case):
    groups = 32

    def buffers(self):
        x = self.random(*self.shape)
        return {"x": x, "w": self.random(self.shape[1]), "b": self.random(self.shape[1]), "y": torch.empty_like(x)}

    def outputs(self, b):
        return [b["y"]]

    def moved(self, b):
        return [b["x"]], [b["y"]]

    def inputs(self, b):
        return b["x"], b["w"], b["b"]

    def ours(self, library, b):
        batch, channels, spatial = self.shape
        code = DTYPES[self.dtype]
        args = fill(GroupNormArgs, {"x": b["x"], "scale": b["w"], "bias": b["b"], "y": b["y"]}, batch=batch,
                    channels=channels, spatial=spatial, num_groups=self.groups, dtype=code, scale_dtype=code,
                    stash_type=1, scale_type=1, epsilon=EPSILON)
        return lambda: library.launch("LigerCudaGroupNorm", args)

    def formula(self, x, w, bias):
        return (F.group_norm(x, self.groups, w, bias, EPSILON),)

    def reference(self, b):
        return [F.group_norm(b["x"].double(), self.groups, b["w"].double(), b["b"].double(), EPSILON)]

    def liger(self, b):
        from liger_kernel.ops.group_norm import group_norm_forward
        return lambda: group_norm_forward(b["x"], self.shape[1], self.groups, b["w"], b["b"], EPSILON)[0]

    def native(self, b):
        return lambda: F.group_norm(b["x"], self.groups, b["w"], b["b"], EPSILON)


class Rope(Case):
    """Queries and keys, [batch, sequence, heads, head_dim]: shape is batch, sequence, query heads, key heads, head_dim."""

    heads_first = False

    def layout(self, batch, sequence, heads, dim):
        return (batch, heads, sequence, dim) if self.heads_first else (batch, sequence, heads, dim)

    def buffers(self):
        batch, sequence, heads, keys, dim = self.shape
        q = self.random(*self.layout(batch, sequence, heads, dim))
        k = self.random(*self.layout(batch, sequence, keys, dim))
        angles = torch.rand(1, sequence, dim // 2, device="cuda") * 6
        angles = torch.cat((angles, angles), -1)
        # One piece of memory for q and k, so that the floor copies exactly their bytes.
        b = {"q": q, "k": k, "cos": angles.cos().to(self.dtype), "sin": angles.sin().to(self.dtype)}
        b["y"], b["z"] = (q, k) if self.in_place else (torch.empty_like(q), torch.empty_like(k))
        size = q.numel() + k.numel()
        b["floor_in"], b["floor_out"] = (torch.empty(size, device="cuda", dtype=self.dtype) for _ in range(2))
        return b

    def outputs(self, b):
        return [b["y"], b["z"]]

    def moved(self, b):
        return [b["floor_in"]], [b["floor_in"] if self.in_place else b["floor_out"]]

    def inputs(self, b):
        return b["q"], b["k"], b["cos"], b["sin"]

    def ours(self, library, b):
        batch, sequence, heads, keys, dim = self.shape
        code = DTYPES[self.dtype]
        args = fill(RopeArgs, {"x": b["q"], "second_x": b["k"], "cos": b["cos"], "sin": b["sin"], "y": b["y"],
                               "second_y": b["z"]}, batch=batch, sequence=sequence, heads=heads, second_heads=keys,
                    head_dim=dim, rotary_dim=dim, cos_sequence_stride=dim, sin_sequence_stride=dim, dtype=code,
                    table_dtype=code, stash_type=1, layout=0 if self.heads_first else 1, full_table=1)
        return lambda: library.launch("LigerCudaRope", args)

    def formula(self, q, k, cos, sin):
        axis = 1 if self.heads_first else 2
        cos, sin = cos.unsqueeze(axis), sin.unsqueeze(axis)

        def rotate(x):
            a, b = x.chunk(2, -1)
            return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)

        return rotate(q), rotate(k)

    def reference(self, b):
        return list(self.formula(*(t.double() for t in self.inputs(b))))

    def liger(self, b):
        if self.heads_first or not self.in_place:
            raise ValueError("works in place on [batch, sequence, heads, head_dim]")
        from liger_kernel.ops.rope import rope_forward
        return lambda: rope_forward(b["q"].transpose(1, 2), b["k"].transpose(1, 2), b["cos"], b["sin"])[:2]

    native = None


class RopeInPlace(Rope):
    in_place = True


class RopeHeadsFirst(Rope):
    heads_first = True


def table():
    f16, f32 = torch.float16, torch.float32
    for kind, name, bars in ((RmsNorm, "RMSNorm", (1.05, 1.05, 1.06)), (AddRmsNorm, "AddRMSNorm", (1.05, 1.05, 1.06)),
                             (LayerNorm, "LayerNorm", (1.06, 1.06, 1.06)),
                             (AddLayerNorm, "AddLayerNorm", (1.06, 1.06, 1.06))):
        for shape, bar in zip(((32768, 2048), (16384, 4096), (8192, 8192)), bars):
            yield kind(name, shape, bar=bar)
    yield RmsNorm("RMSNorm", (524288, 128), bar=1.05)
    yield RmsNorm("RMSNorm", (16384, 4096), f16)
    yield RmsNorm("RMSNorm", (16384, 4096), f32)
    yield SwiGlu("SwiGLU", (4736, 14336), bar=1.03)
    yield GeGlu("GeGLU tanh", (4736, 14336), bar=1.03)
    yield ExactGeGlu("GeGLU exact", (4736, 14336), bar=1.03)
    yield PackedSwiGlu("SwiGLU packed", (4736, 14336))
    yield SwiGlu("SwiGLU", (4736, 14336), f16)
    yield SwiGlu("SwiGLU", (4736, 14336), f32)
    yield Rope("Rope", (4, 4096, 32, 8, 128), bar=1.05)
    yield RopeInPlace("Rope in place", (4, 4096, 32, 8, 128), bar=1.05)
    yield RopeHeadsFirst("Rope heads first", (4, 4096, 32, 8, 128))
    yield Softmax("Softmax", (16384, 4096), bar=1.05)
    yield Softmax("Softmax", (4096, 32000), bar=1.10)
    yield Softmax("Softmax", (4096, 128256), bar=1.12)
    yield GroupNorm("GroupNorm", (32, 512, 4096), bar=1.3)
    yield GroupNorm("GroupNorm", (16, 512, 4096))
    for kind, name, micros in ((RmsNorm, "RMSNorm", (1.4, 0, 1.7)), (AddRmsNorm, "AddRMSNorm", (1.5, 0, 1.75)),
                               (LayerNorm, "LayerNorm", (1.5, 0, 1.75)), (AddLayerNorm, "AddLayerNorm", (0, 0, 0))):
        for rows, micro in zip((1, 8, 64), micros):
            yield kind(name, (rows, 4096), micro=micro)
    for rows, micro in ((1, 1.4), (8, 0), (64, 1.7)):
        yield RopeInPlace("Rope in place", (rows, 1, 32, 8, 128), micro=micro)
    for kind, name in ((SwiGlu, "SwiGLU"), (GeGlu, "GeGLU tanh"), (ExactGeGlu, "GeGLU exact")):
        for rows, micro in ((1, 1.2), (8, 1.2), (64, 2.0)):
            yield kind(name, (rows, 14336), micro=micro)
    for rows, micro in ((1, 0), (8, 0), (64, 4.1)):
        yield Softmax("Softmax", (rows, 32000), micro=micro)
    yield Softmax("Softmax", (1, 4096), micro=0)
    yield Softmax("Softmax", (1, 128256), micro=0)


def difference(actual, expected):
    """The largest relative L2 distance of the outputs."""
    worst = 0.0
    for a, e in zip(actual, expected, strict=True):
        distance = (a.double() - e).norm() / e.norm()
        worst = max(worst, distance.item() if bool(torch.isfinite(a).all()) else math.inf)
    return worst


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def microseconds(calls, replays, keeps=False):
    """Median over the replays of a graph of these calls, for one call."""
    stream = torch.cuda.Stream()
    kept = []  # outputs of large calls, so that each has its own
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            result = call()
            if keeps:
                kept.append(result)
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) * 1000 / len(calls) for start, end in times]
    return statistics.median(times)


class Bench:
    def __init__(self, options):
        self.options = options
        self.library = Library(options.library)

    def providers(self, case):
        """name -> function of a set of buffers that gives a call."""
        yield "ours", lambda b: case.ours(self.library, b)
        if self.options.only_ours:
            return
        if case.liger is not None:
            yield "Liger", case.liger
        if not self.options.no_compile:
            torch._dynamo.reset()  # else shapes compiled before count against its limit
            formula = torch.compile(case.formula, dynamic=False)
            yield "compile", lambda b: lambda: formula(*case.inputs(b))
        if case.native is not None:
            yield "native", case.native

    def run(self, case):
        set_bytes = sum(t.numel() * t.element_size() for t in case.buffers().values())
        if case.large:
            sets = max(4, math.ceil(4 * L2_BYTES / set_bytes))
            calls, replays = 6 * sets, 9
        else:
            sets, calls, replays = 8, 960, 15
        buffers = [case.buffers() for _ in range(sets)]
        if not case.large:  # one place for the outputs, so that all inputs stay in cache
            for b in buffers[1:]:
                b.update({name: buffers[0][name] for name in ("y", "z", "s", "floor_out") if name in b and not case.in_place})
        row = {"case": case.title(), "bar": case.bar, "micro": case.micro}

        def timed(make):
            functions = [make(b) for b in buffers]
            return microseconds([functions[i % sets] for i in range(calls)], replays, case.large)

        for name, make in self.providers(case):
            try:
                row[name + " error"] = self.check(case, name, make)
                row[name] = timed(make)
            except Exception as failure:  # a provider that cannot do it is no reason to lose the others
                if name == "ours":
                    raise
                row[name + " fails"] = f"{type(failure).__name__}: {failure}"[:200]
                torch.cuda.synchronize()
        moved = [case.moved(b) for b in buffers]
        row["floor"] = min(timed_copy for variant in range(4) for timed_copy in [
            microseconds([lambda m=moved[i % sets]: self.library.copy(variant, *m) for i in range(calls)], replays)])
        return row

    def check(self, case, name, make):
        torch.manual_seed(time.time_ns() % 2**31)
        b = case.buffers()
        expected = case.reference(b)
        if name == "ours" and not (isinstance(case, Rope) and case.in_place):
            for output in case.outputs(b):
                output.fill_(math.nan)
        result = make(b)()
        torch.cuda.synchronize()
        actual = case.outputs(b) if name == "ours" else as_list(result)
        if isinstance(case, Rope) and name == "Liger":
            actual = [t.transpose(1, 2) for t in actual]
        distance = difference(actual, expected)
        if name == "ours" and not distance <= TOLERANCE[case.dtype]:
            raise AssertionError(f"{case.title()}: relative L2 distance {distance:.2e}")
        return distance


OTHERS = ("Liger", "compile", "native")


def verdict(row):
    if row["bar"]:
        return "met" if row["ours"] / row["floor"] <= row["bar"] + 0.005 else "**missed**"
    if row["micro"]:
        return "met" if row["ours"] <= row["micro"] + 0.005 else "**missed**"
    return ""


def line(row):
    bar = f"{row['bar']}" if row["bar"] else f"{row['micro']} us" if row["micro"] else ""
    others = [f"{row['ours'] / row[name]:.2f}" if name in row else "-" for name in OTHERS]
    errors = [f"{row[name + ' error']:.1e}" if name + " error" in row else "-" for name in ("ours", "Liger")]
    return "| " + " | ".join([row["case"], f"{row['ours']:.2f}", f"{row['ours'] / row['floor']:.3f}", bar, verdict(row),
                              *others, *errors]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libliger_bench.so")
    parser.add_argument("--filter", default="", help="only rows whose name holds one of these texts, with commas between")
    parser.add_argument("--only-ours", action="store_true", help="our kernels and the floor")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which takes most of the time")
    parser.add_argument("--json", help="write the rows there as well")
    options = parser.parse_args()

    bench = Bench(options)
    print(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")
    nothing = microseconds([bench.library.nothing] * 960, 15)
    print(f"an empty kernel in a graph: {nothing:.2f} us\n")
    print("| op | ours us | / floor | bar | | / Liger | / compile | / native | error ours | Liger |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows, failed = [], 0
    for case in table():
        if not any(text in case.title() for text in options.filter.split(",")):
            continue
        try:
            row = bench.run(case)
        except Exception as failure:
            failed += 1
            print(f"| {case.title()} | FAILED {type(failure).__name__}: {str(failure)[:300]} |", flush=True)
            continue
        rows.append(row)
        print(line(row), flush=True)
        torch.cuda.empty_cache()
    for row in rows:
        for name in OTHERS:
            if name + " fails" in row:
                print(f"{row['case']}: {name}: {row[name + ' fails']}")
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"device": torch.cuda.get_device_name(), "empty": nothing, "rows": rows}, out, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
