// Random small networks, strategies and orders of tasks.
#pragma once

#include <optional>

#include "common/strategy.h"
#include "common/task_graph/task_graph.h"
#include "common/vector.h"
#include "tests/support/random_source.h"

namespace ff {

// A valid ffgraph/1 with a loss, drawn from `random`: all operator types, residual additions, concatenations, shared
// parameters.
Json random_network(RandomSource& random);
Graph random_graph(RandomSource& random);  // the same, parsed

// Any degrees (dividing or not) and any of the devices, several tasks on one and none on others included.
Strategy random_strategy(const Graph& graph, int devices, RandomSource& random);
// The parts of an operator on a device, ascending.
inline Vector<int32_t> parts_on(const Configuration& configuration, DeviceId device) {
  Vector<int32_t> parts;
  for (const int part : configuration.devices.indices())
    if (configuration.devices[part] == device) parts.push_back(part);
  return parts;
}
// One of all, in turn.
inline Synchronization synchronization_of(unsigned number) { return static_cast<Synchronization>(number % 5); }

// The graph of one of so many micro-batches; nothing where the network is not the same in so many.
std::optional<Graph> micro_batch_graph(const Graph& graph, int micro_batches);

// A random strategy, expanded for so many micro-batches where the graph has them, else for one.
struct DrawnStrategy {
  Strategy strategy;
  int micro_batches;
};
DrawnStrategy random_expanded_strategy(const Graph& graph, int micro_batches, int devices, RandomSource& random);

// All tasks, by index, in a random one of the orders that the task graph allows.
Vector<int> random_task_order(const TaskGraph& tasks, RandomSource& random);

}  // namespace ff
