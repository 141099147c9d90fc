"""Patterns of a user's map against graphs that hold them, or what only resembles them: what is found, and that the
patched model computes the same by the text alone."""
import unittest

import numpy as np
import onnx
import onnx.parser
import onnxruntime

from cli_testing import CliTest

X = np.array([[0.0, -0.5, 3.0, 1e4], [-7.0, 0.25, np.inf, -1e-3]])

# name: (text, graph, times that it is found; 0: it is not), all at opset 18. `x` is float[2, 4] unless the graph says
# otherwise; every text is `Own <captures> (x) => (y)`.
CASES = {
    "as it is written": ("<cap> n = Constant <value_float: float = @cap> () c = CastLike (n, x) t = Tanh (x) y = Mul (t, c)",
                         "c = Constant <value = float {2.5}> () t = Tanh (x) y = Mul (t, c)", 1),
    "in another spelling": ("<cap> n = Constant <value_float: float = @cap> () c = CastLike (n, x) d = Div (x, c) y = Tanh (d)",
                            "c = Constant <value = float {0.5}> () d = Mul (c, x) y = Tanh (d)", 1),
    "a divisor that is not whole": ("<cap> n = Constant <value_float: float = @cap> () c = CastLike (n, x) d = Div (x, c) y = Tanh (d)",
                                    "c = Constant <value = float {0.7}> () d = Div (x, c) y = Tanh (d)", 1),
    "a Slice": ("b = Constant <value_ints = [0]> () e = Constant <value_ints = [2]> () a = Constant <value_ints = [-1]> () s = Slice (x, b, e, a) y = Exp (s)",
                "b = Constant <value_ints = [0]> () e = Constant <value_ints = [2]> () a = Constant <value_ints = [-1]> () s = Slice (x, b, e, a) y = Exp (s)", 1),
    "another Slice": ("b = Constant <value_ints = [0]> () e = Constant <value_ints = [2]> () a = Constant <value_ints = [-1]> () s = Slice (x, b, e, a) y = Exp (s)",
                      "b = Constant <value_ints = [0]> () e = Constant <value_ints = [3]> () a = Constant <value_ints = [-1]> () s = Slice (x, b, e, a) y = Exp (s)", 0),
    "an axis from the front": ("s = Softmax <axis = 1> (x) y = Mul (s, x)", "s = Softmax <axis = 1> (x) y = Mul (s, x)", 1),
    "another axis": ("s = Softmax <axis = 1> (x) y = Mul (s, x)", "s = Softmax <axis = 0> (x) y = Mul (s, x)", 0),
    "a default that is written out": ("a = Constant <value_ints = [-1]> () m = ReduceMax <keepdims = 1> (x, a) y = Sub (x, m)",
                                      "a = Constant <value_ints = [-1]> () m = ReduceMax (x, a) y = Sub (x, m)", 1),
    "a sum over the last axis": ("a = Constant <value_ints = [-1]> () m = ReduceSum (x, a) y = Sub (x, m)",
                                 "a = Constant <value_ints = [-1]> () m = ReduceSum (x, a) y = Sub (x, m)", 1),
    "a Reshape": ("s = Constant <value_ints = [4, -1]> () r = Reshape (x, s) y = Exp (r)",
                  "s = Constant <value_ints = [4, -1]> () r = Reshape (x, s) y = Exp (r)", 1),
    "another Reshape": ("s = Constant <value_ints = [4, -1]> () r = Reshape (x, s) y = Exp (r)",
                        "s = Constant <value_ints = [-1, 1]> () r = Reshape (x, s) y = Exp (r)", 0),
    "a number that the text rounds": ("<cap> n = Constant <value_float: float = @cap> () h = Cast <to = 10> (n) c = Cast <to = 1> (h) t = Tanh (x) y = Mul (t, c)",
                                      "c = Constant <value = float {0.1}> () t = Tanh (x) y = Mul (t, c)", 0),
    "a number that survives the rounding": ("<cap> n = Constant <value_float: float = @cap> () h = Cast <to = 10> (n) c = Cast <to = 1> (h) t = Tanh (x) y = Mul (t, c)",
                                            "c = Constant <value = float {0.5}> () t = Tanh (x) y = Mul (t, c)", 1),
    "a number with axes in the text": ("<cap> n = Constant <value_float: float = @cap> () s = Constant <value_ints = [1, 1, 1, 1]> () c = Reshape (n, s) t = Tanh (x) y = Mul (t, c)",
                                       "c = Constant <value = float {0.5}> () t = Tanh (x) y = Mul (t, c)", 0),
    "a number that becomes an integer": ("<cap> n = Constant <value_float: float = @cap> () i = Cast <to = 7> (n) c = Cast <to = 1> (i) t = Tanh (x) y = Mul (t, c)",
                                         "c = Constant <value = float {2.5}> () t = Tanh (x) y = Mul (t, c)", 0),
    "an integer that the graph has as a float": ("<cap> n = Constant <value_int: int = @cap> () c = CastLike (n, x) t = Tanh (x) y = Mul (t, c)",
                                                 "c = Constant <value = float {3}> () t = Tanh (x) y = Mul (t, c)", 1),
    "no integer": ("<cap> n = Constant <value_int: int = @cap> () c = CastLike (n, x) t = Tanh (x) y = Mul (t, c)",
                   "c = Constant <value = float {2.5}> () t = Tanh (x) y = Mul (t, c)", 0),
    "a product in another order": ("n = Constant <value_float = 1e-30> () c = CastLike (n, x) a = Mul (x, c) y = Mul (a, x)",
                                   "c = Constant <value = float {1e-30}> () a = Mul (x, x) y = Mul (a, c)", 0),
    "operands of a difference": ("t = Tanh (x) y = Sub (t, x)", "t = Tanh (x) y = Sub (x, t)", 0),
    "operands of a sum": ("t = Tanh (x) y = Add (t, x)", "t = Tanh (x) y = Add (x, t)", 1),
    "an inner value in use": ("t = Tanh (x) y = Exp (t)", "t = Tanh (x) u = Exp (t) y = Mul (u, t)", 0),
    "twice": ("t = Tanh (x) y = Exp (t)", "t = Tanh (x) u = Exp (t) v = Tanh (u) y = Exp (v)", 2),
    "a divisor too small for a reciprocal": ("n = Constant <value_float = 1e-39> () c = CastLike (n, x) d = Div (x, c) y = Tanh (d)",
                                             "c = Constant <value = float {2e-39}> () d = Div (x, c) y = Tanh (d)", 0),
}


