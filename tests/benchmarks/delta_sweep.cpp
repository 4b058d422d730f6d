// Delta simulation against full simulation on as many random networks, topologies and chains of changes as asked for:
// delta_test.cpp's cases, but others, and more of them.
//   delta_sweep FIRST COUNT [CHANGES]
// Even cases reduce parameters over all devices, odd ones have owners; every fourth is a chain of proposals on a
// network of real layers (chain_comparison.h). Ends at the first difference, with its number.
#include <charconv>
#include <cstdio>
#include <string_view>

#include "tests/support/chain_comparison.h"

namespace {

bool read_number(std::string_view text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int main(int count, char** words) {
  uint32_t first = 0, cases = 0, changes = 200;
  if (count < 3 || count > 4 || !read_number(words[1], first) || !read_number(words[2], cases) ||
      (count == 4 && !read_number(words[3], changes))) {
    std::fprintf(stderr, "usage: %s FIRST COUNT [CHANGES]\n", words[0]);
    return 2;
  }
  ff::DeltaStatistics sum;
  for (uint32_t number = first; number < first + cases; ++number) {
    ff::RandomSource random(number);
    const auto synchronization =
        number % 2 == 0 ? ff::Synchronization::all_reduce : ff::Synchronization::parameter_server;
    const ff::DeltaComparison comparison =
        number / 2 % 4 == 3 ? ff::compare_chain_with_full(random, static_cast<int>(changes), synchronization)
                            : ff::compare_delta_with_full(random, static_cast<int>(changes), 20, synchronization);
    if (!comparison.difference.empty()) {
      std::printf("case %u: %s\n", number, comparison.difference.c_str());
      return 1;
    }
    sum += comparison.statistics;
  }
  std::printf(
      "%u cases from %u, %lld changes proposed, none differs: %lld rejected before simulation, %lld during it, "
      "%lld simulations that returned to the known timeline\n",
      cases, first, static_cast<long long>(sum.proposals), static_cast<long long>(sum.rejected_before_simulation),
      static_cast<long long>(sum.rejected_during_simulation), static_cast<long long>(sum.returned));
}
