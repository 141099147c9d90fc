#!/usr/bin/env python3
"""Writes a decoder of any size in the spelling of torch's dynamo exporter, with its weights in one external file.

    build/venv/bin/python tools/bench/make_large.py OUT.onnx [--layers 32 --hidden 4096 ...] [--weights sparse|random]

The defaults are the shapes of an 8B Llama in fp16. `sparse` makes the data file by truncation alone: it takes no
disk space and no time, and reads as zeros, which is enough to measure patching. `random` writes real numbers, for
running. A config.json is written beside the model. Inputs: input_ids [batch, sequence], attention_mask
[batch, total], position_ids [batch, sequence], past_key_values.N.{key,value} [batch, kv_heads, past, head_dim].

--norm says how the norms are spelt: `reciprocal` (the exporter's), `div` (Pow .. Sqrt, Div, Mul: the form that
ONNX Runtime fuses by itself), `op` (RMSNormalization, which raises the opset to 23).
"""
import argparse
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper

PACKAGE = "transformers.models.llama.modeling_llama."
END = 2**63 - 1


class Writer:
    """Nodes with the metadata the exporter gives them, and initializers that live in the data file."""

    def __init__(self, dtype, data_name):
        self.dtype = dtype
        self.item = 2 if dtype == TensorProto.FLOAT16 else 4
        self.data_name = data_name
        self.offset = 0
        self.nodes, self.initializers, self.infos, self.weights = [], [], [], []
        self.scopes = [("", PACKAGE + "LlamaForCausalLM")]
        self.counts, self.constants = {}, {}

    def scope(self, path, name):
        """Enters a module: nodes written until leave() carry its path and class."""
        self.scopes.append((path, name))

    def leave(self):
        self.scopes.pop()

    def unique(self, stem):
        count = self.counts.get(stem, 0)
        self.counts[stem] = count + 1
        return stem if count == 0 else f"{stem}_{count}"

    def op(self, op_type, inputs, stem, aten, result=None, **attributes):
        result = result or self.unique(stem)
        node = helper.make_node(op_type, inputs, [result], name=f"node_{result}", **attributes)
        names = [path for path, _ in self.scopes] + [result]
        classes = [c for _, c in self.scopes] + [aten]
        levels = [f"{n}: {c}" for n, c in zip(names, classes)]
        for key, value in (("namespace", "/".join(levels)),
                           ("pkg.torch.onnx.class_hierarchy", str(classes)),
                           ("pkg.torch.onnx.name_scopes", str(names))):
            node.metadata_props.add(key=key, value=value)
        self.nodes.append(node)
        return result

    def typed(self, name, shape, dtype=None):
        self.infos.append(helper.make_tensor_value_info(name, dtype or self.dtype, shape))
        return name

    def constant(self, values, dtype=TensorProto.INT64, dims=None):
        """Small constants stay in the model; equal ones are shared, as the exporter shares them."""
        dims = ([] if np.isscalar(values) else [len(values)]) if dims is None else dims
        key = (str(values), dtype, tuple(dims))
        if key not in self.constants:
            name = self.unique("val")
            flat = [values] if np.isscalar(values) else list(values)
            self.initializers.append(helper.make_tensor(name, dtype, dims, flat))
            self.constants[key] = name
        return self.constants[key]

    def weight(self, name, shape, scale):
        """scale 0 stands for a norm weight: ones with some spread."""
        length = int(np.prod(shape)) * self.item
        self.offset = (self.offset + 4095) // 4096 * 4096
        tensor = TensorProto(name=name, data_type=self.dtype, dims=shape,
                             data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self.data_name), ("offset", self.offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        self.weights.append((self.offset, shape, scale))
        self.offset += length
        return name


def rms_norm(w, x, path, a):
    w.scope(path, PACKAGE + "LlamaRMSNorm")
    scale = w.weight(path + ".weight", [a.hidden], 0)
    if a.norm == "op":
        y = w.op("RMSNormalization", [x, scale], "mul", "aten.mul.Tensor", axis=-1, epsilon=a.eps,
                 stash_type=1)
    else:
        wide = w.op("Cast", [x], "_to_copy", "aten._to_copy.default", to=1) if w.item == 2 else x
        square = w.op("Pow", [wide, w.constant(2.0, 1)], "pow", "aten.pow.Tensor_Scalar")
        mean = w.op("ReduceMean", [square, w.constant([-1])], "mean", "aten.mean.dim", keepdims=1,
                    noop_with_empty_axes=0)
        shifted = w.op("Add", [mean, w.constant(a.eps, 1)], "add", "aten.add.Tensor")
        root = w.op("Sqrt", [shifted], "val", "aten.rsqrt.default")
        if a.norm == "div":
            normal = w.op("Div", [wide, root], "div", "aten.div.Tensor")
        else:
            inverse = w.op("Reciprocal", [root], "rsqrt", "aten.rsqrt.default")
            normal = w.op("Mul", [wide, inverse], "mul", "aten.mul.Tensor")
        if w.item == 2:
            normal = w.op("Cast", [normal], "_to_copy", "aten._to_copy.default", to=w.dtype)
        y = w.op("Mul", [scale, normal], "mul", "aten.mul.Tensor")
    w.leave()
    return w.typed(y, ["batch", "sequence", a.hidden])


def rotate(w, x, cos, sin, heads, a):
    """x*cos + rotate_half(x)*sin"""
    half, axis, step = w.constant([a.head_dim // 2]), w.constant([3]), w.constant([1])
    direct = w.op("Mul", [x, cos], "mul", "aten.mul.Tensor")
    low = w.op("Slice", [x, w.constant([0]), half, axis, step], "slice", "aten.slice.Tensor")
    high = w.op("Slice", [x, half, w.constant([END]), axis, step], "slice", "aten.slice.Tensor")
    turned = w.op("Concat", [w.op("Neg", [high], "neg", "aten.neg.default"), low], "cat",
                  "aten.cat.default", axis=-1)
    crossed = w.op("Mul", [turned, sin], "mul", "aten.mul.Tensor")
    return w.typed(w.op("Add", [direct, crossed], "add", "aten.add.Tensor"),
                   ["batch", heads, "sequence", a.head_dim])


def linear(w, x, path, inner, outer):
    w.scope(path, "torch.nn.modules.linear.Linear")
    matrix = w.weight(w.unique("val"), [inner, outer], inner**-0.5)
    y = w.op("MatMul", [x, matrix], "linear", "aten.linear.default")
    w.leave()
    return w.typed(y, ["batch", "sequence", outer])


def attention(w, x, layer, shared, a):
    path = f"model.layers.{layer}.self_attn"
    w.scope(path, PACKAGE + "LlamaAttention")
    parts = []
    for name, heads in (("q_proj", a.heads), ("k_proj", a.kv_heads), ("v_proj", a.kv_heads)):
        flat = linear(w, x, f"{path}.{name}", a.hidden, heads * a.head_dim)
        view = w.op("Reshape", [flat, w.constant([0, 0, -1, a.head_dim])], "view", "aten.view.default")
        parts.append(w.typed(w.op("Transpose", [view], "transpose", "aten.transpose.int",
                                  perm=[0, 2, 1, 3]), ["batch", heads, "sequence", a.head_dim]))
    q = rotate(w, parts[0], shared["cos"], shared["sin"], a.heads, a)
    k = rotate(w, parts[1], shared["cos"], shared["sin"], a.kv_heads, a)
    past = f"past_key_values.{layer}."
    k = w.op("Concat", [past + "key", k], "", "aten.cat.default", f"present.{layer}.key", axis=-2)
    v = w.op("Concat", [past + "value", parts[2]], "", "aten.cat.default", f"present.{layer}.value",
             axis=-2)

    def repeat(t):
        wide = w.op("Unsqueeze", [t, w.constant([2])], "unsqueeze", "aten.unsqueeze.default")
        wide = w.op("Expand", [wide, shared["expanded"]], "expand", "aten.expand.default")
        return w.op("Reshape", [wide, shared["merged"]], "_unsafe_view", "aten._unsafe_view.default")

    sdpa = "aten.scaled_dot_product_attention.default"
    turned = w.op("Transpose", [repeat(k)], "val", sdpa, perm=[0, 1, 3, 2])
    scale = w.constant(a.head_dim**-0.25, w.dtype)
    scores = w.op("MatMul", [w.op("Mul", [q, scale], "val", sdpa),
                             w.op("Mul", [turned, scale], "val", sdpa)], "val", sdpa)
    scores = w.op("Add", [scores, shared["bias"]], "val", sdpa)
    weights = w.op("Softmax", [scores], "val", sdpa, axis=-1)
    context = w.op("MatMul", [weights, repeat(v)], "scaled_dot_product_attention", sdpa)
    context = w.op("Transpose", [context], "transpose", "aten.transpose.int", perm=[0, 2, 1, 3])
    context = w.op("Reshape", [context, w.constant([0, 0, -1])], "view", "aten.view.default")
    y = linear(w, context, path + ".o_proj", a.heads * a.head_dim, a.hidden)
    w.leave()
    return y


def mlp(w, x, layer, a):
    path = f"model.layers.{layer}.mlp"
    w.scope(path, PACKAGE + "LlamaMLP")
    gate = linear(w, x, path + ".gate_proj", a.hidden, a.intermediate)
    w.scope(path + ".act_fn", "transformers.activations.SiLUActivation")
    sigmoid = w.op("Sigmoid", [gate], "val", "aten.silu.default")
    silu = w.op("Mul", [gate, sigmoid], "silu", "aten.silu.default")
    w.leave()
    up = linear(w, x, path + ".up_proj", a.hidden, a.intermediate)
    gated = w.typed(w.op("Mul", [silu, up], "mul", "aten.mul.Tensor"),
                    ["batch", "sequence", a.intermediate])
    y = linear(w, gated, path + ".down_proj", a.intermediate, a.hidden)
    w.leave()
    return y


def prologue(w, a):
    """What all layers share: rotary tables, the causal bias, shapes of the repeated heads."""
    shared = {}
    total = w.op("Shape", ["attention_mask"], "val", "aten.sym_size.int", start=1, end=2)
    batch = w.op("Shape", ["input_ids"], "val", "aten.sym_size.int", start=0, end=1)
    groups = w.constant([a.heads // a.kv_heads])
    shared["expanded"] = w.op("Concat", [batch, w.constant([a.kv_heads]), groups, total,
                                         w.constant([a.head_dim])], "val", "aten.expand.default", axis=0)
    shared["merged"] = w.op("Concat", [batch, w.constant([a.heads]), total, w.constant([a.head_dim])],
                            "val", "aten._unsafe_view.default", axis=0)
    # A query at position p sees the keys 0 .. p that the mask lets through.
    scalar = w.op("Squeeze", [total], "sym_size_int", "aten.sym_size.int")
    keys = w.op("Range", [w.constant(0), scalar, w.constant(1)], "arange", "aten.arange.default")
    queries = w.op("Unsqueeze", ["position_ids", w.constant([1, 3])], "unsqueeze", "aten.unsqueeze.default")
    causal = w.op("LessOrEqual", [keys, queries], "le", "aten.le.Tensor")
    allowed = w.op("Cast", ["attention_mask"], "_to_copy", "aten._to_copy.default", to=9)
    allowed = w.op("Unsqueeze", [allowed, w.constant([1, 2])], "unsqueeze", "aten.unsqueeze.default")
    visible = w.op("And", [causal, allowed], "bitwise_and", "aten.bitwise_and.Tensor")
    lowest = -65504.0 if w.item == 2 else -3.4028234663852886e38
    shared["bias"] = w.op("Where", [visible, w.constant(0.0, w.dtype), w.constant(lowest, w.dtype)],
                          "val", "aten.scaled_dot_product_attention.default")

    w.scope("model.rotary_emb", PACKAGE + "LlamaRotaryEmbedding")
    half = a.head_dim // 2
    frequencies = (a.theta ** (-np.arange(half) / half)).astype(np.float32)
    frequencies = w.constant([float(f) for f in frequencies], 1, [1, half, 1])
    positions = w.op("Unsqueeze", ["position_ids", w.constant([1])], "unsqueeze", "aten.unsqueeze.default")
    positions = w.op("Cast", [positions], "_to_copy", "aten._to_copy.default", to=1)
    angles = w.op("MatMul", [frequencies, positions], "matmul", "aten.matmul.default")
    angles = w.op("Transpose", [angles], "transpose", "aten.transpose.int", perm=[0, 2, 1])
    angles = w.op("Concat", [angles, angles], "cat", "aten.cat.default", axis=-1)
    tables = {}
    for name in ("cos", "sin"):
        tables[name] = w.op(name.capitalize(), [angles], name, f"aten.{name}.default")
        if w.item == 2:
            tables[name] = w.op("Cast", [tables[name]], "_to_copy", "aten._to_copy.default", to=w.dtype)
    w.leave()
    for name, table in tables.items():
        table = w.op("Unsqueeze", [table, w.constant([1])], "unsqueeze", "aten.unsqueeze.default")
        shared[name] = w.typed(table, ["batch", 1, "sequence", a.head_dim])
    return shared


def build(a, data_name):
    dtype = TensorProto.FLOAT16 if a.dtype == "fp16" else TensorProto.FLOAT
    w = Writer(dtype, data_name)
    w.scope("model", PACKAGE + "LlamaModel")
    table = w.weight("model.embed_tokens.weight", [a.vocab, a.hidden], 1.0)
    x = w.op("Gather", [table, "input_ids"], "embedding", "aten.embedding.default", axis=0)
    w.typed(x, ["batch", "sequence", a.hidden])
    shared = prologue(w, a)
    for layer in range(a.layers):
        path = f"model.layers.{layer}"
        w.scope(path, PACKAGE + "LlamaDecoderLayer")
        for part, norm in ((lambda n: attention(w, n, layer, shared, a), "input_layernorm"),
                           (lambda n: mlp(w, n, layer, a), "post_attention_layernorm")):
            y = part(rms_norm(w, x, f"{path}.{norm}", a))
            x = w.typed(w.op("Add", [x, y], "add", "aten.add.Tensor"), ["batch", "sequence", a.hidden])
        w.leave()
    x = rms_norm(w, x, "model.norm", a)
    w.leave()
    w.scope("lm_head", "torch.nn.modules.linear.Linear")
    head = w.weight("lm_head.weight", [a.hidden, a.vocab], a.hidden**-0.5)
    w.op("MatMul", [x, head], "", "aten.linear.default", "logits")

    def value(name, shape, element=dtype):
        return helper.make_tensor_value_info(name, element, shape)

    cache = [(f"{layer}.{part}", ["batch", a.kv_heads]) for layer in range(a.layers)
             for part in ("key", "value")]
    inputs = [value("input_ids", ["batch", "sequence"], 7), value("attention_mask", ["batch", "total"], 7),
              value("position_ids", ["batch", "sequence"], 7)]
    inputs += [value("past_key_values." + n, [*s, "past", a.head_dim]) for n, s in cache]
    outputs = [value("logits", ["batch", "sequence", a.vocab])]
    outputs += [value("present." + n, [*s, "total", a.head_dim]) for n, s in cache]
    graph = helper.make_graph(w.nodes, "main_graph", inputs, outputs, w.initializers, value_info=w.infos)
    model = helper.make_model(graph, ir_version=10, producer_name="pytorch", producer_version="2.11.0",
                              opset_imports=[helper.make_opsetid("", 23 if a.norm == "op" else 20)])
    return model, w


def write_weights(path, w, how):
    with open(path, "wb") as file:
        file.truncate(w.offset)
        if how == "sparse":
            return
        random = np.random.default_rng(0)
        numpy_type = np.float16 if w.item == 2 else np.float32
        for offset, shape, scale in w.weights:
            file.seek(offset)
            rows, width = (1, shape[0]) if len(shape) == 1 else shape
            for row in range(0, rows, 1024):
                block = random.standard_normal((min(1024, rows - row), width), np.float32)
                block = block * scale if scale else 1 + 0.1 * block
                file.write(block.astype(numpy_type).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--intermediate", type=int, default=14336)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--eps", type=float, default=1e-5)
    parser.add_argument("--theta", type=float, default=500000.0)
    parser.add_argument("--dtype", choices=["fp16", "fp32"], default="fp16")
    parser.add_argument("--norm", choices=["reciprocal", "div", "op"], default="reciprocal")
    parser.add_argument("--weights", choices=["sparse", "random"], default="sparse")
    a = parser.parse_args()
    if a.hidden % a.heads or a.heads % a.kv_heads or (a.hidden // a.heads) % 2:
        parser.error("hidden must be a multiple of heads, heads of kv-heads, the head size even")
    a.head_dim = a.hidden // a.heads

    a.out.parent.mkdir(parents=True, exist_ok=True)
    model, w = build(a, a.out.name + ".data")
    onnx.save_model(model, a.out)
    write_weights(a.out.with_name(a.out.name + ".data"), w, a.weights)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu",
                  hidden_size=a.hidden, intermediate_size=a.intermediate, num_hidden_layers=a.layers,
                  num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_dim,
                  rms_norm_eps=a.eps, rope_theta=a.theta, vocab_size=a.vocab)
    (a.out.parent / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{a.out}: {len(model.graph.node)} nodes, {a.out.stat().st_size / 1e6:.1f} MB, "
          f"data {w.offset / 1e9:.2f} GB ({a.weights})")


if __name__ == "__main__":
    main()
