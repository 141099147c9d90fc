"""The tables of cases/*.yaml: each case runs the binary once and compares all that a user sees of it.

    - name: a list of modules means these and no others
      files: {model.onnx: {copy: llama/dynamo_op20.onnx}}
      run: model.onnx --modules rms_norm
      stdout:
        - "  rope                        not among --modules"
        - "wrote    model.liger.onnx"
      wrote: {model.liger.onnx: {nodes: {LigerAddRMSNorm: 4, LigerRMSNorm: 1}}}

Keys of a case; what is not said has to be nothing (no output, exit code 0, no file changed):

    name      what a user may rely on; -k finds it
    why       a reason, where the name does not say it
    open      why the program does not keep the case yet; it has to fail until then
    files     name: text, or one of
                {copy: NAME of tests/models}, with {first: N} cut off behind N bytes
                {onnx: model in ONNX's text syntax}
                {text: LINES, times: N}      {hex: BYTES}      {link: TARGET}      {folder: true}
    before    command lines that prepare files and have to succeed; {edit: FILE, by: NAME} changes a model as another
              tool would (EDITS below)
    run       the command line behind the program's name, as a shell would split it, or a list of words
    stdin     name of a file; without it there is nothing to read
    exit      exit code
    stdout, stderr
              a text: exactly this; a line `...` stands for any lines, none too
              a list: these lines, in this order, whatever stands between
              {nodes: ...}, {same: ...}, {/pointer: ...}: as below
    wrote     every file or folder (with / behind it) that is new or changed, with what it holds:
                ~ (anything), a text as above, or
                {nodes: {OP: N}}   a model with these operators outside of ONNX's own domains; {} for none
                {same: FILE}       the bytes of another file of the case
                {/json/pointer: value}   JSON; /# behind a list's pointer is its length
    gone      files that are there no more
    traced    true: nothing at all is opened for writing, made, renamed or removed, wherever it is

Texts may hold {any} (the rest of a line or a part of it), {sha}, {number}, {version}, {folder} (that of the case).

Beside what a case says, of every run holds: no temporary file is left, neither here nor in $TMPDIR and $HOME; lines of
stderr are messages of the program, their places and their hints; nothing is coloured; JSON reports follow the schema.

Exit code 70 is a fault of the program itself: no input is known that leads there, so no case has it.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
import xml.dom.minidom

import numpy
import onnx
import onnx.parser
import yaml

from json_schema import problems

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODELS = ROOT / "tests" / "models"
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
BINARY = os.environ["LIGER_PATCH"]
STRACE = shutil.which("strace")
CAN_TRACE = bool(STRACE) and subprocess.run([STRACE, "-o", os.devnull, "true"], capture_output=True).returncode == 0
KEYS = {"name", "why", "open", "files", "before", "run", "stdin", "exit", "stdout", "stderr", "wrote", "gone", "traced"}
PLACEHOLDERS = {"any": r"[^\n]*", "sha": "[0-9a-f]{64}", "number": r"\d+", "version": r"\d+\.\d+\.\d+"}
STDERR_LINE = re.compile(r"liger-patch: \S.*|  at: \S.*|  hint: \S.*")
FORMS = {"nodes", "same"}


class StrictLoader(yaml.SafeLoader):
    """A key that stands twice would silently take a part of a case away."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"keys stand twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def half_weights(model):
    """A converter that turns weights, inputs and outputs to f16 and does not look into functions."""
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    for tensor in graph.initializer:
        if tensor.data_type == single:
            with numpy.errstate(over="ignore"):  # the masks' -3.4e38
                array = onnx.numpy_helper.to_array(tensor).astype("float16")
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def no_functions(model):
    del model.functions[:]


def no_liger_import(model):
    model.opset_import.remove(next(i for i in model.opset_import if i.domain == "liger"))


def node_named_twice(model):
    model.graph.node[1].name = model.graph.node[0].name


EDITS = {edit.__name__: edit for edit in (half_weights, no_functions, no_liger_import, node_named_twice)}


def text_pattern(expected, folder):
    """A regular expression of a whole text; `expected` is a text, or a list of lines with anything between."""
    if isinstance(expected, list):
        expected = "...\n" + "".join(f"{line}\n...\n" for line in expected)
    pattern = ""
    for line in expected.splitlines():
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
            continue
        for part in re.split(r"(\{\w+\})", line):
            name = part[1:-1]
            if part == "{folder}":
                pattern += re.escape(folder)
            elif part.startswith("{") and name in PLACEHOLDERS:
                pattern += PLACEHOLDERS[name]
            else:
                pattern += re.escape(part)
        pattern += r"\n"
    return pattern


