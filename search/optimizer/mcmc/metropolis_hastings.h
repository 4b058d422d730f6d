// Metropolis-Hastings acceptance (paper, section 6.1).
//
// The paper samples strategies with probability p(S) ~ exp(-beta cost(S)) (equation 1). A chain at S moves to the
// proposal S* with probability (equation 2)
//
//   alpha(S -> S*) = min(1, p(S*) / p(S)) = min(1, exp(beta (cost(S) - cost(S*))))
//
// Here beta is divided by cost(S), so that one value serves milliseconds and minutes: a proposal that is slower by the
// fraction x = cost(S*) / cost(S) - 1 is accepted with probability exp(-beta x). The uniform number u in [0, 1) that
// decides is drawn before the proposal is simulated: u <= exp(-beta x) is cost(S*) <= cost(S) (1 - ln u / beta). So
// the largest cost that would be accepted is known, and simulation may stop as soon as the proposal is certain to
// exceed it.
#pragma once

#include <cmath>
#include <limits>

namespace ff {

// In whole nanoseconds, as costs are. Beta 0 accepts every proposal.
inline double largest_accepted_cost(double current_cost, double beta, double uniform) {
  if (!(beta > 0)) return std::numeric_limits<double>::infinity();
  return std::floor(current_cost * (1 - std::log(uniform) / beta));
}

}  // namespace ff
