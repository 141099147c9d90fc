#include "liger/rope.h"

#include <gtest/gtest.h>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

struct Case {
  Tensor x;
  std::optional<Tensor> second_x;
  Tensor cos;  // [1 or batch, 1 or sequence, width]
  Tensor sin;
  RopeOptions options;
  DType stash_type = DType::kF32;
};

LigerRopeArgs ArgsOf(const Case& c) {
  LigerRopeArgs args{};
  const std::vector<int64_t>& shape = c.x.shape;
  args.batch = shape[0];
  args.heads = c.options.heads_first ? shape[1] : shape[2];
  args.sequence = c.options.heads_first ? shape[2] : shape[1];
  args.head_dim = shape[3];
  if (c.second_x) args.second_heads = c.second_x->shape[c.options.heads_first ? 1 : 2];
  args.rotary_dim = c.options.rotary_dim;
  args.rotary_offset = c.options.rotary_offset;
  const auto strides = [](const Tensor& table, int64_t& batch, int64_t& sequence) {
    sequence = table.shape[1] == 1 ? 0 : table.shape[2];
    batch = table.shape[0] == 1 ? 0 : table.shape[1] * table.shape[2];
  };
  strides(c.cos, args.cos_batch_stride, args.cos_sequence_stride);
  strides(c.sin, args.sin_batch_stride, args.sin_sequence_stride);
  args.dtype = static_cast<int32_t>(c.x.dtype);
  args.table_dtype = static_cast<int32_t>(c.cos.dtype);
  args.stash_type = static_cast<int32_t>(c.stash_type);
  args.layout = c.options.heads_first ? LIGER_HEADS_FIRST : LIGER_SEQUENCE_FIRST;
  args.interleaved = c.options.interleaved ? 1 : 0;
  args.full_table = c.options.full_table ? 1 : 0;
  return args;
}

void ExpectOracle(const Case& c) {
  const std::vector<double> y = OracleRope(c.x, c.cos, c.sin, c.options);
  std::vector<double> second_y;
  if (c.second_x) second_y = OracleRope(*c.second_x, c.cos, c.sin, c.options);
  ForEachTable([&](const cpu::KernelTable& table) {
    LigerRopeArgs args = ArgsOf(c);
    Buffer x(c.x), cos(c.cos), sin(c.sin), out(c.x.dtype, c.x.shape);
    std::optional<Buffer> second_x, second_out;
    args.x = x.data();
    args.cos = cos.data();
    args.sin = sin.data();
    args.y = out.data();
    if (c.second_x) {
      second_x.emplace(*c.second_x);
      second_out.emplace(c.x.dtype, c.second_x->shape);
      args.second_x = second_x->data();
      args.second_y = second_out->data();
    }
    // Three ranges: borders fall inside and between the two tensors.
    const int64_t rows = LigerRopeRows(&args);
    const int64_t cuts[] = {0, rows / 3, rows - rows / 4, rows};
    for (int i = 0; i < 3; ++i) table.rope(args, cuts[i], cuts[i + 1]);
    const size_t row = static_cast<size_t>(std::max<int64_t>(c.x.shape[3], 1));
    ExpectMatches(out.Read(), y, row);
    if (c.second_x) ExpectMatches(second_out->Read(), second_y, row);
  });
}

struct Sizes {
  int64_t batch = 2;
  int64_t heads = 3;
  int64_t sequence = 5;
  int64_t head_dim = 16;
};

// A table whose values stand twice where the form asks for it.
Tensor MakeTable(DType dtype, int64_t batch, int64_t sequence, const RopeOptions& options,
                 uint32_t seed) {
  const int64_t half = options.rotary_dim / 2;
  const std::vector<double> angles =
      RandomNormals(static_cast<size_t>(batch * sequence * half), seed, 3);
  const int64_t width = options.full_table ? 2 * half : half;
  std::vector<double> values(static_cast<size_t>(batch * sequence * width));
  for (int64_t row = 0; row < batch * sequence; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t pair = !options.full_table ? i : options.interleaved ? i / 2 : i % half;
      values[static_cast<size_t>(row * width + i)] =
          std::cos(angles[static_cast<size_t>(row * half + pair)]);
    }
  }
  return Tensor::FromDoubles(dtype, {batch, sequence, width}, values);
}

