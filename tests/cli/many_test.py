"""Several models and whole folders in one run: what is written where, what is carried over, reports, exit codes."""
import json
import os
import shutil
import unittest

import onnx
from onnx import TensorProto, helper

from cli_testing import MODELS, CliTest, liger_nodes

NAME = "llama/dynamo_op20.onnx"
ARRAYS = (MODELS / NAME).with_suffix(".npz")
EXTERNAL = "dynamo_op20_external.onnx"
COUNTS = {"rope": 4, "rms_norm": 5, "swiglu": 2}


def merged(path):
    """Optimum's merged decoder: a model in each branch of an If, their weights in the graph around it."""
    model = onnx.load(path)
    graph = model.graph
    branches = []
    for prefix in ("", "past_"):
        inner = {o: prefix + o for node in graph.node for o in node.output if o}
        nodes = []
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            for names in (copy.input, copy.output):
                names[:] = [inner.get(name, name) for name in names]
            nodes.append(copy)
        outputs = []
        for output in graph.output:
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(output)
            copy.name = inner[output.name]
            outputs.append(copy)
        branches.append(helper.make_graph(nodes, prefix + "branch", [], outputs))
    result = [onnx.ValueInfoProto() for _ in graph.output]
    for new, old in zip(result, graph.output):
        new.CopyFrom(old)
        new.name = "merged_" + old.name
    node = helper.make_node("If", ["use_cache_branch"], [r.name for r in result], name="If",
                            then_branch=branches[1], else_branch=branches[0])
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    outer = helper.make_graph([node], "merged", [*graph.input, flag], result, initializer=graph.initializer)
    made = helper.make_model(outer, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.checker.check_model(made)
    return made


def fused_inside(path):
    """Fused nodes of each graph inside the model's If."""
    node = next(n for n in onnx.load(path, load_external_data=False).graph.node if n.op_type == "If")
    return [sorted(n.op_type for n in a.g.node if n.domain == "liger") for a in node.attribute]


class ManyTest(CliTest):
    def folder_files(self, name):
        root = self.folder / name
        return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def patch_many(self, *arguments, code=0):
        """(run, document of all reports)"""
        run = self.run_patch(*arguments, "--report", "report.json")
        self.assertEqual(run.returncode, code, run.stderr)
        document = json.loads((self.folder / "report.json").read_text())
        for report in document["reports"]:
            self.check_report(report)
        self.assertEqual(document["summary"]["exit_code"], code)
        return run, document

    def assert_fused(self, report):
        self.assertEqual({m: report["modules"][m]["patched"] for m in COUNTS}, COUNTS)


class FilesTest(ManyTest):
    def test_each_file_gets_its_output_beside_it_and_its_report(self):
        self.model(to="a/model.onnx", config=True)
        self.model("qwen3/dynamo_op20.onnx", to="b/model.onnx", config=True)
        run, document = self.patch_many("b/model.onnx", "a/model.onnx")
        self.assertEqual([r["family"]["name"] for r in document["reports"]], ["qwen3", "llama"])
        self.assertEqual([r["output"]["path"] for r in document["reports"]],
                         ["b/model.liger.onnx", "a/model.liger.onnx"])
        self.assertTrue(run.stdout.endswith("2 models: 2 patched\n"), run.stdout)
        self.assertIn("== b/model.onnx: patched\nfamily   qwen3", run.stdout)
        self.assertEqual(document["summary"]["line"], "2 models: 2 patched")

    def test_the_largest_exit_code_counts_and_the_others_are_patched(self):
        self.model(config=True)
        (self.folder / "broken.onnx").write_text("no model")
        run, document = self.patch_many("broken.onnx", "model.onnx", "missing.onnx", code=3)
        self.assertEqual([r["exit_code"] for r in document["reports"]], [3, 0, 3])
        self.assertTrue((self.folder / "model.liger.onnx").exists())
        self.assertIn("broken.onnx", run.stderr)
        self.assertIn("missing.onnx", run.stderr)
        self.assertIn("3 models: 1 patched, 2 failed", run.stdout)

    def test_expectations_hold_for_each_model(self):
        self.model(to="a.onnx", config=True)
        self.model("qwen3/dynamo_op20.onnx", to="q/b.onnx", config=True)
        run, document = self.patch_many("a.onnx", "q/b.onnx", "--check", "--expect", "rms_norm=5", code=1)
        self.assertEqual([r["status"] for r in document["reports"]], ["checked", "expectation_failed"])
        self.assertEqual([r["expectations"][0]["found"] for r in document["reports"]], [5, 9])

    def test_two_of_one_name_are_refused_before_anything_is_written(self):
        for folder in "ab":
            self.model(to=f"{folder}/model.onnx", config=True)
        before = self.files()
        run = self.run_patch("a/model.onnx", "b/model.onnx", "-o", "out")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, "liger-patch: .*'a/model.onnx' and 'b/model.onnx' would both become 'out/model.onnx'")
        self.assertEqual(self.files(), before)


