"""The formats of reports before their readers: a JSON Schema, an XML parser, the rules of SARIF and of workflow commands.

Environment: LIGER_REPORT_SAMPLES, the program that writes the samples of samples.cc.
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from json_schema import problems  # noqa: E402

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
NAMES = ("good", "misses", "unasked", "error", "hostile", "several")
MODELS = {"several": 5}

# What SARIF 2.1.0 requires of the objects that are written, and what GitHub's code scanning wants beyond it.
TEXT = {"type": "object", "additionalProperties": False, "required": ["text"],
        "properties": {"text": {"type": "string", "minLength": 1}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {
    "type": "object", "additionalProperties": False, "required": ["$schema", "version", "runs"],
    "properties": {
        "$schema": {"const": "https://json.schemastore.org/sarif-2.1.0.json"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "items": {
            "type": "object", "additionalProperties": False, "required": ["tool", "results"],
            "properties": {
                "tool": {"type": "object", "additionalProperties": False, "required": ["driver"], "properties": {
                    "driver": {"type": "object", "additionalProperties": False, "required": ["name", "rules"],
                               "properties": {
                        "name": {"const": "liger-patch"},
                        "version": {"type": "string", "minLength": 1},
                        "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                        "rules": {"type": "array", "items": {
                            "type": "object", "additionalProperties": False,
                            "required": ["id", "name", "shortDescription", "fullDescription", "help",
                                         "defaultConfiguration"],
                            "properties": {
                                "id": {"type": "string", "minLength": 1},
                                "name": {"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
                                "shortDescription": TEXT, "fullDescription": TEXT, "help": TEXT,
                                "defaultConfiguration": {
                                    "type": "object", "additionalProperties": False, "required": ["level"],
                                    "properties": {"level": LEVEL}}}}}}}}},
                "automationDetails": {"type": "object", "additionalProperties": False, "required": ["id"],
                                      "properties": {"id": {"type": "string", "minLength": 1}}},
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "invocations": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "required": ["executionSuccessful"],
                    "properties": {"executionSuccessful": {"type": "boolean"}, "exitCode": {"type": "integer"}}}},
                "artifacts": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "required": ["location"],
                    "properties": {
                        "location": {"type": "object", "additionalProperties": False, "required": ["uri"],
                                     "properties": {"uri": {"type": "string", "pattern": "^[!-~]+$"}}},
                        "hashes": {"type": "object", "additionalProperties": False, "required": ["sha-256"],
                                   "properties": {"sha-256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}}}}},
                "results": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False,
                    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
                    "properties": {
                        "ruleId": {"type": "string", "minLength": 1},
                        "ruleIndex": {"type": "integer", "minimum": 0},
                        "level": LEVEL,
                        "message": TEXT,
                        "partialFingerprints": {"type": "object", "additionalProperties": {
                            "type": "string", "pattern": "^[0-9a-f]{16}$"}},
                        "locations": {"type": "array", "minItems": 1, "items": {
                            "type": "object", "additionalProperties": False, "required": ["physicalLocation"],
                            "properties": {
                                "physicalLocation": {
                                    "type": "object", "additionalProperties": False,
                                    "required": ["artifactLocation", "region"],
                                    "properties": {
                                        "artifactLocation": {
                                            "type": "object", "additionalProperties": False,
                                            "required": ["uri", "index"],
                                            "properties": {"uri": {"type": "string", "pattern": "^[!-~]+$"},
                                                           "index": {"type": "integer", "minimum": 0}}},
                                        "region": {
                                            "type": "object", "additionalProperties": False,
                                            "required": ["startLine"],
                                            "properties": {"startLine": {"type": "integer", "minimum": 1},
                                                           "startColumn": {"type": "integer", "minimum": 1}}}}},
                                "logicalLocations": {"type": "array", "minItems": 1, "items": {
                                    "type": "object", "additionalProperties": False, "required": ["name"],
                                    "properties": {"name": {"type": "string", "minLength": 1},
                                                   "fullyQualifiedName": {"type": "string", "minLength": 1},
                                                   "kind": {"enum": ["module", "node"]}}}}}}}}}},
            }}}}}
RULES = ["missed", "degraded", "expectation", "loss-excluded", "runtime-gap", "diagnostic"]


class ReadersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        subprocess.run([os.environ["LIGER_REPORT_SAMPLES"], scratch.name], check=True)

    def text(self, name, suffix):
        """The sample as strict UTF-8."""
        return (self.folder / f"{name}.{suffix}").read_bytes().decode("utf-8")

    def each(self, suffix):
        for name in NAMES:
            with self.subTest(name):
                yield name, self.text(name, suffix)

    def report(self, name):
        document = json.loads(self.text(name, "json"))
        return document["reports"] if "reports" in document else [document]


class JsonTest(ReadersTest):
    def test_every_sample_fits_the_schema(self):
        for name, text in self.each("json"):
            document = json.loads(text, parse_constant=lambda c: self.fail(c))
            self.assertEqual(list(problems(document, SCHEMA)), [])
            self.assertEqual("reports" in document, name in MODELS)

    def test_the_document_of_several_models_sums_them_up(self):
        document = json.loads(self.text("several", "json"))
        summary = document["summary"]
        self.assertEqual(summary["models"], 5)
        self.assertEqual(summary["exit_code"], max(r["exit_code"] for r in document["reports"]))
        self.assertEqual(summary["by_status"], {"ok": 1, "expectation_failed": 2, "checked": 1, "error": 1})
        self.assertEqual([m["path"] for m in summary["per_model"]], [r["input"]["path"] for r in document["reports"]])
        self.assertEqual(summary["per_model"][0]["modules"], "rms_norm 5 of 5, rope 4 of 4")
        self.assertEqual(summary["per_model"][0]["output"], "out/model.liger.onnx")
        self.assertIsNone(summary["per_model"][1]["output"])

    def test_each_report_in_it_is_the_report_of_its_model(self):
        together = self.report("several")
        for i, name in enumerate(("good", "misses", "unasked", "error", "hostile")):
            self.assertEqual(self.report(name), [together[i]])

    def test_all_that_a_report_knows_is_in_it(self):
        report = self.report("misses")[0]
        self.assertEqual((report["status"], report["exit_code"]), ("expectation_failed", 1))
        self.assertEqual(report["stage"]["name"], "dpo")
        self.assertEqual(report["stage"]["changes"][0]["module"], "fused_linear_cross_entropy")
        self.assertEqual(report["scopes"], [{"option": "--scope", "glob": "model.**", "paths": 120}])
        self.assertEqual(report["symbols"][0], {
            "module": "rms_norm", "kind": "class", "symbol": "my_pkg.MyRMSNorm", "op": "liger.LigerRMSNorm",
            "place": "mine.yaml:4:7", "instances": 65, "patched": 62, "already_fused": 0, "notes": []})
        self.assertEqual(report["expectations"][0], {
            "module": "rms_norm", "wanted": "65", "source": "mine.yaml:5:15", "found": 62, "met": False})
        miss = report["missed"][0]
        self.assertEqual(miss["closest"], "LigerRMSNorm as pow/llama (ops/rms_norm.yaml)")
        self.assertEqual(len(miss["chain"]), 2)
        self.assertEqual(miss["values"][1], "x: f32[batch,seq,64]")
        self.assertEqual(report["excluded"]["loss_ops"][0]["inputs"], ["logits", "labels"])
        self.assertEqual(self.report("good")[0]["patched"][0]["attributes"]["limit"], "inf")

    def test_the_schema_refuses_what_is_neither_shape(self):
        document = json.loads(self.text("several", "json"))
        for change in (lambda d: d.pop("summary"), lambda d: d.update(status="ok"),
                       lambda d: d["summary"].pop("line"), lambda d: d["summary"]["by_status"].update(fine=1),
                       lambda d: d["reports"][0].pop("stage"), lambda d: d["summary"].update(exit_code=6)):
            changed = json.loads(json.dumps(document))
            change(changed)
            self.assertNotEqual(list(problems(changed, SCHEMA)), [])


class JUnitTest(ReadersTest):
    def suites(self, name):
        root = ElementTree.fromstring(self.text(name, "junit").encode())
        self.assertEqual(root.tag, "testsuites")
        return root, root.findall("testsuite")

    def test_counts_are_those_of_the_cases(self):
        for name in NAMES:
            with self.subTest(name):
                root, suites = self.suites(name)
                self.assertEqual(len(suites), MODELS.get(name, 1))
                for element in [root, *suites]:
                    cases = list(element.iter("testcase"))
                    self.assertTrue(cases)
                    self.assertEqual(int(element.get("tests")), len(cases))
                    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                        self.assertEqual(int(element.get(attribute)), sum(c.find(tag) is not None for c in cases))

    def cases(self, name):
        outcomes = {}
        for case in self.suites(name)[1][0].findall("testcase"):
            outcomes[case.get("name")] = next((e.tag for e in case if e.tag in ("failure", "error", "skipped")), "")
        return outcomes

    def test_what_was_asked_for_fails_and_what_was_not_is_skipped(self):
        self.assertEqual(self.cases("good"), {"rms_norm": "", "rope": "", "expectation: rms_norm 5 (--expect)": ""})
        self.assertEqual(self.cases("misses"), {
            "rms_norm": "failure", "rope": "", "soft_cap": "",
            "expectation: rms_norm 65 (mine.yaml:5:15)": "failure", "expectation: rope >=4 (--expect)": ""})
        self.assertEqual(self.cases("unasked"), {"rms_norm": "skipped", "rope": "", "soft_cap": ""})
        self.assertEqual(self.cases("error"), {"run": "error"})

    def test_the_error_of_a_failed_run_is_told_whole(self):
        error = self.suites("error")[1][0].find("testcase/error")
        self.assertEqual(error.get("type"), "exit code 2")
        self.assertEqual(error.get("message"), "unknown key 'clas'")
        self.assertEqual(error.text.splitlines(), [
            "unknown key 'clas'", "at: maps/mine.yaml:3:5", "hint: did you mean class?",
            "unknown op 'LigerRMSNrm'", "at: maps/mine.yaml:7:11"])

    def test_a_hostile_name_is_a_name(self):
        suite = self.suites("hostile")[1][0]
        for part in ("a|b\\|`c`", "<b>&amp; ]]>", "line1\\nline2\\r\\n::error::owned", "\\x1b[31mred\\x00\\x01"):
            self.assertIn(part, suite.get("name"))
        case = suite.find("testcase")
        self.assertIn("<b>&amp; ]]>", case.get("name"))
        self.assertIn("]]>", case.find("failure").text)


class SarifTest(ReadersTest):
    def run_of(self, name):
        document = json.loads(self.text(name, "sarif"))
        self.assertEqual(list(problems(document, SARIF)), [])
        self.assertEqual(len(document["runs"]), 1)
        return document["runs"][0]

    def test_every_sample_has_what_sarif_requires(self):
        for name in NAMES:
            with self.subTest(name):
                run = self.run_of(name)
                self.assertEqual([r["id"] for r in run["tool"]["driver"]["rules"]], RULES)
                self.assertEqual(run["invocations"][0]["exitCode"], max(r["exit_code"] for r in self.report(name)))
                for result in run["results"]:
                    self.assertEqual(RULES[result["ruleIndex"]], result["ruleId"])
                    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
                    self.assertEqual(run["artifacts"][location["index"]]["location"]["uri"], location["uri"])
                    self.assertNotRegex(result["message"]["text"], r"\]\(|[\x00-\x1f]")
                prints = [r["partialFingerprints"]["ligerPatch/v1"] for r in run["results"]]
                self.assertEqual(len(prints), len(set(prints)))

    def results(self, name):
        return [(r["ruleId"], r["level"]) for r in self.run_of(name)["results"]]

    def test_levels(self):
        self.assertEqual(self.results("good"), [("runtime-gap", "note")])
        self.assertEqual(self.results("misses"), [
            ("expectation", "error"), ("missed", "warning"), ("missed", "warning"), ("degraded", "warning"),
            ("loss-excluded", "note"), ("runtime-gap", "note"), ("diagnostic", "warning")])
        self.assertEqual(self.results("error"), [("diagnostic", "error")] * 2 + [("diagnostic", "warning")])
        self.assertTrue(self.run_of("misses")["invocations"][0]["executionSuccessful"])
        self.assertFalse(self.run_of("error")["invocations"][0]["executionSuccessful"])

    def test_places(self):
        expectation, miss = self.run_of("misses")["results"][:2]
        place = miss["locations"][0]
        self.assertEqual(place["physicalLocation"]["artifactLocation"]["uri"], "in/a%20b.onnx")
        self.assertEqual([(p["name"], p["kind"]) for p in place["logicalLocations"]],
                         [("/norm/Mul", "node"), ("model.norm", "module")])
        place = expectation["locations"][0]["physicalLocation"]
        self.assertEqual(place["artifactLocation"]["uri"], "mine.yaml")
        self.assertEqual(place["region"], {"startLine": 5, "startColumn": 15})
        last = self.run_of("error")["results"][-1]["locations"][0]
        self.assertEqual(last["logicalLocations"][0]["name"], "/some/node")

    def test_a_hostile_path_is_a_uri(self):
        uri = self.run_of("hostile")["artifacts"][-1]["location"]["uri"]
        self.assertIn(b"line1\nline2\r\n::error::owned\ttab \x1b[31mred\x00\x01\x7f", urllib.parse.unquote_to_bytes(uri))


COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*)(?:,\w+=[^,:]*)*)::(.*)")


def unescaped(text):
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


class GitHubTest(ReadersTest):
    def commands(self, name):
        """(kind, properties, message) of each line, read as the runner does."""
        for line in self.text(name, "github").split("\n")[:-1]:
            found = COMMAND.fullmatch(line)
            self.assertTrue(found, line)
            properties = dict(p.split("=", 1) for p in found[2].split(","))
            yield found[1], {k: unescaped(v) for k, v in properties.items()}, unescaped(found[3])

    def kinds(self, name):
        return [kind for kind, _, _ in self.commands(name)]

    def test_each_line_is_a_command(self):
        self.assertEqual(self.kinds("good"), ["notice"])
        self.assertEqual(self.kinds("misses"), ["error", "warning", "warning", "warning", "notice"])
        self.assertEqual(self.kinds("unasked"), ["warning", "warning", "warning", "notice"])
        self.assertEqual(self.kinds("error"), ["error", "error", "warning", "notice"])
        self.assertEqual(self.kinds("several"), [k for n in NAMES[:5] for k in self.kinds(n)])

    def test_places_of_a_patch_map_are_lines_of_it(self):
        _, properties, message = next(self.commands("error"))
        self.assertEqual(properties, {"file": "maps/mine.yaml", "line": "3", "col": "5", "title": "liger-patch"})
        self.assertEqual(message, "unknown key 'clas'\nhint: did you mean class?")

    def test_a_hostile_name_stays_inside_its_command(self):
        commands = list(self.commands("hostile"))
        self.assertEqual(self.kinds("hostile"), ["error", "warning", "notice", "warning", "warning", "notice"])
        for _, properties, _ in commands:
            self.assertLessEqual(set(properties), {"file", "line", "col", "title"})
        self.assertIn("%0A%25 line1\nline2\r\n::error::owned\\ttab \\x1b[31mred", commands[0][2])
        self.assertIn(",y:z %0A%25 line1\nline2\r\n::error", commands[0][1]["title"])


class MarkdownTest(ReadersTest):
    def test_tables_have_the_same_cells_in_every_row(self):
        for name, text in self.each("md"):
            rows = [line for line in text.split("\n") if line.startswith("|")]
            tables = re.findall(r"(?m)^\| (?:module|model) .*\n\| ---.*\n(?:\|.*\n)+", text)
            self.assertEqual(sum(t.count("\n") for t in tables), len(rows))
            for table in tables:
                self.assertEqual(len({line.count("|") for line in table.splitlines()}), 1, table)

    def test_a_hostile_name_is_no_markup(self):
        text = self.text("hostile", "md")
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")
        tags = set(re.findall(r"<[^>]*>", re.sub(r"(?s)(`{3,})sh\n.*?\n\1", "", text)))
        self.assertEqual(tags, {"<!-- liger-patch -->", "<!-- -->", "<code>", "</code>", "<details>", "</details>",
                                "<summary>", "</summary>"})
        outside = re.sub(r"(?s)<code>.*?</code>|(`{3,})sh\n.*?\n\1", "", text)
        self.assertNotRegex(outside, r"(?<!\\)[`*]{1,2}(bold|c)|@user|(?<!&)#12|(?<!\\)\]\(")
        inside = html.unescape(re.search("<code>(.*?)</code>", text)[1])
        self.assertTrue(inside.startswith("in/a|b\\|`c` \"q\" 'p' <b>&amp; ]]> ::error::x"))

    def test_details_are_closed(self):
        for _, text in self.each("md"):
            self.assertEqual(text.count("<details>"), text.count("\n\n</details>\n"))


class TextTest(ReadersTest):
    def test_a_hostile_name_neither_breaks_lines_nor_sends_control_characters(self):
        for _, text in self.each("text"):
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e]")
            self.assertFalse([line for line in text.splitlines() if line.startswith("::")])


if __name__ == "__main__":
    unittest.main()
