"""Every option of the command does what --help says."""
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import unittest

import onnx
from onnx import TensorProto, helper

from cli_testing import MODELS, MODULES, ROOT, CliTest, liger_nodes

FUSED = ["LigerAddRMSNorm"] * 4 + ["LigerRMSNorm"] + ["LigerRope"] * 2 + ["LigerSwiGLU"] * 2
COUNTS = {"rope": 4, "rms_norm": 5, "swiglu": 2}


def counts(report, key="patched"):
    return {m: report["modules"][m][key] for m in MODULES}


class OutputTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()

    def test_default_output_stands_beside_the_input_with_its_stem(self):
        self.model(to="sub/my.model.onnx")
        report = self.patch_report("sub/my.model.onnx")
        self.assertEqual(report["status"], "ok")
        self.assertEqual(report["output"]["path"], "sub/my.model.liger.onnx")
        self.assertEqual([op for op, _ in liger_nodes(self.folder / "sub/my.model.liger.onnx")], FUSED)

    def test_o_names_the_output_and_nothing_else_is_written(self):
        (self.folder / "out").mkdir()
        self.patch("model.onnx", "-o", "out/x.onnx")
        self.assertEqual(sorted(self.files()), ["model.onnx", "out/x.onnx"])

    def test_long_form_of_o(self):
        self.patch("model.onnx", "--output", "x.onnx")
        self.assertEqual(sorted(self.files()), ["model.onnx", "x.onnx"])

    def test_an_older_output_is_replaced(self):
        (self.folder / "out.onnx").write_bytes(b"old")
        self.patch("model.onnx", "-o", "out.onnx")
        self.assertEqual([op for op, _ in liger_nodes(self.folder / "out.onnx")], FUSED)

    def test_dry_run_writes_nothing_and_says_what_would_be_done(self):
        before = self.files()
        run = self.patch("model.onnx", "--dry-run")
        self.assertEqual(self.files(), before)
        self.assertIn("dry run: 'model.liger.onnx' was not written", run.stderr)
        self.assertRegex(run.stdout, r"rms_norm +5 of 5 +4 LigerAddRMSNorm, 1 LigerRMSNorm")
        self.assertNotIn("wrote", run.stdout)

    def test_dry_run_reports_what_the_real_run_reports(self):
        dry = self.patch_report("model.onnx", "--dry-run")
        real = self.patch_report("model.onnx")
        self.assertEqual((dry["status"], dry["output"]), ("dry_run", None))
        for key in ("modules", "patched", "missed", "family", "verification", "op_counts"):
            self.assertEqual(dry[key], real[key], key)

    def test_report_dash_prints_json_and_nothing_else_on_stdout(self):
        run = self.patch("model.onnx", "--report", "-", "--dry-run")
        self.assertEqual(self.check_report(json.loads(run.stdout))["status"], "dry_run")

    def test_report_file_replaces_an_older_report(self):
        first = self.patch_report("model.onnx", "--dry-run")
        second = self.patch_report("model.onnx")
        self.assertEqual((first["status"], second["status"]), ("dry_run", "ok"))

    def test_text_names_family_and_why_modules_file_and_what_to_do_next(self):
        out = self.patch("model.onnx").stdout
        self.assertRegex(out, r"(?m)^family +llama \(class names: .*LlamaForCausalLM")
        self.assertRegex(out, r"(?m)^route +official, map llama$")
        self.assertRegex(out, r"(?m)^  rope +4 of 4 ")
        self.assertRegex(out, r"(?m)^  swiglu +2 of 2 ")
        self.assertRegex(out, r"(?m)^wrote +model\.liger\.onnx$")
        self.assertRegex(out, r"(?m)^checked ")
        self.assertRegex(out, r"(?m)^validate ")
        self.assertIn("libliger_ort.so", out)

    def test_terminal_gets_bold_text_and_a_pipe_does_not(self):
        self.assertNotIn("\033", self.patch("model.onnx", "--dry-run").stdout)
        master, terminal = pty.openpty()
        with os.fdopen(terminal, "wb") as out, os.fdopen(master, "rb") as read:
            subprocess.run(self.command("model.onnx", "--dry-run"), stdin=subprocess.DEVNULL, stdout=out,
                           stderr=subprocess.DEVNULL, cwd=self.folder, check=True)
            shown = read.read1(1 << 16)
        self.assertIn(b"\033[1mllama\033[0m", shown)


