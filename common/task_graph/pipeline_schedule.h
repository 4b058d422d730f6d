// 1F1B: the fixed order in which the stages of a pipeline take the passes of micro-batches, one forward, one backward.
//
// A pass is the work of one micro-batch in one direction in one stage. Which passes there are, and their order, follow
// from graph and strategy alone: a strategy file says `"schedule": "1f1b"`, and simulator, memory model and ffexec
// derive the same issue order from it (pipeline_issue_order).
#pragma once

#include <limits>
#include <optional>

#include "common/strategy.h"
#include "common/task_graph/task.h"

namespace ff {

// [device]: a number that devices of one stage have in common, as they compute parts of one operator.
Vector<int> stages_of(const Strategy& strategy, int device_count);

struct StagesToTheEnd {
  int count = 1;
  Vector<int> depth;  // [operator]: of its longest path to the end, its own stage included
  // [operator]: not on a path through the last stage, as losses of layers. It belongs where its inputs are made.
  Vector<bool> beside;
  // A pass is a number: (2 micro_batch + (0 forward, 1 backward)) count + stages to the end - 1.
  int pass_of(OperatorId op, Direction direction, int micro_batch) const {
    return (2 * micro_batch + (direction == Direction::backward ? 1 : 0)) * count + depth[op] - 1;
  }
};
// `stage`: stages_of.
StagesToTheEnd stages_to_the_end(const Graph& graph, const Strategy& strategy, const Vector<int>& stage);

// The fixed order (Narayanan et al. 2021, SC, section 2.2; Megatron-LM's schedules.py): p stages in a row have v chunks
// of layers each. Device r of 0 .. p-1 begins with some forward passes, then takes forward and backward passes
// in turn, then those that are left. With v = 1 it begins with p-1-r of them. With more, interleaved, the micro-batches
// are a multiple of p; forward and backward, a device takes p micro-batches through a chunk before it takes them
// through its next one, and begins with 2 (p-1-r) + (v-1) p passes, with all of them where there are p micro-batches.
// One stage accumulates gradients: forward and backward of one micro-batch after the other. That is an order for plans
// in which all devices have a part of each operator; where operators are on devices of their own, others may do better.
class PipelineSchedule {
 public:
  // Nothing where stages are not in a row or chunks differ in number; for one stage with operators on some of its
  // devices; with several chunks and micro-batches that are no multiple of the stages; where statistics are those of
  // all micro-batches together. `strategy` is that of one micro-batch.
  static std::optional<PipelineSchedule> of(const Graph& graph, const Strategy& strategy, int micro_batches,
                                            int device_count);

  static std::optional<PipelineSchedule> of(const StrategyFile& file);

  int chunks() const { return chunks_; }                             // of each device
  const Vector<Vector<int32_t>>& passes() const { return passes_; }  // [device]: in its order (StagesToTheEnd::pass_of)
  int stages() const { return stages_.count; }

  // When the pass begins in which an operator is computed for a micro-batch, if forward takes 1 and backward 2 in every
  // stage: what comes after it begins later, and the passes of a device in their order. An operator that is computed
  // once for all (micro-batch -1) has its forward before all passes and backward after them.
  static constexpr int64_t before_all = -1, after_all = std::numeric_limits<int64_t>::max();
  int64_t start_of(OperatorId op, Direction direction, int micro_batch) const;

 private:
  StagesToTheEnd stages_;
  int chunks_ = 0;
  Vector<Vector<int32_t>> passes_;
  Vector<int64_t> starts_;  // [pass]
};

}  // namespace ff
