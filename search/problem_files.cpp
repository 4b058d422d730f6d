#include "search/problem_files.h"

#include <filesystem>

#include "common/recomputation.h"
#include "common/sharding.h"
#include "common/task_graph/parameter_buffers.h"

namespace ff {

namespace {

void expect_gradients(const Graph& graph, const std::string& place) {
  for (const ParameterId parameter : graph.parameters.indices())
    if (is_updated(graph, parameter)) return;
  throw InputError(place + ": an optimizer has nothing to do: no parameter of \"" + graph.name + "\" has a gradient");
}

}  // namespace

GraphAndTopology load_files(const ProblemFiles& files, const StrategySettings& settings) {
  Topology topology = load_topology(files.topology);
  const int64_t batch = files.batch_per_device > 0 ? files.batch_per_device * topology.devices.count() : files.batch;
  GraphAndTopology loaded{load_graph(files.graph, batch), std::move(topology), files.annotations, settings};
  loaded.settings.recompute = recomputation_patterns(loaded.graph, settings.recompute);
  if (is_sharded(settings.synchronization) && loaded.topology.devices.size() == 1)
    throw InputError("--sharding: \"" + loaded.topology.name +
                     "\" has one device; state is split among several that hold the same parameters");
  if (loaded.graph.optimizer) expect_gradients(loaded.graph, files.graph + ": /optimizer");
  try {
    sharding_by_group(loaded.graph, settings.sharding);
  } catch (const InputError& error) {
    throw InputError(std::string("--sharding: ") + error.what());
  }
  return loaded;
}

GraphAndTopology with_precision(GraphAndTopology files, Precision precision) {
  files.settings.precision = precision;
  if (const DataType type = activation_type(precision); files.graph.activation_type != type)
    files.graph = with_activation_type(files.graph, type);
  return files;
}

Loaded::Loaded(GraphAndTopology files, CostMode mode, Vector<Profile> profiles, const FrameworkConventions& conventions)
    : graph(with_conventions(graph_of_micro_batch(files.graph, files.settings.micro_batches), conventions)),
      batch_graph(files.settings.micro_batches > 1
                      ? std::make_shared<const Graph>(with_conventions(std::move(files.graph), conventions))
                      : nullptr),
      topology(std::move(files.topology)), settings(files.settings), replicas(std::move(files.replicas)),
      kernels(topology, mode, std::move(profiles), working_set_bytes(graph, topology), settings.precision,
              graph.optimizer.value_or(OptimizerSettings()).kind) {
  kernels.follow(conventions);
  if (!files.annotations.empty()) annotations = load_annotations(files.annotations, graph, topology);
}

namespace {

// A directory stands for the file in it of each device model of the topology that has one, MODEL.json.
Vector<std::string> profile_files(const Vector<std::string>& paths, const Topology& topology) {
  Vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    std::string expected;
    for (const DeviceModel& model : topology.models) {
      const std::string name = model.name + ".json";
      expected += (expected.empty() ? "" : ", ") + name;
      if (const auto file = std::filesystem::path(path) / name; std::filesystem::exists(file)) files.push_back(file);
    }
    if (files.size() == before)
      throw InputError(path + ": has no profile of a device model of the topology \"" + topology.name +
                       "\"; expected " + expected);
  }
  return files;
}

}  // namespace

Loaded load(GraphAndTopology files, const CostOptions& costs) {
  if (costs.optimizer.any()) expect_gradients(files.graph, "--optimizer");
  if (costs.optimizer.any()) set_optimizer(files.graph, with_flags(files.graph.optimizer, costs.optimizer));
  files = with_precision(std::move(files), costs.precision.value_or(files.settings.precision));
  Vector<Profile> profiles;
  for (const std::string& path : profile_files(costs.profiles, files.topology)) profiles.push_back(load_profile(path));
  return Loaded(std::move(files), costs.mode, std::move(profiles), costs.conventions);
}

}  // namespace ff
