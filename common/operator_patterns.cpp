#include "common/operator_patterns.h"

#include <algorithm>

#include "common/name_patterns.h"

namespace ff {
namespace {

Vector<std::string> names_of(const Graph& graph) {
  Vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  return names;
}

}  // namespace

Vector<NamedOperators> operators_named(const Graph& graph, const std::string& pattern) {
  constexpr int64_t most = 1 << 20;
  const Vector<std::string> names = names_of(graph);
  Vector<std::string> wanted{pattern};
  if (std::find(names.begin(), names.end(), pattern) == names.end())
    if (auto expanded = expand_brackets(pattern, most)) wanted = *std::move(expanded);
  Vector<NamedOperators> found;
  for (const std::string& name : wanted) {
    NamedOperators& one = found.emplace_back(NamedOperators{name, is_wildcard(name)});
    for (const OperatorId op : graph.operator_ids())
      if (one.wildcard ? matches_wildcard(names[op], name) : names[op] == name) one.operators.push_back(op);
  }
  return found;
}

void fail_without_operators(const Graph& graph, const NamedOperators& named) {
  const Vector<std::string> names = names_of(graph);
  throw InputError("no operator " + std::string(named.wildcard ? "matches" : "is called") + " \"" + named.name + "\"" +
                   (named.wildcard ? wildcard_suggestion(named.name, names) : suggestion(named.name, names)));
}

}  // namespace ff
