// LigerRope(x, cos, sin, second_x?) -> y, second_y?
// x: [batch, heads, sequence, head_dim] (BNSD), [batch, sequence, heads, head_dim] (BSND) or
// [sequence, heads, head_dim] (SND); cos, sin broadcast against x from the right, over its heads.
#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

enum class Layout { kBnsd, kBsnd, kSnd };

struct Attributes {
  Layout layout = Layout::kBnsd;
  int64_t rotary_dim = 0;
  int64_t rotary_offset = 0;
};

// Sizes of one of the two rotated tensors.
struct Sizes {
  int64_t batch = 1;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
};

class RopeKernel : public Kernel {
 public:
  RopeKernel(const NodeInfo& node, const Attributes& attributes, const LigerRopeArgs& plan)
      : label_(node.label()),
        launchers_(node.launchers()),
        input_count_(node.input_count()),
        attributes_(attributes),
        plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor x, cos, sin, second_x;
    if (Status status = ReadInput(context, 0, x); !status) return status;
    if (Status status = ReadInput(context, 1, cos); !status) return status;
    if (Status status = ReadInput(context, 2, sin); !status) return status;
    if (input_count_ > 3) {
      if (Status status = ReadInput(context, 3, second_x); !status) return status;
    }

    Sizes sizes, second;
    if (Status status = ReadSizes("x", x, sizes); !status) return status;
    LigerRopeArgs args = plan_;
    args.batch = sizes.batch;
    args.sequence = sizes.sequence;
    args.heads = sizes.heads;
    args.head_dim = sizes.head_dim;
    args.rotary_offset = attributes_.rotary_offset;
    args.rotary_dim = attributes_.rotary_dim == 0 ? sizes.head_dim : attributes_.rotary_dim;
    if (args.rotary_offset > args.head_dim ||
        args.rotary_dim > args.head_dim - args.rotary_offset || args.rotary_dim % 2 != 0) {
      return Invalid("input 'x' has shape " + DimsText(x.dims()) +
                     ", whose last dimension cannot hold " + std::to_string(args.rotary_dim) +
                     " rotated columns in pairs behind " + std::to_string(args.rotary_offset) +
                     " others");
    }
    if (second_x.present()) {
      if (Status status = ReadSizes("second_x", second_x, second); !status) return status;
      if (second.batch != sizes.batch || second.sequence != sizes.sequence ||
          second.head_dim != sizes.head_dim) {
        return Invalid("input 'second_x' has shape " + DimsText(second_x.dims()) +
                       ", which differs from that of 'x', " + DimsText(x.dims()) +
                       ", in more than its heads");
      }
      args.second_heads = second.heads;
    }
    if (Status status =
            ReadTable("cos", cos, args, x, args.cos_batch_stride, args.cos_sequence_stride);
        !status) {
      return status;
    }
    if (Status status =
            ReadTable("sin", sin, args, x, args.sin_batch_stride, args.sin_sequence_stride);
        !status) {
      return status;
    }

