#include "oracle.h"

#include <cmath>

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

std::vector<double> OracleSwiGlu(const Tensor& gate, const Tensor& up,
                                 const SwiGluOptions& options) {
  const std::vector<double> first = gate.ToDoubles();
  const std::vector<double> second =
      options.packing == Packing::kNone ? up.ToDoubles() : std::vector<double>();
  const size_t columns = static_cast<size_t>(gate.shape.back());
  const size_t width = options.packing == Packing::kNone ? columns : columns / 2;
  const size_t size = options.packing == Packing::kNone ? first.size() : first.size() / 2;
  std::vector<double> y(size);
  for (size_t i = 0; i < size; ++i) {
    const size_t row = i / width * columns;
    const size_t column = i % width;
    double g = 0, u = 0;
    switch (options.packing) {
      case Packing::kNone:
        g = first[i], u = second[i];
        break;
      case Packing::kGateUp:
        g = first[row + column], u = first[row + width + column];
        break;
      case Packing::kUpGate:
        u = first[row + column], g = first[row + width + column];
        break;
      case Packing::kInterleaved:
        g = first[row + 2 * column], u = first[row + 2 * column + 1];
        break;
    }
    g *= static_cast<double>(options.gate_multiplier);
    const double limit = static_cast<double>(options.limit);
    if (limit > 0 && g > limit) g = limit;
    if (limit > 0 && u > limit) u = limit;
    if (limit > 0 && u < -limit) u = -limit;
    double a = g * (1 / (1 + std::exp(-static_cast<double>(options.alpha) * g)));
    if (options.round_activation) a = RoundTo(gate.dtype, a);
    y[i] = RoundTo(gate.dtype, a * (u + static_cast<double>(options.up_offset)));
  }
  return y;
}

}  // namespace liger::test
