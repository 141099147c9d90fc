"""The JSON report: its schema, true counts for every stored model, determinism, idempotence, patching in steps."""
import copy
import hashlib
import os
import unittest

import onnx
from onnx import TensorProto, helper

from cli_testing import EXPECTED, MODELS, MODULES, SCHEMA, STRACE, TRACED, CliTest, fd_calls, liger_nodes, needs_strace
from json_schema import problems


def node_name(node):
    return node.name or next((o for o in node.output if o), node.op_type)


def attribute_value(attribute):
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


class SchemaTest(CliTest):
    """The schema says no to what is no report, so that its yes to the reports of all other tests means something."""

    def setUp(self):
        super().setUp()
        self.model("llama/fp16_dynamo_op20.onnx")
        self.good = self.patch_report("model.onnx", "--exact")

    def refuses(self, change):
        report = copy.deepcopy(self.good)
        change(report)
        return list(problems(report, SCHEMA))

    def test_every_object_names_all_its_keys(self):
        def walk(schema, where):
            if isinstance(schema, dict):
                if "properties" in schema and schema.get("type") == "object":
                    self.assertIs(schema["additionalProperties"], False, where)
                    self.assertEqual(schema["required"], list(schema["properties"]), where)
                for key, sub in schema.items():
                    walk(sub, f"{where}/{key}")
            elif isinstance(schema, list):
                for i, sub in enumerate(schema):
                    walk(sub, f"{where}/{i}")
        walk(SCHEMA, "#")

    def test_a_report_that_is_changed_is_refused(self):
        self.assertEqual(list(problems(self.good, SCHEMA)), [])
        for name, change in {
            "missing key": lambda r: r.pop("weights_read"),
            "unknown key": lambda r: r.update(surprise=1),
            "unknown key inside": lambda r: r["patched"][0].update(surprise=1),
            "unknown status": lambda r: r.update(status="fine"),
            "unknown precision": lambda r: r["patched"][0].update(precision="about"),
            "negative count": lambda r: r["modules"]["rope"].update(missed=-1),
            "text for a number": lambda r: r["modules"]["rope"].update(missed="4"),
            "truth value for a number": lambda r: r["modules"]["rope"].update(missed=True),
            "miss without a reason": lambda r: r["missed"][0].update(reason=""),
            "no checksum": lambda r: r["output"].update(sha256=""),
            "another version of the schema": lambda r: r.update(schema_version=2),
        }.items():
            with self.subTest(name):
                self.assertTrue(self.refuses(change))


class EveryModelTest(CliTest):
    def check(self, name, facts):
        self.model(name, config=True)
        if facts["external_data"]:
            self.external_model()
            (self.folder / "dynamo_op20_external.onnx").rename(self.folder / "model.onnx")
        report = self.patch_report("model.onnx", "-o", "out.onnx")
        self.assertEqual((report["status"], report["route"]), ("ok", "official"))
        self.assertEqual(report["family"]["name"], facts["family"])
        self.assertEqual([e["source"] for e in report["family"]["evidence"] if e["decided"]], ["config.json"])
        for module in MODULES:
            m = report["modules"][module]
            self.assertEqual((m["expected"], m["patched"]), (facts["counts"][module],) * 2, module)
            self.assertTrue(m["expected_source"])

        before = onnx.load(self.folder / "model.onnx", load_external_data=False)
        after = onnx.load(self.folder / "out.onnx", load_external_data=False)
        old = [node_name(n) for n in before.graph.node]
        new = {node_name(n): n for n in after.graph.node}
        replaced = [r for p in report["patched"] for r in p["replaced"]]
        self.assertEqual(len(set(replaced)), len(replaced), "a node is replaced twice")
        self.assertLessEqual(set(replaced), set(old))
        self.assertEqual(set(replaced) & {node_name(n) for n in after.graph.node}, set())
        # What else is gone (constants, the shapes that slice bounds were made of) has no user left.
        gone = [n for n in before.graph.node if node_name(n) not in new]
        self.assertLessEqual(set(replaced), {node_name(n) for n in gone})
        used = {i for n in after.graph.node for i in n.input} | {o.name for o in after.graph.output}
        for node in gone:
            if node_name(node) not in replaced:
                self.assertEqual(used & set(node.output), set(), node.name)
        self.assertEqual(sorted((p["op"], p["node"]) for p in report["patched"]),
                         liger_nodes(self.folder / "out.onnx"))
        for p in report["patched"]:
            self.assertEqual(p["attributes"], {a.name: attribute_value(a) for a in new[p["node"]].attribute})
            self.assertEqual(p["path"], p["paths"][0])
        for op, change in report["op_counts"].items():
            domain, _, op_type = op.rpartition(".")
            for model, key in ((before, "before"), (after, "after")):
                self.assertEqual(change[key],
                                 sum((n.domain, n.op_type) == (domain, op_type) for n in model.graph.node), op)

    def test_each_expected_instance_is_patched_and_described(self):
        for name, facts in EXPECTED.items():
            with self.subTest(name):
                self.check(name, facts)


