// Lower bounds for exhaustive search on single configurations and on pairs of neighbours, and the configurations that
// survive them.
//
// First in, first out has anomalies: a task that takes longer can make an iteration shorter. So nothing here compares
// schedules. A bound is the length of a path that every schedule has to walk, or the work that some resource has to do
// between two such paths, with every duration at its least over what is still open.
//
// Three tables, for each configuration of each operator; every entry holds for all strategies that contain the
// configuration and cost less than the limit:
//   head        [part]         end of its forward task
//   round_trip  [part][part']  from the end of the forward task of `part` to the start of the backward task of part'
//   tail        [part']        from the end of the backward task of part' to the end of the iteration; forward_tail
//                              from the end of the forward task
// An entry is the largest over the operator's edges of the least over the neighbour's surviving configurations of the
// longest path through that neighbour. A configuration whose head, round trip and tail, or whose devices' work between
// them, reach the limit is struck out, and so is a pair of neighbours; the tables are computed anew until nothing more
// falls away.
#pragma once

#include <algorithm>
#include <functional>

#include "common/task_graph/edge_copies.h"
#include "search/optimizer/exhaustive/schedule_bounds.h"
#include "search/optimizer/exhaustive/space.h"

namespace ff::exhaustive {

constexpr Nanoseconds no_path = -(Nanoseconds{1} << 50);

inline void raise_to(Nanoseconds& bound, Nanoseconds another) { bound = std::max(bound, another); }

// What both directions of an edge add between given choices of its ends.
struct Crossing {
  struct Pair {
    int producer_part, consumer_part;
    Nanoseconds forward, backward;  // transfers
  };
  Array<Pair, most_parts * most_parts> pairs;
  int count = 0;
  const Pair* begin() const { return pairs.data(); }
  const Pair* end() const { return pairs.data() + count; }
  // bytes, forward: [consumer part], [producer part]
  Array<int64_t, most_parts> input_copies{}, packing{};
  Array<int64_t, most_parts> gradient_packing{};  // bytes, backward: [consumer part]
  Array<GradientSum, most_parts> gradients{};     // [producer part]
};

// The least bytes that tasks of an operator copy because of one edge, over all open choices of its other end. [part]
struct EdgeCopies {
  Array<int64_t, most_parts> forward{};   // the consumer's input copies, or the producer's packing
  Array<int64_t, most_parts> backward{};  // the consumer's packing of the gradient, or the producer's sums
};

// Updates of a parameter group whose operators are all fixed: what each device does once the parts have ended and the
// collective is over.
struct UnitBound {
  uint32_t holders = 0;
  Vector<std::pair<OperatorId, int>> contributors;  // (operator, part)
  Nanoseconds all_reduce = 0;
  Vector<std::pair<int, Nanoseconds>> updates;  // (device, time)
};

class Bounds {
 public:
  explicit Bounds(Space& space);

  // Strikes out what cannot belong to a strategy that costs less than `limit`, all configurations being there at first.
  // False when nothing is left.
  bool reduce(Nanoseconds limit, const std::function<bool()>& stop);

  bool alive(OperatorId op, int32_t orbit) const { return tables_[op].alive[orbit]; }
  Nanoseconds head(OperatorId op, int32_t orbit, int part) const { return entry(op, orbit).head[part]; }
  Nanoseconds round_trip(OperatorId op, int32_t orbit, int part, int back) const {
    return entry(op, orbit).round_trip[part][back];
  }
  Nanoseconds tail(OperatorId op, int32_t orbit, int part) const { return entry(op, orbit).tail[part]; }
  Nanoseconds forward_tail(OperatorId op, int32_t orbit, int part) const { return entry(op, orbit).forward_tail[part]; }

  // A lower bound on the cost of every strategy that contains the configuration.
  Nanoseconds bound(OperatorId op, int32_t orbit);

  // The least update work of the shared group `group` on a device that this configuration of one of its operators
  // causes.
  double shared_update(OperatorId op, const Choice& choice, int group, int device) const;
  double least_own_work(OperatorId op) const { return tables_[op].least_work; }
  // The least of an open operator, forward, backward and updates of its own; and of the updates of a shared group.
  const Vector<OpenTask>& open_tasks(OperatorId op) const { return tables_[op].open; }
  const OpenTask& open_update(int group) const { return open_updates_[group]; }
  // that are trained
  const Vector<int>& groups_of(OperatorId op) const { return groups_of_[op]; }
  bool shared(int group) const { return space_.builder().groups()[group].operators.size() > 1; }

