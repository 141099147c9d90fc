#include "rewrite/plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "family/module_path.h"
#include "pattern/matcher.h"
#include "pattern/own_match.h"
#include "rewrite/candidate.h"
#include "rewrite/liveness.h"
#include "rewrite/runtime_choice.h"
#include "rewrite/scope_metadata.h"

namespace liger {
namespace {

// Plans one graph of the model.
class GraphPlanner {
 public:
  GraphPlanner(const GraphView& view, const OpPatternSet& ops,
               const std::vector<PatternInstance>& instances, const LoweringSet& lowerings,
               const PlanOptions& options, RewritePlan& plan)
      : view_(view),
        graph_(view.graph()),
        ops_(ops),
        lowerings_(lowerings),
        options_(options),
        plan_(plan),
        matcher_(view) {
    for (size_t i = 0; i < instances.size(); ++i) {
      const Term& root = view.terms()[instances[i].root()];
      by_root_[RootKey(root)].push_back({&instances[i], static_cast<int>(i)});
      if (instances[i].op->contract->is_own()) own_.push_back(by_root_[RootKey(root)].back());
    }
  }

  void Run() {
    FindAlreadyFused();
    FindCandidates();
    Select();
    Emit();
    FindFusedElsewhere();
    KeepNearMisses();
  }

 private:
  static std::string RootKey(const Term& term) {
    return term.text + "/" + std::string(DTypeName(term.dtype));
  }

  const std::string& ValueName(ValueId value) const { return graph_.values[value].name; }

  void FindAlreadyFused() {
    for (const Node& node : graph_.nodes) {
      const OpPattern* op = node.domain.empty() ? nullptr : ops_.Find(node.domain, node.op_type);
      if (op == nullptr) continue;
      const OpContract* contract = op->contract;
      int instances = 0;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        // The residual sum of an add+norm is no instance of its own; a second rotated tensor is.
        const bool application = i == 0 || (i < contract->outputs.size() &&
                                            contract->outputs[i].name.starts_with("second_"));
        if (node.outputs[i] != kNone && application) ++instances;
      }
      const std::string path = ModulePathOf(node);
      const std::string root =
          node.outputs.empty() || node.outputs[0] == kNone ? "" : ValueName(node.outputs[0]);
      const Verdict verdict = options_.selection.Judge(*contract, graph_.index, path, root);
      plan_.already_fused.push_back(
          {verdict.wanted() ? verdict.module : std::string(contract->module), verdict.target,
           std::string(contract->shown()), graph_.index, node.name, root, path, instances, ""});
    }
  }

  // Operators of other domains that stay and do the work of a fused op.
  void FindFusedElsewhere() {
    std::set<NodeId> replaced;
    for (const PlannedNode& node : plan_.nodes) {
      if (node.graph == graph_.index) replaced.insert(node.replaced.begin(), node.replaced.end());
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const FusedElsewhere* fused = lowerings_.FindFused(node);
      if (fused == nullptr || replaced.contains(static_cast<NodeId>(i))) continue;
      const ValueId output = node.outputs.empty() ? kNone : node.outputs[0];
      const std::string name = node.name.empty() && output != kNone ? ValueName(output) : node.name;
      const std::string path = ModulePathOf(node);
      OpContract of_module;  // any op of the module: the operator stands for no one of them
      of_module.module = fused->module;
      const Verdict verdict = options_.selection.Judge(of_module, graph_.index, path,
                                                       output != kNone ? ValueName(output) : "");
      plan_.already_fused.push_back({verdict.wanted() ? verdict.module : fused->module,
                                     verdict.target, node.op_type, graph_.index, name,
                                     output != kNone ? ValueName(output) : "", path,
                                     fused->instances, WhyNotTakenOver(node, *fused, verdict)});
      fused_elsewhere_.insert(static_cast<NodeId>(i));
    }
  }

  std::string WhyNotTakenOver(const Node& node, const FusedElsewhere& fused,
                              const Verdict& verdict) const {
    if (!verdict.wanted()) return verdict.reason;
    if (!fused.reason.empty()) return fused.reason;
    for (const auto& [root, reason] : left_to_runtime_) {
      if (std::find(node.outputs.begin(), node.outputs.end(), root) != node.outputs.end()) {
        return reason;
      }
    }
    for (const auto& [key, scored] : misses_) {
      const ValueId root = scored.second.root;
      if (std::find(node.outputs.begin(), node.outputs.end(), root) != node.outputs.end()) {
        return scored.second.reason;
      }
    }
    const Attribute* axis = node.FindAttribute("axis");
    const auto* number = axis != nullptr ? std::get_if<int64_t>(&axis->value) : nullptr;
    if (number != nullptr && *number != -1) {
      return "its axis " + std::to_string(*number) + " is not, or not known to be, the last one";
    }
    return "its inputs, with these dtypes, fit no form of the op";
  }

