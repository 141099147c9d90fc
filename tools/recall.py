#!/usr/bin/env python3
"""Patches exports and tells how many of the modules that truly are in them were fused.

    build/venv/bin/python tools/recall.py                    # the exports of the repository (tests/recall)
    build/venv/bin/python tools/recall.py DIR --truth FILE   # every .onnx below DIR
    build/venv/bin/python tools/recall.py 'gemma*'           # those whose name fits

Each model is patched with `--modules auto` and every module on that its family accepts. The table counts module
instances: fused / true, by family, exporter, opset and dtype; below it every shortfall with the report's reason. An
instance counts as fused if the report says patched or already fused; degraded ones do not. Where ONNX Runtime can run
the model, original and patched form are run, with the library and without it, and have to agree.

    --update     write what is fused now to tests/recall/expected.json, the floor of the test. Review the difference.
    --readme     write the table of the README.md
    --check      hold the result against the floor, as the test does

Exit code 1 if a check fails, a rewrite changed numbers, or the report claims more than is true.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "recall"
FLOOR = CORPUS / "expected.json"
README = ROOT / "README.md"
BEGIN = "<!-- recall: written by tools/recall.py --readme -->"
END = "<!-- recall: end -->"
MODULES = ("rope", "rms_norm", "layer_norm", "swiglu", "geglu")
COUNTS = ("expected", "patched", "already_fused", "degraded", "missed", "excluded", "unaccounted", "additional")
SAME = "same"  # outputs of the original and of the patched model, both ways
# fp32: another order of sums, relative to the largest output (as in tests/tools/patch_models_test.py).
FP32_LIMIT = 2e-6

sys.path.insert(0, str(ROOT / "tools"))


def short_text(text, folder=None, limit=200):
    """One line without places of this machine, so that two runs give the same."""
    text = " ".join(text.split())
    if folder:
        text = text.replace(str(folder) + "/", "")
    return text if len(text) <= limit else text[:limit - 3] + "..."


def call(patcher, arguments, report):
    """Exit code and report of one run; the code is negative after a signal, None where it had to be stopped."""
    report.unlink(missing_ok=True)
    try:
        code = subprocess.run([patcher, *map(str, arguments), "--report", str(report)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120).returncode
    except subprocess.TimeoutExpired:
        return None, {}
    with contextlib.suppress(OSError, ValueError):
        return code, json.loads(report.read_text())
    return code, {}


def off_by_default(report):
    """Modules that the family accepts and leaves off. The losses have tests of their own."""
    return [name for name, m in report.get("modules", {}).items()
            if not m["enabled"] and m["reason"].startswith("off by default") and not name.endswith("cross_entropy")]


def patch(patcher, model, out, family=None):
    """Patches with every module on that the family accepts. (exit code, report)."""
    report = out.with_suffix(".json")
    options = [model, "-o", out, "--external-data", "copy"] + (["--family", family] if family else [])
    code, result = call(patcher, options, report)
    off = off_by_default(result)
    if code == 0 and off:
        out.unlink(missing_ok=True)
        code, result = call(patcher, [*options, "--modules", ",".join(f"{m}=on" for m in off)], report)
    return code, result


def reasons(report, module):
    """What the report says about instances of a module that were not fused: one phrase per kind of reason, with its
    count. Reasons that differ in the names of nodes alone are one kind; the first one is shown."""
    kinds = collections.defaultdict(list)
    for kind in ("missed", "degraded"):
        for entry in report.get(kind, []):
            if entry["module"] == module:
                reason = ("degraded: " if kind == "degraded" else "") + short_text(entry["reason"])
                kinds[re.sub(r"'[^']*'|unk__\d+", "", reason)].append(reason)
    return [f"{found[0]} ({len(found)})" if len(found) > 1 else found[0] for _, found in sorted(kinds.items())]


def failure(code, report, folder):
    """Why a run ended without a model; empty if it did not."""
    if code == 0:
        return ""
    errors = [d["message"] for d in report.get("diagnostics", []) if d["severity"] == "error"]
    return short_text(errors[0], folder) if errors else f"exit code {code} and no report"


def judge(code, report, truth, folder):
    """{module: counts, fused, true, short, outside, why, wrong} from one report and what is true."""
    judged = {}
    failed = failure(code, report, folder)
    for module in dict.fromkeys((*MODULES, *(truth or ()), *report.get("modules", {}))):
        m = report.get("modules", {}).get(module)
        true = (truth or {}).get(module, 0) if truth is not None and module in MODULES else None
        if m is None and not true:
            continue
        row = dict.fromkeys(COUNTS, 0) if m is None else {k: m[k] for k in COUNTS}
        claimed = row["patched"] + row["already_fused"]
        # What Liger's helper does not swap (a norm without weights) is there and is fused; the report counts it
        # apart. Beyond what is true there are gates that belong to no MLP: they compute the same.
        total = claimed + row["additional"]
        fused = total if true is None else max(claimed, min(total, true))
        row.update(fused=fused, beyond=total - fused, true=true, why="", wrong=[])
        if true is not None:
            if claimed > true and report.get("route") != "structural":
                row["wrong"].append(f"{module}: {claimed} fused, {true} are true")
            if m and (m["expected"] or 0) > true:
                row["wrong"].append(f"{module}: {m['expected']} expected, {true} are true")
        wanted = true if true is not None else row["expected"] or 0
        # What Liger's helper of the family does not swap is no shortfall; it is shown by itself.
        row["outside"] = wanted if m is None and not failed else 0
        row["short"] = max(0, wanted - fused - row["outside"])
        if row["short"]:
            if failed:
                why = [failed]
            elif not m["enabled"]:
                why = [m["reason"]]
            else:
                why = reasons(report, module)
                if m["unaccounted"]:
                    why.append(f"{m['unaccounted']} unaccounted")
                if m["excluded"]:
                    why.append(f"{m['excluded']} excluded")
                if m["expected"] is not None and m["expected"] < wanted:
                    why.append(f"{wanted - m['expected']} not expected by the family's map")
                if not why:
                    why = ["nothing matched, and no number was expected"]
            row["why"] = "; ".join(why)
        judged[module] = row
    return judged


def loss_faults(name, report):
    """Exports with a loss have one, and say so in their name."""
    named, true = len(report.get("excluded", {}).get("loss_ops", [])), int("loss" in pathlib.Path(name).name)
    return [] if named == true else [f"{named} losses named, {true} is there"]


def open_session(path, library=None):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if library:
        options.register_custom_ops_library(str(library))
    model = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def nudged(original, names, inputs, before):
    """How far the outputs move if every fp32 weight moves by at most its last bit: what roundings alone can do."""
    import compare
    import numpy as np
    import onnx

    worst = 0.0
    for seed in range(4):
        model, random = onnx.load(original), np.random.default_rng(seed)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
                weight = onnx.numpy_helper.to_array(tensor)
                moved = np.nextafter(weight, random.choice(np.float32([-np.inf, np.inf]), weight.shape))
                moved = np.where(np.isfinite(moved) & (weight != 0), moved, weight)
                tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
        distance = compare.difference(before, open_session(model.SerializeToString()).run(names, inputs))
        worst = max(worst, distance if np.isfinite(distance) else 0.0)
    return worst


def compare_numbers(original, patched, npz, library, dtype, bodies=True):
    """SAME, "not run: reason" or "differs: by how much"; both forms of the patched model against the original.

    `bodies` is false for a model that lost its function bodies: it runs with the library alone.
    """
    import compare
    import numpy as np

    try:
        session = open_session(original)
    except Exception as error:  # ONNX Runtime's own classes share no base but Exception
        return "not run: " + short_text(re.sub(r"\[ONNXRuntimeError\] : \d+ : ", "", str(error)),
                                        original.parent, 110)
    arrays = np.load(npz) if npz.is_file() else {}
    names = [o.name for o in session.get_outputs()]
    try:
        others = {"with the library": open_session(patched, library)}
        if bodies:
            others["without the library"] = open_session(patched)
    except Exception as error:
        return "differs: the patched model does not load: " + short_text(str(error), patched.parent)
    prefixes = ["", "alt_"] if any(f.startswith("alt_in_") for f in getattr(arrays, "files", ())) else [""]
    for prefix in prefixes:
        wanted = [i.name for i in session.get_inputs()]
        try:
            if all(f"{prefix}in_{name}" in arrays for name in wanted):
                inputs = {name: arrays[f"{prefix}in_{name}"] for name in wanted}
            else:
                inputs = compare.make_inputs(session, {})
            before = session.run(names, inputs)
        except Exception as error:
            if prefix:  # a second shape that this file, exported for one, does not take
                continue
            return "not run: " + short_text(str(error), original.parent, 110)
        for how, other in others.items():
            try:
                after = other.run(names, inputs)
            except Exception as error:
                return f"differs: {how} it does not run: " + short_text(str(error), patched.parent)
            if dtype != "fp16":
                worst, limit = compare.difference(before, after), FP32_LIMIT * compare.largest(before)
                if limit < worst < 100 * limit:  # a model that magnifies roundings?
                    limit = max(limit, 2 * nudged(original, names, inputs, before))
            else:
                # Roundings of a whole fp16 model are noise that another order of sums re-draws: both forms must lie
                # as near to the fp32 results.
                exact = [arrays[f"{prefix}out_{i}"] if f"{prefix}out_{i}" in arrays else arrays[f"{prefix}out_{o}"]
                         for i, o in enumerate(names)]
                worst = compare.difference(after, exact)
                limit = (2 * compare.difference(before, exact)
                         + float(np.spacing(np.float16(compare.largest(exact)))))
            if not worst <= limit:
                return f"differs: {how} by {worst:.2g}, allowed {limit:.2g}"
    return SAME


def describe(path, name):
    """Family, exporter, opset and dtype of a file that no list of true counts describes."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    dtypes = collections.Counter(i.data_type for i in model.graph.initializer if len(i.dims) > 1)
    dtype = dtypes.most_common(1)[0][0] if dtypes else onnx.TensorProto.FLOAT
    noted = any(p.key.startswith(("pkg.torch", "namespace")) for n in model.graph.node for p in n.metadata_props)
    return dict(family=name.partition("/")[0] if "/" in name else path.stem.partition("_")[0],
                exporter="dynamo" if noted else "TorchScript" if model.producer_name == "pytorch" else
                model.producer_name or "?",
                opset=max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0),
                dtype={1: "fp32", 10: "fp16", 16: "bf16"}.get(dtype, "other"), truth=None)


