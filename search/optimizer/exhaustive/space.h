// The strategies that exhaustive search goes through, laid out for speed: every configuration of every operator, what
// its parts cost, and the block pairs of every edge for every pair of degrees.
#pragma once

#include <memory>
#include <unordered_map>

#include "common/vector.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/exhaustive/topology_symmetry.h"
#include "search/optimizer/search_space.h"

namespace ff::exhaustive {

constexpr int most_parts = 8;  // of one operator, in exhaustive search

// Which assignments of an operator's parts to devices count as configurations.
enum class Assignments {
  all,          // each part on any device
  consecutive,  // part p on device (first + p) modulo their number, for any first
};

// One configuration of one operator.
struct Choice {
  int16_t degrees = 0;  // index into OperatorChoices::degrees
  int8_t parts = 0;
  Array<int8_t, most_parts> devices{};
  int32_t orbit = 0;  // choices that a symmetry of the topology maps onto each other have the same number
};

struct DegreesCosts {
  Degrees degrees;
  int parts = 0;
  // [device model][part]: kernels, statistics included, without copies
  Vector<Array<Nanoseconds, most_parts>> forward, backward;
  PerDirection<bool> statistics;
};

struct OperatorChoices {
  Vector<DegreesCosts> degrees;
  Vector<Choice> choices;
  Vector<int32_t> representative;    // [orbit]: the first choice of it
  Vector<Vector<int32_t>> of_orbit;  // [orbit]: all of its choices
};

struct PairDelay {
  int8_t producer_part, consumer_part;
  bool whole_output, whole_input, partial;
  int64_t bytes;
  const Nanoseconds* delay;  // [source * devices + destination]; 0 from a device to itself
};

struct EdgeChoices {
  Edge edge;
  bool gradient = false;
  // [producer's degrees * number of the consumer's + consumer's degrees]
  Vector<Vector<PairDelay>> pairs;
  Vector<std::shared_ptr<const EdgeExchanges>> exchanges;
};

class Space {
 public:
  // When the space cannot be laid out (see `enumerable`) there are no choices. The evaluator's block pairs and costs
  // are used; it must outlive this.
  Space(Evaluator& evaluator, const SearchSpace& space, Assignments assignments);

  const Graph& graph() const { return builder_.graph(); }
  int device_count() const { return device_count_; }
  int model_of(int device) const { return topology_.devices[device].model; }
  // At most 8 parts an operator and 100,000 configurations.
  bool enumerable() const { return enumerable_; }
  // decimal logarithm of the number of strategies, symmetric ones counted each
  double log10_size() const { return log10_size_; }

  const Vector<DevicePermutation>& symmetries() const { return symmetries_; }
  const OperatorChoices& choices(OperatorId op) const { return operators_[op]; }
  bool has_statistics(OperatorId op, const Choice& choice, Direction direction) const {
    return operators_[op].degrees[choice.degrees].statistics[direction];
  }
  const Vector<EdgeChoices>& edges() const { return edges_; }
  const Vector<Vector<int>>& in_edges() const { return in_edges_; }    // [operator]
  const Vector<Vector<int>>& out_edges() const { return out_edges_; }  // [operator]
  const Vector<PairDelay>& pairs(int edge, const Choice& producer, const Choice& consumer) const;
  const EdgeExchanges& exchanges(int edge, const Choice& producer, const Choice& consumer) const;

  Configuration configuration(OperatorId op, const Choice& choice) const;
  // The choice that is this configuration; -1 for one outside of the space.
  int32_t find(OperatorId op, const Configuration& configuration) const;
  // The choice with every part on the image of its device.
  Choice image(const Choice& choice, const DevicePermutation& permutation) const;

  // Time of copying at least so many bytes: the least of any larger number. Measured times need not grow with the size.
  Nanoseconds least_copy(int64_t bytes, int model);
  // A time an updated byte, in ns, that no partition of bytes into update tasks beats.
  double update_ns_per_byte(int model) const { return update_ns_per_byte_[model]; }
  // of an update of any size
  Nanoseconds least_update(int model) const { return least_update_[model]; }
  // The least time of a collective among the images of `holders` (a set of bits) under all symmetries.
  Nanoseconds least_collective(CollectiveKind kind, uint32_t holders, int64_t bytes);
  TaskGraphBuilder& builder() { return builder_; }
  TaskCostModel& costs() { return costs_; }

 private:
  void enumerate(OperatorId op, const Vector<Degrees>& degrees, Assignments assignments);
  void find_orbits(OperatorId op);
  void lay_out_edges();
  void bound_rates(KernelCosts& kernels, int model);
  const Nanoseconds* delays(int64_t bytes);

  TaskGraphBuilder& builder_;
  const Topology& topology_;
  TaskCostModel& costs_;
  int device_count_;
  bool enumerable_ = true;
  double log10_size_ = 0;
  Vector<DevicePermutation> symmetries_;
  Vector<OperatorChoices> operators_;
  Vector<EdgeChoices> edges_;
  Vector<Vector<int>> in_edges_, out_edges_;
  std::unordered_map<int64_t, std::unique_ptr<Vector<Nanoseconds>>> delays_;  // by bytes
  Vector<std::unordered_map<int64_t, Nanoseconds>> least_copies_;             // [model], by bytes
  Vector<Vector<int64_t>> measured_copies_;                                   // [model]: sizes of profile entries
  Vector<double> update_ns_per_byte_;
  Vector<Nanoseconds> least_update_;
  std::map<std::tuple<CollectiveKind, uint32_t, int64_t>, Nanoseconds> collectives_;
};

}  // namespace ff::exhaustive
