#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace liger::test {

RmsNormResult OracleRmsNorm(const Tensor& x, const std::optional<Tensor>& residual,
                            const std::optional<Tensor>& scale, const RmsNormOptions& options) {
  const size_t hidden_size = static_cast<size_t>(x.shape.back());
  std::vector<double> values = x.ToDoubles();
  if (residual) {
    const std::vector<double> added = residual->ToDoubles();
    for (size_t i = 0; i < values.size(); ++i) values[i] = RoundTo(x.dtype, values[i] + added[i]);
  }
  const std::vector<double> weights = scale ? scale->ToDoubles() : std::vector<double>();
  const auto round = [&](double value) { return RoundTo(options.scale_type, value); };
  RmsNormResult result{std::vector<double>(values.size()), values};
  for (size_t row = 0; row + hidden_size <= values.size() && hidden_size > 0; row += hidden_size) {
    double squares = 0;
    for (size_t i = 0; i < hidden_size; ++i) squares += values[row + i] * values[row + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(hidden_size) +
                                      static_cast<double>(options.epsilon));
    for (size_t i = 0; i < hidden_size; ++i) {
      double value = round(values[row + i] * rstd);
      if (scale) {
        const double weight = round(round(static_cast<double>(options.offset)) + round(weights[i]));
        value = round(value * weight);
      }
      result.y[row + i] = RoundTo(x.dtype, value);
    }
  }
  return result;
}

std::vector<double> OracleRope(const Tensor& x, const Tensor& cos, const Tensor& sin,
                               const RopeOptions& options) {
  const std::vector<double> in = x.ToDoubles();
  const std::vector<double> c = cos.ToDoubles();
  const std::vector<double> s = sin.ToDoubles();
  std::vector<double> out = in;
  const int64_t outer = x.shape[1];
  const int64_t inner = x.shape[2];
  const int64_t head_dim = x.shape[3];
  const int64_t half = options.rotary_dim / 2;
  for (int64_t row = 0; row < x.shape[0] * outer * inner; ++row) {
    const int64_t batch = row / (outer * inner);
    const int64_t position = options.heads_first ? row % inner : row / inner % outer;
    const auto table_at = [&](const Tensor& table, const std::vector<double>& values,
                              int64_t pair) {
      const int64_t b = table.shape[0] == 1 ? 0 : batch;
      const int64_t p = table.shape[1] == 1 ? 0 : position;
      const int64_t column = options.interleaved && options.full_table ? 2 * pair : pair;
      return values[static_cast<size_t>((b * table.shape[1] + p) * table.shape[2] + column)];
    };
    for (int64_t pair = 0; pair < half; ++pair) {
      const int64_t first = options.rotary_offset + (options.interleaved ? 2 * pair : pair);
      const int64_t second = options.interleaved ? first + 1 : first + half;
      const size_t at_a = static_cast<size_t>(row * head_dim + first);
      const size_t at_b = static_cast<size_t>(row * head_dim + second);
      const double cosine = table_at(cos, c, pair);
      const double sine = table_at(sin, s, pair);
      out[at_a] = RoundTo(x.dtype, in[at_a] * cosine - in[at_b] * sine);
      out[at_b] = RoundTo(x.dtype, in[at_b] * cosine + in[at_a] * sine);
    }
  }
  return out;
}

namespace {

// Calls body(i, gate, up) for every element of y, where `width` is that of y.
template <typename Body>
void ForEachGated(const Tensor& gate, const Tensor& up, Packing packing, Body body) {
  const std::vector<double> first = gate.ToDoubles();
  const std::vector<double> second = packing == Packing::kNone ? up.ToDoubles() : first;
  const size_t columns = static_cast<size_t>(gate.shape.back());
  const size_t width = packing == Packing::kNone ? columns : columns / 2;
  const size_t size = packing == Packing::kNone ? first.size() : first.size() / 2;
  for (size_t i = 0; i < size; ++i) {
    const size_t row = i / width * columns;
    const size_t column = i % width;
    switch (packing) {
      case Packing::kNone:
        body(i, first[i], second[i]);
        break;
      case Packing::kGateUp:
        body(i, first[row + column], first[row + width + column]);
        break;
      case Packing::kUpGate:
        body(i, first[row + width + column], first[row + column]);
        break;
      case Packing::kInterleaved:
        body(i, first[row + 2 * column], first[row + 2 * column + 1]);
        break;
    }
  }
}

size_t GatedSize(const Tensor& gate, Packing packing) {
  const size_t size = static_cast<size_t>(gate.size());
  return packing == Packing::kNone ? size : size / 2;
}

// NaN is neither above nor below.
void Clamp(double limit, double& g, double& u) {
  if (limit > 0 && g > limit) g = limit;
  if (limit > 0 && u > limit) u = limit;
  if (limit > 0 && u < -limit) u = -limit;
}

// (v - mean) / deviation of the values [begin, end).
template <typename Store>
void Normalise(const std::vector<double>& values, size_t begin, size_t end, float epsilon,
               Store store) {
  long double sum = 0, squares = 0;
  for (size_t i = begin; i < end; ++i) sum += static_cast<long double>(values[i]);
  const long double count = static_cast<long double>(end - begin);
  const long double mean = sum / count;
  for (size_t i = begin; i < end; ++i) {
    const long double centred = static_cast<long double>(values[i]) - mean;
    squares += centred * centred;
  }
  const long double deviation = std::sqrt(squares / count + static_cast<long double>(epsilon));
  for (size_t i = begin; i < end; ++i) {
    store(i, static_cast<double>((static_cast<long double>(values[i]) - mean) / deviation));
  }
}

// n * scale + bias with every step rounded to the scale type, then to the dtype.
double ScaleAndShift(double n, const double* scale, const double* bias, DType scale_type,
                     DType dtype) {
  const auto round = [&](double value) { return RoundTo(scale_type, value); };
  double value = round(n);
  if (scale != nullptr) value = round(value * round(*scale));
  if (bias != nullptr) value = round(value + round(*bias));
  return RoundTo(dtype, value);
}

}  // namespace

