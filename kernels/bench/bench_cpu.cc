// Each CPU kernel against the fused op that ONNX Runtime has for the same function, in one run.
//
//   bench_cpu --threads 2 --seconds 0.5 --filter RMSNorm
//
// Both sides are sessions over a chain of equal nodes, at the highest optimisation level, with the
// same threads and inputs, so that the time of a node holds what it costs in a model and little of
// what a run costs. Outputs are compared first; then the two sides take turns, and the median time
// of each counts. Inputs stay in cache where they fit, as activations do between two nodes.
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "ort_session.h"

namespace liger::test {
namespace {

struct Case {
  std::string name;      // "RMSNorm"
  std::string baseline;  // the other op's name
  std::string inputs;    // declarations of a graph, with %T for the dtype
  std::string outputs;
  std::string ours;  // one node; %i and %o are the chained value, %n the node's number
  std::string theirs;
  NamedTensors tensors;
  bool half_too;  // whether ONNX Runtime has the baseline in f16 on the CPU
};

constexpr const char* kNormAttributes =
    "<epsilon: float = 1e-6, offset: float = 0.0, stash_type: int = 1, scale_type: int = %D>";
constexpr const char* kRopeAttributes =
    "<interleaved: int = 0, rotary_dim: int = 0, rotary_offset: int = 0, layout: string = "
    "\"BNSD\", "
    "table: string = \"half\", stash_type: int = %D>";
constexpr const char* kSwiGluAttributes =
    "<alpha: float = 1.0, gate_multiplier: float = 1.0, limit: float = 0.0, up_offset: float = "
    "0.0, "
    "packed: string = \"none\", stash_type: int = %D>";

constexpr const char* kLayerNormAttributes =
    "<epsilon: float = 1e-5, stash_type: int = 1, scale_type: int = %D>";
constexpr const char* kGroupNormAttributes =
    "<num_groups: int = 32, epsilon: float = 1e-5, stash_type: int = 1, scale_type: int = %D>";

std::string GeGluNode(const std::string& form) {
  return "%o = liger.LigerGeGLU <approximate: string = \"" + form +
         "\", limit: float = 0.0, up_offset: float = 0.0, packed: string = \"none\", stash_type: "
         "int = %D> (%i, u)";
}

Tensor Random(std::vector<int64_t> shape, uint32_t seed, double mean = 0, double deviation = 1) {
  Tensor tensor{DType::kF32, std::move(shape), {}};
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  for (double& value : values) value = normal(engine);
  return Tensor::FromDoubles(DType::kF32, tensor.shape, values);
}

Tensor Positions(int64_t sequence) {
  std::vector<double> values(static_cast<size_t>(sequence));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::FromDoubles(DType::kI64, {1, sequence}, values);
}

Tensor Table(int64_t sequence, int64_t half, double phase) {
  std::vector<double> values;
  for (int64_t s = 0; s < sequence; ++s) {
    for (int64_t i = 0; i < half; ++i) {
      values.push_back(
          std::cos(static_cast<double>(s) *
                       std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)) +
                   phase));
    }
  }
  return Tensor::FromDoubles(DType::kF32, {sequence, half}, values);
}

