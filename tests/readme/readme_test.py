"""Runs what the README shows: each `$ command` of a console block, each Python block, and compiles the C++ block.

The commands run in a scratch folder that looks like a clone after a build. A line `...` in the expected output stands
for any further lines. Environment: LIGER_PATCH, LIGER_LIBRARY, LIGER_PYTHON, LIGER_ORT_INCLUDE.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(language):
    text = (ROOT / "README.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.scratch.name)
        (folder / "build/release/bin").mkdir(parents=True)
        (folder / "build/release/lib").mkdir()
        (folder / "build/release/bin/liger-patch").symlink_to(os.environ["LIGER_PATCH"])
        (folder / "build/release/lib/libliger_ort.so").symlink_to(os.environ["LIGER_LIBRARY"])
        shutil.copytree(ROOT / "tests/models", folder / "tests/models")
        cls.folder = folder
        cls.checked = 0
        for block in blocks("console"):
            cls.run_console(block)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def run_console(cls, block):
        steps = re.split(r"^\$ ", block, flags=re.M)[1:]
        for step in steps:
            command, _, expected = step.partition("\n")
            done = subprocess.run(command, shell=True, cwd=cls.folder, capture_output=True, text=True)
            if done.returncode != 0:
                raise AssertionError(f"{command}\nended with {done.returncode}: {done.stderr}")
            want, got = expected.splitlines(), done.stdout.splitlines()
            if want and want[-1] == "...":
                want, got = want[:-1], got[: len(want) - 1]
            if want != got:
                raise AssertionError(f"{command}\nprinted\n{done.stdout}\nand the README says\n{expected}")
            cls.checked += 1

    def test_console_blocks_were_run(self):
        self.assertGreaterEqual(self.checked, 4)

    def test_python_blocks_run(self):
        found = blocks("python")
        self.assertEqual(len(found), 2)
        for code in found:
            check = code + "\nassert numpy.isfinite(logits).all() and logits.size > 0\n"
            done = subprocess.run([os.environ["LIGER_PYTHON"], "-B", "-c", check], cwd=self.folder,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_cpp_block_compiles(self):
        found = blocks("cpp")
        self.assertEqual(len(found), 1)
        source = self.folder / "example.cc"
        source.write_text(found[0])
        done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-isystem", os.environ["LIGER_ORT_INCLUDE"],
                               str(source)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_options_of_the_table_exist(self):
        shown = subprocess.run([os.environ["LIGER_PATCH"], "--help"], capture_output=True, text=True).stdout
        for option in re.findall(r"^\| (`-.*?) \|", (ROOT / "README.md").read_text(), re.M):
            for name in re.findall(r"`(--?[a-z-]+)", option):
                self.assertIn(name, shown)


if __name__ == "__main__":
    unittest.main()
