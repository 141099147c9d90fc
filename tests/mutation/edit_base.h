// What edits of a model have in common: finding a place by chance, changing constants and attributes,
// inserting nodes.
//
//   class MyEdits : public EditBase {
//    public:
//     using EditBase::EditBase;
//     bool DropNeg() {
//       const int n = Pick({"Neg"});
//       if (n < 0) return false;   // no place
//       graph_.mutable_node(n)->set_op_type("Identity");
//       return Note(graph_.node(n), "Neg -> Identity");
//     }
//   };
//
// Every choice is drawn from the generator of the context: the same state gives the same edit.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mutator.h"

namespace liger::test {

struct EditContext {
  Mutant& mutant;
  const std::set<std::string>& preferred;
  const std::map<std::string, MutantType>& types;
  std::mt19937_64& random;
};

// A named kind of edit; false if the model has no place for it.
using EditKind = std::pair<std::string, std::function<bool(const EditContext&)>>;

class EditBase {
 public:
  explicit EditBase(const EditContext& context);

 protected:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  static onnx::NodeProto Node(const std::string& op, std::vector<std::string> inputs,
                              std::vector<std::string> outputs);
  // The node with a second input; its first one is still to come.
  static onnx::NodeProto With(onnx::NodeProto node, const std::string& second_input);
  static onnx::AttributeProto& FreshAttribute(onnx::NodeProto& node, const std::string& name,
                                              onnx::AttributeProto::AttributeType type);
  static void RemoveAttribute(onnx::NodeProto& node, const std::string& name);
  static void IntAttribute(onnx::NodeProto& node, const std::string& name, int64_t value);
  static void FloatAttribute(onnx::NodeProto& node, const std::string& name, float value);
  static void IntsAttribute(onnx::NodeProto& node, const std::string& name,
                            const std::vector<int64_t>& values);
  static void AddBody(onnx::NodeProto& node, const std::string& name, const onnx::GraphProto& body);
  std::string Fresh(const std::string& base);
  bool Note(const onnx::NodeProto& node, const std::string& what);
  // A random node of one of the types (any if empty) that the predicate likes; -1 if there is none.
  int Pick(std::initializer_list<const char*> types,
           const std::function<bool(const onnx::NodeProto&)>& likes = nullptr);
  int PickFloatOutput();
  // A node that reads a float scalar constant, and where.
  int PickScalarUse(std::initializer_list<const char*> types, int* slot,
                    const std::function<bool(const onnx::NodeProto&)>& likes);
  bool ReplaceScalar(int n, int slot, const std::function<double(double)>& change);
  // Edits the edge into one float input of a node.
  bool OnEdge(const std::function<bool(int, int)>& edit);
  // Puts a chain of nodes, which lack first input and output, in front of an input.
  bool Between(int n, int slot, std::vector<onnx::NodeProto> chain, const std::string& note);
  // Whether all inputs of `node` are known in front of position n.
  bool Precede(const onnx::NodeProto& node, int n) const;
  std::map<std::string, int> Producers() const;
  const MutantType* TypeOf(const std::string& value) const;
  bool IsFloat(const std::string& value) const;
  // The first input of the type of the first output, or -1.
  int SameTypeInput(const onnx::NodeProto& node) const;
  // The input that is a constant [H], or -1.
  int RowSlot(const onnx::NodeProto& node) const;
  // The tensor behind an initializer or a Constant node.
  const onnx::TensorProto* Constant(const std::string& value) const;
  static std::optional<double> ScalarOf(const onnx::TensorProto& tensor);
  std::string AddConstant(int32_t dtype, const std::vector<int64_t>& dims,
                          const std::vector<double>& values);
  std::string AddInts(const std::vector<int64_t>& values);
  std::string AddBool(bool value);
  void Insert(int position, const onnx::NodeProto& node);
  static void AddValueInfo(onnx::ValueInfoProto& info, const std::string& name,
                           const MutantType& type);
  bool AddOutput(const std::string& value);
  bool AddOutput(const std::string& value, const std::string& typed_like);

  Mutant& mutant_;
  onnx::GraphProto& graph_;
  const std::set<std::string>& preferred_;
  const std::map<std::string, MutantType>& types_;
  std::mt19937_64& random_;
  int64_t opset_ = 0;
};

// The kind that is a method of a class of edits.
template <typename Edits>
EditKind KindOf(const std::string& name, bool (Edits::*method)()) {
  return {name, [method](const EditContext& context) {
            Edits edits(context);
            return (edits.*method)();
          }};
}

}  // namespace liger::test
