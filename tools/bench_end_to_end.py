#!/usr/bin/env python3
"""Whole models in ONNX Runtime on a GPU: each way of optimising an export, without and with our patch applied last.

    bench_end_to_end.py prepare --model llama-1b --out DIR     exports, optimises and patches; needs no GPU
    bench_end_to_end.py run DIR --library libliger_ort.so      fills the weights with random numbers and measures
    bench_end_to_end.py node-cost --library libliger_ort.so    the host's cost of one node, in a chain of 200

`prepare` needs torch, transformers, onnxscript and onnxruntime, for one way also onnxruntime-genai; a way whose tool
fails is left out, with the reason. It leaves graphs without weights: `run` makes the data files, so that DIR without
them (*.onnx and manifest.json) can be carried to the machine with the GPU.

Ways: export (as is, ONNX Runtime's basic level), all (the same file, level ALL), static (level ALL, exported for the one
decode shape, so that its shapes are constants and a CUDA graph can be captured), optimizer (onnxruntime.transformers),
fusions (onnxscript's optimize_for_ort), genai (the graph that onnxruntime-genai's builder makes of the checkpoint).
Times are medians of alternating runs with IOBinding, without and with the patch; a ratio below 1 is a gain.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx

MODELS = {
    "llama-1b": ("Llama", dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                               num_attention_heads=32, num_key_value_heads=8, head_dim=64, rms_norm_eps=1e-5,
                               max_position_embeddings=8192, tie_word_embeddings=True)),
    "qwen3-0.6b": ("Qwen3", dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                                 num_attention_heads=16, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6,
                                 max_position_embeddings=8192, tie_word_embeddings=True)),
}
# What is timed: batch, new tokens, tokens in the cache.
DECODE = "decode 1 after 1024"
CASES = {"prefill 1x1024": (1, 1024, 0), "prefill 8x1024": (8, 1024, 0), DECODE: (1, 1, 1024)}


# --- prepare ----------------------------------------------------------------------------------------------------


def make_checkpoint(name, folder):
    import tokenizers
    import torch
    import transformers

    prefix, sizes = MODELS[name]
    config = getattr(transformers, prefix + "Config")(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config.torch_dtype = torch.float16
    torch.manual_seed(0)
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float16)
        model = getattr(transformers, prefix + "ForCausalLM")(config).half().eval()
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    # The builder of genai copies a tokenizer; which one does not matter here.
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0}, unk_token="<s>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return model


def export(model, path, static=None):
    """input_ids, attention_mask and the cache -> logits and the new cache; axes are dynamic, or of the case `static`."""
    import torch
    import transformers

    class Step(torch.nn.Module):
        def __init__(self, decoder):
            super().__init__()
            self.decoder = decoder

        def forward(self, input_ids, attention_mask, past):
            cache = transformers.DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            result = self.decoder(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache,
                                  use_cache=True)
            present = [t for layer in cache.layers for t in (layer.keys, layer.values)]
            return (result.logits, *present)

    config = model.config
    layers, heads, dim = config.num_hidden_layers, config.num_key_value_heads, config.head_dim
    rows, new, old = static or (2, 3, 5)
    past = [torch.zeros(rows, heads, old, dim, dtype=torch.float16) for _ in range(2 * layers)]
    names = [f"past_key_values.{i // 2}.{'key' if i % 2 == 0 else 'value'}" for i in range(2 * layers)]
    batch, tokens, cached = (torch.export.Dim(n) for n in ("batch", "tokens", "cached"))
    total = torch.export.Dim("total")
    program = torch.onnx.export(
        Step(model), (torch.ones(rows, new, dtype=torch.int64), torch.ones(rows, new + old, dtype=torch.int64), past),
        dynamo=True,
        opset_version=20, input_names=["input_ids", "attention_mask", *names],
        output_names=["logits", *(n.replace("past_key_values", "present") for n in names)],
        dynamic_shapes=None if static else ({0: batch, 1: tokens}, {0: batch, 1: total},
                                            [{0: batch, 2: cached}] * (2 * layers)),
        external_data=True)
    program.save(path, external_data=True)


def optimizer_way(source, target, config):
    from onnxruntime.transformers import fusion_options, optimizer

    options = fusion_options.FusionOptions("gpt2")
    model = optimizer.optimize_model(str(source), model_type="gpt2", num_heads=config.num_attention_heads,
                                     hidden_size=config.hidden_size, opt_level=0, optimization_options=options,
                                     use_gpu=True)
    model.save_model_to_file(str(target), use_external_data_format=True)


def fusions_way(source, target, _config):
    import onnx_ir
    from onnxscript.rewriter import ort_fusions

    model = onnx_ir.load(str(source))
    optimised = ort_fusions.optimize_for_ort(model)
    model = optimised[0] if isinstance(optimised, tuple) else optimised or model
    onnx_ir.save(model, str(target), external_data=target.name + ".data")


def genai_way(checkpoint, target, _config):
    folder = target.parent / "genai_out"
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint, "-o", folder, "-p", "fp16",
               "-e", "cuda", "-c", target.parent / "cache", "--extra_options", "hf_remote=false"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-500:])
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    rename_data(model, target.name + ".data")
    onnx.save(model, target)
    (folder / "model.onnx.data").rename(target.parent / (target.name + ".data"))


def rename_data(model, name):
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name


def prepare(arguments):
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    model = make_checkpoint(arguments.model, out / "checkpoint")
    config = model.config
    source = out / "export.onnx"
    export(model, str(source))
    export(model, str(out / "static.onnx"), CASES[DECODE])
    del model
    skipped = {}
    for way, make, origin in (("optimizer", optimizer_way, source), ("fusions", fusions_way, source),
                              ("genai", genai_way, out / "checkpoint")):
        start = time.time()
        try:
            make(origin, out / f"{way}.onnx", config)
        except Exception as failure:  # the tool of one way is no reason to lose the others
            skipped[way] = f"{type(failure).__name__}: {failure}"[:500]
        print(f"{way}: {skipped.get(way, 'made')} ({time.time() - start:.0f} s)", flush=True)
    family = MODELS[arguments.model][0].lower()
    for path in sorted(out.glob("*.onnx")):
        if not path.name.endswith(".liger.onnx"):
            subprocess.run([arguments.patch, path, "--family", family, "-o", path.with_suffix(".liger.onnx"), "--report",
                            path.with_suffix(".report.json")], check=False)
    (out / "manifest.json").write_text(json.dumps({"model": arguments.model, "skipped": skipped}, indent=1))


# --- run --------------------------------------------------------------------------------------------------------


def fill_data(path):
    """Writes the data file of a graph: matrices small, vectors around 1, so that activations stay of size 1."""
    model = onnx.load(str(path), load_external_data=False)
    names = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    if names and all((path.parent / name).exists() for name in names):
        return
    random = np.random.default_rng(0)
    noise = random.standard_normal(1 << 22).astype(np.float32)
    ends = {}
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        target = path.parent / entries["location"]
        if target not in ends:
            target.unlink(missing_ok=True)
            ends[target] = open(target, "wb")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        count = int(np.prod(tensor.dims))
        ends[target].seek(int(entries.get("offset", 0)))
        if np.issubdtype(dtype, np.floating):
            spread, middle = (0.1, 1.0) if len(tensor.dims) < 2 else (1 / np.sqrt(tensor.dims[-1]), 0.0)
            block = (noise * spread + middle).astype(dtype)
            for begin in range(0, count, block.size):
                ends[target].write(block[: count - begin].tobytes())
        else:
            ends[target].write(np.zeros(count, dtype).tobytes())
    for file in ends.values():
        file.close()


class Runner:
    """A session with everything bound: inputs and outputs live on the GPU at fixed places."""

    def __init__(self, path, library, level, graph=False, profile=None):
        import onnxruntime as ort

        sizes = MODELS[json.loads((path.parent / "manifest.json").read_text())["model"]][1]
        self.heads, self.head_dim = sizes["num_key_value_heads"], sizes["head_dim"]
        self.vocabulary = sizes["vocab_size"]
        self.ort = ort
        ort.preload_dlls()  # CUDA and cuDNN, where they came as Python packages
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.log_severity_level = 3
        if library:
            options.register_custom_ops_library(str(pathlib.Path(library).resolve()))
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        provider = {"enable_cuda_graph": "1"} if graph else {}
        self.session = ort.InferenceSession(str(path), options, providers=[("CUDAExecutionProvider", provider),
                                                                           "CPUExecutionProvider"])

    def bind(self, batch, tokens, cached):
        """Binds, and runs once. Outputs that do not have the shape they should have are left to ONNX Runtime."""
        try:
            self.bind_all(batch, tokens, cached, True)
            self.run()
        except RuntimeError:
            self.bind_all(batch, tokens, cached, False)
            self.run()

    def bind_all(self, batch, tokens, cached, fixed):
        ort, random = self.ort, np.random.default_rng(1)
        self.binding = self.session.io_binding()
        self.values = {}
        for value in self.session.get_inputs():
            if value.name == "input_ids":
                data = random.integers(3, 1000, (batch, tokens))
            elif value.name == "position_ids":
                data = np.tile(np.arange(cached, cached + tokens), (batch, 1))
            elif value.name == "attention_mask":
                data = np.ones((batch, cached + tokens))
            else:
                data = random.standard_normal((batch, self.heads, cached, self.head_dim))
            dtype = {"tensor(int64)": np.int64, "tensor(float16)": np.float16}[value.type]
            self.values[value.name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(data.astype(dtype)), "cuda", 0)
            self.binding.bind_ortvalue_input(value.name, self.values[value.name])
        for value in self.session.get_outputs():
            if value.name != "logits" and not fixed:
                self.binding.bind_output(value.name, "cuda", 0)
                continue
            if value.name == "logits":
                shape = (batch, tokens, self.vocabulary)
            else:
                shape = (batch, self.heads, cached + tokens, self.head_dim)
            dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[value.type]
            self.values[value.name] = ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype, "cuda", 0)
            self.binding.bind_ortvalue_output(value.name, self.values[value.name])

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def logits(self):
        return self.values["logits"].numpy().astype(np.float32)


def milliseconds(runners, repeats):
    """Medians of each, run in turns."""
    times = [[] for _ in runners]
    for runner in runners:
        for _ in range(4):  # a captured graph needs runs before its capture
            runner.run()
    for _ in range(repeats):
        for runner, of_runner in zip(runners, times):
            start = time.perf_counter()
            runner.run()
            of_runner.append((time.perf_counter() - start) * 1000)
    return [statistics.median(t) for t in times]


def node_counts(path, library, level, folder):
    """Kernels that one run executes, and which of them are copies or on the CPU, from ONNX Runtime's profile."""
    runner = Runner(path, library, level, profile=folder / "profile")
    runner.bind(*CASES[DECODE])
    file = pathlib.Path(runner.session.end_profiling())
    events = json.loads(file.read_text())
    file.unlink()
    nodes = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    cpu = [e["args"]["op_name"] for e in nodes if e["args"].get("provider") == "CPUExecutionProvider"]
    return {"nodes": len(nodes), "copies": sum(e["args"]["op_name"].startswith("Memcpy") for e in nodes),
            "on the CPU": sorted(set(cpu)), "ours": sum(e["args"]["op_name"].startswith("Liger") for e in nodes)}


