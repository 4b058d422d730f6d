#include "common/task_graph/sharded_units.h"

#include <algorithm>

#include "common/micro_batches.h"
#include "common/task_graph/part_blocks.h"

namespace ff {
namespace {

// Of parameter `which` of the operator, on every axis.
Vector<Vector<int64_t>> boundaries_of(const Operator& op, int which, const Degrees& degrees) {
  const PartBlocks blocks(*op.definition, degrees, PartBlocks::Role::parameter, which);
  Vector<Vector<int64_t>> boundaries;
  for (int axis = 0; axis < blocks.rank(); ++axis) boundaries.push_back(blocks.boundaries(axis));
  if (!blocks.leave_no_gap()) boundaries.push_back({});
  return boundaries;
}

}  // namespace

bool cuts_alike(const TaskGraphBuilder& builder, const ParameterGroup& group, const Strategy& strategy) {
  const Graph& graph = builder.graph();
  for (const ParameterId parameter : group.parameters) {
    const auto& uses = graph.parameters[parameter].uses;
    const auto& [first, which_first] = uses[0];
    Vector<Vector<int64_t>> expected;
    for (const auto& [op, which] : uses) {
      if (builder.alike()[op] == builder.alike()[first] && which == which_first &&
          strategy[op].degrees == strategy[first].degrees)
        continue;
      if (expected.empty()) expected = boundaries_of(graph.operators[first], which_first, strategy[first].degrees);
      if (boundaries_of(graph.operators[op], which, strategy[op].degrees) != expected) return false;
    }
  }
  return true;
}

ShardRounds shard_rounds(const TaskGraphBuilder& builder, int group, const Strategy& strategy) {
  ShardRounds result;
  const ParameterGroup& of = builder.groups()[group];
  if (!shards_gradients(builder.synchronization()) || !of.trained || !cuts_alike(builder, of, strategy)) return result;
  result.gradients = true;
  result.parameters = shards_parameters(builder.synchronization());
  result.micro_batches = builder.micro_batches();
  const bool in_micro_batches = std::any_of(of.operators.begin(), of.operators.end(), [&](OperatorId op) {
    return has_micro_batches(*builder.graph().operators[op].definition);
  });
  if (in_micro_batches) result.rounds = builder.micro_batches();
  return result;
}

int micro_batch_of_part(const TaskGraphBuilder& builder, const Strategy& strategy, OperatorId op, int32_t part) {
  return micro_batch_of(*builder.graph().operators[op].definition, strategy[op].parts(), part, builder.micro_batches());
}

}  // namespace ff