Case MakeCase(DType dtype, DType table_dtype, const Sizes& sizes, RopeOptions options,
              int64_t table_batch = 1, bool one_position = false) {
  if (options.rotary_dim == 0) options.rotary_dim = sizes.head_dim;
  Case c;
  c.options = options;
  const std::vector<int64_t> shape =
      options.heads_first
          ? std::vector<int64_t>{sizes.batch, sizes.heads, sizes.sequence, sizes.head_dim}
          : std::vector<int64_t>{sizes.batch, sizes.sequence, sizes.heads, sizes.head_dim};
  c.x = RandomTensor(dtype, shape, 1);
  const int64_t positions = one_position ? 1 : sizes.sequence;
  c.cos = MakeTable(table_dtype, table_batch, positions, options, 2);
  c.sin = MakeTable(table_dtype, table_batch, positions, options, 3);
  return c;
}

struct Types {
  DType dtype;
  DType table_dtype;
  DType stash_type;
};

constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32},  {DType::kF32, DType::kF32, DType::kF64},
    {DType::kF16, DType::kF16, DType::kF16},  {DType::kF16, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF64},  {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16, DType::kF64},
    {DType::kF64, DType::kF64, DType::kF64},  {DType::kF64, DType::kF32, DType::kF32},
};

// The shapes of models: grouped queries, partial rotation in front and behind, few positions and
// many.
TEST(Rope, MatchesOracleForTheShapesOfModels) {
  struct Shape {
    int64_t heads, second_heads, head_dim, rotary_dim, rotary_offset;
  };
  constexpr Shape kShapes[] = {{32, 8, 128, 128, 0}, {7, 1, 64, 64, 0},    {5, 5, 80, 32, 0},
                               {3, 2, 96, 96, 0},    {4, 1, 192, 64, 128}, {8, 4, 256, 256, 0},
                               {1, 1, 48, 16, 16},   {71, 1, 64, 64, 0}};
  for (const int i : {0, 3, 5}) {
    for (const Shape& shape : kShapes) {
      for (int form = 0; form < 8; ++form) {
        for (const int64_t sequence : {1, 9, 300}) {
          if (sequence > 9 && (shape.heads > 5 || form > 4)) continue;  // to save time
          SCOPED_TRACE("types " + std::to_string(i) + " head_dim " +
                       std::to_string(shape.head_dim) + " form " + std::to_string(form) +
                       " sequence " + std::to_string(sequence));
          RopeOptions options;
          options.interleaved = (form & 1) != 0;
          options.full_table = (form & 2) != 0;
          options.heads_first = (form & 4) != 0;
          options.rotary_dim = shape.rotary_dim;
          options.rotary_offset = shape.rotary_offset;
          Sizes sizes{2, shape.heads, sequence, shape.head_dim};
          Case c = MakeCase(kTypes[i].dtype, kTypes[i].table_dtype, sizes, options, 2);
          c.stash_type = kTypes[i].stash_type;
          sizes.heads = shape.second_heads;
          c.second_x = MakeCase(kTypes[i].dtype, kTypes[i].table_dtype, sizes, options).x;
          ExpectOracle(c);
        }
      }
    }
  }
}

TEST(Rope, MatchesOracleForEveryFormTypeAndWidth) {
  for (const Types& types : kTypes) {
    for (const int64_t head_dim : {2, 4, 6, 8, 10, 16, 18, 34, 64, 80, 128}) {
      for (int form = 0; form < 8; ++form) {
        RopeOptions options;
        options.interleaved = (form & 1) != 0;
        options.full_table = (form & 2) != 0;
        options.heads_first = (form & 4) != 0;
        SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " head_dim " + std::to_string(head_dim) +
                     " form " + std::to_string(form));
        Sizes sizes;
        sizes.head_dim = head_dim;
        Case c = MakeCase(types.dtype, types.table_dtype, sizes, options);
        c.stash_type = types.stash_type;
        ExpectOracle(c);
      }
    }
  }
}

TEST(Rope, CopiesColumnsOutsideTheRotaryPart) {
  for (const Types& types : kTypes) {
    for (const bool interleaved : {false, true}) {
      for (const int64_t offset : {0, 3, 22}) {
        RopeOptions options;
        options.interleaved = interleaved;
        options.rotary_dim = 10;
        options.rotary_offset = offset;
        Sizes sizes;
        sizes.head_dim = 32;
        ExpectOracle(MakeCase(types.dtype, types.table_dtype, sizes, options));
      }
    }
  }
}

