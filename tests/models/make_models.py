#!/usr/bin/env python3
"""Makes the small models of this folder: real exports of tiny random decoders, with module counts.

    python3 -m venv VENV && VENV/bin/pip install -r tests/models/requirements.txt
    VENV/bin/python tests/models/make_models.py [--out DIR] [--only GLOB]

Per family: config.json; per variant: NAME.onnx and NAME.npz; one file for all: expected.json.

NAME.npz holds `in_<input>` and `out_<output>`; `alt_in_`, `alt_out_` are a second shape where the axes
are dynamic. Outputs are computed by torch in fp32, also for fp16 and bf16 models: all weights are values
that bf16 holds exactly.
expected.json holds module counts that hooks on the running model saw; nothing in it is typed in.
"""
import argparse
import collections
import fnmatch
import importlib
import json
import os
import pathlib
import re
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES="")

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

# Sizes that no power of two hides behind: 48 is no multiple of 32, so vector loops have tails.
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False,
             tie_word_embeddings=False)
FAMILIES = {
    "llama": ("Llama", dict(rms_norm_eps=1e-5)),
    "mistral": ("Mistral", dict(rms_norm_eps=1e-5, sliding_window=4)),
    "qwen2": ("Qwen2", dict(rms_norm_eps=1e-6)),
    "qwen3": ("Qwen3", dict(rms_norm_eps=1e-6)),
}
DTYPES = dict(fp32=torch.float32, fp16=torch.float16, bf16=torch.bfloat16)

Variant = collections.namedtuple(
    "Variant", "family name exporter opset dtype kind dynamic external")


def variants():
    def v(family, exporter, opset, dtype="fp32", kind="ids", dynamic=False, external=False):
        parts = [dtype if dtype != "fp32" else "", kind if kind != "ids" else "", exporter,
                 f"op{opset}", "dyn" if dynamic else "", "external" if external else ""]
        name = "_".join(p for p in parts if p)
        return Variant(family, name, exporter, opset, dtype, kind, dynamic, external)

    return [
        v("llama", "dynamo", 20),
        v("llama", "dynamo", 18, dynamic=True),
        v("llama", "dynamo", 23),
        v("llama", "dynamo", 20, dtype="fp16"),
        v("llama", "dynamo", 20, dtype="bf16"),
        v("llama", "dynamo", 20, kind="past", dynamic=True),
        v("llama", "dynamo", 20, kind="loss"),
        v("llama", "ts", 17, kind="mask", dynamic=True),
        v("llama", "ts", 17, kind="past", dynamic=True),
        v("llama", "ts", 17, dtype="fp16", kind="mask", dynamic=True),
        v("llama", "dynamo", 20, external=True),
        v("mistral", "dynamo", 20, kind="mask", dynamic=True),
        v("mistral", "dynamo", 23),
        v("mistral", "ts", 20, kind="mask"),
        v("qwen2", "dynamo", 18),
        v("qwen2", "dynamo", 20, kind="mask", dynamic=True),
        v("qwen2", "ts", 17, kind="mask", dynamic=True),
        v("qwen3", "dynamo", 20),
        v("qwen3", "dynamo", 23, dtype="fp16"),
        v("qwen3", "dynamo", 23, dtype="bf16"),
        v("qwen3", "dynamo", 18, kind="past", dynamic=True),
        v("qwen3", "ts", 17, kind="mask", dynamic=True),
    ]


def build(family, dtype):
    """A decoder with random weights; norm weights differ from one, so that a lost scale shows."""
    prefix, extra = FAMILIES[family]
    config = getattr(transformers, prefix + "Config")(**SIZES, **extra)
    torch.manual_seed(0)
    model = getattr(transformers, prefix + "ForCausalLM")(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            value = 1 + 0.2 * noise if parameter.dim() == 1 else 0.15 * noise
            parameter.copy_(value.to(torch.bfloat16).to(parameter.dtype))
    return model.to(dtype).eval()


class Ids(torch.nn.Module):
    """input_ids -> logits"""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


class Mask(Ids):
    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask,
                          use_cache=False).logits


class Loss(Ids):
    def forward(self, input_ids, labels):
        result = self.model(input_ids=input_ids, labels=labels, use_cache=False)
        return result.loss, result.logits


class Past(Ids):
    """One step of generation: the cache comes in and goes out as plain tensors."""

    def forward(self, input_ids, attention_mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=input_ids, attention_mask=attention_mask,
                            past_key_values=cache, use_cache=True)
        present = [t for layer in cache.layers for t in (layer.keys, layer.values)]
        return (result.logits, *present)


WRAPPERS = dict(ids=Ids, mask=Mask, loss=Loss, past=Past)