def distance(runners):
    """The largest difference of the logits, of the largest logit."""
    a, b = (runner.logits() for runner in runners)
    return float(np.abs(a - b).max() / np.abs(a).max())


def compare(folder, way, level, library, repeats, results):
    plain, patched = folder / f"{way}.onnx", folder / f"{way}.liger.onnx"
    if not plain.exists() or not patched.exists():
        return
    name = way if level == "ORT_ENABLE_ALL" else "as is"
    fill_data(plain)
    counts = [node_counts(plain, None, level, folder), node_counts(patched, library, level, folder)]
    for graph in (False, True):
        try:
            runners = [Runner(plain, None, level, graph), Runner(patched, library, level, graph)]
        except Exception as failure:
            print(f"| {name}{', CUDA graph' if graph else ''} | {type(failure).__name__}: {str(failure)[:300]} |", flush=True)
            continue
        for case, (batch, tokens, cached) in CASES.items():
            if case != DECODE and (graph or way == "static"):
                continue
            label = f"{name}: {case}{', CUDA graph' if graph else ''}"
            try:
                for runner in runners:
                    runner.bind(batch, tokens, cached)
                times = milliseconds(runners, repeats)
                difference = distance(runners) if batch == 1 else None
            except Exception as failure:
                print(f"| {label} | {type(failure).__name__}: {str(failure)[:300]} |", flush=True)
                continue
            results.append({"way": name, "case": label, "plain": times[0], "patched": times[1],
                            "difference": difference, "counts": counts})
            shown = "" if difference is None else f"{difference:.1e}"
            print(f"| {label} | {times[0]:.3f} | {times[1]:.3f} | {times[1] / times[0]:.3f} | {shown} | "
                  f"{counts[0]['nodes']} -> {counts[1]['nodes']} ({counts[1]['ours']} ours) | "
                  f"{counts[0]['copies']} -> {counts[1]['copies']} |", flush=True)
    print(f"  on the CPU: {counts[0]['on the CPU']} -> {counts[1]['on the CPU']}", flush=True)