class ValidationCommandTest(CliTest):
    """The printed commands can be typed as they are and find what they promise."""

    def follow(self, *arguments):
        commands = [shlex.split(c, comments=True) for c in self.patch_report(*arguments)["validation_commands"]]
        commands = [c for c in commands if pathlib.Path(c[0]).name == "liger-patch"]
        self.assertEqual(len(commands), 1)
        for _, *rest in commands:
            run = self.run_patch(*rest, "--report", "after.json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(self.read_report("after.json")["status"], "nothing_to_do", rest)

    def test_after_a_plain_run(self):
        self.model()
        self.follow("model.onnx")

    def test_after_a_run_with_some_modules(self):
        self.model()
        self.follow("model.onnx", "--modules", "rms_norm")

    def test_after_a_run_with_a_chosen_family(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        self.follow("model.onnx", "--family", "any")

    def test_after_an_exact_run(self):
        self.model("llama/fp16_dynamo_op20.onnx")
        self.follow("model.onnx", "--exact")

    def test_with_a_space_in_the_path(self):
        self.model(to="my model.onnx")
        self.follow("my model.onnx")


class FamilyTest(CliTest):
    def test_family_option_serves_where_the_file_has_no_evidence(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        report = self.patch_report("model.onnx", "--family", "llama")
        self.assertEqual((report["family"]["name"], report["family"]["decided_by"]), ("llama", "--family"))
        self.assertEqual(counts(report), COUNTS)

    def test_alias_names_the_family(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        for alias, family in (("qwen2_5", "qwen2"), ("qwq", "qwen2"), ("qvq", "qwen2_vl"), ("glm", "glm4"),
                              ("llama4_text", "llama4"), ("mllama_text_model", "mllama")):
            with self.subTest(alias):
                report = self.patch_report("model.onnx", "--family", alias, "--dry-run")
                self.assertEqual((report["family"]["name"], report["helper"]), (family, family))

    def test_alias_in_config_json_names_the_family(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        (self.folder / "config.json").write_text('{"model_type": "glm4v_text"}')
        self.assertEqual(self.patch_report("model.onnx", "--dry-run")["family"]["name"], "glm4v")

    def test_every_listed_name_is_one_for_the_option(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        for line in self.patch("--list", "families").stdout.splitlines():
            family, *further = re.findall(r"\w+", line.replace("also ", ""))
            for name in (family, *further):
                with self.subTest(name):
                    report = self.patch_report("model.onnx", "--family", name, "--dry-run")
                    self.assertEqual(report["family"]["name"], family)

    def test_family_option_wins_and_the_disagreement_is_a_warning(self):
        self.model(config=True)
        report = self.patch_report("model.onnx", "--family", "mistral")
        self.assertEqual(report["family"]["name"], "mistral")
        warnings = [d["message"] for d in report["diagnostics"] if d["severity"] == "warning"]
        self.assertTrue(any("mistral" in w and "llama" in w for w in warnings), report["diagnostics"])

    def test_config_json_decides_in_the_models_folder_and_in_the_one_above(self):
        for place in ("with/model.onnx", "above/onnx/model.onnx"):
            with self.subTest(place):
                self.model("llama/mask_ts_op17_dyn.onnx", place)
                config = self.folder / place.split("/")[0] / "config.json"
                config.write_bytes((MODELS / "llama/config.json").read_bytes())
                report = self.patch_report(place)
                decided = [e for e in report["family"]["evidence"] if e["decided"]]
                self.assertEqual([(e["source"], e["key"], e["value"]) for e in decided],
                                 [("config.json", "model_type", "llama")])
                self.assertEqual(counts(report), COUNTS)

    def test_any_patches_by_structure_without_expectations(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        report = self.patch_report("model.onnx", "--family", "any")
        self.assertEqual(report["route"], "structural")
        self.assertEqual(counts(report), COUNTS)
        self.assertEqual(counts(report, "expected"), dict.fromkeys(MODULES))

    def test_output_is_stamped_and_the_stamp_decides(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        self.patch("model.onnx", "--family", "llama", "--modules", "rope")
        stamp = {p.key: p.value for p in onnx.load(self.folder / "model.liger.onnx").metadata_props}
        self.assertEqual(stamp["liger.family"], "llama")
        self.assertEqual(stamp["liger.modules"], "rope")
        report = self.patch_report("model.liger.onnx", "-o", "rest.onnx")
        self.assertEqual(report["family"]["decided_by"], "metadata")
        self.assertEqual(counts(report), {**COUNTS, "rope": 0})


class ModulesTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()

    def enabled(self, *arguments):
        report = self.patch_report("model.onnx", "--dry-run", *arguments)
        on = [m for m in report["modules"] if report["modules"][m]["enabled"]]
        self.assertEqual(counts(report), {m: COUNTS[m] if m in on else 0 for m in MODULES})
        return on

    def test_auto_is_the_familys_defaults_and_the_default(self):
        self.assertEqual(self.enabled("--modules", "auto"), ["rope", "rms_norm", "swiglu"])
        self.assertEqual(self.enabled(), ["rope", "rms_norm", "swiglu"])

    def test_a_list_means_these_and_no_others(self):
        self.assertEqual(self.enabled("--modules", "rms_norm"), ["rms_norm"])
        self.assertEqual(self.enabled("--modules", "swiglu,rope"), ["rope", "swiglu"])

    def test_switches_change_some_and_leave_the_rest(self):
        self.assertEqual(self.enabled("--modules", "rope=off"), ["rms_norm", "swiglu"])
        self.assertEqual(self.enabled("--modules", "rms_norm=on,rope=off"), ["rms_norm", "swiglu"])

    def test_what_is_off_is_counted_as_excluded_with_the_reason(self):
        report = self.patch_report("model.onnx", "--modules", "rms_norm")
        self.assertEqual(report["modules"]["rope"]["reason"], "not among --modules")
        self.assertEqual(counts(report, "excluded"), {**COUNTS, "rms_norm": 0})
        self.assertEqual(counts(report, "expected"), COUNTS)

    def test_exclude_wins_over_modules(self):
        self.assertEqual(self.enabled("--exclude", "swiglu"), ["rope", "rms_norm"])
        self.assertEqual(self.enabled("--exclude", "swiglu,rope", "--modules", "rms_norm,swiglu"), ["rms_norm"])

    def test_all_excluded_writes_nothing(self):
        before = self.files()
        run = self.patch("model.onnx", "--exclude", "rms_norm,rope,swiglu")
        self.assertIn("nothing was fused, so no file was written", run.stderr)
        self.assertEqual(self.files(), before)

    def test_losses_are_excluded_by_default_and_named_with_their_nodes(self):
        self.model("llama/loss_dynamo_op20.onnx")
        report = self.patch_report("model.onnx")
        self.assertEqual(report["excluded"]["modules"], ["cross_entropy", "fused_linear_cross_entropy"])
        self.assertEqual([loss["op"] for loss in report["excluded"]["loss_ops"]], ["SoftmaxCrossEntropyLoss"])
        graph = onnx.load(self.folder / "model.liger.onnx").graph
        self.assertIn(report["excluded"]["loss_ops"][0]["node"], [n.name for n in graph.node])
        self.assertIn("loss ops left as they are\n  SoftmaxCrossEntropyLoss  ", self.patch("model.onnx").stdout)

    def test_exclude_none_lifts_it_and_the_loss_ops_are_still_named(self):
        self.model("llama/loss_dynamo_op20.onnx")
        run = self.patch("model.onnx", "--exclude", "none", "--report", "report.json")
        report = self.read_report()
        self.assertEqual(report["excluded"]["modules"], [])
        self.assertIn("not available in this version", report["modules"]["fused_linear_cross_entropy"]["reason"])
        self.assertIn("warning: module fused_linear_cross_entropy is on by default", run.stderr)
        self.assertIn("loss ops left as they are\n  SoftmaxCrossEntropyLoss  ", run.stdout)


class RequestTest(CliTest):
    """Modules that run only when they are asked for, modules that Liger leaves alone, modules that are refused."""

    def test_softmax_is_no_module_unless_asked_for(self):
        self.model()
        report = self.patch_report("model.onnx")
        self.assertNotIn("softmax", report["modules"])
        self.assertNotIn("group_norm", report["modules"])

    def test_softmax_on_request_beside_the_defaults_and_alone(self):
        model = self.model()
        two = ["LigerSoftmax"] * 2
        for modules, ops in (("softmax=on", sorted(FUSED + two)), ("softmax", two)):
            with self.subTest(modules):
                report = self.patch_report("model.onnx", "--modules", modules)
                softmax = report["modules"]["softmax"]
                self.assertEqual((softmax["patched"], softmax["expected"]), (2, None))
                self.assertEqual([op for op, _ in liger_nodes(self.folder / "model.liger.onnx")], ops)
                self.assert_same_results(model, self.folder / "model.liger.onnx", MODELS / "llama/dynamo_op20.npz")

    def test_any_takes_softmax_on_request_only(self):
        self.model()
        report = self.patch_report("model.onnx", "--family", "any", "--dry-run")
        self.assertEqual(report["modules"].get("softmax", {"patched": 0})["patched"], 0)
        report = self.patch_report("model.onnx", "--family", "any", "--modules", "softmax=on", "--dry-run")
        self.assertEqual((report["modules"]["softmax"]["patched"], counts(report)), (2, COUNTS))

    def test_group_norm_on_request_only(self):
        shape = [2, 6, 5]
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy")
        weights = [helper.make_tensor(n, TensorProto.FLOAT, [6], [0.5 + i for i in range(6)]) for n in ("w", "b")]
        node = helper.make_node("GroupNormalization", ["x", "w", "b"], ["y"], name="norm", num_groups=3, epsilon=1e-4)
        graph = helper.make_graph([node], "g", [x], [y], initializer=weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
                  self.folder / "model.onnx")
        report = self.patch_report("model.onnx", "--family", "any")
        self.assertEqual(report["status"], "nothing_to_do")
        report = self.patch_report("model.onnx", "--family", "any", "--modules", "group_norm")
        self.assertEqual([op for op, _ in liger_nodes(self.folder / "model.liger.onnx")], ["LigerGroupNorm"])
        attributes = report["patched"][0]["attributes"]
        self.assertEqual(attributes["num_groups"], 3)
        self.assertAlmostEqual(attributes["epsilon"], 1e-4)

    def test_refused_module_is_exit_4_with_the_familys_reason(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        for options in ((), ("--exclude", "none")):
            with self.subTest(options):
                sentence = "granite does not accept module 'fused_linear_cross_entropy': .*logits_scaling"
                report = self.assert_fails(4, sentence, "model.onnx", "--family", "granite", "--modules",
                                           "fused_linear_cross_entropy=on", *options, hint=None)
                self.assertEqual(report["family"]["name"], "granite")

    def test_module_that_ligers_helper_leaves_alone_is_off_with_the_reason_and_can_be_turned_on(self):
        self.model("llama/mask_ts_op17_dyn.onnx")
        report = self.patch_report("model.onnx", "--family", "qwen3_next", "--dry-run")
        self.assertEqual((report["modules"]["rope"]["enabled"], report["modules"]["rope"]["patched"]), (False, 0))
        self.assertRegex(report["modules"]["rope"]["reason"],
                         "^off by default for family qwen3_next: .*NotImplementedError.*a quarter of it")
        report = self.patch_report("model.onnx", "--family", "qwen3_next", "--modules", "rope=on", "--dry-run")
        self.assertEqual(report["modules"]["rope"]["enabled"], True)
        self.assertEqual(report["modules"]["rope"]["patched"] + report["modules"]["rope"]["additional"], 4)

    def test_what_is_fused_beyond_the_expected_instances_is_counted_apart(self):
        """Qwen3's norms on queries and keys, which Qwen2 has not."""
        self.model("qwen3/dynamo_op20.onnx")
        report = self.patch_report("model.onnx", "--family", "qwen2")
        norm = report["modules"]["rms_norm"]
        self.assertEqual((norm["expected"], norm["patched"], norm["additional"]), (5, 5, 4))
        self.assertTrue(any("fused outside the modules that the family expects: 4 of rms_norm" in d["message"] for d in report["diagnostics"]))
        self.assertIn("4 more elsewhere", self.patch("model.onnx", "--family", "qwen2", "--dry-run").stdout)
        norm = self.patch_report("model.liger.onnx", "--family", "qwen2")["modules"]["rms_norm"]
        self.assertEqual((norm["expected"], norm["already_fused"], norm["additional"]), (5, 5, 4))


class ChoiceTest(CliTest):
    def test_exact_refuses_raised_precision_with_the_reason(self):
        self.model("llama/fp16_dynamo_op20.onnx")
        loose = self.patch_report("model.onnx", "--dry-run")
        self.assertIn("raised", {p["precision"] for p in loose["patched"]})
        run = self.patch("model.onnx", "--exact", "--report", "report.json")
        report = self.read_report()
        self.assertEqual({p["precision"] for p in report["patched"]}, {"exact"})
        self.assertEqual(counts(report), {"rope": 0, "rms_norm": 5, "swiglu": 0})
        self.assertEqual(counts(report, "missed"), {"rope": 4, "rms_norm": 0, "swiglu": 2})
        for miss in report["missed"]:
            self.assertEqual(miss["guard"], "exact")
            self.assertIn("computes in f32 what the graph computes in a narrower type", miss["reason"])
        self.assertEqual(run.stdout.count("computes in f32"), 6)

    def test_exact_refuses_a_reassociated_product_with_the_reason(self):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])
        up = helper.make_tensor_value_info("up", TensorProto.FLOAT, [2, 8])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])
        nodes = [helper.make_node("Sigmoid", ["x"], ["s"], name="s"),
                 helper.make_node("Mul", ["s", "up"], ["t"], name="t"),
                 helper.make_node("Mul", ["x", "t"], ["y"], name="y")]
        graph = helper.make_graph(nodes, "g", [x, up], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                  self.folder / "model.onnx")
        report = self.patch_report("model.onnx", "--family", "any", "--dry-run")
        self.assertEqual([p["precision"] for p in report["patched"]], ["reassociated"])
        report = self.patch_report("model.onnx", "--family", "any", "--exact")
        self.assertEqual(report["status"], "nothing_to_do")
        self.assertEqual([(m["module"], m["guard"]) for m in report["missed"]], [("swiglu", "exact")])

    def test_exact_changes_nothing_where_all_is_exact(self):
        self.model()
        self.patch("model.onnx", "--exact", "-o", "exact.onnx")
        self.patch("model.onnx", "-o", "loose.onnx")
        files = self.files()
        self.assertEqual(files["exact.onnx"], files["loose.onnx"])

    def test_explain_shows_evidence_each_match_and_the_change_of_op_counts(self):
        self.model()
        short = self.patch("model.onnx", "--dry-run").stdout
        long = self.patch("model.onnx", "--dry-run", "--explain").stdout
        for line in (r"(?m)^evidence$", r"(?m)^  config\.json .*no such file",
                     r"(?m)^  class names .*-> llama  \(decides\)$",
                     r"(?m)^  LigerRope  \S+: rotate_half/any, exact, .*layout=BNSD.*; replaces 14 nodes$",
                     r"(?m)^  Sigmoid +2 -> 0$", r"(?m)^  liger\.LigerSwiGLU +0 -> 2$"):
            self.assertRegex(long, line)
            self.assertNotRegex(short, line)

    def test_explain_lists_every_miss_where_the_short_text_says_how_many_more(self):
        self.model()
        short = self.patch("model.onnx", "--only-first", "0").stdout
        long = self.patch("model.onnx", "--only-first", "0", "--explain").stdout
        self.assertEqual(short.count("[only_first]"), 8)
        self.assertIn("... and 3 more (--explain lists them)", short)
        self.assertEqual(long.count("[only_first]"), 11)

    def test_every_provider_has_every_kernel(self):
        self.model()
        self.patch("model.onnx", "-o", "default.onnx")
        for providers in ("cpu", "cuda", "cpu,cuda"):
            with self.subTest(providers):
                report = self.patch_report("model.onnx", "--providers", providers, "-o", "chosen.onnx")
                self.assertEqual(counts(report), COUNTS)
                files = self.files()
                self.assertEqual(files["default.onnx"], files["chosen.onnx"])

    def test_only_first_replaces_so_many_and_grows_one_by_one(self):
        self.model()
        before = set()
        for n in range(1, sum(COUNTS.values()) + 2):
            report = self.patch_report("model.onnx", "--only-first", n, "-o", "out.onnx")
            nodes = {p["node"] for p in report["patched"]}
            self.assertEqual(sum(counts(report).values()), min(n, sum(COUNTS.values())))
            self.assertLessEqual(before, nodes)
            self.assertEqual(nodes, {name for _, name in liger_nodes(self.folder / "out.onnx")})
            before = nodes
        self.assertEqual(len(before), len(FUSED))

    def test_every_step_of_only_first_computes_the_same(self):
        model = self.model()
        for n in (1, 4):
            self.patch("model.onnx", "--only-first", n, "-o", "out.onnx")
            self.assert_same_results(model, self.folder / "out.onnx", MODELS / "llama/dynamo_op20.npz")

    def test_only_first_zero_writes_nothing(self):
        self.model()
        self.assertEqual(self.patch_report("model.onnx", "--only-first", "0")["status"], "nothing_to_do")
        self.assertFalse((self.folder / "model.liger.onnx").exists())

    def test_what_only_first_leaves_out_is_missed_for_that_reason(self):
        self.model()
        report = self.patch_report("model.onnx", "--only-first", "2", "--dry-run")
        self.assertEqual(sum(counts(report, "missed").values()), 11 - sum(counts(report).values()))
        for miss in report["missed"]:
            self.assertIn("--only-first", miss["reason"])


class PatchesDirTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model()
        self.families = self.folder / "patches/families"
        self.families.mkdir(parents=True)
        self.llama = (ROOT / "patches/families/llama.yaml").read_text()

    def test_a_family_file_of_the_same_name_replaces_the_built_in_one(self):
        (self.families / "llama.yaml").write_text(self.llama.replace("swiglu: on", "swiglu: off"))
        report = self.patch_report("model.onnx", "--patches-dir", "patches")
        self.assertEqual(counts(report), {**COUNTS, "swiglu": 0})
        self.assertEqual(report["modules"]["swiglu"]["reason"], "off by default for family llama")

    def test_a_family_of_another_name_is_added(self):
        (self.families / "tiny.yaml").write_text(re.sub(
            "LlamaFor|LlamaModel", lambda m: "Tiny" + m[0], self.llama.replace("family: llama", "family: tiny")
            .replace("model_types: [llama]", "model_types: [tiny]")))
        families = self.patch("--list", "families", "--patches-dir", "patches").stdout
        self.assertIn("tiny\n", families)
        report = self.patch_report("model.onnx", "--patches-dir", "patches", "--family", "tiny")
        self.assertEqual((report["family"]["name"], report["helper"]), ("tiny", "tiny"))
        self.assertEqual(counts(report), COUNTS)

    def test_a_folder_without_patch_files_is_exit_2(self):
        (self.folder / "empty").mkdir()
        self.assert_fails(2, "'empty' has no folder ops, lowerings or families", "model.onnx", "--patches-dir", "empty")

    def test_broken_yaml_is_exit_2_with_file_line_and_column(self):
        (self.families / "llama.yaml").write_text(self.llama.replace("swiglu: on", "swiglu: [on"))
        report = self.assert_fails(2, "not valid YAML", "model.onnx", "--patches-dir", "patches", hint=None)
        self.assertRegex(report["diagnostics"][-1]["location"], r"families/llama\.yaml:\d+:\d+$")

    def test_unknown_key_is_exit_2_with_its_line_and_the_known_keys(self):
        (self.families / "llama.yaml").write_text(
            self.llama.replace("family: llama\n", "family: llama\nsurprise: 1\n"))
        line = self.llama[:self.llama.index("family: llama\n")].count("\n") + 2
        report = self.assert_fails(2, "unknown key 'surprise'", "model.onnx", "--patches-dir", "patches",
                                   hint="known keys: .*modules")
        self.assertRegex(report["diagnostics"][-1]["location"], rf"families/llama\.yaml:{line}:1$")

    def test_broken_op_text_is_exit_2_with_its_line(self):
        ops = self.folder / "patches/ops"
        ops.mkdir()
        text = (ROOT / "patches/ops/swiglu.yaml").read_text()
        self.assertIn("Sigmoid", text)
        (ops / "swiglu.yaml").write_text(text.replace("Sigmoid (", "Sigmoid ((").replace("Sigmoid(", "Sigmoid(("))
        report = self.assert_fails(2, "cannot be parsed", "model.onnx", "--patches-dir", "patches", hint=None)
        self.assertRegex(report["diagnostics"][-1]["location"], r"ops/swiglu\.yaml:\d+")


class InformationTest(CliTest):
    def test_version(self):
        self.assertRegex(self.patch("--version").stdout, r"^liger-patch \d+\.\d+\.\d+\n$")

    def test_report_carries_the_same_version(self):
        self.model()
        version = self.patch_report("model.onnx", "--dry-run")["tool"]["version"]
        self.assertEqual(self.patch("--version").stdout, f"liger-patch {version}\n")

    def test_help_shows_every_option_examples_and_exit_codes(self):
        text = self.patch("--help").stdout
        for option in ("--family", "--modules", "--exclude", "--dry-run", "--explain", "--exact", "-o,--output",
                       "--external-data", "--providers", "--patches-dir", "--only-first", "--list", "--report",
                       "--version", "--help"):
            self.assertIn(option, text)
        self.assertIn("Examples:\n  liger-patch model.onnx --modules auto\n", text)
        for code in ("0 done", "1 expectation", "2 wrong usage", "3 unreadable", "4 family unknown", "5 output", "70 "):
            self.assertIn(code, text)

    def test_every_example_of_the_help_is_a_valid_command(self):
        examples = re.findall(r"(?m)^  liger-patch (.*)$", self.patch("--help").stdout)
        self.assertGreaterEqual(len(examples), 5)
        for example in examples:
            with self.subTest(example):
                self.model("qwen3/dynamo_op20.onnx")
                self.model("qwen3/dynamo_op20.onnx", "export/model.onnx", config=True)
                self.patch("export/model.onnx", "-o", "model.liger.onnx")
                for old in ("out", "patched"):
                    shutil.rmtree(self.folder / old, ignore_errors=True)
                (self.folder / "out").mkdir()
                shutil.copyfile(ROOT / "patches/examples/own_rms_norm.yaml", self.folder / "mine.yaml")
                text = (self.folder / "mine.yaml").read_text().replace("exaone4", "qwen3").replace("Exaone4", "Qwen3")
                (self.folder / "mine.yaml").write_text(text)
                self.patch(*shlex.split(example))

    def test_list_families(self):
        names = [line.split()[0] for line in self.patch("--list", "families").stdout.splitlines()]
        self.assertEqual(names, sorted(p.stem for p in (ROOT / "patches/families").glob("*.yaml")))

    def test_list_modules_says_which_have_ops(self):
        text = self.patch("--list", "modules").stdout
        self.assertRegex(text, r"(?m)^rms_norm  [^(]*$")
        self.assertRegex(text, r"(?m)^softmax  .*on request only$")
        for loss in ("cross_entropy", "fused_linear_cross_entropy"):
            self.assertRegex(text, rf"(?m)^{loss}  .*\(no ops in this version\)$")
        self.assertEqual(text.count("no ops in this version"), 2)

    def test_list_ops_are_those_of_the_files_and_hold_what_a_model_gets(self):
        self.model()
        self.patch("model.onnx")
        lines = self.patch("--list", "ops").stdout.splitlines()
        listed = {line.split()[0] for line in lines}
        files = [p.read_text() for p in (ROOT / "patches/ops").glob("*.yaml")]
        self.assertEqual(listed, {"liger." + re.search(r"(?m)^op: (\w+)$", text)[1] for text in files})
        self.assertLessEqual({"liger." + op for op, _ in liger_nodes(self.folder / "model.liger.onnx")}, listed)
        for line in lines:
            self.assertRegex(line, r"^liger\.\w+  (y|sum) = ")


if __name__ == "__main__":
    unittest.main()
