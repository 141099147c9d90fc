#include "liger/swiglu.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

LigerSwiGluArgs ArgsOf(const Tensor& gate, const SwiGluOptions& options, DType stash_type) {
  LigerSwiGluArgs args{};
  args.width = options.packing == Packing::kNone ? gate.shape[1] : gate.shape[1] / 2;
  args.rows = gate.shape[0];
  args.dtype = static_cast<int32_t>(gate.dtype);
  args.stash_type = static_cast<int32_t>(stash_type);
  args.packed = static_cast<int32_t>(options.packing);
  args.alpha = options.alpha;
  args.gate_multiplier = options.gate_multiplier;
  args.limit = options.limit;
  args.up_offset = options.up_offset;
  return args;
}

void ExpectOracle(const Tensor& gate, const Tensor& up, SwiGluOptions options, DType stash_type) {
  const bool half = DTypeSize(gate.dtype) == 2;
  options.round_activation = half && stash_type == DType::kF32;
  const std::vector<double> expected = OracleSwiGlu(gate, up, options);
  LigerSwiGluArgs args = ArgsOf(gate, options, stash_type);
  ForEachTable([&](const cpu::KernelTable& table) {
    Buffer gate_buffer(gate), up_buffer(up), y(gate.dtype, {args.rows, args.width});
    args.gate = gate_buffer.data();
    args.up = options.packing == Packing::kNone ? up_buffer.data() : nullptr;
    args.y = y.data();
    // Three ranges with borders inside rows.
    const int64_t size = args.rows * args.width;
    const int64_t cuts[] = {0, size / 3, size - size / 4, size};
    for (int i = 0; i < 3; ++i) table.swiglu(args, cuts[i], cuts[i + 1]);
    ExpectMatches(y.Read(), expected, static_cast<size_t>(std::max<int64_t>(args.width, 1)));
  });
}

struct Types {
  DType dtype;
  DType stash_type;
};

constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32},  {DType::kF32, DType::kF64},  {DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32},  {DType::kF16, DType::kF64},  {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kF64}, {DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32},
};

constexpr Packing kPackings[] = {Packing::kNone, Packing::kGateUp, Packing::kUpGate,
                                 Packing::kInterleaved};

void RunAll(const SwiGluOptions& base) {
  for (const Types& types : kTypes) {
    for (const Packing packing : kPackings) {
      for (const int64_t width : {1, 2, 3, 7, 8, 9, 16, 31, 64, 301}) {
        SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " stash " +
                     std::string(DTypeName(types.stash_type)) + " packing " +
                     std::to_string(static_cast<int>(packing)) + " width " + std::to_string(width));
        SwiGluOptions options = base;
        options.packing = packing;
        const int64_t columns = packing == Packing::kNone ? width : 2 * width;
        ExpectOracle(RandomTensor(types.dtype, {3, columns}, 1, 4),
                     RandomTensor(types.dtype, {3, width}, 2, 4), options, types.stash_type);
      }
    }
  }
}

TEST(SwiGlu, MatchesOracleForEveryPackingTypeAndWidth) { RunAll({}); }

// As wide as models are, for few rows and for many.
TEST(SwiGlu, MatchesOracleForWideRows) {
  for (const int i : {0, 3, 6}) {
    for (const Packing packing : kPackings) {
      for (const int64_t width : {1000, 2052, 14336}) {
        for (const int64_t rows : {1, 70}) {
          SCOPED_TRACE("types " + std::to_string(i) + " packing " +
                       std::to_string(static_cast<int>(packing)) + " width " +
                       std::to_string(width) + " rows " + std::to_string(rows));
          SwiGluOptions options;
          options.packing = packing;
          const int64_t columns = packing == Packing::kNone ? width : 2 * width;
          ExpectOracle(RandomTensor(kTypes[i].dtype, {rows, columns}, 1, 4),
                       RandomTensor(kTypes[i].dtype, {rows, width}, 2, 4), options,
                       kTypes[i].stash_type);
        }
      }
    }
  }
}

TEST(SwiGlu, AppliesAlphaMultiplierLimitAndOffset) {
  SwiGluOptions options;
  options.alpha = 1.702f;
  options.limit = 7;
  options.up_offset = 1;
  RunAll(options);
  options.gate_multiplier = 0.5f;
  options.limit = 1.5f;
  RunAll(options);
}

// One element at a time: vector and tail code see each special value.
TEST(SwiGlu, TreatsSpecialValuesAsTheFormulaDoes) {
  const double values[] = {0.0, -0.0, kNan, kInf, -kInf, 20, -20, 88, -88, 100, -100, 1e4, -1e4};
  std::vector<double> gates, ups;
  for (const double gate : values) {
    for (const double up : values) {
      gates.push_back(gate);
      ups.push_back(up);
    }
  }
  const int64_t size = static_cast<int64_t>(gates.size());
  for (const Types& types : kTypes) {
    for (const float limit : {0.f, 7.f}) {
      SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " limit " + std::to_string(limit));
      SwiGluOptions options;
      options.limit = limit;
      for (const int64_t rows : {int64_t{1}, size}) {
        ExpectOracle(Tensor::FromDoubles(types.dtype, {rows, size / rows}, gates),
                     Tensor::FromDoubles(types.dtype, {rows, size / rows}, ups), options,
                     types.stash_type);
      }
    }
  }
}

TEST(SwiGlu, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    for (const Packing packing : kPackings) {
      SwiGluOptions options;
      options.packing = packing;
      ExpectOracle(RandomTensor(types.dtype, {0, 4}, 1), RandomTensor(types.dtype, {0, 4}, 2),
                   options, types.stash_type);
      ExpectOracle(RandomTensor(types.dtype, {4, 0}, 1), RandomTensor(types.dtype, {4, 0}, 2),
                   options, types.stash_type);
    }
  }
}

TEST(SwiGlu, MayWriteOverItsInput) {
  const Tensor gate = RandomTensor(DType::kF16, {2, 37}, 1);
  const Tensor up = RandomTensor(DType::kF16, {2, 37}, 2);
  const std::vector<double> expected = OracleSwiGlu(gate, up, {});
  ForEachTable([&](const cpu::KernelTable& table) {
    for (const bool over_gate : {true, false}) {
      Buffer first(gate), second(up);
      LigerSwiGluArgs args = ArgsOf(gate, {}, DType::kF16);
      args.gate = first.data();
      args.up = second.data();
      args.y = over_gate ? first.data() : second.data();
      table.swiglu(args, 0, 74);
      ExpectMatches((over_gate ? first : second).Read(), expected, 37);
    }
  });
}

TEST(SwiGlu, RefusesBadArguments) {
  float gate[4] = {}, up[4] = {}, y[4] = {};
  LigerSwiGluArgs good{};
  good.gate = gate;
  good.up = up;
  good.y = y;
  good.rows = good.width = 2;
  good.dtype = good.stash_type = LIGER_F32;
  good.alpha = good.gate_multiplier = 1;
  EXPECT_EQ(LigerCpuSwiGlu(&good, 0, 4), LIGER_OK);
  EXPECT_EQ(LigerCpuSwiGlu(&good, 0, 5), LIGER_BAD_SHAPE);
  const auto status = [&](auto change) {
    LigerSwiGluArgs args = good;
    change(args);
    return LigerCpuSwiGlu(&args, 0, 0);
  };
  EXPECT_EQ(status([](auto& a) { a.rows = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.dtype = 0; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.up = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.packed = LIGER_GATE_UP; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.packed = 4; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.limit = -1; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.alpha = std::numeric_limits<float>::infinity(); }),
            LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
