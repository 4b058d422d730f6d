// The best settings (optimizer/parallelism.h) of a transformer on many devices, by branch and bound.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "search/settings/prediction.h"

namespace ff {

struct SettingsSearchProgress {
  double elapsed_s = 0;
  int64_t estimated = 0, simulated = 0;
  Nanoseconds best = 0;  // 0: nothing fits so far
};

struct SettingsSearchOptions {
  Parallelism pinned;           // what stays as it is: the keys of `given`, attention and framework
  std::set<std::string> given;  // tp, pp, vp, dp, stage_dp, cp, ep, micro_batch, sharding, recompute
  int micro_batches = 0;        // of a data-parallel group; 0: any number
  bool equal_stages = false;    // none of different width: for frameworks, whose stages are equal
  std::string planned_for;      // framework that is to say the plan; "": that of its conventions
  int top = 10;                 // how many of the fastest are looked for
  double budget_s = 0;          // 0: none
  std::function<void(const SettingsSearchProgress&)> progress;
  std::function<void(const Vector<SettingsPrediction>&)> improved;  // the best so far, whenever they change
};

// Settings that a search met, in the order in which it did.
struct LookedAt {
  // slower: than the `top` fastest, in simulation; its memory is estimated.
  enum class Outcome { fits, exceeds_memory, slower, estimated, bounded };
  Parallelism parallelism;
  Outcome outcome = Outcome::bounded;
  Nanoseconds time = 0;     // simulated, or estimated; of what is only bounded: not less than that
  double memory_share = 0;  // simulated or estimated; 0: not known
};

struct SettingsSearchResult {
  Vector<SettingsPrediction> best;  // those that fit, the fastest first; `top` of them at most
  int64_t settings = 0;             // in the space
  int64_t estimated = 0;  // shapes (tp, pp, micro-batch, recomputation, sharding): one micro-batch was simulated
  int64_t simulated = 0;
  int64_t exceed_memory = 0;        // of those that were estimated or simulated
  Nanoseconds least_of_others = 0;  // the least estimate of all that were not simulated; 0: all were
  double most_below_estimate = 0;   // how far a simulation came out below its estimate, as a fraction of the estimate
  Vector<LookedAt> looked_at;       // once each
  int64_t refined = 0;              // plans simulated that differ from those of the search in borders or recomputation
  bool complete = true;             // neither the budget nor an interruption ended the search
  double elapsed_s = 0;
};

// Of those whose memory is known; null: none.
const LookedAt* with_least_memory(const SettingsSearchResult& result);

// Looks at each divisor of the devices as tensor-parallel degree, within a node, and as number of stages; at
// micro-batches of powers of two, and without stages whole groups; up to six chunks, for micro-batches that the stages
// divide: they divide the layers equally, or where stages do not, no stage has more of them than without chunks, and
// likewise with the layers shared by what stages compute (fewer for slow devices, the embedding and the loss) where
// the busiest stage has 1 % less to do then; sharding, as far as the framework can, with stages that of the
// optimizer's state alone, as more would be exchanged for each micro-batch; recomputation of nothing or all, and in
// between without a framework elementwise, with framework=megatron norms, with fsdp selective. Context parallelism is
// looked at with a framework, by powers of two that leave each part at least 2,048 positions: after all plans without
// it, unless the batch has fewer samples than there are nodes. Experts are in parts that divide them, on whole
// data-parallel groups, each split as other layers or (with context parallelism always) on one device; sharded
// gradients and parameters, where they fit, also among the ranks of a node.
//
// Settings wait in the order of a bound: first the compute time of the model spread evenly over stages, then an
// estimate from one micro-batch that is simulated: its time, and for each further one that of the busiest device with
// its collectives. They are simulated (predict_settings) from the least estimate on, until those that are left would
// be slower than the `top` fastest even if simulation came out 5 % below their estimates, or as far below as it did for
// any so far. The memory of those that turn out slower than that is not computed. Sharding beyond the optimizer's
// state, and recomputation, cost time: they are looked at where less of them exceeds device memory.
//
// Throws InputError where nothing is possible. Without a budget the result depends on nothing but the input.
SettingsSearchResult search_settings(const Graph& graph, const Topology& topology, const CostOptions& costs,
                                     const SettingsSearchOptions& options, const std::atomic<bool>& stop);

}  // namespace ff
