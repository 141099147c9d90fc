#include "loss/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/model_file.h"
#include "model/onnx_graph.h"
#include "model_testing.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Weights are declared without elements, which the parser takes for computed values.
void DeclareWeights(onnx::GraphProto& graph) {
  std::set<std::string> computed;
  for (const auto& node : graph.node()) computed.insert(node.output().begin(), node.output().end());
  for (const auto& value : graph.value_info()) {
    if (computed.contains(value.name())) continue;
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(value.name());
    tensor.set_data_type(value.type().tensor_type().elem_type());
    for (const auto& dim : value.type().tensor_type().shape().dim())
      tensor.add_dims(dim.dim_value());
  }
  graph.clear_value_info();
}

std::vector<LossOpReport> LossesOf(onnx::ModelProto model) {
  DeclareWeights(*model.mutable_graph());
  auto graph = BuildGraphModel(model, fs::path("."));
  if (!graph) {
    ADD_FAILURE() << graph.error().message;
    return {};
  }
  return FindLosses(*graph);
}

// `graph` is a name, a signature and a body.
std::string Text(const std::string& graph, int opset = 17) {
  return "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) +
         ", \"com.microsoft\" : 1]>\n" + graph;
}

std::string Sentence(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// One loss and nothing else. Nodes have no names here: they go by their first results.
struct Case {
  std::string name;
  std::string graph;
  std::string module, op, nodes, inputs, reason;
  int opset = 17;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Loss : public testing::TestWithParam<Case> {};

TEST_P(Loss, IsFound) {
  const Case& c = GetParam();
  const std::vector<LossOpReport> losses = LossesOf(ModelFromText(Text(c.graph, c.opset)));
  ASSERT_THAT(losses, SizeIs(1));
  const LossOpReport& loss = losses[0];
  EXPECT_EQ(loss.module, c.module);
  EXPECT_EQ(loss.op, c.op);
  EXPECT_EQ(Sentence(loss.nodes), c.nodes);
  EXPECT_EQ(loss.node, loss.nodes.front());
  EXPECT_EQ(Sentence(loss.inputs), c.inputs);
  EXPECT_THAT(loss.reason, HasSubstr(c.reason));
}

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

constexpr char kCe[] = "cross_entropy";
constexpr char kFlce[] = "fused_linear_cross_entropy";
constexpr char kOther[] = "other";
constexpr char kLogits[] = "g (float[N,16] logits, int64[N] target) => (float loss) ";

// --- Operators ------------------------------------------------------------------------------------

INSTANTIATE_TEST_SUITE_P(
    Operators, Loss,
    testing::Values(
        Case{"Mean",
             std::string(kLogits) +
                 "{ loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (logits, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target",
             "mean over the targets other than -100"},
        Case{"SumWithoutIgnoredTargets",
             std::string(kLogits) +
                 "{ loss = SoftmaxCrossEntropyLoss <reduction = \"sum\"> (logits, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target",
             "cross-entropy: sum over the targets; the product"},
        Case{"NoReduction",
             "g (float[N,16] logits, int64[N] target) => (float[N] loss) "
             "{ loss = SoftmaxCrossEntropyLoss <reduction = \"none\"> (logits, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target", "one value per target"},
        Case{"ClassWeights",
             std::string(kLogits) +
                 "<float[2] w = {1, 2}> { loss = SoftmaxCrossEntropyLoss (logits, target, w) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target w", "with class weights"},
        Case{"LogProbabilitiesUsedToo",
             "g (float[N,16] logits, int64[N] target) => (float loss, float[N,16] lp) "
             "{ loss, lp = SoftmaxCrossEntropyLoss (logits, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target",
             "its log-probabilities are used as well"},
        Case{"SegmentationMap",
             "g (float[N,16,H,W] logits, int64[N,H,W] target) => (float loss) "
             "{ loss = SoftmaxCrossEntropyLoss (logits, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target", "classes on axis 1 of 4"},
        Case{"BetweenTransposes",
             "g (float[B,S,16] logits, int64[B,S] target) => (float loss) "
             "{ t = Transpose <perm = [0, 2, 1]> (logits) "
             "  loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (t, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "t loss", "logits target", "classes on axis 1 of 3"},
        Case{"LogSoftmaxOverAxis1",
             std::string(kLogits) +
                 "{ lp = LogSoftmax <axis = 1> (logits) "
                 "  loss = NegativeLogLikelihoodLoss <ignore_index = 0> (lp, target) }",
             kCe, "LogSoftmax + NegativeLogLikelihoodLoss", "lp loss", "logits target",
             "mean over the targets other than 0"},
        Case{"LogSoftmaxOverTheLastAxisTransposed",
             "g (float[B,S,16] logits, int64[B,S] target) => (float loss) "
             "{ lp = LogSoftmax <axis = 2> (logits)  t = Transpose <perm = [0, 2, 1]> (lp) "
             "  loss = NegativeLogLikelihoodLoss (t, target) }",
             kCe, "LogSoftmax + NegativeLogLikelihoodLoss", "lp t loss", "logits target", "mean"},
        Case{"FunctionBodyOfTheOperator",
             "g (float[B,16,D] logits, int64[B,D] target) => (float loss) "
             "<int64[3] three = {0, 0, -1}, int64[3] back = {0, 16, -1}> "
             "{ r = Reshape (logits, three)  t = Transpose <perm = [0, 2, 1]> (r) "
             "  lp = LogSoftmax <axis = 2> (t)  u = Transpose <perm = [0, 2, 1]> (lp) "
             "  b = Reshape (u, back)  loss = NegativeLogLikelihoodLoss (b, target) }",
             kCe, "LogSoftmax + NegativeLogLikelihoodLoss", "r t lp u b loss", "logits target",
             "mean"},
        Case{"OpsetTwelveDefaultAxis",
             std::string(kLogits) + "{ lp = LogSoftmax (logits) "
                                    "  loss = NegativeLogLikelihoodLoss (lp, target) }",
             kCe, "LogSoftmax + NegativeLogLikelihoodLoss", "lp loss", "logits target", "mean", 12},
        Case{"OnnxRuntimeTraining",
             "g (float[N,16] logits, int64[N] target) => (float loss) <int64 ignored = {-100}> "
             "{ loss, lp = com.microsoft.SoftmaxCrossEntropyLossInternal (logits, target, , "
             "ignored) }",
             kCe, "SoftmaxCrossEntropyLossInternal", "loss", "logits target", "other than -100"},
        Case{"OnnxRuntimeSparse",
             std::string(kLogits) +
                 "{ loss, lp = com.microsoft.SparseSoftmaxCrossEntropy (logits, target) }",
             kCe, "SparseSoftmaxCrossEntropy", "loss", "logits target", "mean"},
        Case{"OnnxRuntimeDenseOneHot",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 depth = {16}, float[2] values = {0, 1}> "
             "{ hot = OneHot (target, depth, values) "
             "  loss, lp = com.microsoft.SoftmaxCrossEntropy (logits, hot) }",
             kCe, "SoftmaxCrossEntropy + OneHot", "hot loss", "logits target", "mean"}),
    NameOf);

// --- Written out ----------------------------------------------------------------------------------

INSTANTIATE_TEST_SUITE_P(
    WrittenOut, Loss,
    testing::Values(
        Case{"Gather",
             "g (float[B,S,16] logits, int64[B,S] target) => (float loss) <int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = -1> (logits)  i = Unsqueeze (target, last) "
             "  p = GatherElements <axis = -1> (lp, i)  s = Squeeze (p, last) "
             "  n = Neg (s)  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "LogSoftmax + GatherElements", "lp i p s n loss", "logits target",
             "mean over the targets"},
        Case{"GatherSum",
             "g (float[B,S,16] logits, int64[B,S] target) => (float loss) <int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = 2> (logits)  i = Unsqueeze (target, last) "
             "  p = GatherElements <axis = -1> (lp, i)  s = Squeeze (p, last) "
             "  n = ReduceSum <keepdims = 0> (s)  loss = Neg (n) }",
             kCe, "LogSoftmax + GatherElements", "lp i p s n loss", "logits target",
             "sum over the targets"},
        Case{"GatherWithoutReduction",
             "g (float[B,S,16] logits, int64[B,S,1] target) => (float[B,S,1] logp) "
             "{ lp = LogSoftmax (logits)  logp = GatherElements <axis = -1> (lp, target) }",
             kCe, "LogSoftmax + GatherElements", "lp logp", "logits target",
             "one value per target"},
        Case{"GatherNd",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 zero = {0}, int64 one = {1}, int64 n = {4}, int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = 1> (logits)  r = Range (zero, n, one) "
             "  a = Unsqueeze (r, last)  b = Unsqueeze (target, last) "
             "  i = Concat <axis = -1> (a, b)  p = GatherND (lp, i)  m = ReduceMean <keepdims = 0> "
             "(p)  loss = Neg (m) }",
             kCe, "LogSoftmax + GatherND", "lp r a b i p m loss", "logits target",
             "mean over the targets"},
        Case{"MaskedMean",
             "g (float[B,S,16] logits, int64[B,S] target, float[B,S] mask) => (float loss) "
             "<int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = -1> (logits)  i = Unsqueeze (target, last) "
             "  p = GatherElements <axis = -1> (lp, i)  s = Squeeze (p, last)  n = Neg (s) "
             "  k = Mul (n, mask)  t = ReduceSum <keepdims = 0> (k)  c = ReduceSum <keepdims = 0> "
             "(mask)  loss = Div (t, c) }",
             kCe, "LogSoftmax + GatherElements", "lp i p s n k t c loss", "logits target mask",
             "sum divided by the kept targets"},
        Case{"MeanOverMaskedOnes",
             "g (float[B,S,16] logits, int64[B,S] target, float[B,S] mask) => (float loss) "
             "<int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = -1> (logits)  i = Unsqueeze (target, last) "
             "  p = GatherElements <axis = -1> (lp, i)  s = Squeeze (p, last)  n = Neg (s) "
             "  k = Mul (n, mask)  loss = ReduceMean <keepdims = 0> (k) }",
             kCe, "LogSoftmax + GatherElements", "lp i p s n k loss", "logits target mask",
             "its mean counts masked targets"},
        Case{"MeanOfMeans",
             "g (float[B,S,16] logits, int64[B,S] target) => (float loss) <int64[1] last = {-1}> "
             "{ lp = LogSoftmax <axis = -1> (logits)  i = Unsqueeze (target, last) "
             "  p = GatherElements <axis = -1> (lp, i)  s = Squeeze (p, last)  n = Neg (s) "
             "  m = ReduceMean <axes = [1], keepdims = 0> (n)  loss = ReduceMean <keepdims = 0> "
             "(m) }",
             kCe, "LogSoftmax + GatherElements", "lp i p s n m loss", "logits target",
             "a mean of means"},
        Case{"AtenDecomposition",
             std::string(kLogits) +
                 "<int64 ignored = {-100}, int64 zero = {0}, float none = {0}, int64[1] last = "
                 "{-1}> "
                 "{ e = Equal (target, ignored)  m = Not (e)  ts = Where (m, target, zero) "
                 "  lp = LogSoftmax <axis = 1> (logits)  i = Unsqueeze (ts, last) "
                 "  p = GatherElements <axis = 1> (lp, i)  s = Squeeze (p, last)  n = Neg (s) "
                 "  k = Where (m, n, none)  mi = Cast <to = 7> (m)  c = ReduceSum <keepdims = 0> "
                 "(mi) "
                 "  cf = Cast <to = 1> (c)  t = ReduceSum <keepdims = 0> (k)  loss = Div (t, cf) }",
             kCe, "LogSoftmax + GatherElements", "e m ts lp i p s n k mi c cf t loss",
             "logits target", "sum divided by the kept targets"},
        Case{"LogOfSoftmax",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <float eps = {1e-9}> "
             "{ q = Softmax (logits)  a = Add (q, eps)  l = Log (a) "
             "  p = GatherElements <axis = 1> (l, target)  m = ReduceMean <keepdims = 0> (p)  "
             "loss = Neg (m) }",
             kCe, "Log(Softmax) + GatherElements", "q a l p m loss", "logits target", "mean"},
        Case{"LogOfPickedSoftmax",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) "
             "{ q = Softmax (logits)  p = GatherElements <axis = 1> (q, target)  l = Log (p) "
             "  n = Neg (l)  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "Log(Softmax) + GatherElements", "q p l n loss", "logits target", "mean"},
        Case{"LogSumExpLessPicked",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) "
             "{ z = ReduceLogSumExp <axes = [1], keepdims = 1> (logits) "
             "  p = GatherElements <axis = 1> (logits, target)  n = Sub (z, p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "ReduceLogSumExp + GatherElements", "z p n loss", "logits target", "mean"},
        Case{"LogSumExpWithoutKeptAxis",
             "g (float[N,16] logits, int64[N] target) => (float loss) <int64[1] last = {-1}> "
             "{ z = ReduceLogSumExp <axes = [1], keepdims = 0> (logits)  i = Unsqueeze (target, "
             "last) "
             "  p = GatherElements <axis = 1> (logits, i)  s = Squeeze (p, last)  n = Sub (s, z) "
             "  m = ReduceMean <keepdims = 0> (n)  loss = Neg (m) }",
             kCe, "ReduceLogSumExp + GatherElements", "z i p s n m loss", "logits target", "mean"},
        Case{"LogSumExpWrittenOut",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <int64[1] one = {1}> "
             "{ x = ReduceMax <axes = [1]> (logits)  d = Sub (logits, x)  e = Exp (d) "
             "  t = ReduceSum (e, one)  l = Log (t)  z = Add (l, x) "
             "  p = GatherElements <axis = 1> (logits, target)  n = Sub (z, p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "ReduceLogSumExp + GatherElements", "x d e t l z p n loss", "logits target",
             "mean"},
        Case{"ShiftedLogProbabilities",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <int64[1] one = {1}> "
             "{ x = ReduceMax <axes = [1]> (logits)  d = Sub (logits, x)  e = Exp (d) "
             "  t = ReduceSum (e, one)  l = Log (t)  lp = Sub (d, l) "
             "  p = GatherElements <axis = 1> (lp, target)  n = Neg (p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "Log(ReduceSum(Exp)) + GatherElements", "x d e t l lp p n loss", "logits target",
             "mean"},
        Case{"UnshiftedLogProbabilities",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <int64[1] one = {1}> "
             "{ e = Exp (logits)  t = ReduceSum (e, one)  l = Log (t)  lp = Sub (logits, l) "
             "  p = GatherElements <axis = 1> (lp, target)  n = Neg (p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "Log(ReduceSum(Exp)) + GatherElements", "e t l lp p n loss", "logits target",
             "mean"},
        Case{"SoftmaxWrittenOut",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <int64[1] one = {1}> "
             "{ x = ReduceMax <axes = [1]> (logits)  d = Sub (logits, x)  e = Exp (d) "
             "  t = ReduceSum (e, one)  q = Div (e, t)  lp = Log (q) "
             "  p = GatherElements <axis = 1> (lp, target)  n = Neg (p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "Log(Softmax) + GatherElements", "x d e t q lp p n loss", "logits target",
             "mean"},
        Case{"OneHot",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 depth = {16}, float[2] values = {0, 1}, int64[1] last = {-1}> "
             "{ h = OneHot (target, depth, values)  lp = LogSoftmax (logits)  m = Mul (h, lp) "
             "  t = ReduceSum <keepdims = 0> (m, last)  n = Neg (t)  loss = ReduceMean <keepdims = "
             "0> (n) }",
             kCe, "LogSoftmax + OneHot", "h lp m t n loss", "logits target", "mean"},
        Case{"SmoothedOneHot",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 depth = {16}, float[2] values = {0.1, 0.9}, int64[1] last = {-1}> "
             "{ h = OneHot (target, depth, values)  lp = LogSoftmax (logits)  m = Mul (h, lp) "
             "  t = ReduceSum <keepdims = 0> (m, last)  n = Neg (t)  loss = ReduceMean <keepdims = "
             "0> (n) }",
             kCe, "LogSoftmax + OneHot", "h lp m t n loss", "logits target",
             "one-hot targets are smoothed"},
        Case{"OneHotByComparison",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 zero = {0}, int64 one = {1}, int64 n16 = {16}, int64[1] last = {-1}> "
             "{ r = Range (zero, n16, one)  u = Unsqueeze (target, last)  q = Equal (u, r) "
             "  h = Cast <to = 1> (q)  lp = LogSoftmax (logits)  m = Mul (lp, h) "
             "  t = ReduceSum <keepdims = 0> (m)  loss = Neg (t) }",
             kCe, "LogSoftmax + OneHot", "r u q h lp m t loss", "logits target", "sum"},
        Case{"OneHotOfLogits",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<int64 depth = {16}, float[2] values = {0, 1}, int64[1] last = {-1}> "
             "{ h = OneHot (target, depth, values)  m = Mul (h, logits) "
             "  t = ReduceSum <keepdims = 0> (m, last) "
             "  z = ReduceLogSumExp <axes = [1], keepdims = 0> (logits)  n = Sub (z, t) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kCe, "ReduceLogSumExp + OneHot", "h m t z n loss", "logits target", "mean"},
        Case{"LabelSmoothing",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) "
             "<float keep = {0.9}, float spread = {0.1}> "
             "{ lp = LogSoftmax (logits)  p = GatherElements <axis = 1> (lp, target)  n = Neg (p) "
             "  a = Mul (n, keep)  u = ReduceMean <axes = [1]> (lp)  v = Neg (u)  b = Mul (v, "
             "spread) "
             "  c = Add (a, b)  loss = ReduceMean <keepdims = 0> (c) }",
             kCe, "LogSoftmax + GatherElements", "lp p n a u v b c loss", "logits target",
             "further terms of the logits are added"},
        Case{"ZLoss",
             "g (float[N,16] logits, int64[N] target) => (float loss) "
             "<float two = {2}, float scale = {1e-4}> "
             "{ ce = SoftmaxCrossEntropyLoss (logits, target) "
             "  z = ReduceLogSumExp <axes = [1], keepdims = 0> (logits)  q = Pow (z, two) "
             "  m = ReduceMean <keepdims = 0> (q)  s = Mul (m, scale)  loss = Add (ce, s) }",
             kCe, "SoftmaxCrossEntropyLoss", "ce z q m s loss", "logits target",
             "further terms of the logits are added"},
        Case{"ClassWeightsByGather",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) <float[2] w = {1, 3}> "
             "{ lp = LogSoftmax (logits)  p = GatherElements <axis = 1> (lp, target)  n = Neg (p) "
             "  c = Gather (w, target)  k = Mul (n, c)  t = ReduceSum <keepdims = 0> (k) "
             "  d = ReduceSum <keepdims = 0> (c)  loss = Div (t, d) }",
             kCe, "LogSoftmax + GatherElements", "lp p n c k t d loss", "logits target w",
             "sum divided by the kept targets"},
        Case{"Perplexity",
             "g (float[N,16] logits, int64[N] target) => (float perplexity) "
             "{ loss = SoftmaxCrossEntropyLoss (logits, target)  perplexity = Exp (loss) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "logits target", "mean"},
        Case{"VocabularyMask",
             "g (float[N,16] logits, int64[N] target, bool[16] allowed) => (float loss) "
             "<float low = {-3e38}> "
             "{ x = Where (allowed, logits, low)  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "x target",
             "the logits are no product with a weight"},
        Case{"Temperature",
             "g (float[N,16] logits, int64[N] target) => (float loss) <float t = {2}> "
             "{ x = Div (logits, t)  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "x loss", "logits target",
             "the logits are multiplied by a factor"}),
    NameOf);

// --- Language models ------------------------------------------------------------------------------

constexpr char kHidden[] =
    "g (float[B,S,4] hidden, int64[B,S] labels) => (float loss) "
    "<float[4,16] w, int64[2] rows = {-1, 16}, int64[1] flat = {-1}> ";
constexpr char kTail[] =
    "  l = Reshape (x, rows)  t = Reshape (labels, flat) "
    "  loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (l, t) }";

INSTANTIATE_TEST_SUITE_P(
    LanguageModels, Loss,
    testing::Values(
        Case{"LmHead", std::string(kHidden) + "{ x = MatMul (hidden, w) " + kTail, kFlce,
             "SoftmaxCrossEntropyLoss", "x l t loss", "hidden w labels",
             "nothing but the loss uses the logits"},
        Case{"ShiftBySlices",
             "g (float[B,S,4] hidden, int64[B,S] labels) => (float loss) "
             "<float[4,16] w, int64[2] rows = {-1, 16}, int64[1] flat = {-1}, int64[1] zero = {0}, "
             "int64[1] one = {1}, int64[1] end = {9223372036854775807}> "
             "{ x = MatMul (hidden, w)  f = Cast <to = 1> (x)  a = Slice (f, zero, flat, one) "
             "  b = Slice (labels, one, end, one)  l = Reshape (a, rows)  t = Reshape (b, flat) "
             "  loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (l, t) }",
             kFlce, "SoftmaxCrossEntropyLoss", "x f a b l t loss", "hidden w labels", "mean"},
        Case{"ShiftByPad",
             "g (float[B,S,4] hidden, int64[B,S] labels) => (float loss) "
             "<float[4,16] w, int64[2] rows = {-1, 16}, int64[1] flat = {-1}, int64[4] pads = {0, "
             "0, 0, 1}, int64 ignored = {-100}, int64[1] one = {1}, int64[1] end = "
             "{9223372036854775807}> "
             "{ x = MatMul (hidden, w)  p = Pad (labels, pads, ignored) "
             "  b = Slice (p, one, end, one)  l = Reshape (x, rows)  t = Reshape (b, flat) "
             "  loss = SoftmaxCrossEntropyLoss <ignore_index = -100> (l, t) }",
             kFlce, "SoftmaxCrossEntropyLoss", "x p b l t loss", "hidden w labels", "mean"},
        Case{"NumberOfItems",
             "g (float[B,S,4] hidden, int64[B,S] labels, float items) => (float loss) "
             "<float[4,16] w, int64[2] rows = {-1, 16}, int64[1] flat = {-1}> "
             "{ x = MatMul (hidden, w)  l = Reshape (x, rows)  t = Reshape (labels, flat) "
             "  c = SoftmaxCrossEntropyLoss <ignore_index = -100, reduction = \"sum\"> (l, t) "
             "  loss = Div (c, items) }",
             kFlce, "SoftmaxCrossEntropyLoss", "x l t c loss", "hidden w labels items",
             "divided by a count"},
        Case{"TiedWeight",
             "g (int64[B,S] ids, int64[B,S] labels) => (float loss) "
             "<float[16,4] table, int64[2] rows = {-1, 16}, int64[1] flat = {-1}> "
             "{ h = Gather (table, ids)  wt = Transpose <perm = [1, 0]> (table) "
             "  x = MatMul (h, wt) " +
                 std::string(kTail),
             kFlce, "SoftmaxCrossEntropyLoss", "x l t loss", "h table labels", "mean"},
        Case{"Gemm",
             "g (float[N,4] hidden, int64[N] target) => (float loss) <float[16,4] w, float[16] b> "
             "{ x = Gemm <transB = 1> (hidden, w, b)  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kFlce, "SoftmaxCrossEntropyLoss", "x loss", "hidden w b target", "mean"},
        Case{"Bias",
             "g (float[N,4] hidden, int64[N] target) => (float loss) <float[4,16] w, float[16] b> "
             "{ y = MatMul (hidden, w)  x = Add (b, y)  loss = SoftmaxCrossEntropyLoss (x, target) "
             "}",
             kFlce, "SoftmaxCrossEntropyLoss", "y x loss", "hidden w b target", "mean"},
        Case{"Quantized",
             "g (float[N,32] hidden, int64[N] target) => (float loss) <uint8[16,1,16] w, float[16] "
             "s> "
             "{ x = com.microsoft.MatMulNBits <K = 32, N = 16, bits = 4, block_size = 32> (hidden, "
             "w, "
             "s)  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kFlce, "SoftmaxCrossEntropyLoss", "x loss", "hidden w target", "mean"},
        Case{"SoftCap",
             "g (float[N,4] hidden, int64[N] target) => (float loss) <float[4,16] w, float c = "
             "{30}> "
             "{ y = MatMul (hidden, w)  d = Div (y, c)  h = Tanh (d)  x = Mul (h, c) "
             "  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kFlce, "SoftmaxCrossEntropyLoss", "y d h x loss", "hidden w target",
             "the logits are capped by tanh"},
        Case{
            "LogitScale",
            "g (float[N,4] hidden, int64[N] target) => (float loss) <float[4,16] w, float c = {8}> "
            "{ y = MatMul (hidden, w)  x = Mul (c, y)  loss = SoftmaxCrossEntropyLoss (x, target) "
            "}",
            kFlce, "SoftmaxCrossEntropyLoss", "y x loss", "hidden w target",
            "the logits are multiplied by a factor"},
        Case{"WrittenOutBehindLmHead",
             "g (float[N,4] hidden, int64[N,1] target) => (float loss) <float[4,16] w> "
             "{ x = MatMul (hidden, w)  z = ReduceLogSumExp <axes = [1]> (x) "
             "  p = GatherElements <axis = 1> (x, target)  n = Sub (z, p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kFlce, "ReduceLogSumExp + GatherElements", "x z p n loss", "hidden w target", "mean"},
        Case{
            "LogitsAreAnOutputToo",
            "g (float[N,4] hidden, int64[N] target) => (float loss, float[N,16] x) <float[4,16] w> "
            "{ x = MatMul (hidden, w)  loss = SoftmaxCrossEntropyLoss (x, target) }",
            kCe, "SoftmaxCrossEntropyLoss", "loss", "x target",
            "'x' is an output of the graph as well"},
        Case{"LogitsAreUsedElsewhere",
             "g (float[N,4] hidden, int64[N] target) => (float loss, int64[N,1] best) <float[4,16] "
             "w> "
             "{ x = MatMul (hidden, w)  loss = SoftmaxCrossEntropyLoss (x, target)  best = ArgMax "
             "<axis = 1> (x) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "x target", "used elsewhere as well (ArgMax"},
        Case{"CappedLogitsAreAnOutputToo",
             "g (float[N,4] hidden, int64[N] target) => (float loss, float[N,16] x) "
             "<float[4,16] w, float c = {30}> "
             "{ y = MatMul (hidden, w)  d = Div (y, c)  h = Tanh (d)  x = Mul (h, c) "
             "  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "x target", "'x' is an output"},
        Case{"ProductOfTwoActivations",
             "g (float[N,4] hidden, int64[N] target, float[4,16] other) => (float loss) "
             "{ x = MatMul (hidden, other)  loss = SoftmaxCrossEntropyLoss (x, target) }",
             kCe, "SoftmaxCrossEntropyLoss", "loss", "x target", "no product with a weight"}),
    NameOf);

// --- What only looks like it ----------------------------------------------------------------------

INSTANTIATE_TEST_SUITE_P(
    OtherLosses, Loss,
    testing::Values(
        Case{"LikelihoodOfProbabilities",
             std::string(kLogits) + "{ q = Softmax <axis = 1> (logits) "
                                    "  loss = NegativeLogLikelihoodLoss (q, target) }",
             kOther, "Softmax + NegativeLogLikelihoodLoss", "q loss", "logits target",
             "no logarithm between softmax and loss"},
        Case{"LikelihoodOfWhatIsGiven",
             std::string(kLogits) + "{ loss = NegativeLogLikelihoodLoss (logits, target) }", kOther,
             "NegativeLogLikelihoodLoss", "loss", "logits target",
             "values that no softmax of this graph makes"},
        Case{"PickedProbabilities",
             "g (float[N,16] logits, int64[N,1] target) => (float loss) "
             "{ q = Softmax (logits)  p = GatherElements <axis = 1> (q, target)  n = Neg (p) "
             "  loss = ReduceMean <keepdims = 0> (n) }",
             kOther, "Softmax + GatherElements", "q p n loss", "logits target",
             "there is no logarithm"},
        Case{"PickOnAnotherAxis",
             "g (float[N,16] logits, int64[1,16] target) => (float loss) "
             "{ lp = LogSoftmax <axis = 1> (logits)  p = GatherElements <axis = 0> (lp, target) "
             "  n = Neg (p)  loss = ReduceMean <keepdims = 0> (n) }",
             kOther, "LogSoftmax + GatherElements", "lp p n loss", "logits target",
             "the softmax runs over axis 1, the class is picked on axis 0"},
        Case{"SoftmaxOverAnotherAxisThanTheClasses",
             "g (float[B,16,S] logits, int64[B,S] target) => (float loss) "
             "{ lp = LogSoftmax <axis = 2> (logits) "
             "  loss = NegativeLogLikelihoodLoss (lp, target) }",
             kOther, "LogSoftmax + NegativeLogLikelihoodLoss", "lp loss", "logits target",
             "the softmax runs over axis 2, the classes are on axis 1"},
        Case{
            "Distillation",
            "g (float[N,16] logits, float[N,16] teacher) => (float loss) "
            "{ lp = LogSoftmax (logits)  lq = LogSoftmax (teacher)  d = Sub (lq, lp)  q = Exp (lq) "
            "  m = Mul (q, d)  t = ReduceSum <keepdims = 0> (m)  loss = Identity (t) }",
            kOther, "LogSoftmax + ReduceSum", "lp lq d q m t loss", "logits teacher",
            "its target is a distribution"},
        Case{"KullbackLeiblerOfGivenProbabilities",
             "g (float[N,16] logits, float[N,16] teacher) => (float loss) "
             "{ lp = LogSoftmax (logits)  a = Mul (teacher, lp)  l = Log (teacher) "
             "  b = Mul (teacher, l)  d = Sub (b, a)  loss = ReduceSum <keepdims = 0> (d) }",
             kOther, "LogSoftmax + ReduceSum", "lp a l b d loss", "logits teacher",
             "its target is a distribution"},
        Case{"SoftTargets",
             "g (float[N,16] logits, float[N,16] target) => (float loss) <int64[1] last = {-1}> "
             "{ lp = LogSoftmax (logits)  m = Mul (target, lp)  t = ReduceSum <keepdims = 0> (m, "
             "last) "
             "  n = Neg (t)  loss = ReduceMean <keepdims = 0> (n) }",
             kOther, "LogSoftmax + ReduceSum", "lp m t n loss", "logits target",
             "its target is a distribution"},
        Case{"DenseTargets",
             "g (float[N,16] logits, float[N,16] target) => (float loss) "
             "{ loss, lp = com.microsoft.SoftmaxCrossEntropy (logits, target) }",
             kOther, "SoftmaxCrossEntropy", "loss", "logits target",
             "its target is a distribution"},
        Case{"Gradient",
             "g (float d, float[N,16] lp, int64[N] target) => (float[N,16] dx) "
             "{ dx = com.microsoft.SoftmaxCrossEntropyLossInternalGrad (d, lp, target) }",
             kOther, "SoftmaxCrossEntropyLossInternalGrad", "dx", "", "the gradient of a loss"},
        Case{"SigmoidByTorchScript",
             "g (float[N,C] logits, float[N,C] target) => (float loss) <float one = {1}> "
             "{ s = Sigmoid (logits)  ls = Log (s)  r = Sub (one, s)  lr = Log (r) "
             "  u = Sub (one, target)  a = Mul (target, ls)  b = Mul (u, lr)  c = Add (a, b) "
             "  n = Neg (c)  loss = ReduceMean <keepdims = 0> (n) }",
             kOther, "Sigmoid + Log", "s ls r lr u a b c n loss", "logits target",
             "binary cross-entropy"},
        Case{"SigmoidByLogits",
             "g (float[N,C] logits, float[N,C] target) => (float loss) <float one = {1}> "
             "{ u = Sub (one, target)  a = Mul (u, logits)  s = Sigmoid (logits)  l = Log (s) "
             "  c = Sub (a, l)  loss = ReduceMean <keepdims = 0> (c) }",
             kOther, "Sigmoid + Log", "u a s l c loss", "logits target", "binary cross-entropy"},
        Case{"SigmoidStable",
             "g (float[N,C] logits, float[N,C] target) => (float loss) <float one = {1}, float "
             "zero = "
             "{0}> "
             "{ m = Max (logits, zero)  p = Mul (logits, target)  d = Sub (m, p)  a = Abs (logits) "
             "  n = Neg (a)  e = Exp (n)  o = Add (e, one)  l = Log (o)  c = Add (d, l) "
             "  loss = ReduceMean <keepdims = 0> (c) }",
             kOther, "Sigmoid + Log", "m p d a n e o l c loss", "logits target",
             "binary cross-entropy"},
        Case{"SigmoidBySoftplus",
             "g (float[N,C] logits, float[N,C] target) => (float loss) "
             "{ s = Softplus (logits)  p = Mul (target, logits)  c = Sub (s, p) "
             "  loss = ReduceMean <keepdims = 0> (c) }",
             kOther, "Sigmoid + Log", "s p c loss", "logits target", "binary cross-entropy"},
        Case{"SquaredError",
             "g (float[N,C] x, float[N,C] target) => (float loss) <float[4,4] w, float two = {2}> "
             "{ y = MatMul (x, w)  d = Sub (y, target)  q = Pow (d, two)  loss = ReduceMean "
             "<keepdims "
             "= 0> (q) }",
             kOther, "Sub + Pow", "d q loss", "y target", "a squared error"},
        Case{"AbsoluteError",
             "g (float[N,C] x, float[N,C] target) => (float loss) <float[4,4] w> "
             "{ y = MatMul (x, w)  d = Sub (target, y)  q = Abs (d)  loss = ReduceSum <keepdims = "
             "0> "
             "(q) }",
             kOther, "Sub + Abs", "d q loss", "y target", "an absolute error"}),
    NameOf);

class NoLoss : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(NoLoss, IsFound) {
  EXPECT_THAT(LossesOf(ModelFromText(Text(GetParam().second))), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    LookAlikes, NoLoss,
    testing::Values(
        std::pair{"LogProbabilitiesAsOutput",
                  "g (float[N,16] logits) => (float[N,16] lp) { lp = LogSoftmax (logits) }"},
        std::pair{"BestLogProbabilities",
                  "g (float[N,16] logits) => (float[N,4] best) <int64[1] k = {4}> "
                  "{ lp = LogSoftmax (logits)  v, i = TopK (logits, k) "
                  "  best = GatherElements <axis = 1> (lp, i) }"},
        std::pair{"LogProbabilityOfTheChosenToken",
                  "g (float[N,16] logits) => (float[N,1] best) "
                  "{ lp = LogSoftmax (logits)  i = ArgMax <axis = 1> (logits) "
                  "  best = GatherElements <axis = 1> (lp, i) }"},
        std::pair{"RoutingWeights",
                  "g (float[N,8] router, int64[N,2] expert) => (float[N,2] weight) "
                  "{ q = Softmax (router)  p = GatherElements <axis = 1> (q, expert) "
                  "  s = ReduceSum (p)  weight = Div (p, s) }"},
        std::pair{"Entropy",
                  "g (float[N,16] logits) => (float entropy) "
                  "{ lp = LogSoftmax (logits)  q = Softmax (logits)  m = Mul (q, lp) "
                  "  t = ReduceSum <keepdims = 0> (m)  entropy = Neg (t) }"},
        std::pair{
            "Variance",
            "g (float[N,16] x) => (float v) <float two = {2}> "
            "{ m = ReduceMean (x)  d = Sub (x, m)  q = Pow (d, two)  v = ReduceMean <keepdims "
            "= 0> (q) }"},
        std::pair{
            "SquaredDistanceInside",
            "g (float[N,16] x, float[N,16] y) => (float[N,16] z) <float two = {2}> "
            "{ d = Sub (x, y)  q = Pow (d, two)  m = ReduceMean <keepdims = 0> (q)  e = Exp (m) "
            "  z = Mul (x, e) }"},
        std::pair{"Mish",
                  "g (float[N,16] x) => (float[N,16] y) "
                  "{ s = Softplus (x)  t = Tanh (s)  y = Mul (x, t) }"},
        std::pair{
            "StateSpaceStep",
            "g (float[N,16] x, float[N,16] h) => (float[N,16] y) <float[16] a> "
            "{ d = Softplus (x)  e = Mul (d, a)  f = Exp (e)  g = Mul (d, h)  y = Add (f, g) }"},
        std::pair{"LogOfSigmoidAsOutput",
                  "g (float[N,16] x) => (float[N,16] y) { s = Sigmoid (x)  y = Log (s) }"},
        std::pair{"OneHotRouting",
                  "g (float[N,8] router, int64[N] expert) => (float[N] w) "
                  "<int64 depth = {8}, float[2] values = {0, 1}, int64[1] last = {-1}> "
                  "{ h = OneHot (expert, depth, values)  q = Softmax (router)  m = Mul (h, q) "
                  "  w = ReduceSum <keepdims = 0> (m, last) }"}),
    [](const auto& test) { return test.param.first; });

// --- Where they stand -----------------------------------------------------------------------------

TEST(FindLosses, LooksIntoBodiesAndAcrossTheirBorder) {
  const auto losses = LossesOf(ModelFromText(Text(R"(
g (bool train, float[N,16] logits, int64[N,1] target) => (float loss)
{
  lp = LogSoftmax (logits)
  loss = If (train) <
    then_branch = yes () => (float y) {
      p = GatherElements <axis = 1> (lp, target)
      n = Neg (p)
      y = ReduceMean <keepdims = 0> (n)
    },
    else_branch = no () => (float z) { z = Constant <value_float = 0.0> () }
  >
})")));
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(losses[0].module, kCe);
  EXPECT_EQ(Sentence(losses[0].nodes), "lp p n y");
  EXPECT_EQ(Sentence(losses[0].inputs), "logits target");
}

TEST(FindLosses, EndsAtTheAccumulatorOfALoop) {
  const auto losses = LossesOf(ModelFromText(Text(R"(
g (int64 chunks, float[N,16] logits, int64[N] target, float zero) => (float loss)
{
  loss = Loop (chunks, , zero) <
    body = step (int64 i, bool go, float sum) => (bool more, float next) {
      more = Identity (go)
      chunk = SoftmaxCrossEntropyLoss <reduction = "sum"> (logits, target)
      next = Add (sum, chunk)
    }
  >
})")));
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(Sentence(losses[0].nodes), "chunk");
}

TEST(FindLosses, LooksIntoLocalFunctions) {
  const auto losses = LossesOf(ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[N,4] h, int64[N] t) => (float y) <float[4,16] w> { y = own.Head (h, w, t) }
<domain: "own", opset_import: ["" : 17]>
Head (hidden, weight, target) => (loss)
{
  x = MatMul (hidden, weight)
  loss = SoftmaxCrossEntropyLoss (x, target)
})"));
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(losses[0].module, kFlce);
  EXPECT_EQ(Sentence(losses[0].inputs), "hidden weight target");
}

TEST(FindLosses, KeepsTwoLossesApart) {
  const auto losses = LossesOf(ModelFromText(Text(R"(
g (float[N,4] a, float[N,4] b, int64[N] target, float share) => (float loss) <float[4,16] w>
{
  x = MatMul (a, w)
  y = MatMul (b, w)
  first = SoftmaxCrossEntropyLoss (x, target)
  second = SoftmaxCrossEntropyLoss (y, target)
  part = Mul (second, share)
  loss = Add (first, part)
})")));
  ASSERT_THAT(losses, SizeIs(2));
  EXPECT_EQ(Sentence(losses[0].nodes), "x first");
  EXPECT_EQ(Sentence(losses[1].nodes), "y second part");
  EXPECT_EQ(Sentence(losses[1].inputs), "b w target share");
}

TEST(FindLosses, PreferenceLossesAreNamedOnce) {
  const auto losses = LossesOf(ModelFromText(Text(R"(
g (float[B,S,4] hidden, int64[B,S] labels, float[B] reference) => (float loss)
<float[4,16] w, int64[1] last = {-1}, float beta = {0.1}>
{
  x = MatMul (hidden, w)
  lp = LogSoftmax <axis = -1> (x)
  i = Unsqueeze (labels, last)
  p = GatherElements <axis = -1> (lp, i)
  s = Squeeze (p, last)
  logp = ReduceSum <keepdims = 0> (s, last)
  gain = Sub (logp, reference)
  scaled = Mul (gain, beta)
  chance = Sigmoid (scaled)
  log = Log (chance)
  mean = ReduceMean <keepdims = 0> (log)
  loss = Neg (mean)
})")));
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(losses[0].module, kFlce);
  EXPECT_EQ(Sentence(losses[0].nodes), "x lp i p s logp");
}

TEST(FindLosses, NamesNodesAndTheirModule) {
  onnx::ModelProto model =
      ModelFromText(Text(std::string(kLogits) + "{ [ce] loss = SoftmaxCrossEntropyLoss (logits, "
                                                "target) }"));
  auto* scope = model.mutable_graph()->mutable_node(0)->add_metadata_props();
  scope->set_key("namespace");
  scope->set_value(": my.Wrapper/model: my.Model/model.loss: my.Loss");
  const auto losses = LossesOf(model);
  ASSERT_THAT(losses, SizeIs(1));
  EXPECT_EQ(losses[0].node, "ce");
  EXPECT_EQ(losses[0].path, "model.loss");
}

// Whatever stands in a file: operators without operands, with too many, in any order of kinds.
TEST(FindLosses, NoGraphIsTooStrange) {
  const std::vector<std::string> ops = {"SoftmaxCrossEntropyLoss",
                                        "NegativeLogLikelihoodLoss",
                                        "LogSoftmax",
                                        "Softmax",
                                        "Log",
                                        "Exp",
                                        "ReduceSum",
                                        "ReduceMean",
                                        "ReduceMax",
                                        "ReduceLogSumExp",
                                        "GatherElements",
                                        "GatherND",
                                        "OneHot",
                                        "Equal",
                                        "Where",
                                        "Concat",
                                        "Pad",
                                        "Mul",
                                        "Sub",
                                        "Add",
                                        "Div",
                                        "Neg",
                                        "Reshape",
                                        "Transpose",
                                        "Cast",
                                        "Sigmoid",
                                        "Softplus",
                                        "Abs",
                                        "Pow",
                                        "Tanh",
                                        "MatMul",
                                        "Gemm",
                                        "Constant",
                                        "Slice",
                                        "ScatterElements",
                                        "Clip",
                                        "Max"};
  std::mt19937 random(20);
  const auto below = [&](size_t n) { return random() % n; };
  size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    onnx::ModelProto model =
        ModelFromText(Text("g (float[N,16] x, int64[N,1] t) => (float[N,16] y) "
                           "<float[1] one = {1}> { y = Identity (x) }"));
    std::vector<std::string> values = {"x", "t", "one", "y", ""};
    for (int n = 0; n < 14; ++n) {
      onnx::NodeProto& node = *model.mutable_graph()->add_node();
      node.set_op_type(ops[below(ops.size())]);
      for (size_t i = below(4); i > 0; --i) node.add_input(values[values.size() - 1 - below(5)]);
      const std::string name = "v" + std::to_string(n);
      if (below(12) > 0) node.add_output(name);
      if (below(12) > 0 && node.output_size() > 0) values.push_back(name);
    }
    found += LossesOf(std::move(model)).size();
  }
  EXPECT_GT(found, 100U);
}

// A million lookups and not a billion: with a walk through the whole graph for each pick this would
// not end.
TEST(FindLosses, ManyPicksOfOneSoftmax) {
  onnx::ModelProto model =
      ModelFromText(Text("g (float[N,16] logits, int64[N,1] target) => (float[N,16] lp) "
                         "{ lp = LogSoftmax (logits) }"));
  for (int i = 0; i < 30000; ++i) {
    onnx::NodeProto& node = *model.mutable_graph()->add_node();
    node.set_op_type("GatherElements");
    node.add_input("lp");
    node.add_input("target");
    node.add_output("p" + std::to_string(i));
  }
  EXPECT_THAT(LossesOf(model), SizeIs(30000));
}

TEST(FindLosses, LongChainsOfWhatLossesAreMadeOf) {
  onnx::ModelProto model = ModelFromText(
      Text("g (float[N,16] logits, int64[N,1] target) => (float[N,1] p) "
           "{ lp = LogSoftmax (logits)  p = GatherElements <axis = 1> (lp, target) }"));
  std::string last = "p";
  for (int i = 0; i < 30000; ++i) {
    onnx::NodeProto& node = *model.mutable_graph()->add_node();
    node.set_op_type(i % 2 == 0 ? "ReduceMean" : "Mul");
    node.add_input(last);
    if (i % 2 == 1) node.add_input(last);
    last = "v" + std::to_string(i);
    node.add_output(last);
  }
  EXPECT_THAT(LossesOf(model), SizeIs(1));
}

// Whatever the exporters wrote: what has a loss in its name has one, and nothing else has.
TEST(FindLosses, RealExports) {
  int with = 0;
  int without = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LIGER_MODELS_DIR)) {
    if (entry.path().extension() != ".onnx") continue;
    auto file = LoadModelFile(entry.path());
    ASSERT_OK(file);
    auto graph = BuildGraphModel(file->proto, file->folder);
    ASSERT_OK(graph);
    const std::vector<LossOpReport> losses = FindLosses(*graph);
    if (entry.path().filename().string().find("loss") == std::string::npos) {
      EXPECT_THAT(losses, IsEmpty()) << entry.path();
      ++without;
      continue;
    }
    ++with;
    ASSERT_THAT(losses, SizeIs(1)) << entry.path();
    EXPECT_EQ(losses[0].module, kCe);
    EXPECT_THAT(losses[0].inputs, ElementsAre("logits", "labels"));
    EXPECT_THAT(losses[0].reason, HasSubstr("'logits' is an output of the graph as well"));
  }
  EXPECT_GE(with, 1);
  EXPECT_GE(without, 20);
}

}  // namespace
}  // namespace liger
