// The cost model of OptCNN (Jia et al. 2018, arXiv 1802.04924, section 5): layers one after the other, nothing
// overlaps, so that an iteration's time is a sum over layers and over the tensors between them.
//
// Differences from that paper: the costs of kernels, transfers and collectives are those of our simulator, not bytes
// over bandwidth and parameter servers, and an edge has collectives where the task graph has them.
#pragma once

#include <map>

#include "common/vector.h"
#include "search/optimizer/baselines/table_elimination.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/search_control.h"
#include "search/optimizer/search_space.h"

namespace ff {

// A layer is one operator, or all operators that share parameters (unrolled steps), which then have one configuration:
// degrees over sample, attribute and parameter dimensions, part p on device p. Not thread-safe.
class LayerwiseCosts {
 public:
  // The evaluator's block pairs and costs are used; it must outlive this. `control` ends it early, as tables.
  LayerwiseCosts(Evaluator& evaluator, const SearchSpace& space, const SearchControl* control = nullptr);

  struct Layer {
    Vector<OperatorId> operators;  // ascending
    // its configurations: those that the search space has for each of its operators
    Vector<Degrees> degrees;
  };
  const Vector<Layer>& layers() const { return layers_; }
  // Operators of one parameter group that are of different kinds stay layers of their own; their synchronization is
  // then counted as if the others were whole and on device 0.
  bool groups_are_split() const { return groups_are_split_; }

  // Costs of all layers and of all pairs of layers with tensors between them; edges within a layer belong to the layer.
  // `control` ends it early, with tables that mean nothing.
  CostTables tables(const SearchControl* control = nullptr);
  // The strategy of one choice of degrees a layer.
  Strategy strategy(const Vector<int>& choice) const;

  // compute_ns: the slowest part's forward plus the slowest part's backward, statistics included, and their
  // all-reduces.
  Nanoseconds compute_ns(OperatorId op, const Degrees& degrees);
  // synchronization_ns: of all parameter groups of the layer's operators: the collectives, which share links, then the
  // busiest device's updates.
  Nanoseconds synchronization_ns(int layer, const Degrees& degrees);
  // exchange_ns: what one tensor's exchange takes forward and then backward: its collectives, where the edge has them,
  // else its transfers: the most loaded link or the longest single one of each direction. And the most copying that a
  // part does to pack, assemble and gather.
  Nanoseconds exchange_ns(const EdgeBlocks& blocks, bool gradient);
  // Steps that tables() takes, roughly: pairs of blocks looked at.
  double steps() const;

 private:
  class Loads;
  struct EdgeUse {
    int edge, written, read;  // numbers of block lists
    bool gradient;
    int producer, consumer;  // layers
  };

  void make_layers(const SearchSpace& space);
  struct BlockLists {
    Vector<Vector<Block>> of_parts;  // [choice][part]
    Vector<int> writers;             // [choice]: so many parts write a partial sum each
  };
  int blocks_number(BlockLists blocks);  // equal lists have equal numbers
  Nanoseconds slowest_copy(const Vector<int64_t>& bytes);
  Nanoseconds edge_cost(const EdgeUse& use, int producer_choice, int consumer_choice);

  const Graph& graph_;
  const Topology& topology_;
  TaskGraphBuilder& builder_;
  TaskCostModel& costs_;
  int device_count_;
  Vector<Layer> layers_;
  Vector<int> layer_of_;  // by operator
  bool groups_are_split_ = false;
  Vector<BlockLists> block_lists_;  // [number]
  std::map<Vector<int64_t>, int> block_numbers_;
  Vector<EdgeUse> uses_;
  EdgeBlocks scratch_;
  Vector<double> load_ns_;  // by resource; zero between calls
  Vector<int32_t> loaded_;
};

}  // namespace ff
