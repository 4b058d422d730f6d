#include "common/kernels/cuda/convolution_choice.h"

#include <algorithm>

namespace ff::cuda {
namespace {

// More workspace than this seldom makes a convolution faster.
constexpr int64_t most_workspace_bytes = int64_t{1} << 30;

int rank(const ConvolutionCandidate& candidate) { return (candidate.deterministic ? 2 : 0) + candidate.own_math; }

}  // namespace

int choose_convolution(std::span<const ConvolutionCandidate> candidates, int64_t limit_bytes) {
  int highest = -1;
  for (const ConvolutionCandidate& one : candidates)
    if (one.workspace_bytes <= limit_bytes) highest = std::max(highest, rank(one));
  const auto eligible = [&](const ConvolutionCandidate& one) {
    return one.workspace_bytes <= limit_bytes && rank(one) == highest;
  };
  double fastest_ms = 0;
  bool any = false;
  for (const ConvolutionCandidate& one : candidates)
    if (eligible(one) && (!any || one.ms < fastest_ms)) fastest_ms = one.ms, any = true;
  int chosen = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ConvolutionCandidate& one = candidates[i];
    if (!eligible(one) || one.ms > fastest_ms * time_margin) continue;
    if (chosen < 0 || one.order < candidates[static_cast<size_t>(chosen)].order) chosen = static_cast<int>(i);
  }
  return chosen;
}

int64_t workspace_limit_bytes(int64_t memory_bytes) { return std::min(most_workspace_bytes, memory_bytes / 64); }

}  // namespace ff::cuda
