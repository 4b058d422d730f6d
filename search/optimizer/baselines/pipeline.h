// Pipelines: layers in stages, each stage on devices of its own and split there by sample.
#pragma once

#include <optional>

#include "search/optimizer/evaluator.h"
#include "search/optimizer/search_control.h"

namespace ff {

// Cuts a sequence of items into exactly `stages` contiguous stages, each with one of the `sizes` of devices, all stages
// together with at most `devices`, so that the slowest stage takes as little time as possible (dynamic programming).
// times_ns[size][item]: what the item takes on so many devices, by the place in `sizes`.
struct StageCut {
  Vector<int> first_item, devices;  // by stage; a stage ends where the next begins
};
std::optional<StageCut> cut_into_stages(const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& sizes,
                                        int stages, int devices);

struct Pipeline {
  Strategy strategy;
  Vector<int> devices;        // of each stage
  int chunks = 1;             // of consecutive layers that a stage's devices have
  bool across_nodes = false;  // a stage has its devices on as many nodes as there are; else neighbouring ones
  Prediction prediction;
};

// Steps of unrolled layers (operators that share parameters) pass through stages as micro-batches do elsewhere: while a
// stage works at a step, the one before it works at the next; and gradients are reduced among the devices of one stage
// alone (PipeDream, Harlap et al. 2018, arXiv 1806.03377, has stages of several devices, too). Layers are cut by depth
// into 2 stages, 3, and so on, 16 at most and until two more numbers in a row are no better: each with equally many
// devices a stage and with as many as balance their work, on neighbouring devices and across nodes. The fastest by the
// simulator is taken. With micro-batches, also stages of equally many devices that have two or four chunks of layers
// each, in turn (interleaved pipelines: Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM, section 2.2, arXiv 2104.04473): shorter bubbles, more transfers. Where the time is over,
// of those looked at, of which there is one at least.
// Nothing where no layer has several steps, as stages would wait for each other, or with one device.
std::optional<Pipeline> pipeline(Evaluator& evaluator, const SearchControl& control);

}  // namespace ff