def first_lack(expected, text, folder):
    """The first expected line up to which the text no longer fits: where a reader has to look."""
    lines = [line for e in expected for line in ("...", e)] if isinstance(expected, list) else expected.splitlines()
    for count in range(1, len(lines) + 1):
        head = "\n".join(lines[:count]) + "\n...\n"
        if not re.fullmatch(text_pattern(head, folder), text):
            return f"expected line {count}: {lines[count - 1]!r}"
    return "there is more behind the expected lines"


class Case:
    def __init__(self, test, case, folder, home):
        self.test, self.case, self.folder, self.home = test, case, folder, home

    # Files of a case.

    def make(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = {"text": content}
        if "copy" in content:
            path.write_bytes((MODELS / content["copy"]).read_bytes()[:content.get("first")])
        elif "onnx" in content:
            onnx.save(onnx.parser.parse_model(content["onnx"]), path)
        elif "text" in content:
            path.write_text(content["text"] * content.get("times", 1))
        elif "hex" in content:
            path.write_bytes(bytes.fromhex(content["hex"]))
        elif "link" in content:
            path.symlink_to(content["link"])
        else:
            assert content == {"folder": True}, content
            path.mkdir(exist_ok=True)

    def snapshot(self, root=None):
        root = root or self.folder
        found = {}
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if path.is_symlink():
                found[name] = ("link", os.readlink(path))
            elif path.is_dir():
                found[name + "/"] = ("folder",)
            else:
                found[name] = ("file", path.read_bytes(), path.stat().st_mtime_ns)
        return found

    def execute(self, words, stdin=None, trace=None):
        command = [BINARY, *words]
        if trace:
            command = [STRACE, "-f", "-e", "trace=file", "-s", "4096", "-o", str(trace), *command]
        environment = {**os.environ, "HOME": str(self.home), "TMPDIR": str(self.home)}
        if trace:  # the leak check of a build with sanitizers cannot work under a tracer
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        with open(self.folder / stdin if stdin else os.devnull, "rb") as source:
            return subprocess.run(command, stdin=source, capture_output=True, cwd=self.folder, env=environment)

    def prepare(self):
        for name, content in self.case.get("files", {}).items():
            self.make(name, content)
        for step in self.case.get("before", []):
            if isinstance(step, dict):
                path = self.folder / step["edit"]
                model = onnx.load(path)
                EDITS[step["by"]](model)
                onnx.save(model, path)
            else:
                run = self.execute(shlex.split(step))
                self.test.assertEqual(run.returncode, 0, f"preparing {step!r}: {run.stderr.decode()}")

    # What the expectations are held against.

    def check_text(self, expected, text, what):
        if re.fullmatch(text_pattern(expected, str(self.folder)), text) is None:
            lack = first_lack(expected, text, str(self.folder))
            self.test.fail(f"{what} is not as expected; {lack}\n--- {what}:\n{text}")

    def check_nodes(self, expected, data, what):
        model = onnx.load_from_string(data)
        found = {}
        for node in model.graph.node:
            if node.domain not in ("", "ai.onnx", "com.microsoft"):
                name = node.op_type if node.domain == "liger" else f"{node.domain}.{node.op_type}"
                found[name] = found.get(name, 0) + 1
        self.test.assertEqual(found, expected, what)

    def check_json(self, expected, data, what):
        document = json.loads(data)
        if "schema_version" in document:
            self.test.assertEqual(list(problems(document, SCHEMA)), [], what)
        for pointer, value in expected.items():
            found = document
            for step in pointer.split("/")[1:]:
                if step == "#":
                    found = len(found)
                    continue
                key = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(found, (dict, list)) or (isinstance(found, dict) and key not in found):
                    self.test.fail(f"{what} has no {pointer}: {found}")
                found = found[int(key)] if isinstance(found, list) else found[key]
            if isinstance(value, str) and isinstance(found, str) and value:
                self.check_text(value, found + "\n", f"{what}{pointer}")
            else:
                self.test.assertEqual(found, value, f"{what}{pointer}")

    def check_content(self, expected, data, what):
        if what.endswith(".xml"):
            xml.dom.minidom.parseString(data)
        if what.endswith((".json", ".sarif")) and not isinstance(expected, dict):
            json.loads(data)
        if expected is None:
            return
        if isinstance(expected, (str, list)):
            self.check_text(expected, data.decode(), what)  # all that the program writes is UTF-8
        elif set(expected) == {"nodes"}:
            self.check_nodes(expected["nodes"], data, what)
        elif set(expected) == {"same"}:
            self.test.assertTrue(data == (self.folder / expected["same"]).read_bytes(),
                                 f"{what} has not the bytes of {expected['same']}")
        else:
            self.test.assertTrue(all(key.startswith("/") for key in expected), f"{what}: unknown form of {expected}")
            self.check_json(expected, data, what)

    def check_trace(self, trace):
        for line in trace.read_text(errors="replace").splitlines():
            if re.search(r"= -1 E", line) or "/dev/" in line:
                continue
            writes = re.search(r"\b(?:open|openat|creat)\(.*O_(?:WRONLY|RDWR|CREAT)", line)
            changes = re.search(r"\b(?:mkdir|mknod|rename|unlink|link|symlink|truncate|rmdir|chmod|utime)\w*\(", line)
            self.test.assertFalse(writes or changes, line)

    def check(self):
        case = self.case
        self.prepare()
        before = self.snapshot()
        words = case["run"] if isinstance(case["run"], list) else shlex.split(case["run"])
        trace = self.home.parent / "trace" if case.get("traced") else None
        if trace and not CAN_TRACE:
            self.test.skipTest("strace is missing or may not trace")
        run = self.execute(words, case.get("stdin"), trace)
        said = f"exit {run.returncode}\n{run.stdout[:4000].decode(errors='replace')}\n{run.stderr.decode()}"
        self.test.assertEqual(run.returncode, case.get("exit", 0), said)
        if trace:
            self.check_trace(trace)

        errors = run.stderr.decode()
        self.check_text(case.get("stderr", ""), errors, "stderr")
        self.check_content(case.get("stdout", ""), run.stdout, "stdout")
        model_to_stdout = isinstance(case.get("stdout", ""), dict) and set(case["stdout"]) & FORMS
        self.test.assertNotIn("\033", errors + ("" if model_to_stdout else run.stdout.decode()))
        if "-" not in words:  # else the text of the report may be there as well
            for line in errors.splitlines():
                self.test.assertRegex(line, STDERR_LINE)
        if run.returncode and "--lint" not in words:  # whose findings are its output
            self.test.assertRegex(errors, "(?m)^liger-patch: ", "a failure that says nothing")

        after = self.snapshot()
        self.test.assertEqual(self.snapshot(self.home), {}, "something was left in $HOME or $TMPDIR")
        wrote = case.get("wrote", {})
        wrote = wrote if isinstance(wrote, dict) else dict.fromkeys(wrote)
        changed = {name for name in after if after[name] != before.get(name)}
        parents = {f"{parent}/" for name in changed for parent in pathlib.PurePath(name).parents}
        self.test.assertEqual(sorted(changed - (parents - set(wrote))), sorted(wrote), said)
        self.test.assertEqual(sorted(set(before) - set(after)), sorted(case.get("gone", [])), said)
        for name, expected in wrote.items():
            if after[name][0] == "file":
                self.check_content(expected, after[name][1], name)


class TableTest(unittest.TestCase):
    def run_case(self, case):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch).resolve()
            (scratch / "case").mkdir()
            (scratch / "home").mkdir()
            checked = Case(self, case, scratch / "case", scratch / "home")
            if "open" not in case:
                checked.check()
                return
            # What a user should see and does not yet: a case that begins to pass is no longer open.
            with self.assertRaises(AssertionError, msg="take `open:` out of the case"):
                checked.check()


