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

}  // namespace ff
