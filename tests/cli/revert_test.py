"""--revert gives back a model without our ops that computes the same, --refresh makes bodies and stamps anew.

    LIGER_PATCH=build/release/bin/liger-patch LIGER_LIBRARY=build/release/lib/libliger_ort.so python revert_test.py

Every model of tests/models is patched, reverted and patched again. Then converters that know nothing of our ops change
patched models: ONNX Runtime's to half precision, ONNX's to another operator set, which drops functions.
"""
import collections
import logging
import os
import subprocess
import unittest
import warnings

import onnx
import onnxruntime
from onnxruntime.transformers.float16 import convert_float_to_float16

from cli_testing import BINARY, EXPECTED, MODELS, CliTest, compare, liger_nodes

LIBRARY = os.environ["LIGER_LIBRARY"]
# Of the largest output: one rounding to half precision is 5e-4, and each layer adds some.
HALF = 4e-3


def load(path):
    return onnx.load(path, load_external_data=False)


def names(model):
    return [n.name for n in model.graph.node if n.name]


def summary(report):
    """What a run has fused: how often each op with each set of attributes, and the counts of each module."""
    fused = collections.Counter((p["module"], p["op"], tuple(sorted((k, str(v)) for k, v in p["attributes"].items())))
                                for p in report["patched"])
    counts = {n: {k: m[k] for k in ("expected", "patched", "missed", "degraded")} for n, m in report["modules"].items()}
    return fused, counts


