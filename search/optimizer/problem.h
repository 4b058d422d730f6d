// What a search is given: an operator graph, the devices to train it on, and what kernels cost there; and what the user
// has decided already.
#pragma once

#include <memory>

#include "common/graph.h"
#include "common/micro_batches.h"
#include "search/cost/kernel_costs.h"
#include "search/cost/replicas.h"
#include "search/optimizer/annotations.h"
#include "search/simulator/task_order.h"

namespace ff {

// By reference: all must outlive whatever is made of a problem. Thread-safe, as are they.
struct Problem {
  const Graph& graph;  // of one micro-batch
  const Topology& topology;
  KernelCosts& kernels;
  const Annotations* annotations = nullptr;            // none: the user has not decided anything
  StrategySettings settings = {};                      // of every strategy that is looked at
  int state_buffers = 0;                               // of the optimizer, for each trained parameter: they take memory
  std::shared_ptr<const Graph> batch_graph = nullptr;  // of all micro-batches; null: there is one
  std::shared_ptr<const Replicas> replicas = nullptr;  // that the devices stand for (folding.h); null: themselves
  // In which strategies are judged: fifo, or one_forward_one_backward where there are several micro-batches.
  TaskOrder order = TaskOrder::fifo;

  // What an iteration computes.
  const Graph& whole() const { return batch_graph ? *batch_graph : graph; }
  // Of the parts of an operator in each micro-batch: kernels are measured for these.
  Degrees expanded_degrees(OperatorId op, const Degrees& degrees) const {
    return ff::expanded_degrees(*graph.operators[op].definition, degrees, settings.micro_batches);
  }
  // The same for another graph, of one micro-batch, on other devices, without annotations, which are for these ones.
  Problem with(const Graph& other_graph, const Topology& other_topology) const {
    const bool same_batch = !batch_graph || &other_graph == &graph;
    return {
        other_graph,
        other_topology,
        kernels,
        nullptr,
        settings,
        state_buffers,
        same_batch ? batch_graph : std::make_shared<const Graph>(graph_of_batch(other_graph, settings.micro_batches))};
  }
  Problem with(const Topology& other) const {
    return {graph, other, kernels, annotations, settings, state_buffers, batch_graph, nullptr, order};
  }

  Strategy keeping_annotations(Strategy strategy) const {
    return keep_annotations(std::move(strategy), annotations, graph, topology);
  }
};

}  // namespace ff
