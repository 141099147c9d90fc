"""How much of the exports of every family is fused: never less than recorded, never more than is true, same numbers.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so recall_test.py

tools/recall.py prints the same for any exports, and writes expected.json (--update) and the README's table (--readme).
"""
import copy
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import recall

PATCHER = os.environ["LIGER_PATCH"]
LIBRARY = os.environ["LIGER_LIBRARY"]
FLOOR = json.loads(recall.FLOOR.read_text())


def is_run(name):
    """Models that are run here. Parts of a larger model, and opset 18 beside 20, are the same subgraphs:
    tools/recall.py runs them as well."""
    part = "_lang/" in name or "_vis/" in name and not name.startswith("pixtral")
    # Their delta rule is unrolled to thousands of nodes: one export by dynamo is enough.
    slow = name.startswith(("qwen3_5", "qwen3_next")) and name.endswith(("dynamo_op23.onnx", "dynamo_dyn.onnx"))
    return not part and not slow and not name.endswith("dynamo_op18.onnx")


class RecallTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.truth = recall.read_truth()
        with recall.corpus() as folder:
            cls.files = {str(p.relative_to(folder)) for p in folder.rglob("*.onnx")}
            cls.results = recall.examine_all(folder, PATCHER, LIBRARY, truth=cls.truth, numbers=is_run)
        recall.print_table(cls.results)
        recall.print_shortfalls(cls.results)
        recall.print_totals(cls.results)

    def test_the_true_counts_of_every_export_are_known(self):
        self.assertEqual(self.files, set(self.truth))
        self.assertTrue(all(facts["truth"] for facts in self.truth.values()))

    def test_every_helper_of_liger_is_there(self):
        self.assertEqual(len({facts["family"] for facts in self.truth.values()}), 42)

    def test_no_claim_is_larger_than_the_truth_and_no_rewrite_changes_numbers(self):
        self.assertEqual(recall.wrongs(self.results), [])

    def test_nothing_that_was_fused_is_lost(self):
        self.assertEqual(recall.below_floor(self.results, FLOOR), [])

    def test_the_table_of_the_readme_is_current(self):
        shown = recall.readme_part(recall.README.read_text())
        self.assertEqual(shown, recall.readme_table(self.results), "tools/recall.py --readme writes it")


def report(**changes):
    module = dict.fromkeys(recall.COUNTS, 0) | dict(enabled=True, reason="on", expected=2, patched=2) | changes
    return {"modules": {"rope": module}, "missed": [], "degraded": []}


class JudgementTest(unittest.TestCase):
    """What must make the test above fail, does."""

    def judge(self, found, true=2, code=0):
        return recall.judge(code, found, {"rope": true}, None)["rope"]

    def test_all_fused(self):
        row = self.judge(report())
        self.assertEqual((row["fused"], row["short"], row["wrong"]), (2, 0, []))

    def test_more_fused_than_true(self):
        self.assertEqual(self.judge(report(), true=1)["wrong"],
                         ["rope: 2 fused, 1 are true", "rope: 2 expected, 1 are true"])

    def test_what_is_fused_elsewhere_counts_as_far_as_it_is_true(self):
        row = self.judge(report(additional=3), true=4)
        self.assertEqual((row["fused"], row["beyond"], row["short"], row["wrong"]), (4, 1, 0, []))

    def test_more_expected_than_true(self):
        self.assertEqual(self.judge(report(expected=3))["wrong"], ["rope: 3 expected, 2 are true"])

    def test_degraded_is_not_fused(self):
        found = report(patched=1, degraded=1)
        found["degraded"] = [dict(module="rope", reason="without the weight")]
        row = self.judge(found)
        self.assertEqual((row["fused"], row["short"], row["why"]), (1, 1, "degraded: without the weight"))

    def test_reasons_are_counted(self):
        found = report(patched=0, missed=2)
        found["missed"] = [dict(module="rope", reason="another table")] * 2
        self.assertEqual(self.judge(found)["why"], "another table (2)")

    def test_what_the_map_does_not_expect_is_short_as_well(self):
        self.assertEqual(self.judge(report(), true=4)["why"], "2 not expected by the family's map")

    def test_a_run_that_failed(self):
        found = {"diagnostics": [dict(severity="error", message="the family is not known")]}
        row = self.judge(found, code=4)
        self.assertEqual((row["fused"], row["short"], row["why"]), (0, 2, "the family is not known"))

    def test_a_module_that_the_helper_does_not_have(self):
        row = recall.judge(0, report(), {"rope": 2, "layer_norm": 3}, None)["layer_norm"]
        self.assertEqual((row["short"], row["outside"]), (0, 3))
        failed = recall.judge(4, {"diagnostics": [dict(severity="error", message="no")]}, {"layer_norm": 3}, None)
        self.assertEqual((failed["layer_norm"]["short"], failed["layer_norm"]["outside"]), (3, 0))

    def test_a_loss_is_named_where_one_is_and_nowhere_else(self):
        none, one = {"excluded": {"loss_ops": []}}, {"excluded": {"loss_ops": [{}]}}
        self.assertEqual(recall.loss_faults("llama/loss_only_dynamo.onnx", one), [])
        self.assertEqual(recall.loss_faults("llama/dynamo.onnx", none), [])
        self.assertEqual(recall.loss_faults("llama/loss_only_dynamo.onnx", none), ["0 losses named, 1 is there"])
        self.assertEqual(recall.loss_faults("llama/dynamo.onnx", one), ["1 losses named, 0 is there"])

    def test_more_in_one_file_does_not_make_up_for_less_in_another(self):
        rows = [self.judge(report(patched=3), true=2), self.judge(report(patched=1), true=2)]
        self.assertEqual(recall.totals(rows), (3, 4))

    def test_below_the_floor(self):
        good = dict(name="a", exit=0, error="", numbers=recall.SAME, modules={"rope": self.judge(report())}, wrong=[])
        floor = {"a": recall.floor_entry(good)}
        self.assertEqual(recall.below_floor({"a": good}, floor), [])
        less = copy.deepcopy(good)
        less["modules"]["rope"] = self.judge(report(patched=1, unaccounted=1))
        self.assertEqual(recall.below_floor({"a": less}, floor),
                         ["a: rope 1 fused, 2 recorded: 1 unaccounted"])
        not_run = dict(good, numbers="not run: no kernel")
        self.assertIn("not run: no kernel", recall.below_floor({"a": not_run}, floor)[0])
        self.assertIn("not there", recall.below_floor({}, floor)[0])
        self.assertIn("--update adds it", recall.below_floor({"a": good}, {})[0])


class NumbersTest(unittest.TestCase):
    def test_another_function_differs(self):
        import onnx

        models = ROOT / "tests" / "models" / "llama"
        with tempfile.TemporaryDirectory() as scratch:
            changed = onnx.load(models / "dynamo_op20.onnx")
            norm = next(i for i in changed.graph.initializer if i.name.endswith("norm.weight"))
            weight = onnx.numpy_helper.to_array(norm) * (1 + 2**-12)
            norm.CopyFrom(onnx.numpy_helper.from_array(weight.astype("float32"), norm.name))
            path = pathlib.Path(scratch) / "changed.onnx"
            onnx.save(changed, path)
            original, npz = models / "dynamo_op20.onnx", models / "dynamo_op20.npz"
            self.assertRegex(recall.compare_numbers(original, path, npz, LIBRARY, "fp32"), "^differs: with the library")
            self.assertEqual(recall.compare_numbers(original, original, npz, LIBRARY, "fp32"), recall.SAME)


if __name__ == "__main__":
    unittest.main()