  void cross(int edge, const Choice& producer, const Choice& consumer, Crossing& crossing) const;
  bool cross_by_collectives(const EdgeExchanges& edge, bool gradient, const Choice& producer, const Choice& consumer,
                            Crossing& crossing) const;
  // Time of a task's copies of at least so many bytes, on the device of a part.
  Nanoseconds copy_time(const Choice& choice, int part, int64_t bytes) {
    return bytes == 0 ? 0 : space_.least_copy(bytes, space_.model_of(choice.devices[part]));
  }
  Nanoseconds forward_time(OperatorId op, const Choice& choice, int part) const;
  Nanoseconds backward_time(OperatorId op, const Choice& choice, int part) const;
  const EdgeCopies& consumer_copies(int edge, int32_t orbit) const;  // of the edge's consumer
  const EdgeCopies& producer_copies(int edge, int32_t orbit) const;  // of its producer
  // Time of copying `first` bytes at the beginning and `second` at the end: at once, or apart where statistics lie
  // between (then the larger of the two is a bound whatever the rates).
  Nanoseconds copy_time(OperatorId op, Direction direction, const Choice& choice, int part, int64_t first,
                        int64_t second) {
    return space_.has_statistics(op, choice, direction)
               ? std::max(copy_time(choice, part, first), copy_time(choice, part, second))
               : copy_time(choice, part, first + second);
  }
  // The units of a group under configurations of all its operators (the others of `strategy` are not looked at).
  Vector<UnitBound> units(int group, const Strategy& strategy);

  Space& space() { return space_; }

 private:
  using Parts = Array<int64_t, most_parts>;  // of nanoseconds or bytes
  struct Entry {
    Parts head{}, tail{}, forward_tail{};
    Array<Parts, most_parts> round_trip{};
    Nanoseconds forward_work = 0, backward_work = 0, update_work = 0;
    Vector<EdgeCopies> in, out;  // [position in in_edges, out_edges]
    Array<int64_t, most_parts> input_copies{}, packing{}, gradient_packing{}, gradient_sums{};  // sums over them
    Parts update_tail{};                           // by the updates of groups of its own
    Vector<UnitBound> units;                       // of these groups
    std::map<int, Vector<double>> shared_updates;  // by shared group: [device]
  };
  struct Table {
    Vector<Entry> entries;  // [orbit]
    Vector<bool> alive;
    Vector<OpenTask> open;
    double least_work = 0;  // of them
  };

  const Entry& entry(OperatorId op, int32_t orbit) const { return tables_[op].entries[orbit]; }
  // The longest paths through the consumer of an edge, between given choices of both ends.
  struct Passage {
    Array<Parts, most_parts> round_trip;  // [producer part][producer part]: added to the producer's
    Parts forward_tail;                   // [producer part]
    Parts head, tail;                     // [consumer part]
    EdgeCopies producer, consumer;
    Nanoseconds longest;  // of all paths through both ends
  };
  const Choice& representative(OperatorId op, int32_t orbit) const;
  // Kernels and the least copies.
  Nanoseconds least_forward(OperatorId op, const Choice& choice, const Entry& entry, int part) {
    return forward_time(op, choice, part) +
           copy_time(op, Direction::forward, choice, part, entry.input_copies[part], entry.packing[part]);
  }
  Nanoseconds least_backward(OperatorId op, const Choice& choice, const Entry& entry, int part) {
    return backward_time(op, choice, part) +
           copy_time(op, Direction::backward, choice, part, entry.gradient_sums[part], entry.gradient_packing[part]);
  }
  void lay_out_updates(OperatorId op, const Choice& choice, Entry& entry);
  void start_tables();
  // An edge under choices of its ends.
  struct Ends {
    int edge;
    const Choice& producer;
    const Entry& before;
    const Choice& consumer;
    const Entry& after;
  };
  void pass(const Ends& ends, Passage& passage);
  void pass_gradient(const Ends& ends, const Crossing& crossing, const Array<Parts, most_parts>& to_back,
                     Passage& passage);
  // By the least, over the surviving choices of each neighbour on one side, of the paths through it. Strikes the entry
  // out where a neighbour has no choice left that goes with it.
  enum class Side { producers, consumers };
  void extend(OperatorId op, int32_t orbit, Side side);
  void finish(OperatorId op, const Choice& choice, Entry& entry);
  void sum_up_work();
  Nanoseconds backward_ready(const Entry& entry, const Choice& choice, int part) const;
  // If its bound reaches the limit.
  void strike_out(OperatorId op, int32_t orbit);
  bool any_alive(OperatorId op) const;

  Space& space_;
  Vector<Table> tables_;
  Vector<Vector<int>> groups_of_;
  Vector<int> in_position_, out_position_;  // [edge]: in the consumer's in_edges, the producer's out_edges
  Vector<OpenTask> open_updates_;           // [group]
  Vector<OpenTask> released_;               // scratch
  Nanoseconds limit_ = 0;
};

}  // namespace ff::exhaustive
