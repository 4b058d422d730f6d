// What a Markov chain may propose next: distributions of changes to a strategy, by name.
#pragma once

#include <optional>

#include "search/optimizer/mcmc/structured_proposals.h"
#include "search/optimizer/search_space.h"

namespace ff {

// paper: one operator, drawn uniformly, gets a random configuration of the paper's space (paper, section 6.2).
// mixed: where the drawn operator shares parameters with others, half of the proposals give one configuration to all of
// them. Of the rest, half are the paper's; others the configuration of a neighbour (20 %), other devices (15 %), other
// degrees (10 %), two devices swapped or all rotated (5 %). Not symmetric: the chain no longer draws from
// exp(-beta cost), it only searches. Where devices are not alike a quarter of the proposals change the shares of an
// operator's parts, half of these together with all operators on the same devices that are split alike. Where memory is
// short a third of the proposals cut an operator into slices, half of them its neighbours as well.
// structured: three quarters are mixed, the others of structured_proposals.h; by chains that compete (portfolio.h).
enum class ProposalKind { paper, mixed, structured };

// Immutable: threads may share one.
class ProposalSource {
 public:
  // All must outlive the source.
  ProposalSource(ProposalKind kind, const Graph& graph, const Topology& topology, const SearchSpace& space);

  // A proposal: at least one change, each of another operator, within the search space if `current` is, and never
  // against the space's annotations if `current` keeps to them.
  // Short of memory: slices (SearchSpace::allows_slices) are proposed too.
  Vector<Change> draw(const Strategy& current, RandomStream& random, bool short_of_memory = false) const;

 private:
  OperatorId random_operator(RandomStream& random) const { return random.one_of(drawn_); }
  // Nothing where the drawn kind of proposal does not apply to the drawn operator.
  Vector<Change> draw_mixed(const Strategy& current, RandomStream& random) const;
  // Every part becomes two on its device, of an operator or also of its neighbours, along one dimension.
  Vector<Change> cut_into_slices(const Strategy& current, RandomStream& random) const;
  // The parts of one dimension get other shares: as fast as their devices are, one more and another less, or alike.
  Vector<Change> change_shares(const Strategy& current, RandomStream& random) const;
  std::optional<Vector<int>> other_shares(const Configuration& configuration, int dimension,
                                          RandomStream& random) const;
  Vector<Change> change_group(const Strategy& current, OperatorId op, RandomStream& random) const;
  // Other configurations for one operator.
  std::optional<Configuration> copy_neighbour(const Strategy& current, OperatorId op, RandomStream& random) const;
  Configuration change_degrees(const Configuration& current, OperatorId op, RandomStream& random) const;
  Configuration change_devices(Configuration configuration, RandomStream& random) const;
  Configuration permute_devices(Configuration configuration, RandomStream& random) const;

  ProposalKind kind_;
  const Graph& graph_;
  const SearchSpace& space_;
  StructuredProposals structured_;
  int device_count_;
  Vector<double> speed_;      // [device], of the fastest; empty where devices are alike
  Vector<OperatorId> drawn_;  // operators that have a choice; where none has, all
  // producers, consumers, and the steps before and after in the parameter group
  Vector<Vector<OperatorId>> neighbours_;
  Vector<Vector<OperatorId>> group_;  // operators that share parameters with this one, itself included
};

}  // namespace ff