class FolderTest(ManyTest):
    def export(self, name="export"):
        """Optimum's folder: merged decoder, with-past decoder with external data, tokenizer, configuration."""
        folder = self.folder / name
        folder.mkdir()
        onnx.save(merged(MODELS / NAME), folder / "decoder_model_merged.onnx")
        self.external_model(name)
        (folder / EXTERNAL).rename(folder / "decoder_with_past_model.onnx")
        shutil.copyfile(MODELS / "llama/config.json", folder / "config.json")
        (folder / "tokenizer.json").write_text("{}")
        (folder / "onnx").mkdir()
        (folder / "onnx" / "notes.txt").write_text("kept")
        return folder

    def test_a_folder_becomes_a_folder_that_runs(self):
        export = self.export()
        before = self.folder_files("export")
        _, document = self.patch_many("export", "-o", "patched", "-j", "2")
        self.assertEqual([r["input"]["path"] for r in document["reports"]],
                         ["export/decoder_model_merged.onnx", "export/decoder_with_past_model.onnx"])
        self.assert_fused(document["reports"][1])
        self.assertEqual(self.folder_files("export"), before)
        after = self.folder_files("patched")
        self.assertEqual(sorted(after), sorted(before))
        for name in before:
            self.assertEqual(after[name] == before[name], not name.endswith(".onnx"), name)
        patched = self.folder / "patched"
        then_branch, else_branch = fused_inside(patched / "decoder_model_merged.onnx")
        self.assertEqual(then_branch, else_branch)
        self.assertEqual(then_branch, [op for op, _ in liger_nodes(patched / "decoder_with_past_model.onnx")])
        for module, count in COUNTS.items():
            self.assertEqual(document["reports"][0]["modules"][module]["patched"], 2 * count)
        self.assert_same_results(export / "decoder_with_past_model.onnx", patched / "decoder_with_past_model.onnx",
                                 (MODELS / "llama" / EXTERNAL).with_suffix(".npz"))
        self.assert_same_branches(export / "decoder_model_merged.onnx", patched / "decoder_model_merged.onnx")

    def relu(self, path, node="relu"):
        """A model in which nothing can be fused."""
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name=node)], "g", [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                  self.folder / path)

    def assert_same_branches(self, original, patched):
        import compare
        arrays = compare.np.load(ARRAYS)
        sessions = [compare.open_session(p) for p in (original, patched)]
        for branch in (False, True):
            feeds = {i.name: arrays["in_" + i.name] for i in sessions[0].get_inputs() if i.name != "use_cache_branch"}
            feeds["use_cache_branch"] = compare.np.array([branch])
            wanted, got = (session.run(None, feeds) for session in sessions)
            self.assertLessEqual(compare.difference(wanted, got), 2e-6 * compare.largest(wanted))

    def test_beside_the_models_nothing_else_changes_and_a_second_run_changes_nothing(self):
        self.export()
        before = self.folder_files("export")
        self.patch_many("export/")
        after = self.folder_files("export")
        self.assertEqual(set(after) - set(before),
                         {"decoder_model_merged.liger.onnx", "decoder_with_past_model.liger.onnx"})
        _, document = self.patch_many("export/")
        self.assertEqual(document["summary"]["models"], 2)
        self.assertEqual(self.folder_files("export"), after)

    def test_the_parts_of_a_genai_folder_are_known_by_its_configuration(self):
        for part in ("embedding", "text"):
            self.model(to=f"genai/{part}.onnx")
        self.relu("genai/vision.onnx")
        (self.folder / "genai/genai_config.json").write_text(json.dumps({"model": {"type": "llama"}}))
        before = self.folder_files("genai")
        _, document = self.patch_many("genai", "-o", "out")
        self.assertEqual(document["summary"]["by_status"], {"ok": 2, "nothing_to_do": 1})
        for report in document["reports"]:
            self.assertEqual(report["family"]["name"], "llama")
        after = self.folder_files("out")
        self.assertEqual(sorted(after), sorted(before))
        self.assertEqual(after["vision.onnx"], before["vision.onnx"])

    def test_hardlinks_share_what_is_carried_over(self):
        self.export()
        run, _ = self.patch_many("export", "-o", "out", "--external-data", "hardlink")
        for name in (EXTERNAL + ".data", "tokenizer.json"):
            self.assertTrue(os.path.samefile(self.folder / "export" / name, self.folder / "out" / name))
        self.assertIn("hard links", run.stderr)

    def test_a_model_that_fails_is_carried_over_and_counted(self):
        export = self.export()
        (export / "broken.onnx").write_text("no model")
        run, document = self.patch_many("export", "-o", "out", code=3)
        self.assertEqual(document["summary"]["by_status"], {"ok": 2, "error": 1})
        self.assertEqual((self.folder / "out/broken.onnx").read_text(), "no model")
        self.assertIn("liger-patch: ", run.stderr)

    def test_where_all_fail_no_folder_is_made(self):
        self.export()
        before = self.files()
        run = self.run_patch("export", "-o", "out", "--strict", "--expect", "rope=5")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(self.files(), before)
        self.assertFalse((self.folder / "out").exists())

    def test_output_folders_that_would_cost_something_are_refused(self):
        self.export()
        (self.folder / "taken").mkdir()
        (self.folder / "taken/config.json").write_text("precious")
        before = self.files()
        for output, code, sentence in (("export", 2, "is the input folder"), ("export/new", 2, "lies in the input"),
                                       ("taken", 5, "'taken/config.json' is there already")):
            with self.subTest(output):
                run = self.run_patch("export", "-o", output)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertIn(sentence, run.stderr)
                self.assertIn("  hint: ", run.stderr)
                self.assertEqual(self.files(), before)

    def test_checks_and_dry_runs_write_nothing(self):
        self.export()
        before = self.files()
        for options in (["--check"], ["--check", "-o", "out"], ["--dry-run"], ["--dry-run", "-o", "out"]):
            run = self.patch("export", *options)
            self.assertIn("2 models: 2 ", run.stdout)
            self.assertEqual(self.files(), before)
            self.assertFalse((self.folder / "out").exists())

    def test_threads_change_neither_bytes_nor_reports(self):
        self.export()
        seen = []
        for jobs in ("1", "0", "3"):
            self.patch_many("export", "-o", "out", "-j", jobs)
            seen.append((self.folder_files("out"), (self.folder / "report.json").read_bytes()))
            shutil.rmtree(self.folder / "out")
        self.assertEqual(seen[1], seen[0])
        self.assertEqual(seen[2], seen[0])

    def test_globs_have_to_match_in_one_model(self):
        self.export()
        self.model(to="export/plain.onnx")
        before = self.files()
        run = self.run_patch("export", "-o", "out", "--skip", "model.layers.O")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("--skip 'model.layers.O' takes in no module of any model", run.stderr)
        self.assertIn("model.layers.0", run.stderr)
        self.assertEqual(self.files(), before)
        self.relu("export/vision.onnx", node="/vision/block/Relu")
        _, document = self.patch_many("export", "-o", "out", "--skip", "vision.block", "--skip", "model.model.norm")
        self.assertEqual([[s["paths"] for s in r["scopes"]] for r in document["reports"]],
                         [[0, 1], [0, 1], [0, 1], [1, 0]])
        self.assertEqual(document["reports"][2]["modules"]["rms_norm"]["excluded"], 1)