    Result<OutputTensor> y = MakeOutput(context, 0, x.dims());
    if (!y) return y.error();
    args.y = y->data;
    if (second_x.present()) {
      Result<OutputTensor> second_y = MakeOutput(context, 1, second_x.dims());
      if (!second_y) return second_y.error();
      args.second_y = second_y->data;
      args.second_x = second_x.data();
    }
    args.x = x.data();
    args.cos = cos.data();
    args.sin = sin.data();
    return launchers_.rope(context, args);
  }

 private:
  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

  Status ReadSizes(const char* name, const InputTensor& tensor, Sizes& sizes) const {
    const size_t rank = attributes_.layout == Layout::kSnd ? 3 : 4;
    if (tensor.rank() != rank) {
      return Invalid("input '" + std::string(name) + "' has shape " + DimsText(tensor.dims()) +
                     ", expected " + std::to_string(rank) + " dimensions");
    }
    sizes.head_dim = tensor.FromEnd(0);
    const bool heads_first = attributes_.layout == Layout::kBnsd;
    sizes.sequence = tensor.FromEnd(heads_first ? 1 : 2);
    sizes.heads = tensor.FromEnd(heads_first ? 2 : 1);
    if (rank == 4) sizes.batch = tensor.FromEnd(3);
    return {};
  }

  // Strides of a table of width W that broadcasts against x from the right: the sequence dimension
  // is that of x or 1, the batch dimension likewise, the head dimension 1; leading ones may be
  // missing.
  Status ReadTable(const char* name, const InputTensor& table, const LigerRopeArgs& args,
                   const InputTensor& x, int64_t& batch_stride, int64_t& sequence_stride) const {
    const int64_t width = args.full_table != 0 ? args.rotary_dim : args.rotary_dim / 2;
    const bool heads_first = attributes_.layout == Layout::kBnsd;
    const auto dim = [&table](size_t from_end) {
      return from_end < table.rank() ? table.FromEnd(from_end) : 1;
    };
    const int64_t sequence = dim(heads_first ? 1 : 2);
    const int64_t heads = dim(heads_first ? 2 : 1);
    const int64_t batch = dim(3);
    const bool fits = table.rank() >= 1 && table.rank() <= x.rank() && dim(0) == width &&
                      (sequence == 1 || sequence == args.sequence) && heads == 1 &&
                      (batch == 1 || batch == args.batch);
    if (!fits) {
      return Invalid("input '" + std::string(name) + "' has shape " + DimsText(table.dims()) +
                     ", which does not broadcast over the heads of 'x', " + DimsText(x.dims()) +
                     ", with rows of " + std::to_string(width) + " values");
    }
    sequence_stride = sequence == 1 ? 0 : width;
    batch_stride = batch == 1 ? 0 : sequence * width;
    return {};
  }

  std::string label_;
  const Launchers& launchers_;
  size_t input_count_;
  Attributes attributes_;
  LigerRopeArgs plan_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRope(const NodeInfo& node) {
  const bool has_second_x = node.input_count() > 3;
  const bool has_second_y = node.output_count() > 1;
  if (has_second_x && !has_second_y) {
    return node.Invalid("there is an input 'second_x' but no output 'second_y'");
  }
  if (!has_second_x && has_second_y) {
    return node.Invalid("there is an output 'second_y' but no input 'second_x'");
  }
  Result<int64_t> interleaved = node.Int("interleaved");
  if (!interleaved) return interleaved.error();
  if (*interleaved != 0 && *interleaved != 1) {
    return node.Invalid("attribute 'interleaved' is " + std::to_string(*interleaved) +
                        ", expected 0 or 1");
  }
  Result<int64_t> rotary_dim = node.Int("rotary_dim");
  if (!rotary_dim) return rotary_dim.error();
  if (*rotary_dim < 0 || *rotary_dim % 2 != 0) {
    return node.Invalid("attribute 'rotary_dim' is " + std::to_string(*rotary_dim) +
                        ", expected an even number, or 0 for the whole last dimension");
  }
  Result<int64_t> rotary_offset = node.Int("rotary_offset");
  if (!rotary_offset) return rotary_offset.error();
  if (*rotary_offset < 0 || (*rotary_dim == 0 && *rotary_offset != 0)) {
    return node.Invalid("attribute 'rotary_offset' is " + std::to_string(*rotary_offset) +
                        ", expected at least 0, and 0 where rotary_dim is 0");
  }
  Result<std::string> layout = node.String("layout");
  if (!layout) return layout.error();
  Result<std::string> table = node.String("table");
  if (!table) return table.error();
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();

  Attributes attributes;
  attributes.layout = *layout == "BNSD"   ? Layout::kBnsd
                      : *layout == "BSND" ? Layout::kBsnd
                                          : Layout::kSnd;
  attributes.rotary_dim = *rotary_dim;
  attributes.rotary_offset = *rotary_offset;
  LigerRopeArgs plan{};
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.table_dtype = static_cast<int32_t>(node.Find("S"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  plan.layout = attributes.layout == Layout::kBnsd ? LIGER_HEADS_FIRST : LIGER_SEQUENCE_FIRST;
  plan.interleaved = static_cast<int32_t>(*interleaved);
  plan.full_table = *table == "full" ? 1 : 0;
  return std::unique_ptr<Kernel>(std::make_unique<RopeKernel>(node, attributes, plan));
}

}  // namespace liger::ort
