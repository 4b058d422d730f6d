// Operators by patterns of names (name_patterns.h), as recomputation and sharding name them.
#pragma once

#include <string>

#include "common/graph.h"

namespace ff {

// One of the names that a pattern stands for: itself, where an operator has it, else one of those of its brackets.
struct NamedOperators {
  std::string name;
  bool wildcard = false;
  Vector<OperatorId> operators = {};  // ascending; empty: there is none
};
Vector<NamedOperators> operators_named(const Graph& graph, const std::string& pattern);

// There is none: throws InputError with the nearest names.
[[noreturn]] void fail_without_operators(const Graph& graph, const NamedOperators& named);

}  // namespace ff