def make_feeds(kind, dtype, batch, sequence, past_length, seed):
    """Ordered inputs.

    The mask hides padding: behind the second row, or in front of it where a cache is given (a query that
    may see nothing at all has no defined output, and the runtimes differ there).
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, SIZES["vocab_size"], (batch, sequence), generator=generator)
    feeds = collections.OrderedDict(input_ids=ids)
    if kind == "loss":
        labels = ids.clone()
        labels[0, :3] = -100
        feeds["labels"] = labels
    if kind in ("mask", "past"):
        mask = torch.ones(batch, sequence + (past_length if kind == "past" else 0),
                          dtype=torch.int64)
        if batch > 1:
            mask[1, slice(0, 2) if kind == "past" else slice(-2, None)] = 0
        feeds["attention_mask"] = mask
    if kind == "past":
        shape = (batch, SIZES["num_key_value_heads"], past_length, SIZES["head_dim"])
        for layer in range(SIZES["num_hidden_layers"]):
            for part in ("key", "value"):
                values = torch.randn(shape, generator=generator).to(torch.bfloat16)
                feeds[f"past_key_values.{layer}.{part}"] = values.to(dtype)
    return feeds


def output_names(kind):
    if kind == "loss":
        return ["loss", "logits"]
    if kind == "past":
        layers = range(SIZES["num_hidden_layers"])
        return ["logits"] + [f"present.{i}.{part}" for i in layers for part in ("key", "value")]
    return ["logits"]


def axes_of(name):
    """Names of the axes that vary, by position."""
    if name.startswith("past_key_values"):
        return {0: "batch", 2: "past"}
    if name.startswith("present"):
        return {0: "batch", 2: "total"}
    if name == "attention_mask":
        return {0: "batch", 1: "total"}
    return {0: "batch", 1: "sequence"}


def run(wrapper, feeds):
    with torch.no_grad():
        result = wrapper(*[t.clone() for t in feeds.values()])
    return list(result) if isinstance(result, tuple) else [result]


def count_modules(wrapper, feeds):
    """What the model really calls: norms and MLPs by hooks, rotations by wrapping the function."""
    norms, mlps, rotated, handles = [], [], 0, []

    def watch(log, path):
        return lambda module, args, result: log.append((path, type(module).__name__))

    for path, module in wrapper.model.named_modules():
        if type(module).__name__.endswith("RMSNorm"):
            handles.append(module.register_forward_hook(watch(norms, path)))
        gated = hasattr(module, "gate_proj") and hasattr(module, "up_proj")
        if gated and "SiLU" in type(module.act_fn).__name__:
            handles.append(module.register_forward_hook(watch(mlps, path)))

    code = importlib.import_module(type(wrapper.model).__module__)
    original = code.apply_rotary_pos_emb

    def counting(*args, **kwargs):
        nonlocal rotated
        result = original(*args, **kwargs)
        rotated += len(result) if isinstance(result, tuple) else 1
        return result

    code.apply_rotary_pos_emb = counting
    try:
        run(wrapper, feeds)
    finally:
        code.apply_rotary_pos_emb = original
        for handle in handles:
            handle.remove()
    return dict(rms_norm=len(norms), rope=rotated, swiglu=len(mlps)), dict(
        rms_norm=[p for p, _ in norms], swiglu=[p for p, _ in mlps],
        classes=sorted({c for _, c in norms + mlps}))


def export(variant, wrapper, feeds, path):
    names = list(feeds)
    options = dict(input_names=names, output_names=output_names(variant.kind),
                   opset_version=variant.opset, verbose=False)
    args = tuple(feeds.values())
    if variant.exporter == "dynamo":
        options.update(dynamo=True, external_data=False)
        if variant.dynamic:
            dynamic = torch.export.Dim.DYNAMIC
            shapes = [{axis: dynamic for axis in axes_of(name)} for name in names]
            if variant.kind == "past":
                shapes = [*shapes[:2], tuple(shapes[2:])]  # *past is one argument of forward
            options["dynamic_shapes"] = tuple(shapes)
    else:
        options.update(dynamo=False, do_constant_folding=True)
        if variant.dynamic:
            options["dynamic_axes"] = {n: axes_of(n) for n in names + output_names(variant.kind)
                                       if n != "loss"}
    with torch.no_grad():
        torch.onnx.export(wrapper, args, path, **options)


def strip(model, bulky):
    """Removes what names the exporting machine (stack traces, doc strings), and bulky metadata."""
    dropped = {"pkg.torch.onnx.stack_trace", *bulky}

    def visit(graph):
        graph.doc_string = ""
        for node in graph.node:
            node.doc_string = ""
            kept = [p for p in node.metadata_props if p.key not in dropped]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)
                for g in attribute.graphs:
                    visit(g)
        for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
            value.doc_string = ""

    model.doc_string = ""
    visit(model.graph)
    for function in model.functions:
        function.doc_string = ""
        visit(function)
    leaks = re.findall(rb"[ -~]{0,40}(?:site-packages|/home/|/root/|/tmp/|/usr/)[ -~]{0,40}",
                       model.SerializeToString())
    if leaks:
        raise RuntimeError(f"a path of this machine is left in the model: {leaks[:3]}")


def run_onnxruntime(path, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {k: v.numpy() for k, v in feeds.items()})


def make(variant, out):
    folder = out / variant.family
    folder.mkdir(parents=True, exist_ok=True)
    dtype = DTYPES[variant.dtype]
    wrapper = WRAPPERS[variant.kind](build(variant.family, dtype))
    reference = WRAPPERS[variant.kind](build(variant.family, torch.float32))
    wrapper.model.config.dtype = None  # one config.json serves all dtypes
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in sorted(wrapper.model.config.to_diff_dict().items())
                    if v is not None}, indent=2) + "\n")

    feeds = make_feeds(variant.kind, dtype, 2, 6, 5, seed=3)
    counts, paths = count_modules(wrapper, feeds)
    path = folder / (variant.name + ".onnx")
    with tempfile.TemporaryDirectory() as scratch:
        scratch_path = os.path.join(scratch, "model.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            export(variant, wrapper, feeds, scratch_path)
        model = onnx.load(scratch_path)
    # One file keeps all metadata of its nodes; elsewhere the longest, which repeat others, are left out.
    bulky = [] if (variant.family, variant.name) == ("llama", "dynamo_op20") else [
        "pkg.torch.onnx.fx_node"] + (["namespace"] if variant.dynamic else [])
    strip(model, bulky)
    for stale in folder.glob(variant.name + ".onnx*"):
        stale.unlink()
    if variant.external:
        onnx.save_model(model, path, save_as_external_data=True, all_tensors_to_one_file=True,
                        location=path.name + ".data", size_threshold=256)
        path.with_name(path.name + ".data").chmod(0o644)
    else:
        onnx.save_model(model, path)

    sets = [("", feeds)]
    if variant.dynamic:
        sets.append(("alt_", make_feeds(variant.kind, dtype, 3, 9, 4, seed=4)))
    arrays, difference = {}, None
    for prefix, inputs in sets:
        in_fp32 = {k: v.float() if v.is_floating_point() else v for k, v in inputs.items()}
        expected = [t.float().numpy() for t in run(reference, in_fp32)]
        for name, tensor in inputs.items():
            arrays[f"{prefix}in_{name}"] = tensor.numpy()
        for name, value in zip(output_names(variant.kind), expected):
            arrays[f"{prefix}out_{name}"] = value
        if variant.dtype == "bf16":
            continue  # ONNX Runtime's CPU provider has no bf16 arithmetic
        got = run_onnxruntime(path, inputs)
        worst = max(float(np.abs(g.astype(np.float64) - e).max()) for g, e in zip(got, expected))
        difference = max(worst, difference or 0.0)
    if difference is not None and difference > dict(fp32=2e-5, fp16=2e-2)[variant.dtype]:
        raise RuntimeError(f"{path}: differs from torch by {difference}")
    np.savez_compressed(folder / (variant.name + ".npz"), **arrays)
    return dict(family=variant.family, exporter=variant.exporter, opset=variant.opset,
                dtype=variant.dtype, dynamic=variant.dynamic, kind=variant.kind,
                external_data=variant.external, layers=SIZES["num_hidden_layers"],
                counts=counts, paths=paths), path, difference


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--only", default="*",
                        help="glob over FAMILY/NAME; others stay as they are")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    listing = arguments.out / "expected.json"
    models = json.loads(listing.read_text())["models"] if listing.exists() else {}
    failed = 0
    for variant in variants():
        key = f"{variant.family}/{variant.name}"
        if not fnmatch.fnmatch(key, arguments.only):
            continue
        try:
            entry, path, difference = make(variant, arguments.out)
        except Exception as error:  # report all failures, not only the first
            failed += 1
            print(f"{key}: FAILED: {type(error).__name__}: {str(error)[-300:]}", file=sys.stderr,
                  flush=True)
            continue
        models[key + ".onnx"] = entry
        print(f"{key}: {path.stat().st_size // 1000} kB, {entry['counts']}, "
              f"ONNX Runtime differs from torch by {difference}", flush=True)
    wanted = {f"{v.family}/{v.name}.onnx" for v in variants()}
    result = dict(made_with=dict(torch=torch.__version__.split("+")[0],
                                 transformers=transformers.__version__, onnx=onnx.__version__),
                  models={k: models[k] for k in sorted(models) if k in wanted})
    listing.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