class OwnOpsTest(CliTest):
    def run_one(self, path):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": X.astype(np.float32)})[0]

    def test_each(self):
        for name, (text, graph, times) in CASES.items():
            with self.subTest(name):
                captures, _, body = text.partition("> ") if text.startswith("<") else ("", "", text)
                head = f"Own {captures}{'>' if captures else ''} (x) => (y) {{ {body} }}"
                (self.folder / "mine.yaml").write_text(
                    "schema_version: 1\nfamily: mine\nmodules:\n  own:\n    - match: |\n        " + head +
                    "\n      op: my.ops.Own\n      opset: 18-\n      optional: true\n")
                model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2, 4] x) => (float y) { '
                                                + graph + " }")
                del model.graph.output[0].type.tensor_type.shape.dim[:]
                model.graph.output[0].type.tensor_type.ClearField("shape")
                onnx.save(model, self.folder / "model.onnx")
                report = self.patch_report("model.onnx", "-o", "patched.onnx", "--patches", "mine.yaml")
                self.assertEqual(report["modules"]["own"]["patched"], times)
                if times == 0:
                    continue
                wanted, got = self.run_one(self.folder / "model.onnx"), self.run_one(self.folder / "patched.onnx")
                self.assertEqual(wanted.shape, got.shape)
                np.testing.assert_allclose(got, wanted, rtol=1e-6)
                (self.folder / "patched.onnx").unlink()


if __name__ == "__main__":
    unittest.main()