std::vector<Case> Cases(int64_t rows) {
  const int64_t hidden = 4096, heads = 32, head_dim = 128;
  const std::string x = "%T[1," + std::to_string(rows) + ",4096]";
  const std::string q = "%T[1,32," + std::to_string(rows) + ",128]";
  const std::string table = "%T[" + std::to_string(rows) + ",64]";
  const std::string positions = "int64[1," + std::to_string(rows) + "]";
  const NamedTensors norm = {{"x", Random({1, rows, hidden}, 1)},
                             {"w", Random({hidden}, 2, 1, 0.01)}};
  const NamedTensors add_norm = {{"x", Random({1, rows, hidden}, 1)},
                                 {"r", Random({1, rows, hidden}, 3)},
                                 {"w", Random({hidden}, 2, 1, 0.01)}};
  const NamedTensors rope = {{"x", Random({1, heads, rows, head_dim}, 1)},
                             {"c", Table(rows, head_dim / 2, 0)},
                             {"s", Table(rows, head_dim / 2, -std::acos(0.0))},
                             {"p", Positions(rows)}};
  // Such that a chain of 64 stays away from subnormal numbers: silu(1) * 1.37 = 1.
  const NamedTensors gate = {{"x", Random({1, rows, hidden}, 1, 1, 0.1)},
                             {"u", Random({1, rows, hidden}, 2, 1.37, 0.01)}};
  const NamedTensors layer_norm = {{"x", Random({1, rows, hidden}, 1)},
                                   {"w", Random({hidden}, 2, 1, 0.01)},
                                   {"b", Random({hidden}, 4, 0, 0.01)}};
  NamedTensors add_layer_norm = layer_norm;
  add_layer_norm["r"] = Random({1, rows, hidden}, 3);
  // A feature map of an image model: large beside the many rows, small beside the one.
  const int64_t side = rows == 1 ? 4 : 64;
  const std::string map = "%T[1,320," + std::to_string(side) + "," + std::to_string(side) + "]";
  const NamedTensors group_norm = {{"x", Random({1, 320, side, side}, 1)},
                                   {"w", Random({320}, 2, 1, 0.01)},
                                   {"b", Random({320}, 4, 0, 0.01)}};
  const NamedTensors scores = {{"x", Random({1, rows, hidden}, 1, 0, 3)}};
  const std::string norm_inputs = x + " x, %T[4096] w";
  const std::string layer_norm_inputs = x + " x, %T[4096] w, %T[4096] b";
  const std::string rope_inputs = q + " x, " + table + " c, " + table + " s, " + positions + " p";
  return {
      {"RMSNorm", "SimplifiedLayerNormalization", norm_inputs, x,
       std::string("%o = liger.LigerRMSNorm ") + kNormAttributes + " (%i, w)",
       "%o = SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 1e-6, stash_type: int "
       "= 1> (%i, w)",
       norm, true},
      {"RMSNorm", "RMSNormalization-23", norm_inputs, x,
       std::string("%o = liger.LigerRMSNorm ") + kNormAttributes + " (%i, w)",
       "%o = RMSNormalization <axis: int = -1, epsilon: float = 1e-6, stash_type: int = 1> (%i, w)",
       norm, true},
      {"AddRMSNorm", "SkipSimplifiedLayerNormalization", x + " x, " + x + " r, %T[4096] w", x,
       std::string("%o, sum%n = liger.LigerAddRMSNorm ") + kNormAttributes + " (%i, r, w)",
       "%o, mean%n, var%n, sum%n = com.microsoft.SkipSimplifiedLayerNormalization <epsilon: float "
       "= 1e-6> "
       "(%i, r, w)",
       add_norm, true},
      {"Rope", "com.microsoft.RotaryEmbedding", rope_inputs, q,
       std::string("%o = liger.LigerRope ") + kRopeAttributes + " (%i, c, s)",
       "%o = com.microsoft.RotaryEmbedding <interleaved: int = 0> (%i, p, c, s)", rope, true},
      {"Rope", "RotaryEmbedding-23", rope_inputs, q,
       std::string("%o = liger.LigerRope ") + kRopeAttributes + " (%i, c, s)",
       "%o = RotaryEmbedding <interleaved: int = 0> (%i, c, s, p)", rope, true},
      {"SwiGLU", "QuickGelu + Mul", x + " x, " + x + " u", x,
       std::string("%o = liger.LigerSwiGLU ") + kSwiGluAttributes + " (%i, u)",
       "a%n = com.microsoft.QuickGelu <alpha: float = 1.0> (%i)\n%o = Mul(a%n, u)", gate, false},
      {"LayerNorm", "LayerNormalization", layer_norm_inputs, x,
       std::string("%o = liger.LigerLayerNorm ") + kLayerNormAttributes + " (%i, w, b)",
       "%o = LayerNormalization <axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1> "
       "(%i, w, b)",
       layer_norm, true},
      {"AddLayerNorm", "SkipLayerNormalization", layer_norm_inputs + ", " + x + " r", x,
       std::string("%o, sum%n = liger.LigerAddLayerNorm ") + kLayerNormAttributes +
           " (%i, r, w, b)",
       "%o, mean%n, var%n, sum%n = com.microsoft.SkipLayerNormalization <epsilon: float = 1e-5> "
       "(%i, r, w, b)",
       add_layer_norm, true},
      {"GeGLU tanh", "FastGelu + Mul", x + " x, " + x + " u", x, GeGluNode("tanh"),
       "a%n = com.microsoft.FastGelu (%i)\n%o = Mul(a%n, u)", gate, false},
      {"GeGLU erf", "Gelu + Mul", x + " x, " + x + " u", x, GeGluNode("none"),
       "a%n = com.microsoft.Gelu (%i)\n%o = Mul(a%n, u)", gate, false},
      {"GeGLU sigm.", "QuickGelu + Mul", x + " x, " + x + " u", x, GeGluNode("sigmoid"),
       "a%n = com.microsoft.QuickGelu <alpha: float = 1.702> (%i)\n%o = Mul(a%n, u)", gate, false},
      {"Softmax", "Softmax-13", x + " x", x, "%o = liger.LigerSoftmax <stash_type: int = %D> (%i)",
       "%o = Softmax <axis: int = -1> (%i)", scores, false},
      {"GroupNorm", "GroupNormalization-21, 320 channels", map + " x, %T[320] w, %T[320] b", map,
       std::string("%o = liger.LigerGroupNorm ") + kGroupNormAttributes + " (%i, w, b)",
       "%o = GroupNormalization <num_groups: int = 32, epsilon: float = 1e-5, stash_type: int = "
       "1> (%i, w, b)",
       group_norm, false},
  };
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

Result<OrtSession> MakeSession(const Case& c, const std::string& node, DType dtype, int length,
                               int threads) {
  std::string body;
  for (int i = 0; i < length; ++i) {
    std::string line = Replace(node, "%i", i == 0 ? "x" : "v" + std::to_string(i));
    line = Replace(line, "%o", i + 1 == length ? "y" : "v" + std::to_string(i + 1));
    body += Replace(line, "%n", std::to_string(i)) + "\n";
  }
  std::string text =
      "<ir_version: 10, opset_import: [\"\": 23, \"liger\": 1, \"com.microsoft\": 1]>\ng (" +
      c.inputs + ") => (" + c.outputs + " y) {\n" + body + "}";
  text = Replace(text, "%T", dtype == DType::kF16 ? "float16" : "float");
  text = Replace(text, "%D", std::to_string(static_cast<int>(dtype)));
  onnx::ModelProto model;
  onnx::OnnxParser parser(text.c_str());
  if (const auto status = parser.Parse(model); !status.IsOK()) {
    return Error{ErrorCode::kInternal, status.ErrorMessage(), c.name, text};
  }
  SessionConfig config;
  config.library = LigerLibraryPath();
  config.threads = threads;
  return OrtSession::FromBytes(model.SerializeAsString(), config);
}

NamedTensors In(const NamedTensors& tensors, DType dtype) {
  NamedTensors converted;
  for (const auto& [name, tensor] : tensors) {
    converted[name] = tensor.dtype == DType::kI64
                          ? tensor
                          : Tensor::FromDoubles(dtype, tensor.shape, tensor.ToDoubles());
  }
  return converted;
}

double RelativeDifference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToDoubles(), y = b.ToDoubles();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

struct Options {
  int threads = 2;
  bool cpu_time = false;
  double seconds = 0.5;
  std::string filter;
};

double Now(bool cpu_time) {
  if (cpu_time) return static_cast<double>(std::clock()) * (1e6 / CLOCKS_PER_SEC);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

Result<double> Microseconds(BoundRun& run, bool cpu_time) {
  const double begin = Now(cpu_time);
  if (Status status = run.Run(); !status) return std::move(status).error();
  return Now(cpu_time) - begin;
}

Status RunCase(const Case& c, DType dtype, int64_t rows, const Options& options) {
  const NamedTensors inputs = In(c.tensors, dtype);
  for (const std::string& node : {c.ours, c.theirs}) {
    if (Result<OrtSession> session = MakeSession(c, node, dtype, 1, options.threads); !session) {
      return std::move(session).error().WithContext(c.name);
    }
  }
  Result<OrtSession> our_one = MakeSession(c, c.ours, dtype, 1, options.threads);
  Result<OrtSession> their_one = MakeSession(c, c.theirs, dtype, 1, options.threads);
  Result<NamedTensors> our_y = our_one->Run(inputs), their_y = their_one->Run(inputs);
  if (!our_y) return our_y.error();
  if (!their_y) return their_y.error();
  const double difference = RelativeDifference(our_y->at("y"), their_y->at("y"));
  if (!(difference < (dtype == DType::kF16 ? 2e-3 : 1e-5))) {
    return Error{ErrorCode::kExpectation, "outputs differ by " + std::to_string(difference), c.name,
                 ""};
  }

  const int length = rows == 1 ? 64 : 8;
  Result<OrtSession> ours = MakeSession(c, c.ours, dtype, length, options.threads);
  Result<OrtSession> theirs = MakeSession(c, c.theirs, dtype, length, options.threads);
  if (!ours) return ours.error();
  if (!theirs) return theirs.error();
  Result<BoundRun> our_run = ours->Bind(inputs), their_run = theirs->Bind(inputs);
  if (!our_run) return our_run.error();
  if (!their_run) return their_run.error();
  double our_time = 1e30, their_time = 1e30;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  for (int i = 0; i < 5 || std::chrono::steady_clock::now() < end; ++i) {
    Result<double> our_run_time = Microseconds(*our_run, options.cpu_time),
                   their_run_time = Microseconds(*their_run, options.cpu_time);
    if (!our_run_time) return our_run_time.error();
    if (!their_run_time) return their_run_time.error();
    our_time = std::min(our_time, *our_run_time / length);
    their_time = std::min(their_time, *their_run_time / length);
  }
  std::printf("%-12s %-4s %4lld rows  %9.2f us  %-35s %9.2f us  ratio %5.2f\n", c.name.c_str(),
              std::string(DTypeName(dtype)).c_str(), static_cast<long long>(rows), our_time,
              c.baseline.c_str(), their_time, their_time / our_time);
  std::fflush(stdout);
  return {};
}

int Main(int argc, char** argv) {
  CLI::App app("Times each CPU kernel and ONNX Runtime's own fused op; ratio is theirs over ours.");
  Options options;
  app.add_option("--threads", options.threads, "intra-op threads of both sides")
      ->capture_default_str();
  app.add_flag("--cpu-time", options.cpu_time,
               "the process's own time, for a machine that others use; with --threads 1");
  app.add_option("--seconds", options.seconds, "time per line")->capture_default_str();
  app.add_option("--filter", options.filter, "only kernels whose name or baseline holds this text");
  CLI11_PARSE(app, argc, argv);
  if (!OrtIsAvailable()) {
    std::fprintf(stderr, "%s\n", OrtMissingText().c_str());
    return 1;
  }
  std::printf("ONNX Runtime %s, %d threads, time per node, [1, rows, 4096]\n", OrtVersion().c_str(),
              options.threads);
  int failures = 0;
  for (const int64_t rows : {512, 1}) {
    for (const Case& c : Cases(rows)) {
      if ((c.name + " " + c.baseline).find(options.filter) == std::string::npos) continue;
      for (const DType dtype : {DType::kF32, DType::kF16}) {
        if (dtype == DType::kF16 && !c.half_too) continue;
        if (Status status = RunCase(c, dtype, rows, options); !status) {
          std::printf("%-12s %-4s %4lld rows  %s: %s\n", c.name.c_str(),
                      std::string(DTypeName(dtype)).c_str(), static_cast<long long>(rows),
                      c.baseline.c_str(), status.error().message.c_str());
          ++failures;
        }
      }
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace liger::test

int main(int argc, char** argv) { return liger::test::Main(argc, argv); }
