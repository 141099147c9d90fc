"""Wrong input: one clear sentence, the exit code of docs/exit-codes.md, no file touched, a report all the same."""
import os
import resource
import shutil
import unittest

import onnx
from onnx import TensorProto, helper

from cli_testing import MODELS, CliTest


class UnreadableModelTest(CliTest):
    def test_missing_file_is_exit_3(self):
        self.assert_fails(3, r"^'missing\.onnx' does not exist$", "missing.onnx")

    def test_link_to_nowhere_is_exit_3_and_names_what_it_leads_to(self):
        (self.folder / "link.onnx").symlink_to("gone/blob")
        self.assert_fails(3, "link to 'gone/blob', which does not exist", "link.onnx")

    def test_empty_file_is_exit_3(self):
        (self.folder / "empty.onnx").touch()
        self.assert_fails(3, r"^'empty\.onnx' is empty$", "empty.onnx")

    def test_text_file_is_exit_3(self):
        (self.folder / "text.onnx").write_text("hello, this is no model\n")
        self.assert_fails(3, "is a text file, not an ONNX model", "text.onnx")

    def test_git_lfs_pointer_is_exit_3_and_named(self):
        (self.folder / "lfs.onnx").write_text("version https://git-lfs.github.com/spec/v1\n"
                                              "oid sha256:" + "0" * 64 + "\nsize 123\n")
        self.assert_fails(3, "Git LFS pointer", "lfs.onnx", hint="git lfs pull")

    def test_folder_in_place_of_a_model_of_its_name_is_patched_as_a_folder(self):
        self.model(to="sub/inside.onnx")
        self.patch("sub")
        self.assertTrue((self.folder / "sub/inside.liger.onnx").exists())

    def test_pipe_is_exit_3(self):
        os.mkfifo(self.folder / "pipe.onnx")
        self.assert_fails(3, "is not a regular file", "pipe.onnx")

    def test_model_cut_off_anywhere_is_exit_3(self):
        whole = (MODELS / "llama/dynamo_op20.onnx").read_bytes()
        for size in (1, 2, 17, 512, 5000, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            with self.subTest(size):
                (self.folder / "model.onnx").write_bytes(whole[:size])
                self.assert_fails(3, r"^'model\.onnx' ", "model.onnx")

    def test_noise_is_exit_3(self):
        (self.folder / "model.onnx").write_bytes(bytes((i * 7919 + 13) % 256 for i in range(4096)))
        self.assert_fails(3, r"^'model\.onnx' ", "model.onnx")

    def test_opset_10_is_exit_3_and_says_which_opset_is_needed(self):
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
        onnx.save(model, self.folder / "old.onnx")
        self.assert_fails(3, "uses opset 10; opset 11 or later is needed", "old.onnx", hint="version_converter")


class MissingDataTest(CliTest):
    def test_missing_data_file_is_exit_3_and_named(self):
        self.external_model()
        (self.folder / "dynamo_op20_external.onnx.data").unlink()
        self.assert_fails(3, r"dynamo_op20_external\.onnx\.data", "dynamo_op20_external.onnx")

    def test_data_file_cut_off_is_exit_3_and_says_how_much_it_has(self):
        self.external_model()
        os.truncate(self.folder / "dynamo_op20_external.onnx.data", 20)
        self.assert_fails(3, r"needs bytes 0 to 8192 of .*, which has only 20", "dynamo_op20_external.onnx",
                          hint="cut off")

    def test_data_outside_of_the_folder_is_exit_3(self):
        path = self.external_model("sub")
        shutil.move(str(path) + ".data", self.folder / "weights")
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../weights"
        onnx.save(model, path)
        self.assert_fails(3, r"\.\./weights", "sub/dynamo_op20_external.onnx")


class WrongFamilyOrModuleTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()

    def test_unknown_family_is_exit_4_with_the_nearest_name(self):
        self.assert_fails(4, "^family 'lama' is not known$", "model.onnx", "--family", "lama",
                          hint="did you mean llama.*Known families: .*qwen3")

    def test_family_that_nothing_names_is_exit_4_with_what_was_looked_at(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        report = self.assert_fails(4, "family", "model.onnx", hint="--family")
        looked_at = {e["source"] for e in report["family"]["evidence"]}
        self.assertLessEqual({"metadata", "genai_config.json", "config.json", "class names", "parameter names"},
                             looked_at)
        self.assertFalse(any(e["decided"] for e in report["family"]["evidence"]))

    def test_unknown_module_is_exit_2_with_the_nearest_name(self):
        self.assert_fails(2, "unknown module 'rms_nrm' in --modules", "model.onnx", "--modules", "rms_nrm",
                          hint="did you mean rms_norm")
        self.assert_fails(2, "unknown module 'swiglo' in --exclude", "model.onnx", "--exclude", "swiglo",
                          hint="did you mean swiglu")

    def test_module_that_the_family_does_not_accept_is_exit_4(self):
        self.assert_fails(4, "family llama does not accept module 'layer_norm'", "model.onnx", "--modules",
                          "layer_norm", hint="it accepts rope, rms_norm, swiglu")

    def test_module_without_ops_in_this_version_is_exit_2_if_asked_for(self):
        self.assert_fails(2, "cross_entropy is not available", "model.onnx", "--exclude", "none", "--modules",
                          "cross_entropy", hint="available: ")


class WrongCommandLineTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()

    def test_wrong_values_are_exit_2(self):
        for option, value, sentence, hint in [
            ("--modules", "rms_norm,rope=off", "mixes names with and without a value", "either .* or"),
            ("--modules", "rms_norm=on,rope", "mixes names with and without a value", "either .* or"),
            ("--modules", "rms_norm=yes", "has to be on or off, not 'yes'", None),
            ("--modules", "rms_norm,rms_norm", "'rms_norm' stands twice in --modules", None),
            ("--modules", "rms_norm,", "--modules holds an empty name", "single commas"),
            ("--modules", "auto,rope", "'auto' stands alone in --modules", "rms_norm=on,rope=off"),
            ("--exclude", "none,rope", "'none' stands alone in --exclude", None),
            ("--providers", "tpu", "--providers: 'tpu' is no provider", "cpu and cuda"),
            ("--external-data", "move", "--external-data: 'move' is no mode", "auto, copy and hardlink"),
            ("--patches-dir", "nowhere", "'nowhere' is no folder", "ops/"),
            ("--only-first", "x", "--only-first", "--help"),
            ("--only-first", "-1", "--only-first", "--help"),
            ("--list", "everything", "everything not in", "--help"),
            ("--no-such-option", None, "--no-such-option", "--help"),
        ]:
            with self.subTest(option=option, value=value):
                self.assert_fails(2, sentence, "model.onnx", *[a for a in (option, value) if a], hint=hint)

    def test_no_model_is_exit_2(self):
        self.assert_fails(2, "MODEL is required")


class UnwritableOutputTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()

    def test_missing_folder_is_exit_5(self):
        self.assert_fails(5, "cannot write 'no/such/out.onnx': the folder 'no/such' does not exist", "model.onnx", "-o",
                          "no/such/out.onnx", hint="create the folder")

    def test_folder_as_output_is_exit_5(self):
        (self.folder / "sub").mkdir()
        self.assert_fails(5, "cannot write 'sub': it is a folder", "model.onnx", "-o", "sub")

    def test_file_as_folder_is_exit_5(self):
        self.assert_fails(5, "'model.onnx' is not a folder", "model.onnx", "-o", "model.onnx/out.onnx")

    def test_device_as_output_is_exit_5(self):
        self.assert_fails(5, "cannot write '/dev/full'", "model.onnx", "-o", "/dev/full")

    def test_full_disk_is_exit_5_and_leaves_no_half_written_file(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        # Python ignores the signal that comes with the limit, and so does the program: the write itself fails.
        for output in ("out.onnx", "model.onnx"):
            with self.subTest(output):
                self.assert_fails(5, f"cannot write '{output}': File too large", "model.onnx", "-o", output,
                                  preexec_fn=limit, restore_signals=False)

    def test_report_in_a_missing_folder_is_exit_5_and_the_model_is_written(self):
        run = self.run_patch("model.onnx", "--report", "no/report.json")
        self.assertEqual(run.returncode, 5, run.stderr)
        self.assertIn("the report 'no/report.json' cannot be written", run.stderr)
        self.assertEqual(sorted(self.files()), ["model.liger.onnx", "model.onnx"])

    def test_report_never_replaces_a_model_its_weights_or_config(self):
        self.external_model()
        self.model(config=True)
        before = self.files()
        for victim in ("model.onnx", "config.json", "dynamo_op20_external.onnx.data"):
            with self.subTest(victim):
                run = self.run_patch("model.onnx", "--report", victim)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertRegex(run.stderr, f"the report (would overwrite )?'{victim}'")
                self.assertEqual(self.files(), before)

    def test_one_path_for_output_and_report_is_exit_2(self):
        run = self.run_patch("model.onnx", "-o", "out", "--report", "./out")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("named as the output and as the report", run.stderr)
        self.assertEqual(sorted(self.files()), ["model.onnx"])


if __name__ == "__main__":
    unittest.main()
