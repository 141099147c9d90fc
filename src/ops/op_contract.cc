#include "ops/op_contract.h"

#include <algorithm>

namespace liger {

std::string_view ProviderName(Provider provider) {
  return provider == Provider::kCpu ? "cpu" : "cuda";
}

std::optional<Provider> ParseProvider(std::string_view name) {
  if (name == "cpu" || name == "CPUExecutionProvider") return Provider::kCpu;
  if (name == "cuda" || name == "CUDAExecutionProvider") return Provider::kCuda;
  return std::nullopt;
}

DType TypeTuple::Find(std::string_view symbol) const {
  for (const TypeBinding& binding : types) {
    if (binding.symbol == symbol) return binding.dtype;
  }
  return DType::kUndefined;
}

const AttributeSpec* OpContract::FindAttribute(std::string_view name) const {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const AttributeSpec& spec) { return spec.name == name; });
  return found == attributes.end() ? nullptr : &*found;
}

std::vector<TypeTuple> DistinctTypes(const OpContract& contract) {
  std::vector<TypeTuple> distinct;
  for (const TypeTuple& tuple : contract.kernels) {
    const auto same = [&](const TypeTuple& other) {
      return std::all_of(tuple.types.begin(), tuple.types.end(), [&](const TypeBinding& binding) {
        return other.Find(binding.symbol) == binding.dtype;
      });
    };
    if (std::none_of(distinct.begin(), distinct.end(), same)) distinct.push_back(tuple);
  }
  return distinct;
}

const OpContract* FindContract(std::string_view op_type) {
  for (const OpContract& contract : Contracts()) {
    if (contract.op_type == op_type) return &contract;
  }
  return nullptr;
}

bool HasKernel(const OpContract& contract, Provider provider, std::span<const TypeBinding> types) {
  if (contract.is_own()) return true;
  return std::any_of(contract.kernels.begin(), contract.kernels.end(), [&](const TypeTuple& tuple) {
    return tuple.provider == provider &&
           std::all_of(types.begin(), types.end(), [&](const TypeBinding& wanted) {
             return wanted.dtype != DType::kUndefined && tuple.Find(wanted.symbol) == wanted.dtype;
           });
  });
}

}  // namespace liger
