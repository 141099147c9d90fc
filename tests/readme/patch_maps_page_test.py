"""Follows docs/patch-maps.md from top to bottom, as a reader would: YAML blocks are saved under the name in their first
line, Python blocks are run, and so is each `$ command` of a console block, whose output has to be the one that is shown.

A line `...` at the end of an output stands for any further lines; a command says its exit code if it is not 0.
Environment: LIGER_PATCH, LIGER_LIBRARY, LIGER_PYTHON.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/patch-maps.md").read_text()
BLOCKS = re.findall(r"(?ms)^```(yaml|console|python)\n(.*?)^```$", PAGE)


class PatchMapsPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        for path, target in (("build/release/bin", "LIGER_PATCH"), ("build/release/lib", "LIGER_LIBRARY")):
            (cls.folder / path).mkdir(parents=True)
            shutil.copy2(os.environ[target], cls.folder / path)
        shutil.copytree(ROOT / "tests/models", cls.folder / "tests/models")
        (cls.folder / "tests/recall").mkdir()
        (cls.folder / "tests/recall/exports.tar.xz").symlink_to(ROOT / "tests/recall/exports.tar.xz")
        (cls.folder / "build/venv/bin").mkdir(parents=True)
        # A link would not find its packages.
        python = cls.folder / "build/venv/bin/python"
        python.write_text(f"#!/bin/sh\nexec '{os.environ['LIGER_PYTHON']}' \"$@\"\n")
        python.chmod(0o755)
        (cls.folder / "tools").mkdir()
        shutil.copy2(ROOT / "tools/compare.py", cls.folder / "tools")

    def run_console(self, block):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, expected = step.partition("\n")
            code = re.search(r"# exit code (\d+)$", command)
            done = subprocess.run(command, shell=True, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            want, got = expected.splitlines(), done.stdout.splitlines()
            if want and want[-1] == "...":
                want, got = want[:-1], got[: len(want) - 1]
            self.assertEqual((got, done.returncode), (want, int(code[1]) if code else 0),
                             f"{command}\n{done.stdout}")

    def test_the_page_can_be_followed(self):
        for language, block in BLOCKS:
            with self.subTest(block.splitlines()[0]):
                if language == "console":
                    self.run_console(block)
                elif language == "python":
                    done = subprocess.run([os.environ["LIGER_PYTHON"], "-B", "-c", block], cwd=self.folder,
                                          capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assert_shown_behind(block, done.stdout)
                else:
                    name = re.match(r"# ([a-z_]+\.yaml)\n", block)
                    self.assertIsNotNone(name, "a map without a name")
                    (self.folder / name[1]).write_text(block)

    def assert_shown_behind(self, block, output):
        """An indented block behind a Python block is its output, but for the white space."""
        behind = PAGE.split(block + "```\n\n", 1)[1]
        shown = re.match(r"(?:    .*\n)+", behind)
        if shown:
            self.assertEqual(output.split(), shown[0].split())

    def test_maps_without_a_command_are_read(self):
        """Those that no command shows have optional entries only."""
        for language, block in BLOCKS:
            if language != "yaml" or block.splitlines()[0].removeprefix("# ") in PAGE.replace(block, ""):
                continue
            with self.subTest(block.splitlines()[0]):
                (self.folder / "read.yaml").write_text(block)
                done = subprocess.run([os.environ["LIGER_PATCH"], "tests/models/llama/dynamo_op20.onnx", "--check",
                                       "--patches", "read.yaml"], cwd=self.folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_of_ops_are_those_of_the_program(self):
        names = {}
        for path in (ROOT / "patches/ops").glob("*.yaml"):
            op = yaml.safe_load(path.read_text())
            names[op["op"]] = sorted(entry["name"] for entry in op.get("names", []))
        rows = re.findall(r"(?m)^\| `(Liger\w+)` \| (.*?) ?\|$", PAGE)
        self.assertEqual({op: sorted(re.findall(r"`(\w+)`", further)) for op, further in rows}, names)


if __name__ == "__main__":
    unittest.main()
