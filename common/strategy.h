// Strategies: for every operator, how it is split and where its tasks run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/graph.h"
#include "common/topology.h"
#include "common/vector.h"

namespace ff {

// One operator's degrees (one a parallelizable dimension) and devices (one a task; task numbers are row-major over the
// degrees).
struct Configuration {
  Degrees degrees;
  Vector<DeviceId> devices;
  bool operator==(const Configuration&) const = default;
  int64_t parts() const { return static_cast<int64_t>(devices.size()); }
};

using Strategy = Vector<Configuration>;  // by OperatorId

// One operator gets another configuration.
struct Change {
  OperatorId op;
  Configuration configuration;
};

// One dimension split over these devices, or the first of them where it has fewer elements than there are devices.
Configuration split_over(const OperatorDefinition& definition, int dimension, std::span<const DeviceId> devices);
// Every operator split by sample over all devices (paper section 2); an operator with fewer samples than devices is
// split as far as it goes.
Strategy data_parallel(const Graph& graph, const Topology& topology);
// Every operator whole, on one device.
Strategy single_device(const Graph& graph, DeviceId device = 0);

// Why an operator has its configuration. What the search computes with are Configurations, which do not carry it.
enum class ConfigurationOrigin : uint8_t { unstated, annotated, propagated, searched };
std::string_view to_string(ConfigurationOrigin origin);

// How long the memory of transfers is kept (task_graph/memory_plan.h): for the whole iteration, which costs nothing but
// memory; or while it is needed, where devices have little: a sender whose receiver is late may then have to wait.
enum class TransferBuffers : uint8_t { preallocated, on_demand };
std::string_view to_string(TransferBuffers buffers);

// How the devices that hold the same parameters come to the same new values (task_graph/synchronization_units.h): by an
// all-reduce of the gradients, after which each updates its own copy; or by one of them, the owner, which gathers the
// gradients, updates, and sends the values back, after all other work of the iteration. The second is what FlexFlow's
// published simulator reckons with. Or they have a shard each (ZeRO stages 1 to 3; task_graph/synchronization_units.h):
// of the optimizer's state; of the gradients too; of the weights too.
enum class Synchronization : uint8_t {
  all_reduce,
  parameter_server,
  sharded_optimizer,
  sharded_gradients,
  sharded_parameters
};
std::string_view to_string(Synchronization synchronization);
constexpr bool is_sharded(Synchronization synchronization) {
  return synchronization >= Synchronization::sharded_optimizer;
}
constexpr bool shards_gradients(Synchronization synchronization) {
  return synchronization >= Synchronization::sharded_gradients;
}
constexpr bool shards_parameters(Synchronization synchronization) {
  return synchronization == Synchronization::sharded_parameters;
}
// What --sharding and a strategy's key `sharding` say: none, optimizer, gradients or parameters.
std::string_view sharding_name(Synchronization synchronization);
// Throws InputError for anything else, and for shards of what a parameter server has.
Synchronization with_sharding(Synchronization synchronization, const std::string& sharding);

// In which order each device runs the tasks of several micro-batches: as the file's issue order says, or as tasks
// become ready; or pass by pass in the fixed order of a pipeline (task_graph/pipeline_schedule.h).
enum class Schedule : uint8_t { unstated, one_forward_one_backward };
std::string_view to_string(Schedule schedule);

// Of the parameters of operators that a pattern names (sharding.h).
struct OperatorSharding {
  std::string operators;
  Synchronization synchronization;
  bool operator==(const OperatorSharding&) const = default;
};

// What a strategy decides for the network as a whole.
// Devices that exchange over an edge by a collective, at least: two exchange as well by transfers, without waiting
// together.
constexpr int least_collective_size = 3;

struct StrategySettings {
  // Where `sharding` differs between parameters: the furthest of its stages.
  Synchronization synchronization = Synchronization::all_reduce;
  Vector<OperatorSharding> sharding = {};  // empty: all parameters are synchronized alike
  int micro_batches = 1;                   // configurations are those of one of them (micro_batches.h)
  Schedule schedule = Schedule::unstated;
  // Names and patterns of operators that are computed again in front of backward (recomputation.h).
  Vector<std::string> recompute = {};
  // Else gradients, if they are not sharded, are reduced when a device's last backward pass is complete. That costs a
  // pipeline little, whose stages end one after the other; reductions would delay what they send to each other.
  bool overlaps_reductions = true;
  // How many devices exchange over an edge by a collective at least. Not in strategy files: predictions of frameworks,
  // which call NCCL's collectives for two devices, too.
  int least_collective_size = ff::least_collective_size;
  // The graph of a strategy file has the types that follow from it.
  Precision precision = Precision::fp32;
  bool operator==(const StrategySettings&) const = default;
};

// A strategy file, ffstrategy/1: self-contained.
struct StrategyFile {
  Graph graph;
  Topology topology;
  Strategy strategy;                // of one micro-batch
  Vector<std::string> issue_order;  // as issue_order_names writes it; empty: to be derived
  Json provenance;                  // program, algorithm, seed, hashes, predicted times; an object, may be empty
  bool edited = false;              // degrees or devices no longer hash to provenance.configurations_hash
  Vector<ConfigurationOrigin> origins = {};  // by OperatorId; empty: not known
  TransferBuffers transfer_buffers = TransferBuffers::preallocated;
  StrategySettings settings = {};
};

// Throws InputError for anything that is not a valid ffstrategy/1; every degree and device is checked against graph and
// topology.
StrategyFile load_strategy(const std::string& path);
StrategyFile parse_strategy(const JsonPlace& place);
Json strategy_to_json(const StrategyFile& file);
void save_strategy(const std::string& path, const StrategyFile& file);  // atomic

// Identifies the degrees and devices of a strategy and the number of its micro-batches, whatever the rest of its file.
std::string configurations_hash(const Graph& graph, const Strategy& strategy, int micro_batches = 1);

}  // namespace ff
