#include "liger/geglu.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr Gelu kForms[] = {Gelu::kTanh, Gelu::kExact, Gelu::kSigmoid};
constexpr Packing kPackings[] = {Packing::kNone, Packing::kGateUp, Packing::kUpGate,
                                 Packing::kInterleaved};

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

LigerGeGluArgs ArgsOf(const Tensor& gate, const GeGluOptions& options) {
  LigerGeGluArgs args{};
  args.width = options.packing == Packing::kNone ? gate.shape[1] : gate.shape[1] / 2;
  args.rows = gate.shape[0];
  args.dtype = static_cast<int32_t>(gate.dtype);
  args.stash_type = static_cast<int32_t>(options.stash_type);
  args.packed = static_cast<int32_t>(options.packing);
  args.form = static_cast<int32_t>(options.form);
  args.limit = options.limit;
  args.up_offset = options.up_offset;
  return args;
}

void ExpectOracle(const Tensor& gate, const Tensor& up, GeGluOptions options) {
  options.round_activation = DTypeSize(gate.dtype) == 2 && options.stash_type == DType::kF32;
  const std::vector<double> expected = OracleGeGlu(gate, up, options);
  LigerGeGluArgs args = ArgsOf(gate, options);
  ForEachTable([&](const cpu::KernelTable& table) {
    Buffer gate_buffer(gate), up_buffer(up), y(gate.dtype, {args.rows, args.width});
    args.gate = gate_buffer.data();
    args.up = options.packing == Packing::kNone ? up_buffer.data() : nullptr;
    args.y = y.data();
    // Three ranges with borders inside rows.
    const int64_t size = args.rows * args.width;
    const int64_t cuts[] = {0, size / 3, size - size / 4, size};
    for (int i = 0; i < 3; ++i) table.geglu(args, cuts[i], cuts[i + 1]);
    // Half types row by row; the relative L2 of the others is that of the whole tensor.
    const int64_t row = DTypeSize(gate.dtype) == 2 ? args.width : size;
    ExpectMatches(y.Read(), expected, static_cast<size_t>(std::max<int64_t>(row, 1)), 0.004);
  });
}

std::string Describe(const Types& types, const GeGluOptions& options) {
  return std::string(DTypeName(types.dtype)) + " stash " +
         std::string(DTypeName(types.stash_type)) + " form " +
         std::to_string(static_cast<int>(options.form)) + " packing " +
         std::to_string(static_cast<int>(options.packing));
}

void RunAll(const GeGluOptions& base) {
  for (const Types& types : kTypes) {
    for (const Gelu form : kForms) {
      for (const Packing packing : kPackings) {
        for (const int64_t width : {1, 2, 3, 7, 8, 9, 16, 31, 64, 301}) {
          GeGluOptions options = base;
          options.form = form;
          options.packing = packing;
          options.stash_type = types.stash_type;
          SCOPED_TRACE(Describe(types, options) + " width " + std::to_string(width));
          const int64_t columns = packing == Packing::kNone ? width : 2 * width;
          ExpectOracle(RandomTensor(types.dtype, {3, columns}, 1, 2),
                       RandomTensor(types.dtype, {3, width}, 2, 2), options);
        }
      }
    }
  }
}

TEST(GeGlu, MatchesOracleForEveryFormPackingTypeAndWidth) { RunAll({}); }

// As wide as models are, for few rows and for many.
TEST(GeGlu, MatchesOracleForWideRows) {
  for (const int i : {0, 3, 6}) {
    for (const Gelu form : kForms) {
      for (const Packing packing : {Packing::kNone, Packing::kUpGate}) {
        for (const int64_t width : {1000, 14336}) {
          for (const int64_t rows : {1, 70}) {
            GeGluOptions options;
            options.form = form;
            options.packing = packing;
            options.stash_type = kTypes[i].stash_type;
            SCOPED_TRACE(Describe(kTypes[i], options) + " width " + std::to_string(width) +
                         " rows " + std::to_string(rows));
            const int64_t columns = packing == Packing::kNone ? width : 2 * width;
            ExpectOracle(RandomTensor(kTypes[i].dtype, {rows, columns}, 1, 2),
                         RandomTensor(kTypes[i].dtype, {rows, width}, 2, 2), options);
          }
        }
      }
    }
  }
}

TEST(GeGlu, AppliesLimitAndOffset) {
  GeGluOptions options;
  options.limit = 1.5f;
  options.up_offset = 1;
  RunAll(options);
  options.limit = 0;
  options.up_offset = 0.3f;
  RunAll(options);
}

// Each row of the same size: near zero the result is a tenth of a percent away from gate / 2, and
// for large values it is gate or 0.
TEST(GeGlu, KeepsRelativePrecisionForSmallAndLargeGates) {
  for (const Types& types : kTypes) {
    for (const Gelu form : kForms) {
      for (const double size : {1e-30, 1e-6, 1e-3, 0.05, 0.5, 5.0, 30.0, 1e4}) {
        if (types.dtype == DType::kF16 && size < 1e-4) continue;  // not a number of f16
        GeGluOptions options;
        options.form = form;
        options.stash_type = types.stash_type;
        SCOPED_TRACE(Describe(types, options) + " size " + std::to_string(size));
        ExpectOracle(RandomTensor(types.dtype, {2, 77}, 1, size),
                     RandomTensor(types.dtype, {2, 77}, 2), options);
      }
    }
  }
}

