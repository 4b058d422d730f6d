// Who exchanges blocks with whom over an edge, found once for each pair of degrees.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff::delta {

// One edge under given degrees at both ends.
struct EdgePlan {
  std::shared_ptr<const BlockPairs> pairs;  // in order of (consumer part, producer part)
  Vector<int32_t> consumer_begin;           // [consumer part + 1]: its pairs
  Vector<int32_t> producer_begin;           // [producer part + 1]: into by_producer
  Vector<int32_t> by_producer;              // indices of pairs
  bool one_to_one = false;                  // part i exchanges blocks with part i, in pair i, and with no other

  // Calls visit(pair, its index) for the pairs of which the part is the sender.
  template <Direction direction, typename Visit>
  void for_each_pair_of_sender(int part, const Visit& visit) const {
    constexpr bool forward = direction == Direction::forward;
    const Vector<int32_t>& begin = forward ? producer_begin : consumer_begin;
    for (int32_t i = begin[part]; i < begin[part + 1]; ++i) {
      const int32_t index = forward ? by_producer[i] : i;
      visit((*pairs)[index], index);
    }
  }
};

class EdgePlans {
 public:
  explicit EdgePlans(TaskGraphBuilder& builder) : builder_(builder), plans_(builder.edges().size()) {}

  // The reference holds until the next call.
  const std::shared_ptr<const EdgePlan>& plan(int edge, const Degrees& producer, const Degrees& consumer);

 private:
  static constexpr size_t most_cached_pairs = size_t{1} << 26;  // 256 MB

  TaskGraphBuilder& builder_;
  // [edge, of those that are alike the first]; key: both ends' degrees
  Vector<std::unordered_map<Vector<int>, std::shared_ptr<const EdgePlan>, NumbersHash>> plans_;
  // by pairs, producer parts, consumer parts: unrolled steps have equal ones
  std::map<std::tuple<const BlockPairs*, size_t, size_t>, std::shared_ptr<const EdgePlan>> distinct_;
  size_t cached_pairs_ = 0;
  Vector<int> key_;  // scratch
};

}  // namespace ff::delta
