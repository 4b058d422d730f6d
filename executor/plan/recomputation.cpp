// What recomputed parts read and write the second time: recompute and backward see the part with other places.
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
  for (int e : planner.builder.edges().indices()) {
    const Edge& edge = planner.builder.edges()[e];
    if (!planner.tasks.pairs[e]) continue;
    for (const BlockPair& pair : *planner.tasks.pairs[e]) {
      const auto consumer = again.find({edge.consumer, pair.consumer_part});
      if (consumer == again.end() || !recomputed_in_place(planner.builder, planner.strategy, e, pair)) continue;
      plan.parts[consumer->second].inputs[edge.input] =
          plan.parts[again.at({edge.producer, pair.producer_part})].outputs[planner.graph.tensors[edge.tensor].output];
    }
  }
  for (StepPlan& step : plan.steps)
    if (step.part >= 0 && (step.kind == TaskKind::recompute || step.kind == TaskKind::backward))
      if (const auto found = again.find({plan.parts[step.part].op, plan.parts[step.part].part}); found != again.end())
        step.part = found->second;
}

}  // namespace ff
