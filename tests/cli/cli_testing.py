"""What the tests of the command line share: a folder per test, runs of the binary, checks that hold for every run."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
EXPECTED = json.loads((MODELS / "expected.json").read_text())["models"]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
BINARY = os.environ["LIGER_PATCH"]
MODULES = ("rope", "rms_norm", "swiglu")

sys.path.insert(0, str(ROOT / "tools"))
import compare  # noqa: E402
from json_schema import problems  # noqa: E402

STRACE = shutil.which("strace")
CAN_TRACE = bool(STRACE) and subprocess.run([STRACE, "-o", os.devnull, "true"], capture_output=True).returncode == 0
# The leak check of a build with sanitizers cannot work under a tracer.
TRACED = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
needs_strace = unittest.skipUnless(CAN_TRACE, "strace is missing or may not trace")


def liger_nodes(path):
    graph = onnx.load(path, load_external_data=False).graph
    return sorted((n.op_type, n.name) for n in graph.node if n.domain == "liger")


class CliTest(unittest.TestCase):
    """Each test has a folder of its own, `self.folder`, in which the binary runs."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name).resolve()

    def model(self, name="llama/dynamo_op20.onnx", to="model.onnx", config=False):
        """A copy of a model of tests/models; with config.json beside it if wanted."""
        target = self.folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(MODELS / name, target)
        if config:
            shutil.copyfile((MODELS / name).parent / "config.json", target.parent / "config.json")
        return target

    def external_model(self, folder="."):
        """A model with its weights in another file; the location in the model is kept."""
        name = "llama/dynamo_op20_external.onnx"
        model = self.model(name, f"{folder}/dynamo_op20_external.onnx")
        shutil.copyfile(MODELS / (name + ".data"), str(model) + ".data")
        return model

    def command(self, *arguments):
        return [BINARY, *map(str, arguments)]

    def run_command(self, command, **options):
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.folder,
                             **options)
        self.assertEqual([str(p) for p in self.folder.rglob(".liger-*")], [], "a temporary file is left")
        for text in (run.stdout, run.stderr):
            self.assertNotIn("\033", text, "escape sequences though this is no terminal")
        return run

    def run_patch(self, *arguments, **options):
        return self.run_command(self.command(*arguments), **options)

    def patch(self, *arguments):
        """A run that has to succeed."""
        run = self.run_patch(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def patch_report(self, *arguments):
        """The report of a run that has to succeed."""
        self.patch(*arguments, "--report", "report.json")
        return self.read_report()

    def read_report(self, path="report.json"):
        return self.check_report(json.loads((self.folder / path).read_text()))

    def check_report(self, report):
        self.assertEqual(list(problems(report, SCHEMA)), [])
        for name, m in report["modules"].items():
            if m["expected"] is not None:
                parts = ("patched", "already_fused", "degraded", "missed", "excluded", "unaccounted")
                self.assertEqual(m["expected"], sum(m[p] for p in parts), name)
            self.assertEqual(m["missed"], sum(p["module"] == name for p in report["missed"]))
            self.assertEqual(m["degraded"], sum(p["module"] == name for p in report["degraded"]))
            patched = sum(len(p["paths"]) for p in report["patched"] if p["module"] == name)
            before = sum(p["instances"] for p in report["already_fused"] if p["module"] == name)
            # `additional` is what was fused beyond the expected instances, now or before.
            self.assertEqual(m["patched"] + m["already_fused"] + m["additional"], patched + before, name)
            self.assertLessEqual(m["patched"], patched, name)
            self.assertLessEqual(m["already_fused"], before, name)
        return report

    def files(self):
        """Everything in the folder with its contents; links with what they lead to."""
        return {str(p.relative_to(self.folder)): os.readlink(p) if p.is_symlink() else p.read_bytes()
                for p in sorted(self.folder.rglob("*")) if p.is_symlink() or p.is_file()}

    def assert_fails(self, code, sentence, *arguments, hint=".", **options):
        """Exit code, one sentence and a hint (patterns) on stderr, the same in the report, no other file changed.

        A hint of None: the sentence itself says what to do.
        """
        before = self.files()
        run = self.run_patch(*arguments, "--report", "report.json", **options)
        self.assertEqual(run.returncode, code, run.stderr)
        report = self.read_report()
        notes = ["liger-patch: " + d["message"] for d in report["diagnostics"] if d["severity"] == "note"]
        errors = [line for line in run.stderr.splitlines()
                  if not line.startswith("liger-patch: warning: ") and line not in notes]
        self.assertTrue(errors and errors[0].startswith("liger-patch: "), run.stderr)
        said = errors[0].removeprefix("liger-patch: ")
        self.assertRegex(said, sentence)
        for line in errors[1:]:  # of this error and of further ones of the same kind
            self.assertRegex(line, "^(  (at|hint)|liger-patch): .", run.stderr)
        self.assertEqual(report["status"], "error")
        self.assertIsNone(report["output"])
        self.assertEqual(report["exit_code"], code)
        first = next(d for d in report["diagnostics"] if d["severity"] == "error")
        self.assertEqual(first["message"], said)
        if hint is None:
            self.assertEqual(first["hint"], "")
        else:
            self.assertRegex(first["hint"], hint)
            self.assertIn("  hint: " + first["hint"], errors)
        after = self.files()
        del after["report.json"]
        before.pop("report.json", None)
        self.assertEqual(sorted(after), sorted(before))
        self.assertEqual(after, before)
        return report

    def run_model(self, path, npz):
        """Outputs in ONNX Runtime, without the library: from the function bodies."""
        session = compare.open_session(path)
        arrays = compare.np.load(npz)
        return session.run(None, {i.name: arrays["in_" + i.name] for i in session.get_inputs()})

    def assert_same_results(self, original, patched, npz):
        wanted, got = self.run_model(original, npz), self.run_model(patched, npz)
        self.assertLessEqual(compare.difference(wanted, got), 2e-6 * compare.largest(wanted))


def fd_calls(trace):
    """(call, path, arguments, result) of each traced call whose first argument is an open file."""
    for line in trace.splitlines():
        found = re.match(r"\d+\s+(\w+)\((\d+)<([^>]*)>,? ?(.*)\)\s+= (-?\d+)", line)
        if found:
            yield found[1], found[3], found[4], int(found[5])
