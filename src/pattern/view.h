// The canonical view of one graph: the term of every value, read only.
//
//   GraphView view(model, 0, canonicalizer);
//   TermId t = view.term(value);
//
// Values with equal terms compute the same. A value whose node changes nothing (a Cast to its own
// dtype, a Reshape to its own shape) is an alias of that node's input and has the input's term.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "model/graph.h"
#include "pattern/canonical.h"

namespace liger {

class GraphView {
 public:
  GraphView(const GraphModel& model, int graph, Canonicalizer& canonicalizer);

  const GraphModel& model() const { return model_; }
  const Graph& graph() const { return graph_; }
  Canonicalizer& canonicalizer() const { return canonicalizer_; }
  const TermStore& terms() const { return canonicalizer_.terms(); }

  TermId term(ValueId value) const { return terms_of_[value]; }
  // The earlier value that `value` repeats, or kNone.
  ValueId alias_of(ValueId value) const { return alias_of_[value]; }
  // `value`, or what it is an alias of in the end.
  ValueId Origin(ValueId value) const;
  // The first value of the graph with that term, not an alias; kNone if no value has it.
  ValueId FirstValue(TermId term) const;
  // The name and operator of a term for people: "'val_12' (ReduceMean)".
  std::string Describe(TermId term) const;

 private:
  ValueId FindAlias(const Node& node, TermId term) const;
  TermId TermOfSource(const Value& value, ValueId id);

  const GraphModel& model_;
  const Graph& graph_;
  Canonicalizer& canonicalizer_;
  std::vector<TermId> terms_of_;
  std::vector<ValueId> alias_of_;
  std::unordered_map<TermId, ValueId> first_value_;
};

}  // namespace liger