def to_half(source, target):
    """What ONNX Runtime's converter makes of a model; inputs and outputs keep their dtypes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


class RevertTest(CliTest):
    def outputs(self, path, npz, library=None):
        session = compare.open_session(path, library)
        return session.run(None, compare.read_inputs(npz, session))

    def assert_close(self, wanted, got, limit):
        self.assertLessEqual(compare.difference(wanted, got), limit * compare.largest(wanted))


class EveryModelTest(RevertTest):
    def test_patched_reverted_and_patched_again(self):
        for name in sorted(EXPECTED):
            with self.subTest(name):
                self.round_trip(name)

    def round_trip(self, name):
        source, npz = MODELS / name, (MODELS / name).with_suffix(".npz")
        self.model(name.replace(source.name, "config.json"), "config.json")
        for old in self.folder.glob("*.onnx*"):
            old.unlink()
        copy = ("--external-data", "copy")
        first = self.patch_report(source, "-o", "patched.onnx", *copy)
        reverted = self.patch_report("patched.onnx", "--revert")
        self.assertEqual(reverted["status"], "ok")
        self.assertEqual(reverted["output"]["path"], "patched.reverted.onnx")
        path = self.folder / "patched.reverted.onnx"
        original, model = load(source), load(path)
        self.assertEqual(liger_nodes(path), [])
        self.assertEqual([f.name for f in model.functions], [f.name for f in original.functions])
        self.assertEqual(model.opset_import, original.opset_import)
        self.assertEqual(model.metadata_props, original.metadata_props)
        self.assertEqual(model.ir_version, original.ir_version)
        self.assertEqual(model.graph.input, original.graph.input)
        self.assertEqual(model.graph.output, original.graph.output)
        self.assertEqual(len(set(names(model))), len(names(model)))
        onnx.checker.check_model(str(path))
        again = self.patch_report(path.name, "-o", "again.onnx", *copy)
        self.assertEqual(summary(again), summary(first))
        self.assertEqual(again["family"]["name"], first["family"]["name"])
        if "bf16" in name:
            return  # ONNX Runtime's CPU provider has no bf16
        wanted = self.outputs(self.folder / "patched.onnx", npz)
        self.assert_close(wanted, self.outputs(path, npz), 1e-6)
        self.assert_close(wanted, self.outputs(self.folder / "again.onnx", npz), 1e-6)
        kernels = self.outputs(self.folder / "patched.onnx", npz, LIBRARY)
        self.assert_close(kernels, self.outputs(self.folder / "again.onnx", npz, LIBRARY), 1e-6)

    def test_a_fresh_result_needs_no_refresh(self):
        for name in sorted(EXPECTED):
            with self.subTest(name):
                self.patch(MODELS / name, "-o", "patched.onnx", "--external-data", "copy")
                before = self.files()
                run = self.patch("patched.onnx", "--refresh")
                self.assertIn("every call of a fused op has a body that fits it; nothing was written", run.stderr)
                self.assertEqual(self.files(), before)


class OptionsTest(RevertTest):
    def setUp(self):
        super().setUp()
        self.model()
        self.patch("model.onnx", "-o", "patched.onnx")

    def test_the_input_stays_and_o_names_the_output(self):
        before = self.files()
        self.patch("patched.onnx", "--revert", "-o", "plain.onnx")
        after = self.files()
        after.pop("plain.onnx")
        self.assertEqual(after, before)

    def test_the_same_bytes_every_time(self):
        self.patch("patched.onnx", "--revert", "-o", "a.onnx")
        self.patch("patched.onnx", "--revert", "-o", "b.onnx")
        self.assertEqual((self.folder / "a.onnx").read_bytes(), (self.folder / "b.onnx").read_bytes())

    def test_in_place_if_it_is_named(self):
        self.patch("patched.onnx", "--revert", "-o", "patched.onnx")
        self.assertEqual(liger_nodes(self.folder / "patched.onnx"), [])

    def test_check_and_dry_run_write_nothing(self):
        before = self.files()
        for option, said in (("--check", ""), ("--dry-run", "'patched.reverted.onnx' was not written")):
            run = self.patch("patched.onnx", "--revert", option)
            self.assertIn(said, run.stderr)
            self.assertIn("9 calls stand in their place: 4 LigerAddRMSNorm, 1 LigerRMSNorm, 2 LigerRope, 2 LigerSwiGLU",
                          run.stderr)
        self.assertEqual(self.files(), before)

    def test_a_model_that_was_never_patched(self):
        before = self.files()
        for job, said in (("--revert", "the model holds nothing that patching made; nothing was written"),
                          ("--refresh", "the model calls no fused op; nothing was written")):
            run = self.patch("model.onnx", job)
            self.assertEqual(run.stderr, f"liger-patch: {said}\n")
        self.assertEqual(self.files(), before)

    def test_a_pipe(self):
        run = subprocess.run([BINARY, "-", "--revert", "-o", "-"], input=(self.folder / "patched.onnx").read_bytes(),
                             capture_output=True, cwd=self.folder, check=True)
        self.assertEqual([n.op_type for n in onnx.load_from_string(run.stdout).graph.node if n.domain == "liger"], [])
        # Nothing to do: as it came.
        again = subprocess.run([BINARY, "-", "--revert", "-o", "-"], input=run.stdout, capture_output=True,
                               cwd=self.folder, check=True)
        self.assertEqual(again.stdout, run.stdout)

    def test_external_data_stays_where_it_is_or_is_copied(self):
        self.external_model("x")
        self.patch("x/dynamo_op20_external.onnx", "-o", "x/patched.onnx")
        before = self.files()
        self.patch("x/patched.onnx", "--revert")
        self.assertEqual(sorted(set(self.files()) - set(before)), ["x/patched.reverted.onnx"])
        (self.folder / "y").mkdir()
        self.assert_fails(5, "would not find its data", "x/patched.onnx", "--revert", "-o", "y/plain.onnx",
                          hint="--external-data copy")
        self.patch("x/patched.onnx", "--revert", "-o", "y/plain.onnx", "--external-data", "copy")
        self.assertEqual(sorted(p.name for p in (self.folder / "y").iterdir()),
                         ["dynamo_op20_external.onnx.data", "plain.onnx"])

    def test_what_is_no_model(self):
        (self.folder / "text.onnx").write_text("hello\n")
        for job in ("--revert", "--refresh"):
            self.assert_fails(3, "text.onnx", "text.onnx", job)


class HalfPrecisionTest(RevertTest):
    def converted(self, name):
        """A patched model that ONNX Runtime's converter has changed, and the f32 model's inputs and outputs."""
        logging.getLogger("onnxruntime.transformers.float16").setLevel(logging.ERROR)
        self.patch(MODELS / name, "-o", "patched.onnx")
        to_half(self.folder / "patched.onnx", self.folder / "half.onnx")
        npz = (MODELS / name).with_suffix(".npz")
        return npz, self.outputs(MODELS / name, npz)

    def test_results_are_those_of_the_f32_model(self):
        for name in ("llama/dynamo_op20.onnx", "llama/past_dynamo_op20_dyn.onnx", "qwen2/mask_ts_op17_dyn.onnx",
                     "qwen3/mask_ts_op17_dyn.onnx"):
            with self.subTest(name):
                npz, wanted = self.converted(name)
                half, fresh = self.folder / "half.onnx", self.folder / "half.refreshed.onnx"
                with self.assertRaisesRegex(Exception, "inconsistent type"):
                    compare.open_session(half)
                run = self.patch("half.onnx", "--refresh")
                self.assertIn("computes in f32 where the operands give f16", run.stderr)
                self.assert_close(wanted, self.outputs(fresh, npz), HALF)
                self.assert_close(wanted, self.outputs(fresh, npz, LIBRARY), HALF)
                self.assertEqual(liger_nodes(fresh), liger_nodes(half))
                self.assertEqual(load(fresh).metadata_props, load(half).metadata_props)
                self.assertEqual(load(fresh).graph.output, load(half).graph.output)
                again = self.patch("half.refreshed.onnx", "--refresh")
                self.assertIn("nothing was written", again.stderr)

    def test_a_body_that_loads_but_means_something_else(self):
        # RMSNormalization takes any dtype: the old bodies compute in f16 what the attributes say is f32.
        npz, wanted = self.converted("llama/dynamo_op23.onnx")
        run = self.patch("half.onnx", "--refresh")
        self.assertIn("its body computes something else than the op", run.stderr)
        self.assert_close(wanted, self.outputs(self.folder / "half.refreshed.onnx", npz), HALF)
        self.assert_close(wanted, self.outputs(self.folder / "half.refreshed.onnx", npz, LIBRARY), HALF)

    def test_revert_makes_the_bodies_it_needs(self):
        npz, wanted = self.converted("llama/dynamo_op20.onnx")
        self.patch("half.onnx", "--revert")
        plain = self.folder / "half.reverted.onnx"
        self.assertEqual(liger_nodes(plain), [])
        self.assert_close(wanted, self.outputs(plain, npz), HALF)
        report = self.patch_report("half.reverted.onnx", "-o", "again.onnx")
        self.assertEqual(report["modules"]["rms_norm"]["patched"], 5)
        self.assertEqual(report["modules"]["rope"]["patched"], 4)
        self.assertEqual(report["modules"]["swiglu"]["patched"], 2)
        self.assert_close(wanted, self.outputs(self.folder / "again.onnx", npz, LIBRARY), HALF)

    def test_an_inline_dtype_that_no_text_has(self):
        self.patch(MODELS / "llama/fp16_dynamo_op20.onnx", "-o", "patched.onnx")
        model = onnx.load(self.folder / "patched.onnx")
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "scale_type":
                    attribute.i = onnx.TensorProto.BFLOAT16
        onnx.save(model, self.folder / "odd.onnx")
        report = self.assert_fails(3, r"^node '.*' \(liger.Liger(Add)?RMSNorm\) fits no form of the op: x: f16, .*"
                                      "scale_type = bf16", "odd.onnx", "--refresh",
                                   hint="the nearest form is .*scale_type f16 instead of bf16.*--revert.*patch")
        self.assertEqual(sum(d["severity"] == "error" for d in report["diagnostics"]), 5)


class OtherToolsTest(RevertTest):
    def test_onnx_converter_to_another_operator_set(self):
        for name, target in (("llama/dynamo_op20.onnx", 23), ("llama/mask_ts_op17_dyn.onnx", 21),
                             ("qwen3/past_dynamo_op18_dyn.onnx", 24)):
            with self.subTest(name):
                self.patch(MODELS / name, "-o", "patched.onnx")
                model = onnx.version_converter.convert_version(onnx.load(self.folder / "patched.onnx"), target)
                self.assertEqual(list(model.functions), [])
                onnx.save(model, self.folder / "later.onnx")
                with self.assertRaisesRegex(Exception, "is not a registered function"):
                    compare.open_session(self.folder / "later.onnx")
                run = self.patch("later.onnx", "--refresh")
                self.assertIn("its function is gone", run.stderr)
                fresh = load(self.folder / "later.refreshed.onnx")
                self.assertEqual({i.version for f in fresh.functions for i in f.opset_import}, {target})
                npz = (MODELS / name).with_suffix(".npz")
                wanted = self.outputs(MODELS / name, npz)
                self.assert_close(wanted, self.outputs(self.folder / "later.refreshed.onnx", npz), 2e-6)
                self.assert_close(wanted, self.outputs(self.folder / "later.refreshed.onnx", npz, LIBRARY), 2e-6)

    def test_functions_and_stamps_dropped(self):
        self.patch(MODELS / "llama/dynamo_op20.onnx", "-o", "patched.onnx")
        patched = load(self.folder / "patched.onnx")
        stripped = onnx.ModelProto()
        stripped.CopyFrom(patched)
        del stripped.functions[:]
        del stripped.metadata_props[:]
        onnx.save(stripped, self.folder / "stripped.onnx")
        self.patch("stripped.onnx", "--refresh", "-o", "fresh.onnx")
        fresh = load(self.folder / "fresh.onnx")
        key = (lambda f: (f.name, f.overload))
        self.assertEqual(sorted(fresh.functions, key=key), sorted(patched.functions, key=key))
        self.assertEqual(fresh.graph, patched.graph)
        stamps = {p.key: p.value for p in fresh.metadata_props}
        self.assertEqual(stamps, {p.key: p.value for p in patched.metadata_props if p.key.startswith("liger.")})

    def test_lint_finds_nothing_after_it(self):
        self.patch(MODELS / "llama/dynamo_op20.onnx", "-o", "patched.onnx")
        model = load(self.folder / "patched.onnx")
        del model.functions[:]
        onnx.save(model, self.folder / "stripped.onnx")
        self.assertEqual(self.run_patch("stripped.onnx", "--lint").returncode, 1)
        self.patch("stripped.onnx", "--refresh")
        self.patch("stripped.refreshed.onnx", "--lint")


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(3)
    unittest.main()
