// The format-neutral graph that everything but src/model works on: nodes, values, types and
// constants, read only. Changes are made on the model itself (model/model.h, model/edit.h).
//
// A model is a flat list of graphs: index 0 is the main graph, then the bodies of If, Loop and Scan
// and of local functions in the order in which they stand. Ids are indices into `Graph::nodes` and
// `Graph::values` and stay valid as long as the graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace liger {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

// One dimension: a number, a symbol, or unknown. Two symbolic dimensions are equal only by name; an
// unknown dimension equals nothing, not even itself.
struct Dim {
  int64_t value = -1;  // >= 0 if known
  std::string symbol;  // not empty if symbolic

  bool is_known() const { return value >= 0; }
  bool SameAs(const Dim& other) const {
    return is_known() ? value == other.value : !symbol.empty() && symbol == other.symbol;
  }
};
using Shape = std::vector<Dim>;

struct ValueType {
  DType dtype = DType::kUndefined;
  std::optional<Shape> shape;  // absent if the rank is unknown
};

// "[2, S, 32]", "[?]" for an unknown dimension, "unknown shape".
std::string ToString(const std::optional<Shape>& shape);

// A small constant with its elements. Floating-point elements are in `floats`, all others in
// `ints`.
struct Tensor {
  DType dtype = DType::kUndefined;
  std::vector<int64_t> dims;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  bool operator==(const Tensor&) const = default;
};

// A reference from inside a function to one of the function's attributes: `<epsilon = @epsilon>`.
struct AttributeRef {
  std::string name;
  bool operator==(const AttributeRef&) const = default;
};

struct Attribute {
  using Value = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                             std::vector<std::string>, Tensor, AttributeRef>;
  std::string name;
  Value value;
};

// A number or word for people: "1e-06", "BNSD"; empty for lists and tensors.
std::string AttributeText(const Attribute::Value& value);

struct Node {
  std::string name;  // may be empty
  std::string op_type;
  std::string domain;  // "" for the default domain (also where the file says "ai.onnx")
  std::string overload;
  std::vector<ValueId> inputs;   // kNone where an optional input is left out
  std::vector<ValueId> outputs;  // kNone where an optional output is left out
  std::vector<Attribute> attributes;
  bool has_other_attributes = false;  // of kinds that `attributes` does not hold
  std::vector<int> bodies;            // indices of graphs in GraphModel::graphs
  std::vector<ValueId> captures;      // values of this graph that the bodies use by name
  std::vector<std::pair<std::string, std::string>> metadata;

  const Attribute* FindAttribute(std::string_view attribute) const {
    for (const Attribute& a : attributes) {
      if (a.name == attribute) return &a;
    }
    return nullptr;
  }
};

struct Value {
  std::string name;
  ValueType type;
  NodeId producer = kNone;
  int output_index = 0;    // among the producer's outputs
  bool is_input = false;   // of this graph
  bool is_output = false;  // of this graph
  bool is_initializer = false;
  ValueId outer = kNone;      // the value of the parent graph that this name captures
  std::vector<NodeId> users;  // nodes of this graph, one entry per use

  // An initializer that is also a graph input can be overridden by the caller and is no constant.
  bool is_constant_initializer() const { return is_initializer && !is_input; }
};

struct Graph {
  int index = 0;
  int parent = kNone;          // graph that holds `parent_node`
  NodeId parent_node = kNone;  // the If, Loop or Scan whose body this is
  bool is_function = false;    // body of a local function: its values carry no types
  std::string name;
  std::vector<Node> nodes;  // in topological order
  std::vector<Value> values;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::unordered_map<std::string, ValueId> by_name;
};

// One read of a stored tensor's bytes.
struct WeightRead {
  std::string tensor;
  std::string file;  // empty where the payload stands in the model file
  int64_t bytes = 0;
};

// Reads constants, only when asked. Every read of external data is remembered.
class ConstantReader {
 public:
  virtual ~ConstantReader() = default;

  // The elements of an initializer, if it has at most `max_bytes` bytes and can be read. Cached.
  virtual std::shared_ptr<const Tensor> Read(const Graph& graph, ValueId value,
                                             int64_t max_bytes) = 0;

  // The same, but never from outside of the model's file.
  virtual std::shared_ptr<const Tensor> ReadInline(const Graph& graph, ValueId value,
                                                   int64_t max_bytes) = 0;

  virtual const std::vector<WeightRead>& external_reads() const = 0;
};

struct GraphModel {
  std::vector<Graph> graphs;                          // graphs[0] is the main graph
  std::map<std::string, int64_t> opsets;              // domain ("" is the default) to version
  std::map<std::string, std::string> metadata;        // of the model
  std::map<std::string, std::string> graph_metadata;  // of the main graph
  std::string producer;
  int64_t ir_version = 0;
  std::shared_ptr<ConstantReader> constants;

  const Graph& main() const { return graphs.front(); }
};

}  // namespace liger
