"""docs/ops.md names the ops, inputs, outputs, attributes and forms of patches/ops, and the operators of
patches/lowerings: all of them and no others."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/ops.md").read_text()
FILES = sorted((ROOT / "patches/ops").glob("*.yaml"))


def sections():
    """Heading to text of each part of the page."""
    head, *parts = re.split(r"(?m)^## ", PAGE)
    return dict(part.split("\n", 1) for part in parts)


def rows(text, header):
    """Cells of the table in `text` whose first column has this header, backticks removed."""
    table = re.search(rf"(?m)^\| {header} \|.*\n\| ---.*\n((?:\|.*\n)+)", text)
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def block(text, key):
    """The indented lines below a key of an op's file."""
    found = re.search(rf"(?m)^{key}:.*\n((?:[ #].*\n|\n)+)", text)
    return found[1] if found else ""


def entries(text, key):
    """name, type of the flow maps below a key."""
    return re.findall(r"(?m)^ +- \{name: (\w+), type: (\w+)", block(text, key))


def forms(text):
    """Names of texts, each with whether it is marked reassociated."""
    parts = re.split(r"(?m)^  - name: (\w+).*$", block(text, "texts"))[1:]
    return {name: "\n    reassociated: on\n" in body for name, body in zip(parts[::2], parts[1::2])}


def operators(text):
    """domain, op type of a list of lowerings or already_fused, with the entry's text."""
    for entry in re.split(r"(?m)^  - ", text)[1:]:
        head = entry.split("text: |")[0]
        op = re.search(r"op: (\w+)", head)[1]
        domain = re.search(r"domain: ([\w.]+)", head)
        yield (op, domain[1] if domain else ""), head


class OpsPage(unittest.TestCase):
    def each(self):
        for path in FILES:
            text = path.read_text()
            op = re.search(r"(?m)^op: (\w+)$", text)[1]
            yield op, text, sections()[op]

    def test_each_op_has_a_section_and_no_other_has(self):
        ops = {re.search(r"(?m)^op: (\w+)$", p.read_text())[1] for p in FILES}
        self.assertEqual({name for name in sections() if name.startswith("Liger")}, ops)

    def test_attributes_are_those_of_the_file_in_its_order(self):
        for op, text, section in self.each():
            self.assertEqual([tuple(row[:2]) for row in rows(section, "attribute")], entries(text, "attributes"), op)

    def test_values_of_an_attribute_are_named(self):
        for op, text, section in self.each():
            if "as LigerSwiGLU" in section:
                section += sections()["LigerSwiGLU"]
            for values in re.findall(r"values: \[(.*?)\]", block(text, "attributes")):
                for value in values.split(", "):
                    self.assertIn(f"`{value}`", section, op)

    def test_inputs_and_outputs_are_named(self):
        for op, text, section in self.each():
            if "Inputs and output as LigerSwiGLU" in section:
                section = sections()["LigerSwiGLU"]
            place = re.search(r"(?s)Inputs?:\s(.*?)Outputs?:\s(.*?)\n\n", section)
            for key, said in zip(("inputs", "outputs"), place.groups()):
                for name, _ in entries(text, key):
                    self.assertIn(f"`{name}`", said, op)

    def test_module_is_named_and_whether_it_runs_on_request_only(self):
        for op, text, section in self.each():
            module = re.search(r"(?m)^module: (\w+)$", text)[1]
            self.assertIn(f"Module `{module}`", section, op)
            self.assertEqual("only where `--modules` asks" in section, "\nonly_on_request: on\n" in text, op)

    def test_forms_are_the_texts_of_the_file_and_say_which_are_reassociated(self):
        for op, text, section in self.each():
            said = {name: what.rstrip(" |").endswith("; reassociated") for name, what in rows(section, "form")}
            self.assertEqual(said, forms(text), op)

    def test_the_readme_names_each_op_with_its_module_and_the_number_of_families(self):
        readme = (ROOT / "README.md").read_text()
        table = {row[1]: row[0].replace("`", "").split(", ") for row in rows(readme, "module")}
        for op, text, _ in self.each():
            module = re.search(r"(?m)^module: (\w+)$", text)[1]
            named = [modules for ops, modules in table.items() if f"`{op}`" in f"`{ops}`"]
            self.assertEqual([module in modules for modules in named], [True], op)
        families = len(list((ROOT / "patches/families").glob("*.yaml")))
        self.assertIn(f"the same {families} families", " ".join(readme.split()))

    def test_presets_are_explained(self):
        named = {name for row in rows(PAGE, "preset") for name in row[0].replace("`", "").split(", ")}
        used = {name for p in FILES for name in re.findall(r"(?m)^  - \{name: (\w+)", block(p.read_text(), "presets"))}
        self.assertEqual(named, used)

    def test_operators_are_those_of_the_lowerings(self):
        text = "".join(p.read_text() for p in sorted((ROOT / "patches/lowerings").glob("*.yaml")))
        lowered = re.findall(r"(?ms)^lowerings:\n(.*?)(?=^\w|\Z)", text)
        said = {(row[0], row[1]) for row in rows(sections()["Operators that are taken over"], "operator")}
        self.assertEqual(said, {op for part in lowered for op, _ in operators(part)})

    def test_operators_that_stay_are_those_with_a_reason(self):
        text = "".join(p.read_text() for p in sorted((ROOT / "patches/lowerings").glob("*.yaml")))
        fused = re.findall(r"(?ms)^already_fused:\n(.*?)(?=^\w|\Z)", text)
        stay = {(*op, re.search(r"module: (\w+)", head)[1])
                for part in fused for op, head in operators(part) if "reason: " in head}
        said = {tuple(row[:3]) for row in rows(sections()["Operators that stay"], "operator")}
        self.assertEqual(said, stay)


if __name__ == "__main__":
    unittest.main()
