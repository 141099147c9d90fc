// Finds an own op as its text is written, node by node.
//
//   if (auto binding = MatchNodes(view, instance, root)) ...
//
// The canonical view finds every spelling that means the same, where it can show that without the
// shapes of the graph: a text does not know them. What stands in the graph as in the text is found
// here. In both ways the text, put in its place, has to come to the same term
// (OpPatternSet::EvaluateInPlace); attributes of operators and constants are compared by that alone.
#pragma once

#include <optional>

#include "pattern/matcher.h"
#include "pattern/view.h"

namespace liger {

std::optional<Binding> MatchNodes(const GraphView& view, const PatternInstance& instance,
                                  ValueId root);

// Whether the own op's text, with what is bound, computes the outputs that are bound.
bool IsBodyInPlace(const GraphView& view, const PatternInstance& instance, const Binding& binding);

}  // namespace liger
