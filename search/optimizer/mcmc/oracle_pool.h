// Oracles and threads for chains.
#pragma once

#include <memory>

#include "search/optimizer/mcmc/oracle_team.h"

namespace ff {

// An oracle a thread, made when first used: on thousands of devices one takes gigabytes.
class OraclePool {
 public:
  OraclePool(const Problem& problem, SimulatorKind simulator, int threads)
      : problem_(problem), simulator_(simulator), oracles_(threads) {}

  int threads() const { return oracles_.count(); }
  // Calls work(number, team) for 0 .. count - 1 on the threads; where there are fewer, teams have several oracles.
  // Rethrows what any of them threw.
  void for_each(int count, const std::function<void(int, OracleTeam&)>& work);
  DeltaStatistics statistics() const;
  double slowest_s() const;  // of exact evaluations

 private:
  const Problem problem_;
  const SimulatorKind simulator_;
  Vector<std::unique_ptr<ChainOracle>> oracles_;
};

}  // namespace ff
