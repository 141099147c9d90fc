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

import yaml

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
        # Copies and not links: reports name the program's files by where they are.
        shutil.copy2(os.environ["LIGER_PATCH"], folder / "build/release/bin")
        shutil.copy2(os.environ["LIGER_LIBRARY"], folder / "build/release/lib")
        shutil.copytree(ROOT / "tests/models", folder / "tests/models")
        (folder / "build/venv/bin").mkdir(parents=True)
        (folder / "build/venv/bin/python").symlink_to(os.environ["LIGER_PYTHON"])
        (folder / "tools").mkdir()
        for name in ("compare.py", "liger_patch.cc"):
            shutil.copy2(ROOT / "tools" / name, folder / "tools")
        (folder / "norms.yaml").write_text("schema_version: 1\nfamily: mine\nmodules:\n  my_norm:\n"
                                           "    - {class: LlamaRMSNorm, op: LigerRMSNorm}\n")
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
            # A build without a CUDA compiler says one thing more.
            want = expected.splitlines()
            got = [line for line in done.stdout.splitlines() if "has CPU kernels only" not in line]
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

    def test_recipes_for_ci_run(self):
        """Each line of a recipe that calls the program, on a bundled model."""
        path = str(self.folder / "build/release/bin") + os.pathsep + os.environ["PATH"]
        commands = []
        for recipe in map(yaml.safe_load, blocks("yaml")):
            for job in recipe.get("jobs", {}).values():
                commands += [step["run"] for step in job["steps"] if "run" in step]
            commands += recipe.get("fusions", {}).get("script", [])
            for repo in recipe.get("repos", []):
                commands += [hook["entry"] + " model.onnx" for hook in repo["hooks"]]
        self.assertEqual(sum("liger-patch" in c for c in commands), 3)
        with tempfile.TemporaryDirectory() as scratch:
            for name in ("dynamo_op20.onnx", "config.json"):
                shutil.copyfile(ROOT / "tests/models/llama" / name,
                                pathlib.Path(scratch, name.replace("dynamo_op20", "model")))
            environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(pathlib.Path(scratch, "summary"))}
            for command in commands:
                done = subprocess.run(command, shell=True, cwd=scratch, env=environment, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")
            self.assertIn("rms_norm", pathlib.Path(scratch, "summary").read_text())

    def test_the_patch_map_is_a_valid_one(self):
        """It is read without a fault: what it names is absent from the bundled model."""
        maps = [b for b in blocks("yaml") if "schema_version" in b]
        self.assertEqual(len(maps), 1)
        (self.folder / "shown.yaml").write_text(maps[0])
        run = subprocess.run(["build/release/bin/liger-patch", "tests/models/qwen3/dynamo_op20.onnx", "--check",
                              "--patches", "shown.yaml"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        for line in run.stderr.splitlines():
            self.assertRegex(line, "is not in the model|matches nowhere|^  (at|hint): ")

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
