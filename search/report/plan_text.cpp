#include "search/report/plan_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "common/known_names.h"
#include "common/name_patterns.h"
#include "common/strategy_configurations.h"
#include "search/explain/critical_path.h"
#include "search/explain/decisions.h"

namespace ff {
namespace {

constexpr size_t name_width = 28, most_names = 60;

std::string description(const Graph& graph, const Strategy& strategy, const Vector<ConfigurationOrigin>& origins,
                        OperatorId op) {
  std::string text = configuration_text(graph, op, strategy[op]);
  if (!origins.empty() && origins[op] != ConfigurationOrigin::unstated)
    text += ", " + std::string(to_string(origins[op]));
  return text;
}

bool has_pattern_characters(const std::string& name) { return name.find_first_of("[]*") != std::string::npos; }

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// Cut at `separator` outside of brackets.
Vector<std::string> cut(const std::string& text, const std::string& separator) {
  Vector<std::string> pieces = {""};
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    if (depth == 0 && text.compare(at, separator.size(), separator) == 0) {
      pieces.emplace_back();
      at += separator.size();
      continue;
    }
    depth += text[at] == '[' ? 1 : text[at] == ']' ? -1 : 0;
    pieces.back() += text[at++];
  }
  for (std::string& piece : pieces) piece = trimmed(piece);
  return pieces;
}

}  // namespace

Vector<PlanGroup> plan_groups(const Graph& graph, const Strategy& strategy,
                              const Vector<ConfigurationOrigin>& origins) {
  using Key = std::tuple<std::string, std::string, std::string>;  // name without numbers, type, configuration
  std::map<Key, int> known;
  Vector<PlanGroup> groups;
  for (const OperatorId op : graph.operator_ids()) {
    const std::string& name = graph.operators[op].name;
    const std::string alike = has_pattern_characters(name) ? name : without_numbers(name);
    const auto [at, added] = known.try_emplace(
        Key{alike, graph.operators[op].definition->type(), description(graph, strategy, origins, op)}, groups.count());
    if (added) groups.emplace_back();
    groups[at->second].operators.push_back(op);
  }
  for (PlanGroup& group : groups) {
    Vector<std::string> names;
    for (const OperatorId op : group.operators) names.push_back(graph.operators[op].name);
    if (names.size() > 1) names = name_patterns(names);
    for (const std::string& name : names) group.name += (group.name.empty() ? "" : ", ") + name;
  }
  return groups;
}

std::string plan_text(const Graph& graph, const Strategy& strategy, const Vector<ConfigurationOrigin>& origins) {
  const Vector<PlanGroup> groups = plan_groups(graph, strategy, origins);
  Vector<std::pair<std::string, std::string>> lines;
  for (int first = 0; first < groups.count();) {
    const std::string described = description(graph, strategy, origins, groups[first].operators[0]);
    int last = first;
    while (last + 1 < groups.count() &&
           description(graph, strategy, origins, groups[last + 1].operators[0]) == described)
      ++last;
    std::string name = groups[first].name;
    if (last > first) name += (last > first + 1 ? " .. " : ", ") + groups[last].name;
    lines.emplace_back(std::move(name), described);
    first = last + 1;
  }
  size_t width = name_width;
  for (const auto& [name, described] : lines)
    if (name.size() <= most_names) width = std::max(width, name.size());
  std::string text;
  for (auto& [name, described] : lines) {
    name.resize(std::max(width, name.size()), ' ');
    text += "  " + name + "  " + described + "\n";
  }
  return text;
}

namespace {

// One edit, read part by part.
class EditParser {
 public:
  EditParser(const std::string& edit, const Graph& graph, const Topology& topology, const Strategy& strategy,
             const Vector<ConfigurationOrigin>& origins)
      : file_("edit \"" + edit + "\""), edit_(edit), graph_(graph), topology_(topology), strategy_(strategy),
        origins_(origins) {}

  Vector<Change> changes() const {
    const size_t colon = edit_.find(": "), on = edit_.find(" on ", colon == std::string::npos ? 0 : colon);
    if (colon == std::string::npos || on == std::string::npos)
      throw InputError(file_ +
                       ": expected OPERATORS: SPLIT on DEVICES, such as \"layer*.attention: sample 4 x head 2 "
                       "on 0-7\" or \"fc1: whole on 3\"");
    const std::string names = trimmed(edit_.substr(0, colon)),
                      degrees = trimmed(edit_.substr(colon + 2, on - colon - 2)),
                      places = trimmed(edit_.substr(on + 4));
    const Vector<OperatorId> operators = in_part(names, [&] { return named(names); });
    Json configuration = split(degrees);
    configuration["devices"] = in_part("on " + places, [&] { return devices(places); });
    const JsonPlace place(std::make_shared<Json>(std::move(configuration)), file_);
    Vector<Change> changes;
    for (const OperatorId op : operators)
      changes.push_back({op, in_part(degrees + " on " + places,
                                     [&] { return parse_configuration(place, graph_.operators[op], topology_); })});
    return changes;
  }

