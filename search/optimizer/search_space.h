// The SOAP space (paper, section 4) as the search samples it. A configuration of one operator: common/strategy.h.
#pragma once

#include "common/strategy.h"
#include "common/vector.h"
#include "search/optimizer/annotations.h"
#include "search/optimizer/random.h"

namespace ff {

// For every operator, the degrees that a random configuration can have: each degree divides the number of devices and
// is at most the dimension's size, and their product is at most the number of devices. (Strategy files may hold any
// other degrees.) Degrees that annotations decide are as these say, whatever the number of devices.
class SearchSpace {
 public:
  // whole_operators: no operator is split, which leaves device placement alone. Graph and annotations must outlive the
  // space.
  SearchSpace(const Graph& graph, const Topology& topology, bool whole_operators = false,
              const Annotations* annotations = nullptr);

  const Vector<Degrees>& degrees(OperatorId op) const { return degrees_[op]; }
  // Those of the paper's space: without partial sums (DimensionKind::reduction), unless annotations ask for them.
  const Vector<Degrees>& soap_degrees(OperatorId op) const { return soap_degrees_[op]; }
  // Slices: more parts than devices, up to so many for each. They cost time and are for where memory is short, since
  // what a part needs for a while is less (task_graph/memory_plan.h).
  static constexpr int most_slices = 8;
  bool allows_slices(OperatorId op, const Degrees& degrees) const;
  Vector<Degrees> sliced_degrees(OperatorId op) const;  // all of them
  // The devices of every part, where an annotation decides them; then there is one choice of degrees.
  const Vector<DeviceId>* fixed_devices(OperatorId op) const {
    const Annotation* annotation = annotations_ ? annotations_->find(op) : nullptr;
    return annotation && annotation->devices ? &*annotation->devices : nullptr;
  }
  const Annotations* annotations() const { return annotations_; }
  // May parts of a dimension have shares that are not alike, where devices are not? Only where costs of all sizes of
  // parts are to be had (not from a profile).
  bool unequal_shares() const { return unequal_shares_; }
  void set_unequal_shares(bool allowed) { unequal_shares_ = allowed; }

  // Degrees uniformly from the paper's space, or (`sums`), once in four times, from degrees(op): where every dimension
  // can be a sum, most configurations are sums, and most of these are bad. Devices: with equal chances, consecutive
  // ones from a random first device on (wrapping around), which keeps neighbours near, or each drawn alone.
  Configuration random_configuration(OperatorId op, RandomStream& random, bool sums = false) const;
  const Degrees& random_degrees(OperatorId op, RandomStream& random, bool sums) const;
  Strategy random_strategy(RandomStream& random) const;

 private:
  const Graph& graph_;
  Vector<Vector<Degrees>> degrees_, soap_degrees_;  // [operator]
  int device_count_;
  bool whole_operators_;
  const Annotations* annotations_;
  bool unequal_shares_ = false;
};

}  // namespace ff
