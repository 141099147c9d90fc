"""The rules of the routes, one test each: what a run takes, what it refuses, and what its report states."""
import shlex
import subprocess
import unittest

import yaml

from cli_testing import BINARY, ROOT, STRACE, TRACED, CliTest, needs_strace

LLAMA_NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
DEFAULTS = {f.stem: yaml.load(f.read_text(), yaml.BaseLoader)["defaults"]
            for f in (ROOT / "patches/families").glob("*.yaml")}
LOSSES = ["cross_entropy", "fused_linear_cross_entropy"]


class RoutesTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model(config=True)

    def map(self, modules, extends=None):
        document = {"schema_version": 1, "family": "mine", "modules": modules}
        if extends:
            document["extends"] = extends
        (self.folder / "mine.yaml").write_text(yaml.dump(document))
        return "mine.yaml"

    def norm_map(self, module="my_norm", extends=None, **more):
        return self.map({module: [{"class": LLAMA_NORM, "op": "LigerRMSNorm", **more}]}, extends)

    def enabled(self, *arguments):
        modules = self.patch_report("model.onnx", "--check", *arguments)["modules"]
        return sorted(name for name, m in modules.items() if m["enabled"])

    @needs_strace
    def test_neither_cuda_nor_onnx_runtime_is_loaded(self):
        trace = self.folder / "trace"
        subprocess.run([STRACE, "-f", "-e", "trace=open,openat", "-o", str(trace), BINARY, "model.onnx", "--strict"],
                       cwd=self.folder, env=TRACED, check=True, capture_output=True)
        opened = [line for line in trace.read_text().splitlines() if ".so" in line and "ENOENT" not in line]
        self.assertTrue(opened)
        for line in opened:
            for name in ("onnxruntime", "libcuda", "libcudart", "libcublas", "libcudnn"):
                self.assertNotIn(name, line)

    def test_auto_is_the_familys_defaults_less_the_exclusions(self):
        for family, defaults in DEFAULTS.items():
            with self.subTest(family):
                report = self.patch_report("model.onnx", "--family", family, "--check", "--report", "auto.json")
                report = self.read_report("auto.json")
                on = {m for m, value in defaults.items() if value == "on"}
                for name, module in report["modules"].items():
                    if name not in defaults:
                        continue  # of a part
                    lacks_an_op = "not available" in module["reason"] or "no fused op" in module["reason"]
                    self.assertEqual(module["enabled"], name in on and name not in LOSSES and not lacks_an_op, name)

    def test_an_explicit_selection_is_taken_as_given(self):
        self.assertEqual(self.enabled("--modules", "rms_norm,rope"), ["rms_norm", "rope"])
        self.assertEqual(self.enabled("--modules", "swiglu"), ["swiglu"])
        self.assertEqual(self.enabled("--modules", "rms_norm=off"), ["rope", "swiglu"])

    def test_enabling_what_is_not_accepted_fails(self):
        self.assert_fails(4, "family llama does not accept module 'geglu'", "model.onnx", "--modules", "geglu=on",
                          hint="it accepts rope, rms_norm")
        self.assert_fails(2, "unknown module 'rms_nrom' in --modules", "model.onnx", "--modules", "rms_nrom=on",
                          hint="did you mean rms_norm?")

    def test_excluded_modules_are_skipped_on_the_official_route(self):
        report = self.patch_report("model.onnx", "--check", "--exclude", "rms_norm", "--modules", "rms_norm,rope")
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 0)
        self.assertEqual(report["modules"]["rms_norm"]["excluded"], 5)
        self.assertEqual(report["modules"]["rms_norm"]["reason"], "excluded by --exclude")
        self.assertEqual(report["excluded"]["modules"], ["rms_norm"])

    def test_excluded_modules_are_skipped_on_the_custom_route(self):
        path = self.norm_map()
        for excluded in ("my_norm", "rms_norm"):  # by the map's name, and by that of the op's module
            with self.subTest(excluded):
                report = self.patch_report("model.onnx", "--check", "--patches", path, "--exclude", excluded)
                self.assertEqual(report["status"], "nothing_to_do")
                self.assertFalse(report["modules"]["my_norm"]["enabled"])
                self.assertEqual(report["modules"]["my_norm"]["reason"], "excluded by --exclude")
                self.assertEqual(report["symbols"][0]["notes"], ["excluded by --exclude"])

    def test_a_missing_symbol_fails(self):
        path = self.map({"my_norm": [{"class": LLAMA_NORM + "s", "op": "LigerRMSNorm"}]})
        report = self.assert_fails(2, f"class '{LLAMA_NORM}s' is not in the model", "model.onnx", "--patches", path,
                                   hint=f"the model has {LLAMA_NORM}")
        self.assertRegex(report["diagnostics"][-1]["location"], r"mine\.yaml:\d+:\d+$")

    def test_unknown_names_are_for_the_custom_route_only(self):
        report = self.patch_report("model.onnx", "--check", "--patches", self.norm_map("anything_at_all"))
        self.assertEqual(report["route"], "custom")
        self.assertEqual(report["modules"]["anything_at_all"]["patched"], 5)
        self.assert_fails(2, "unknown module 'anything_at_all' in --modules", "model.onnx", "--modules",
                          "anything_at_all=on", hint="known modules: ")

    def test_modules_acts_on_the_official_part_only(self):
        self.assert_fails(2, "this run has no family", "model.onnx", "--patches", self.norm_map(), "--modules",
                          "rms_norm=off", hint="--exclude takes some out")
        path = self.norm_map(extends="llama")
        report = self.patch_report("model.onnx", "--check", "--patches", path, "--modules", "rope,swiglu")
        self.assertEqual(report["route"], "composite")
        self.assertFalse(report["modules"]["rms_norm"]["enabled"])
        self.assertEqual(report["modules"]["my_norm"]["patched"], 5)

    def test_a_family_beside_a_map_is_a_composite(self):
        report = self.patch_report("model.onnx", "--check", "--patches", self.norm_map(), "--family", "llama")
        self.assertEqual((report["route"], report["family"]["name"]), ("composite", "llama"))
        self.assertEqual(report["modules"]["my_norm"]["patched"], 5)
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 0)
        self.assertEqual(report["modules"]["rms_norm"]["expected"], 0)
        self.assert_fails(2, "--family says qwen3, and the patch map extends llama", "model.onnx", "--patches",
                          self.norm_map(extends="llama"), "--family", "qwen3", hint="leave --family out")
        self.assert_fails(2, "extends a family that is not known: lama", "model.onnx", "--patches",
                          self.norm_map(extends="lama"), hint="did you mean llama")

    def test_a_map_may_name_a_module_as_the_family_does(self):
        path = self.norm_map("rms_norm", extends="llama", expect=5)
        report = self.patch_report("model.onnx", "--check", "--patches", path, "--strict")
        self.assertEqual(report["modules"]["rms_norm"]["expected"], 5)
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 5)
        report = self.patch_report("model.onnx", "--check", "--patches", path, "--modules", "rms_norm=off")
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 5)
        self.assertIn("on by the patch map where it says so", report["modules"]["rms_norm"]["reason"])

    def test_both_losses_at_once_are_refused(self):
        self.assert_fails(2, "cross_entropy", "model.onnx", "--exclude", "none", "--modules", ",".join(LOSSES))

    def test_a_stage_of_preference_training_fuses_no_loss_and_says_so(self):
        report = self.patch_report("model.onnx", "--check", "--stage", "dpo")
        self.assertEqual([c["module"] for c in report["stage"]["changes"]],
                         ["fused_linear_cross_entropy", "cross_entropy"])
        self.assertIn("no loss is fused", report["stage"]["note"])
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 5)
        self.assertIn("no loss is fused", self.patch("model.onnx", "--check", "--stage", "dpo").stdout)

    def test_the_stage_of_inference_patches_nothing_and_says_so_loudly(self):
        run = self.patch("model.onnx", "--stage", "inference")
        self.assertIn("warning: stage inference patches NOTHING", run.stderr)
        self.assertIn("patches NOTHING", run.stdout)
        self.assertEqual([p.name for p in self.folder.glob("*.liger.onnx")], [])

    def test_the_report_states_what_was_decided(self):
        report = self.patch_report("model.onnx")
        self.assertEqual((report["route"], report["helper"]), ("official", "llama"))
        self.assertEqual(set(report["modules"]), {"rope", "rms_norm", "swiglu", *LOSSES})
        self.assertEqual(report["excluded"], {"modules": LOSSES, "loss_ops": []})
        self.assertEqual(len(report["validation_commands"]), 3)
        self.assertTrue(report["runtime_gaps"])
        custom = self.patch_report("model.onnx", "-o", "custom.onnx", "--patches", self.norm_map())
        self.assertEqual((custom["route"], custom["helper"]), ("custom", "mine.yaml"))
        symbol = custom["symbols"][0]
        self.assertEqual((symbol["kind"], symbol["symbol"], symbol["op"], symbol["instances"], symbol["patched"]),
                         ("class", LLAMA_NORM, "liger.LigerRMSNorm", 5, 5))
        self.assertIn(shlex.quote("mine.yaml"), custom["validation_commands"][0])


if __name__ == "__main__":
    unittest.main()
