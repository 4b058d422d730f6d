// What recomputed parts read and write the second time: recompute and backward see the part with other places. So does
// backward of parts that read the outputs of those.
#include <map>

#include "common/task_graph/recomputed_edges.h"
#include "executor/plan/planner.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

Place recomputed_output(const Planner& planner, const PartPlan& part, int output) {
  return planner.in_arena({Kind::recomputed_output, part.op, part.part, output}, part.output_blocks[output].volume(),
                          part.outputs[output].type);
}

}  // namespace

void plan_recomputation(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  std::map<std::pair<OperatorId, int>, int> again;  // by operator and part: index of the copy
  for (int p = 0, parts = plan.parts.count(); p < parts; ++p) {
    if (!planner.builder.recomputed(plan.parts[p].op)) continue;
    PartPlan part = plan.parts[p];
    part.again = true;
    part.computed = planner.builder.computed_again(part.op);
    if (part.computed)
      for (const int output : part.outputs.indices()) part.outputs[output] = recomputed_output(planner, part, output);
    again[{part.op, part.part}] = plan.parts.count();
    plan.parts.push_back(std::move(part));
  }
  std::map<std::pair<OperatorId, int>, int> first;  // of parts that are not recomputed
  for (const int p : plan.parts.indices())
    if (!planner.builder.recomputed(plan.parts[p].op)) first[{plan.parts[p].op, plan.parts[p].part}] = p;
  for (int e : planner.builder.edges().indices()) {
    const Edge& edge = planner.builder.edges()[e];
    if (!reads_recomputed(planner.builder, edge) || !planner.tasks.pairs[e]) continue;
    for (const BlockPair& pair : *planner.tasks.pairs[e]) {
      const auto producer = again.find({edge.producer, pair.producer_part});
      if (producer == again.end() || !reads_recomputed(planner.builder, planner.strategy, e, pair)) continue;
      const auto [consumer, is_new] = again.try_emplace({edge.consumer, pair.consumer_part}, plan.parts.count());
      if (is_new) {
        plan.parts.push_back(plan.parts[first.at({edge.consumer, pair.consumer_part})]);
        plan.parts.back().again = true;
      }
      plan.parts[consumer->second].inputs[edge.input] =
          plan.parts[producer->second].outputs[planner.graph.tensors[edge.tensor].output];
    }
  }
  for (StepPlan& step : plan.steps)
    if (step.part >= 0 && (step.kind == TaskKind::recompute || direction_of(step.kind) == Direction::backward))
      if (const auto found = again.find({plan.parts[step.part].op, plan.parts[step.part].part}); found != again.end())
        step.part = found->second;
}

}  // namespace ff