class OtherJobsTest(ManyTest):
    def setUp(self):
        super().setUp()
        self.model(to="in/a.onnx", config=True)
        self.patch("in")

    def test_lint_looks_at_every_file_and_writes_nothing(self):
        before = self.files()
        for arguments in (["in"], ["in/a.onnx", "in/a.liger.onnx"]):
            run = self.patch("--lint", *arguments)
            for name in ("in/a.onnx", "in/a.liger.onnx"):
                self.assertIn(name, run.stdout)
        self.assertEqual(self.files(), before)

    def test_a_folder_is_reverted_beside_its_models_and_into_another(self):
        run = self.patch("--revert", "in")
        self.assertIn("2 models: 1 written, 1 nothing to do", run.stdout)
        self.assertEqual(sorted(self.folder_files("in")),
                         ["a.liger.onnx", "a.liger.reverted.onnx", "a.onnx", "config.json"])
        self.assertEqual(liger_nodes(self.folder / "in/a.liger.reverted.onnx"), [])
        after = self.files()
        self.patch("--revert", "in")
        self.assertEqual(self.files(), after)
        self.patch("--revert", "in", "-o", "out")
        files = self.folder_files("out")
        self.assertEqual(sorted(files), sorted(self.folder_files("in")))
        self.assertEqual(liger_nodes(self.folder / "out/a.liger.onnx"), [])
        self.assertEqual(files["a.onnx"], (self.folder / "in/a.onnx").read_bytes())


