// What experts do by hand for each kind of network (the baselines of the paper's section 8.2).
#pragma once

#include <string>

#include "common/strategy.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"

namespace ff {

struct ExpertStrategy {
  Strategy strategy;
  std::string note;  // which rule was used, and whose
};

// Chosen by the kind of graph:
//   recurrent (any lstm): data parallelism across nodes, each a replica of the whole graph; within a node, operators of
//     equal depth on the same device (Wu et al. 2016, arXiv 1609.08144). An operator's depth is that of its layer, which
//     is all operators that share its parameters (unrolled steps): the longest path of layers in front of it.
//     Consecutive depths are cut into stages of balanced time.
//   convolutional (any conv1d or conv2d): data parallelism, but dense layers (linear on [sample, channel], and what
//     follows them on such tensors) are split by channel over all devices (Krizhevsky 2014, arXiv 1404.5997, "one weird
//     trick").
//   any other (transformers, recommendation): the paper names no expert; data parallelism, and the note says so.
ExpertStrategy expert_strategy(const Problem& problem, TaskCostModel& costs);

}  // namespace ff
