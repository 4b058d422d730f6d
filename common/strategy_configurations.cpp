#include "common/strategy_configurations.h"

#include <map>
#include <tuple>

#include "common/known_names.h"
#include "common/name_patterns.h"
#include "common/number_ranges.h"

namespace ff {
namespace {

constexpr int most_tasks = 1 << 19;  // of one operator: what a task key has room for

Vector<std::string> names_of(const Graph& graph) {
  Vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  return names;
}

DeviceId parse_device(const JsonPlace& place, const Topology& topology) {
  const DeviceId count = static_cast<DeviceId>(topology.devices.size());
  if (!place.value().is_string()) return static_cast<DeviceId>(place.as_integer(0, count - 1));
  Vector<std::string> known;
  for (DeviceId d = 0; d < count; ++d) {
    if (topology.devices[d].name == place.as_string()) return d;
    known.push_back(topology.devices[d].name);
  }
  place.fail("no device of the topology is named \"" + place.as_string() + "\"" + suggestion(place.as_string(), known));
}

ConfigurationOrigin parse_origin(const JsonPlace& place) {
  const Vector<std::string> known = {"annotated", "propagated", "searched"};
  const std::string text = place.as_string();
  for (const ConfigurationOrigin origin :
       {ConfigurationOrigin::annotated, ConfigurationOrigin::propagated, ConfigurationOrigin::searched})
    if (text == to_string(origin)) return origin;
  place.fail("unknown origin \"" + text + "\"" + suggestion(text, known));
}

void allow_dimensions(const JsonPlace& place, const Operator& op) {
  Vector<std::string> names;
  for (const ParallelDimension& dimension : op.definition->dimensions()) names.push_back(dimension.name);
  place.allow_keys(names, "parallelizable dimension of " + op.name + " (" + op.definition->type() + ")");
}

// One array for each dimension whose parts are not alike in size.
void parse_shares(const JsonPlace& place, const Operator& op, Degrees& degrees) {
  const auto& dimensions = op.definition->dimensions();
  allow_dimensions(place, op);
  for (const int d : dimensions.indices()) {
    const auto given = place.find(dimensions[d].name);
    if (!given) continue;
    Vector<int> shares;
    for (const JsonPlace& share : given->items())
      shares.push_back(static_cast<int>(share.as_integer(1, Degrees::most_share)));
    if (shares.count() != degrees[d])
      given->fail("has " + std::to_string(shares.size()) + " shares, but dimension \"" + dimensions[d].name + "\" of " +
                  op.name + " has " + std::to_string(degrees[d]) + (degrees[d] == 1 ? " part" : " parts"));
    degrees.set_shares(d, std::move(shares));
    if (!degrees.leave_none_empty(d, dimensions[d].size))
      given->fail("leaves a part of dimension \"" + dimensions[d].name + "\" of " + op.name +
                  " without an element: it has " + std::to_string(dimensions[d].size));
  }
}

// One configuration of the file, for one or many operators.
class GivenConfiguration {
 public:
  GivenConfiguration(const JsonPlace& place, const Topology& topology)
      : degrees_(place.at("degrees")), shares_(place.find("shares")), devices_place_(place.at("devices")),
        devices_(parse_devices(devices_place_, topology)) {
    if (const auto origin = place.find("origin")) origin_ = parse_origin(*origin);
  }

  Configuration of(const Operator& op) const {
    Configuration configuration{parse_degrees(degrees_, op), devices_};
    if (shares_) parse_shares(*shares_, op, configuration.degrees);
    const int parts = parts_of(configuration.degrees);
    if (configuration.parts() != parts)
      devices_place_.fail("has " + std::to_string(configuration.parts()) + " devices, expected " +
                          std::to_string(parts) + ": one for each task of " + op.name);
    return configuration;
  }
  ConfigurationOrigin origin() const { return origin_; }

 private:
  JsonPlace degrees_;
  std::optional<JsonPlace> shares_;
  JsonPlace devices_place_;
  Vector<DeviceId> devices_;
  ConfigurationOrigin origin_ = ConfigurationOrigin::unstated;
};

// Which configuration each operator has. A later entry overrides an earlier one for the operators that it names, except
// that "*" stands for the operators that no other entry names. Within one entry a name comes before a wildcard.
class Assignment {
 public:
  explicit Assignment(const Graph& graph)
      : known_("operator", names_of(graph)), named_(graph.operators.size()), rest_(graph.operators.size()) {}

  void add(const JsonPlace& place, int configuration) {
    for (const KnownNames::Match& match : known_.matches(place)) {
      Given& named = named_[match.number];
      Given& rest = rest_[match.number];
      for (const Given& given : {named, rest})
        if (given.configuration == configuration && given.by_name == match.by_name)
          place.fail("operator \"" + known_.names()[match.number] + "\" has a configuration already, by " +
                     given.pointer);
      if (named.configuration == configuration && named.by_name) continue;
      (!match.by_name && place.as_string() == "*" ? rest : named) = {configuration, match.by_name, place.pointer()};
    }
  }

