"""The commands that a report names are real lines: each is run as it stands, in a shell, in the folder of the run."""
import os
import shlex
import subprocess
import unittest

import numpy as np
import onnx
from onnx import numpy_helper

from cli_testing import CliTest

KINDS = ("nothing left to do", "compares the outputs", "loads it with the library")


class ValidationCommandsTest(CliTest):
    def lines(self, *arguments):
        report = self.patch_report(*arguments)
        self.assertEqual(report["status"], "ok")
        for line, kind in zip(report["validation_commands"], KINDS, strict=True):
            self.assertTrue(line.endswith(kind), line)
            for word in shlex.split(line, comments=True):
                if word.endswith((".onnx", ".py", ".so", "python", "liger-patch")) and "import" not in word:
                    self.assertTrue((self.folder / word).exists(), word)
        return report["validation_commands"]

    def run_line(self, line, code=0, **options):
        run = self.run_command(["sh", "-c", line], **options)
        self.assertEqual(run.returncode, code, f"{line}\n{run.stdout}{run.stderr}")
        return run

    def assert_all_pass(self, lines):
        check, compare, load = lines
        self.assertIn("already fused", self.run_line(check).stdout)
        self.assertRegex(self.run_line(compare).stdout, "kernels that ran: .*LigerRMSNorm")
        self.run_line(load)

    def test_every_line_runs(self):
        self.model(config=True)
        self.assert_all_pass(self.lines("model.onnx"))

    def test_the_choices_of_the_run_are_named(self):
        self.model()
        lines = self.lines("model.onnx", "--family", "llama", "--modules", "rms_norm,rope", "--exact")
        self.assertIn("--family llama --modules rms_norm,rope --exact", lines[0])
        self.assert_all_pass(lines)

    def test_awkward_names(self):
        self.model("llama/dynamo_op20.onnx", "it's a $HOME/-m \"x\".onnx", config=True)
        self.assert_all_pass(self.lines("it's a $HOME/-m \"x\".onnx"))

    def test_weights_in_another_file(self):
        self.external_model()
        (self.folder / "out").mkdir()
        self.assert_all_pass(self.lines("dynamo_op20_external.onnx", "--family", "llama", "-o", "out/model.onnx",
                                        "--external-data", "copy"))

    def test_a_line_fails_where_the_result_is_wrong(self):
        self.model(config=True)
        _, compare, load = self.lines("model.onnx")
        patched = onnx.load(self.folder / "model.liger.onnx")
        scale = next(i for i in patched.graph.initializer if i.name.endswith("norm.weight"))
        scale.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(scale).astype(np.float32), scale.name))
        onnx.save(patched, self.folder / "model.liger.onnx")
        self.assertIn("MORE THAN", self.run_line(compare, 1).stdout)
        (self.folder / "model.liger.onnx").write_bytes(b"no model")
        self.run_line(load, 1)

    def test_an_input_that_is_replaced_is_not_compared(self):
        self.model(config=True)
        report = self.patch_report("model.onnx", "-o", "model.onnx")
        self.assertEqual(len(report["validation_commands"]), 2)
        for line in report["validation_commands"]:
            self.run_line(line)

    def test_a_missing_library_is_a_gap_and_no_command(self):
        self.model(config=True)
        environment = {**os.environ, "LIGER_ORT_LIBRARY": "nowhere/libliger_ort.so"}
        run = self.run_patch("model.onnx", "--report", "report.json", env=environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        report = self.read_report()
        self.assertEqual(len(report["validation_commands"]), 2)
        self.assertNotIn("library", "".join(report["validation_commands"]))
        gaps = [gap for gap in report["runtime_gaps"] if "nowhere/libliger_ort.so" in gap]
        self.assertEqual(len(gaps), 1)
        self.assertIn("is not there (LIGER_ORT_LIBRARY names it)", gaps[0])
        for line in report["validation_commands"]:
            self.run_line(line, env=environment)

    def test_the_library_is_named_as_what_it_is(self):
        self.model(config=True)
        notes = subprocess.run(["readelf", "--string-dump=.note.liger", os.environ["LIGER_LIBRARY"]],
                               capture_output=True, text=True, check=True).stdout
        gaps = self.patch_report("model.onnx")["runtime_gaps"]
        self.assertEqual(len([gap for gap in gaps if "has CPU kernels only" in gap]),
                         0 if "cpu,cuda" in notes else 1, gaps)


if __name__ == "__main__":
    unittest.main()
