#include "common/task_graph/sharded_units.h"

#include "common/micro_batches.h"

namespace ff {

ShardRounds shard_rounds(const TaskGraphBuilder& builder, int group) {
  ShardRounds result;
  const ParameterGroup& of = builder.groups()[group];
  const Synchronization synchronization = builder.synchronization(group);
  if (!shards_gradients(synchronization) || !of.trained || of.operators.size() > 1) return result;
  result.gradients = true;
  result.parameters = shards_parameters(synchronization);
  result.micro_batches = builder.micro_batches();
  if (has_micro_batches(*builder.graph().operators[of.operators[0]].definition)) result.rounds = result.micro_batches;
  return result;
}

int micro_batch_of_part(const TaskGraphBuilder& builder, const Strategy& strategy, OperatorId op, int32_t part) {
  return micro_batch_of(*builder.graph().operators[op].definition, strategy[op].parts(), part, builder.micro_batches());
}

int micro_batch_of_task(const TaskGraphBuilder& builder, const Strategy& strategy, const Task& task) {
  if (builder.micro_batches() == 1) return -1;
  if (is_compute(task.kind)) return micro_batch_of_part(builder, strategy, task.op, task.part);
  if (!task.pair) return -1;
  return micro_batch_of_part(builder, strategy, builder.edges()[task.edge].producer, task.pair->producer_part);
}

}  // namespace ff
