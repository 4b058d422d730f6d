// Fuzz target: delta simulation against full simulation. The bytes decide network, topology, strategies, proposals and
// limits, their number (even or odd) how parameters are synchronized. Bytes of some lengths also decide a chain
// of proposals on a network of real layers (chain_comparison.h).
//   cmake --preset fuzz && cmake --build --preset fuzz && build/fuzz/tests/delta_fuzz -max_total_time=3600
//   -max_len=2048
#include <cstdio>
#include <cstdlib>

#include "tests/support/chain_comparison.h"

namespace {

void expect_equal(const ff::DeltaComparison& comparison) {
  if (comparison.difference.empty()) return;
  std::fprintf(stderr, "%s\n", comparison.difference.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  ff::RandomSource random(bytes, size);
  const auto synchronization = size % 2 == 0 ? ff::Synchronization::all_reduce : ff::Synchronization::parameter_server;
  expect_equal(ff::compare_delta_with_full(random, static_cast<int>(8 + size / 16), 8, synchronization));
  ff::RandomSource again(bytes, size);
  if (size % 16 == 3)  // the longer one
    expect_equal(ff::compare_chain_with_full(again, static_cast<int>(30 + size / 16), synchronization));
  return 0;
}
