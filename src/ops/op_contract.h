// The contract of each fused op as a value: what the ONNX schema, the library's registrations and
// the planner's question "is there a kernel for these dtypes" are all made from.
//
//   const OpContract* op = FindContract("LigerRMSNorm");
//   const TypeBinding types[] = {{"T", DType::kF16}, {"S", DType::kF32}};
//   if (!HasKernel(*op, Provider::kCpu, types)) ...
//
// The tables are generated from patches/ops/*.yaml at build time and live as long as the program.
// They are sorted by op type. Nothing here reads YAML.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace liger {

// The domain of every fused op and the version that models import.
inline constexpr std::string_view kOpDomain = "liger";
inline constexpr int kOpDomainVersion = 1;

enum class Provider { kCpu, kCuda };

// "cpu", "cuda".
std::string_view ProviderName(Provider provider);
// Also from ONNX Runtime's names, "CPUExecutionProvider".
std::optional<Provider> ParseProvider(std::string_view name);

struct Port {
  std::string_view name;
  std::string_view type_symbol;  // "T", "S": bound to a dtype by a TypeTuple
  bool optional = false;
};

enum class AttributeKind { kInt, kFloat, kString, kDType };

struct AttributeSpec {
  std::string_view name;
  AttributeKind kind = AttributeKind::kInt;  // kDType is an int that holds an ONNX dtype number
  std::span<const std::string_view> values;  // allowed strings; empty: any value of the kind
};

struct TypeBinding {
  std::string_view symbol;
  DType dtype = DType::kUndefined;
};

// One kernel: the provider that has it and the dtype of every type symbol.
struct TypeTuple {
  Provider provider = Provider::kCpu;
  std::span<const TypeBinding> types;

  // The dtype bound to `symbol`; kUndefined where the tuple has no such symbol.
  DType Find(std::string_view symbol) const;
};

struct OpContract {
  std::string_view op_type;
  int since_version = 1;
  std::string_view module;   // "rms_norm": the module people switch on and off
  std::string_view algebra;  // one line for people
  std::span<const Port> inputs;
  std::span<const Port> outputs;
  std::span<const AttributeSpec> attributes;
  std::span<const TypeTuple> kernels;
  std::string_view domain = kOpDomain;  // another one for the ops of a user's patch map

  // An op of a user's patch map has no kernels of ours: any dtypes its text allows are fine.
  bool is_own() const { return domain != kOpDomain; }
  // "LigerRMSNorm", "my.domain.SoftCap"; an own op's name is its module as well.
  std::string_view shown() const { return is_own() ? module : op_type; }
  const AttributeSpec* FindAttribute(std::string_view name) const;
};

// The tuples of `contract` without those that repeat the dtypes of another provider's.
std::vector<TypeTuple> DistinctTypes(const OpContract& contract);

// Every fused op, sorted by op type.
std::span<const OpContract> Contracts();

// The contract of `op_type`, or null.
const OpContract* FindContract(std::string_view op_type);

// Whether `provider` has a kernel for the dtypes in `types`; an own op runs anywhere by its body. A symbol that is not named in `types`
// (of an absent optional input) may have any dtype; a name the op does not know never has a kernel.
bool HasKernel(const OpContract& contract, Provider provider, std::span<const TypeBinding> types);

}  // namespace liger
