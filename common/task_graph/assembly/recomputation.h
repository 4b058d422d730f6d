// Tasks that compute forward once more (recomputation.h), and when a segment of them begins.
#pragma once

#include <map>

#include "common/task_graph/assembly/draft.h"

namespace ff::assembly {

// Sets of what is numbered from `begin` to `end`: of tasks, or of operators, that read each other's recomputed outputs.
class Segments {
 public:
  Segments(int32_t begin, int32_t end) : begin_(begin) {
    for (int32_t one = begin; one < end; ++one) first_.push_back(one), reads_.push_back(false);
  }
  void join(int32_t producer, int32_t consumer) {
    reads_[consumer - begin_] = true;
    producer = first_of(producer), consumer = first_of(consumer);
    first_[std::max(producer, consumer) - begin_] = std::min(producer, consumer);
  }
  int32_t first_of(int32_t one) {
    while (first_[one - begin_] != one) one = first_[one - begin_] = first_[first_[one - begin_] - begin_];
    return one;
  }
  bool reads_recomputed(int32_t one) const { return reads_[one - begin_]; }

 private:
  const int32_t begin_;
  Vector<int32_t> first_;
  Vector<bool> reads_;
};

class Recomputation {
 public:
  explicit Recomputation(Draft& draft) : draft_(draft) {}

  // When the orders of all other compute tasks and edges are known.
  void add();
  // The task that recomputes a part; -1: it is not here, or not recomputed.
  int32_t task_of(OperatorId op, int32_t part) const {
    const int place = draft_.result.place_of(op, part);
    return recomputed_.empty() || recomputed_[op] < 0 || place < 0 ? -1 : recomputed_[op] + place;
  }
  // The last operator that is recomputed together with this one, or reads in its backward pass what then is; itself,
  // where it is not recomputed.
  OperatorId last_with(OperatorId op);

 private:
  // A part whose backward pass reads what a task recomputes, and is not recomputed itself.
  struct Reader {
    int32_t recomputed;  // task
    OperatorId op;
    int32_t part;
  };
  using Parts = Vector<std::pair<OperatorId, int32_t>>;  // ascending
  void start_segments(int32_t begin, Segments& segments);
  std::map<int32_t, Parts> last_of_segments(int32_t begin, int32_t end, Segments& segments) const;
  int32_t backward_of(OperatorId op, int32_t part) { return draft_.first(Direction::backward, op, part); }

  Draft& draft_;
  Vector<Reader> readers_;
  Vector<int32_t> recomputed_;    // [operator]: index of the first part's task; -1: none; empty: none at all
  Vector<OperatorId> last_with_;  // [operator]; empty: not asked for
};

}  // namespace ff::assembly
