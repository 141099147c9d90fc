// What only the GPU has: streams, captures into graphs, CUDA errors as status, tensors of more than
// 2^31 elements, and row counts that the host would take too long for.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "device_memory.h"
#include "kernel_test.h"
#include "liger/rms_norm.h"
#include "liger/rope.h"
#include "liger/softmax.h"
#include "liger/swiglu.h"
#include "oracle.h"

namespace liger::test {
namespace {

class Array {
 public:
  explicit Array(size_t bytes) : bytes_(bytes) { ExpectCuda(cudaMalloc(&data_, bytes)); }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

  // Repeats the tile over the whole array.
  void Fill(const std::vector<std::byte>& tile) const {
    size_t filled = std::min(tile.size(), bytes_);
    ExpectCuda(cudaMemcpy(data_, tile.data(), filled, cudaMemcpyHostToDevice));
    while (filled < bytes_) {
      const size_t more = std::min(filled, bytes_ - filled);
      ExpectCuda(cudaMemcpy(data() + filled, data_, more, cudaMemcpyDeviceToDevice));
      filled += more;
    }
  }

  // The bytes from `begin` on as a tensor.
  Tensor Read(size_t begin, DType dtype, std::vector<int64_t> shape) const {
    Tensor tensor{dtype, std::move(shape), {}};
    tensor.bytes.resize(static_cast<size_t>(tensor.size() * DTypeSize(dtype)));
    ExpectCuda(cudaMemcpy(tensor.bytes.data(), data() + begin, tensor.bytes.size(),
                          cudaMemcpyDeviceToHost));
    return tensor;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

bool HasFreeMemory(size_t bytes) {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && free > bytes + (size_t{1} << 30);
}

LigerRmsNormArgs RmsNormArgs(int64_t rows, int64_t hidden_size) {
  LigerRmsNormArgs args{};
  args.rows = rows;
  args.hidden_size = hidden_size;
  args.dtype = args.scale_dtype = args.scale_type = LIGER_BF16;
  args.stash_type = LIGER_F32;
  args.epsilon = 1e-6f;
  return args;
}

// Tiles of the input are equal, so tiles of the output have to be: the first against the oracle,
// the others against it, sampled where `rows` is large.
void ExpectTiledRmsNorm(int64_t rows, int64_t hidden_size) {
  constexpr int64_t kTileRows = 64;
  const size_t tile_bytes = static_cast<size_t>(kTileRows * hidden_size) * 2;
  const size_t bytes = static_cast<size_t>(rows * hidden_size) * 2;
  if (!HasFreeMemory(2 * bytes)) GTEST_SKIP() << "not enough device memory";
  const Tensor tile = RandomTensor(DType::kBF16, {kTileRows, hidden_size}, 1);
  const Tensor scale = RandomTensor(DType::kBF16, {hidden_size}, 2);
  const Array x(bytes), y(bytes), weights(scale.bytes.size());
  x.Fill(tile.bytes);
  y.Fill({std::byte{0xa5}});
  weights.Fill(scale.bytes);
  LigerRmsNormArgs args = RmsNormArgs(rows, hidden_size);
  args.x = x.data();
  args.y = y.data();
  args.scale = weights.data();
  ASSERT_EQ(LigerCudaRmsNorm(&args, nullptr), LIGER_OK);
  ExpectCuda(cudaDeviceSynchronize());
  const Tensor first = y.Read(0, DType::kBF16, tile.shape);
  RmsNormOptions options;
  options.scale_type = DType::kBF16;
  ExpectMatches(first, OracleRmsNorm(tile, {}, scale, options).y, static_cast<size_t>(hidden_size));
  const int64_t tiles = rows / kTileRows;
  for (int64_t i = 0; i < tiles; i += std::max<int64_t>(tiles / 500, 1)) {
    const int64_t at = i + 1 < tiles ? i : tiles - 1;
    const Tensor other = y.Read(static_cast<size_t>(at) * tile_bytes, DType::kBF16, tile.shape);
    ASSERT_EQ(other.bytes, first.bytes) << "tile " << at;
  }
  const Tensor last = y.Read(static_cast<size_t>(tiles - 1) * tile_bytes, DType::kBF16, tile.shape);
  ASSERT_EQ(last.bytes, first.bytes);
}

TEST(RmsNorm, MatchesOracleForManyShortRows) { ExpectTiledRmsNorm(524288, 128); }

TEST(RmsNorm, MatchesOracleBeyond32BitOffsets) { ExpectTiledRmsNorm(1 << 20, 4096); }

TEST(SwiGlu, MatchesOracleBeyond32BitOffsets) {
  for (const Packing packing : {Packing::kNone, Packing::kGateUp, Packing::kInterleaved}) {
    const int64_t width = 4096, tile_rows = 16, rows = 1 << 20;
    const bool is_packed = packing != Packing::kNone;
    const int64_t columns = is_packed ? 2 * width : width;
    const size_t y_bytes = static_cast<size_t>(rows * width) * 2;
    if (!HasFreeMemory(3 * y_bytes)) GTEST_SKIP() << "not enough device memory";
    const Tensor gate = RandomTensor(DType::kBF16, {tile_rows, columns}, 1, 2);
    const Tensor up = RandomTensor(DType::kBF16, {tile_rows, width}, 2);
    const Array gates(static_cast<size_t>(rows * columns) * 2), y(y_bytes);
    const std::unique_ptr<Array> ups = is_packed ? nullptr : std::make_unique<Array>(y_bytes);
    gates.Fill(gate.bytes);
    if (ups) ups->Fill(up.bytes);
    y.Fill({std::byte{0xa5}});
    LigerSwiGluArgs args{};
    args.gate = gates.data();
    args.up = ups ? ups->data() : nullptr;
    args.y = y.data();
    args.rows = rows;
    args.width = width;
    args.dtype = args.stash_type = LIGER_BF16;
    args.packed = static_cast<int32_t>(packing);
    args.alpha = args.gate_multiplier = 1;
    ASSERT_EQ(LigerCudaSwiGlu(&args, nullptr), LIGER_OK);
    ExpectCuda(cudaDeviceSynchronize());
    SwiGluOptions options;
    options.packing = packing;
    const std::vector<double> expected = OracleSwiGlu(gate, up, options);
    const size_t tile_bytes = static_cast<size_t>(tile_rows * width) * 2;
    const int64_t last = rows / tile_rows - 1;
    for (const int64_t at : {int64_t{0}, last / 3, last / 2 + 1, last}) {
      const auto tile = static_cast<size_t>(at);
      SCOPED_TRACE("tile " + std::to_string(tile));
      ExpectMatches(y.Read(tile * tile_bytes, DType::kBF16, {tile_rows, width}), expected,
                    static_cast<size_t>(width));
    }
  }
}

// More rows than the device has multiprocessors: blocks take several in turn.
TEST(Softmax, MatchesOracleForManyRows) {
  for (const int64_t width : {64, 4096, 16384, 32000, 128256}) {
    SCOPED_TRACE("width " + std::to_string(width));
    constexpr int64_t kTileRows = 7;
    const Tensor tile = RandomTensor(DType::kBF16, {kTileRows, width}, 1, 3);
    const int64_t rows = 100 * kTileRows;
    const size_t bytes = static_cast<size_t>(rows * width) * 2;
    const Array x(bytes), y(bytes);
    x.Fill(tile.bytes);
    y.Fill({std::byte{0xa5}});
    LigerSoftmaxArgs args{};
    args.x = x.data();
    args.y = y.data();
    args.rows = rows;
    args.width = width;
    args.dtype = LIGER_BF16;
    args.stash_type = LIGER_F32;
    ASSERT_EQ(LigerCudaSoftmax(&args, nullptr), LIGER_OK);
    ExpectCuda(cudaDeviceSynchronize());
    const std::vector<double> expected = OracleSoftmax(tile);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      SCOPED_TRACE("row " + std::to_string(row));
      ExpectMatches(y.Read(static_cast<size_t>(row * width) * 2, DType::kBF16, tile.shape),
                    expected, static_cast<size_t>(width));
    }
  }
}

TEST(Softmax, MatchesOracleBeyond32BitOffsets) {
  const int64_t width = 128256, tile_rows = 4, rows = 17000;
  const size_t bytes = static_cast<size_t>(rows * width) * 2;
  if (!HasFreeMemory(2 * bytes)) GTEST_SKIP() << "not enough device memory";
  const Tensor tile = RandomTensor(DType::kBF16, {tile_rows, width}, 1, 3);
  const Array x(bytes), y(bytes);
  x.Fill(tile.bytes);
  y.Fill({std::byte{0xa5}});
  LigerSoftmaxArgs args{};
  args.x = x.data();
  args.y = y.data();
  args.rows = rows;
  args.width = width;
  args.dtype = LIGER_BF16;
  args.stash_type = LIGER_F32;
  ASSERT_EQ(LigerCudaSoftmax(&args, nullptr), LIGER_OK);
  ExpectCuda(cudaDeviceSynchronize());
  const std::vector<double> expected = OracleSoftmax(tile);
  for (const int64_t row : {int64_t{0}, rows / 2 / tile_rows * tile_rows, rows - tile_rows}) {
    SCOPED_TRACE("row " + std::to_string(row));
    ExpectMatches(y.Read(static_cast<size_t>(row * width) * 2, DType::kBF16, tile.shape), expected,
                  static_cast<size_t>(width));
  }
}

TEST(Rope, MatchesOracleBeyond32BitOffsets) {
  const int64_t heads = 32, head_dim = 128, sequence = 1 << 19, tile = 8;
  const size_t bytes = static_cast<size_t>(sequence * heads * head_dim) * 2;
  if (!HasFreeMemory(2 * bytes)) GTEST_SKIP() << "not enough device memory";
  const Tensor x_tile = RandomTensor(DType::kBF16, {1, tile, heads, head_dim}, 1);
  const Tensor cos = RandomTensor(DType::kBF16, {1, 1, head_dim / 2}, 2);
  const Tensor sin = RandomTensor(DType::kBF16, {1, 1, head_dim / 2}, 3);
  const Array x(bytes), y(bytes), cosines(cos.bytes.size()), sines(sin.bytes.size());
  x.Fill(x_tile.bytes);
  y.Fill({std::byte{0xa5}});
  cosines.Fill(cos.bytes);
  sines.Fill(sin.bytes);
  LigerRopeArgs args{};
  args.x = x.data();
  args.y = y.data();
  args.cos = cosines.data();
  args.sin = sines.data();
  args.batch = 1;
  args.sequence = sequence;
  args.heads = heads;
  args.head_dim = args.rotary_dim = head_dim;
  args.dtype = args.table_dtype = LIGER_BF16;
  args.stash_type = LIGER_F32;
  args.layout = LIGER_SEQUENCE_FIRST;
  ASSERT_EQ(LigerCudaRope(&args, nullptr), LIGER_OK);
  ExpectCuda(cudaDeviceSynchronize());
  RopeOptions options;
  options.full_table = false;
  options.heads_first = false;
  options.rotary_dim = head_dim;
  const std::vector<double> expected = OracleRope(x_tile, cos, sin, options);
  for (const int64_t position : {int64_t{0}, sequence / 2 + tile, sequence - tile}) {
    SCOPED_TRACE("position " + std::to_string(position));
    ExpectMatches(
        y.Read(static_cast<size_t>(position * heads * head_dim) * 2, DType::kBF16, x_tile.shape),
        expected, static_cast<size_t>(head_dim));
  }
}

// A captured launch runs again with what its buffers then hold.
TEST(RmsNorm, IsCapturedIntoAGraph) {
  const Tensor scale = RandomTensor(DType::kBF16, {4096}, 2);
  const Array x(2 * 4096 * 2), y(2 * 4096 * 2), weights(scale.bytes.size());
  weights.Fill(scale.bytes);
  LigerRmsNormArgs args = RmsNormArgs(2, 4096);
  args.x = x.data();
  args.y = y.data();
  args.scale = weights.data();
  cudaStream_t stream;
  ExpectCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ExpectCuda(cudaDeviceSynchronize());
  ASSERT_EQ(LigerCudaRmsNorm(&args, stream), LIGER_OK);
  ExpectCuda(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ExpectCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(LigerCudaRmsNorm(&args, stream), LIGER_OK);
  ExpectCuda(cudaStreamEndCapture(stream, &graph));
  ExpectCuda(cudaGraphInstantiate(&executable, graph, 0));
  RmsNormOptions options;
  options.scale_type = DType::kBF16;
  for (const uint32_t seed : {3u, 4u}) {
    const Tensor input = RandomTensor(DType::kBF16, {2, 4096}, seed);
    x.Fill(input.bytes);
    ExpectCuda(cudaDeviceSynchronize());
    ExpectCuda(cudaGraphLaunch(executable, stream));
    ExpectCuda(cudaStreamSynchronize(stream));
    ExpectMatches(y.Read(0, DType::kBF16, input.shape), OracleRmsNorm(input, {}, scale, options).y,
                  4096);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST(Status, NamesBadArgumentsAndLeavesNoError) {
  LigerRmsNormArgs args = RmsNormArgs(2, 8);
  EXPECT_EQ(LigerCudaRmsNorm(&args, nullptr), LIGER_BAD_ARGUMENT);  // no x
  args.hidden_size = -1;
  EXPECT_EQ(LigerCudaRmsNorm(&args, nullptr), LIGER_BAD_SHAPE);
  args.dtype = 7;
  args.hidden_size = 8;
  EXPECT_EQ(LigerCudaRmsNorm(&args, nullptr), LIGER_BAD_DTYPE);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// In a capture of one stream a launch on the legacy stream is refused by the runtime.
TEST(Status, IsTheCudaErrorWhereTheRuntimeRefuses) {
  const Array x(4096 * 2), y(4096 * 2);
  LigerRmsNormArgs args = RmsNormArgs(1, 4096);
  args.x = x.data();
  args.y = y.data();
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  ExpectCuda(cudaStreamCreate(&stream));
  ExpectCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(LigerCudaRmsNorm(&args, cudaStreamLegacy),
            static_cast<int>(LIGER_CUDA_ERROR) + static_cast<int>(cudaErrorStreamCaptureImplicit));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cudaStreamEndCapture(stream, &graph);
  cudaGetLastError();
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace liger::test
