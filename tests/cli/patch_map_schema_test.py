"""docs/patch-map.schema.json against the program: what the one takes and refuses the other does too.

    LIGER_PATCH=build/release/bin/liger-patch patch_map_schema_test.py
"""
import json
import re
import unittest

import yaml

from cli_testing import ROOT, CliTest
from json_schema import problems

SCHEMA = json.loads((ROOT / "docs" / "patch-map.schema.json").read_text())
TEXT = "SoftCap <cap> (x) => (y) { c = Constant <value_float: float = @cap> () y = Mul (x, c) }"
CLASS = {"class": "pkg.Norm", "op": "LigerRMSNorm", "optional": True}
MATCH = {"match": TEXT, "op": "my.ops.SoftCap", "optional": True}


def whole(entry):
    return {"schema_version": 1, "family": "mine", "modules": {"norm": [entry]}}


def without(entry, *keys):
    return {key: value for key, value in entry.items() if key not in keys}


GOOD = {
    "class": whole(CLASS),
    "bare class": whole({**CLASS, "class": "Norm"}),
    "class in a function": whole({**CLASS, "class": "__main__.make.<locals>.Norm"}),
    "function": whole({**without(CLASS, "class"), "function": "my_layers::Norm*"}),
    "scope": whole({**without(CLASS, "class"), "scope": "**.layers.[0-3].*_norm"}),
    "alias": whole({**CLASS, "op": "LigerRMSNormForGemma"}),
    "function alias": whole({**CLASS, "op": "liger_rotary_pos_emb"}),
    "domain": whole({**CLASS, "op": "liger.LigerRMSNorm"}),
    "number": whole({**CLASS, "expect": 0}),
    "bound": whole({**CLASS, "expect": ">=0"}),
    "exact": whole({**CLASS, "expect": "=0"}),
    "match": whole(MATCH),
    "range": whole({**MATCH, "opset": "13-17"}),
    "open range": whole({**MATCH, "opset": "13-"}),
    "one opset": whole({**MATCH, "opset": 20}),
    "types": whole({**MATCH, "types": {"x": "f32"}}),
    "domain with a dash": whole({**MATCH, "op": "my-ops.v2.SoftCap"}),
    "domain that begins like ours": whole({**MATCH, "op": "liger.mine.SoftCap"}),
    "extends": {**whole(CLASS), "extends": "llama"},
    "two modules": {**whole(CLASS), "modules": {"norm.1": [CLASS], "soft-cap_2": [MATCH]}},
}