  // The configuration of each operator, by its number in the file.
  Vector<int> configurations(const JsonPlace& place) const {
    Vector<int> result;
    Vector<OperatorId> missing;
    for (const OperatorId op : named_.indices()) {
      const Given& given = named_[op].configuration >= 0 ? named_[op] : rest_[op];
      if (given.configuration < 0) missing.push_back(op);
      result.push_back(given.configuration);
    }
    if (!missing.empty())
      place.fail("\"" + known_.names()[missing[0]] + "\" is missing" +
                 (missing.size() > 1 ? ", and " + std::to_string(missing.size() - 1) + " more of the operators" : ""));
    return result;
  }

 private:
  struct Given {
    int configuration = -1;
    bool by_name = false;
    std::string pointer;  // by what
  };

  const KnownNames known_;
  Vector<Given> named_, rest_;  // by OperatorId
};

// The operators of an entry, for messages.
std::string of_operators(const JsonPlace& operators) {
  const Json& value = operators.value();
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.empty() || !value[0].is_string()) return "";
  return value[0].get<std::string>() + (value.size() > 1 ? ", ..." : "");
}

// What `parse` returns. A message that does not name the operator gets it at the end.
template <class Parse>
auto in_configuration_of(const std::string& name, const Parse& parse) {
  try {
    return parse();
  } catch (const InputError& error) {
    const std::string message = error.what();
    if (name.empty() || message.find(name + " ") != std::string::npos || message.ends_with(name)) throw;
    throw InputError(message + " (configuration of " + name + ")");
  }
}

Configurations parse_by_operator(const JsonPlace& place, const Graph& graph, const Topology& topology) {
  Configurations result;
  place.allow_keys(names_of(graph), "operator");
  for (const Operator& op : graph.operators) {
    const JsonPlace given = place.at(op.name);
    in_configuration_of(op.name, [&] {
      given.allow_keys({"degrees", "shares", "devices", "origin"}, "key of a configuration");
      const GivenConfiguration configuration(given, topology);
      result.strategy.push_back(configuration.of(op));
      result.origins.push_back(configuration.origin());
    });
  }
  return result;
}

Configurations parse_list(const JsonPlace& place, const Graph& graph, const Topology& topology) {
  Assignment assignment(graph);
  Vector<GivenConfiguration> given;
  for (const JsonPlace& item : place.items()) {
    item.expect_object();
    const auto named = item.find("operators");
    in_configuration_of(named ? of_operators(*named) : "", [&] {
      item.allow_keys({"operators", "degrees", "shares", "devices", "origin"}, "key of a configuration");
      const JsonPlace operators = item.at("operators");
      if (operators.value().is_string()) assignment.add(operators, given.count());
      else
        for (const JsonPlace& pattern : operators.items()) assignment.add(pattern, given.count());
      given.emplace_back(item, topology);
    });
  }
  Configurations result;
  const Vector<int> configurations = assignment.configurations(place);
  for (const OperatorId op : configurations.indices()) {
    const GivenConfiguration& configuration = given[configurations[op]];
    result.strategy.push_back(
        in_configuration_of(graph.operators[op].name, [&] { return configuration.of(graph.operators[op]); }));
    result.origins.push_back(configuration.origin());
  }
  return result;
}

}  // namespace

Vector<DeviceId> parse_devices(const JsonPlace& place, const Topology& topology) {
  Vector<DeviceId> devices;
  if (!place.value().is_string()) {
    for (const JsonPlace& device : place.items()) devices.push_back(parse_device(device, topology));
    return devices;
  }
  const std::string text = place.as_string();
  const auto ranges = NumberRanges::parse(text);
  if (!ranges)
    place.fail("found \"" + text +
               "\", expected ranges of device numbers, such as \"0-7\", \"0-6:2\", \"0,4-7\" or \"0-3 x2\"");
  if (ranges->count() > most_tasks) place.fail("\"" + text + "\" are more than 1048576 devices");
  for (const int64_t device : ranges->numbers()) {
    if (device >= topology.devices.count())
      place.fail("device " + std::to_string(device) + " is not there: the topology has devices 0 to " +
                 std::to_string(topology.devices.size() - 1));
    devices.push_back(static_cast<DeviceId>(device));
  }
  return devices;
}