class AccountingTest(CliTest):
    """check_report() holds expected = patched + ... + unaccounted; here for runs that leave things out."""

    def test_the_parts_make_the_whole_for_every_kind_of_run(self):
        for name in ("llama/fp16_mask_ts_op17_dyn.onnx", "qwen3/dynamo_op20.onnx", "mistral/dynamo_op23.onnx"):
            self.model(name, config=True)
            for options in (["--modules", "rms_norm"], ["--exclude", "rope"], ["--exact"],
                            ["--only-first", "3"]):
                with self.subTest(name=name, options=options):
                    report = self.patch_report("model.onnx", "--dry-run", *options)
                    for module in MODULES:
                        self.assertEqual(report["modules"][module]["expected"], EXPECTED[name]["counts"][module])
                        self.assertEqual(report["modules"][module]["unaccounted"], 0)


class DeterminismTest(CliTest):
    def test_two_runs_give_the_same_bytes_of_model_and_report(self):
        for name in ("llama/past_dynamo_op20_dyn.onnx", "qwen3/fp16_dynamo_op23.onnx", "mistral/mask_ts_op20.onnx"):
            with self.subTest(name):
                self.model(name, config=True)
                seen = []
                for _ in range(2):
                    self.patch("model.onnx", "--report", "report.json")
                    seen.append(self.files())
                self.assertEqual(seen[0], seen[1])

    def test_the_bytes_do_not_depend_on_where_the_files_stand(self):
        self.model(to="a/model.onnx")
        self.model(to="b/c/other.onnx")
        self.patch("a/model.onnx")
        self.patch("b/c/other.onnx", "-o", "b/x.onnx")
        files = self.files()
        self.assertEqual(files["a/model.liger.onnx"], files["b/x.onnx"])

    def test_checksums_in_the_report_are_those_of_the_files(self):
        self.model()
        report = self.patch_report("model.onnx")
        for key in ("input", "output"):
            data = (self.folder / report[key]["path"]).read_bytes()
            self.assertEqual(report[key]["sha256"], hashlib.sha256(data).hexdigest())


class SecondRunTest(CliTest):
    def test_a_run_on_the_output_writes_nothing_and_counts_all_as_fused(self):
        for name in ("llama/dynamo_op20.onnx", "qwen3/mask_ts_op17_dyn.onnx", "qwen2/dynamo_op18.onnx",
                     "llama/bf16_dynamo_op20.onnx"):
            with self.subTest(name):
                self.model(name, config=True)
                self.patch("model.onnx", "-o", "out.onnx")
                before = self.files()
                before.pop("report.json", None)
                for target in ([], ["-o", "again.onnx"], ["-o", "out.onnx"]):
                    run = self.patch("out.onnx", "--report", "report.json", *target)
                    self.assertIn("the model is patched already; nothing was written", run.stderr)
                    report = self.read_report()
                    self.assertEqual((report["status"], report["output"]), ("nothing_to_do", None))
                    for module in MODULES:
                        m = report["modules"][module]
                        self.assertEqual((m["expected"], m["already_fused"]), (EXPECTED[name]["counts"][module],) * 2)
                    after = self.files()
                    del after["report.json"]
                    self.assertEqual(after, before)

    def test_the_input_is_not_modified(self):
        path = self.model()
        os.utime(path, (1_000_000_000, 1_000_000_000))
        before = path.stat()
        self.patch("model.onnx")
        self.patch("model.onnx", "-o", "x.onnx", "--report", "report.json")
        after = path.stat()
        self.assertEqual((after.st_ino, after.st_mtime_ns, after.st_size),
                         (before.st_ino, before.st_mtime_ns, before.st_size))
        self.assertEqual(path.read_bytes(), (MODELS / "llama/dynamo_op20.onnx").read_bytes())

    def test_output_that_is_the_input_replaces_it_if_named(self):
        self.model()
        self.patch("model.onnx", "-o", "elsewhere.onnx")
        for spelling in ("model.onnx", "./model.onnx", str(self.folder / "model.onnx")):
            with self.subTest(spelling):
                self.model()
                self.patch("model.onnx", "-o", spelling)
                self.assertEqual(sorted(self.files()), ["elsewhere.onnx", "model.onnx"])
                self.assertEqual(self.files()["model.onnx"], self.files()["elsewhere.onnx"])

    @needs_strace
    def test_replacing_the_input_is_a_rename_of_a_complete_file(self):
        self.model()
        run = self.run_command([STRACE, "-f", "-y", "-o", "trace", "-e", "trace=openat,open,write,rename,renameat2",
                                *self.command("model.onnx", "-o", "model.onnx")], env=TRACED)
        self.assertEqual(run.returncode, 0, run.stderr)
        trace = (self.folder / "trace").read_text()
        opened = [line for line in trace.splitlines() if '"model.onnx"' in line and "open" in line]
        self.assertTrue(opened)
        for line in opened:
            self.assertIn("O_RDONLY", line)
        renames = [line for line in trace.splitlines() if "rename" in line]
        self.assertEqual(len(renames), 1)
        self.assertRegex(renames[0], r'\.liger-[^"]*\.tmp", .*"model\.onnx"')
        self.assertFalse(any(call == "write" and path.endswith("model.onnx")
                             for call, path, _, _ in fd_calls(trace)))