class ReportsTest(ManyTest):
    def setUp(self):
        super().setUp()
        self.model(to="in/a.onnx", config=True)
        self.model("llama/fp16_dynamo_op20.onnx", to="in/sub/b.onnx")

    def test_a_folder_of_reports_has_one_for_each_model_and_a_summary(self):
        (self.folder / "reports").mkdir()
        for target, options, suffix in (("reports", [], "json"), ("new/reports/", ["--format", "junit"], "xml")):
            self.patch("in", "--check", "--report", target, *options)
            self.assertEqual(sorted(self.folder_files(target)),
                             [f"a.onnx.{suffix}", f"sub/b.onnx.{suffix}", f"summary.{suffix}"])
        one = self.check_report(json.loads((self.folder / "reports/sub/b.onnx.json").read_text()))
        self.assertEqual(one["input"]["path"], "in/sub/b.onnx")
        both = json.loads((self.folder / "reports/summary.json").read_text())
        self.assertEqual(both["reports"][1], one)

    def test_other_files_in_it_are_not_replaced(self):
        (self.folder / "reports").mkdir()
        (self.folder / "reports/summary.json").write_text('{"mine": 1}')
        before = self.files()
        run = self.run_patch("in", "--check", "--report", "reports/")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("summary.json', which is no report", run.stderr)
        self.assertEqual(self.files(), before)

    def test_a_file_holds_all_reports_in_each_format(self):
        for name, start in (("r.json", '{\n  "schema_version"'), ("r.md", "<!-- liger-patch -->\n### liger-patch: 2 models"),
                            ("r.xml", '<?xml version="1.0"'), ("r.sarif", '{\n  "$schema"'), ("r.txt", "== in/a.onnx")):
            self.patch("in", "--check", "--report", name)
            text = (self.folder / name).read_text()
            self.assertTrue(text.startswith(start), text[:80])
            self.assertIn("in/sub/b.onnx", text)

    def test_github_commands_on_standard_output(self):
        run = self.patch("in", "--check", "--format", "github")
        self.assertTrue(run.stdout)
        for line in run.stdout.splitlines():
            self.assertRegex(line, "^::(error|warning|notice) file=in/")

    def test_a_folder_with_one_model_is_a_run_of_several(self):
        shutil.rmtree(self.folder / "in/sub")
        self.patch("in", "--check", "--report", "r.json")
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["summary"]["models"], 1)

    def test_a_folder_without_models_is_exit_3(self):
        (self.folder / "empty").mkdir()
        run = self.run_patch("empty")
        self.assertEqual(run.returncode, 3)
        self.assertIn("the folder 'empty' holds no .onnx file", run.stderr)


if __name__ == "__main__":
    unittest.main()
