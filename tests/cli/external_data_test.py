"""Weights in other files: what is referred to, linked, copied and read, and what never is."""
import os
import re
import sys
import unittest

import onnx

from cli_testing import EXPECTED, MODELS, CliTest, STRACE, TRACED, fd_calls, liger_nodes, needs_strace

NAME = "dynamo_op20_external.onnx"
DATA = NAME + ".data"
ARRAYS = MODELS / "llama/dynamo_op20_external.npz"
# A launcher, since a process begins with the peak of the one that started it: this one's own is small.
LAUNCHER = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)"""


class ExternalTest(CliTest):
    def trace(self, *arguments):
        """A successful run under strace; the text of the trace."""
        run = self.run_command([STRACE, "-f", "-y", "-s", "0", "-o", "trace", *self.command(*arguments)], env=TRACED)
        self.assertEqual(run.returncode, 0, run.stderr)
        text = (self.folder / "trace").read_text()
        (self.folder / "trace").unlink()
        return text

    def locations(self, path):
        return {e.value for t in onnx.load(path, load_external_data=False).graph.initializer
                for e in t.external_data if e.key == "location"}


class SameFolderTest(ExternalTest):
    def test_the_output_refers_to_the_same_data_and_runs(self):
        model = self.external_model()
        before = os.stat(self.folder / DATA)
        self.patch(NAME)
        after = os.stat(self.folder / DATA)
        self.assertEqual((before.st_ino, before.st_mtime_ns, before.st_nlink), (after.st_ino, after.st_mtime_ns, 1))
        self.assertEqual(sorted(self.files()), ["dynamo_op20_external.liger.onnx", NAME, DATA])
        self.assertEqual(self.locations(self.folder / "dynamo_op20_external.liger.onnx"), {DATA})
        self.assert_same_results(model, self.folder / "dynamo_op20_external.liger.onnx", ARRAYS)

    @needs_strace
    def test_no_data_file_is_opened(self):
        self.external_model()
        for options in ([], ["--external-data", "copy"], ["--external-data", "hardlink"], ["--dry-run"]):
            with self.subTest(options):
                opened = [line for line in self.trace(NAME, *options).splitlines()
                          if re.search(r"\bopen(at)?\(|\bmmap\(|\bp?read(64)?\(", line) and ".data" in line]
                self.assertEqual(opened, [])

    def test_output_in_place_keeps_its_data(self):
        self.external_model()
        before = (self.folder / DATA).read_bytes()
        self.patch(NAME, "-o", NAME)
        self.assertEqual(sorted(self.files()), [NAME, DATA])
        self.assertEqual((self.folder / DATA).read_bytes(), before)
        self.external_model("original")
        self.assert_same_results(self.folder / "original" / NAME, self.folder / NAME, ARRAYS)

    def test_the_data_file_as_output_is_refused(self):
        self.external_model()
        self.assert_fails(5, "has the name of the model's data file", NAME, "-o", DATA)

    def test_a_second_run_says_patched_already_and_touches_nothing(self):
        self.external_model()
        self.patch(NAME, "-o", "out.onnx")
        before = self.files()
        run = self.patch("out.onnx")
        self.assertIn("patched already", run.stderr)
        self.assertEqual(self.files(), before)


class OtherFolderTest(ExternalTest):
    def setUp(self):
        super().setUp()
        self.original = self.external_model("in")
        self.input = f"in/{NAME}"
        (self.folder / "out").mkdir()

    def test_without_a_choice_it_is_exit_5_with_the_remedy(self):
        self.assert_fails(5, f"would not find its data: '{DATA}'", self.input, "-o", "out/m.onnx",
                          hint="--external-data copy .*--external-data hardlink .*-o in/m.onnx")
        self.assert_fails(5, "would not find its data", self.input, "-o", "out/m.onnx", "--dry-run")

    def test_the_remedy_beside_the_data_works(self):
        self.patch(self.input, "-o", "in/m.onnx")

    def test_copy_makes_a_file_of_its_own_that_runs(self):
        report = self.patch_report(self.input, "-o", "out/m.onnx", "--external-data", "copy")
        self.assertEqual(report["output"]["path"], "out/m.onnx")
        source, copy = os.stat(self.folder / "in" / DATA), os.stat(self.folder / "out" / DATA)
        self.assertNotEqual(source.st_ino, copy.st_ino)
        self.assertEqual((self.folder / "out" / DATA).read_bytes(), (self.folder / "in" / DATA).read_bytes())
        self.assert_same_results(self.original, self.folder / "out/m.onnx", ARRAYS)

    def test_hardlink_gives_the_data_a_second_name_with_a_warning_and_runs(self):
        run = self.patch(self.input, "-o", "out/m.onnx", "--external-data", "hardlink")
        self.assertTrue(os.path.samefile(self.folder / "in" / DATA, self.folder / "out" / DATA))
        self.assertIn("warning: data files are hard links", run.stderr)
        self.assert_same_results(self.original, self.folder / "out/m.onnx", ARRAYS)

    @needs_strace
    def test_hardlink_opens_no_data_file(self):
        trace = self.trace(self.input, "-o", "out/m.onnx", "--external-data", "hardlink")
        self.assertIn("link", trace)
        self.assertEqual([line for line in trace.splitlines() if "open" in line and ".data" in line], [])

    @needs_strace
    def test_copy_moves_the_payload_in_the_kernel_or_through_a_small_buffer(self):
        path = self.folder / "in" / DATA
        with open(path, "r+b") as data:  # 64 MiB that are really there, and a hole up to 300 MiB
            data.seek(0, os.SEEK_END)
            for _ in range(64):
                data.write(b"\1" * (1 << 20))
            data.truncate(300 << 20)
        calls = list(fd_calls(self.trace(self.input, "-o", "out/m.onnx", "--external-data", "copy")))
        real = str(path)
        moved = [c for c, file, arguments, result in calls
                 if c == "copy_file_range" and file == real and result > 0 or
                 c == "ioctl" and "FICLONE" in arguments and result == 0]
        reads = [arguments for c, file, arguments, _ in calls if c in ("read", "pread64") and file == real]
        self.assertTrue(moved or reads)
        for arguments in reads:
            self.assertLessEqual(int(re.search(r", (\d+)(, \d+)?$", arguments)[1]), 1 << 20)
        self.assertEqual(os.path.getsize(self.folder / "out" / DATA), 300 << 20)
        copied = os.stat(self.folder / "out" / DATA)
        self.assertLess(copied.st_blocks * 512, 100 << 20, "the hole was filled")

    def peak_kilobytes(self, *arguments):
        run = self.run_command([sys.executable, "-S", "-c", LAUNCHER, *self.command(*arguments)])
        self.assertEqual(run.returncode, 0, run.stderr)
        return int(run.stdout)

    def test_peak_memory_does_not_grow_with_the_data(self):
        for mode in ("copy", "hardlink"):
            (self.folder / mode / "small").mkdir(parents=True)
            (self.folder / mode / "large").mkdir()
        small = {m: self.peak_kilobytes(self.input, "-o", f"{m}/small/m.onnx", "--external-data", m)
                 for m in ("copy", "hardlink")}
        with open(self.folder / "in" / DATA, "r+b") as data:
            data.truncate(300 << 20)
        for mode in ("copy", "hardlink"):
            large = self.peak_kilobytes(self.input, "-o", f"{mode}/large/m.onnx", "--external-data", mode)
            self.assertLess(large - small[mode], 16 << 10, mode)

    def test_data_that_is_there_already_is_used_if_it_is_the_same(self):
        (self.folder / "out" / DATA).write_bytes((self.folder / "in" / DATA).read_bytes())
        before = os.stat(self.folder / "out" / DATA)
        for mode in ("auto", "copy", "hardlink"):
            with self.subTest(mode):
                self.patch(self.input, "-o", "out/m.onnx", "--external-data", mode)
                self.assertEqual(os.stat(self.folder / "out" / DATA).st_ino, before.st_ino)

    def test_another_file_in_the_place_of_the_data_is_never_replaced(self):
        data = (self.folder / "in" / DATA).read_bytes()
        for name, contents in {"other size": b"mine", "same size": bytes(len(data))}.items():
            (self.folder / "out" / DATA).write_bytes(contents)
            for mode in ("auto", "copy", "hardlink"):
                with self.subTest(name=name, mode=mode):
                    self.assert_fails(5, "the model needs its data as", self.input, "-o", "out/m.onnx",
                                      "--external-data", mode, hint="existing files are not replaced")

    def test_when_the_model_cannot_be_written_no_data_is_left_behind(self):
        (self.folder / "out/m.onnx").mkdir()
        for mode in ("copy", "hardlink"):
            with self.subTest(mode):
                self.assert_fails(5, "it is a folder", self.input, "-o", "out/m.onnx", "--external-data", mode)
                self.assertEqual(os.stat(self.folder / "in" / DATA).st_nlink, 1)


class HuggingFaceCacheTest(ExternalTest):
    """models--x/snapshots/REV/{model,data,config} are links to models--x/blobs/HASH."""

    def setUp(self):
        super().setUp()
        cache = self.folder / "models--x"
        self.snapshot = cache / "snapshots/rev"
        (cache / "blobs").mkdir(parents=True)
        (self.snapshot / "onnx").mkdir(parents=True)
        for blob, source, link in (("aaa", f"llama/{NAME}", f"onnx/{NAME}"), ("bbb", f"llama/{DATA}", f"onnx/{DATA}"),
                                   ("ccc", "llama/config.json", "config.json")):
            (cache / "blobs" / blob).write_bytes((MODELS / source).read_bytes())
            up = "../../../blobs/" if "/" in link else "../../blobs/"
            (self.snapshot / link).symlink_to(up + blob)
        self.blob = cache / "blobs/bbb"
        self.input = f"models--x/snapshots/rev/onnx/{NAME}"
        (self.folder / "out").mkdir()

    def test_beside_the_links_it_is_exit_5_with_the_remedy(self):
        self.assert_fails(5, "is a link to .*, which ONNX Runtime refuses", self.input,
                          hint="-o FOLDER/.* --external-data copy, or hardlink")
        for mode in ("copy", "hardlink"):
            with self.subTest(mode):
                self.assert_fails(5, "is a link to", self.input, "--external-data", mode, hint="-o FOLDER/")

    def test_another_folder_without_a_choice_is_exit_5_and_the_remedy_is_one_that_works(self):
        report = self.assert_fails(5, "would not find its data", self.input, "-o", "out/m.onnx",
                                   hint="--external-data copy .*--external-data hardlink")
        self.assertNotIn("snapshots", report["diagnostics"][-1]["hint"], "beside the links ONNX Runtime refuses it")

    def test_config_json_of_the_snapshot_decides_the_family(self):
        report = self.patch_report(self.input, "-o", "out/m.onnx", "--external-data", "copy")
        self.assertEqual(report["family"]["decided_by"], "config.json")

    def test_copy_and_hardlink_to_another_folder_work_and_run(self):
        for mode in ("copy", "hardlink"):
            with self.subTest(mode):
                folder = self.folder / mode
                folder.mkdir()
                blobs = {p.name: p.read_bytes() for p in self.blob.parent.iterdir()}
                self.patch(self.input, "-o", f"{mode}/m.onnx", "--external-data", mode)
                self.assertEqual(sorted(p.name for p in folder.iterdir()), [DATA, "m.onnx"])
                self.assertFalse((folder / DATA).is_symlink())
                self.assertEqual(os.path.samefile(folder / DATA, self.blob), mode == "hardlink")
                self.assertEqual({p.name: p.read_bytes() for p in self.blob.parent.iterdir()}, blobs)
                self.assertTrue((self.snapshot / "onnx" / NAME).is_symlink())
                plain = self.external_model(f"plain-{mode}")
                self.assert_same_results(plain, folder / "m.onnx", ARRAYS)


class SmallValuesInTheDataFileTest(ExternalTest):
    """Every initializer stands in the data file, also the scalars and tables that a match has to look at."""

    def convert(self, name):
        model = onnx.load(MODELS / name)
        onnx.save(model, self.folder / "model.onnx", save_as_external_data=True, location="model.data",
                  size_threshold=0, convert_attribute=False)
        model = onnx.load(self.folder / "model.onnx", load_external_data=False)
        ranges = {}
        for tensor in model.graph.initializer:
            entry = {e.key: e.value for e in tensor.external_data}
            ranges[tensor.name] = (int(entry["offset"]), int(entry["length"]))
        self.assertGreater(len(ranges), 20)
        return model, ranges

    @needs_strace
    def test_only_the_ranges_in_weights_read_are_read_and_no_norm_or_linear_weight(self):
        for name in ("llama/dynamo_op20.onnx", "qwen3/fp16_dynamo_op23.onnx", "qwen2/dynamo_op18.onnx"):
            with self.subTest(name):
                model, ranges = self.convert(name)
                trace = self.trace("model.onnx", "--report", "report.json")
                report = self.read_report()
                self.assertEqual({m: report["modules"][m]["patched"] for m in EXPECTED[name]["counts"]},
                                 EXPECTED[name]["counts"])
                listed = {(r["tensor"], r["bytes"]) for r in report["weights_read"]}
                self.assertEqual({r["file"] for r in report["weights_read"]}, {"model.data"})
                self.assertTrue(all(ranges[tensor][1] == size for tensor, size in listed))

                data = str(self.folder / "model.data")
                calls = [(c, a) for c, file, a, _ in fd_calls(trace) if file == data and c != "close"]
                self.assertEqual({c for c, _ in calls}, {"pread64"})
                self.assertFalse(any("mmap" in line and data in line for line in trace.splitlines()))
                read = [tuple(map(int, re.search(r", (\d+), (\d+)$", a).groups())) for _, a in calls]
                self.assertEqual(sorted((offset, size) for size, offset in read),
                                 sorted(ranges[r["tensor"]] for r in report["weights_read"]))

                patched = onnx.load(self.folder / "model.liger.onnx", load_external_data=False).graph
                weights = {i for n in patched.node if n.op_type in ("MatMul", "Gemm", "Gather", "LigerRMSNorm",
                                                                    "LigerAddRMSNorm") for i in n.input}
                sizes = {t.name: list(t.dims) for t in model.graph.initializer}
                weights = {w for w in weights & set(ranges) if len(sizes[w]) > 1 or sizes[w] and "norm" in w}
                self.assertGreaterEqual(len(weights), 20)
                self.assertEqual(weights & {tensor for tensor, _ in listed}, set())
                tables = {i for n in patched.node if n.op_type == "LigerRope" for i in n.input[1:3]}
                for tensor, size in listed:
                    self.assertTrue(size <= 64 or tensor in tables, f"{size} bytes of {tensor} were read")

    def test_the_text_says_what_was_read(self):
        self.convert("llama/dynamo_op20.onnx")
        run = self.patch("model.onnx", "--report", "report.json")
        for read in self.read_report()["weights_read"]:
            self.assertIn(f"{read['bytes']} bytes of '{read['tensor']}' from model.data\n", run.stdout)

    def test_the_same_nodes_are_made_as_from_inline_values(self):
        self.convert("llama/dynamo_op20.onnx")
        self.model(to="inline.onnx")
        self.patch("model.onnx")
        self.patch("inline.onnx")
        self.assertEqual(liger_nodes(self.folder / "model.liger.onnx"), liger_nodes(self.folder / "inline.liger.onnx"))
        # ONNX Runtime wants shapes inline, so it gets the weights of the result inside.
        onnx.save(onnx.load(self.folder / "model.liger.onnx"), self.folder / "whole.onnx")
        self.assert_same_results(self.folder / "inline.onnx", self.folder / "whole.onnx",
                                 MODELS / "llama/dynamo_op20.npz")

    def test_inline_weights_are_not_listed_as_read(self):
        self.model()
        self.assertEqual(self.patch_report("model.onnx")["weights_read"], [])


if __name__ == "__main__":
    unittest.main()
