// How messages are matched, when transfers are waited for, and in which order they start.
#include <algorithm>
#include <map>
#include <set>

#include "executor/plan/planner.h"
#include "executor/plan/transfer_order.h"

namespace ff {

void plan_tags(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  const auto by_key = [&](const auto* a, const auto* b) {
    return planner.tasks.tasks[a->task].key < planner.tasks.tasks[b->task].key;
  };
  for (Vector<TransferPlan>* transfers : {&plan.sends, &plan.receives}) {
    Vector<TransferPlan*> ordered;
    for (TransferPlan& transfer : *transfers) ordered.push_back(&transfer);
    std::sort(ordered.begin(), ordered.end(), by_key);
    std::map<int, int> counts;  // by peer
    for (TransferPlan* transfer : ordered) transfer->tag = counts[transfer->peer]++;
  }
  Vector<StepPlan*> collectives;
  for (StepPlan& step : plan.steps)
    if (is_collective(step.kind)) collectives.push_back(&step);
  std::sort(collectives.begin(), collectives.end(), by_key);
  std::map<int, int> counts;  // by group
  for (StepPlan* step : collectives)
    step->tag = counts[planner.group_of(planner.tasks.holders(planner.tasks.tasks[step->task]))]++;
}

// The steps from which the memory of receives is theirs.
void plan_posts(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  for (int r : plan.receives.indices())
    plan.steps[plan.memory.find(plan.receives[r].received)->first].posts.push_back(r);
}

// What is written first in a step, or by a receive that is posted there, may lie where a send is still read: one of
// this iteration with on-demand buffers, else one of the iteration before.
void plan_send_waits(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  std::set<BufferKey> received;
  for (const TransferPlan& receive : plan.receives) received.insert(receive.received);
  for (int s : plan.sends.indices()) {
    if (plan.sends[s].memory.buffer != arena_buffer) continue;  // see owners.cpp
    const int64_t begin = plan.sends[s].memory.offset_bytes(), end = begin + plan.sends[s].bytes;
    for (const PlannedBuffer& buffer : plan.memory.buffers) {
      if (buffer.offset >= end || begin >= buffer.offset + buffer.bytes) continue;
      StepPlan& step = plan.steps[buffer.first];
      Vector<int>& waits = received.count(buffer.key) ? step.waits_before_posts : step.waits;
      if (waits.empty() || waits.back() != s) waits.push_back(s);
    }
  }
}

void plan_transfer_groups(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  std::unordered_map<int, int> send_of, receive_of;  // by task
  for (size_t i = 0; i < plan.sends.size(); ++i) send_of[plan.sends[i].task] = static_cast<int>(i);
  for (size_t i = 0; i < plan.receives.size(); ++i) receive_of[plan.receives[i].task] = static_cast<int>(i);
  Vector<bool> steps_here(planner.tasks.tasks.size(), false);
  for (const StepPlan& step : plan.steps) steps_here[step.task] = true;
  for (const TransferRun& run : order_transfers(planner.tasks, planner.order, steps_here, planner.settings.rank)) {
    TransferGroup group{{}, {}, run.steps_before};
    for (const int task : run.tasks) {
      if (planner.tasks.tasks[task].device == planner.settings.rank) group.sends.push_back(send_of.at(task));
      else group.receives.push_back(receive_of.at(task));
    }
    const bool on_demand = planner.settings.transfer_buffers == TransferBuffers::on_demand;
    const bool of_parameters = is_parameter_transfer(planner.tasks.tasks[run.tasks[0]].kind);
    if ((on_demand || of_parameters) && !group.receives.empty() && run.steps_before > 1)
      plan.steps[run.steps_before - 1].receives_follow = true;
    plan.transfer_groups.push_back(std::move(group));
  }
}

}  // namespace ff