def examine(job):
    """One model: patch, judge, run. Everything that another process needs is in `job`."""
    folder, name, facts = job["folder"], job["name"], job["facts"]
    original = folder / name
    facts = facts or describe(original, name)
    with tempfile.TemporaryDirectory(dir=job["scratch"]) as scratch:
        out = pathlib.Path(scratch) / "patched.onnx"
        code, report = patch(job["patcher"], original, out, job["family"])
        result = dict(name=name, exit=code, facts=facts, family=report.get("family", {}).get("name", ""),
                      error=failure(code, report, folder),
                      modules=judge(code, report, facts["truth"], folder), numbers="unchanged", wrong=[])
        if code not in (0, 4):
            result["wrong"].append(f"exit code {code}: {result['error']}")
        if code == 0 and facts["truth"]:
            result["wrong"] += loss_faults(name, report)
        if code == 0 and out.is_file():
            result["numbers"] = (compare_numbers(original, out, original.with_suffix(".npz"), job["library"],
                                                 facts["dtype"]) if job["numbers"] else "not compared")
    result["wrong"] += [w for m in result["modules"].values() for w in m["wrong"]]
    if result["numbers"].startswith("differs"):
        result["wrong"].append(result["numbers"])
    return result


def unpack(folder, units=None):
    """The exports of the repository, or some units of them (such as {"llama"})."""
    with tarfile.open(CORPUS / "exports.tar.xz") as archive:
        members = [m for m in archive if units is None or m.name.partition("/")[0] in units]
        archive.extractall(folder, members, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


@contextlib.contextmanager
def corpus(folder=None):
    """The folder of exports: the given one, or the repository's own, unpacked for as long as the block runs."""
    if folder:
        yield pathlib.Path(folder).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="liger-recall-") as scratch:
        unpack(scratch)
        yield pathlib.Path(scratch)


