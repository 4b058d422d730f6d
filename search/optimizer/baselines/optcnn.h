// OptCNN (Jia et al. 2018, "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", arXiv
// 1802.04924).
#pragma once

#include <optional>

#include "search/optimizer/baselines/layerwise_costs.h"

namespace ff {

struct OptcnnResult {
  Strategy strategy;
  Nanoseconds objective = 0;  // of the layer-wise cost model, where nothing overlaps: not the simulator's time
  int layers = 0;
  int not_eliminated = 0;  // layers whose choice is not proven best
  bool groups_are_split = false;
};

// The degrees of every layer that minimize LayerwiseCosts, on the first devices in the order of the topology's links,
// by elimination of nodes and edges. Memory is not looked at. Nothing when the cost tables would take more than
// `most_steps` steps, or when stopped.
std::optional<OptcnnResult> optcnn(Evaluator& evaluator, const SearchSpace& space, double most_steps,
                                   const SearchControl* control = nullptr);

}  // namespace ff