class StepsTest(CliTest):
    def test_modules_in_two_steps_give_the_fused_ops_of_one_run_and_the_same_results(self):
        for name in ("llama/dynamo_op20.onnx", "qwen3/mask_ts_op17_dyn.onnx"):
            with self.subTest(name):
                model = self.model(name, config=True)
                self.patch("model.onnx", "-o", "one.onnx")
                self.patch("model.onnx", "--modules", "rms_norm", "-o", "first.onnx")
                self.assertEqual({op for op, _ in liger_nodes(self.folder / "first.onnx")},
                                 {"LigerRMSNorm", "LigerAddRMSNorm"})
                report = self.patch_report("first.onnx", "-o", "two.onnx")
                self.assertEqual(report["modules"]["rms_norm"]["already_fused"], EXPECTED[name]["counts"]["rms_norm"])
                self.assertEqual(liger_nodes(self.folder / "two.onnx"), liger_nodes(self.folder / "one.onnx"))
                stamp = {p.key: p.value for p in onnx.load(self.folder / "two.onnx").metadata_props}
                self.assertEqual(set(stamp["liger.modules"].split(",")), set(MODULES))
                for step in ("first.onnx", "two.onnx"):
                    self.assert_same_results(model, self.folder / step, (MODELS / name).with_suffix(".npz"))

    def test_the_stamp_keeps_the_modules_of_earlier_steps(self):
        self.model()
        self.patch("model.onnx", "--modules", "rms_norm", "-o", "first.onnx")
        self.patch("first.onnx", "--modules", "swiglu", "-o", "two.onnx")
        stamp = {p.key: p.value for p in onnx.load(self.folder / "two.onnx").metadata_props}
        self.assertEqual(set(stamp["liger.modules"].split(",")), {"rms_norm", "swiglu"})


class NoMatchTest(CliTest):
    def setUp(self):
        super().setUp()
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                  self.folder / "model.onnx")

    def test_a_model_without_any_match_is_exit_0_and_nothing_is_written(self):
        for family in ("llama", "any"):
            with self.subTest(family):
                run = self.patch("model.onnx", "--family", family, "--report", "report.json")
                self.assertIn("nothing was fused, so no file was written", run.stderr)
                report = self.read_report()
                self.assertEqual((report["status"], report["output"], report["patched"]), ("nothing_to_do", None, []))
                self.assertEqual(sorted(self.files()), ["model.onnx", "report.json"])

    def test_without_a_family_it_is_exit_4(self):
        self.assert_fails(4, "family", "model.onnx")

    def test_instances_that_config_json_promises_are_counted_as_not_found(self):
        (self.folder / "config.json").write_bytes((MODELS / "llama/config.json").read_bytes())
        report = self.patch_report("model.onnx")
        norm = report["modules"]["rms_norm"]
        self.assertEqual((norm["expected"], norm["expected_source"], norm["patched"]), (5, "config", 0))
        self.assertEqual(norm["missed"] + norm["unaccounted"], 5)


if __name__ == "__main__":
    unittest.main()