def examine_all(folder, patcher, library, names=None, truth=None, family=None, numbers=True, jobs=2):
    """Results of every model below `folder` (or of `names`), by name. `numbers`: which of them are run as well."""
    names = sorted(names or (str(p.relative_to(folder)) for p in folder.rglob("*.onnx")
                             if not p.name.endswith(".liger.onnx")))
    runs = numbers if callable(numbers) else lambda name: numbers
    with tempfile.TemporaryDirectory(prefix="liger-recall-") as scratch:
        work = [dict(folder=folder, name=name, facts=(truth or {}).get(name), patcher=str(patcher),
                     library=str(library), family=family, numbers=runs(name), scratch=scratch) for name in names]
        # The largest first: none of them is left for one process at the end.
        work.sort(key=lambda job: -(folder / job["name"]).stat().st_size)
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
            results = {r["name"]: r for r in pool.map(examine, work)}
    return {name: results[name] for name in names}


def read_truth(path=None):
    return json.loads((path or CORPUS / "truth.json").read_text())["files"]


def shortfalls(result):
    """(module, text) of everything true and not fused in one file; one entry for a run that failed."""
    rows = {module: m for module, m in result["modules"].items() if m["short"]}
    if result["exit"] != 0 and not rows:
        return [("not patched", result["error"])]
    if result["exit"] != 0:
        return [(" ".join(f"{module} 0/{m['short']}" for module, m in rows.items()), next(iter(rows.values()))["why"])]
    return [(f"{module} {m['fused']}/{m['fused'] + m['short']}", m["why"]) for module, m in rows.items()]


