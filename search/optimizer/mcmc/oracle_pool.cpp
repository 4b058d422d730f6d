#include "search/optimizer/mcmc/oracle_pool.h"

#include <algorithm>

namespace ff {

void OraclePool::for_each(int count, const std::function<void(int, OracleTeam&)>& work) {
  const int lanes = std::min(count, threads());
  std::atomic<int> next{0};
  Vector<std::exception_ptr> failures(lanes);
  const auto run = [&](int lane) {
    try {
      Vector<ChainOracle*> oracles;
      for (int number = lane; number < threads(); number += lanes) {
        if (!oracles_[number]) oracles_[number] = make_chain_oracle(simulator_, problem_);
        oracles.push_back(oracles_[number].get());
      }
      OracleTeam team(oracles);
      for (int number = next++; number < count; number = next++) work(number, team);
    } catch (...) {
      failures[lane] = std::current_exception();
      next = count;
    }
  };
  Vector<std::thread> helpers;
  try {
    for (int lane = 1; lane < lanes; ++lane) helpers.emplace_back(run, lane);
  } catch (const std::exception&) {  // no more threads: those that run take all of the work
  }
  run(0);
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

DeltaStatistics OraclePool::statistics() const {
  DeltaStatistics sum;
  for (const auto& oracle : oracles_)
    if (oracle) sum += oracle->statistics();
  return sum;
}

double OraclePool::slowest_s() const {
  double slowest = 0;
  for (const auto& oracle : oracles_)
    if (oracle) slowest = std::max(slowest, oracle->slowest_s());
  return slowest;
}

}  // namespace ff
