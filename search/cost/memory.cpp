#include "search/cost/memory.h"

#include <algorithm>
#include <set>

namespace ff {
namespace {

int64_t bytes_of(const Block& block) { return block.volume() * element_bytes; }

}  // namespace

std::vector<int64_t> memory_bytes(TaskGraphBuilder& builder, const TaskGraph& tasks, const Strategy& strategy, int device_count) {
  const Graph& graph = builder.graph();
  std::vector<int64_t> bytes(static_cast<size_t>(device_count), 0);
  std::set<std::tuple<DeviceId, ParameterId, std::vector<int64_t>>> parameter_blocks;
  for (const Task& task : tasks.tasks) {
    if (is_transfer(task.kind)) {
      // The sender packs what is not a whole buffer; the receiver stages what is not a whole buffer.
      const bool forward = task.kind == TaskKind::activation;
      if (!(forward ? task.pair->whole_output : task.pair->whole_input)) bytes[task.device] += task.bytes;
      if (!(forward ? task.pair->whole_input : task.pair->whole_output)) bytes[task.destination] += task.bytes;
      continue;
    }
    if (!is_compute(task.kind)) continue;
    const Operator& op = graph.operators[task.op];
    const OperatorDefinition& definition = *op.definition;
    const Block part = definition.part(strategy[task.op].degrees, task.part);
    int64_t& here = bytes[task.device];
    if (is_statistics(task.kind)) {
      here += definition.statistics_bytes(part);
    } else if (task.kind == TaskKind::forward) {
      here += definition.workspace_bytes(part);
      for (int o = 0; o < static_cast<int>(op.outputs.size()); ++o) here += bytes_of(definition.output_block(o, part));
      for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
        if (graph.tensors[op.inputs[i]].producer < 0) here += bytes_of(definition.input_block(i, part));
      for (int p = 0; p < static_cast<int>(op.parameters.size()); ++p) {
        const Block block = definition.parameter_block(p, part);
        std::vector<int64_t> corners;
        for (int axis = 0; axis < block.rank(); ++axis) corners.insert(corners.end(), {block[axis].begin, block[axis].end});
        // Weight, velocity and gradient, one of each for all parts with the same block.
        if (parameter_blocks.emplace(task.device, op.parameters[p], corners).second) here += (!definition.parameters()[p].trained ? 1 : op.has_backward ? 3 : 2) * bytes_of(block);
      }
    } else {
      for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
        if (graph.input_has_gradient(task.op, i)) here += bytes_of(definition.input_block(i, part));
    }
  }
  // Inputs that are not the producer's own buffer, and gradients of outputs that are not one consumer's own contribution.
  std::vector<std::vector<int>> contributions(graph.tensors.size()), own(graph.tensors.size());
  for (size_t e = 0; e < builder.edges().size(); ++e) {
    const Edge& edge = builder.edges()[e];
    const Configuration& producer = strategy[edge.producer];
    const Configuration& consumer = strategy[edge.consumer];
    const bool has_gradient = graph.operators[edge.consumer].has_backward && graph.input_has_gradient(edge.consumer, edge.input);
    contributions[edge.tensor].resize(producer.devices.size(), 0);
    own[edge.tensor].resize(producer.devices.size(), 0);
    std::vector<bool> aliased(consumer.devices.size(), false);
    for (const BlockPair& pair : builder.pairs(static_cast<int>(e), strategy)) {
      const bool same_buffer =
          pair.whole_input && pair.whole_output && producer.devices[pair.producer_part] == consumer.devices[pair.consumer_part];
      if (same_buffer) aliased[pair.consumer_part] = true;
      if (!has_gradient) continue;
      ++contributions[edge.tensor][pair.producer_part];
      if (same_buffer) own[edge.tensor][pair.producer_part] = 1;
    }
    const OperatorDefinition& definition = *graph.operators[edge.consumer].definition;
    for (int part = 0; part < consumer.parts(); ++part)
      if (!aliased[part]) bytes[consumer.devices[part]] += bytes_of(definition.input_block(edge.input, definition.part(consumer.degrees, part)));
  }
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (!tensor.has_gradient) continue;
    const OperatorDefinition& definition = *graph.operators[tensor.producer].definition;
    const Configuration& producer = strategy[tensor.producer];
    for (int part = 0; part < producer.parts(); ++part)
      if (contributions[t][part] != 1 || !own[t][part])
        bytes[producer.devices[part]] += bytes_of(definition.output_block(tensor.output, definition.part(producer.degrees, part)));
  }
  return bytes;
}

}  // namespace ff