def groups(results, key):
    grouped = collections.defaultdict(list)
    for result in results.values():
        grouped[key(result)].append(result)
    return dict(sorted(grouped.items()))


def totals(rows):
    """(fused, true) over files. More than is true in one file does not make up for less in another."""
    return (sum(min(m["fused"], m["true"] - m["outside"]) for m in rows), sum(m["true"] - m["outside"] for m in rows))


def share(results, module):
    """"fused/true" over files; what is expected as well, where that is another number; blank where there is none."""
    rows = [r["modules"][module] for r in results if module in r["modules"]]
    expected = sum(m["expected"] or 0 for m in rows)
    if any(m["true"] is None for m in rows):
        fused = sum(m["fused"] for m in rows)
        return f"{fused}/{expected or '?'}" if fused or expected else ""
    fused, true = totals(rows)
    more = sum(max(0, m["fused"] - m["true"]) for m in rows)
    if not true and not more:
        return ""
    return f"{fused}/{true}" + (f" +{more}" if more else "") + (f" e{expected}" if expected != true else "")


def outside(results):
    """{module: instances} that the family's helper does not swap."""
    counted = collections.Counter()
    for r in results:
        for module, m in r["modules"].items():
            counted[module] += m["outside"]
    return {module: n for module, n in counted.items() if n}


def print_table(results):
    columns = ["family", "exporter", "opset", "dtype", "files", *MODULES, "degr", "miss", "unacc", "numbers", "outside"]
    lines = [columns]
    for key, members in groups(results, lambda r: tuple(r["facts"][k] for k in
                                                        ("family", "exporter", "opset", "dtype"))).items():
        modules = [m for r in members for m in r["modules"].values()]
        numbers = collections.Counter(r["numbers"].partition(":")[0] for r in members)
        lines.append([*map(str, key), str(len(members)), *(share(members, m) for m in MODULES),
                      *(str(sum(m[k] for m in modules) or "") for k in ("degraded", "missed", "unaccounted")),
                      ", ".join(f"{n} {k}" for k, n in sorted(numbers.items())),
                      ", ".join(f"{module} {n}" for module, n in outside(members).items())])
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print("cells: fused/true; +N: N more than are true; eN: the report expected N instead of the true number; blank: none\n"
          "outside: there, and no module of Liger's helper for the family\n")