Degrees parse_degrees(const JsonPlace& place, const Operator& op) {
  const auto& dimensions = op.definition->dimensions();
  allow_dimensions(place, op);
  Degrees degrees;
  int64_t parts = 1;
  for (const ParallelDimension& dimension : dimensions) {
    const auto given = place.find(dimension.name);
    int64_t degree = 1;
    if (given) {
      degree = given->as_integer(1, INT32_MAX);
      if (degree > dimension.size)
        given->fail("found " + std::to_string(degree) + ", but dimension \"" + dimension.name + "\" of " + op.name +
                    " has size " + std::to_string(dimension.size));
    }
    degrees.push_back(static_cast<int>(degree));
    parts *= degree;
    if (parts > most_tasks) place.fail("the degrees multiply to more than 1048576 tasks");
  }
  return degrees;
}

Configuration parse_configuration(const JsonPlace& place, const Operator& op, const Topology& topology) {
  return in_configuration_of(op.name, [&] { return GivenConfiguration(place, topology).of(op); });
}

Configurations parse_configurations(const JsonPlace& place, const Graph& graph, const Topology& topology) {
  Configurations result =
      place.value().is_object() ? parse_by_operator(place, graph, topology) : parse_list(place, graph, topology);
  const auto unstated = [](ConfigurationOrigin origin) { return origin == ConfigurationOrigin::unstated; };
  if (std::all_of(result.origins.begin(), result.origins.end(), unstated)) result.origins.clear();
  return result;
}

std::string degrees_text(const Operator& op, const Degrees& degrees) {
  std::string text;
  const auto& dimensions = op.definition->dimensions();
  for (const int d : dimensions.indices()) {
    if (degrees[d] == 1) continue;
    text += (text.empty() ? "" : " x ") + dimensions[d].name + " " + std::to_string(degrees[d]);
    std::string shares;
    for (const int share : degrees.shares(d)) shares += (shares.empty() ? "" : ":") + std::to_string(share);
    if (!shares.empty()) text += " (" + shares + ")";
  }
  return text.empty() ? "whole" : text;
}

Json devices_to_json(const Vector<DeviceId>& devices) {
  Json list = devices;
  Json ranges = number_ranges(Vector<int64_t>(devices.begin(), devices.end()));
  return ranges.dump().size() < list.dump().size() ? ranges : list;
}

namespace {

// {"degrees": ..., "shares": ...}
Json degrees_to_json(const Operator& op, const Degrees& given) {
  Json degrees = Json::object(), shares = Json::object();
  const auto& dimensions = op.definition->dimensions();
  for (const int d : dimensions.indices()) {
    if (given[d] > 1) degrees[dimensions[d].name] = given[d];
    if (!given.shares(d).empty()) shares[dimensions[d].name] = given.shares(d);
  }
  Json json = {{"degrees", std::move(degrees)}};
  if (!shares.empty()) json["shares"] = std::move(shares);
  return json;
}

}  // namespace

Json configuration_to_json(const Operator& op, const Configuration& configuration) {
  Json json = degrees_to_json(op, configuration.degrees);
  json["devices"] = devices_to_json(configuration.devices);
  return json;
}

Json configurations_to_json(const Graph& graph, const Strategy& strategy, const Vector<ConfigurationOrigin>& origins) {
  struct Group {
    Json configuration;
    Vector<std::string> operators;
  };
  using Key = std::tuple<std::string, Vector<DeviceId>, ConfigurationOrigin>;  // degrees and shares as text
  std::map<Key, size_t> known;
  Vector<Group> groups;  // in the order of their first operators
  for (const OperatorId op : strategy.indices()) {
    const ConfigurationOrigin origin = origins.empty() ? ConfigurationOrigin::unstated : origins[op];
    Json configuration = degrees_to_json(graph.operators[op], strategy[op].degrees);
    const auto [at, added] = known.emplace(Key{configuration.dump(), strategy[op].devices, origin}, groups.size());
    if (added) {
      configuration["devices"] = devices_to_json(strategy[op].devices);
      groups.push_back({std::move(configuration), {}});
      if (origin != ConfigurationOrigin::unstated) groups.back().configuration["origin"] = to_string(origin);
    }
    groups[at->second].operators.push_back(graph.operators[op].name);
  }
  Json json = Json::array();
  // A pattern might be an operator's very name, which it would then stand for.
  const bool plain = std::none_of(graph.operators.begin(), graph.operators.end(),
                                  [](const Operator& op) { return op.name.find_first_of("[]*") != std::string::npos; });
  for (const Group& group : groups) {
    const bool most = 2 * group.operators.size() > strategy.size();
    const Vector<std::string> patterns = !plain ? group.operators
                                         : most ? Vector<std::string>{"*"}
                                                : name_patterns(group.operators);
    Json configuration = {{"operators", patterns}};
    if (patterns.size() == 1) configuration["operators"] = patterns[0];
    configuration.update(group.configuration);
    json.push_back(std::move(configuration));
  }
  return json;
}

}  // namespace ff
