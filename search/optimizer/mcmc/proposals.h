// What a Markov chain may propose next: distributions of changes to a strategy, by name.
#pragma once

#include <string>

#include "common/vector.h"
#include "search/optimizer/mcmc/chain_oracle.h"
#include "search/optimizer/search_space.h"

namespace ff {

// paper: one operator, drawn uniformly, gets a random configuration (paper, section 6.2).
// mixed: where the drawn operator shares parameters with others, half of the proposals give one configuration to all of
// them. Of the rest, half are the
//        paper's; others the configuration of a neighbour (20 %), other devices (15 %), other degrees (10 %), two
//        devices swapped or all rotated (5 %). Not symmetric: the chain no longer draws from exp(-beta cost), it only
//        searches.
enum class ProposalKind { paper, mixed };

// Immutable: threads may share one.
class ProposalSource {
 public:
  // All must outlive the source.
  ProposalSource(ProposalKind kind, const Graph& graph, const Topology& topology, const SearchSpace& space);

  // Replaces `changes` by what is proposed: at least one change, each of another operator, within the search space if
  // `current` is.
  void draw(const Strategy& current, RandomStream& random, Vector<Change>& changes) const;

 private:
  void draw_mixed(const Strategy& current, RandomStream& random, Vector<Change>& changes) const;
  bool copy_neighbour(const Strategy& current, OperatorId op, RandomStream& random, Vector<Change>& changes) const;
  // The degrees for `op` that mean the same as `configuration` does for `from`; others with as many parts where none
  // do; else none.
  bool translate(OperatorId from, const Configuration& configuration, OperatorId op, RandomStream& random,
                 Configuration& result) const;
  bool change_degrees(const Strategy& current, OperatorId op, RandomStream& random, Vector<Change>& changes) const;
  bool change_devices(const Strategy& current, OperatorId op, RandomStream& random, Vector<Change>& changes) const;
  bool permute_devices(const Strategy& current, OperatorId op, RandomStream& random, Vector<Change>& changes) const;
  bool change_group(const Strategy& current, OperatorId op, RandomStream& random, Vector<Change>& changes) const;

  ProposalKind kind_;
  const Graph& graph_;
  const SearchSpace& space_;
  uint32_t device_count_;
  // producers, consumers, and the steps before and after in the parameter group
  Vector<Vector<OperatorId>> neighbours_;
  Vector<Vector<OperatorId>> group_;  // operators that share parameters with this one, itself included
};

}  // namespace ff