def print_shortfalls(results):
    for name, result in results.items():
        for what, why in shortfalls(result):
            print(f"short  {name}: {what}: {why}")
    for name, result in results.items():
        for module, m in result["modules"].items():
            if m["true"] is not None and m["fused"] > m["true"]:
                print(f"more  {name}: {module} {m['fused']} fused, {m['true']} true")
    for name, result in results.items():
        if result["numbers"].startswith("not run"):
            print(f"not run  {name}: {result['numbers'].partition(': ')[2]}")


def print_totals(results):
    for module in MODULES:
        print(f"{module:11s} {share(results.values(), module)}")
    whole = sum(not shortfalls(r) for r in results.values())
    print(f"files       {whole} of {len(results)} without a shortfall")


def wrongs(results):
    return [f"{name}: {w}" for name, result in results.items() for w in result["wrong"]]


# The floor.

def floor_entry(result):
    # No more than is true: what is fused beyond that is wrong, and must be free to go.
    entry = {"fused": {module: m["fused"] if m["true"] is None else min(m["fused"], m["true"])
                       for module, m in result["modules"].items() if m["fused"]}}
    if result["numbers"] not in ("unchanged",):
        entry["numbers"] = result["numbers"]
    for key, found in (("short", dict(shortfalls(result))), ("outside", outside([result]))):
        if found:
            entry[key] = found
    return entry


def write_floor(results):
    lines = [f"{json.dumps(name)}: {json.dumps(floor_entry(r))}" for name, r in results.items()]
    FLOOR.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def below_floor(results, floor):
    """Sentences about files that are worse than recorded."""
    found = [f"{name}: recorded in {FLOOR.name}, and not there" for name in floor if name not in results]
    for name, result in results.items():
        if name not in floor:
            found.append(f"{name}: not in {FLOOR.name}; tools/recall.py --update adds it")
            continue
        for module, fused in floor[name]["fused"].items():
            now = result["modules"].get(module, {"fused": 0, "why": "not in the report"})
            if now["fused"] < fused:
                found.append(f"{name}: {module} {now['fused']} fused, {fused} recorded: {now['why']}")
        if floor[name].get("numbers") == SAME and result["numbers"] not in (SAME, "not compared"):
            found.append(f"{name}: the numbers were compared when it was recorded, now: {result['numbers']}")
    return found


# The README.

def readme_table(results):
    columns = [("dynamo 18", ("dynamo", 18)), ("dynamo 20", ("dynamo", 20)), ("dynamo 23", ("dynamo", 23)),
               ("TorchScript 17", ("TorchScript", 17))]
    lines = [BEGIN,
             "Module instances fused of those that are there, as hooks on the running models counted them, over "
             f"{len(results)} exports", "of tiny models with random weights (`tests/recall`): fp32 by exporter and "
             "opset, fp16 and bf16 together. Every module is on",
             "that the family accepts; `short` is what of them is not fused, and `tools/recall.py` lists it with the "
             "reasons. `outside` is there", "too, but no module of Liger's helper for the family.",
             "", "| family | " + " | ".join(c for c, _ in columns) + " | fp16, bf16 | short | outside |",
             "| --- |" + " --- |" * (len(columns) + 3)]

    def cell(members):
        rows = [m for r in members for m in r["modules"].values() if m["true"] is not None]
        return "{}/{}".format(*totals(rows)) if members else ""

    for family, members in groups(results, lambda r: r["facts"]["family"]).items():
        wide = [r for r in members if r["facts"]["dtype"] == "fp32"]
        cells = [cell([r for r in wide if (r["facts"]["exporter"], r["facts"]["opset"]) == key]) for _, key in columns]
        cells.append(cell([r for r in members if r not in wide]))
        short = []
        for module in MODULES:
            rows = [r["modules"][module] for r in members if module in r["modules"]]
            if sum(m["short"] for m in rows):
                short.append(f"{module} {sum(m['short'] for m in rows)} of {totals(rows)[1]}")
        beyond = ", ".join(f"{module} {n}" for module, n in outside(members).items())
        lines.append(f"| {family} | " + " | ".join([*cells, ", ".join(short), beyond]) + " |")
    total = " · ".join(f"{m} {share(results.values(), m).split(' ')[0] or '0/0'}" for m in MODULES)
    return "\n".join([*lines, "", f"All together: {total}.", END])