 private:
  // Messages name the part of the edit, in place of a JSON pointer.
  template <typename Function>
  auto in_part(const std::string& part, const Function& function) const -> decltype(function()) {
    try {
      return function();
    } catch (const InputError& error) {
      const std::string text = error.what(), begin = file_ + ": /";
      if (!text.starts_with(begin)) throw;
      throw InputError(file_ + ": in \"" + part + text.substr(text.find(": ", begin.size())).insert(0, "\""));
    }
  }

  Vector<OperatorId> named(const std::string& text) const {
    Vector<bool> chosen(graph_.operators.size(), false);
    Vector<std::string> names;
    for (const Operator& op : graph_.operators) names.push_back(op.name);
    const KnownNames known("operator", names);
    const auto matches = [&](const std::string& pattern) {
      return known.matches(JsonPlace(std::make_shared<Json>(pattern), file_));
    };
    const Vector<std::string> ends = cut(text, " .. ");
    if (ends.size() > 2) throw InputError(file_ + ": \"" + text + "\" has more than one \"..\"");
    if (ends.size() == 2) {
      const Vector<PlanGroup> groups = plan_groups(graph_, strategy_, origins_);
      const auto group_of = [&](const std::string& patterns) {
        const OperatorId op = matches(cut(patterns, ",")[0])[0].number;
        const auto found = std::find_if(groups.begin(), groups.end(), [&](const PlanGroup& group) {
          return std::find(group.operators.begin(), group.operators.end(), op) != group.operators.end();
        });
        return static_cast<int>(found - groups.begin());
      };
      const int first = group_of(ends[0]), last = group_of(ends[1]);
      if (first > last) throw InputError(file_ + ": \"" + ends[0] + "\" comes after \"" + ends[1] + "\" in the plan");
      for (int g = first; g <= last; ++g)
        for (const OperatorId op : groups[g].operators) chosen[op] = true;
    } else {
      for (const std::string& pattern : cut(text, ","))
        for (const KnownNames::Match& match : matches(pattern)) chosen[match.number] = true;
    }
    Vector<OperatorId> operators;
    for (const OperatorId op : chosen.indices())
      if (chosen[op]) operators.push_back(op);
    return operators;
  }

  // "sample 4 x head 2 (3:1)": degrees and shares; "whole": none.
  Json split(const std::string& text) const {
    Json json = {{"degrees", Json::object()}};
    if (text == "whole") return json;
    for (const std::string& factor : cut(text, " x ")) {
      const size_t space = factor.find(' '), open = factor.find(" (");
      const std::string name = factor.substr(0, space),
                        degree = trimmed(factor.substr(std::min(space, factor.size()), open - std::min(space, open)));
      int64_t number = 0;
      if (space == std::string::npos || !read_number(degree, number)) fail_at_split(factor);
      if (json["degrees"].contains(name)) throw InputError(file_ + ": dimension \"" + name + "\" stands twice");
      json["degrees"][name] = number;
      if (open == std::string::npos) continue;
      if (factor.back() != ')') fail_at_split(factor);
      for (const std::string& share : cut(factor.substr(open + 2, factor.size() - open - 3), ":")) {
        if (!read_number(share, number)) fail_at_split(factor);
        json["shares"][name].push_back(number);
      }
    }
    return json;
  }

  static bool read_number(const std::string& text, int64_t& number) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, number);
    return !text.empty() && error == std::errc() && at == end;
  }

  [[noreturn]] void fail_at_split(const std::string& factor) const {
    throw InputError(file_ + ": found \"" + factor +
                     "\", expected a dimension and its degree, such as \"sample 4\", with \" x \" between several, or "
                     "\"whole\"");
  }

  // "devices 0-7, searched": the ranges. "node0.gpu[0-3]": the numbers of these devices.
  Json devices(std::string text) const {
    for (const std::string prefix : {"devices ", "device "})
      if (text.starts_with(prefix)) text = trimmed(text.substr(prefix.size()));
    for (const ConfigurationOrigin origin :
         {ConfigurationOrigin::annotated, ConfigurationOrigin::propagated, ConfigurationOrigin::searched})
      if (const std::string suffix = ", " + std::string(to_string(origin)); text.ends_with(suffix))
        text.resize(text.size() - suffix.size());
    if (text.find_first_not_of("0123456789-,:x ") == std::string::npos) return text;
    Vector<std::string> names;
    for (const Device& device : topology_.devices) names.push_back(device.name);
    const KnownNames known("device", names);
    Json numbers = Json::array();
    for (const std::string& piece : cut(text, ",")) {
      int64_t number = 0;
      if (read_number(piece, number)) numbers.push_back(number);
      else
        for (const KnownNames::Match& match : known.matches(JsonPlace(std::make_shared<Json>(piece), file_)))
          numbers.push_back(match.number);
    }
    return numbers;
  }

  const std::string file_, &edit_;
  const Graph& graph_;
  const Topology& topology_;
  const Strategy& strategy_;
  const Vector<ConfigurationOrigin>& origins_;
};

}  // namespace

Vector<Change> parse_edit(const std::string& edit, const Graph& graph, const Topology& topology,
                          const Strategy& strategy, const Vector<ConfigurationOrigin>& origins) {
  return EditParser(edit, graph, topology, strategy, origins).changes();
}

}  // namespace ff
