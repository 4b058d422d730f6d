#include "common/sharding.h"

#include <algorithm>

#include "common/operator_patterns.h"
#include "common/task_graph/parameter_pieces.h"

namespace ff {
namespace {

constexpr const char* rest = "*";

// settings.synchronization is the furthest of the stages, which tells what any parameter may have.
void add(StrategySettings& settings, const std::string& pattern, const std::string& word) {
  const bool has_owners = settings.synchronization == Synchronization::parameter_server;
  const Synchronization stage =
      with_sharding(has_owners ? settings.synchronization : Synchronization::all_reduce, word);
  if (has_owners) return;  // none
  settings.sharding.push_back({pattern, stage});
  settings.synchronization = std::max(settings.synchronization, stage);
}

Vector<OperatorId> operators_of(const Graph& graph, const std::string& pattern) {
  Vector<OperatorId> operators;
  for (const NamedOperators& named : operators_named(graph, pattern)) {
    if (named.operators.empty()) fail_without_operators(graph, named);
    operators.insert(operators.end(), named.operators.begin(), named.operators.end());
  }
  return operators;
}

// Of a parameter group, by which operator.
struct GivenSharding {
  const OperatorSharding* by = nullptr;
  OperatorId op = -1;
};

[[noreturn]] void fail_twice(const Graph& graph, const GivenSharding& a, const GivenSharding& b) {
  const std::string &first = graph.operators[a.op].name, &second = graph.operators[b.op].name;
  const auto text = [](const OperatorSharding& one) {
    return std::string(sharding_name(one.synchronization)) + " by \"" + one.operators + "\"";
  };
  throw InputError((a.op == b.op ? "the parameters of \"" + first + "\" have"
                                 : "\"" + first + "\" and \"" + second + "\" share parameters, which have") +
                   " two shardings: " + text(*a.by) + " and " + text(*b.by));
}

}  // namespace

Vector<Synchronization> sharding_by_group(const Graph& graph, const Vector<OperatorSharding>& sharding) {
  if (sharding.empty()) return {};
  const Vector<ParameterGroup> groups = parameter_groups(graph);
  Vector<Vector<int>> groups_of(graph.operators.size());
  for (const int g : groups.indices())
    for (const OperatorId op : groups[g].operators)
      if (groups[g].trained) groups_of[op].push_back(g);
  Vector<GivenSharding> given(groups.size());
  Synchronization of_rest = Synchronization::all_reduce;
  for (const OperatorSharding& one : sharding) {
    if (one.operators == rest) {
      of_rest = one.synchronization;
      continue;
    }
    bool trained = false;
    for (const OperatorId op : operators_of(graph, one.operators))
      for (const int g : groups_of[op]) {
        trained = true;
        if (given[g].by && given[g].by->synchronization != one.synchronization) fail_twice(graph, given[g], {&one, op});
        given[g] = {&one, op};
      }
    if (!trained) throw InputError("\"" + one.operators + "\" names no operator with trained parameters");
  }
  Vector<Synchronization> result(groups.size(), Synchronization::all_reduce);
  for (const int g : groups.indices())
    if (groups[g].trained) result[g] = given[g].by ? given[g].by->synchronization : of_rest;
  return result;
}

Vector<std::string> split_patterns(const std::string& text) {
  Vector<std::string> patterns;
  bool inside = false, begins = true;
  for (const char c : text) {
    if (begins) patterns.emplace_back();
    begins = c == ',' && !inside;
    inside = c == '[' || (inside && c != ']');
    if (!begins) patterns.back() += c;
  }
  return patterns;
}

void set_sharding(StrategySettings& settings, const std::string& text) {
  settings.sharding.clear();
  if (text.find('=') == std::string::npos) {
    settings.synchronization = with_sharding(settings.synchronization, text);
    return;
  }
  settings.synchronization = with_sharding(settings.synchronization, "none");
  for (const std::string& one : split_patterns(text)) {
    const size_t at = one.rfind('=');
    if (at == std::string::npos || at == 0)
      throw InputError("found \"" + one + "\", expected PATTERN=WORD, such as layer*=parameters");
    add(settings, one.substr(0, at), one.substr(at + 1));
  }
}

std::string written_sharding(const StrategySettings& settings) {
  if (settings.sharding.empty() || !is_sharded(settings.synchronization))
    return std::string(sharding_name(settings.synchronization));
  std::string text;
  for (const OperatorSharding& one : settings.sharding)
    text += (text.empty() ? "" : ",") + one.operators + "=" + std::string(sharding_name(one.synchronization));
  return text;
}

void parse_sharding(const JsonPlace& place, const Graph& graph, StrategySettings& settings) {
  if (!place.value().is_object()) {
    const std::string word = place.as_string();
    settings.synchronization = place.at_this_place([&] { return with_sharding(settings.synchronization, word); });
    return;
  }
  for (const auto& one : place.members()) {
    const std::string word = one.second.as_string();
    one.second.at_this_place([&] { add(settings, one.first, word); });
  }
  place.at_this_place([&] { sharding_by_group(graph, settings.sharding); });
}

Json sharding_to_json(const StrategySettings& settings) {
  if (settings.sharding.empty()) return sharding_name(settings.synchronization);
  Json json = Json::object();
  for (const OperatorSharding& one : settings.sharding) json[one.operators] = sharding_name(one.synchronization);
  return json;
}

}  // namespace ff
