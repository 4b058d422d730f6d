// Proposals that keep to the structure of networks and clusters: changes of operators that belong together, to devices
// in a pattern.
#pragma once

#include <optional>

#include "search/optimizer/search_space.h"

namespace ff {

// The configuration for `to` that means the same as `from`'s: degrees are matched by the names of their dimensions, the
// devices are the same. Nothing where the space of `to` has no such.
std::optional<Configuration> translated(const Graph& graph, const SearchSpace& space, OperatorId from, OperatorId to,
                                        const Configuration& configuration);

// Immutable: threads may share one.
class StructuredProposals {
 public:
  // All must outlive the proposals.
  StructuredProposals(const Graph& graph, const SearchSpace& space, int device_count);

  // A change of `op` and of others that belong with it; possibly none.
  Vector<Change> draw(const Strategy& current, OperatorId op, RandomStream& random) const;

 private:
  Vector<OperatorId> operators_with(const Strategy& current, OperatorId op, RandomStream& random) const;
  Vector<OperatorId> steps_around(OperatorId op, RandomStream& random) const;
  Vector<OperatorId> on_the_same_devices(const Strategy& current, OperatorId op, RandomStream& random) const;
  Vector<Change> other_devices(const Strategy& current, const Vector<OperatorId>& operators, OperatorId op,
                               RandomStream& random) const;
  Vector<Change> rotation(const Strategy& current, const Vector<OperatorId>& operators, RandomStream& random) const;
  // The configuration of `from` for all.
  Vector<Change> like(const Configuration& configuration, OperatorId from, const Vector<OperatorId>& operators) const;
  Vector<Change> like_a_neighbour(const Strategy& current, const Vector<OperatorId>& operators, OperatorId op,
                                  RandomStream& random) const;
  Configuration other_degrees(const Strategy& current, OperatorId op, RandomStream& random) const;

  const Graph& graph_;
  const SearchSpace& space_;
  int device_count_;
  Vector<Vector<OperatorId>> neighbours_;  // producers and consumers
  Vector<Vector<OperatorId>> layer_;       // operators that share parameters with this one, itself included
  // the layer with the operators without parameters that follow its operators, itself included
  Vector<Vector<OperatorId>> block_;
};

}  // namespace ff