// Where 1 + tanh and 1 + erf cancel: single elements against the oracle.
TEST(GeGlu, KeepsRelativePrecisionOfTheNegativeTail) {
  std::vector<double> gates;
  for (double g = -12; g < 0; g += 0.01) gates.push_back(g);
  const int64_t size = static_cast<int64_t>(gates.size());
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Gelu form : kForms) {
      GeGluOptions options;
      options.form = form;
      options.stash_type = dtype;
      const Tensor gate = Tensor::FromDoubles(dtype, {1, size}, gates);
      const Tensor up = Tensor::FromDoubles(dtype, {1, size}, std::vector<double>(gates.size(), 1));
      const std::vector<double> expected = OracleGeGlu(gate, up, options);
      ForEachTable([&](const cpu::KernelTable& table) {
        Buffer gate_buffer(gate), up_buffer(up), y(dtype, gate.shape);
        LigerGeGluArgs args = ArgsOf(gate, options);
        args.gate = gate_buffer.data();
        args.up = up_buffer.data();
        args.y = y.data();
        table.geglu(args, 0, size);
        const std::vector<double> values = y.Read().ToDoubles();
        for (size_t i = 0; i < values.size(); ++i) {
          // The argument z of the exponential is rounded: an error of z * 2^-24 and a few of p.
          const double tolerance = dtype == DType::kF32 ? 4e-5 : 4e-14;
          ASSERT_NEAR(values[i], expected[i],
                      tolerance * std::abs(expected[i]) + (dtype == DType::kF32 ? 1e-37 : 0))
              << gates[i];
        }
      });
    }
  }
}

// One element at a time and all at once: vector and tail code see each special value.
TEST(GeGlu, TreatsSpecialValuesAsTheFormulaDoes) {
  const double values[] = {0.0, -0.0, kNan, kInf, -kInf, 20, -20, 88, -88, 1e4, -1e4};
  std::vector<double> gates, ups;
  for (const double gate : values) {
    for (const double up : values) {
      gates.push_back(gate);
      ups.push_back(up);
    }
  }
  const int64_t size = static_cast<int64_t>(gates.size());
  for (const Types& types : kTypes) {
    for (const Gelu form : kForms) {
      for (const float limit : {0.f, 7.f}) {
        GeGluOptions options;
        options.form = form;
        options.stash_type = types.stash_type;
        options.limit = limit;
        SCOPED_TRACE(Describe(types, options) + " limit " + std::to_string(limit));
        for (const int64_t rows : {int64_t{1}, size}) {
          ExpectOracle(Tensor::FromDoubles(types.dtype, {rows, size / rows}, gates),
                       Tensor::FromDoubles(types.dtype, {rows, size / rows}, ups), options);
        }
      }
    }
  }
}

TEST(GeGlu, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    for (const Packing packing : kPackings) {
      GeGluOptions options;
      options.packing = packing;
      options.stash_type = types.stash_type;
      ExpectOracle(RandomTensor(types.dtype, {0, 4}, 1), RandomTensor(types.dtype, {0, 4}, 2),
                   options);
      ExpectOracle(RandomTensor(types.dtype, {4, 0}, 1), RandomTensor(types.dtype, {4, 0}, 2),
                   options);
    }
  }
}

TEST(GeGlu, MayWriteOverItsInput) {
  const Tensor gate = RandomTensor(DType::kBF16, {2, 37}, 1);
  const Tensor up = RandomTensor(DType::kBF16, {2, 37}, 2);
  GeGluOptions options;
  options.stash_type = DType::kBF16;
  const std::vector<double> expected = OracleGeGlu(gate, up, options);
  ForEachTable([&](const cpu::KernelTable& table) {
    for (const bool over_gate : {true, false}) {
      Buffer first(gate), second(up);
      LigerGeGluArgs args = ArgsOf(gate, options);
      args.gate = first.data();
      args.up = second.data();
      args.y = over_gate ? first.data() : second.data();
      table.geglu(args, 0, 74);
      ExpectMatches((over_gate ? first : second).Read(), expected, 37, 0.004);
    }
  });
}

TEST(GeGlu, RefusesBadArguments) {
  float gate[4] = {}, up[4] = {}, y[4] = {};
  LigerGeGluArgs good{};
  good.gate = gate;
  good.up = up;
  good.y = y;
  good.rows = good.width = 2;
  good.dtype = good.stash_type = LIGER_F32;
  EXPECT_EQ(LigerCpuGeGlu(&good, 0, 4), LIGER_OK);
  EXPECT_EQ(LigerCpuGeGlu(&good, 0, 5), LIGER_BAD_SHAPE);
  const auto status = [&](auto change) {
    LigerGeGluArgs args = good;
    change(args);
    return LigerCpuGeGlu(&args, 0, 0);
  };
  EXPECT_EQ(status([](auto& a) { a.rows = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.dtype = 0; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.up = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.packed = LIGER_GATE_UP; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.form = 3; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.limit = -1; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.up_offset = std::numeric_limits<float>::infinity(); }),
            LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