def readme_part(text):
    found = re.search(re.escape(BEGIN) + ".*?" + re.escape(END), text, re.S)
    return found.group(0) if found else None


def write_readme(results):
    text = README.read_text()
    part = readme_part(text)
    if part is None:
        sys.exit(f"recall.py: README.md has no lines\n{BEGIN}\n{END}")
    README.write_text(text.replace(part, readme_table(results)))


def newest(*candidates):
    return max((p for p in candidates if p.is_file()), key=lambda p: p.stat().st_mtime, default=candidates[0])


def add_binaries(parser):
    parser.add_argument("--patcher", type=pathlib.Path, help="liger-patch; default: LIGER_PATCH, build/release",
                        default=os.environ.get("LIGER_PATCH", ROOT / "build/release/bin/liger-patch"))
    parser.add_argument("--library", type=pathlib.Path, help="libliger_ort.so; default: LIGER_LIBRARY, build/release",
                        default=os.environ.get("LIGER_LIBRARY", ROOT / "build/release/lib/libliger_ort.so"))
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2, each with one thread)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.partition("\n\n")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="a folder with exports, or patterns of names in tests/recall")
    parser.add_argument("--truth", type=pathlib.Path, help="true counts, in the form of tests/recall/truth.json")
    parser.add_argument("--family", help="passed to liger-patch; 'any' measures the forms without the families' maps")
    parser.add_argument("--no-numbers", action="store_true", help="count only, run nothing")
    parser.add_argument("--json", type=pathlib.Path, help="write everything about each file")
    parser.add_argument("--update", action="store_true", help=f"write {FLOOR.relative_to(ROOT)}")
    parser.add_argument("--readme", action="store_true", help="write the table of README.md")
    parser.add_argument("--check", action="store_true", help=f"hold against {FLOOR.relative_to(ROOT)}")
    add_binaries(parser)
    arguments = parser.parse_args()
    for path in (arguments.patcher, arguments.library):
        if not path.is_file():
            parser.error(f"{path} is not there: build it, or name it with --patcher and --library")
    folders = [w for w in arguments.what if pathlib.Path(w).is_dir()]
    if len(folders) > 1 or folders and len(arguments.what) > 1:
        parser.error("one folder, or patterns of names")
    if (arguments.update or arguments.readme) and (arguments.what or arguments.family):
        parser.error("--update and --readme want all exports of the repository, patched the usual way")
    if arguments.update and arguments.no_numbers:
        parser.error("--update records the numbers' verdict as well")

    truth = read_truth(arguments.truth) if arguments.truth or not folders else None
    with corpus(folders[0] if folders else None) as folder:
        names = None
        if arguments.what and not folders:
            names = [n for n in truth if any(fnmatch.fnmatch(n, w) or fnmatch.fnmatch(n, w + "/*")
                                             for w in arguments.what)]
            if not names:
                parser.error("no export has such a name")
        results = examine_all(folder, arguments.patcher, arguments.library, names, truth, arguments.family,
                              not arguments.no_numbers, arguments.jobs)
    print_table(results)
    print_shortfalls(results)
    print_totals(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    bad = wrongs(results)
    if arguments.check:
        floor = json.loads(FLOOR.read_text())
        bad += below_floor(results, {n: f for n, f in floor.items() if names is None or n in names})
    for sentence in bad:
        print("WRONG  " + sentence)
    if arguments.update:
        write_floor(results)
    if arguments.readme:
        write_readme(results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
