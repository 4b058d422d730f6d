#include "common/strategy.h"

#include <algorithm>

#include "common/micro_batches.h"
#include "common/recomputation.h"
#include "common/sharding.h"
#include "common/strategy_configurations.h"
#include "common/task_graph/pipeline_schedule.h"

namespace ff {

Configuration split_over(const OperatorDefinition& definition, int dimension, std::span<const DeviceId> devices) {
  const auto& dimensions = definition.dimensions();
  Configuration configuration{Degrees(dimensions.size(), 1), {}};
  const auto parts = static_cast<size_t>(std::min(dimensions[dimension].size, static_cast<int64_t>(devices.size())));
  configuration.degrees[dimension] = static_cast<int>(parts);
  configuration.devices.assign(devices.begin(), devices.begin() + static_cast<int64_t>(parts));
  return configuration;
}

Strategy data_parallel(const Graph& graph, const Topology& topology) {
  const Vector<DeviceId> all = topology.by_links();
  Strategy strategy;
  for (const Operator& op : graph.operators) strategy.push_back(split_over(*op.definition, 0, all));
  return strategy;
}

Strategy single_device(const Graph& graph, DeviceId device) {
  Strategy strategy;
  for (const Operator& op : graph.operators)
    strategy.push_back({Vector<int>(op.definition->dimensions().size(), 1), {device}});
  return strategy;
}

std::string_view to_string(ConfigurationOrigin origin) {
  switch (origin) {
    case ConfigurationOrigin::unstated: return "unstated";
    case ConfigurationOrigin::annotated: return "annotated";
    case ConfigurationOrigin::propagated: return "propagated";
    case ConfigurationOrigin::searched: return "searched";
  }
  return "";
}

std::string_view to_string(TransferBuffers buffers) {
  return buffers == TransferBuffers::on_demand ? "on_demand" : "preallocated";
}

std::string_view to_string(Schedule schedule) {
  return schedule == Schedule::one_forward_one_backward ? "1f1b" : "unstated";
}

std::string_view to_string(Synchronization synchronization) {
  switch (synchronization) {
    case Synchronization::parameter_server: return "parameter-server";
    case Synchronization::sharded_optimizer: return "sharded optimizer state";
    case Synchronization::sharded_gradients: return "sharded gradients";
    case Synchronization::sharded_parameters: return "sharded parameters";
    default: return "all-reduce";
  }
}

std::string_view sharding_name(Synchronization synchronization) {
  switch (synchronization) {
    case Synchronization::sharded_optimizer: return "optimizer";
    case Synchronization::sharded_gradients: return "gradients";
    case Synchronization::sharded_parameters: return "parameters";
    default: return "none";
  }
}

Synchronization with_sharding(Synchronization synchronization, const std::string& sharding) {
  if (sharding == "none") return is_sharded(synchronization) ? Synchronization::all_reduce : synchronization;
  constexpr Synchronization choices[] = {Synchronization::sharded_optimizer, Synchronization::sharded_gradients,
                                         Synchronization::sharded_parameters};
  const auto* chosen = std::find_if(std::begin(choices), std::end(choices),
                                    [&](Synchronization choice) { return sharding_name(choice) == sharding; });
  if (chosen == std::end(choices))
    throw InputError("found \"" + sharding + "\"" +
                     suggestion(sharding, {"none", "optimizer", "gradients", "parameters"}));
  if (synchronization == Synchronization::parameter_server)
    throw InputError("a parameter server has the optimizer's state already, it cannot be sharded");
  return *chosen;
}

namespace {

// A key whose value is one of two words; without it, `otherwise`. `renamed` is what `other` or `otherwise` was called.
template <typename Choice>
Choice parse_choice(const JsonPlace& file, const std::string& key, Choice otherwise, Choice other,
                    const Vector<Renamed>& renamed) {
  const auto place = file.find(key);
  if (!place) return otherwise;
  const std::string text = place->as_string();
  for (const Choice choice : {otherwise, other})
    if (text == to_string(choice)) return choice;
  for (const Renamed& word : renamed)
    if (text == word.before) place->fail("\"" + text + "\" is now called \"" + word.now + "\"");
  place->fail("found \"" + text + "\"" +
              suggestion(text, {std::string(to_string(otherwise)), std::string(to_string(other))}));
}

void parse_schedule(const JsonPlace& place, StrategyFile& file) {
  const std::string word = place.as_string(), known(to_string(Schedule::one_forward_one_backward));
  if (word != known) place.fail("found \"" + word + "\", expected \"" + known + '"');
  if (!file.issue_order.empty()) place.fail("the file has an issue_order, which is another order of tasks");
  if (!PipelineSchedule::of(file))
    place.fail(
        "1f1b is an order of two micro_batches or more, in stages of other devices that follow one another, or with "
        "all operators on all devices; with equally many chunks of operators in each stage, with several chunks a "
        "multiple of the stages as micro-batches, and without statistics of all micro-batches");
  file.settings.schedule = Schedule::one_forward_one_backward;
}

}  // namespace

StrategyFile parse_strategy(const JsonPlace& place) {
  expect_format(place, "ffstrategy/1");
  place.allow_keys(
      {"$schema", "format", "graph", "topology", "configurations", "issue_order", "transfer_buffers", "synchronization",
       "sharding", "micro_batches", "schedule", "recompute", "overlap_grad_reduce", "precision", "provenance"},
      "key of a strategy");
  StrategyFile file;
  if (const auto precision = place.find("precision")) {
    const std::string word = precision->as_string();
    file.settings.precision = precision->at_this_place([&] { return precision_of(word); });
  }
  file.graph = parse_graph(place.at("graph"), 0, activation_type(file.settings.precision));
  file.topology = parse_topology(place.at("topology"));
  std::optional<Graph> of_micro_batch;
  if (const auto micro_batches = place.find("micro_batches")) {
    file.settings.micro_batches = static_cast<int>(micro_batches->as_integer(1, 1 << 20));
    of_micro_batch =
        micro_batches->at_this_place([&] { return graph_of_micro_batch(file.graph, file.settings.micro_batches); });
  }
  Configurations configurations =
      parse_configurations(place.at("configurations"), of_micro_batch ? *of_micro_batch : file.graph, file.topology);
  file.strategy = std::move(configurations.strategy);
  file.origins = std::move(configurations.origins);
  if (const auto order = place.find("issue_order"))
    for (const JsonPlace& name : order->items()) file.issue_order.push_back(name.as_string());
  if (const auto schedule = place.find("schedule")) parse_schedule(*schedule, file);
  file.transfer_buffers = parse_choice(place, "transfer_buffers", TransferBuffers::preallocated,
                                       TransferBuffers::on_demand, {{"roomy", "preallocated"}, {"brief", "on_demand"}});
  file.settings.synchronization = parse_choice(place, "synchronization", Synchronization::all_reduce,
                                               Synchronization::parameter_server, {{"owner", "parameter-server"}});
  if (const auto sharding = place.find("sharding")) parse_sharding(*sharding, file.graph, file.settings);
  if (const auto recompute = place.find("recompute")) {
    for (const JsonPlace& pattern : recompute->items()) file.settings.recompute.push_back(pattern.as_string());
    recompute->at_this_place([&] { recomputed_operators(file.graph, file.settings.recompute); });
  }
  if (const auto overlap = place.find("overlap_grad_reduce")) {
    file.settings.overlaps_reductions = overlap->as_bool();
    if (!file.settings.overlaps_reductions && file.settings.synchronization == Synchronization::parameter_server)
      overlap->fail("gradients that go to parameter servers are sent as soon as they are there");
  }
  file.provenance = Json::object();
  if (const auto provenance = place.find("provenance")) {
    provenance->expect_object();
    file.provenance = provenance->value();
    if (const auto hash = provenance->find("configurations_hash"))
      file.edited = hash->as_string() != configurations_hash(file.graph, file.strategy, file.settings.micro_batches);
    if (const auto predicted = provenance->find("predicted_us")) predicted->as_number(0, 1e18);
  }
  return file;
}

StrategyFile load_strategy(const std::string& path) { return parse_strategy(read_json_file(path)); }

Json strategy_to_json(const StrategyFile& file) {
  Json json = {{"format", "ffstrategy/1"},
               {"configurations", configurations_to_json(file.graph, file.strategy, file.origins)}};
  json["provenance"] = file.provenance.is_object() ? file.provenance : Json::object();
  json["provenance"]["configurations_hash"] =
      configurations_hash(file.graph, file.strategy, file.settings.micro_batches);
  json["graph"] = file.graph.file();
  json["topology"] = file.topology.file;
  // "$schema" of the embedded files is relative to where those files lay.
  json["graph"].erase("$schema");
  json["topology"].erase("$schema");
  if (file.transfer_buffers != TransferBuffers::preallocated)
    json["transfer_buffers"] = to_string(file.transfer_buffers);
  if (is_sharded(file.settings.synchronization)) json["sharding"] = sharding_to_json(file.settings);
  else if (file.settings.synchronization != Synchronization::all_reduce)
    json["synchronization"] = to_string(file.settings.synchronization);
  if (file.settings.micro_batches > 1) json["micro_batches"] = file.settings.micro_batches;
  if (file.settings.schedule != Schedule::unstated) json["schedule"] = to_string(file.settings.schedule);
  if (!file.settings.recompute.empty()) json["recompute"] = file.settings.recompute;
  if (!file.settings.overlaps_reductions) json["overlap_grad_reduce"] = false;
  if (file.settings.precision != Precision::fp32) json["precision"] = to_string(file.settings.precision);
  if (!file.issue_order.empty()) json["issue_order"] = file.issue_order;
  return json;
}

void save_strategy(const std::string& path, const StrategyFile& file) { write_json_file(path, strategy_to_json(file)); }

std::string configurations_hash(const Graph& graph, const Strategy& strategy, int micro_batches) {
  std::string text;
  if (micro_batches > 1) text = std::to_string(micro_batches) + " micro-batches\n";
  for (size_t i = 0; i < strategy.size(); ++i) {
    text += graph.operators[i].name + ":";
    for (size_t d = 0; d < strategy[i].degrees.size(); ++d) {
      const int degree = strategy[i].degrees[d];
      const bool sums = graph.operators[i].definition->dimensions()[d].kind == DimensionKind::reduction;
      if (degree > 1 || !sums) text += std::to_string(degree) + ",";  // files from before there were sums say the same
      for (const int share : strategy[i].degrees.shares(static_cast<int>(d))) text += ":" + std::to_string(share);
    }
    text += "@";
    for (DeviceId device : strategy[i].devices) text += std::to_string(device) + ",";
    text += "\n";
  }
  return content_hash(text);
}

}  // namespace ff