  void FindCandidates() {
    for (const Node& node : graph_.nodes) {
      for (ValueId value : node.outputs) {
        if (value == kNone || view_.alias_of(value) != kNone) continue;
        NameNegative(value);
        const auto found = by_root_.find(RootKey(view_.terms()[view_.term(value)]));
        if (found != by_root_.end()) {
          for (const auto& [instance, rank] : found->second) TryInstance(*instance, rank, value);
        }
        TryAsWritten(node, value);
      }
    }
  }

  // Signs go outwards in terms, so that an op of a negated input is the negative of an op: that is
  // no form, and is named.
  void NameNegative(ValueId root) {
    const Term& term = view_.terms()[view_.term(root)];
    if (!term.IsOp(op::kNeg)) return;
    const auto found = by_root_.find(RootKey(view_.terms()[term.args[0]]));
    if (found == by_root_.end() || view_.FirstValue(term.args[0]) != kNone) return;
    for (const auto& [instance, rank] : found->second) {
      const auto binding = matcher_.Match(*instance, term.args[0], nullptr);
      if (!binding) continue;
      Attempt refused;
      refused.score = 100;
      refused.guard = "sign";
      refused.reason = "one of its inputs is negated";
      refused.anchor = binding->anchor;
      AddMiss(*instance, root, refused);
    }
  }

  void TryInstance(const PatternInstance& instance, int rank, ValueId root) {
    Attempt attempt;
    attempt.wants_values = options_.explain.has_value();
    auto binding = matcher_.Match(instance, view_.term(root), &attempt);
    if (!binding) {
      if (attempt.anchor != kNone) AddMiss(instance, root, attempt);
      return;
    }
    AddCandidate(instance, rank, root, *std::move(binding), attempt);
  }