def run(arguments):
    folder = pathlib.Path(arguments.folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    print(f"{manifest['model']}, fp16; left out: {manifest['skipped'] or 'nothing'}")
    print("| | plain ms | patched ms | ratio | difference | nodes | copies |\n|---|---|---|---|---|---|---|", flush=True)
    results = []
    wanted = arguments.ways.split(",")
    for way, level in (("export", "ORT_ENABLE_BASIC"), ("export", "ORT_ENABLE_ALL"), ("optimizer", "ORT_ENABLE_ALL"),
                       ("fusions", "ORT_ENABLE_ALL"), ("genai", "ORT_ENABLE_ALL"), ("static", "ORT_ENABLE_ALL")):
        if way in wanted:
            compare(folder, way, level, arguments.library, arguments.repeats, results)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


# --- node-cost --------------------------------------------------------------------------------------------------


def chain(kind, nodes=200, width=4096):
    """x and a residual go through `nodes` norms, each of which adds and normalises."""
    from onnx import TensorProto, helper

    made, x, residual = [], "x", "r"
    for i in range(nodes):
        outputs = [f"y{i}", f"s{i}"]
        if kind == "ours":
            made.append(helper.make_node("LigerAddRMSNorm", [x, residual, "w"], outputs, domain="liger", epsilon=1e-5,
                                         offset=0.0, stash_type=1, scale_type=10))
        else:
            made.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, residual, "w"],
                                         [outputs[0], "", "", outputs[1]], domain="com.microsoft", epsilon=1e-5))
        x, residual = outputs
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 1, width])
    weight = helper.make_tensor("w", TensorProto.FLOAT16, [width], np.ones(width, np.float16).tobytes(), raw=True)
    graph = helper.make_graph(made, "chain", [tensor("x"), tensor("r")], [tensor(x), tensor(residual)], [weight])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("liger", 1),
                                                                  helper.make_opsetid("com.microsoft", 1)])