BAD = {
    "no version": without(whole(CLASS), "schema_version"),
    "other version": {**whole(CLASS), "schema_version": 2},
    "no family": without(whole(CLASS), "family"),
    "family in capitals": {**whole(CLASS), "family": "Mine"},
    "family any": {**whole(CLASS), "family": "any"},
    "family is a number": {**whole(CLASS), "family": ["mine"]},
    "extends any": {**whole(CLASS), "extends": "any"},
    "extends two": {**whole(CLASS), "extends": ["llama", "qwen2"]},
    "unknown key": {**whole(CLASS), "defaults": {"rope": True}},
    "no modules": without(whole(CLASS), "modules"),
    "modules empty": {**whole(CLASS), "modules": {}},
    "modules is a list": {**whole(CLASS), "modules": [CLASS]},
    "module is an entry": {**whole(CLASS), "modules": {"norm": CLASS}},
    "module is empty": {**whole(CLASS), "modules": {"norm": []}},
    "module named auto": {**whole(CLASS), "modules": {"auto": [CLASS]}},
    "module with a space": {**whole(CLASS), "modules": {"my norm": [CLASS]}},
    "entry is a word": whole("LigerRMSNorm"),
    "unknown key of an entry": whole({**CLASS, "epsilon": 1e-6}),
    "no symbol": whole(without(CLASS, "class")),
    "two symbols": whole({**CLASS, "scope": "a.b"}),
    "no op": whole(without(CLASS, "op")),
    "class is a list": whole({**CLASS, "class": ["A", "B"]}),
    "class is a glob": whole({**CLASS, "class": "pkg.*"}),
    "class ends with a point": whole({**CLASS, "class": "pkg."}),
    "function with two domains": whole({**without(CLASS, "class"), "function": "a::b::c"}),
    "function without a name": whole({**without(CLASS, "class"), "function": "a::"}),
    "scope with slashes": whole({**without(CLASS, "class"), "scope": "/model/norm"}),
    "scope with an empty segment": whole({**without(CLASS, "class"), "scope": "model..norm"}),
    "unknown op": whole({**CLASS, "op": "LigerRMSNrom"}),
    "unknown op with domain": whole({**CLASS, "op": "liger.LigerRMSNrom"}),
    "loss": whole({**CLASS, "op": "LigerCrossEntropyLoss"}),
    "loss over modules": whole({**CLASS, "op": "FusedLinearCrossEntropy"}),
    "own op of a class": whole({**CLASS, "op": "my.ops.SoftCap"}),
    "own op without domain": whole({**MATCH, "op": "SoftCap"}),
    "own op of our domain": whole({**MATCH, "op": "liger.SoftCap"}),
    "own op of ONNX": whole({**MATCH, "op": "ai.onnx.ml.SoftCap"}),
    "own op of ONNX Runtime": whole({**MATCH, "op": "com.microsoft.SoftCap"}),
    "own op with colons": whole({**MATCH, "op": "my::SoftCap"}),
    "text is empty": whole({**MATCH, "match": ""}),
    "text is a word": whole({**MATCH, "match": "SoftCap"}),
    "opset of a class": whole({**CLASS, "opset": "13-"}),
    "types of a class": whole({**CLASS, "types": {"x": "f32"}}),
    "opset is a word": whole({**MATCH, "opset": "new"}),
    "opset is zero": whole({**MATCH, "opset": 0}),
    "opset without the first": whole({**MATCH, "opset": "-17"}),
    "types empty": whole({**MATCH, "types": {}}),
    "type of numpy": whole({**MATCH, "types": {"x": "float32"}}),
    "expect is a word": whole({**CLASS, "expect": "many"}),
    "expect is negative": whole({**CLASS, "expect": -1}),
    "expect is less": whole({**CLASS, "expect": "<=3"}),
    "expect is a fraction": whole({**CLASS, "expect": 1.5}),
    "optional is a word": whole({**CLASS, "optional": "yes"}),
}


class PatchMapSchemaTest(CliTest):
    def run_map(self, value):
        """JSON is YAML."""
        (self.folder / "mine.yaml").write_text(json.dumps(value, indent=1))
        return self.run_patch("model.onnx", "--check", "--patches", "mine.yaml")

    def test_good_maps(self):
        self.model()
        for name, value in GOOD.items():
            with self.subTest(name):
                self.assertEqual(list(problems(value, SCHEMA)), [])
                run = self.run_map(value)
                self.assertEqual(run.returncode, 0, run.stderr)

    def test_bad_maps(self):
        self.model()
        for name, value in BAD.items():
            with self.subTest(name):
                self.assertNotEqual(list(problems(value, SCHEMA)), [])
                run = self.run_map(value)
                self.assertEqual(run.returncode, 2)
                self.assertRegex(run.stderr, r"(?m)^  at: mine.yaml:\d+:\d+$")

    def test_ops_are_those_of_the_program(self):
        names = []
        for path in (ROOT / "patches" / "ops").glob("*.yaml"):
            op = yaml.safe_load(path.read_text())
            names += [op["op"]] + [name["name"] for name in op.get("names", [])]
        plain, prefixed = SCHEMA["$defs"]["op"]["anyOf"]
        self.assertEqual(sorted(plain["enum"]), sorted(names))
        self.assertEqual(sorted(prefixed["pattern"].removeprefix(r"^liger\.(").removesuffix(")$").split("|")),
                         sorted(names))

    def test_maps_that_are_shown_are_good(self):
        maps = [path.read_text() for path in (ROOT / "patches" / "examples").glob("*.yaml")]
        for page in ("README.md", "docs/patch-maps.md"):
            shown = [block for block in re.findall(r"(?s)```yaml\n(.*?)```", (ROOT / page).read_text())
                     if "schema_version" in block]
            self.assertNotEqual(shown, [])
            maps += shown
        for text in maps:
            self.assertEqual(list(problems(yaml.safe_load(text), SCHEMA)), [], text)


if __name__ == "__main__":
    unittest.main()
