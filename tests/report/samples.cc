#include "samples.h"

#include <limits>

namespace liger {
namespace {

constexpr const char* kSha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

ModuleReport Module(const std::string& name, int64_t expected, int64_t patched) {
  ModuleReport module;
  module.name = name;
  module.enabled = true;
  module.reason = "on by default for family llama";
  module.expected = expected;
  module.expected_source = "class_metadata";
  module.patched = patched;
  return module;
}

Report BaseRun(const std::string& path) {
  Report report;
  report.tool_version = "0.1.0";
  report.input = {path, kSha};
  report.route = "official";
  report.family = "llama";
  report.family_decided_by = "config.json";
  report.evidence = {{"config.json", "out/config.json", "model_type", "llama", "llama", "", true}};
  report.helper = "llama";
  report.excluded_modules = {"cross_entropy"};
  return report;
}

}  // namespace

Report GoodRun() {
  Report report = BaseRun("out/model.onnx");
  report.output = FileReport{"out/model.liger.onnx", kSha};
  report.modules = {Module("rms_norm", 5, 5), Module("rope", 4, 4)};
  report.modules[0].ops = {{"LigerRMSNorm", 5}};
  report.modules[1].ops = {{"LigerRope", 2}};
  ModuleReport off;
  off.name = "cross_entropy";
  off.reason = "off by default for family llama";
  report.modules.push_back(off);
  report.expectations = {{"rms_norm", "5", "--expect", 5, true}};
  report.patched = {{"rms_norm",
                     "LigerRMSNorm",
                     "n_fused",
                     "pow/llama",
                     "exact",
                     {"model.layers.0.input_layernorm"},
                     {{"epsilon", 1e-6F}, {"limit", std::numeric_limits<float>::infinity()}},
                     {"n1", "n2"}}};
  report.verification = {"ONNX checker and shape inference accept the result"};
  report.validation_commands = {"liger-patch out/model.liger.onnx --dry-run"};
  report.runtime_gaps = {"attention is not fused (2 places)"};
  report.op_counts = {{"Pow", {5, 0}}};
  return report;
}

Report RunWithMisses() {
  Report report = BaseRun("in/a b.onnx");
  report.status = "expectation_failed";
  report.exit_code = 1;
  report.modules = {Module("rms_norm", 65, 62), Module("rope", 4, 4), Module("soft_cap", 2, 2)};
  report.modules[0].missed = 2;
  report.modules[0].degraded = 1;
  report.stage = {"dpo",
                  {{"fused_linear_cross_entropy", "turned off: it makes no logits"}},
                  "stage dpo needs the logits: fused_linear_cross_entropy is off"};
  report.scopes = {{"--scope", "model.**", 120}};
  report.symbols = {
      {"rms_norm",
       "class",
       "my_pkg.MyRMSNorm",
       "liger.LigerRMSNorm",
       "mine.yaml:4:7",
       65,
       62,
       0,
       {}},
      {"soft_cap", "match", "SoftCap", "my.domain.SoftCap", "mine.yaml:9:7", 2, 2, 0, {"a note"}}};
  report.expectations = {{"rms_norm", "65", "mine.yaml:5:15", 62, false},
                         {"rope", ">=4", "--expect", 4, true}};
  MissReport miss{"rms_norm", "model.norm", "/norm/Mul", "epsilon is no constant", "epsilon"};
  miss.closest = "LigerRMSNorm as pow/llama (ops/rms_norm.yaml)";
  miss.chain = {"/norm/Mul = Mul(/norm/Rsqrt, x)", "/norm/Rsqrt = Rsqrt(/norm/Add)"};
  miss.values = {"epsilon = eps: f32[]", "x: f32[batch,seq,64]"};
  report.missed = {miss, miss};
  report.missed[1].path = "model.layers.3.norm";
  report.missed[1].node = "/layers.3/norm/Mul";
  report.degraded = {
      {"rms_norm", "model.layers.4.norm", "/layers.4/norm/Mul", "no weight", "scale"}};
  report.loss_ops = {{"LogSoftmax + GatherElements",
                      "/loss/LogSoftmax",
                      "loss_fn",
                      "cross_entropy",
                      "cross-entropy: reduction mean",
                      {"/loss/LogSoftmax", "/loss/Gather", "/loss/Mean"},
                      {"logits", "labels"}}};
  report.runtime_gaps = {"attention is not fused (2 places)"};
  report.diagnostics = {
      {Diagnostic::Severity::kWarning, "nodes were out of order", "", ""},
      {Diagnostic::Severity::kError, "rms_norm: 65 wanted by the patch map, 62 fused",
       "mine.yaml:5:15", "the report names what was missed"}};
  return report;
}

Report RunWithUnaskedMisses() {
  Report report = RunWithMisses();
  report.input.path = "in/unasked.onnx";
  report.status = "checked";
  report.exit_code = 0;
  report.expectations.clear();
  report.diagnostics.pop_back();
  return report;
}

Report FailedRun() {
  Report report;
  report.status = "error";
  report.exit_code = 2;
  report.tool_version = "0.1.0";
  report.input.path = "broken.onnx";
  report.diagnostics = {
      {Diagnostic::Severity::kError, "unknown key 'clas'", "maps/mine.yaml:3:5",
       "did you mean class?"},
      {Diagnostic::Severity::kError, "unknown op 'LigerRMSNrm'", "maps/mine.yaml:7:11", ""},
      {Diagnostic::Severity::kWarning, "a value was not read", "/some/node", ""}};
  return report;
}

std::string HostileName() {
  std::string name = "a|b\\|`c` \"q\" 'p' <b>&amp; ]]> ::error::x,y:z %0A%25 ";
  name += "line1\nline2\r\n::error::owned\ttab \x1b[31mred";
  name += '\0';
  name += "\x01\x7f \xC2\x9B \xff\xfe \xed\xa0\x80 \xc0\xaf \xEF\xBF\xBF \xE2\x80\xAE";
  name += " [link](1) **bold** _it_ @user #12 ``` <!-- --> ~~s~~ $x$ \xC3\xA4";
  return name;
}

Report HostileRun() {
  const std::string bad = HostileName();
  Report report = BaseRun("in/" + bad + ".onnx");
  report.status = "expectation_failed";
  report.exit_code = 1;
  report.family = bad;
  report.helper = bad;
  report.output = FileReport{bad, kSha};
  report.modules = {Module(bad, 3, 1)};
  report.modules[0].missed = 1;
  report.modules[0].unaccounted = 1;
  report.scopes = {{"--skip", bad, 1}};
  report.symbols = {{bad, "scope", bad, bad, bad, 1, 1, 0, {bad}}};
  report.expectations = {{bad, "3", bad, 1, false}, {"other", "all 1", "--strict", 1, true}};
  report.missed = {{bad, bad, bad, bad, bad, bad, {bad}, {bad}}};
  report.loss_ops = {{bad, bad, bad, "other", bad, {bad, bad}, {bad}}};
  report.runtime_gaps = {bad};
  report.validation_commands = {bad};
  report.verification = {bad};
  report.excluded_modules = {bad};
  report.patched = {{bad, bad, bad, bad, "exact", {bad}, {{bad, bad}}, {bad}}};
  report.diagnostics = {{Diagnostic::Severity::kWarning, bad, bad, bad},
                        {Diagnostic::Severity::kNote, bad, bad + ":3:4", bad}};
  return report;
}

std::vector<Sample> Samples() {
  return {
      {"good", {GoodRun()}},
      {"misses", {RunWithMisses()}},
      {"unasked", {RunWithUnaskedMisses()}},
      {"error", {FailedRun()}},
      {"hostile", {HostileRun()}},
      {"several", {GoodRun(), RunWithMisses(), RunWithUnaskedMisses(), FailedRun(), HostileRun()}}};
}

}  // namespace liger
