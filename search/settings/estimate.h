// Estimates of plans from the simulation of one micro-batch: what the search for settings orders them by.
#pragma once

#include "search/optimizer/fewer_layers.h"
#include "search/settings/simulated_settings.h"

namespace ff {

// What the busiest device of a stage computes, and exchanges within layers, for a micro-batch.
struct StageCosts {
  int layers = 0;
  double of_layer = 0, beside = 0;  // in nanoseconds: each layer; embedding and loss
  double busy_with(int number) const { return number * of_layer + beside; }
};

// What one micro-batch tells of all.
struct ShapeCosts {
  Nanoseconds makespan = 0;       // of an iteration of one micro-batch
  Nanoseconds busiest = 0;        // what each further one takes of the busiest device, or of what it synchronizes
  Nanoseconds computing = 0;      // of `busiest`, what a device computes and exchanges within layers
  Nanoseconds synchronizing = 0;  // for each micro-batch, on the device that synchronizes most; 0: not for each
  Nanoseconds busy = 0;           // of all devices of a group: computing, and in collectives of layers
  Vector<int64_t> one, further;   // by simulated device, in bytes: with one micro-batch; each further one in flight
  Vector<int64_t> capacity;
  Vector<int> stage;          // by simulated device
  Vector<StageCosts> stages;  // with as many layers each as possible
};

// `parallelism` with one chunk for each stage; `folds` as in SimulatedSettings. Throws InputError where the plan is not
// possible: heads, or a batch that an operator does not divide.
ShapeCosts costs_of_shape(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                          const CostOptions& costs, KnownFolds& folds, StandIns stand_ins = StandIns::assumed);
// The same, from two plans with fewer layers where stages have many that are alike: each further layer takes as much
// as that which the second one has more.
ShapeCosts costs_of_shape(const Parallelism& parallelism, FewerLayers& layers, const Topology& topology,
                          const CostOptions& costs, KnownFolds& folds);
// With another number of layers for each stage.
ShapeCosts with_layers(ShapeCosts costs, const Vector<int>& of_stage);

// Of an iteration. Chunks shorten the time in which the pipeline fills and empties.
Nanoseconds estimated_time(const ShapeCosts& costs, const Parallelism& parallelism, int micro_batches);
// Of the fullest device's memory. `costs` may be those of micro-batches of fewer samples, by so many times: then it is
// less than what is needed.
double estimated_memory_share(const ShapeCosts& costs, const Parallelism& parallelism, int micro_batches,
                              double samples = 1);

}  // namespace ff
