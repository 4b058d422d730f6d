#include "common/strategy.h"

#include <algorithm>
#include <map>

namespace ff {
namespace {

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

Vector<int> parse_degrees(const JsonPlace& place, const Operator& op) {
  const auto& dimensions = op.definition->dimensions();
  Vector<std::string> names;
  for (const ParallelDimension& dimension : dimensions) names.push_back(dimension.name);
  place.allow_keys(names, "parallelizable dimension of " + op.definition->type());
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
    if (parts > (1 << 20)) place.fail("the degrees multiply to more than 1048576 tasks");
  }
  return degrees;
}

Configuration parse_configuration(const JsonPlace& place, const Operator& op, const Topology& topology) {
  place.allow_keys({"degrees", "devices"}, "key of a configuration");
  Configuration configuration;
  configuration.degrees = parse_degrees(place.at("degrees"), op);
  const int parts = parts_of(configuration.degrees);
  for (const JsonPlace& device : place.at("devices").items())
    configuration.devices.push_back(parse_device(device, topology));
  if (configuration.parts() != parts)
    place.at("devices").fail("has " + std::to_string(configuration.parts()) + " devices, expected " +
                             std::to_string(parts) + ": one for each task of " + op.name);
  return configuration;
}

}  // namespace

Strategy data_parallel(const Graph& graph, const Topology& topology) {
  Strategy strategy;
  for (const Operator& op : graph.operators) {
    const auto& dimensions = op.definition->dimensions();
    Configuration configuration;
    configuration.degrees.assign(dimensions.size(), 1);
    const int degree =
        static_cast<int>(std::min<int64_t>(dimensions[0].size, static_cast<int64_t>(topology.devices.size())));
    configuration.degrees[0] = degree;
    for (DeviceId device = 0; device < degree; ++device) configuration.devices.push_back(device);
    strategy.push_back(std::move(configuration));
  }
  return strategy;
}

Strategy single_device(const Graph& graph, DeviceId device) {
  Strategy strategy;
  for (const Operator& op : graph.operators)
    strategy.push_back({Vector<int>(op.definition->dimensions().size(), 1), {device}});
  return strategy;
}

StrategyFile parse_strategy(const JsonPlace& place) {
  expect_format(place, "ffstrategy/1");
  place.allow_keys({"$schema", "format", "graph", "topology", "configurations", "issue_order", "provenance"},
                   "key of a strategy");
  StrategyFile file;
  file.graph = parse_graph(place.at("graph"));
  file.topology = parse_topology(place.at("topology"));
  const JsonPlace configurations = place.at("configurations");
  Vector<std::string> names;
  for (const Operator& op : file.graph.operators) names.push_back(op.name);
  configurations.allow_keys(names, "operator");
  for (const Operator& op : file.graph.operators)
    file.strategy.push_back(parse_configuration(configurations.at(op.name), op, file.topology));
  if (const auto order = place.find("issue_order"))
    for (const JsonPlace& name : order->items()) file.issue_order.push_back(name.as_string());
  file.provenance = Json::object();
  if (const auto provenance = place.find("provenance")) {
    provenance->expect_object();
    file.provenance = provenance->value();
    if (const auto hash = provenance->find("configurations_hash"))
      file.edited = hash->as_string() != configurations_hash(file.graph, file.strategy);
    if (const auto predicted = provenance->find("predicted_us")) predicted->as_number(0, 1e18);
  }
  return file;
}

StrategyFile load_strategy(const std::string& path) { return parse_strategy(read_json_file(path)); }

Json strategy_to_json(const StrategyFile& file) {
  Json configurations = Json::object();
  for (size_t i = 0; i < file.strategy.size(); ++i) {
    const Operator& op = file.graph.operators[i];
    Json degrees = Json::object();
    for (size_t d = 0; d < op.definition->dimensions().size(); ++d)
      degrees[op.definition->dimensions()[d].name] = file.strategy[i].degrees[d];
    configurations[op.name] = {{"degrees", degrees}, {"devices", file.strategy[i].devices}};
  }
  Json json = {{"format", "ffstrategy/1"}, {"configurations", configurations}};
  json["provenance"] = file.provenance.is_object() ? file.provenance : Json::object();
  json["provenance"]["configurations_hash"] = configurations_hash(file.graph, file.strategy);
  json["graph"] = file.graph.file;
  json["topology"] = file.topology.file;
  // "$schema" of the embedded files is relative to where those files lay.
  json["graph"].erase("$schema");
  json["topology"].erase("$schema");
  if (!file.issue_order.empty()) json["issue_order"] = file.issue_order;
  return json;
}

void save_strategy(const std::string& path, const StrategyFile& file) { write_json_file(path, strategy_to_json(file)); }

std::string configurations_hash(const Graph& graph, const Strategy& strategy) {
  std::string text;
  for (size_t i = 0; i < strategy.size(); ++i) {
    text += graph.operators[i].name + ":";
    for (size_t d = 0; d < strategy[i].degrees.size(); ++d) {
      const int degree = strategy[i].degrees[d];
      const bool sums = graph.operators[i].definition->dimensions()[d].kind == DimensionKind::reduction;
      if (degree > 1 || !sums) text += std::to_string(degree) + ",";  // files from before there were sums say the same
    }
    text += "@";
    for (DeviceId device : strategy[i].devices) text += std::to_string(device) + ",";
    text += "\n";
  }
  return content_hash(text);
}

}  // namespace ff