def node_cost(arguments):
    import onnxruntime as ort

    ort.preload_dlls()
    sessions = {}
    for kind in ("ours", "theirs"):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.register_custom_ops_library(str(pathlib.Path(arguments.library).resolve()))
        session = ort.InferenceSession(chain(kind).SerializeToString(), options, providers=["CUDAExecutionProvider"])
        binding = session.io_binding()
        for value in (*session.get_inputs(), *session.get_outputs()):
            place = ort.OrtValue.ortvalue_from_numpy(np.full((1, 1, 4096), 0.5, np.float16), "cuda", 0)
            (binding.bind_ortvalue_input if value in session.get_inputs() else binding.bind_ortvalue_output)(value.name, place)
        sessions[kind] = session, binding
    times = {kind: [] for kind in sessions}
    for i in range(arguments.repeats * 10):
        for kind, (session, binding) in sessions.items():
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            if i >= 20:
                times[kind].append((time.perf_counter() - start) * 1e6 / 200)
    for kind, name in (("ours", "LigerAddRMSNorm"), ("theirs", "SkipSimplifiedLayerNormalization")):
        quarters = statistics.quantiles(times[kind], n=4)
        print(f"{name}: {quarters[1]:.3f} us a node (quartiles {quarters[0]:.3f} to {quarters[2]:.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prepare")
    command.add_argument("--model", choices=MODELS, required=True)
    command.add_argument("--out", required=True)
    command.add_argument("--patch", default="build/release/bin/liger-patch", help="the program")
    command.set_defaults(function=prepare)
    command = commands.add_parser("run")
    command.add_argument("folder")
    command.add_argument("--library", required=True)
    command.add_argument("--ways", default="export,optimizer,fusions,genai,static")
    command.add_argument("--repeats", type=int, default=20)
    command.add_argument("--json")
    command.set_defaults(function=run)
    command = commands.add_parser("node-cost")
    command.add_argument("--library", required=True)
    command.add_argument("--repeats", type=int, default=20)
    command.set_defaults(function=node_cost)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