  // Own ops are found as they are written as well, where the view knows more of the graph than of
  // the text.
  void TryAsWritten(const Node& node, ValueId value) {
    for (const auto& own : own_) {
      const PatternInstance* instance = own.first;
      const int rank = own.second;
      const Graph& text = instance->text->function.graph;
      const Value& root = text.values[text.outputs[0]];
      if (root.producer == kNone || text.nodes[root.producer].op_type != node.op_type) continue;
      const bool is_known =
          std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
            return candidate.root == value && candidate.instance->op == instance->op;
          });
      if (is_known) continue;
      if (auto binding = MatchNodes(view_, *instance, value)) {
        AddCandidate(*instance, rank, value, *std::move(binding), Attempt());
      }
    }
  }

  void AddCandidate(const PatternInstance& instance, int rank, ValueId root, Binding binding,
                    const Attempt& attempt) {
    Candidate candidate;
    candidate.instance = &instance;
    candidate.rank = rank;
    candidate.root = root;
    candidate.precision = PrecisionOf(instance, binding);
    candidate.binding = std::move(binding);
    const bool located = Locate(view_, candidate);
    candidate.path = PathOf(candidate);
    candidate.verdict = options_.selection.Judge(*instance.op->contract, graph_.index,
                                                 candidate.path, ValueName(root));
    const auto refuse = [&](std::string guard, std::string reason) {
      Attempt refused;
      refused.values = attempt.values;
      refused.score = attempt.score + 100;
      refused.guard = std::move(guard);
      refused.reason = std::move(reason);
      refused.anchor = candidate.binding.anchor;
      AddMiss(instance, root, refused);
    };
    if (!located) {
      refuse("leaf", "an input has no value of its own in front of the root");
      return;
    }
    if (!live_before_[root]) {
      refuse("unused", "nothing uses the result");
      return;
    }
    if (const ValueId other = OtherLiveOutput(candidate); other != kNone) {
      refuse("other_output_used", "its node also gives '" + ValueName(other) + "', which is used");
      return;
    }
    for (ValueId output : candidate.outputs) {
      if (output == kNone || output == root || !DependsOn(candidate, output)) continue;
      refuse("cycle", "an input is computed from '" + ValueName(output) +
                          "', which the fused node would give");
      return;
    }
    for (Provider provider : options_.providers) {
      if (!HasKernel(*instance.op->contract, provider, instance.types)) {
        refuse("kernel", "no " + std::string(ProviderName(provider)) + " kernel for " +
                             std::string(instance.op->contract->op_type) + " with " +
                             Types(instance));
        return;
      }
    }
    if (options_.exact && candidate.precision != Precision::kExact) {
      refuse("exact", candidate.precision == Precision::kRaised
                          ? "the kernel computes in f32 what the graph computes in a narrower type"
                          : "the graph multiplies in another order than the kernel");
      return;
    }
    if (const std::string placement = PlacementConflict(graph_, candidate); !placement.empty()) {
      refuse("placement", "its nodes are annotated for different placements: " + placement);
      return;
    }
    candidates_.push_back(std::move(candidate));
  }

  // A live output, other than those the fused node gives, of a node whose output it gives: that
  // node would have to stay and give the value a second time.
  ValueId OtherLiveOutput(const Candidate& candidate) const {
    for (ValueId output : candidate.outputs) {
      if (output == kNone) continue;
      for (ValueId other : graph_.nodes[graph_.values[output].producer].outputs) {
        const bool given = std::find(candidate.outputs.begin(), candidate.outputs.end(), other) !=
                           candidate.outputs.end();
        if (other != kNone && !given && live_before_[other]) return other;
      }
    }
    return kNone;
  }

  static std::string Types(const PatternInstance& instance) {
    std::string text;
    for (const TypeBinding& binding : instance.types) {
      if (!text.empty()) text += ", ";
      text += std::string(binding.symbol) + "=" + std::string(DTypeName(binding.dtype));
    }
    return text;
  }

  static Replacement AsReplacement(const Candidate& candidate) {
    return {candidate.inputs, candidate.outputs};
  }

  // Accepts candidates in order of preference, drops those that would leave an inner value live,
  // and starts again without them until none is dropped.
  void Select() {
    std::vector<size_t> order(candidates_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Candidate& x = candidates_[a];
      const Candidate& y = candidates_[b];
      // A match that takes Casts or an offset in covers more nodes than one that leaves them
      // outside.
      return std::tuple(x.instance->op->priority, y.nodes.size(), x.rank) <
             std::tuple(y.instance->op->priority, x.nodes.size(), y.rank);
    });
    std::vector<bool> banned(candidates_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      Accept(order, banned);
      std::vector<Replacement> replacements;
      for (size_t i : accepted_) replacements.push_back(AsReplacement(candidates_[i]));
      const std::vector<bool> live = LiveValues(graph_, replacements);
      for (size_t i : accepted_) {
        const Candidate& candidate = candidates_[i];
        // Another match needs neither its result nor, any more, its inputs.
        if (!live[candidate.root]) {
          banned[i] = changed = true;
          continue;
        }
        for (ValueId inner : candidate.inner) {
          if (!live[inner] || IsBoundary(candidate, inner)) continue;
          banned[i] = changed = true;
          RefuseUse(candidate, inner);
          break;
        }
      }
    }
    SetAsideOff();
    DropDegraded();
    if (options_.only_first >= 0) {
      std::sort(accepted_.begin(), accepted_.end(),
                [&](size_t a, size_t b) { return candidates_[a].root < candidates_[b].root; });
      const int64_t room = options_.only_first - static_cast<int64_t>(plan_.nodes.size());
      if (static_cast<int64_t>(accepted_.size()) > room) {
        const auto kept = accepted_.begin() + std::max<int64_t>(room, 0);
        left_out_.assign(kept, accepted_.end());
        accepted_.erase(kept, accepted_.end());
      }
    }
    std::sort(accepted_.begin(), accepted_.end(), [&](size_t a, size_t b) {
      return graph_.values[candidates_[a].root].producer <
             graph_.values[candidates_[b].root].producer;
    });
  }

  // Matches that are not wanted, or better left to the runtime, have kept their parts from smaller
  // matches; they go no further.
  void SetAsideOff() {
    const bool on_cuda = std::find(options_.providers.begin(), options_.providers.end(),
                                   Provider::kCuda) != options_.providers.end();
    std::erase_if(accepted_, [&](size_t i) {
      const Candidate& candidate = candidates_[i];
      if (candidate.verdict.wanted()) {
        const std::string reason = on_cuda ? LeftToRuntime(graph_, candidate) : "";
        if (reason.empty()) return false;
        left_to_runtime_.emplace(candidate.root, reason);
        set_aside_.push_back(i);
        return true;
      }
      const NearMiss place = MissAt(*candidate.instance, candidate.root);
      plan_.off.push_back(
          {place.module, candidate.verdict.reason, place.op, place.node, candidate.path});
      set_aside_.push_back(i);
      return true;
    });
  }

  void Accept(const std::vector<size_t>& order, const std::vector<bool>& banned) {
    accepted_.clear();
    std::unordered_set<ValueId> given;  // roots and declared outputs of accepted matches
    std::unordered_set<ValueId> inner;
    for (size_t i : order) {
      if (banned[i]) continue;
      const Candidate& candidate = candidates_[i];
      const auto clashes = [&](ValueId value) {
        return value != kNone && (given.contains(value) || inner.contains(value));
      };
      if (std::any_of(candidate.outputs.begin(), candidate.outputs.end(), clashes)) continue;
      if (std::any_of(candidate.inner.begin(), candidate.inner.end(),
                      [&](ValueId value) { return given.contains(value); })) {
        continue;
      }
      accepted_.push_back(i);
      for (ValueId output : candidate.outputs) {
        if (output != kNone) given.insert(output);
      }
      inner.insert(candidate.inner.begin(), candidate.inner.end());
    }
  }

  // A live value that only casts or reshapes an input or an output of the fused node costs nothing
  // to keep.
  bool IsBoundary(const Candidate& candidate, ValueId value) const {
    const auto among = [](const std::vector<TermId>& terms, TermId id) {
      return std::find(terms.begin(), terms.end(), id) != terms.end();
    };
    TermId id = view_.term(value);
    const Term* term = &view_.terms()[id];
    while (term->IsOp(op::kCast) || (term->kind == TermKind::kOp && term->text == "::Reshape")) {
      id = term->args[0];
      term = &view_.terms()[id];
    }
    return among(candidate.binding.inputs, id) || among(candidate.binding.outputs, id);
  }

  void RefuseUse(const Candidate& candidate, ValueId inner) {
    const Value& value = graph_.values[inner];
    std::string reason = "the inner value '" + value.name + "' ";
    std::string use = "is needed outside the match";
    if (value.is_output) {
      use = "is also a graph output";
    } else {
      for (NodeId user : value.users) {
        if (!std::binary_search(candidate.nodes.begin(), candidate.nodes.end(), user)) {
          use = "is also read by " + graph_.nodes[user].op_type + " '" + UserName(user) + "'";
        }
      }
      for (const Node& node : graph_.nodes) {
        if (std::find(node.captures.begin(), node.captures.end(), inner) != node.captures.end()) {
          use = "is captured by a body of " + node.op_type +
                (node.name.empty() ? "" : " '" + node.name + "'");
        }
      }
    }
    Attempt refused;
    refused.score = 1000;
    refused.guard = "inner_value_used";
    refused.reason = reason + use;
    refused.anchor = candidate.binding.anchor;
    AddMiss(*candidate.instance, candidate.root, refused);
  }

  std::string UserName(NodeId id) const {
    const Node& node = graph_.nodes[id];
    if (!node.name.empty() || node.outputs.empty() || node.outputs[0] == kNone) return node.name;
    return ValueName(node.outputs[0]);
  }

  // A norm without scale (bias) whose result is at once multiplied by (added to) a stored row is a
  // weighted norm that did not match as one. It is not rewritten: the report would hide the failure.
  void DropDegraded() {
    std::erase_if(accepted_, [&](size_t i) {
      const Candidate& candidate = candidates_[i];
      const auto& ports = candidate.instance->op->contract->inputs;
      for (size_t k = 0; k < ports.size(); ++k) {
        const auto& absent = candidate.instance->op->absent;
        const auto neutral = absent.find(std::string(ports[k].name));
        if (candidate.inputs[k] != kNone || neutral == absent.end()) continue;
        if (IsCombined(candidate, neutral->second == 0 ? "Add" : "Mul")) {
          AddDegraded(candidate);
          return true;
        }
      }
      return false;
    });
  }

  bool IsCombined(const Candidate& candidate, std::string_view op) const {
    const Shape* shape = view_.canonicalizer().FindShape(view_.term(candidate.root));
    std::vector<ValueId> work = {candidate.root};
    while (!work.empty()) {
      const ValueId value = work.back();
      work.pop_back();
      for (NodeId user : graph_.values[value].users) {
        const Node& node = graph_.nodes[user];
        if (node.outputs.empty() || node.outputs[0] == kNone) continue;
        if (node.op_type == "Cast" || node.op_type == "CastLike" || node.op_type == "Identity") {
          work.push_back(node.outputs[0]);
          continue;
        }
        if (node.op_type != op || node.inputs.size() != 2) continue;
        const ValueId other = node.inputs[node.inputs[0] == value ? 1 : 0];
        if (other != kNone && other != value && LooksLikeRow(other, shape, op == "Add"))
          return true;
      }
    }
    return false;
  }

  // A row as wide as x, or anything stored that is as wide.
  bool LooksLikeRow(ValueId value, const Shape* of, bool is_bias) const {
    const Value& v = graph_.values[value];
    if (!v.type.shape || v.type.shape->empty()) return false;
    const Dim& width = v.type.shape->back();
    const bool as_wide = of == nullptr || of->empty() || !of->back().is_known() ||
                         !width.is_known() || width.value == of->back().value;
    const bool is_row = std::all_of(v.type.shape->begin(), v.type.shape->end() - 1,
                                    [](const Dim& dim) { return dim.value == 1; });
    // What is added and is as large as x itself is a residual.
    const bool is_stored = v.is_initializer || v.is_input;
    return as_wide && (is_bias ? is_row && is_stored : is_row || is_stored);
  }

  // The weighted attempt that failed on the same statistics says why.
  void AddDegraded(const Candidate& candidate) {
    NearMiss miss = MissAt(*candidate.instance, candidate.root);
    miss.degraded = true;
    miss.guard = "degraded";
    miss.reason = "only the form without scale or bias fits, although one follows";
    miss.module = candidate.verdict.module;
    miss.target = candidate.verdict.target;
    const auto found = misses_.find(
        {std::string(candidate.instance->op->contract->module), candidate.binding.anchor});
    if (found != misses_.end()) {
      if (!found->second.second.guard.empty()) miss.guard = found->second.second.guard;
      miss.reason += ": " + found->second.second.reason;
      misses_.erase(found);
    }
    plan_.near_misses.push_back(std::move(miss));
  }

  NearMiss MissAt(const PatternInstance& instance, ValueId root) const {
    NearMiss miss;
    miss.module = instance.op->contract->module;
    miss.op = instance.op->contract->shown();
    miss.graph = graph_.index;
    miss.root = root;
    const Node& node = graph_.nodes[graph_.values[root].producer];
    miss.node = node.name.empty() ? ValueName(root) : node.name;
    miss.path = ModulePathOf(node);
    return miss;
  }

  // Keeps the best attempt for each module and anchor.
  void AddMiss(const PatternInstance& instance, ValueId root, const Attempt& attempt) {
    if (!options_.selection.Wants(*instance.op->contract)) return;
    const auto key = std::pair(std::string(instance.op->contract->module), attempt.anchor);
    const auto found = misses_.find(key);
    // What a guard refused had the op's whole structure.
    const auto rank = [](const std::string& guard, int score) {
      return std::pair(!guard.empty(), score);
    };
    if (found != misses_.end() && rank(found->second.second.guard, found->second.first) >=
                                      rank(attempt.guard, attempt.score)) {
      return;
    }
    NearMiss miss = MissAt(instance, root);
    const Verdict verdict =
        options_.selection.Judge(*instance.op->contract, graph_.index, miss.path, ValueName(root));
    if (!verdict.wanted()) return;
    miss.module = verdict.module;
    miss.target = verdict.target;
    miss.guard = attempt.guard;
    miss.reason = attempt.reason;
    miss.score = attempt.score;
    Explain(instance, root, attempt, miss);
    misses_[key] = {attempt.score, std::move(miss)};
  }

  void Explain(const PatternInstance& instance, ValueId root, const Attempt& attempt,
               NearMiss& miss) const {
    if (!options_.explain || !options_.explain->Takes(miss.module, miss.path, miss.node)) return;
    miss.closest = std::string(instance.op->contract->shown()) + " as " + instance.Form() + " (" +
                   instance.op->file + ")";
    miss.values = attempt.values;
    miss.chain = ChainOf(view_.model(), graph_, root);
  }

  void KeepMatch(const Candidate& candidate, std::string guard, std::string reason) {
    NearMiss miss = MissAt(*candidate.instance, candidate.root);
    miss.module = candidate.verdict.module;
    miss.target = candidate.verdict.target;
    miss.guard = std::move(guard);
    miss.reason = std::move(reason);
    plan_.near_misses.push_back(std::move(miss));
  }

  void KeepNearMisses() {
    for (size_t i : left_out_) {
      KeepMatch(candidates_[i], "only_first", "it matches, and is left out by --only-first");
    }
    for (size_t i : set_aside_) {
      const ValueId root = candidates_[i].root;
      const auto left = left_to_runtime_.find(root);
      if (left == left_to_runtime_.end()) continue;
      if (fused_elsewhere_.contains(graph_.values[root].producer)) continue;
      KeepMatch(candidates_[i], "runtime",
                "it matches, and is left to the runtime: " + left->second);
    }
    // A failed attempt whose place a match covers is no miss.
    std::vector<size_t> matches = accepted_;
    matches.insert(matches.end(), left_out_.begin(), left_out_.end());
    matches.insert(matches.end(), set_aside_.begin(), set_aside_.end());
    std::set<std::pair<std::string, TermId>> covered;
    for (size_t i : matches) {
      const Candidate& candidate = candidates_[i];
      const std::string module(candidate.instance->op->contract->module);
      covered.insert({module, view_.term(candidate.root)});
      for (ValueId value : candidate.inner) covered.insert({module, view_.term(value)});
      for (ValueId value : candidate.outputs) {
        if (value != kNone) covered.insert({module, view_.term(value)});
      }
      for (NodeId node : candidate.nodes) {
        for (ValueId value : graph_.nodes[node].outputs) {
          if (value != kNone) covered.insert({module, view_.term(value)});
        }
      }
      AddTermsBelow(candidate, module, covered);
    }
    // Of the failures at one place, or of one module at one root, the furthest speaks.
    const auto rank = [](const std::pair<int, NearMiss>& scored) {
      return std::pair(!scored.second.guard.empty(), scored.first);
    };
    std::map<TermId, int> best_at;
    std::map<std::pair<std::string, ValueId>, std::pair<bool, int>> best_of;
    for (const auto& [key, scored] : misses_) {
      int& score = best_at[key.second];
      score = std::max(score, scored.first);
      auto& of_root = best_of[{key.first, scored.second.root}];
      of_root = std::max(of_root, rank(scored));
    }
    std::set<ValueId> fused;
    for (size_t i : matches) fused.insert(candidates_[i].root);
    for (auto& [key, scored] : misses_) {
      const ValueId root = scored.second.root;
      const bool is_covered = covered.contains(key) || fused.contains(root) ||
                              covered.contains({key.first, view_.term(root)}) ||
                              fused_elsewhere_.contains(graph_.values[root].producer);
      const bool is_behind = (scored.second.guard.empty() && scored.first < best_at[key.second]) ||
                             rank(scored) < best_of[{key.first, root}];
      if (!is_covered && !is_behind) plan_.near_misses.push_back(std::move(scored.second));
    }
  }

  void AddTermsBelow(const Candidate& candidate, const std::string& module,
                     std::set<std::pair<std::string, TermId>>& covered) const {
    std::vector<TermId> work = {view_.term(candidate.root)};
    while (!work.empty()) {
      const TermId id = work.back();
      work.pop_back();
      covered.insert({module, id});
      for (TermId arg : view_.terms()[id].args) {
        const bool leaf = arg == kNone || std::find(candidate.binding.inputs.begin(),
                                                    candidate.binding.inputs.end(),
                                                    arg) != candidate.binding.inputs.end();
        if (!leaf && !covered.contains({module, arg})) work.push_back(arg);
      }
    }
  }

  void Emit() {
    const size_t first = plan_.nodes.size();
    std::vector<bool> done(accepted_.size(), false);
    for (size_t i = 0; i < accepted_.size(); ++i) {
      if (done[i]) continue;
      const Candidate& candidate = candidates_[accepted_[i]];
      const size_t partner = FindPartner(i, done);
      if (partner < accepted_.size()) done[partner] = true;
      AddNode(candidate, partner < accepted_.size() ? &candidates_[accepted_[partner]] : nullptr);
    }
    while (plan_.nodes.size() > first && !Order(first)) {
      // Contracting two roots into one node closed a cycle: take the pairs apart, then the matches.
      DropLast(first);
    }
    SetReplaced(first);
  }

  // The next match in node order that uses the same tables, if the op has a form for two and
  // neither depends on the other.
  size_t FindPartner(size_t index, const std::vector<bool>& done) const {
    const Candidate& candidate = candidates_[accepted_[index]];
    if (!candidate.instance->op->pair) return accepted_.size();
    for (size_t j = index + 1; j < accepted_.size(); ++j) {
      const Candidate& other = candidates_[accepted_[j]];
      if (done[j] || other.instance->op != candidate.instance->op) continue;
      const bool fits = other.instance == candidate.instance &&
                        other.verdict.target == candidate.verdict.target &&
                        SharesAllButX(candidate, other) && !DependsOn(other, candidate.root);
      return fits ? j : accepted_.size();
    }
    return accepted_.size();
  }

  bool SharesAllButX(const Candidate& a, const Candidate& b) const {
    const OpPattern& op = *a.instance->op;
    for (size_t i = 0; i < a.binding.inputs.size(); ++i) {
      const std::string_view name = op.contract->inputs[i].name;
      if (name != op.pair->input && a.binding.inputs[i] != b.binding.inputs[i]) return false;
      if (name != op.pair->input) continue;
      // All axes but that of the heads are the same.
      const Shape* x = view_.canonicalizer().FindShape(a.binding.inputs[i]);
      const Shape* y = view_.canonicalizer().FindShape(b.binding.inputs[i]);
      if (x == nullptr || y == nullptr || x->size() != y->size()) return false;
      const auto* layout = std::get_if<std::string>(&a.binding.attributes.at("layout"));
      const size_t heads = layout != nullptr && *layout == "BNSD" ? x->size() - 3 : x->size() - 2;
      for (size_t d = 0; d < x->size(); ++d) {
        if (d != heads && !(*x)[d].SameAs((*y)[d])) return false;
      }
    }
    return a.binding.attributes == b.binding.attributes && a.binding.views == b.binding.views;
  }

  // Whether an input of `candidate` is computed from `value`. Only nodes behind `value` can be.
  bool DependsOn(const Candidate& candidate, ValueId value) const {
    const NodeId first = graph_.values[value].producer;
    std::vector<ValueId> work = candidate.inputs;
    std::unordered_set<ValueId> seen;
    while (!work.empty()) {
      const ValueId at = work.back();
      work.pop_back();
      if (at == kNone || !seen.insert(at).second) continue;
      if (at == value) return true;
      const NodeId producer = graph_.values[at].producer;
      if (producer < first) continue;
      const Node& node = graph_.nodes[producer];
      work.insert(work.end(), node.inputs.begin(), node.inputs.end());
      work.insert(work.end(), node.captures.begin(), node.captures.end());
    }
    return false;
  }

  void AddNode(const Candidate& candidate, const Candidate* partner) {
    PlannedNode node;
    node.graph = graph_.index;
    node.instance = candidate.instance;
    node.module = candidate.verdict.module;
    node.target = candidate.verdict.target;
    node.inputs = candidate.inputs;
    node.outputs = candidate.outputs;
    node.attributes = candidate.binding.attributes;
    node.views = candidate.binding.views;
    node.precision = candidate.precision;
    node.roots = {candidate.root};
    std::vector<NodeId> nodes = candidate.nodes;
    node.paths = {candidate.path};
    if (partner != nullptr) {
      const OpPattern& op = *candidate.instance->op;
      const auto position = [](const auto& ports, const std::string& name) {
        return std::find_if(ports.begin(), ports.end(),
                            [&](const Port& port) { return port.name == name; }) -
               ports.begin();
      };
      const auto first = static_cast<size_t>(position(op.contract->inputs, op.pair->input));
      const auto second = static_cast<size_t>(position(op.contract->inputs, op.pair->second_input));
      node.inputs[second] = partner->inputs[first];
      if (const auto made = partner->binding.views.find(first);
          made != partner->binding.views.end()) {
        node.views[second] = made->second;
      }
      node.outputs[position(op.contract->outputs, op.pair->second_output)] = partner->root;
      node.roots.push_back(partner->root);
      node.paths.push_back(partner->path);
      if (partner->precision != Precision::kExact) node.precision = partner->precision;
      nodes.insert(nodes.end(), partner->nodes.begin(), partner->nodes.end());
    }
    const Node& root = graph_.nodes[graph_.values[candidate.root].producer];
    node.name = (root.name.empty() ? ValueName(candidate.root) : root.name) + "_" +
                std::string(candidate.instance->op->contract->op_type);
    std::vector<const Node*> sources;
    // A residual Add belongs to the layer, not to the norm: the match's own scope speaks for it.
    for (NodeId id : nodes) {
      const std::string path = ModulePathOf(graph_.nodes[id]);
      const bool own = std::find(node.paths.begin(), node.paths.end(), path) != node.paths.end();
      if (own || path.empty()) sources.push_back(&graph_.nodes[id]);
    }
    node.metadata = CommonMetadata(sources);
    plan_.nodes.push_back(std::move(node));
  }

  // The root's path; where its node names none, that which most nodes of the match name.
  std::string PathOf(const Candidate& candidate) const {
    std::string path = ModulePathOf(graph_.nodes[graph_.values[candidate.root].producer]);
    if (!path.empty()) return path;
    std::map<std::string, int> votes;
    for (NodeId id : candidate.nodes) {
      path = ModulePathOf(graph_.nodes[id]);
      if (!path.empty()) ++votes[path];
    }
    const auto best =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
          return std::pair(a.second, a.first.size()) < std::pair(b.second, b.first.size());
        });
    return best != votes.end() ? best->first : "";
  }

  std::vector<Replacement> Replacements(size_t first) const {
    std::vector<Replacement> replacements;
    for (size_t i = first; i < plan_.nodes.size(); ++i) {
      replacements.push_back({plan_.nodes[i].inputs, plan_.nodes[i].outputs});
    }
    return replacements;
  }

  // False if the nodes from `first` on close a cycle.
  bool Order(size_t first) {
    auto order = OrderNodes(graph_, Replacements(first), static_cast<int>(first));
    if (!order) return false;
    plan_.order.emplace_back(graph_.index, *std::move(order));
    return true;
  }

  // Takes the last paired node apart, or drops the last node.
  void DropLast(size_t first) {
    for (size_t i = plan_.nodes.size(); i-- > first;) {
      PlannedNode& node = plan_.nodes[i];
      if (node.roots.size() < 2) continue;
      const ValueId root = node.roots[0];
      const ValueId second = node.roots[1];
      plan_.nodes.erase(plan_.nodes.begin() + static_cast<int64_t>(i));
      for (size_t c : accepted_) {
        if (candidates_[c].root == root || candidates_[c].root == second) {
          AddNode(candidates_[c], nullptr);
        }
      }
      return;
    }
    const PlannedNode& last = plan_.nodes.back();
    Attempt refused;
    refused.score = 1000;
    refused.guard = "cycle";
    refused.reason = "an input is computed from an output of the fused node";
    refused.anchor = view_.term(last.roots[0]);
    AddMiss(*last.instance, last.roots[0], refused);
    std::erase_if(accepted_, [&](size_t c) { return candidates_[c].root == last.roots[0]; });
    plan_.nodes.pop_back();
  }

  // Each removed node is reported with the match it belonged to.
  void SetReplaced(size_t first) {
    if (plan_.nodes.size() == first) return;
    std::vector<bool> kept(graph_.nodes.size(), false);
    for (const OrderedNode& node : plan_.order.back().second) {
      if (!node.planned) kept[node.index] = true;
    }
    for (size_t i = first; i < plan_.nodes.size(); ++i) {
      PlannedNode& node = plan_.nodes[i];
      for (size_t c : accepted_) {
        const Candidate& candidate = candidates_[c];
        if (std::find(node.roots.begin(), node.roots.end(), candidate.root) == node.roots.end()) {
          continue;
        }
        for (NodeId id : candidate.nodes) {
          if (!kept[id]) node.replaced.push_back(id);
        }
      }
      std::sort(node.replaced.begin(), node.replaced.end());
      node.replaced.erase(std::unique(node.replaced.begin(), node.replaced.end()),
                          node.replaced.end());
    }
  }

  const GraphView& view_;
  const Graph& graph_;
  const OpPatternSet& ops_;
  const LoweringSet& lowerings_;
  const PlanOptions& options_;
  RewritePlan& plan_;
  Matcher matcher_;
  std::unordered_map<std::string, std::vector<std::pair<const PatternInstance*, int>>> by_root_;
  std::vector<std::pair<const PatternInstance*, int>>
      own_;  // instances of own ops, and their ranks
  const std::vector<bool> live_before_ = LiveValues(graph_, {});
  std::vector<Candidate> candidates_;
  std::vector<size_t> accepted_;
  std::vector<size_t> left_out_;   // by --only-first
  std::vector<size_t> set_aside_;  // of modules that are off, or left to the runtime
  std::map<ValueId, std::string> left_to_runtime_;  // roots with the reasons
  std::set<NodeId> fused_elsewhere_;
  std::map<std::pair<std::string, TermId>, std::pair<int, NearMiss>> misses_;
};