TEST(Rope, RotatesTwoTensorsWithOneTable) {
  for (const Types& types : kTypes) {
    for (const bool heads_first : {true, false}) {
      for (const int64_t second_heads : {1, 2, 7}) {
        RopeOptions options;
        options.heads_first = heads_first;
        Case c = MakeCase(types.dtype, types.table_dtype, Sizes(), options);
        std::vector<int64_t> shape = c.x.shape;
        shape[heads_first ? 1 : 2] = second_heads;
        c.second_x = RandomTensor(types.dtype, shape, 4);
        ExpectOracle(c);
      }
    }
  }
}

TEST(Rope, BroadcastsTablesOverBatchAndSequence) {
  for (const bool heads_first : {true, false}) {
    for (const int64_t table_batch : {1, 2}) {
      for (const bool one_position : {true, false}) {
        RopeOptions options;
        options.heads_first = heads_first;
        ExpectOracle(
            MakeCase(DType::kF32, DType::kF32, Sizes(), options, table_batch, one_position));
      }
    }
  }
  Case mixed = MakeCase(DType::kF32, DType::kF32, Sizes(), RopeOptions(), 2);
  mixed.sin = MakeTable(DType::kF32, 1, 1, mixed.options, 3);
  ExpectOracle(mixed);
}

TEST(Rope, AcceptsEmptyTensors) {
  for (const Sizes& sizes : {Sizes{0, 3, 5, 16}, Sizes{2, 0, 5, 16}, Sizes{2, 3, 0, 16}}) {
    ExpectOracle(MakeCase(DType::kF32, DType::kF32, sizes, RopeOptions()));
  }
  // A head of no columns, and a rotation of none: y is x.
  ExpectOracle(MakeCase(DType::kF32, DType::kF32, Sizes{2, 3, 5, 0}, RopeOptions()));
  Case none = MakeCase(DType::kF16, DType::kF16, Sizes(), RopeOptions());
  none.options.rotary_dim = 0;
  ExpectOracle(none);
}

TEST(Rope, KeepsNanAndInfInTheirPair) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    Case c = MakeCase(dtype, dtype, Sizes(), RopeOptions());
    std::vector<double> values = c.x.ToDoubles();
    values[3] = std::numeric_limits<double>::quiet_NaN();
    values[21] = std::numeric_limits<double>::infinity();
    c.x = Tensor::FromDoubles(dtype, c.x.shape, values);
    ExpectOracle(c);
  }
}

TEST(Rope, MayWriteOverItsInput) {
  for (const bool interleaved : {false, true}) {
    RopeOptions options;
    options.interleaved = interleaved;
    options.rotary_offset = 2;
    options.rotary_dim = 10;
    const Case c = MakeCase(DType::kF32, DType::kF32, Sizes(), options);
    const std::vector<double> y = OracleRope(c.x, c.cos, c.sin, c.options);
    ForEachTable([&](const cpu::KernelTable& table) {
      LigerRopeArgs args = ArgsOf(c);
      Buffer x(c.x), cos(c.cos), sin(c.sin);
      args.x = args.y = x.data();
      args.cos = cos.data();
      args.sin = sin.data();
      table.rope(args, 0, LigerRopeRows(&args));
      ExpectMatches(x.Read(), y, 16);
    });
  }
}

TEST(Rope, RefusesBadArguments) {
  const Case c = MakeCase(DType::kF32, DType::kF32, Sizes(), RopeOptions());
  Buffer x(c.x), cos(c.cos), sin(c.sin), y(c.x.dtype, c.x.shape);
  LigerRopeArgs good = ArgsOf(c);
  good.x = x.data();
  good.cos = cos.data();
  good.sin = sin.data();
  good.y = y.data();
  EXPECT_EQ(LigerCpuRope(&good, 0, 30), LIGER_OK);
  EXPECT_EQ(LigerCpuRope(&good, 0, 31), LIGER_BAD_SHAPE);
  const auto status = [&](auto change) {
    LigerRopeArgs args = good;
    change(args);
    return LigerCpuRope(&args, 0, 0);
  };
  EXPECT_EQ(status([](auto& a) { a.rotary_dim = 3; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.rotary_dim = 18; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.rotary_offset = 2; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.heads = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.table_dtype = LIGER_BF16; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.second_heads = 1; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.sin = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.layout = 2; }), LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
