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
    if (task.kind == TaskKind::forward) {
      for (int o = 0; o < static_cast<int>(op.outputs.size()); ++o) here += bytes_of(definition.output_block(o, part));
      for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
        if (graph.tensors[op.inputs[i]].producer < 0) here += bytes_of(definition.input_block(i, part));
      for (int p = 0; p < static_cast<int>(op.parameters.size()); ++p) {
        const Block block = definition.parameter_block(p, part);
        std::vector<int64_t> corners;
        for (int axis = 0; axis < block.rank(); ++axis) corners.insert(corners.end(), {block[axis].begin, block[axis].end});
        if (parameter_blocks.emplace(task.device, op.parameters[p], corners).second) here += 2 * bytes_of(block);
      }
    } else {
      for (int o = 0; o < static_cast<int>(op.outputs.size()); ++o)
        if (graph.tensors[op.outputs[o]].has_gradient) here += bytes_of(definition.output_block(o, part));
      for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
        if (graph.input_has_gradient(task.op, i)) here += bytes_of(definition.input_block(i, part));
      for (int p = 0; p < static_cast<int>(op.parameters.size()); ++p) here += bytes_of(definition.parameter_block(p, part));
    }
  }
  // Inputs that are not the producer's own buffer.
  for (size_t e = 0; e < builder.edges().size(); ++e) {
    const Edge& edge = builder.edges()[e];
    const Configuration& producer = strategy[edge.producer];
    const Configuration& consumer = strategy[edge.consumer];
    std::vector<bool> aliased(consumer.devices.size(), false);
    for (const BlockPair& pair : builder.pairs(static_cast<int>(e), strategy))
      if (pair.whole_input && pair.whole_output && producer.devices[pair.producer_part] == consumer.devices[pair.consumer_part])
        aliased[pair.consumer_part] = true;
    const OperatorDefinition& definition = *graph.operators[edge.consumer].definition;
    for (int part = 0; part < consumer.parts(); ++part)
      if (!aliased[part]) bytes[consumer.devices[part]] += bytes_of(definition.input_block(edge.input, definition.part(consumer.degrees, part)));
  }
  return bytes;
}

}  // namespace ff
