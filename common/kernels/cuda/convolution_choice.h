// Which of several measured ways to compute a convolution is taken. Runs should agree in their bits from process to
// process, but times vary: so a way that is a little faster than another one does not win for that. The first one in a
// fixed order wins among those that take at most `time_margin` times as long as the fastest.
#pragma once

#include <cstdint>
#include <span>

namespace ff::cuda {

struct ConvolutionCandidate {
  int order = 0;               // lower comes first
  bool deterministic = false;  // gives the same bits in every run
  bool own_math = false;       // was measured with the arithmetic that it will run with
  int64_t workspace_bytes = 0;
  double ms = 0;
};

constexpr double time_margin = 1.25;

// Its index; -1 where none has a workspace within the limit. A deterministic one is taken if there is one, whatever its
// time and arithmetic; then one that was measured with its own arithmetic; then as above.
int choose_convolution(std::span<const ConvolutionCandidate> candidates, int64_t workspace_limit_bytes);

// The limit of a workspace on a device with so much memory, of which as much may be in use: not by what is free, which
// differs from run to run.
int64_t workspace_limit_bytes(int64_t memory_bytes);

}  // namespace ff::cuda