std::vector<double> OracleSwiGlu(const Tensor& gate, const Tensor& up,
                                 const SwiGluOptions& options) {
  std::vector<double> y(GatedSize(gate, options.packing));
  ForEachGated(gate, up, options.packing, [&](size_t i, double g, double u) {
    g *= static_cast<double>(options.gate_multiplier);
    Clamp(static_cast<double>(options.limit), g, u);
    double a = g * (1 / (1 + std::exp(-static_cast<double>(options.alpha) * g)));
    if (options.round_activation) a = RoundTo(gate.dtype, a);
    y[i] = RoundTo(gate.dtype, a * (u + static_cast<double>(options.up_offset)));
  });
  return y;
}

std::vector<double> OracleGeGlu(const Tensor& gate, const Tensor& up, const GeGluOptions& options) {
  const double a = RoundTo(options.stash_type, 0.044715);
  const double b = RoundTo(options.stash_type, 0.7978845608028654);
  const double alpha = RoundTo(options.stash_type, 1.702);
  const auto sigmoid = [](long double z) { return 1 / (1 + std::exp(-z)); };
  // What g is multiplied with; (1 + tanh(z)) / 2 = sigmoid(2 z), (1 + erf(z)) / 2 = erfc(-z) / 2.
  const auto factor = [&](long double g) -> long double {
    switch (options.form) {
      case Gelu::kTanh:
        return sigmoid(2 * static_cast<long double>(b) *
                       (g + static_cast<long double>(a) * g * g * g));
      case Gelu::kExact:
        return std::erfc(-g / std::sqrt(2.0L)) / 2;
      default:
        return sigmoid(static_cast<long double>(alpha) * g);
    }
  };
  // What underflows there is 0, and 0 * inf is NaN.
  const bool wide = gate.dtype == DType::kF64 || options.stash_type == DType::kF64;
  const DType arithmetic = wide ? DType::kF64 : DType::kF32;
  std::vector<double> y(GatedSize(gate, options.packing));
  ForEachGated(gate, up, options.packing, [&](size_t i, double g, double u) {
    Clamp(static_cast<double>(options.limit), g, u);
    double activated =
        RoundTo(arithmetic, static_cast<double>(static_cast<long double>(g) * factor(g)));
    double shifted = u + static_cast<double>(options.up_offset);
    if (options.round_activation) {
      activated = RoundTo(gate.dtype, activated);
      shifted = RoundTo(gate.dtype, shifted);
    }
    y[i] = RoundTo(gate.dtype, activated * shifted);
  });
  return y;
}

RmsNormResult OracleLayerNorm(const Tensor& x, const std::optional<Tensor>& residual,
                              const std::optional<Tensor>& scale, const std::optional<Tensor>& bias,
                              const LayerNormOptions& options) {
  const size_t hidden_size = static_cast<size_t>(x.shape.back());
  std::vector<double> values = x.ToDoubles();
  if (residual) {
    const std::vector<double> added = residual->ToDoubles();
    for (size_t i = 0; i < values.size(); ++i) values[i] = RoundTo(x.dtype, values[i] + added[i]);
  }
  const std::vector<double> w = scale ? scale->ToDoubles() : std::vector<double>();
  const std::vector<double> b = bias ? bias->ToDoubles() : std::vector<double>();
  RmsNormResult result{std::vector<double>(values.size()), values};
  for (size_t row = 0; row + hidden_size <= values.size() && hidden_size > 0; row += hidden_size) {
    Normalise(values, row, row + hidden_size, options.epsilon, [&](size_t i, double n) {
      result.y[i] = ScaleAndShift(n, scale ? &w[i - row] : nullptr, bias ? &b[i - row] : nullptr,
                                  options.scale_type, x.dtype);
    });
  }
  return result;
}

std::vector<double> OracleGroupNorm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                    int64_t num_groups, const LayerNormOptions& options) {
  const std::vector<double> values = x.ToDoubles(), w = scale.ToDoubles(), b = bias.ToDoubles();
  std::vector<double> y(values.size());
  if (values.empty()) return y;
  const size_t channels = static_cast<size_t>(x.shape[1]);
  const size_t spatial = values.size() / static_cast<size_t>(x.shape[0]) / channels;
  const size_t group = channels / static_cast<size_t>(num_groups) * spatial;
  for (size_t begin = 0; begin < values.size(); begin += group) {
    Normalise(values, begin, begin + group, options.epsilon, [&](size_t i, double n) {
      const size_t c = i / spatial % channels;
      y[i] = ScaleAndShift(n, &w[c], &b[c], options.scale_type, x.dtype);
    });
  }
  return y;
}

std::vector<double> OracleSoftmax(const Tensor& x) {
  const size_t width = static_cast<size_t>(x.shape.back());
  const std::vector<double> values = x.ToDoubles();
  std::vector<double> y(values.size());
  for (size_t row = 0; row < values.size(); row += width) {
    double largest = -std::numeric_limits<double>::infinity();
    long double sum = 0;
    for (size_t i = row; i < row + width; ++i) largest = std::max(largest, values[i]);
    for (size_t i = row; i < row + width; ++i)
      sum += std::exp(static_cast<long double>(values[i] - largest));
    for (size_t i = row; i < row + width; ++i) {
      const long double e = std::exp(static_cast<long double>(values[i] - largest));
      y[i] = RoundTo(x.dtype, static_cast<double>(e / sum));
    }
  }
  return y;
}

}  // namespace liger::test