def load_tables():
    tables = {path.stem: yaml.load(path.read_text(), StrictLoader) for path in sorted((HERE / "cases").glob("*.yaml"))}
    for name, cases in tables.items():
        for case in cases:
            assert "name" in case and "run" in case and set(case) <= KEYS, f"{name}: {case.get('name')}: {set(case) - KEYS}"
    return tables


TABLES = load_tables()
CASES = [case for cases in TABLES.values() for case in cases]


class WholeTableTest(unittest.TestCase):
    """What the table itself has to hold."""

    def test_names_are_unique(self):
        names = [case["name"] for case in CASES]
        self.assertEqual(sorted({n for n in names if names.count(n) > 1}), [])

    def test_every_option_of_the_help_has_a_case(self):
        text = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
        options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", text))
        self.assertGreater(len(options), 20)
        used = {w.split("=")[0] for c in CASES for w in
                (c["run"] if isinstance(c["run"], list) else shlex.split(c["run"]))}
        used |= {long for short, long in (("-o", "--output"), ("-j", "--jobs"), ("-h", "--help")) if short in used}
        self.assertEqual(sorted(options - used), [])

    def test_every_exit_code_that_input_can_cause_has_cases(self):
        self.assertEqual(sorted({case.get("exit", 0) for case in CASES}), [0, 1, 2, 3, 4, 5])


def add_tables():
    for table, cases in TABLES.items():
        methods = {f"test {case['name']}": (lambda self, case=case: self.run_case(case)) for case in cases}
        name = "".join(part.capitalize() for part in table.split("_")) + "Test"
        globals()[name] = type(name, (TableTest,), methods)


add_tables()

if __name__ == "__main__":
    unittest.main()
