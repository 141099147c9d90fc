"""The scripts of tools/: comparison, counting of tests, the generated decoder, options of the shell scripts."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
LLAMA = ROOT / "tests" / "models" / "llama"
sys.path.insert(0, str(TOOLS))
import compare


def run(*command):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, cwd="/", env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})


class DifferenceTest(unittest.TestCase):
    def test_table(self):
        inf, nan = np.inf, np.nan
        for left, right, expected in [
            ([1.0, 2.0], [1.0, 2.5], 0.5),
            ([nan, 1.0], [nan, 1.0], 0.0),
            ([inf, 1.0], [inf, 1.0], 0.0),
            ([nan, 1.0], [0.0, 1.0], inf),
            ([inf, 1.0], [-inf, 1.0], inf),
            ([], [], 0.0),
        ]:
            got = compare.difference([np.array(left)], [np.array(right)])
            self.assertEqual(got, expected, (left, right))

    def test_other_shape_is_no_match(self):
        self.assertEqual(compare.difference([np.zeros((2, 1))], [np.zeros((1, 2))]), np.inf)

    def test_other_number_of_outputs_is_an_error(self):
        with self.assertRaises(ValueError):
            compare.difference([np.zeros(1)], [np.zeros(1)] * 2)


class CompareTest(unittest.TestCase):
    def compare(self, *arguments):
        return run(sys.executable, TOOLS / "compare.py", *arguments)

    def test_same_function_in_another_spelling(self):
        result = self.compare(LLAMA / "past_dynamo_op20_dyn.onnx", LLAMA / "past_ts_op17_dyn.onnx",
                              "--inputs", LLAMA / "past_dynamo_op20_dyn.npz")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("largest difference", result.stdout)

    def test_made_inputs_fit_a_cache_and_its_mask(self):
        result = self.compare(LLAMA / "past_dynamo_op20_dyn.onnx", LLAMA / "past_ts_op17_dyn.onnx",
                              "--size", "sequence=1", "--size", "past=7")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_another_function_is_told(self):
        result = self.compare(LLAMA / "dynamo_op20.onnx", LLAMA.parent / "qwen2" / "dynamo_op18.onnx")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("MORE THAN", result.stdout)

    def test_missing_file(self):
        result = self.compare(LLAMA / "dynamo_op20.onnx", LLAMA / "absent.onnx")
        self.assertEqual(result.returncode, 2)
        self.assertIn("absent.onnx", result.stderr)


class CountTestsTest(unittest.TestCase):
    def test_counts_and_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.xml"
            path.write_text("""<testsuite>
                <testcase name="a" status="run"/>
                <testcase name="b" status="run"/>
                <testcase name="c" status="fail"><failure message=""/></testcase>
                <testcase name="d" status="notrun"><skipped message="no GPU"/></testcase>
                <testcase name="e" status="disabled"/></testsuite>""")
            result = run(sys.executable, TOOLS / "lib" / "count_tests.py", path)
        self.assertEqual(result.stdout.split(), ["2", "1", "2"])
        self.assertIn("failed: c", result.stderr)
        self.assertIn("skipped: d (no GPU)", result.stderr)


class GeneratedDecoderTest(unittest.TestCase):
    SIZES = ["--layers", "2", "--hidden", "64", "--intermediate", "96", "--heads", "4", "--kv-heads", "2",
             "--vocab", "64"]

    def make(self, folder, name, *options):
        path = pathlib.Path(folder) / name / "model.onnx"
        result = run(sys.executable, TOOLS / "bench" / "make_large.py", path, *self.SIZES, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path

    def test_spellings_of_the_norm_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [self.make(folder, norm, "--norm", norm, "--weights", "random", "--dtype", "fp32")
                     for norm in ("reciprocal", "div", "op")]
            sessions = [compare.open_session(p) for p in paths]
            inputs = compare.make_inputs(sessions[0], dict(sequence=5, past=3))
            outputs = [s.run(None, inputs) for s in sessions]
            for path in paths:
                onnx.checker.check_model(str(path), full_check=True)
        for other in outputs[1:]:
            self.assertLess(compare.difference(outputs[0], other), 1e-5 * compare.largest(outputs[0]))

    def test_sparse_weights_take_no_space(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.make(folder, "sparse", "--hidden", "4096", "--heads", "32", "--kv-heads", "8")
            data = path.with_name(path.name + ".data").stat()
            onnx.checker.check_model(str(path))
        self.assertGreater(data.st_size, 100_000_000)
        self.assertLess(data.st_blocks * 512, 1_000_000)


class ShellScriptsTest(unittest.TestCase):
    SCRIPTS = ["setup.sh", "quickstart.sh", "test.sh", "bench_patch.sh", "bench_run.sh"]

    def test_help(self):
        for script in self.SCRIPTS:
            result = run("bash", TOOLS / script, "--help")
            self.assertEqual(result.returncode, 0, script)
            self.assertIn(f"tools/{script}", result.stdout)
            self.assertNotIn("#!", result.stdout)

    def test_unknown_option(self):
        for script in self.SCRIPTS:
            result = run("bash", TOOLS / script, "--no-such-option")
            self.assertEqual(result.returncode, 1, script)
            self.assertIn("unknown option --no-such-option", result.stderr)


if __name__ == "__main__":
    unittest.main()