std::vector<DType> Types(const GraphModel& model) {
  std::set<DType> dtypes;
  for (const Graph& graph : model.graphs) {
    for (const Value& value : graph.values) {
      if (value.type.dtype != DType::kUndefined) dtypes.insert(value.type.dtype);
    }
  }
  return {dtypes.begin(), dtypes.end()};
}

// Node names are unique in the model, so that reports and profiles can be read.
void MakeNamesUnique(const GraphModel& model, RewritePlan& plan) {
  std::unordered_set<std::string> taken;
  for (const Graph& graph : model.graphs) {
    for (const Node& node : graph.nodes) taken.insert(node.name);
  }
  for (PlannedNode& node : plan.nodes) {
    const std::string base = node.name;
    for (int i = 2; !taken.insert(node.name).second; ++i)
      node.name = base + "_" + std::to_string(i);
  }
}

}  // namespace

std::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kExact:
      return "exact";
    case Precision::kRaised:
      return "raised";
    case Precision::kReassociated:
      return "reassociated";
  }
  return "";
}

Result<RewritePlan> MakePlan(const GraphModel& model, const OpPatternSet& ops,
                             const LoweringSet& lowerings, const PlanOptions& options) {
  TermStore terms;
  Canonicalizer canonicalizer(terms, &lowerings, &ops);
  OpPatternSet::Request request;
  request.opset = OpsetOf(model.opsets, "");
  request.dtypes = Types(model);
  bool any_wanted = false;
  for (const OpPattern& op : ops.ops()) {
    const bool is_wanted = options.selection.Wants(*op.contract);
    any_wanted = any_wanted || is_wanted;
    if (is_wanted || !op.only_on_request) request.op_types.emplace_back(op.contract->op_type);
  }
  RewritePlan plan;
  auto instances = std::make_shared<std::vector<PatternInstance>>();
  if (any_wanted) *instances = ops.Instantiate(canonicalizer, request);
  plan.instances = instances;
  for (const Graph& graph : model.graphs) {
    if (graph.is_function) continue;  // no types: nothing can be shown there
    const GraphView view(model, graph.index, canonicalizer);
    GraphPlanner(view, ops, *instances, lowerings, options, plan).Run();
  }
  MakeNamesUnique(model, plan);
  return plan;
}

}  // namespace liger
